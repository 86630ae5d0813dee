/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks whose result one rank keeps, by all dense handlers (_i): the elements go to the child that
 * has the owner behind it, headers to the others, whoever asks, whatever comes from the parent or
 * from a run that was lost.
 */
#include <string.h>

#include "protocols/dense/switch/dense.h"
#include "tests/unit/handler_rig.h"
#include "tests/unit/handlers_here.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define CHILDREN 5
#define WINDOW 2
#define SLOTS (2 * WINDOW)
#define COUNT 8
#define INDEX 1
#define STOCK 4

static const char *handlers[] = { "single", "multi", "tree", "sparse-array", "broadcast" };
static int n_handlers; /* that this build has */

static struct handler_rig rig;
static struct fanin_dense unused;
static uint8_t *slots[SLOTS];

static void
start(int which, uint16_t n_children, bool wide)
{
	const struct fanin_job_params job = {
		.id = 5,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = COUNT * 4,
		.keys = { .up = 1, .down = 2 },
		.buffers = 2,
		.wide = wide,
	};

	handler_rig_start(&rig, handlers[which], &job, INDEX);
	for (unsigned int i = 0; i < SLOTS; i++)
		slots[i] = (uint8_t *)&unused;
	slots[INDEX] = rig.slot;
	rig.job.slots = (struct fanin_slots){ .by_index = slots, .mask = SLOTS - 1 };
	handler_rig_stock(&rig, STOCK);
}

/*
 * A switch in the middle of a tree: child c has the ranks 2c + 2 and 2c + 3 behind it, others are
 * elsewhere.
 */
static void
start_leaf(int which)
{
	start(which, CHILDREN, false);
	rig.ctx.parent_epoch = 7;
	rig.job.has_parent = true;
	rig.job.n_ranks = 2 * CHILDREN + 4;
	rig.job.n_below = 2 * CHILDREN;
	rig.job.parent_rank = 2;
	for (unsigned int child = 0; child < CHILDREN; child++)
		rig.job.child_ranks[child] = fanin_ranks_of_word(UINT64_C(3) << (2 * child + 2));
}

static struct shape
shape_of(uint16_t owner)
{
	return (struct shape){ FANIN_WIRE_I32, OWNED_BY(FANIN_WIRE_SUM, owner), COUNT };
}

static struct answer
contribute(uint16_t child, uint32_t block, uint16_t flags, uint16_t owner)
{
	const struct shape shape = shape_of(owner);
	int32_t values[COUNT];

	for (int i = 0; i < COUNT; i++)
		values[i] = (int32_t)block * 1000 + child * 10 + i;
	return handler_rig_contribute(&rig, child, block, flags, &shape, values);
}

static void
contribute_all(uint32_t block, uint16_t owner)
{
	for (uint16_t child = 0; child < rig.job.n_children; child++)
		ck_assert_int_ne(contribute(child, block, 0, owner).verdict, FANIN_VERDICT_DROP);
}

/* Has the mbuf the headers of a block's result? */
static void
expect_result(struct rte_mbuf *mbuf, uint32_t block, uint16_t owner, bool is_empty)
{
	const struct fanin_hdr *hdr = &headers_of(mbuf)->fanin;
	const uint32_t len = is_empty ? 0 : COUNT * 4;

	ck_assert_uint_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(hdr->flags, is_empty ? FANIN_FLAG_EMPTY : 0);
	ck_assert_uint_eq(hdr->block, block);
	ck_assert_uint_eq(hdr->count, COUNT);
	ck_assert_uint_eq(hdr->dtype, FANIN_WIRE_I32);
	ck_assert_uint_eq(hdr->op, FANIN_WIRE_SUM);
	ck_assert_uint_eq(hdr->root, fanin_root_of_owner(owner));
	ck_assert_uint_eq(hdr->contributions, rig.job.n_ranks);
	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET + len);
	ck_assert_uint_eq(mbuf->pkt_len, FANIN_PAYLOAD_OFFSET + len);
	ck_assert_uint_eq(fanin_wire_payload_len(headers_of(mbuf)), len);
}

static void
expect_sum(struct rte_mbuf *mbuf, uint32_t block)
{
	const int32_t *found = elements_of(mbuf);
	const int n = rig.job.n_children;

	for (int i = 0; i < COUNT; i++)
		ck_assert_int_eq(found[i],
				 n * (int32_t)block * 1000 + n * (n - 1) / 2 * 10 + n * i);
}

/* What the children get of those emissions that are results: bitmaps. */
struct seen {
	uint64_t elements;
	uint64_t headers;
	struct rte_mbuf *full; /* NULL: nobody gets the elements */
};

/* Looks at the emissions since the last flush; others than results are passed over. */
static struct seen
look(uint32_t block, uint16_t owner)
{
	struct seen seen = { 0 };

	for (unsigned int i = 0; i < rig.ctx.n_emissions; i++) {
		const struct fanin_emission *emission = &rig.ctx.emissions[i];
		const bool is_empty = fanin_wire_is_empty(&headers_of(emission->mbuf)->fanin);

		if (emission->kind != FANIN_EMIT_CHILDREN)
			continue;
		expect_result(emission->mbuf, block, owner, is_empty);
		ck_assert_uint_eq((seen.elements | seen.headers) & emission->children, 0);
		if (is_empty)
			seen.headers |= emission->children;
		else
			seen.full = emission->mbuf;
		if (!is_empty)
			seen.elements |= emission->children;
	}
	return seen;
}

static void
expect_seen(uint32_t block, uint16_t owner, uint64_t elements, uint64_t headers)
{
	const struct seen seen = look(block, owner);

	ck_assert_uint_eq(seen.elements, elements);
	ck_assert_uint_eq(seen.headers, headers);
}

START_TEST(the_owner_gets_the_elements_and_all_others_the_headers)
{
	static const uint16_t sizes[] = { 1, 2, 3, 8, 11 };
	struct random random = random_seed(7);

	for (size_t size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
		const uint16_t n = sizes[size];
		uint32_t block = INDEX;

		start(_i, n, false);
		for (int round = 0; round < 3; round++) {
			for (uint16_t owner = 0; owner < n; owner++, block += SLOTS) {
				const uint16_t first = (uint16_t)random_below(&random, n);
				struct seen seen;

				for (uint16_t i = 0; i < n; i++)
					contribute((uint16_t)((first + i) % n), block, 0, owner);
				seen = look(block, owner);
				ck_assert_uint_eq(seen.elements, UINT64_C(1) << owner);
				ck_assert_uint_eq(seen.headers,
						  rig.job.children & ~(UINT64_C(1) << owner));
				expect_sum(seen.full, block);
				handler_rig_flush(&rig);
				handler_rig_stock(&rig, STOCK);
			}
		}
		ck_assert_uint_eq(rig.stats.results, 3u * n);
		handler_rig_stop(&rig);
	}
}
END_TEST

START_TEST(averages_and_sums_in_f32_are_finished_for_the_owner)
{
	static const uint16_t one[COUNT / 2] = { 0x3c00, 0x3c00, 0x4000, 0x3c00 }; /* 1 1 2 1 */
	const struct shape shape = { FANIN_WIRE_F16, OWNED_BY(FANIN_WIRE_AVG, 1), COUNT / 2 };
	struct rte_mbuf *full = NULL;

	start(_i, 3, true);
	for (uint16_t child = 0; child < 3; child++)
		handler_rig_contribute(&rig, child, INDEX, 0, &shape, one);
	ck_assert_uint_eq(rig.ctx.n_emissions, 2);
	for (unsigned int i = 0; i < 2; i++) {
		if (rig.ctx.emissions[i].children == 1 << 1)
			full = rig.ctx.emissions[i].mbuf;
	}
	ck_assert_ptr_nonnull(full);
	ck_assert_mem_eq(elements_of(full), one, sizeof(one));
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(children_that_contribute_again_get_their_part_of_the_result)
{
	start(_i, CHILDREN, false);
	contribute_all(INDEX, 3);
	handler_rig_flush(&rig);
	handler_rig_stock(&rig, STOCK);
	for (int round = 0; round < 2; round++) {
		for (uint16_t child = 0; child < CHILDREN; child++) {
			const uint64_t bit = UINT64_C(1) << child;

			contribute(child, INDEX, FANIN_FLAG_RETRANSMIT, 3);
			expect_seen(INDEX, 3, child == 3 ? bit : 0, child == 3 ? 0 : bit);
			if (child == 3)
				expect_sum(look(INDEX, 3).full, INDEX);
			handler_rig_flush(&rig);
			handler_rig_stock(&rig, STOCK);
		}
	}
	ck_assert_uint_eq(rig.stats.repeats, 2 * CHILDREN);
	handler_rig_stop(&rig);
}
END_TEST

/*
 * A packet of another type than contributions. elements: NULL: it is EMPTY, if its type has
 * elements.
 */
static struct fanin_packet
make(enum fanin_type type, uint16_t child, uint32_t block, uint16_t owner, const int32_t *elements)
{
	const uint32_t len = elements == NULL ? 0 : COUNT * 4;
	struct rte_mbuf *mbuf = fake_get(&rig.pool, len);
	struct fanin_headers *headers = headers_of(mbuf);

	memset(headers, 0, sizeof(*headers));
	fanin_wire_encode_header(&headers->fanin, type, rig.job.id, rig.ctx.epoch, 0);
	headers->fanin.block = block;
	headers->fanin.rank = child;
	if (type == FANIN_TYPE_QUERY) {
		headers->fanin.number = 9;
		headers->fanin.count = 1;
	} else {
		headers->fanin.dtype = FANIN_WIRE_I32;
		headers->fanin.op = FANIN_WIRE_SUM;
		headers->fanin.count = COUNT;
		headers->fanin.root = fanin_root_of_owner(owner);
		headers->fanin.contributions = rig.job.n_ranks;
		headers->fanin.flags = elements == NULL ? FANIN_FLAG_EMPTY : 0;
	}
	if (len != 0)
		memcpy(elements_of(mbuf), elements, len);
	return (struct fanin_packet){
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = len,
		.child = child,
	};
}

static enum fanin_verdict
offer(struct fanin_packet *packet, enum fanin_reason *reason)
{
	enum fanin_verdict verdict;

	*reason = FANIN_REASON_NONE;
	verdict = rig.handler->other(&rig.ctx, rig.slot, rig.index, packet, reason);
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&rig.pool, packet->mbuf);
	return verdict;
}

static void
ask(uint16_t child, uint32_t block)
{
	struct fanin_packet packet = make(FANIN_TYPE_QUERY, child, block, 0, NULL);
	enum fanin_reason reason;

	packet.headers->fanin.flags = FANIN_FLAG_RETRANSMIT;
	ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_HELD);
}

START_TEST(an_overdue_query_brings_each_child_what_is_its)
{
	start(_i, CHILDREN, false);
	contribute_all(INDEX, 0);
	handler_rig_flush(&rig);
	handler_rig_stock(&rig, STOCK);
	for (uint16_t child = 0; child < CHILDREN; child++) {
		const uint64_t bit = UINT64_C(1) << child;

		ask(child, INDEX);
		expect_seen(INDEX, 0, child == 0 ? bit : 0, child == 0 ? 0 : bit);
		handler_rig_flush(&rig);
		handler_rig_stock(&rig, STOCK);
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(without_a_packet_headers_are_lost_and_asked_for)
{
	start(_i, CHILDREN, false);
	handler_rig_stock(&rig, 0);
	contribute_all(INDEX, 2);
	expect_seen(INDEX, 2, 1 << 2, 0);
	handler_rig_flush(&rig);
	ask(1, INDEX);
	expect_seen(INDEX, 2, 0, 0);
	handler_rig_flush(&rig);
	handler_rig_stock(&rig, 1);
	ask(1, INDEX);
	expect_seen(INDEX, 2, 0, 1 << 1);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(the_owner_is_part_of_the_shape)
{
	static const int32_t values[COUNT] = { 1 };
	static const struct shape without = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT };
	struct answer answer;

	start(_i, CHILDREN, false);
	contribute(0, INDEX, 0, 1);
	answer = contribute(1, INDEX, 0, 2);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_int_eq(answer.reason, FANIN_REASON_MISMATCH);
	answer = handler_rig_contribute(&rig, 1, INDEX, 0, &without, values);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_int_eq(answer.reason, FANIN_REASON_MISMATCH);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_owner_that_the_job_has_not_is_refused)
{
	struct answer answer;

	start(_i, CHILDREN, false);
	answer = contribute(0, INDEX, 0, CHILDREN);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_int_eq(answer.reason, FANIN_REASON_OPERATION);
	/* The slot is as it was. */
	contribute_all(INDEX, CHILDREN - 1);
	expect_seen(INDEX, CHILDREN - 1, 1 << (CHILDREN - 1), (1 << (CHILDREN - 1)) - 1);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(a_result_that_is_known_is_the_owners)
{
	static const int32_t values[COUNT] = { 5, 6, 7, 8, 1, 2, 3, 4 };
	struct fanin_packet packet;
	enum fanin_reason reason;
	struct seen seen;

	/* Before, between and after contributions. */
	for (uint16_t before = 0; before < CHILDREN; before++) {
		start(_i, CHILDREN, false);
		for (uint16_t child = 0; child < before; child++) {
			if (child != 2)
				contribute(child, INDEX, 0, 2);
		}
		packet = make(FANIN_TYPE_KNOWN, 1, INDEX, 2, values);
		ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_DROP);
		ck_assert_int_eq(reason, FANIN_REASON_MISMATCH);
		packet = make(FANIN_TYPE_KNOWN, 2, INDEX, 2, NULL);
		ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_DROP);
		ck_assert_int_eq(reason, FANIN_REASON_MISMATCH);
		packet = make(FANIN_TYPE_KNOWN, 2, INDEX, 2, values);
		ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_HELD);
		seen = look(INDEX, 2);
		ck_assert_uint_eq(seen.elements, 1 << 2);
		ck_assert_uint_eq(seen.headers, rig.job.children & ~(UINT64_C(1) << 2));
		ck_assert_mem_eq(elements_of(seen.full), values, sizeof(values));
		handler_rig_flush(&rig);
		handler_rig_stock(&rig, STOCK);
		/* Others, whose contributions come later, get what they should have got. */
		contribute(4, INDEX, 0, 2);
		expect_seen(INDEX, 2, 0, before > 4 ? 0 : 1 << 4);
		handler_rig_stop(&rig);
	}
}
END_TEST

START_TEST(below_the_root_the_sum_goes_up_with_its_owner)
{
	const struct fanin_emission *emission;

	start_leaf(_i);
	contribute_all(INDEX, 13);
	emission = handler_rig_emission(&rig, FANIN_EMIT_PARENT, 0);
	ck_assert_uint_eq(headers_of(emission->mbuf)->fanin.root, fanin_root_of_owner(13));
	ck_assert_uint_eq(headers_of(emission->mbuf)->fanin.flags, FANIN_FLAG_RETRANSMIT);
	expect_sum(emission->mbuf, INDEX);
	handler_rig_stop(&rig);
}
END_TEST

static const int32_t total[COUNT] = { 1, 20, 300, 4000, 5, 60, 700, 8000 };

START_TEST(below_the_root_elements_go_on_to_the_owners_child)
{
	struct fanin_packet packet;
	enum fanin_reason reason;
	struct seen seen;

	/* Ranks 6 and 7 are behind child 2. */
	start_leaf(_i);
	contribute_all(INDEX, 7);
	handler_rig_flush(&rig);
	/* Another switch's, at the same port of the parent. */
	packet = make(FANIN_TYPE_RESULT, 0, INDEX, 7, NULL);
	ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	packet = make(FANIN_TYPE_RESULT, 0, INDEX, 7, total);
	ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_HELD);
	seen = look(INDEX, 7);
	ck_assert_uint_eq(seen.elements, 1 << 2);
	ck_assert_uint_eq(seen.headers, rig.job.children & ~(UINT64_C(1) << 2));
	ck_assert_mem_eq(elements_of(seen.full), total, sizeof(total));
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(below_the_root_without_the_owner_only_headers_go_on)
{
	/* The parent's result has none, or has elements, for another switch at the same port. */
	for (int with_elements = 0; with_elements < 2; with_elements++) {
		struct fanin_packet packet;
		enum fanin_reason reason;

		start_leaf(_i);
		contribute_all(INDEX, 13);
		handler_rig_flush(&rig);
		packet = make(FANIN_TYPE_RESULT, 0, INDEX, 13, with_elements != 0 ? total : NULL);
		ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_HELD);
		expect_seen(INDEX, 13, 0, rig.job.children);
		handler_rig_flush(&rig);
		ask(3, INDEX);
		expect_seen(INDEX, 13, 0, 1 << 3);
		handler_rig_stop(&rig);
	}
}
END_TEST

START_TEST(below_the_root_a_known_result_goes_up_from_the_owners_child_only)
{
	struct fanin_packet packet;
	enum fanin_reason reason;
	const struct fanin_emission *emission;

	start_leaf(_i);
	contribute(0, INDEX, 0, 7);
	packet = make(FANIN_TYPE_KNOWN, 3, INDEX, 7, total);
	ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_DROP);
	ck_assert_int_eq(reason, FANIN_REASON_MISMATCH);
	packet = make(FANIN_TYPE_KNOWN, 2, INDEX, 7, total);
	ck_assert_int_eq(offer(&packet, &reason), FANIN_VERDICT_HELD);
	emission = handler_rig_emission(&rig, FANIN_EMIT_PARENT, 0);
	ck_assert_uint_eq(headers_of(emission->mbuf)->fanin.type, FANIN_TYPE_KNOWN);
	ck_assert_mem_eq(elements_of(emission->mbuf), total, sizeof(total));
	handler_rig_stop(&rig);
}
END_TEST

Suite *
suite_owners(void)
{
	Suite *suite = suite_create("owners");
	TCase *root = tcase_create("root");
	TCase *leaf = tcase_create("leaf");

	n_handlers = handlers_here(handlers, RTE_DIM(handlers));
	tcase_add_loop_test(root, the_owner_gets_the_elements_and_all_others_the_headers, 0,
			    n_handlers);
	tcase_add_loop_test(root, averages_and_sums_in_f32_are_finished_for_the_owner, 0, 3);
	tcase_add_loop_test(root, children_that_contribute_again_get_their_part_of_the_result, 0,
			    n_handlers);
	tcase_add_loop_test(root, an_overdue_query_brings_each_child_what_is_its, 0, n_handlers);
	tcase_add_loop_test(root, without_a_packet_headers_are_lost_and_asked_for, 0, n_handlers);
	tcase_add_loop_test(root, the_owner_is_part_of_the_shape, 0, n_handlers);
	tcase_add_loop_test(root, an_owner_that_the_job_has_not_is_refused, 0, n_handlers);
	tcase_add_loop_test(root, a_result_that_is_known_is_the_owners, 0, n_handlers);
	suite_add_tcase(suite, root);
	tcase_add_loop_test(leaf, below_the_root_the_sum_goes_up_with_its_owner, 0, n_handlers);
	tcase_add_loop_test(leaf, below_the_root_elements_go_on_to_the_owners_child, 0, n_handlers);
	tcase_add_loop_test(leaf, below_the_root_without_the_owner_only_headers_go_on, 0,
			    n_handlers);
	tcase_add_loop_test(leaf, below_the_root_a_known_result_goes_up_from_the_owners_child_only,
			    0, n_handlers);
	suite_add_tcase(suite, leaf);
	return suite;
}
