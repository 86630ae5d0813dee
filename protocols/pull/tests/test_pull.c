/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions at a switch, packet by packet (protocols/pull/README.md): which sums it begins,
 * what is combined in them, and when they go on. The test plays the pipeline, hosts and other
 * switches.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pull/switch/pull.h"
#include "tests/unit/fake_switch.h"
#include "tests/unit/suites.h"

#define PAYLOAD 256
#define COUNT 4
#define SLOTS 16
#define TIMERS 64
#define OUTPUTS 64
#define EPOCH 9u
#define PARENT_EPOCH 70u

/* Where the switch of a test is in its job. */
enum position {
	ALONE, /* ranks 0 to 3 are its children */
	LEAF,  /* ranks 0 to 2 are its children, and 3 to 5 elsewhere */
	SPINE, /* its children are two leaves, with ranks 0 to 2 and 3 to 5 */
};

struct output {
	enum fanin_emission_kind kind;
	uint64_t children;
	uint32_t payload_len;
	struct fanin_headers headers;
	uint8_t payload[PAYLOAD];
};

static struct {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct pull_state state;
	struct fanin_handler_stats stats;
	struct fanin_handler_ctx ctx;
	struct fake_pool pool;
	uint8_t *slots[SLOTS];
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	struct output outputs[OUTPUTS];
	unsigned int n_outputs;
	unsigned int next; /* the output that the test looks at */
	enum fanin_reason reason;
} rig;

static void
keep_output(const struct fanin_emission *emission)
{
	struct output *output = &rig.outputs[rig.n_outputs++];
	const struct rte_mbuf *mbuf = emission->mbuf;

	ck_assert_uint_le(rig.n_outputs, OUTPUTS);
	output->kind = emission->kind;
	output->children = emission->children;
	output->payload_len = mbuf->data_len - (uint32_t)FANIN_PAYLOAD_OFFSET;
	ck_assert_uint_le(output->payload_len, PAYLOAD);
	memcpy(&output->headers, rte_pktmbuf_mtod(mbuf, const void *), sizeof(output->headers));
	memcpy(output->payload, rte_pktmbuf_mtod_offset(mbuf, const void *, FANIN_PAYLOAD_OFFSET),
	       output->payload_len);
	ck_assert_uint_eq(fanin_wire_validate(rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len),
			  FANIN_REASON_NONE);
}

static void
carry_out(struct fanin_handler_ctx *ctx)
{
	fake_carry_out(ctx, &rig.pool, keep_output);
}

static void
make_job(enum position position)
{
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct fanin_job_params *job = &rig.job;

	job->id = 3;
	fanin_job_params_hosts(job, position == ALONE ? 4 : position == LEAF ? 3 : 2);
	if (position != ALONE)
		job->n_ranks = 6;
	if (position == LEAF)
		job->has_parent = true;
	if (position == SPINE) {
		job->n_below = 6;
		job->child_ranks[0] = fanin_ranks_of_word(7);
		job->child_ranks[1] = fanin_ranks_of_word(7 << 3);
	}
	job->window = SLOTS / 2;
	job->payload_bytes = PAYLOAD;
	job->isa = fanin_isa_detect();
	job->shared = true;
	job->keys = (struct fanin_keys){ .up = 11, .down = 21 };
	fanin_wire_encode_l4(&job->parent_headers, &flow, PAYLOAD);
	fanin_wire_encode_l4(&job->result_headers, &flow, PAYLOAD);
	job->slots = (struct fanin_slots){ .by_index = rig.slots, .mask = SLOTS - 1 };
	fake_usual(rig.handler, job);
}

static void
start(enum position position)
{
	memset(&rig, 0, sizeof(rig));
	rig.handler = fanin_handler_find("pull");
	ck_assert_ptr_nonnull(rig.handler);
	fake_pool_init(&rig.pool, FANIN_STOCK + 4 * SLOTS);
	make_job(position);
	ck_assert_uint_eq(fanin_state_size(rig.handler, &rig.job), sizeof(rig.state));
	fake_slots(rig.handler, &rig.job, rig.slots, SLOTS);
	rig.timers = fake_timers(rig.handler, &rig.job, TIMERS, &rig.earliest_ns);
	rig.ctx.job = &rig.job;
	rig.ctx.state = &rig.state;
	rig.ctx.stats = &rig.stats;
	rig.ctx.epoch = EPOCH;
	rig.ctx.parent_epoch = PARENT_EPOCH;
	rig.ctx.drain = carry_out;
	rig.ctx.now_ns = 1000;
	rig.ctx.timers = rig.timers;
}

/* All has been looked at, and every mbuf comes back. */
static void
stop(void)
{
	ck_assert_uint_eq(rig.next, rig.n_outputs);
	for (uint32_t i = 0; i < SLOTS; i++)
		rig.handler->slot_release(&rig.ctx, rig.slots[i]);
	carry_out(&rig.ctx);
	while (rig.ctx.n_stock != 0)
		fake_put(&rig.pool, rig.ctx.stock[--rig.ctx.n_stock]);
	ck_assert_uint_eq(fake_pool_in_use(&rig.pool), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		free(rig.slots[i]);
	free(rig.timers);
	fake_pool_fini(&rig.pool);
}

/* ------------------------------------------------------------------ packets */

static struct fanin_hdr *
hdr_of(struct rte_mbuf *mbuf)
{
	return &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
}

static struct rte_mbuf *
make_packet(enum fanin_type type, uint32_t operation, uint32_t place, uint32_t payload_len)
{
	const bool up = fanin_type_direction((uint8_t)type) == FANIN_UP;
	const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct rte_mbuf *mbuf = fake_get(&rig.pool, payload_len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, rig.job.id, up ? EPOCH : PARENT_EPOCH,
				 up ? rig.job.keys.up : rig.job.keys.down);
	headers->fanin.progress = operation;
	headers->fanin.block = place;
	return mbuf;
}

/* Of the owner that the place names. hops: switches that it has passed. */
static struct rte_mbuf *
make_pull(enum fanin_type type, uint32_t operation, uint32_t place, uint32_t hops)
{
	struct rte_mbuf *mbuf = make_packet(type, operation, place, 0);

	hdr_of(mbuf)->members = fanin_pull_owner(place, rig.job.n_ranks);
	hdr_of(mbuf)->number = hops;
	return mbuf;
}

/* What ranks have for a place: element i of rank r is (r + 1) * (place + i + operation). */
static uint32_t
element(uint64_t members, uint32_t operation, uint32_t place, uint32_t i)
{
	uint32_t sum = 0;

	for (; members != 0; members &= members - 1)
		sum += ((uint32_t)__builtin_ctzll(members) + 1) * (place + i + operation);
	return sum;
}

static struct rte_mbuf *
make_response(enum fanin_type type, uint32_t operation, uint32_t place, uint64_t members)
{
	struct rte_mbuf *mbuf = make_packet(type, operation, place, COUNT * sizeof(uint32_t));
	uint32_t *elements = rte_pktmbuf_mtod_offset(mbuf, uint32_t *, FANIN_PAYLOAD_OFFSET);

	hdr_of(mbuf)->dtype = FANIN_WIRE_U32;
	hdr_of(mbuf)->op = FANIN_WIRE_SUM;
	hdr_of(mbuf)->count = COUNT;
	hdr_of(mbuf)->members = members;
	for (uint32_t i = 0; i < COUNT; i++)
		elements[i] = element(members, operation, place, i);
	return mbuf;
}

static enum fanin_verdict
offer(uint16_t child, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&rig.job.slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = child,
	};
	enum fanin_verdict verdict;

	while (rig.ctx.n_stock < FANIN_STOCK)
		rig.ctx.stock[rig.ctx.n_stock++] = fake_get(&rig.pool, 0);
	rig.reason = FANIN_REASON_NONE;
	verdict = rig.handler->other(&rig.ctx, rig.slots[index], index, &packet, &rig.reason);
	ck_assert_int_eq(verdict == FANIN_VERDICT_DROP, rig.reason != FANIN_REASON_NONE);
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&rig.pool, mbuf);
	carry_out(&rig.ctx);
	return verdict;
}

static void
pass_time(uint64_t ns)
{
	rig.ctx.now_ns += ns;
	while (!fanin_timer_fifo_is_empty(rig.timers) &&
	       fanin_timer_fifo_first(rig.timers)->due_ns <= rig.ctx.now_ns) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(rig.timers);

		rig.timers->head++;
		if (timer.epoch == rig.ctx.epoch)
			ck_assert(rig.handler->expired(&rig.ctx, rig.slots[timer.index],
						       timer.index, timer.block));
		carry_out(&rig.ctx);
	}
}

/* ------------------------------------------------------------------ what comes of them */

static const struct output *
take(enum fanin_type type, uint64_t children, uint32_t operation, uint32_t place)
{
	const struct output *output = &rig.outputs[rig.next];
	const bool up = children == 0;

	ck_assert_uint_lt(rig.next, rig.n_outputs);
	rig.next++;
	ck_assert_int_eq(output->kind, up ? FANIN_EMIT_PARENT : FANIN_EMIT_CHILDREN);
	ck_assert_uint_eq(output->children, children);
	ck_assert_uint_eq(output->headers.fanin.type, type);
	ck_assert_uint_eq(output->headers.fanin.epoch, up ? PARENT_EPOCH : rig.ctx.epoch);
	ck_assert_uint_eq(output->headers.fanin.key, up ? rig.job.keys.up : rig.job.keys.down);
	ck_assert_uint_eq(output->headers.fanin.progress, operation);
	ck_assert_uint_eq(output->headers.fanin.block, place);
	return output;
}

/* The sum of these ranks, on its way to its owner, up if `children` is 0. */
static void
take_sum(uint64_t children, uint32_t operation, uint32_t place, uint64_t members)
{
	const struct output *output = take(children == 0 ? FANIN_TYPE_RESPONSE
							 : FANIN_TYPE_RESPONSE_DELIVERY,
					   children, operation, place);
	uint32_t elements[COUNT];

	ck_assert_uint_eq(output->headers.fanin.members, members);
	ck_assert_uint_eq(output->headers.fanin.contributions, __builtin_popcountll(members));
	ck_assert_uint_eq(output->headers.fanin.dtype, FANIN_WIRE_U32);
	ck_assert_uint_eq(output->headers.fanin.op, FANIN_WIRE_SUM);
	ck_assert_uint_eq(output->headers.fanin.count, COUNT);
	ck_assert_uint_eq(output->payload_len, sizeof(elements));
	memcpy(elements, output->payload, sizeof(elements));
	for (uint32_t i = 0; i < COUNT; i++)
		ck_assert_uint_eq(elements[i], element(members, operation, place, i));
}

/* A host's PULL is passed on, or comes back. Returns whether it was passed on. */
static bool
host_pulls(uint32_t operation, uint32_t place)
{
	const uint16_t owner = fanin_pull_owner(place, rig.job.n_ranks);
	const uint64_t others = rig.job.children & ~(UINT64_C(1) << owner);
	const uint64_t busy = rig.stats.own[PULL_BUSY];

	ck_assert_int_eq(offer(owner, make_pull(FANIN_TYPE_PULL, operation, place, 0)),
			 FANIN_VERDICT_HELD);
	if (rig.stats.own[PULL_BUSY] != busy) {
		const struct output *output = take(FANIN_TYPE_PULL_DELIVERY, UINT64_C(1) << owner,
						   operation, place);

		ck_assert_uint_eq(output->headers.fanin.count, FANIN_PULL_BUSY);
		ck_assert_uint_eq(output->headers.fanin.members, owner);
		return false;
	}
	if (rig.job.has_parent)
		ck_assert_uint_eq(take(FANIN_TYPE_PULL, 0, operation, place)->headers.fanin.number,
				  1);
	ck_assert_uint_eq(
		take(FANIN_TYPE_PULL_DELIVERY, others, operation, place)->headers.fanin.number, 1);
	return true;
}

/* A rank that is a child answers. */
static enum fanin_verdict
host_answers(uint16_t rank, uint32_t operation, uint32_t place)
{
	return offer(rank,
		     make_response(FANIN_TYPE_RESPONSE, operation, place, UINT64_C(1) << rank));
}

/* ------------------------------------------------------------------ sums */

START_TEST(answers_of_all_ranks_become_one_sum)
{
	start(ALONE);
	ck_assert(host_pulls(5, 4));
	ck_assert_int_eq(host_answers(2, 5, 4), FANIN_VERDICT_HELD);
	ck_assert_int_eq(host_answers(1, 5, 4), FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.next, rig.n_outputs);
	ck_assert_int_eq(host_answers(3, 5, 4), FANIN_VERDICT_FREE);
	take_sum(1 << 0, 5, 4, 0xe);
	ck_assert_uint_eq(rig.stats.own[PULL_HITS], 3);
	ck_assert_uint_eq(rig.stats.own[PULL_COMPLETED], 1);
	ck_assert_uint_eq(rig.state.used & UINT32_MAX, 0);
	stop();
}
END_TEST

START_TEST(a_leaf_combines_what_comes_from_its_hosts_and_from_above)
{
	start(LEAF);
	ck_assert(host_pulls(0, 7));
	ck_assert_int_eq(host_answers(0, 0, 7), FANIN_VERDICT_HELD);
	ck_assert_int_eq(offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 7, 0x38)),
			 FANIN_VERDICT_FREE);
	ck_assert_int_eq(host_answers(2, 0, 7), FANIN_VERDICT_FREE);
	take_sum(1 << 1, 0, 7, 0x3d);
	stop();
}
END_TEST

START_TEST(a_leaf_of_other_ranks_sends_their_sum_up)
{
	start(LEAF);
	ck_assert_int_eq(offer(0, make_pull(FANIN_TYPE_PULL_DELIVERY, 0, 4, 2)),
			 FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_TYPE_PULL_DELIVERY, 7, 0, 4)->headers.fanin.number, 3);
	for (uint16_t rank = 0; rank < 3; rank++)
		host_answers(rank, 0, 4);
	take_sum(0, 0, 4, 7);
	stop();
}
END_TEST

START_TEST(a_spine_expects_no_rank_of_the_owners_leaf)
{
	start(SPINE);
	ck_assert_int_eq(offer(0, make_pull(FANIN_TYPE_PULL, 0, 6, 1)), FANIN_VERDICT_HELD);
	take(FANIN_TYPE_PULL_DELIVERY, 1 << 1, 0, 6);
	ck_assert_int_eq(offer(1, make_response(FANIN_TYPE_RESPONSE, 0, 6, 0x18)),
			 FANIN_VERDICT_HELD);
	ck_assert_int_eq(offer(1, make_response(FANIN_TYPE_RESPONSE, 0, 6, 0x20)),
			 FANIN_VERDICT_FREE);
	take_sum(1 << 0, 0, 6, 0x38);
	ck_assert_uint_eq(rig.stats.own[PULL_COMPLETED], 1);
	stop();
}
END_TEST

START_TEST(where_one_rank_is_expected_there_is_no_sum)
{
	start(ALONE);
	fanin_job_params_hosts(&rig.job, 2);
	ck_assert(host_pulls(0, 2));
	ck_assert_uint_eq(rig.stats.own[PULL_ENTRIES], 0);
	ck_assert_int_eq(host_answers(1, 0, 2), FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 2, 2);
	stop();
}
END_TEST

START_TEST(a_duplicate_is_counted_once)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	host_answers(2, 0, 4);
	ck_assert_int_eq(host_answers(2, 0, 4), FANIN_VERDICT_FREE);
	host_answers(1, 0, 4);
	ck_assert_int_eq(host_answers(1, 0, 4), FANIN_VERDICT_FREE);
	ck_assert_int_eq(host_answers(2, 0, 4), FANIN_VERDICT_FREE);
	host_answers(3, 0, 4);
	take_sum(1 << 0, 0, 4, 0xe);
	ck_assert_uint_eq(rig.stats.duplicates, 3);
	stop();
}
END_TEST

START_TEST(a_duplicate_of_the_request_changes_no_sum)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	host_answers(2, 0, 4);
	ck_assert(host_pulls(0, 4));
	host_answers(1, 0, 4);
	host_answers(3, 0, 4);
	take_sum(1 << 0, 0, 4, 0xe);
	ck_assert_uint_eq(rig.stats.own[PULL_ENTRIES], 1);
	stop();
}
END_TEST

START_TEST(sets_that_overlap_are_not_combined)
{
	start(LEAF);
	ck_assert(host_pulls(0, 6));
	offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 6, 0x18));
	ck_assert_int_eq(offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 6, 0x30)),
			 FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 6, 0x30);
	ck_assert_uint_eq(rig.stats.own[PULL_OVERLAPS], 1);
	/* The sum is as it was. */
	pass_time(rig.timers->timeout_ns);
	take_sum(1 << 0, 0, 6, 0x18);
	stop();
}
END_TEST

START_TEST(a_sum_with_all_ranks_and_more_takes_the_place)
{
	start(LEAF);
	ck_assert(host_pulls(0, 6));
	offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 6, 0x08));
	ck_assert_int_eq(offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 6, 0x38)),
			 FANIN_VERDICT_HELD);
	host_answers(1, 0, 6);
	host_answers(2, 0, 6);
	take_sum(1 << 0, 0, 6, 0x3e);
	stop();
}
END_TEST

START_TEST(elements_of_another_shape_pass)
{
	struct rte_mbuf *other;

	start(ALONE);
	ck_assert(host_pulls(0, 4));
	host_answers(1, 0, 4);
	other = make_response(FANIN_TYPE_RESPONSE, 0, 4, 1 << 2);
	hdr_of(other)->op = FANIN_WIRE_MAX;
	ck_assert_int_eq(offer(2, other), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_TYPE_RESPONSE_DELIVERY, 1 << 0, 0, 4)->headers.fanin.op,
			  FANIN_WIRE_MAX);
	stop();
}
END_TEST

/* Of two ranks, the kernel's own result; the sums of hosts are compared elsewhere. */
START_TEST(every_data_type_and_operator_is_combined)
{
	const unsigned int dtype = (unsigned int)_i / FANIN_WIRE_OP_COUNT;
	const unsigned int op = (unsigned int)_i % FANIN_WIRE_OP_COUNT;
	const fanin_kernel_fn add = fanin_kernel(fanin_isa_detect(), dtype, op);
	uint8_t expected[COUNT * 8], other[COUNT * 8];
	const unsigned int size = fanin_dtype_size(dtype);

	if (add == NULL)
		return;
	start(ALONE);
	fanin_job_params_hosts(&rig.job, 3);
	ck_assert(host_pulls(0, 3));
	for (uint16_t rank = 1; rank < 3; rank++) {
		struct rte_mbuf *mbuf = make_packet(FANIN_TYPE_RESPONSE, 0, 3, COUNT * size);
		uint8_t *bytes = rank == 1 ? expected : other;

		for (uint32_t i = 0; i < COUNT * size; i++)
			bytes[i] = (uint8_t)(i % size == size - 1 ? 0x3fu + rank : 17u * rank + i);
		memcpy(rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET), bytes,
		       COUNT * size);
		hdr_of(mbuf)->dtype = (uint8_t)dtype;
		hdr_of(mbuf)->op = (uint8_t)op;
		hdr_of(mbuf)->count = COUNT;
		hdr_of(mbuf)->members = UINT64_C(1) << rank;
		offer(rank, mbuf);
	}
	add(expected, other, COUNT);
	ck_assert_mem_eq(take(FANIN_TYPE_RESPONSE_DELIVERY, 1 << 0, 0, 3)->payload, expected,
			 COUNT * size);
	stop();
}
END_TEST

/* ------------------------------------------------------------------ timers */

START_TEST(a_sum_that_lacks_ranks_goes_on_after_the_timeout_and_late_answers_pass)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	host_answers(1, 0, 4);
	host_answers(2, 0, 4);
	pass_time(rig.timers->timeout_ns - 1);
	ck_assert_uint_eq(rig.next, rig.n_outputs);
	pass_time(1);
	take_sum(1 << 0, 0, 4, 0x6);
	ck_assert_uint_eq(rig.stats.own[PULL_TIMED_OUT], 1);
	ck_assert_uint_eq(rig.state.used & UINT32_MAX, 0);
	ck_assert_int_eq(host_answers(3, 0, 4), FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 4, 0x8);
	ck_assert_uint_eq(rig.stats.own[PULL_BYPASSED], 1);
	stop();
}
END_TEST

/* No longer than a second, whatever it says. */
START_TEST(a_sum_waits_as_long_as_its_owner_expects_answers_to_take)
{
	const uint64_t timeout_ns = 2000000;
	const uint64_t said_ns = _i == 0 ? 7 * timeout_ns : 16 * FANIN_PULL_PATIENCE_MAX_NS;
	const uint64_t waits_ns = _i == 0 ? said_ns : FANIN_PULL_PATIENCE_MAX_NS;
	struct rte_mbuf *mbuf;

	start(ALONE);
	mbuf = make_pull(FANIN_TYPE_PULL, 0, 4,
			 (uint32_t)(said_ns / 1000) << FANIN_PULL_PATIENCE_SHIFT);
	ck_assert_int_eq(offer(0, mbuf), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_TYPE_PULL_DELIVERY, 0xe, 0, 4)->headers.fanin.number &
				  FANIN_PULL_HOPS,
			  1);
	host_answers(1, 0, 4);
	for (uint64_t ns = timeout_ns; ns < waits_ns; ns += timeout_ns) {
		pass_time(timeout_ns);
		ck_assert_uint_eq(rig.next, rig.n_outputs);
	}
	pass_time(timeout_ns);
	take_sum(1 << 0, 0, 4, 0x2);
	stop();
}
END_TEST

START_TEST(a_sum_that_nothing_came_for_leaves_nothing_behind)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	pass_time(rig.timers->timeout_ns);
	ck_assert_uint_eq(rig.next, rig.n_outputs);
	ck_assert_uint_eq(rig.state.used & UINT32_MAX, 0);
	stop();
}
END_TEST

/*
 * The slot's timer is armed once, and again if it is too early for the sum that is there by then.
 */
START_TEST(the_timer_of_an_earlier_sum_ends_no_later_one)
{
	const uint64_t timeout_ns = 2000000;

	start(ALONE);
	ck_assert_uint_eq(rig.timers->timeout_ns, timeout_ns);
	for (uint32_t operation = 0; operation < 3; operation++) {
		ck_assert(host_pulls(operation, 4));
		for (uint16_t rank = 1; rank < 4; rank++)
			host_answers(rank, operation, 4);
		take_sum(1 << 0, operation, 4, 0xe);
	}
	pass_time(timeout_ns / 2);
	ck_assert(host_pulls(3, 4));
	host_answers(1, 3, 4);
	ck_assert_uint_eq(fanin_timer_fifo_count(rig.timers), 1);
	pass_time(timeout_ns / 2);
	ck_assert_uint_eq(rig.next, rig.n_outputs);
	ck_assert_uint_eq(fanin_timer_fifo_count(rig.timers), 1);
	pass_time(timeout_ns);
	take_sum(1 << 0, 3, 4, 0x2);
	ck_assert_uint_eq(fanin_timer_fifo_count(rig.timers), 0);
	stop();
}
END_TEST

START_TEST(without_room_for_a_timer_there_is_no_sum)
{
	start(ALONE);
	rig.timers->tail = rig.timers->head + TIMERS;
	ck_assert(!host_pulls(0, 4));
	stop();
}
END_TEST

/* ------------------------------------------------------------------ room */

START_TEST(without_room_the_request_goes_back_to_its_owner_and_no_further)
{
	start(ALONE);
	rig.job.parameters[FANIN_PULL_ENTRIES] = 4;
	for (uint32_t place = 0; place < 4; place++)
		ck_assert(host_pulls(0, place));
	ck_assert(!host_pulls(0, 4));
	ck_assert_uint_eq(rig.stats.own[PULL_BUSY], 1);
	for (uint16_t rank = 1; rank < 4; rank++)
		host_answers(rank, 0, 0);
	take_sum(1 << 0, 0, 0, 0xe);
	ck_assert(host_pulls(0, 4));
	stop();
}
END_TEST

START_TEST(another_owners_sum_keeps_its_slot)
{
	start(ALONE);
	rig.job.n_ranks = 3;
	fanin_job_params_hosts(&rig.job, 3);
	ck_assert(host_pulls(0, 0));
	host_answers(2, 0, 0);
	/* Place 16 is rank 1's, of the same slot. */
	ck_assert(!host_pulls(0, SLOTS));
	host_answers(1, 0, 0);
	take_sum(1 << 0, 0, 0, 0x6);
	ck_assert(host_pulls(0, SLOTS));
	stop();
}
END_TEST

START_TEST(the_owners_next_packet_of_a_slot_sends_its_last_ones_sum_on)
{
	start(ALONE);
	ck_assert(host_pulls(0, 0));
	host_answers(1, 0, 0);
	ck_assert_int_eq(offer(0, make_pull(FANIN_TYPE_PULL, 0, SLOTS, 0)), FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 0, 0x2);
	take(FANIN_TYPE_PULL_DELIVERY, 0xe, 0, SLOTS);
	ck_assert_uint_eq(rig.state.used & UINT32_MAX, 1);
	/* What is late of it passes, and is not combined with the next one. */
	ck_assert_int_eq(host_answers(2, 0, 0), FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 0, 0x4);
	for (uint16_t rank = 1; rank < 4; rank++)
		host_answers(rank, 0, SLOTS);
	take_sum(1 << 0, 0, SLOTS, 0xe);
	stop();
}
END_TEST

START_TEST(a_switch_further_on_passes_what_it_has_no_room_for)
{
	start(SPINE);
	rig.job.parameters[FANIN_PULL_ENTRIES] = 1;
	offer(0, make_pull(FANIN_TYPE_PULL, 0, 6, 1));
	take(FANIN_TYPE_PULL_DELIVERY, 1 << 1, 0, 6);
	ck_assert_int_eq(offer(0, make_pull(FANIN_TYPE_PULL, 0, 7, 1)), FANIN_VERDICT_HELD);
	ck_assert_uint_eq(take(FANIN_TYPE_PULL_DELIVERY, 1 << 1, 0, 7)->headers.fanin.count, 0);
	ck_assert_uint_eq(rig.stats.own[PULL_BUSY], 0);
	offer(1, make_response(FANIN_TYPE_RESPONSE, 0, 7, 0x08));
	take_sum(1 << 0, 0, 7, 0x08);
	stop();
}
END_TEST

/* ------------------------------------------------------------------ what is over */

START_TEST(an_answer_of_the_last_use_of_a_place_is_not_combined)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	for (uint16_t rank = 1; rank < 4; rank++)
		host_answers(rank, 0, 4);
	take_sum(1 << 0, 0, 4, 0xe);
	ck_assert(host_pulls(1, 4));
	host_answers(1, 1, 4);
	ck_assert_int_eq(host_answers(2, 0, 4), FANIN_VERDICT_HELD);
	take_sum(1 << 0, 0, 4, 0x4);
	host_answers(2, 1, 4);
	host_answers(3, 1, 4);
	take_sum(1 << 0, 1, 4, 0xe);
	stop();
}
END_TEST

START_TEST(an_earlier_runs_sum_is_dropped_and_counts_no_more)
{
	start(ALONE);
	rig.job.parameters[FANIN_PULL_ENTRIES] = 1;
	ck_assert(host_pulls(0, 4));
	host_answers(1, 0, 4);
	rig.ctx.epoch++;
	ck_assert(host_pulls(0, 4));
	ck_assert_uint_eq(rig.state.used, (uint64_t)(EPOCH + 1) << 32 | 1);
	ck_assert(!host_pulls(0, 8));
	for (uint16_t rank = 1; rank < 4; rank++)
		host_answers(rank, 0, 4);
	take_sum(1 << 0, 0, 4, 0xe);
	/* A worker that is behind still has packets of the run that is over. */
	rig.ctx.epoch--;
	ck_assert(!host_pulls(0, 0));
	stop();
}
END_TEST

START_TEST(the_timer_of_an_earlier_run_is_not_waited_for)
{
	start(ALONE);
	ck_assert(host_pulls(0, 4));
	rig.ctx.epoch++;
	ck_assert(host_pulls(0, 4));
	host_answers(1, 0, 4);
	pass_time(rig.timers->timeout_ns);
	take_sum(1 << 0, 0, 4, 0x2);
	stop();
}
END_TEST

/* ------------------------------------------------------------------ who may say what */

START_TEST(others_packets_at_the_parents_port_are_dropped)
{
	struct rte_mbuf *busy;

	start(LEAF);
	/* The owner is below: its PULL has been here. */
	ck_assert_int_eq(offer(0, make_pull(FANIN_TYPE_PULL_DELIVERY, 0, 6, 2)),
			 FANIN_VERDICT_FREE);
	/* The owner is elsewhere: the sum is for another leaf. */
	ck_assert_int_eq(offer(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 3, 0x4)),
			 FANIN_VERDICT_FREE);
	/* For a host at the parent. */
	busy = make_pull(FANIN_TYPE_PULL_DELIVERY, 0, 3, 0);
	hdr_of(busy)->count = FANIN_PULL_BUSY;
	ck_assert_int_eq(offer(0, busy), FANIN_VERDICT_FREE);
	stop();
}
END_TEST

static void
expect_refused(uint16_t child, struct rte_mbuf *mbuf, enum fanin_reason reason)
{
	ck_assert_int_eq(offer(child, mbuf), FANIN_VERDICT_DROP);
	ck_assert_int_eq(rig.reason, reason);
}

START_TEST(packets_that_claim_more_than_they_may_are_refused)
{
	struct rte_mbuf *mbuf;

	start(LEAF);
	/* Another's packet; a place of another. */
	expect_refused(1, make_pull(FANIN_TYPE_PULL, 0, 6, 0), FANIN_REASON_RANK);
	mbuf = make_pull(FANIN_TYPE_PULL, 0, 6, 0);
	hdr_of(mbuf)->members = 1;
	expect_refused(1, mbuf, FANIN_REASON_RANK);
	/* Another's data, the owner's, nobody's, that of a rank that is below. */
	expect_refused(1, make_response(FANIN_TYPE_RESPONSE, 0, 6, 1 << 2), FANIN_REASON_RANK);
	expect_refused(0, make_response(FANIN_TYPE_RESPONSE, 0, 6, 1 << 0), FANIN_REASON_RANK);
	expect_refused(1, make_response(FANIN_TYPE_RESPONSE, 0, 6, 0), FANIN_REASON_RANK);
	expect_refused(0, make_response(FANIN_TYPE_RESPONSE_DELIVERY, 0, 6, 1 << 1),
		       FANIN_REASON_RANK);
	/* No data at all; data that the job has no kernel for; more than its packets may carry. */
	mbuf = make_packet(FANIN_TYPE_RESPONSE, 0, 6, 0);
	hdr_of(mbuf)->flags = FANIN_FLAG_EMPTY;
	hdr_of(mbuf)->dtype = FANIN_WIRE_U32;
	hdr_of(mbuf)->op = FANIN_WIRE_SUM;
	hdr_of(mbuf)->count = COUNT;
	hdr_of(mbuf)->members = 1 << 1;
	expect_refused(1, mbuf, FANIN_REASON_FLAGS);
	mbuf = make_response(FANIN_TYPE_RESPONSE, 0, 6, 1 << 1);
	hdr_of(mbuf)->dtype = FANIN_WIRE_F32;
	hdr_of(mbuf)->op = FANIN_WIRE_BXOR;
	expect_refused(1, mbuf, FANIN_REASON_OPERATION);
	rig.job.payload_bytes = 8;
	expect_refused(1, make_response(FANIN_TYPE_RESPONSE, 0, 6, 1 << 1), FANIN_REASON_PAYLOAD);
	stop();
}
END_TEST

START_TEST(a_slot_that_another_worker_is_in_is_tried_again)
{
	struct pull_slot *slot;
	struct rte_mbuf *mbuf;

	start(ALONE);
	slot = (struct pull_slot *)rig.slots[4];
	slot->entry.entered = 1;
	mbuf = make_pull(FANIN_TYPE_PULL, 0, 4, 0);
	ck_assert_int_eq(offer(0, mbuf), FANIN_VERDICT_RETRY);
	slot->entry.entered = 0;
	ck_assert_int_eq(offer(0, mbuf), FANIN_VERDICT_HELD);
	take(FANIN_TYPE_PULL_DELIVERY, 0xe, 0, 4);
	slot->entry.entered = 1;
	mbuf = make_response(FANIN_TYPE_RESPONSE, 0, 4, 1 << 1);
	ck_assert_int_eq(offer(1, mbuf), FANIN_VERDICT_RETRY);
	ck_assert(!rig.handler->expired(&rig.ctx, slot, 4, 4));
	slot->entry.entered = 0;
	ck_assert_int_eq(offer(1, mbuf), FANIN_VERDICT_HELD);
	stop();
}
END_TEST

/* ------------------------------------------------------------------ the rest */

START_TEST(multicast_and_unicast_pass_as_in_broadcast)
{
	struct rte_mbuf *mbuf;

	start(ALONE);
	mbuf = make_packet(FANIN_TYPE_MULTICAST, 0, 5, 8);
	hdr_of(mbuf)->members = 2;
	ck_assert_int_eq(offer(2, mbuf), FANIN_VERDICT_HELD);
	take(FANIN_TYPE_DELIVERY, 0xb, 0, 5);
	mbuf = make_packet(FANIN_TYPE_UNICAST, 0, 5, 8);
	hdr_of(mbuf)->members = 2;
	hdr_of(mbuf)->count = 3;
	ck_assert_int_eq(offer(2, mbuf), FANIN_VERDICT_HELD);
	take(FANIN_TYPE_UNICAST_DELIVERY, 0x8, 0, 5);
	stop();
}
END_TEST

Suite *
suite_pull(void)
{
	Suite *suite = suite_create("pull");
	TCase *tcase = tcase_create("sums");

	tcase_add_test(tcase, answers_of_all_ranks_become_one_sum);
	tcase_add_test(tcase, a_leaf_combines_what_comes_from_its_hosts_and_from_above);
	tcase_add_test(tcase, a_leaf_of_other_ranks_sends_their_sum_up);
	tcase_add_test(tcase, a_spine_expects_no_rank_of_the_owners_leaf);
	tcase_add_test(tcase, where_one_rank_is_expected_there_is_no_sum);
	tcase_add_test(tcase, a_duplicate_is_counted_once);
	tcase_add_test(tcase, a_duplicate_of_the_request_changes_no_sum);
	tcase_add_test(tcase, sets_that_overlap_are_not_combined);
	tcase_add_test(tcase, a_sum_with_all_ranks_and_more_takes_the_place);
	tcase_add_test(tcase, elements_of_another_shape_pass);
	tcase_add_loop_test(tcase, every_data_type_and_operator_is_combined, 0,
			    FANIN_WIRE_DTYPE_COUNT * FANIN_WIRE_OP_COUNT);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("timers");
	tcase_add_test(tcase,
		       a_sum_that_lacks_ranks_goes_on_after_the_timeout_and_late_answers_pass);
	tcase_add_loop_test(tcase, a_sum_waits_as_long_as_its_owner_expects_answers_to_take, 0, 2);
	tcase_add_test(tcase, a_sum_that_nothing_came_for_leaves_nothing_behind);
	tcase_add_test(tcase, the_timer_of_an_earlier_sum_ends_no_later_one);
	tcase_add_test(tcase, without_room_for_a_timer_there_is_no_sum);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("room");
	tcase_add_test(tcase, without_room_the_request_goes_back_to_its_owner_and_no_further);
	tcase_add_test(tcase, another_owners_sum_keeps_its_slot);
	tcase_add_test(tcase, the_owners_next_packet_of_a_slot_sends_its_last_ones_sum_on);
	tcase_add_test(tcase, a_switch_further_on_passes_what_it_has_no_room_for);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("over");
	tcase_add_test(tcase, an_answer_of_the_last_use_of_a_place_is_not_combined);
	tcase_add_test(tcase, an_earlier_runs_sum_is_dropped_and_counts_no_more);
	tcase_add_test(tcase, the_timer_of_an_earlier_run_is_not_waited_for);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("who");
	tcase_add_test(tcase, others_packets_at_the_parents_port_are_dropped);
	tcase_add_test(tcase, packets_that_claim_more_than_they_may_are_refused);
	tcase_add_test(tcase, a_slot_that_another_worker_is_in_is_tried_again);
	tcase_add_test(tcase, multicast_and_unicast_pass_as_in_broadcast);
	suite_add_tcase(suite, tcase);
	return suite;
}
