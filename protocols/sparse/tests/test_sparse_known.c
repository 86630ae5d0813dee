/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shards of results that are known from another tree: the switch sends only these, up or down, once
 * and in answer to queries; and blocks that must not be spilled.
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
	rig.n_blocks = 1;
}

static void
forget_queue(void)
{
	while (rig.n_queue != 0)
		free(rig.queue[--rig.n_queue]);
}

/* Makes a list of one value: 7 * index + h for a host, 1000 + index for a result. */
static struct sparse_frame *
shard_of(uint16_t h, enum fanin_type type, uint8_t number, uint8_t total, uint32_t index)
{
	const struct fanin_shard shard = {
		.span = rig.span, .number = number, .total = total, .whole = true
	};
	const uint64_t value = type == FANIN_TYPE_SPARSE ? 7 * index + h : 1000 + index;
	struct sparse_frame *frame = sparse_rig_shard(&rig, h, 0, &shard, &value, &index, 1);

	sparse_hdr(frame)->type = (uint8_t)type;
	return frame;
}

static void
takes(struct sparse_frame *frame)
{
	enum fanin_reason reason;
	const enum fanin_verdict verdict = sparse_rig_hand_over(&rig, frame, &reason);

	ck_assert_msg(verdict == FANIN_VERDICT_HELD || verdict == FANIN_VERDICT_FREE, "%d %s",
		      verdict, fanin_reason_name(reason));
}

static void
drops(struct sparse_frame *frame, enum fanin_reason expected)
{
	enum fanin_reason reason;

	ck_assert_int_eq(sparse_rig_hand_over(&rig, frame, &reason), FANIN_VERDICT_DROP);
	ck_assert_str_eq(fanin_reason_name(reason), fanin_reason_name(expected));
}

static struct sparse_frame *
query_of(uint16_t h, uint64_t has)
{
	struct sparse_frame *query = sparse_rig_frame(&rig, h, 0, FANIN_TYPE_QUERY);

	sparse_hdr(query)->flags = FANIN_FLAG_RETRANSMIT;
	sparse_hdr(query)->count = SPARSE_RIG_WINDOW;
	sparse_hdr(query)->number = ++rig.next_number;
	memcpy(query->data + query->len, &has, sizeof(has));
	query->len += sizeof(has);
	return query;
}

/*
 * Returns the numbers of the shards of a type that are in flight to a node or host; checks that all
 * of them are whole, and have the value of a result at this index.
 */
static uint64_t
numbers_on_their_way(int to, enum fanin_type type)
{
	uint64_t numbers = 0;

	for (size_t i = 0; i < rig.n_queue; i++) {
		const struct sparse_frame *frame = rig.queue[i];
		const struct fanin_hdr *hdr = sparse_hdr(rig.queue[i]);
		const struct fanin_shard shard = fanin_shard_decode(hdr->members);
		uint32_t value;

		if (frame->to != to || hdr->type != type)
			continue;
		ck_assert(shard.whole);
		memcpy(&value, frame->data + FANIN_PAYLOAD_OFFSET, sizeof(value));
		ck_assert_uint_eq(value, 1000 + 5u * shard.number);
		ck_assert_uint_eq(hdr->contributions, rig.n_hosts);
		numbers |= UINT64_C(1) << shard.number;
	}
	return numbers;
}

/* Returns the state in the answer to host h, and its bitmap of shards. */
static enum fanin_block_state
answered(uint16_t h, uint64_t *shards)
{
	for (size_t i = 0; i < rig.n_queue; i++) {
		const struct sparse_frame *frame = rig.queue[i];

		if (frame->to != -1 - h || sparse_hdr(rig.queue[i])->type != FANIN_TYPE_ANSWER)
			continue;
		memcpy(shards, frame->data + FANIN_PAYLOAD_OFFSET + fanin_answer_len(rig.n_hosts),
		       sizeof(*shards));
		return (enum fanin_block_state)sparse_hdr(rig.queue[i])->count;
	}
	ck_abort_msg("no answer");
}

static uint64_t
known_of(const struct sparse_node *node)
{
	return node->stats.known;
}

START_TEST(a_result_that_is_known_takes_the_place_of_contributions)
{
	uint64_t shards;

	start(_i, 3, 0);
	takes(shard_of(0, FANIN_TYPE_SPARSE, 0, 1, 5));
	takes(shard_of(1, FANIN_TYPE_SPARSE, 0, 0, 5));
	ck_assert_uint_eq(rig.n_queue, 0);
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 1, 2, 5));
	for (int h = 0; h < 3; h++)
		ck_assert_uint_eq(numbers_on_their_way(-1 - h, FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	/*
	 * A child that knows the result is asked for the rest, and so is one whose contribution is
	 * not needed.
	 */
	takes(query_of(2, 2));
	ck_assert_int_eq(answered(2, &shards), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(shards, 2);
	takes(query_of(0, 2));
	ck_assert_int_eq(answered(0, &shards), FANIN_BLOCK_OPEN);
	takes(query_of(1, 2));
	ck_assert_int_eq(answered(1, &shards), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(shards, 1);
	forget_queue();
	/* Other shards don't count. */
	takes(shard_of(1, FANIN_TYPE_SPARSE, 1, 2, 6));
	ck_assert_uint_eq(rig.n_queue, 0);
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	for (int h = 0; h < 3; h++)
		ck_assert_uint_eq(numbers_on_their_way(-1 - h, FANIN_TYPE_SPARSE_RESULT), 1);
	ck_assert_uint_eq(known_of(&rig.nodes[0]), 1);
	forget_queue();
	/* The block is done: the result is repeated for children that lack it. */
	takes(query_of(1, 1));
	ck_assert_int_eq(answered(1, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(numbers_on_their_way(-2, FANIN_TYPE_SPARSE_RESULT), 2);
	takes(query_of(0, 0));
	ck_assert_uint_eq(numbers_on_their_way(-1, FANIN_TYPE_SPARSE_RESULT), 3);
	forget_queue();
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	takes(shard_of(0, FANIN_TYPE_SPARSE, 0, 1, 5));
	ck_assert_uint_eq(rig.n_queue, 0);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_result_that_two_know_is_sent_once)
{
	start(_i, 3, 0);
	takes(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 1, 2, 5));
	ck_assert_uint_eq(rig.n_queue, 6);
	ck_assert_uint_eq(known_of(&rig.nodes[0]), 1);
	takes(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 1, 2, 5));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	ck_assert_uint_eq(rig.n_queue, 6);
	forget_queue();
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(shards_of_a_known_result_that_contradict_each_other_have_no_effect)
{
	start(_i, 3, 0);
	takes(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 2, 3, 10));
	drops(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 3, 0, 15), FANIN_REASON_BLOCK_WINDOW);
	drops(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 3, 0, 15), FANIN_REASON_MISMATCH);
	drops(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 1, 0), FANIN_REASON_MISMATCH);
	ck_assert_uint_eq(rig.n_queue, 3);
	forget_queue();
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 1, 0, 5));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	ck_assert_uint_eq(numbers_on_their_way(-1, FANIN_TYPE_SPARSE_RESULT), 3);
	ck_assert_uint_eq(known_of(&rig.nodes[0]), 1);
	forget_queue();
	sparse_rig_stop(&rig);
}
END_TEST

/*
 * Sends full shards of indices that have one bucket in a table of 512 lanes. Returns how many
 * packets the switch has sent before all shards were in.
 */
static size_t
fill_bucket(bool whole)
{
	struct fanin_shard shard = { .span = rig.span, .whole = whole };
	const uint16_t most = (uint16_t)fanin_shard_list_max(shard.span, 4, PAYLOAD);
	uint64_t values[PAYLOAD] = { 0 };
	uint32_t indices[PAYLOAD];
	uint16_t n = 0;

	for (uint32_t i = 0; i < rig.span; i++) {
		if (i * UINT32_C(2654435769) >> 27 != 0)
			continue;
		indices[n++] = i;
		if (n < most)
			continue;
		takes(sparse_rig_shard(&rig, 0, 0, &shard, values, indices, n));
		shard.number++;
		n = 0;
	}
	/* More values than the bucket has room for. */
	takes(sparse_rig_shard(&rig, 0, 0, &shard, values, indices, n));
	return rig.n_queue;
}

START_TEST(a_block_that_is_whole_is_not_spilled)
{
	for (int whole = 0; whole < 2; whole++) {
		size_t n_sent;

		start(1, 2, 0);
		rig.span = fanin_shard_span_max(4, PAYLOAD);
		n_sent = fill_bucket(whole != 0);
		if (whole != 0)
			ck_assert_uint_eq(n_sent, 0);
		else
			ck_assert_uint_gt(n_sent, 0);
		ck_assert_uint_eq(sparse_rig_counter(&rig, FANIN_SPARSE_SPILLS) == 0, whole != 0);
		/* Spilled values are part of another result. */
		if (whole != 0)
			takes(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 0, 1, 0));
		else
			drops(shard_of(1, FANIN_TYPE_SPARSE_KNOWN, 0, 1, 0), FANIN_REASON_MISMATCH);
		forget_queue();
		sparse_rig_stop(&rig);
	}
}
END_TEST

/* Delivers the packets in flight to a switch. */
static void
deliver_to(int to)
{
	for (size_t i = 0; i < rig.n_queue;) {
		struct sparse_frame *frame = rig.queue[i];
		enum fanin_reason reason;

		if (frame->to != to) {
			i++;
			continue;
		}
		memmove(rig.queue + i, rig.queue + i + 1, (--rig.n_queue - i) * sizeof(*rig.queue));
		sparse_rig_hand_over(&rig, frame, &reason);
	}
}

static void
lose_what_goes_to(int to)
{
	for (size_t i = 0; i < rig.n_queue;) {
		if (rig.queue[i]->to != to) {
			i++;
			continue;
		}
		free(rig.queue[i]);
		memmove(rig.queue + i, rig.queue + i + 1, (--rig.n_queue - i) * sizeof(*rig.queue));
	}
}

/* Hosts 0 and 1 are behind the first leaf, node 1; hosts 2 and 3 behind the second. */
START_TEST(a_leaf_tells_its_parent_until_that_has_all)
{
	uint64_t shards;

	start(_i, 4, 2);
	takes(shard_of(0, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	takes(shard_of(0, FANIN_TYPE_SPARSE_KNOWN, 1, 2, 5));
	ck_assert_uint_eq(numbers_on_their_way(0, FANIN_TYPE_SPARSE_KNOWN), 3);
	ck_assert_uint_eq(known_of(&rig.nodes[1]), 1);
	/* One of them is lost. */
	free(rig.queue[0]);
	rig.queue[0] = rig.queue[--rig.n_queue];
	deliver_to(0);
	ck_assert_uint_eq(numbers_on_their_way(1, FANIN_TYPE_SPARSE_RESULT), 2);
	ck_assert_uint_eq(numbers_on_their_way(2, FANIN_TYPE_SPARSE_RESULT), 2);
	lose_what_goes_to(1);
	deliver_to(2);
	ck_assert_uint_eq(numbers_on_their_way(-3, FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	/*
	 * A child sends a query; the leaf queries its parent, and sends the shards that the parent
	 * lacks.
	 */
	takes(query_of(0, 0));
	deliver_to(0);
	deliver_to(1);
	ck_assert_uint_eq(numbers_on_their_way(0, FANIN_TYPE_SPARSE_KNOWN), 1);
	deliver_to(0);
	ck_assert_uint_eq(known_of(&rig.nodes[0]), 1);
	deliver_to(1);
	ck_assert_uint_eq(numbers_on_their_way(-1, FANIN_TYPE_SPARSE_RESULT), 1);
	/* The other leaf is done, although its children have contributed nothing. */
	deliver_to(2);
	ck_assert_uint_eq(known_of(&rig.nodes[2]), 1);
	forget_queue();
	takes(shard_of(2, FANIN_TYPE_SPARSE, 0, 1, 9));
	ck_assert_uint_eq(rig.n_queue, 0);
	takes(query_of(2, 0));
	ck_assert_int_eq(answered(2, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(numbers_on_their_way(-3, FANIN_TYPE_SPARSE_RESULT), 3);
	forget_queue();
	/* The root has the shards that the first leaf has missed. */
	takes(query_of(1, 1));
	deliver_to(0);
	deliver_to(1);
	ck_assert_uint_eq(numbers_on_their_way(-1, FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	takes(query_of(1, 1));
	ck_assert_int_eq(answered(1, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(numbers_on_their_way(-2, FANIN_TYPE_SPARSE_RESULT), 2);
	forget_queue();
	sparse_rig_stop(&rig);
}
END_TEST

/*
 * A leaf's own children know the result, too, and the parent's shards come while the leaf is still
 * sending it up.
 */
START_TEST(a_leaf_takes_a_result_in_the_middle_of_telling_it)
{
	uint64_t shards;

	start(_i, 4, 2);
	takes(shard_of(0, FANIN_TYPE_SPARSE_KNOWN, 1, 0, 5));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 1, 0, 5));
	takes(shard_of(2, FANIN_TYPE_SPARSE_KNOWN, 2, 3, 10));
	deliver_to(0);
	ck_assert_uint_eq(known_of(&rig.nodes[0]), 1);
	ck_assert_uint_eq(numbers_on_their_way(1, FANIN_TYPE_SPARSE_RESULT), 7);
	deliver_to(1);
	forget_queue();
	takes(query_of(1, 0));
	ck_assert_int_eq(answered(1, &shards), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(numbers_on_their_way(-2, FANIN_TYPE_SPARSE_RESULT), 7);
	forget_queue();
	takes(shard_of(0, FANIN_TYPE_SPARSE_KNOWN, 0, 0, 0));
	ck_assert_uint_eq(rig.n_queue, 0);
	sparse_rig_stop(&rig);
}
END_TEST

Suite *
suite_sparse_known(void)
{
	Suite *suite = suite_create("sparse_known");
	TCase *tcase = tcase_create("sparse_known");

	tcase_add_loop_test(tcase, a_result_that_is_known_takes_the_place_of_contributions, 0,
			    N_HANDLERS);
	tcase_add_loop_test(tcase, a_result_that_two_know_is_sent_once, 0, N_HANDLERS);
	tcase_add_loop_test(tcase,
			    shards_of_a_known_result_that_contradict_each_other_have_no_effect, 0,
			    N_HANDLERS);
	tcase_add_test(tcase, a_block_that_is_whole_is_not_spilled);
	tcase_add_loop_test(tcase, a_leaf_tells_its_parent_until_that_has_all, 0, N_HANDLERS);
	tcase_add_loop_test(tcase, a_leaf_takes_a_result_in_the_middle_of_telling_it, 0,
			    N_HANDLERS);
	suite_add_tcase(suite, tcase);
	return suite;
}
