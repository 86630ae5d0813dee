/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch of a push job, packet by packet: the table and who leaves it, what a slot without
 * payload still knows, and what goes where: to the parent, to home hosts, to all
 * (protocols/push/README.md). The test plays the pipeline.
 */
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "protocols/push/switch/push.h"
#include "lab/reference/random.h"
#include "tests/unit/fake_switch.h"
#include "tests/unit/suites.h"

#define WINDOW 16
#define SLOTS 32
#define COUNT 4 /* elements */
#define PAYLOAD 256
#define TIMERS 1024
#define MAX_OUTPUTS 256
#define EPOCH 7
#define PARENT_EPOCH 9
#define TIMEOUT_US 1000

/* An emission, as it left. */
struct output {
	enum fanin_emission_kind kind;
	uint64_t children;
	struct fanin_headers headers;
	uint8_t payload[PAYLOAD];
	struct fanin_answer_ranks ranks; /* of an ANSWER */
};

static struct {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct push_state *state;
	struct fanin_handler_stats stats;
	struct fanin_handler_ctx ctx;
	uint8_t *slots[SLOTS];
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	struct fake_pool pool;
	enum fanin_reason reason; /* of the last packet that was dropped */
} sw;

static struct output outputs[MAX_OUTPUTS];
static unsigned int n_outputs, next_output;

/* ------------------------------------------------------------- the switch */

static void
keep(const struct fanin_emission *emission)
{
	const struct rte_mbuf *mbuf = emission->mbuf;
	struct output *output = &outputs[n_outputs++];

	ck_assert_uint_le(n_outputs, MAX_OUTPUTS);
	*output = (struct output){ .kind = emission->kind, .children = emission->children };
	memcpy(&output->headers, rte_pktmbuf_mtod(mbuf, const void *), sizeof(output->headers));
	memcpy(output->payload, rte_pktmbuf_mtod_offset(mbuf, const void *, FANIN_PAYLOAD_OFFSET),
	       sizeof(output->payload));
	if (output->headers.fanin.type == FANIN_TYPE_ANSWER)
		fanin_answer_read_ranks(output->payload + sizeof(struct fanin_answer_body),
					sw.job.n_ranks, &output->ranks);
	else
		ck_assert_int_eq(fanin_wire_validate(&output->headers, mbuf->data_len),
				 FANIN_REASON_NONE);
}

static void
carry_out(struct fanin_handler_ctx *ctx)
{
	fake_carry_out(ctx, &sw.pool, keep);
}

static void
start_job(uint64_t entries)
{
	memset(&sw, 0, sizeof(sw));
	n_outputs = next_output = 0;
	sw.handler = fanin_handler_find("push");
	ck_assert_ptr_nonnull(sw.handler);
	fake_usual(sw.handler, &sw.job);
	sw.job.parameters[FANIN_PUSH_ENTRIES] = entries;
	sw.job.parameters[FANIN_PUSH_TIMEOUT] = TIMEOUT_US;
	sw.job.id = 1;
	sw.job.window = WINDOW;
	sw.job.payload_bytes = PAYLOAD;
	sw.job.isa = fanin_isa_detect();
	sw.job.keys = (struct fanin_keys){ .up = 11, .down = 21 };
	fanin_wire_encode_l4(&sw.job.result_headers, &(struct fanin_flow){ .dst_port = 21930 },
			     PAYLOAD);
	sw.job.parent_headers = sw.job.result_headers;
	fake_pool_init(&sw.pool, 4096);
	fake_slots(sw.handler, &sw.job, sw.slots, SLOTS);
	sw.job.slots = (struct fanin_slots){ .by_index = sw.slots, .mask = SLOTS - 1 };
	sw.state = fake_memory(sizeof(*sw.state));
	sw.timers = fake_timers(sw.handler, &sw.job, TIMERS, &sw.earliest_ns);
	sw.ctx = (struct fanin_handler_ctx){
		.job = &sw.job,
		.epoch = EPOCH,
		.parent_epoch = PARENT_EPOCH,
		.state = sw.state,
		.stats = &sw.stats,
		.timers = sw.timers,
		.drain = carry_out,
		.now_ns = 1000,
	};
}

/* The only switch of a job. */
static void
start_root(uint16_t n_ranks, uint64_t entries)
{
	start_job(entries);
	fanin_job_params_hosts(&sw.job, n_ranks);
}

/* The root over two switches: ranks 0 to 3 and 4 to 7. */
static void
start_spine(uint64_t entries)
{
	start_root(2, entries);
	sw.job.n_ranks = sw.job.n_below = 8;
	sw.job.child_ranks[0] = fanin_ranks_of_word(0x0f);
	sw.job.child_ranks[1] = fanin_ranks_of_word(0xf0);
}

/* The switch with the ranks 4 to 7 of 8. */
static void
start_leaf(uint64_t entries)
{
	start_root(4, entries);
	sw.job.n_ranks = 8;
	sw.job.has_parent = true;
	sw.job.parent_rank = 4;
	for (uint16_t child = 0; child < 4; child++)
		sw.job.child_ranks[child] = fanin_ranks_one((uint16_t)(child + 4));
}

static void
stop(void)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		sw.handler->slot_release(&sw.ctx, sw.slots[i]);
		carry_out(&sw.ctx);
		free(sw.slots[i]);
	}
	free(sw.state);
	free(sw.timers);
	ck_assert_uint_eq(fake_pool_in_use(&sw.pool), 0);
	fake_pool_fini(&sw.pool);
}

/* ------------------------------------------------------------- packets */

static int32_t
value_of(unsigned int rank, uint32_t block, unsigned int i)
{
	return (int32_t)((rank + 1) * (block * 7 + i + 1));
}

static int32_t
sum_of(uint64_t members, uint32_t block, unsigned int i)
{
	int32_t sum = 0;

	for (; members != 0; members &= members - 1)
		sum += value_of((unsigned int)__builtin_ctzll(members), block, i);
	return sum;
}

/*
 * The data of these ranks, with the block's shape: a sum or an average. flags: FANIN_FLAG_EMPTY
 * leaves it out.
 */
static struct rte_mbuf *
make(enum fanin_type type, uint32_t block, uint64_t members, uint16_t flags)
{
	const bool empty = (flags & FANIN_FLAG_EMPTY) != 0;
	const uint32_t len = empty ? 0 : COUNT * sizeof(int32_t);
	struct rte_mbuf *mbuf = fake_get(&sw.pool, len);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	int32_t values[COUNT];

	fanin_wire_encode_l4(headers, &(struct fanin_flow){ .dst_port = 21930 }, len);
	fanin_wire_encode_header(&headers->fanin, type, 1, sw.ctx.epoch, 11);
	headers->fanin.flags = flags;
	headers->fanin.block = block;
	headers->fanin.members = type == FANIN_TYPE_CONTRIBUTION ? 0 : members;
	headers->fanin.contributions = (uint16_t)__builtin_popcountll(members);
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = COUNT;
	for (unsigned int i = 0; i < COUNT; i++)
		values[i] = sum_of(members, block, i);
	if (!empty)
		memcpy(headers + 1, values, sizeof(values));
	return mbuf;
}

static enum fanin_verdict
offer(uint16_t child, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const uint32_t index = fanin_slot_index(&sw.job.slots, headers->fanin.block);
	struct fanin_packet packet = {
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = child,
	};
	enum fanin_verdict verdict;

	sw.reason = FANIN_REASON_NONE;
	if (headers->fanin.type == FANIN_TYPE_CONTRIBUTION) {
		verdict = sw.handler->contribution(&sw.ctx, sw.slots[index], index, &packet,
						   &sw.reason);
	} else {
		ck_assert(fanin_handler_takes(sw.handler, headers->fanin.type));
		verdict = sw.handler->other(&sw.ctx, sw.slots[index], index, &packet, &sw.reason);
	}
	ck_assert_int_eq(verdict == FANIN_VERDICT_DROP, sw.reason != FANIN_REASON_NONE);
	if (verdict == FANIN_VERDICT_FREE || verdict == FANIN_VERDICT_DROP)
		fake_put(&sw.pool, mbuf);
	carry_out(&sw.ctx);
	return verdict;
}

/* A host's data. Its child is its rank; at a leaf 4 less. */
static enum fanin_verdict
contribute(unsigned int rank, uint32_t block)
{
	return offer((uint16_t)(sw.job.has_parent ? rank - 4 : rank),
		     make(FANIN_TYPE_CONTRIBUTION, block, UINT64_C(1) << rank, 0));
}

static void
expect_dropped(enum fanin_verdict verdict, enum fanin_reason reason)
{
	ck_assert_int_eq(verdict, FANIN_VERDICT_DROP);
	ck_assert_str_eq(fanin_reason_name(sw.reason), fanin_reason_name(reason));
}

/* The home host of a block asks. */
static enum fanin_verdict
query(uint16_t child, uint32_t block, uint64_t way)
{
	struct rte_mbuf *mbuf = fake_get(&sw.pool, 256);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	fanin_wire_encode_l4(headers, &(struct fanin_flow){ .dst_port = 21930 }, 0);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_QUERY, 1, sw.ctx.epoch, 11);
	headers->fanin.block = block;
	headers->fanin.rank = child;
	headers->fanin.number = 77;
	headers->fanin.members = way;
	headers->fanin.flags = FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT;
	return offer(child, mbuf);
}

/* A message of a host to another one, which passes. */
static void
tell_as(enum fanin_type type, uint16_t child, enum fanin_push_kind kind, uint32_t block)
{
	struct rte_mbuf *mbuf = fake_get(&sw.pool, 0);
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const bool is_down = fanin_type_direction((uint8_t)type) == FANIN_DOWN;

	fanin_wire_encode_l4(headers, &(struct fanin_flow){ .dst_port = 21930 }, 0);
	fanin_wire_encode_header(&headers->fanin, type, 1, sw.ctx.epoch, is_down ? 21 : 11);
	headers->fanin.block = block;
	headers->fanin.members = is_down ? 0 : fanin_ranks_lowest(&sw.job.child_ranks[child]);
	/* To a rank that is neither the sender nor behind the parent. */
	headers->fanin.count = fanin_ranks_lowest(&sw.job.child_ranks[child == 0 ? 1 : 0]);
	headers->fanin.number = fanin_push_number(kind, true, FANIN_WIRE_I32, FANIN_WIRE_SUM);
	ck_assert_int_eq(offer(child, mbuf), FANIN_VERDICT_HELD);
	next_output = n_outputs = 0;
}

static void
tell(uint16_t child, enum fanin_push_kind kind, uint32_t block)
{
	tell_as(FANIN_TYPE_UNICAST, child, kind, block);
}

/* The run goes on past the table: all ranks give home hosts their data of blocks up to this one. */
static void
all_go_on_to(uint32_t block)
{
	for (uint32_t b = WINDOW; b < block; b += WINDOW / 2) {
		for (uint16_t child = 0; child < sw.job.n_children; child++)
			tell(child, FANIN_PUSH_DATA, b);
	}
	for (uint16_t child = 0; child < sw.job.n_children; child++)
		tell(child, FANIN_PUSH_DATA, block);
}

static void
pass_time(uint64_t ns)
{
	sw.ctx.now_ns += ns;
	while (!fanin_timer_fifo_is_empty(sw.timers) &&
	       fanin_timer_fifo_first(sw.timers)->due_ns <= sw.ctx.now_ns) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(sw.timers);

		sw.timers->head++;
		if (timer.epoch != sw.ctx.epoch)
			continue;
		ck_assert(sw.handler->expired(&sw.ctx, sw.slots[timer.index], timer.index,
					      timer.block));
		carry_out(&sw.ctx);
	}
}

/* ------------------------------------------------------------- what comes of them */

static const struct output *
take(enum fanin_emission_kind kind, enum fanin_type type, uint32_t block)
{
	const struct output *output = &outputs[next_output++];

	ck_assert_uint_le(next_output, n_outputs);
	ck_assert_int_eq(output->kind, kind);
	ck_assert_str_eq(fanin_packet_types[output->headers.fanin.type].name,
			 fanin_packet_types[type].name);
	ck_assert_uint_eq(output->headers.fanin.block, block);
	ck_assert_uint_eq(output->headers.fanin.epoch,
			  kind == FANIN_EMIT_PARENT ? PARENT_EPOCH : sw.ctx.epoch);
	ck_assert_uint_eq(output->headers.fanin.key, kind == FANIN_EMIT_PARENT ? 11 : 21);
	return output;
}

static void
expect_nothing(void)
{
	ck_assert_uint_eq(next_output, n_outputs);
}

static void
expect_elements(const struct output *output, uint64_t members)
{
	int32_t values[COUNT];

	ck_assert_uint_eq(output->headers.fanin.flags, 0);
	ck_assert_uint_eq(output->headers.fanin.contributions, __builtin_popcountll(members));
	memcpy(values, output->payload, sizeof(values));
	for (unsigned int i = 0; i < COUNT; i++)
		ck_assert_int_eq(values[i], sum_of(members, output->headers.fanin.block, i));
}

static void
expect_result(uint32_t block)
{
	const struct output *output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT, block);

	ck_assert_uint_eq(output->children, sw.job.children);
	expect_elements(output, fanin_ranks_all_word(sw.job.n_ranks, 0));
}

/* A sum of these ranks goes to the block's home host, by this child. */
static void
expect_home(uint32_t block, uint64_t members, unsigned int child)
{
	const struct output *output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_EVICTED, block);

	ck_assert_uint_eq(output->children, UINT64_C(1) << child);
	ck_assert_uint_eq(output->headers.fanin.number, block % sw.job.n_ranks);
	ck_assert_uint_eq(output->headers.fanin.members, members);
	expect_elements(output, members);
}

static void
expect_upward(uint32_t block, uint64_t members)
{
	const struct output *output = take(FANIN_EMIT_PARENT, FANIN_TYPE_PARTIAL, block);

	ck_assert_uint_eq(output->headers.fanin.members, members);
	ck_assert_uint_eq(output->headers.fanin.rank, sw.job.parent_rank);
	expect_elements(output, members);
}

static void
expect_answer(uint32_t block, enum fanin_block_state state, uint64_t missing)
{
	const struct output *output = take(FANIN_EMIT_REPLY, FANIN_TYPE_ANSWER, block);

	ck_assert_uint_eq(output->headers.fanin.count, state);
	ck_assert_uint_eq(output->headers.fanin.number, 77);
	ck_assert_uint_eq(output->ranks.missing.words[0], missing);
}

/* ------------------------------------------------------------- the table */

START_TEST(a_block_of_all_ranks_is_made_in_the_table)
{
	start_root(4, 4);
	for (unsigned int rank = 0; rank < 4; rank++) {
		expect_nothing();
		ck_assert_int_ne(contribute(rank, 5), FANIN_VERDICT_DROP);
	}
	expect_result(5);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.own[PUSH_HITS], 3);
	ck_assert_uint_eq(sw.stats.own[PUSH_COMPLETED], 1);
	ck_assert_uint_eq(sw.state->sets[0].used, 0);
	stop();
}
END_TEST

START_TEST(the_least_recently_used_sum_leaves_a_full_table)
{
	start_root(4, 4);
	for (uint32_t block = 0; block < 4; block++)
		contribute(0, block);
	contribute(1, 0); /* used: 1 is the oldest now */
	contribute(0, 4);
	expect_home(1, 1, 1);
	contribute(0, 5);
	expect_home(2, 1, 2);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.own[PUSH_EVICTED], 2);
	ck_assert_uint_eq(sw.state->sets[0].used, 4);
	stop();
}
END_TEST

START_TEST(the_table_makes_no_result_of_a_block_that_was_evicted)
{
	start_root(4, 1);
	contribute(0, 0);
	contribute(1, 0);
	contribute(0, 1);
	expect_home(0, 3, 0);
	contribute(2, 0);
	expect_home(1, 1, 1);
	contribute(3, 0);
	/* The rest goes the same way, at once. */
	expect_home(0, 0xc, 0);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.results, 0);
	stop();
}
END_TEST

START_TEST(the_last_rank_alone_needs_no_entry)
{
	start_root(2, 1);
	contribute(0, 0);
	pass_time(TIMEOUT_US * 1000);
	expect_home(0, 1, 0);
	contribute(0, 1);
	contribute(1, 0);
	expect_home(0, 2, 0);
	ck_assert_uint_eq(sw.stats.own[PUSH_EVICTED], 0);
	contribute(1, 1);
	expect_result(1);
	expect_nothing();
	stop();
}
END_TEST

START_TEST(a_sum_leaves_after_its_timeout)
{
	start_root(3, 4);
	contribute(0, 3);
	pass_time(TIMEOUT_US * 1000 - 1);
	expect_nothing();
	contribute(1, 3);
	pass_time(1);
	expect_home(3, 3, 0);
	ck_assert_uint_eq(sw.stats.own[PUSH_TIMED_OUT], 1);
	contribute(2, 3);
	expect_home(3, 4, 0);
	pass_time(10 * TIMEOUT_US * 1000);
	expect_nothing();
	stop();
}
END_TEST

START_TEST(large_tables_are_divided_and_hold_what_they_say)
{
	for (uint64_t entries = 1; entries <= SLOTS; entries *= 2) {
		start_root(2, entries);
		ck_assert_uint_le(push_sets(&sw.job), entries);
		for (uint32_t block = 0; block < SLOTS; block++)
			contribute(0, block);
		ck_assert_uint_eq(sw.stats.own[PUSH_EVICTED], SLOTS - entries);
		ck_assert_uint_eq(fake_pool_in_use(&sw.pool), entries);
		stop();
	}
}
END_TEST

/* ------------------------------------------------------------- what has come */

START_TEST(duplicates_change_nothing_however_late)
{
	start_root(3, 1);
	contribute(0, 0);
	ck_assert_int_eq(contribute(0, 0), FANIN_VERDICT_FREE);
	contribute(0, 1);
	expect_home(0, 1, 0);
	/* After eviction. */
	ck_assert_int_eq(contribute(0, 0), FANIN_VERDICT_FREE);
	contribute(1, 1);
	contribute(2, 1);
	expect_result(1);
	/* After the result. */
	ck_assert_int_eq(contribute(2, 1), FANIN_VERDICT_FREE);
	ck_assert_uint_eq(sw.stats.duplicates, 3);
	/* After the next use of the slot. */
	all_go_on_to(WINDOW);
	contribute(0, SLOTS);
	expect_dropped(contribute(1, 0), FANIN_REASON_BLOCK_STALE);
	ck_assert_uint_eq(sw.stats.own[PUSH_STALE], 1);
	contribute(1, SLOTS);
	contribute(2, SLOTS);
	expect_result(SLOTS);
	expect_nothing();
	stop();
}
END_TEST

START_TEST(a_slot_that_goes_on_frees_the_entry_of_its_last_block)
{
	start_root(3, 4);
	contribute(0, 0);
	contribute(0, 1);
	contribute(0, SLOTS);
	expect_nothing();
	ck_assert_uint_eq(fake_pool_in_use(&sw.pool), 2);
	ck_assert_uint_eq(sw.state->sets[0].used, 2);
	/* A block may never have come at all: home hosts have made what came in between. */
	all_go_on_to(5 * SLOTS - 1);
	contribute(0, 5 * SLOTS);
	contribute(1, 5 * SLOTS);
	contribute(2, 5 * SLOTS);
	expect_result(5 * SLOTS);
	stop();
}
END_TEST

START_TEST(sums_of_another_run_are_never_sent)
{
	start_leaf(2);
	contribute(4, 0);
	contribute(4, 1);
	sw.ctx.epoch++;
	contribute(5, 2);
	expect_nothing();
	pass_time(10 * TIMEOUT_US * 1000);
	expect_upward(2, 1 << 5);
	expect_nothing();
	/* A packet of the run before. */
	contribute(4, 2);
	sw.ctx.epoch--;
	expect_dropped(contribute(5, 2), FANIN_REASON_EPOCH);
	stop();
	/* The parent has begun another run, and this switch has not. */
	start_leaf(2);
	contribute(4, 0);
	sw.ctx.parent_epoch++;
	expect_dropped(contribute(5, 0), FANIN_REASON_EPOCH);
	pass_time(10 * TIMEOUT_US * 1000);
	expect_nothing();
	stop();
}
END_TEST

START_TEST(mismatched_data_is_refused_even_after_eviction)
{
	struct rte_mbuf *mbuf;

	start_root(3, 1);
	contribute(0, 0);
	contribute(0, 1);
	expect_home(0, 1, 0);
	mbuf = make(FANIN_TYPE_CONTRIBUTION, 0, 2, 0);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.op = FANIN_WIRE_MAX;
	expect_dropped(offer(1, mbuf), FANIN_REASON_MISMATCH);
	mbuf = make(FANIN_TYPE_CONTRIBUTION, 2, 2, 0);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.count = PAYLOAD;
	expect_dropped(offer(1, mbuf), FANIN_REASON_PAYLOAD);
	mbuf = make(FANIN_TYPE_CONTRIBUTION, 2, 2, 0);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.dtype = FANIN_WIRE_F32;
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.op = FANIN_WIRE_BXOR;
	expect_dropped(offer(1, mbuf), FANIN_REASON_OPERATION);
	stop();
}
END_TEST

/* ------------------------------------------------------------- elements */

START_TEST(ranks_without_data_are_counted_and_combined_with_nothing)
{
	const struct output *output;

	start_root(3, 4);
	offer(0, make(FANIN_TYPE_CONTRIBUTION, 0, 1, FANIN_FLAG_EMPTY));
	contribute(1, 0);
	offer(2, make(FANIN_TYPE_CONTRIBUTION, 0, 4, FANIN_FLAG_EMPTY));
	output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT, 0);
	ck_assert_int_eq(memcmp(output->payload, &(int32_t){ value_of(1, 0, 0) }, 4), 0);
	ck_assert_uint_eq(fanin_wire_payload_len(&output->headers), COUNT * sizeof(int32_t));
	for (uint16_t rank = 0; rank < 3; rank++)
		offer(rank,
		      make(FANIN_TYPE_CONTRIBUTION, 1, UINT64_C(1) << rank, FANIN_FLAG_EMPTY));
	output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT, 1);
	ck_assert(fanin_wire_is_empty(&output->headers.fanin));
	ck_assert_uint_eq(fanin_wire_payload_len(&output->headers), 0);
	stop();
}
END_TEST

START_TEST(an_average_is_divided_by_whoever_makes_the_result)
{
	struct rte_mbuf *mbuf;
	const struct output *output;
	int32_t first;

	start_root(2, 1);
	for (uint32_t block = 0; block < 2; block++) {
		for (uint16_t rank = 0; rank < 2; rank++) {
			mbuf = make(FANIN_TYPE_CONTRIBUTION, block, UINT64_C(1) << rank, 0);
			rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.op = FANIN_WIRE_AVG;
			offer(rank, mbuf);
			if (block == 1 && rank == 0)
				contribute(0, 2);
		}
	}
	output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_RESULT, 0);
	memcpy(&first, output->payload, sizeof(first));
	ck_assert_int_eq(first, sum_of(3, 0, 0) / 2);
	/* Parts are not divided. */
	expect_home(1, 1, 1);
	expect_home(1, 2, 1);
	stop();
}
END_TEST

/* ------------------------------------------------------------- questions */

START_TEST(a_block_that_its_home_host_asks_for_is_never_made_in_the_table)
{
	start_root(3, 4);
	contribute(0, 1);
	query(1, 1, 0);
	expect_home(1, 1, 1);
	expect_answer(1, FANIN_BLOCK_OPEN, 6);
	contribute(1, 1);
	contribute(2, 1);
	expect_home(1, 6, 1);
	/* Nothing of it has come. */
	query(2, 2, 0);
	expect_answer(2, FANIN_BLOCK_OPEN, 7);
	for (unsigned int rank = 0; rank < 3; rank++)
		contribute(rank, 2);
	expect_home(2, 7, 2);
	query(2, 2, 0);
	expect_answer(2, FANIN_BLOCK_OPEN, 0);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.own[PUSH_MARKED], 2);
	ck_assert_uint_eq(sw.stats.results, 0);
	stop();
}
END_TEST

START_TEST(a_block_that_is_done_stays_so_when_it_is_asked_for)
{
	start_root(2, 4);
	contribute(0, 0);
	contribute(1, 0);
	expect_result(0);
	query(0, 0, 0);
	expect_answer(0, FANIN_BLOCK_DONE, 0);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.own[PUSH_MARKED], 0);
	/* Of an older use of the slot. */
	all_go_on_to(WINDOW);
	contribute(0, SLOTS);
	expect_dropped(query(0, 0, 0), FANIN_REASON_BLOCK_STALE);
	stop();
}
END_TEST

START_TEST(nobody_but_the_home_host_asks)
{
	start_root(3, 4);
	contribute(0, 1);
	expect_dropped(query(0, 1, 0), FANIN_REASON_RANK);
	expect_nothing();
	stop();
	start_leaf(4);
	expect_dropped(query(0, 5, 0), FANIN_REASON_RANK);
	query(1, 5, 0);
	ck_assert_uint_eq(take(FANIN_EMIT_PARENT, FANIN_TYPE_QUERY, 5)->headers.fanin.members,
			  fanin_way_push(0, 1));
	expect_nothing();
	stop();
}
END_TEST

/* ------------------------------------------------------------- trees */

START_TEST(a_leaf_sends_each_rank_up_once)
{
	start_leaf(1);
	contribute(4, 0);
	contribute(5, 0);
	contribute(4, 1);
	expect_upward(0, 0x30);
	contribute(6, 0);
	expect_upward(1, 0x10);
	ck_assert_int_eq(contribute(4, 0), FANIN_VERDICT_FREE);
	pass_time(TIMEOUT_US * 1000);
	expect_upward(0, 0x40);
	contribute(7, 0);
	expect_upward(0, 0x80);
	for (unsigned int rank = 4; rank < 8; rank++)
		contribute(rank, 2);
	expect_upward(2, 0xf0);
	expect_nothing();
	ck_assert_uint_eq(sw.stats.upward, 5);
	stop();
}
END_TEST

START_TEST(sums_of_leaves_meet_at_the_root)
{
	start_spine(4);
	offer(0, make(FANIN_TYPE_PARTIAL, 6, 0x0f, 0));
	ck_assert_int_eq(offer(0, make(FANIN_TYPE_PARTIAL, 6, 0x0f, 0)), FANIN_VERDICT_FREE);
	offer(1, make(FANIN_TYPE_PARTIAL, 6, 0x30, 0));
	offer(1, make(FANIN_TYPE_PARTIAL, 6, 0xc0, 0));
	expect_result(6);
	/* Ranks of another leaf; a host's packet from a switch; a part of what has come. */
	expect_dropped(offer(1, make(FANIN_TYPE_PARTIAL, 7, 0x0f, 0)), FANIN_REASON_RANK);
	expect_dropped(offer(1, make(FANIN_TYPE_PARTIAL, 7, 0, 0)), FANIN_REASON_RANK);
	expect_dropped(offer(1, make(FANIN_TYPE_CONTRIBUTION, 7, 0xf0, 0)), FANIN_REASON_TYPE);
	offer(0, make(FANIN_TYPE_PARTIAL, 7, 3, 0));
	ck_assert_int_eq(offer(0, make(FANIN_TYPE_PARTIAL, 7, 6, 0)), FANIN_VERDICT_FREE);
	ck_assert_uint_eq(sw.stats.own[PUSH_OVERLAPS], 1);
	/* The home host of 7 is behind the second leaf. */
	pass_time(TIMEOUT_US * 1000);
	expect_home(7, 3, 1);
	offer(0, make(FANIN_TYPE_PARTIAL, 7, 0xc, 0));
	offer(1, make(FANIN_TYPE_PARTIAL, 7, 0xf0, 0));
	expect_home(7, 0xfc, 1);
	expect_nothing();
	stop();
}
END_TEST

START_TEST(a_leaf_passes_on_what_comes_down)
{
	const struct output *output;
	struct rte_mbuf *mbuf;

	start_leaf(4);
	offer(0, make(FANIN_TYPE_RESULT, 9, 0xff, 0));
	expect_result(9);
	mbuf = make(FANIN_TYPE_EVICTED, 6, 0x0f, 0);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.number = 6;
	offer(0, mbuf);
	expect_home(6, 0x0f, 2);
	/* For a rank behind another switch. */
	mbuf = make(FANIN_TYPE_EVICTED, 3, 0x0f, 0);
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.number = 3;
	ck_assert_int_eq(offer(0, mbuf), FANIN_VERDICT_FREE);
	mbuf = fake_get(&sw.pool, fanin_answer_len(8));
	fanin_wire_encode_l4(rte_pktmbuf_mtod(mbuf, struct fanin_headers *),
			     &(struct fanin_flow){ .dst_port = 21930 }, fanin_answer_len(8));
	fanin_wire_encode_header(&rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin,
				 FANIN_TYPE_ANSWER, 1, EPOCH, 21);
	memset(rte_pktmbuf_mtod(mbuf, struct fanin_headers *) + 1, 0, fanin_answer_len(8));
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.block = 5;
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.rank = 4;
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.members = fanin_way_push(0, 1);
	offer(0, mbuf);
	output = take(FANIN_EMIT_CHILDREN, FANIN_TYPE_ANSWER, 5);
	ck_assert_uint_eq(output->children, 2);
	ck_assert_uint_eq(output->headers.fanin.rank, 5);
	expect_nothing();
	stop();
}
END_TEST

/* ------------------------------------------------------------- numbers that nobody can have */

/*
 * The newest block that a packet of child 0 gets in with, of data or of the home host's question.
 */
static uint32_t
newest_of_0(uint32_t from, bool is_query)
{
	uint32_t newest = from;

	for (uint32_t block = from; block != from + 4 * WINDOW; block++) {
		if (is_query && block % sw.job.n_ranks != 0)
			continue;
		if ((is_query ? query(0, block, 0) : contribute(0, block)) != FANIN_VERDICT_DROP)
			newest = block;
		else if (block >= 2 * WINDOW)
			ck_assert_str_eq(fanin_reason_name(sw.reason), "block_out_of_window");
	}
	return newest;
}

/*
 * Slots keep to what all ranks but one can have sent: how far that one says it is does not matter.
 */
START_TEST(blocks_a_window_ahead_of_all_others_are_refused)
{
	const bool is_query = _i == 1;
	const uint32_t most = 2 * WINDOW - 1;

	start_root(4, 64);
	for (uint32_t i = 0; i < SLOTS; i++) {
		const uint32_t block = (1u << 20) + 4 * i;

		expect_dropped(is_query ? query(0, block, 0) : contribute(0, block),
			       FANIN_REASON_BLOCK_WINDOW);
		/* Of slots that have no block yet, nor a number that is past the half of all. */
		expect_dropped(is_query ? query(0, (1u << 31) + 4 * i, 0)
					: contribute(0, (1u << 31) + 4 * i),
			       i < WINDOW / 4 ? FANIN_REASON_BLOCK_WINDOW
					      : FANIN_REASON_BLOCK_STALE);
	}
	ck_assert_uint_le(newest_of_0(0, is_query), most);
	ck_assert_uint_ge(newest_of_0(0, is_query), most - 3);
	/* Step by step, by one rank's word alone. */
	for (uint32_t block = 0; block < 100 * SLOTS; block += 4) {
		tell(0, FANIN_PUSH_DATA, block);
		tell(0, FANIN_PUSH_REPEAT, block);
		(void)contribute(0, block);
	}
	ck_assert_uint_le(newest_of_0(0, is_query), most);
	n_outputs = next_output = 0;
	for (uint32_t block = 0; block < 2 * SLOTS; block++) {
		for (unsigned int rank = 1; rank < 4; rank++)
			ck_assert_int_ne(contribute(rank, block), FANIN_VERDICT_DROP);
		(void)contribute(0, block);
		n_outputs = next_output = 0;
	}
	ck_assert_uint_ge(sw.stats.own[PUSH_AHEAD], SLOTS);
	if (!is_query)
		ck_assert_uint_ge(sw.stats.results, 2 * SLOTS - 1);
	stop();
}
END_TEST

/* A rank answers a home host that asks, whatever that asks for: it has not sent the block. */
START_TEST(questions_and_here_do_not_vouch_for_a_block_far_ahead)
{
	start_root(2, 64);
	for (uint32_t block = 0; block < 100 * SLOTS; block++) {
		tell(1, FANIN_PUSH_HERE, block);
		tell(1, FANIN_PUSH_ASK, block);
		tell(1, FANIN_PUSH_QUERY, block);
	}
	ck_assert_uint_le(newest_of_0(0, false), 2 * WINDOW - 1);
	stop();
}
END_TEST

/*
 * All data of a block may come to its home host past the tables, or be lost on the way here and
 * made good: a slot may be many uses behind.
 */
START_TEST(blocks_a_window_ahead_pass_though_the_table_missed_others)
{
	static const enum fanin_push_kind kinds[] = { FANIN_PUSH_DATA, FANIN_PUSH_REPEAT,
						      FANIN_PUSH_RESULT };

	for (unsigned int i = 0; i < RTE_DIM(kinds); i++) {
		start_root(4, 64);
		/* Around the end of all numbers, too. */
		for (unsigned int child = 0; child < 4; child++)
			sw.state->newest[child] = (uint64_t)EPOCH << 32 | (0 - 7u * SLOTS);
		for (uint32_t block = 0 - 7u * SLOTS; block != 7 * SLOTS; block++) {
			for (uint16_t child = 0; child < 4; child++)
				tell_as(kinds[i] == FANIN_PUSH_RESULT ? FANIN_TYPE_MULTICAST
								      : FANIN_TYPE_UNICAST,
					child, kinds[i], block);
			/* Contributions are lost, but for some. */
			if (block % 97 == 0)
				ck_assert_int_eq(contribute(0, block + WINDOW), FANIN_VERDICT_HELD);
		}
		ck_assert_uint_eq(sw.stats.own[PUSH_AHEAD] + sw.stats.own[PUSH_STALE], 0);
		stop();
	}
}
END_TEST

/*
 * What a leaf's own ranks bring is bounded by the others behind it and by what comes down; that in
 * turn by them.
 */
START_TEST(a_leaf_goes_by_its_parent_too)
{
	start_leaf(64);
	for (uint32_t block = 0; block < 8 * SLOTS; block++) {
		for (uint16_t child = 0; child < 4; child++)
			tell(child, FANIN_PUSH_DATA, block);
	}
	/* The ranks elsewhere have sent nothing. */
	expect_dropped(contribute(4, 2 * WINDOW), FANIN_REASON_BLOCK_WINDOW);
	expect_dropped(query(0, 2 * WINDOW + 4, 1), FANIN_REASON_BLOCK_WINDOW);
	for (uint32_t block = 0; block < 4 * WINDOW; block++) {
		tell_as(FANIN_TYPE_UNICAST_DELIVERY, 0, FANIN_PUSH_DATA, block);
		for (uint16_t child = 0; child < 4; child++)
			tell(child, FANIN_PUSH_DATA, block);
	}
	/* Whoever forges what comes down from elsewhere lets nobody go further than these. */
	for (uint32_t block = 4 * WINDOW; block < 8 * SLOTS; block++)
		tell_as(FANIN_TYPE_UNICAST_DELIVERY, 0, FANIN_PUSH_DATA, block);
	ck_assert_int_eq(contribute(4, 5 * WINDOW - 1), FANIN_VERDICT_HELD);
	expect_dropped(contribute(4, 7 * WINDOW), FANIN_REASON_BLOCK_WINDOW);
	expect_dropped(query(0, 8 * WINDOW + 4, 1), FANIN_REASON_BLOCK_WINDOW);
	stop();
}
END_TEST

/* ------------------------------------------------------------- chance */

/*
 * Every rank is in what leaves exactly once, or in the result: whatever is doubled, evicted, timed
 * out and asked for.
 */
START_TEST(each_rank_of_a_block_is_sent_once_whatever_happens)
{
	uint64_t n_results = 0, n_evicted = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct random random = random_seed(seed);
		uint64_t sent[200] = { 0 };
		unsigned int results[200] = { 0 };
		const uint16_t n_ranks = (uint16_t)(2 + seed % 7);

		start_root(n_ranks, 1 + seed % 9);
		for (unsigned int step = 0; step < 3000; step++) {
			const uint32_t block = step / 60 + random_below(&random, WINDOW);
			const unsigned int rank = random_below(&random, n_ranks);

			if (random_below(&random, 200) == 0)
				query((uint16_t)(block % n_ranks), block, 0);
			else if (random_below(&random, 60) == 0)
				pass_time(TIMEOUT_US * 300);
			contribute(rank, block);
			for (; next_output != n_outputs; next_output++) {
				const struct output *output = &outputs[next_output];
				const struct fanin_hdr *hdr = &output->headers.fanin;

				if (hdr->type == FANIN_TYPE_EVICTED) {
					ck_assert_uint_eq(sent[hdr->block] & hdr->members, 0);
					sent[hdr->block] |= hdr->members;
					expect_elements(output, hdr->members);
				} else if (hdr->type == FANIN_TYPE_RESULT) {
					expect_elements(output, fanin_ranks_all_word(n_ranks, 0));
					results[hdr->block]++;
				}
			}
			n_outputs = next_output = 0;
		}
		for (uint32_t block = 0; block < 200; block++)
			ck_assert_uint_le(results[block] + (sent[block] != 0), 1);
		n_results += sw.stats.results;
		n_evicted += sw.stats.own[PUSH_EVICTED];
		stop();
	}
	ck_assert_uint_ge(n_results, 1000);
	ck_assert_uint_ge(n_evicted, 1000);
}
END_TEST

Suite *
suite_push(void)
{
	Suite *suite = suite_create("push");
	TCase *tcase = tcase_create("push");

	tcase_add_test(tcase, a_block_of_all_ranks_is_made_in_the_table);
	tcase_add_test(tcase, the_least_recently_used_sum_leaves_a_full_table);
	tcase_add_test(tcase, the_table_makes_no_result_of_a_block_that_was_evicted);
	tcase_add_test(tcase, the_last_rank_alone_needs_no_entry);
	tcase_add_test(tcase, a_sum_leaves_after_its_timeout);
	tcase_add_test(tcase, large_tables_are_divided_and_hold_what_they_say);
	tcase_add_test(tcase, duplicates_change_nothing_however_late);
	tcase_add_test(tcase, a_slot_that_goes_on_frees_the_entry_of_its_last_block);
	tcase_add_test(tcase, sums_of_another_run_are_never_sent);
	tcase_add_test(tcase, mismatched_data_is_refused_even_after_eviction);
	tcase_add_test(tcase, ranks_without_data_are_counted_and_combined_with_nothing);
	tcase_add_test(tcase, an_average_is_divided_by_whoever_makes_the_result);
	tcase_add_test(tcase, a_block_that_its_home_host_asks_for_is_never_made_in_the_table);
	tcase_add_test(tcase, a_block_that_is_done_stays_so_when_it_is_asked_for);
	tcase_add_test(tcase, nobody_but_the_home_host_asks);
	tcase_add_test(tcase, a_leaf_sends_each_rank_up_once);
	tcase_add_test(tcase, sums_of_leaves_meet_at_the_root);
	tcase_add_test(tcase, a_leaf_passes_on_what_comes_down);
	tcase_add_loop_test(tcase, blocks_a_window_ahead_of_all_others_are_refused, 0, 2);
	tcase_add_test(tcase, questions_and_here_do_not_vouch_for_a_block_far_ahead);
	tcase_add_test(tcase, blocks_a_window_ahead_pass_though_the_table_missed_others);
	tcase_add_test(tcase, a_leaf_goes_by_its_parent_too);
	tcase_add_test(tcase, each_rank_of_a_block_is_sent_once_whatever_happens);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}
