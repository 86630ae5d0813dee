/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions without data, for every handler: whichever children bring none, in whatever order
 * they come, the result holds exactly what the others brought.
 */
#include <string.h>

#include "tests/unit/answer_words.h"
#include "tests/unit/handler_rig.h"
#include "tests/unit/handlers_here.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define WINDOW 1
#define COUNT 8
#define PAYLOAD 64
#define MAX_CHILDREN 11
#define SHUFFLES 8

static const char *handlers[] = { "single", "multi", "tree", "sparse-array" };
static int n_handlers; /* that this build has */

static struct handler_rig rig;
static float values[MAX_CHILDREN][COUNT];

static const struct shape sum = { FANIN_WIRE_F32, FANIN_WIRE_SUM, COUNT };

static void
rig_start(const char *handler, uint16_t n_children, bool wide)
{
	const struct fanin_job_params job = {
		.id = 1,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = PAYLOAD,
		.buffers = 2,
		.wide = wide,
	};

	handler_rig_start(&rig, handler, &job, 0);
}

static void
shuffle(struct random *random, uint16_t *order, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		order[i] = i;
	for (uint16_t i = n; i > 1; i--) {
		uint32_t k = random_below(random, i);
		uint16_t swap = order[i - 1];

		order[i - 1] = order[k];
		order[k] = swap;
	}
}

static struct answer
contribute_empty(uint16_t child, uint32_t block, uint16_t flags, const struct shape *shape)
{
	return handler_rig_contribute(&rig, child, block, flags | FANIN_FLAG_EMPTY, shape, NULL);
}

/* The block's result, as it goes to all children. */
static struct rte_mbuf *
result_of_all(void)
{
	return handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, rig.job.children)->mbuf;
}

static void
expect_empty_result(struct rte_mbuf *mbuf, const struct shape *shape, uint32_t block)
{
	const struct fanin_hdr *hdr = &headers_of(mbuf)->fanin;

	ck_assert_uint_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(hdr->flags, FANIN_FLAG_EMPTY);
	ck_assert_uint_eq(hdr->block, block);
	ck_assert_uint_eq(hdr->contributions, rig.job.n_children);
	ck_assert_uint_eq(hdr->dtype, shape->dtype);
	ck_assert_uint_eq(hdr->op, shape->op & UINT8_MAX);
	ck_assert_uint_eq(hdr->count, shape->count);
	ck_assert_uint_eq(hdr->root, shape->op >> 8);
	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(mbuf->pkt_len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(fanin_wire_payload_len(headers_of(mbuf)), 0);
}

/*
 * The sum in the written order (docs/architecture.md) of those children whose bit is set in `full`.
 * False: of none.
 */
static bool
reference(uint64_t full, uint16_t first, uint16_t width, int i, float *total)
{
	float left, right;
	bool has_left, has_right;

	if (width == 1) {
		if ((full >> first & 1) == 0)
			return false;
		*total = values[first][i];
		return true;
	}
	has_left = reference(full, first, width / 2, i, &left);
	has_right = reference(full, (uint16_t)(first + width / 2), width / 2, i, &right);
	if (has_left && has_right)
		*total = left + right;
	else if (has_left || has_right)
		*total = has_left ? left : right;
	return has_left || has_right;
}

static uint32_t
bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static void
expect_sum(struct rte_mbuf *mbuf, uint64_t full)
{
	const float *found = elements_of(mbuf);

	ck_assert_uint_eq(headers_of(mbuf)->fanin.flags, 0);
	ck_assert_uint_eq(mbuf->data_len, FANIN_PAYLOAD_OFFSET + COUNT * sizeof(float));
	for (int i = 0; i < COUNT; i++) {
		float expected;

		ck_assert(reference(full, 0, 16, i, &expected));
		ck_assert_msg(bits_of(expected) == bits_of(found[i]),
			      "children %#lx, element %d: found %a, expected %a",
			      (unsigned long)full, i, (double)found[i], (double)expected);
	}
}

/*
 * Sums that are exact in any order, and with the tree handler also such as are not. Blocks follow
 * each other in one slot, so that whatever one leaves behind is there for the next.
 */
static void
run_subsets(const char *handler, uint16_t n_children)
{
	struct random random = random_seed(n_children);
	bool in_order = strcmp(handler, "tree") == 0;
	uint16_t order[MAX_CHILDREN];
	uint32_t block = 0;

	for (uint16_t child = 0; child < n_children; child++) {
		for (int i = 0; i < COUNT; i++)
			values[child][i] = in_order ? (float)random_u32(&random) *
							      (float)(1u
								      << random_below(&random, 30))
						    : (float)random_below(&random, 1 << 20);
	}
	rig_start(handler, n_children, false);
	for (uint64_t full = 0; full < 1ull << n_children; full++) {
		for (int round = 0; round < SHUFFLES; round++, block += 2 * WINDOW) {
			shuffle(&random, order, n_children);
			for (uint16_t i = 0; i < n_children; i++) {
				uint16_t child = order[i];

				ck_assert_uint_eq(rig.ctx.n_emissions, 0);
				if ((full >> child & 1) != 0)
					handler_rig_contribute(&rig, child, block, 0, &sum,
							       values[child]);
				else
					contribute_empty(child, block, 0, &sum);
			}
			if (full == 0)
				expect_empty_result(result_of_all(), &sum, block);
			else
				expect_sum(result_of_all(), full);
			handler_rig_flush(&rig);
			ck_assert_uint_eq(fake_pool_in_use(&rig.pool), 1);
		}
	}
	ck_assert_uint_eq(rig.stats.contributions, rig.stats.results * n_children);
	handler_rig_stop(&rig);
}

START_TEST(the_result_is_that_of_the_children_with_data)
{
	static const uint16_t sizes[] = { 1, 2, 3, 5, 8 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run_subsets(handlers[_i], sizes[i]);
}
END_TEST

START_TEST(a_copy_keeps_every_bit_whoever_brings_it)
{
	/* Signalling and other NaNs, which arithmetic would change. */
	static const uint32_t bits[COUNT] = { 0x7f800001, 0xffc12345, 0x80000000, 1,
					      0x7fffffff, 0xff800000, 0,          0x12345678 };
	struct random random = random_seed(3);
	uint16_t order[MAX_CHILDREN];

	rig_start(handlers[_i], MAX_CHILDREN, true);
	for (uint16_t root = 0; root < MAX_CHILDREN; root++) {
		const struct shape copy = { root % 2 != 0 ? FANIN_WIRE_F32 : FANIN_WIRE_BF16,
					    COPY_OF(root), root % 2 != 0 ? COUNT : 2 * COUNT };
		struct rte_mbuf *result;

		shuffle(&random, order, MAX_CHILDREN);
		for (uint16_t i = 0; i < MAX_CHILDREN; i++) {
			if (order[i] == root)
				handler_rig_contribute(&rig, root, root * 2u, 0, &copy, bits);
			else
				contribute_empty(order[i], root * 2u, 0, &copy);
		}
		result = result_of_all();
		ck_assert_uint_eq(headers_of(result)->fanin.op, FANIN_WIRE_COPY);
		ck_assert_uint_eq(headers_of(result)->fanin.root, root);
		ck_assert_uint_eq(result->data_len, FANIN_PAYLOAD_OFFSET + sizeof(bits));
		ck_assert_mem_eq(elements_of(result), bits, sizeof(bits));
		handler_rig_flush(&rig);
	}
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(ranks_that_name_another_root_are_told_so)
{
	static const uint16_t roots[][2] = { { 0, 1 }, { 1, 0 }, { 64, 0 }, { 1, 4095 } };
	const struct shape mine = { FANIN_WIRE_F32, COPY_OF(roots[_i % 4][0]), COUNT };
	const struct shape theirs = { FANIN_WIRE_F32, COPY_OF(roots[_i % 4][1]), COUNT };
	struct answer answer;

	rig_start(handlers[_i / 4], 3, false);
	handler_rig_contribute(&rig, 0, 0, 0, &mine, values[0]);
	answer = handler_rig_contribute(&rig, 1, 0, 0, &theirs, values[1]);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_uint_eq(answer.reason, FANIN_REASON_MISMATCH);
	answer = contribute_empty(2, 0, 0, &theirs);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_uint_eq(answer.reason, FANIN_REASON_MISMATCH);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(averages_and_wide_sums_leave_empty_contributions_out)
{
	static const uint16_t two[COUNT] = { 0x4000, 0x4000, 0x4000, 0x4000,
					     0x4000, 0x4000, 0x4000, 0x4000 };
	const struct shape average = { FANIN_WIRE_F16, FANIN_WIRE_AVG, COUNT };

	rig_start(handlers[_i], 4, true);
	contribute_empty(0, 0, 0, &average);
	handler_rig_contribute(&rig, 1, 0, 0, &average, two);
	handler_rig_contribute(&rig, 2, 0, 0, &average, two);
	contribute_empty(3, 0, 0, &average);
	/* 4 over four children. */
	for (int i = 0; i < COUNT; i++)
		ck_assert_uint_eq(((const uint16_t *)elements_of(result_of_all()))[i], 0x3c00);
	handler_rig_flush(&rig);
	for (uint16_t child = 0; child < 4; child++)
		contribute_empty(child, 2, 0, &average);
	expect_empty_result(result_of_all(), &average, 2);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_empty_contribution_is_answered_like_any_other)
{
	const struct fanin_emission *emission;
	struct answer_words body;

	rig_start(handlers[_i], 2, false);
	ck_assert_int_eq(contribute_empty(1, 0, 0, &sum).verdict, FANIN_VERDICT_FREE);
	ck_assert_int_eq(contribute_empty(1, 0, 0, &sum).verdict, FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	ck_assert_int_eq(contribute_empty(1, 0, FANIN_FLAG_RETRANSMIT, &sum).verdict,
			 FANIN_VERDICT_HELD);
	emission = handler_rig_emission(&rig, FANIN_EMIT_REPLY, 1 << 1);
	ck_assert_uint_eq(headers_of(emission->mbuf)->fanin.type, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(headers_of(emission->mbuf)->fanin.flags, 0);
	memcpy(&body, headers_of(emission->mbuf) + 1, sizeof(body));
	ck_assert_uint_eq(answer_missing(&body), 1 << 0);
	handler_rig_flush(&rig);

	handler_rig_contribute(&rig, 0, 0, 0, &sum, values[0]);
	expect_sum(result_of_all(), 1);
	handler_rig_flush(&rig);
	contribute_empty(1, 0, FANIN_FLAG_RETRANSMIT, &sum);
	emission = handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, 1 << 1);
	expect_sum(emission->mbuf, 1);
	ck_assert_uint_eq(emission->payload_len, COUNT * sizeof(float));
	ck_assert_uint_eq(rig.stats.duplicates, 3);
	ck_assert_uint_eq(rig.stats.contributions, 2);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_empty_contribution_opens_no_block_that_the_others_could_not_fill)
{
	const struct shape long_one = { FANIN_WIRE_F32, FANIN_WIRE_SUM, PAYLOAD / 4 + 1 };
	const struct shape undefined = { FANIN_WIRE_F32, FANIN_WIRE_BXOR, COUNT };
	struct answer answer;

	rig_start(handlers[_i], 2, false);
	answer = contribute_empty(0, 0, 0, &long_one);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_uint_eq(answer.reason, FANIN_REASON_PAYLOAD);
	answer = contribute_empty(0, 0, 0, &undefined);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_uint_eq(answer.reason, FANIN_REASON_OPERATION);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(an_unfinished_block_with_empty_contributions_is_given_up_whole)
{
	for (uint64_t full = 0; full < 16; full++) {
		rig_start(handlers[_i], 5, false);
		for (uint16_t child = 0; child < 4; child++) {
			if ((full >> child & 1) != 0)
				handler_rig_contribute(&rig, child, 0, 0, &sum, values[child]);
			else
				contribute_empty(child, 0, 0, &sum);
		}
		/* A new run begins in this slot, with one in the same place of the tree. */
		rig.ctx.epoch++;
		for (uint16_t child = 0; child < 5; child++)
			contribute_empty(child, 0, 0, &sum);
		expect_empty_result(result_of_all(), &sum, 0);
		handler_rig_stop(&rig);
	}
}
END_TEST

/* What a switch without data sends up and gets back, as part of a tree of switches. */
START_TEST(a_switch_whose_children_bring_no_data_takes_part_without)
{
	struct fanin_packet packet;
	enum fanin_reason reason;
	struct rte_mbuf *mbuf;

	rig_start(handlers[_i], 3, false);
	rig.job.has_parent = true;
	rig.job.n_ranks = 5;
	for (uint32_t block = 0; block < 4; block += 2 * WINDOW) {
		const struct fanin_emission *emission;
		const struct fanin_hdr *hdr;

		for (uint16_t child = 0; child < 3; child++)
			contribute_empty(child, block, 0, &sum);
		emission = handler_rig_emission(&rig, FANIN_EMIT_PARENT, 0);
		hdr = &headers_of(emission->mbuf)->fanin;
		ck_assert_uint_eq(hdr->type, FANIN_TYPE_CONTRIBUTION);
		ck_assert_uint_eq(hdr->flags, FANIN_FLAG_EMPTY | FANIN_FLAG_RETRANSMIT);
		ck_assert_uint_eq(hdr->count, COUNT);
		ck_assert_uint_eq(emission->mbuf->data_len, FANIN_PAYLOAD_OFFSET);
		handler_rig_flush(&rig);

		/* Others have brought data for the second block. */
		mbuf = handler_rig_make(&rig, 0, block, block == 0 ? FANIN_FLAG_EMPTY : 0, &sum,
					values[0]);
		headers_of(mbuf)->fanin.type = FANIN_TYPE_RESULT;
		packet = (struct fanin_packet){ .mbuf = mbuf,
						.headers = headers_of(mbuf),
						.payload = elements_of(mbuf),
						.payload_len = mbuf->data_len -
							       FANIN_PAYLOAD_OFFSET };
		ck_assert_int_eq(rig.handler->other(&rig.ctx, rig.slot, rig.index, &packet,
						    &reason),
				 FANIN_VERDICT_HELD);
		ck_assert_uint_eq(headers_of(result_of_all())->fanin.contributions, 5);
		ck_assert_uint_eq(headers_of(result_of_all())->fanin.flags,
				  block == 0 ? FANIN_FLAG_EMPTY : 0);
		ck_assert_uint_eq(result_of_all()->data_len,
				  FANIN_PAYLOAD_OFFSET + (block == 0 ? 0 : COUNT * sizeof(float)));
		handler_rig_flush(&rig);
	}
	handler_rig_stop(&rig);
}
END_TEST

Suite *
suite_empty(void)
{
	Suite *suite = suite_create("empty");
	TCase *all = tcase_create("all");

	n_handlers = handlers_here(handlers, RTE_DIM(handlers));
	tcase_set_timeout(all, 300);
	tcase_add_loop_test(all, the_result_is_that_of_the_children_with_data, 0, n_handlers);
	tcase_add_loop_test(all, a_copy_keeps_every_bit_whoever_brings_it, 0, n_handlers);
	tcase_add_loop_test(all, ranks_that_name_another_root_are_told_so, 0, 4 * n_handlers);
	tcase_add_loop_test(all, averages_and_wide_sums_leave_empty_contributions_out, 0,
			    n_handlers);
	tcase_add_loop_test(all, an_empty_contribution_is_answered_like_any_other, 0, n_handlers);
	tcase_add_loop_test(all,
			    an_empty_contribution_opens_no_block_that_the_others_could_not_fill, 0,
			    n_handlers);
	tcase_add_loop_test(all, an_unfinished_block_with_empty_contributions_is_given_up_whole, 0,
			    n_handlers);
	tcase_add_loop_test(all, a_switch_whose_children_bring_no_data_takes_part_without, 0,
			    n_handlers);
	suite_add_tcase(suite, all);
	return suite;
}
