/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single shards at a switch: invalid ones, duplicates, early and late ones, and those whose slot is
 * taken; the answers to queries about them; and their effects on dense blocks.
 */
#include <string.h>

#include "protocols/sparse/tests/sparse_rig.h"
#include "tests/unit/suites.h"

#define PAYLOAD 512

static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };

#define N_HANDLERS (int)RTE_DIM(handlers)

static struct sparse_rig rig;

static void
start(int which, uint16_t n_hosts, uint16_t n_leaves)
{
	sparse_rig_start(&rig, handlers[which], n_hosts, n_leaves, PAYLOAD);
	rig.dtype = FANIN_WIRE_I32;
}

/* Makes a list of one value, 7 * index + h. */
static struct sparse_frame *
shard_of(uint16_t h, uint32_t block, uint8_t number, uint8_t total, uint32_t index)
{
	const struct fanin_shard shard = { .span = rig.span, .number = number, .total = total };
	const uint64_t value = 7 * index + h;

	return sparse_rig_shard(&rig, h, block, &shard, &value, &index, 1);
}

/* Hands a frame over. Returns the verdict, and the reason if it is a drop. */
static enum fanin_verdict
hand_over(struct sparse_frame *frame, enum fanin_reason *reason)
{
	return sparse_rig_hand_over(&rig, frame, reason);
}

static void
takes(struct sparse_frame *frame)
{
	enum fanin_reason reason;
	const enum fanin_verdict verdict = hand_over(frame, &reason);

	ck_assert_msg(verdict == FANIN_VERDICT_HELD || verdict == FANIN_VERDICT_FREE, "%d %s",
		      verdict, fanin_reason_name(reason));
}

static void
drops(struct sparse_frame *frame, enum fanin_reason expected)
{
	enum fanin_reason reason;

	ck_assert_int_eq(hand_over(frame, &reason), FANIN_VERDICT_DROP);
	ck_assert_str_eq(fanin_reason_name(reason), fanin_reason_name(expected));
}

/*
 * Takes a packet in flight to host h, or to the parent (0), from the queue. Returns NULL if there
 * is none. The caller frees it.
 */
static struct sparse_frame *
taken_from_queue(int to)
{
	for (size_t i = 0; i < rig.n_queue; i++) {
		struct sparse_frame *frame = rig.queue[i];

		if (frame->to != to)
			continue;
		memmove(rig.queue + i, rig.queue + i + 1, (--rig.n_queue - i) * sizeof(*rig.queue));
		return frame;
	}
	return NULL;
}

static void
forget_queue(void)
{
	while (rig.n_queue != 0)
		free(rig.queue[--rig.n_queue]);
}

/* Returns how many packets of a type are in flight. */
static unsigned int
n_queued(enum fanin_type type)
{
	unsigned int n = 0;

	for (size_t i = 0; i < rig.n_queue; i++)
		n += sparse_hdr(rig.queue[i])->type == type;
	return n;
}

static struct sparse_frame *
query_of(uint16_t h, uint32_t block, bool overdue, bool with_body, uint64_t has)
{
	struct sparse_frame *query = sparse_rig_frame(&rig, h, block, FANIN_TYPE_QUERY);

	sparse_hdr(query)->flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	sparse_hdr(query)->count = SPARSE_RIG_WINDOW;
	sparse_hdr(query)->number = ++rig.next_number;
	if (with_body) {
		memcpy(query->data + query->len, &has, sizeof(has));
		query->len += sizeof(has);
	}
	return query;
}

/* Returns the state in the answer to the last query of host h, and the bitmap behind it. */
static enum fanin_block_state
answer_to(uint16_t h, uint64_t *shards)
{
	struct sparse_frame *answer = taken_from_queue(-1 - h);
	const uint32_t len = fanin_answer_len(rig.n_hosts);
	enum fanin_block_state state;

	ck_assert_ptr_nonnull(answer);
	ck_assert_uint_eq(sparse_hdr(answer)->type, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(answer->len, FANIN_PAYLOAD_OFFSET + len + sizeof(*shards));
	memcpy(shards, answer->data + FANIN_PAYLOAD_OFFSET + len, sizeof(*shards));
	state = (enum fanin_block_state)sparse_hdr(answer)->count;
	free(answer);
	return state;
}

START_TEST(a_shard_that_is_not_as_it_should_be_has_no_effect)
{
	const uint64_t values[2] = { 1, 2 };
	const uint32_t inside[2] = { 3, 70 };
	const uint32_t outside[2] = { 3, 1000 };
	const uint32_t span_max = fanin_shard_span_max(4, PAYLOAD);
	struct sparse_frame *frame;

	start(_i, 2, 0);
	/* For the first shard of a block, and for one of an open block. */
	for (unsigned int open = 0; open < 2; open++) {
		struct fanin_shard shard = { .span = rig.span, .number = 1 };

		frame = sparse_rig_shard(&rig, 1, 0, &shard, values, outside, 2);
		drops(frame, FANIN_REASON_ELEMENTS);

		shard.form = FANIN_SHARD_BITMAP;
		frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
		frame->data[frame->len - 12] ^= 0x10; /* one bit more than there are values */
		drops(frame, FANIN_REASON_ELEMENTS);
		frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
		frame->data[frame->len - 4] = 1; /* first is no multiple of 64 */
		drops(frame, FANIN_REASON_ELEMENTS);

		/* With a shape of its own: no block of this job can have it, or match it. */
		if (open == 0) {
			shard = (struct fanin_shard){ .span = span_max + 1, .number = 1 };
			frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
			drops(frame, FANIN_REASON_ELEMENTS);
			shard.span = rig.span;
			frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
			sparse_hdr(frame)->op = FANIN_WIRE_AVG;
			drops(frame, FANIN_REASON_OPERATION);
			rig.nodes[0].job.in_order = true;
			drops(shard_of(1, 0, 0, 1, 5), FANIN_REASON_OPERATION);
			rig.nodes[0].job.in_order = false;
		} else {
			frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
			sparse_hdr(frame)->op = FANIN_WIRE_MAX;
			drops(frame, FANIN_REASON_MISMATCH);
			shard = (struct fanin_shard){ .span = rig.span - 1, .number = 1 };
			frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
			drops(frame, FANIN_REASON_MISMATCH);
		}

		rig.nodes[0].job.payload_bytes = 8;
		shard = (struct fanin_shard){ .span = rig.span, .number = 1 };
		frame = sparse_rig_shard(&rig, 1, 0, &shard, values, inside, 2);
		drops(frame, FANIN_REASON_PAYLOAD);
		rig.nodes[0].job.payload_bytes = PAYLOAD;

		if (open == 0)
			takes(shard_of(0, 0, 0, 1, 5));
	}
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_SHARDS_IN], 1);
	takes(shard_of(1, 0, 0, 1, 5));
	sparse_rig_bring(&rig, 0, 0, 5, 35);
	sparse_rig_bring(&rig, 1, 0, 5, 36);
	sparse_rig_deliver(&rig);
	sparse_rig_check(&rig, 0);
	sparse_rig_stop(&rig);
}
END_TEST

/* A list need not be sorted. */
START_TEST(indices_of_a_list_may_have_any_order)
{
	const struct fanin_shard shard = { .span = 1000, .total = 1 };
	const uint64_t values[4] = { 1, 2, 3, 4 };
	const uint32_t indices[4] = { 999, 0, 500, 1 };

	start(_i, 2, 0);
	rig.span = shard.span;
	takes(sparse_rig_shard(&rig, 0, 0, &shard, values, indices, 4));
	takes(shard_of(1, 0, 0, 1, 500));
	for (int i = 0; i < 4; i++)
		sparse_rig_bring(&rig, 0, 0, indices[i], values[i]);
	sparse_rig_bring(&rig, 1, 0, 500, 7 * 500 + 1);
	sparse_rig_deliver(&rig);
	sparse_rig_check(&rig, 0);
	sparse_rig_stop(&rig);
}
END_TEST

/* No error of one host enters the others' result, or keeps the result from coming. */
START_TEST(faults_of_one_host_change_no_result)
{
	const uint64_t value = 1000;
	const uint32_t foreign = 2 * 1000 + 5; /* of another block */
	struct fanin_shard shard;

	start(_i, 3, 0);
	rig.span = 1000;
	takes(shard_of(0, 0, 0, 1, 5));
	shard = (struct fanin_shard){ .span = 1000, .total = 1 };
	drops(sparse_rig_shard(&rig, 1, 0, &shard, &value, &foreign, 1), FANIN_REASON_ELEMENTS);
	shard = (struct fanin_shard){ .span = 3000, .total = 1 };
	drops(sparse_rig_shard(&rig, 1, 0, &shard, &value, &foreign, 1), FANIN_REASON_MISMATCH);
	takes(shard_of(1, 0, 0, 0, 6));
	takes(shard_of(1, 0, 1, 2, 7));
	drops(shard_of(1, 0, 2, 3, 8), FANIN_REASON_BLOCK_WINDOW); /* more than it has announced */
	drops(shard_of(1, 0, 63, 0, 8), FANIN_REASON_BLOCK_WINDOW);
	takes(shard_of(1, 0, 0, 0, 9)); /* another one with a number that has come */
	ck_assert_uint_eq(rig.n_queue, 0);
	takes(shard_of(2, 0, 0, 1, 5));
	sparse_rig_bring(&rig, 0, 0, 5, 35);
	sparse_rig_bring(&rig, 1, 0, 6, 43);
	sparse_rig_bring(&rig, 1, 0, 7, 50);
	sparse_rig_bring(&rig, 2, 0, 5, 37);
	sparse_rig_deliver(&rig);
	sparse_rig_check(&rig, 0);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(sums_of_halves_in_f32_are_refused)
{
	const struct fanin_shard shard = { .span = 100, .total = 1 };
	const uint64_t value = 1;
	const uint32_t index = 1;
	struct sparse_frame *frame;

	start(_i, 2, 0);
	rig.nodes[0].job.wide = true;
	rig.dtype = FANIN_WIRE_BF16;
	frame = sparse_rig_shard(&rig, 0, 0, &shard, &value, &index, 1);
	drops(frame, FANIN_REASON_OPERATION);
	/* Other slots are unaffected. */
	rig.op = FANIN_WIRE_MIN;
	frame = sparse_rig_shard(&rig, 0, 0, &shard, &value, &index, 1);
	takes(frame);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(numbers_beyond_the_last_one_are_out_of_the_window)
{
	start(_i, 2, 0);
	takes(shard_of(0, 0, 2, 3, 1)); /* the last of three */
	drops(shard_of(0, 0, 3, 0, 2), FANIN_REASON_BLOCK_WINDOW);
	drops(shard_of(0, 0, 1, 2, 2), FANIN_REASON_BLOCK_WINDOW); /* another last one */
	takes(shard_of(1, 0, 5, 0, 1));
	drops(shard_of(1, 0, 3, 4, 2), FANIN_REASON_BLOCK_WINDOW); /* the last one, with a smaller
								      number than others */
	takes(shard_of(0, 0, 0, 0, 2));
	takes(shard_of(0, 0, 1, 0, 3));
	ck_assert_uint_eq(rig.nodes[0].stats.contributions, 1);
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_SHARDS_IN], 4);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_block_out_of_turn_is_refused)
{
	start(_i, 2, 0);
	drops(shard_of(0, SPARSE_RIG_SLOTS, 0, 1, 1), FANIN_REASON_BLOCK_WINDOW);
	takes(shard_of(0, 0, 0, 1, 1));
	drops(shard_of(0, SPARSE_RIG_SLOTS, 0, 1, 1), FANIN_REASON_BLOCK_WINDOW);
	takes(shard_of(1, 0, 0, 1, 1));
	takes(shard_of(0, SPARSE_RIG_SLOTS, 0, 1, 1));
	drops(shard_of(0, 0, 0, 1, 1), FANIN_REASON_BLOCK_STALE);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_duplicate_is_no_shard)
{
	struct sparse_frame *again;
	uint64_t shards;

	start(_i, 2, 0);
	takes(shard_of(0, 0, 0, 0, 1));
	takes(shard_of(0, 0, 0, 0, 1));
	takes(shard_of(0, 0, 0, 0, 9)); /* other values: the first ones count */
	ck_assert_uint_eq(rig.nodes[0].stats.duplicates, 2);
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_SHARDS_IN], 1);
	ck_assert_uint_eq(rig.nodes[0].stats.contributions, 0);
	ck_assert_uint_eq(rig.n_queue, 0);
	/* A retransmission is told that it was unnecessary. */
	again = shard_of(0, 0, 0, 0, 1);
	sparse_hdr(again)->flags = FANIN_FLAG_RETRANSMIT;
	takes(again);
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(shards, 1);
	takes(shard_of(0, 0, 1, 2, 2));
	again = shard_of(0, 0, 1, 2, 2);
	sparse_hdr(again)->flags = FANIN_FLAG_RETRANSMIT;
	takes(again);
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(shards, 3);
	/* The same holds if the block is done: no result is sent unasked. */
	takes(shard_of(1, 0, 0, 1, 2));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	again = shard_of(0, 0, 0, 0, 1);
	sparse_hdr(again)->flags = FANIN_FLAG_RETRANSMIT;
	takes(again);
	ck_assert_uint_eq(rig.n_queue, 1);
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_DONE);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_query_tells_which_shards_are_in)
{
	uint64_t shards = 1;

	start(_i, 2, 0);
	takes(query_of(0, 0, false, false, 0));
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(shards, 0);
	takes(shard_of(0, 0, 3, 0, 1));
	takes(shard_of(0, 0, 1, 0, 2));
	takes(query_of(0, 0, false, false, 0));
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(shards, 0xa);
	takes(shard_of(0, 0, 0, 0, 3));
	takes(shard_of(0, 0, 2, 0, 4));
	takes(shard_of(0, 0, 4, 5, 5));
	takes(query_of(0, 0, false, false, 0));
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(shards, 0x1f);
	ck_assert_uint_eq(rig.nodes[0].stats.pendings, 1);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(of_a_result_only_what_lacks_is_sent_again)
{
	struct sparse_frame *first[3];
	uint64_t shards;

	start(_i, 2, 0);
	/* 250 values in lists of 85 make three shards. */
	rig.n_blocks = 1;
	rig.span = 3500;
	for (uint32_t i = 0; i < 250; i++)
		sparse_rig_bring(&rig, i % 2, 0, 14 * i, i);
	sparse_rig_post(&rig);
	while (n_queued(FANIN_TYPE_SPARSE) != 0)
		takes(taken_from_queue(0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 6);
	for (unsigned int i = 0; i < 3; i++)
		first[i] = taken_from_queue(-1);
	forget_queue();
	takes(query_of(1, 0, true, true, 5));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 1);
	for (size_t i = 0; i < rig.n_queue; i++) {
		if (sparse_hdr(rig.queue[i])->type != FANIN_TYPE_SPARSE_RESULT)
			continue;
		ck_assert_int_eq(rig.queue[i]->to, -2);
		ck_assert_uint_eq(rig.queue[i]->len, first[1]->len);
		ck_assert_mem_eq(rig.queue[i]->data, first[1]->data, first[1]->len);
	}
	forget_queue();
	/* If it is not overdue, there is only an answer. */
	takes(query_of(1, 0, false, true, 5));
	ck_assert_int_eq(answer_to(1, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(rig.n_queue, 0);
	/* Without a body it asks for all shards. */
	takes(query_of(0, 0, true, false, 0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 3);
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_REPEATED], 4);
	for (unsigned int i = 0; i < 3; i++)
		free(first[i]);
	sparse_rig_stop(&rig);
}
END_TEST

/*
 * Makes the two hosts of a leaf contribute three shards' worth of values; the other leaf
 * contributes nothing. The leaf's shards are in the queue.
 */
static void
send_leaf_up(void)
{
	rig.span = 3500;
	for (uint32_t i = 0; i < 250; i++)
		sparse_rig_bring(&rig, i % 2, 0, 14 * i, i);
	for (uint16_t h = 2; h < 4; h++)
		sparse_rig_bring(&rig, h, 0, 1, 1);
	rig.n_blocks = 1;
	sparse_rig_post(&rig);
	for (unsigned int left = n_queued(FANIN_TYPE_SPARSE); left != 0; left--) {
		struct sparse_frame *frame = taken_from_queue(1);

		if (frame != NULL)
			takes(frame);
	}
}

START_TEST(the_parent_asks_for_the_shards_that_it_lacks)
{
	struct sparse_frame *lost, *frame;
	unsigned int n_up = 0;

	start(_i, 4, 2);
	send_leaf_up();
	/* The second packet that went up is lost. */
	takes(taken_from_queue(0));
	lost = taken_from_queue(0);
	ck_assert_uint_eq(fanin_shard_decode(sparse_hdr(lost)->members).number, 1);
	takes(taken_from_queue(0));
	frame = taken_from_queue(0);
	if (frame != NULL) /* of a table, whose last spill is a shard, too */
		takes(frame);
	/*
	 * A host sends a query; its switch queries the parent, which tells the shards that it has;
	 * only the missing one comes again.
	 */
	takes(query_of(0, 0, true, true, 0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_ANSWER), 0);
	takes(taken_from_queue(0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_ANSWER), 1);
	takes(taken_from_queue(1));
	while ((frame = taken_from_queue(0)) != NULL) {
		ck_assert_uint_eq(frame->len, lost->len);
		ck_assert_mem_eq(frame->data, lost->data, lost->len);
		takes(frame);
		n_up++;
	}
	ck_assert_uint_eq(n_up, 1);
	ck_assert_uint_eq(rig.nodes[1].stats.upward_repeats, 1);
	free(lost);
	sparse_rig_run(&rig, 1);
	ck_assert_uint_eq(rig.asked, 0);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_switch_asks_its_parent_for_the_results_that_it_lacks)
{
	struct sparse_frame *lost = NULL;

	start(_i, 4, 2);
	send_leaf_up();
	/* Everything arrives, except for one shard of the result on its way to the first leaf. */
	while (rig.n_queue != 0) {
		struct sparse_frame *frame = rig.queue[0];
		enum fanin_reason reason;

		memmove(rig.queue, rig.queue + 1, --rig.n_queue * sizeof(*rig.queue));
		if (frame->to == 1 && sparse_hdr(frame)->type == FANIN_TYPE_SPARSE_RESULT &&
		    fanin_shard_decode(sparse_hdr(frame)->members).number == 1 && lost == NULL)
			lost = frame;
		else if (frame->to >= 0)
			sparse_rig_hand_over(&rig, frame, &reason);
		else
			free(frame);
	}
	ck_assert_ptr_nonnull(lost);
	takes(query_of(1, 0, true, true, 1));
	/* The leaf lacks only number 1: its own query says so, and it gets this one. */
	ck_assert_uint_eq(n_queued(FANIN_TYPE_QUERY), 1);
	takes(taken_from_queue(0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 1);
	ck_assert_uint_eq(sparse_hdr(rig.queue[0])->members, sparse_hdr(lost)->members);
	takes(taken_from_queue(1));
	/* Both hosts get it, and the switch's other shards if they send a query. */
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	takes(query_of(1, 0, true, true, 2));
	ck_assert_uint_ge(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	free(lost);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(results_may_come_before_any_contribution)
{
	const struct fanin_shard spill = { .span = 1000 };
	const uint64_t value = 5;
	const uint32_t index = 9;
	struct sparse_frame *frame;
	struct fanin_peek peek;

	start(_i, 4, 2);
	/* A spill of the root reaches a leaf that has nothing of the block yet. */
	frame = sparse_rig_shard(&rig, 0, 0, &spill, &value, &index, 1);
	sparse_hdr(frame)->type = FANIN_TYPE_SPARSE_RESULT;
	frame->to = 1;
	takes(frame);
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	ck_assert(rig.nodes[1].handler->peek(&rig.nodes[1].job, rig.nodes[1].ctx.epoch,
					     rig.nodes[1].slots[0], &peek));
	ck_assert_uint_eq(peek.missing, 3);
	ck_assert(!peek.sent);
	takes(shard_of(0, 0, 0, 1, 1));
	takes(shard_of(1, 0, 0, 1, 1));
	ck_assert(rig.nodes[1].handler->peek(&rig.nodes[1].job, rig.nodes[1].ctx.epoch,
					     rig.nodes[1].slots[0], &peek));
	ck_assert(peek.sent);
	forget_queue();
	frame = sparse_rig_shard(&rig, 0, 0,
				 &(struct fanin_shard){ .span = 1000, .number = 1, .total = 2 },
				 &value, &index, 1);
	sparse_hdr(frame)->type = FANIN_TYPE_SPARSE_RESULT;
	frame->to = 1;
	takes(frame);
	ck_assert(!rig.nodes[1].handler->peek(&rig.nodes[1].job, rig.nodes[1].ctx.epoch,
					      rig.nodes[1].slots[0], &peek));
	ck_assert_uint_eq(rig.nodes[1].stats.results, 1);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(without_packets_shards_are_left_out_and_found_by_asking)
{
	uint64_t shards;

	start(_i, 2, 0);
	/* The packets of contributions suffice for a result. */
	rig.no_stock = true;
	takes(shard_of(0, 0, 0, 1, 1));
	takes(shard_of(1, 0, 0, 1, 1));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_NO_PACKET], 0);
	forget_queue();
	takes(query_of(0, 0, true, true, 0));
	ck_assert_uint_eq(rig.nodes[0].stats.own[FANIN_SPARSE_NO_PACKET], 1);
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(rig.n_queue, 0);
	rig.no_stock = false;
	takes(query_of(0, 0, true, true, 0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 1);
	sparse_rig_stop(&rig);
}
END_TEST

/* Makes a dense contribution of host h: one i32, h + 1. */
static struct sparse_frame *
dense_of(uint16_t h, uint32_t block, unsigned int op)
{
	struct sparse_frame *frame = sparse_rig_frame(&rig, h, block, FANIN_TYPE_CONTRIBUTION);
	const uint32_t value = h + 1u;

	sparse_hdr(frame)->dtype = FANIN_WIRE_I32;
	sparse_hdr(frame)->op = (uint8_t)op;
	sparse_hdr(frame)->count = 1;
	memcpy(frame->data + frame->len, &value, sizeof(value));
	frame->len += sizeof(value);
	return frame;
}

static uint32_t
dense_result(uint16_t h)
{
	struct sparse_frame *frame = taken_from_queue(-1 - h);
	uint32_t value;

	ck_assert_ptr_nonnull(frame);
	ck_assert_uint_eq(sparse_hdr(frame)->type, FANIN_TYPE_RESULT);
	memcpy(&value, frame->data + FANIN_PAYLOAD_OFFSET, sizeof(value));
	free(frame);
	return value;
}

START_TEST(dense_blocks_take_turns_with_sparse_ones)
{
	uint64_t shards;

	start(_i, 2, 0);
	/* The operator differs from that of the sparse blocks before and after it in the slot. */
	takes(dense_of(0, 0, FANIN_WIRE_PROD));
	takes(dense_of(1, 0, FANIN_WIRE_PROD));
	ck_assert_uint_eq(dense_result(0), 2);
	forget_queue();
	rig.op = FANIN_WIRE_MAX;
	takes(shard_of(0, 4, 0, 1, 1));
	takes(shard_of(1, 4, 0, 1, 1));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	takes(dense_of(0, 8, FANIN_WIRE_MAX));
	takes(dense_of(1, 8, FANIN_WIRE_MAX));
	ck_assert_uint_eq(dense_result(1), 2);
	forget_queue();
	takes(shard_of(0, 12, 0, 1, 1));
	takes(shard_of(1, 12, 0, 1, 1));
	forget_queue();
	takes(dense_of(0, 16, FANIN_WIRE_SUM));
	takes(dense_of(1, 16, FANIN_WIRE_SUM));
	ck_assert_uint_eq(dense_result(0), 3);
	forget_queue();
	/* Queries find the kind of a block. */
	takes(query_of(0, 16, true, false, 0));
	ck_assert_uint_eq(n_queued(FANIN_TYPE_RESULT), 1);
	ck_assert_uint_eq(n_queued(FANIN_TYPE_ANSWER), 1);
	forget_queue();
	takes(query_of(0, 1, false, false, 0));
	ck_assert_int_eq(answer_to(0, &shards), FANIN_BLOCK_ABSENT);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_block_is_of_one_kind)
{
	start(_i, 2, 0);
	takes(dense_of(0, 0, FANIN_WIRE_SUM));
	drops(shard_of(1, 0, 0, 1, 1), FANIN_REASON_MISMATCH);
	takes(shard_of(0, 1, 0, 1, 1));
	drops(dense_of(1, 1, FANIN_WIRE_SUM), FANIN_REASON_MISMATCH);
	takes(dense_of(1, 0, FANIN_WIRE_SUM));
	takes(shard_of(1, 1, 0, 1, 1));
	drops(dense_of(1, 1, FANIN_WIRE_SUM), FANIN_REASON_MISMATCH);
	drops(shard_of(1, 0, 0, 1, 1), FANIN_REASON_MISMATCH);
	ck_assert_uint_eq(rig.nodes[0].stats.results, 2);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_new_run_finds_nothing_of_the_old_one)
{
	struct sparse_frame *frame;

	start(_i, 4, 2);
	send_leaf_up();
	forget_queue();
	takes(shard_of(0, 1, 0, 0, 1));
	frame = sparse_rig_shard(&rig, 0, 1, &(struct fanin_shard){ .span = rig.span },
				 &(uint64_t){ 1 }, &(uint32_t){ 1 }, 1);
	sparse_hdr(frame)->type = FANIN_TYPE_SPARSE_RESULT;
	takes(frame);
	forget_queue();
	for (uint16_t i = 0; i < rig.n_nodes; i++) {
		rig.nodes[i].ctx.epoch += 100;
		rig.nodes[i].ctx.parent_epoch += 100;
	}
	for (uint16_t h = 0; h < 4; h++)
		rig.hosts[h].n_sent = 0;
	sparse_rig_fill(&rig, 1, 10);
	sparse_rig_run(&rig, 2);
	ck_assert_uint_eq(rig.asked, 0);
	sparse_rig_stop(&rig);
}
END_TEST

/* One worker has entered the slot: packets of other workers are retried, whatever they are. */
START_TEST(a_slot_that_is_taken_is_tried_again)
{
	struct fanin_dense_state *state;
	struct sparse_frame *frames[3];
	enum fanin_reason reason;

	start(_i, 4, 2);
	rig.nodes[1].job.shared = true;
	takes(shard_of(0, 0, 0, 0, 1));
	state = &sparse_rig_slot(&rig.nodes[1], 0)->single.dense.state;
	ck_assert_int_eq(fanin_dense_state_enter(state, &rig.nodes[1].ctx, 0, true),
			 FANIN_DENSE_CURRENT);
	frames[0] = shard_of(1, 0, 0, 1, 1);
	frames[1] = query_of(0, 0, true, true, 0);
	frames[2] = shard_of(0, 0, 0, 1, 1);
	sparse_hdr(frames[2])->type = FANIN_TYPE_SPARSE_RESULT;
	for (unsigned int i = 0; i < 3; i++) {
		ck_assert_int_eq(hand_over(frames[i], &reason), FANIN_VERDICT_RETRY);
		ck_assert_uint_eq(rig.n_queue, i + 1);
	}
	fanin_dense_state_leave(state, true);
	for (unsigned int i = 0; i < 3; i++)
		takes(taken_from_queue(1));
	ck_assert_uint_eq(rig.nodes[1].stats.contributions, 1);
	ck_assert_uint_eq(state->word & FANIN_STATE_USERS, 0);
	sparse_rig_stop(&rig);
}
END_TEST

Suite *
suite_sparse_shards(void)
{
	Suite *suite = suite_create("sparse_shards");
	TCase *tcase = tcase_create("shards");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_shard_that_is_not_as_it_should_be_has_no_effect, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, indices_of_a_list_may_have_any_order, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, faults_of_one_host_change_no_result, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, sums_of_halves_in_f32_are_refused, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, numbers_beyond_the_last_one_are_out_of_the_window, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, a_block_out_of_turn_is_refused, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_duplicate_is_no_shard, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_query_tells_which_shards_are_in, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, of_a_result_only_what_lacks_is_sent_again, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, the_parent_asks_for_the_shards_that_it_lacks, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_switch_asks_its_parent_for_the_results_that_it_lacks, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, results_may_come_before_any_contribution, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, without_packets_shards_are_left_out_and_found_by_asking, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, dense_blocks_take_turns_with_sparse_ones, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_block_is_of_one_kind, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_new_run_finds_nothing_of_the_old_one, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_slot_that_is_taken_is_tried_again, 0, N_HANDLERS);
	suite_add_tcase(suite, tcase);
	return suite;
}
