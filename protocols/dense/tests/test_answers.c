/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries and their answers, by all dense handlers (_i): what they say of blocks in each state,
 * that they change no slot, and whom an answer that a parent gave is passed on to.
 */
#include <stdlib.h>
#include <string.h>

#include "protocols/dense/switch/dense.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/handler_rig.h"
#include "tests/unit/suites.h"

#define CHILDREN 3
#define WINDOW 4
#define SLOTS (2 * WINDOW)
#define COUNT 4
#define INDEX 3
#define NUMBER 99
/* The ranks of child c are 2 + 2c and 3 + 2c. */
#define OWN_RANK 2

static const char *const handlers[] = { "single", "multi", "tree" };
#define N_HANDLERS (int)(sizeof(handlers) / sizeof(handlers[0]))

static struct handler_rig rig;
static struct fanin_dense unused;
static uint8_t *slots[SLOTS];

static void
start(int which)
{
	const struct fanin_job_params job = {
		.id = 5,
		.n_children = CHILDREN,
		.window = WINDOW,
		.payload_bytes = COUNT * 4,
		.keys = { .up = 1, .down = 2 },
		.buffers = 2,
	};

	handler_rig_start(&rig, handlers[which], &job, INDEX);
	rig.ctx.parent_epoch = 7;
	rig.job.has_parent = true;
	rig.job.n_ranks = 10;
	rig.job.parent_rank = OWN_RANK;
	for (unsigned int child = 0; child < CHILDREN; child++)
		rig.job.child_ranks[child] = fanin_ranks_of_word(UINT64_C(3)
								 << (OWN_RANK + 2 * child));
	memset(&unused, 0, sizeof(unused));
	for (unsigned int i = 0; i < SLOTS; i++)
		slots[i] = (uint8_t *)&unused;
	slots[INDEX] = rig.slot;
	rig.job.slots = (struct fanin_slots){ .by_index = slots, .mask = SLOTS - 1 };
}

static void
contribute(uint16_t child)
{
	static const struct shape shape = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT };
	static const int32_t values[COUNT] = { 1, 2, 3, 4 };

	handler_rig_contribute(&rig, child, INDEX, 0, &shape, values);
}

static struct fanin_packet
make(enum fanin_type type, uint32_t payload_len, uint16_t child)
{
	struct rte_mbuf *mbuf = fake_get(&rig.pool, payload_len);
	struct fanin_headers *headers = headers_of(mbuf);

	fanin_wire_encode_header(&headers->fanin, type, rig.job.id, rig.ctx.epoch,
				 type == FANIN_TYPE_ANSWER ? rig.job.keys.down : rig.job.keys.up);
	headers->fanin.block = INDEX;
	headers->fanin.number = NUMBER;
	return (struct fanin_packet){
		.mbuf = mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = payload_len,
		.child = child,
	};
}

/* Asks for the block; the answer is the one emission, until the next flush. */
static const struct fanin_hdr *
ask(uint16_t child, uint16_t flags, struct answer_words *body)
{
	struct fanin_packet packet = make(FANIN_TYPE_QUERY, 0, child);
	enum fanin_reason reason;

	packet.headers->fanin.flags = flags;
	packet.headers->fanin.count = SLOTS; /* more than a window */
	ck_assert_int_eq(rig.handler->other(&rig.ctx, rig.slot, rig.index, &packet, &reason),
			 FANIN_VERDICT_HELD);
	handler_rig_emission(&rig, FANIN_EMIT_REPLY, UINT64_C(1) << child);
	memcpy(body, packet.headers + 1, sizeof(*body));
	ck_assert_uint_eq(packet.headers->fanin.number, NUMBER);
	return &packet.headers->fanin;
}

/*
 * The parent answers what the child had asked; it says that the answer is a rank's. Returns the
 * answer as it is now.
 */
static struct fanin_packet
parent_answers(uint16_t child, uint16_t rank, enum fanin_block_state state)
{
	struct fanin_packet packet = make(FANIN_TYPE_ANSWER, sizeof(struct answer_words), 0);
	enum fanin_reason reason;

	memset(packet.headers + 1, 0, sizeof(struct answer_words));
	packet.headers->fanin.rank = rank;
	packet.headers->fanin.count = (uint16_t)state;
	packet.headers->fanin.members = fanin_way_push(0, child);
	if (rig.handler->other(&rig.ctx, rig.slot, rig.index, &packet, &reason) ==
	    FANIN_VERDICT_FREE)
		fake_put(&rig.pool, packet.mbuf);
	return packet;
}

/*
 * A query of another block, with the job's real slots; as many blocks as there are slots are asked
 * about.
 */
static enum fanin_verdict
ask_block(uint16_t child, uint32_t block, uint16_t flags, struct fanin_packet *packet,
	  enum fanin_reason *reason)
{
	*packet = make(FANIN_TYPE_QUERY, 0, child);
	*reason = FANIN_REASON_NONE;
	packet->headers->fanin.block = block;
	packet->headers->fanin.flags = flags;
	packet->headers->fanin.count = SLOTS;
	return rig.handler->other(&rig.ctx, rig.slot, rig.index, packet, reason);
}

/* The state that an answer to an early query has, whose packet is given up then. */
static enum fanin_block_state
state_of(uint16_t child, uint32_t block)
{
	struct fanin_packet packet;
	enum fanin_reason reason;
	enum fanin_block_state state;

	ck_assert_int_eq(ask_block(child, block, 0, &packet, &reason), FANIN_VERDICT_HELD);
	handler_rig_emission(&rig, FANIN_EMIT_REPLY, UINT64_C(1) << child);
	state = packet.headers->fanin.count;
	handler_rig_flush(&rig);
	return state;
}

static void
contribute_to(uint16_t child, uint32_t block)
{
	static const struct shape shape = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT };
	static const int32_t values[COUNT] = { 1, 2, 3, 4 };

	handler_rig_contribute(&rig, child, block, 0, &shape, values);
	handler_rig_flush(&rig);
}

START_TEST(query_changes_no_slot)
{
	struct fanin_dense_state before;
	struct fanin_packet packet;
	enum fanin_reason reason;

	start(_i);
	rig.job.has_parent = false;
	/*
	 * Of a job in which nothing has come, of an open block, and of a finished one: neither it
	 * nor the next are touched.
	 */
	for (int stage = 0; stage < 3; stage++) {
		const uint64_t blocks = rig.stats.blocks;

		memcpy(&before, rig.slot, sizeof(before));
		for (uint32_t block = INDEX; block <= INDEX + 3 * SLOTS; block += SLOTS) {
			for (uint16_t child = 0; child < CHILDREN; child++) {
				ck_assert_int_eq(ask_block(child, block, FANIN_FLAG_RETRANSMIT,
							   &packet, &reason),
						 FANIN_VERDICT_HELD);
				handler_rig_flush(&rig);
			}
		}
		ck_assert_mem_eq(rig.slot, &before, sizeof(before));
		ck_assert_uint_eq(rig.stats.blocks, blocks);
		contribute_to(0, INDEX);
		if (stage == 1) {
			contribute_to(1, INDEX);
			contribute_to(2, INDEX);
		}
	}
	ck_assert_uint_eq(rig.stats.results, 1);
	ck_assert_uint_eq(rig.stats.queries, 3 * 4 * CHILDREN);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(query_of_a_new_run_leaves_the_slot_to_its_first_contribution)
{
	struct fanin_packet packet;
	enum fanin_reason reason;

	start(_i);
	rig.job.has_parent = false;
	contribute_to(0, INDEX);
	rig.ctx.epoch++;
	ck_assert_int_eq(state_of(0, INDEX), FANIN_BLOCK_ABSENT);
	/*
	 * The slot is still in the old run, whose late queries are answered; in the new one they
	 * are not.
	 */
	rig.ctx.epoch--;
	ck_assert_int_eq(state_of(0, INDEX), FANIN_BLOCK_OPEN);
	rig.ctx.epoch++;
	contribute_to(1, INDEX);
	ck_assert_int_eq(state_of(1, INDEX), FANIN_BLOCK_OPEN);
	rig.ctx.epoch--;
	ck_assert_int_eq(ask_block(1, INDEX, 0, &packet, &reason), FANIN_VERDICT_DROP);
	ck_assert_int_eq(reason, FANIN_REASON_EPOCH);
	fake_put(&rig.pool, packet.mbuf);
	rig.ctx.epoch++;
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(overdue_query_of_a_finished_block_brings_its_result)
{
	struct fanin_packet packet;
	enum fanin_reason reason;

	start(_i);
	rig.job.has_parent = false;
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute_to(child, INDEX);
	ck_assert_int_eq(state_of(1, INDEX), FANIN_BLOCK_DONE);
	ck_assert_uint_eq(rig.stats.repeats, 0);
	ck_assert_int_eq(ask_block(1, INDEX, FANIN_FLAG_RETRANSMIT, &packet, &reason),
			 FANIN_VERDICT_HELD);
	ck_assert_uint_eq(rig.ctx.n_emissions, 2);
	ck_assert_int_eq(rig.ctx.emissions[0].kind, FANIN_EMIT_CHILDREN);
	ck_assert_uint_eq(rig.ctx.emissions[0].children, 1 << 1);
	ck_assert_uint_eq(headers_of(rig.ctx.emissions[0].mbuf)->fanin.type, FANIN_TYPE_RESULT);
	ck_assert_int_eq(rig.ctx.emissions[1].kind, FANIN_EMIT_REPLY);
	ck_assert_uint_eq(packet.headers->fanin.count, FANIN_BLOCK_DONE);
	ck_assert_uint_eq(rig.stats.repeats, 1);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(overdue_query_of_a_block_whose_slot_went_on_is_refused)
{
	struct fanin_packet packet;
	enum fanin_reason reason;

	start(_i);
	rig.job.has_parent = false;
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute_to(child, INDEX);
	contribute_to(0, INDEX + SLOTS);
	ck_assert_int_eq(ask_block(1, INDEX, FANIN_FLAG_RETRANSMIT, &packet, &reason),
			 FANIN_VERDICT_DROP);
	ck_assert_int_eq(reason, FANIN_REASON_BLOCK_STALE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	fake_put(&rig.pool, packet.mbuf);
	/* Who is only told how far it is has not asked for anything that is gone. */
	ck_assert_int_eq(state_of(1, INDEX), FANIN_BLOCK_DONE);
	ck_assert_int_eq(state_of(1, INDEX + SLOTS), FANIN_BLOCK_ABSENT);
	ck_assert_int_eq(state_of(0, INDEX + SLOTS), FANIN_BLOCK_OPEN);
	handler_rig_stop(&rig);
}
END_TEST

/*
 * Slots of their own for the blocks beside the one that is asked for, in the state that is wanted.
 */
static struct fanin_dense others[SLOTS];

static void
set_slot(uint32_t block, enum fanin_dense_phase phase, uint64_t present, uint32_t epoch)
{
	struct fanin_dense *dense = &others[block & (SLOTS - 1)];

	dense->state.word = fanin_state_make(block, phase, 0);
	dense->state.present = present;
	dense->state.epoch = epoch;
	slots[block & (SLOTS - 1)] = (uint8_t *)dense;
}

/* By _i: the handler, and whether the blocks go over the end of the numbers. */
START_TEST(answer_tells_about_the_blocks_that_follow)
{
	const uint32_t first = _i / N_HANDLERS == 0 ? 16 * SLOTS + INDEX : INDEX - SLOTS;
	struct fanin_answer_body body;
	struct fanin_packet packet;
	enum fanin_reason reason;

	start(_i % N_HANDLERS);
	rig.job.window = SLOTS;
	memset(others, 0, sizeof(others));
	set_slot(first + 1, FANIN_PHASE_OPEN, 0x2, rig.ctx.epoch);
	set_slot(first + 2, FANIN_PHASE_OPEN, 0x5, rig.ctx.epoch);
	set_slot(first + 3, FANIN_PHASE_SENT, 0x7, rig.ctx.epoch);
	set_slot(first + 4, FANIN_PHASE_DONE, 0x7, rig.ctx.epoch);
	/* An earlier block and a later one, and one of another run. */
	set_slot(first + 5 - 2 * SLOTS, FANIN_PHASE_DONE, 0x7, rig.ctx.epoch);
	set_slot(first + 6 + 2 * SLOTS, FANIN_PHASE_OPEN, 0x1, rig.ctx.epoch);
	set_slot(first + 7, FANIN_PHASE_DONE, 0x7, rig.ctx.epoch + 1);
	ck_assert_int_eq(ask_block(1, first, 0, &packet, &reason), FANIN_VERDICT_HELD);
	memcpy(&body, packet.headers + 1, sizeof(body));
	ck_assert_uint_eq(body.n_blocks, SLOTS);
	ck_assert_int_eq(fanin_answer_state(&body, 0), FANIN_BLOCK_ABSENT);
	ck_assert_int_eq(fanin_answer_state(&body, 1), FANIN_BLOCK_OPEN);
	ck_assert_int_eq(fanin_answer_state(&body, 2), FANIN_BLOCK_ABSENT);
	ck_assert_int_eq(fanin_answer_state(&body, 3), FANIN_BLOCK_SENT);
	ck_assert_int_eq(fanin_answer_state(&body, 4), FANIN_BLOCK_DONE);
	ck_assert_int_eq(fanin_answer_state(&body, 5), FANIN_BLOCK_ABSENT);
	ck_assert_int_eq(fanin_answer_state(&body, 6), FANIN_BLOCK_DONE);
	ck_assert_int_eq(fanin_answer_state(&body, 7), FANIN_BLOCK_ABSENT);
	for (unsigned int i = SLOTS; i < FANIN_ANSWER_BLOCKS; i++)
		ck_assert_int_eq(fanin_answer_state(&body, i), FANIN_BLOCK_ABSENT);
	rig.job.window = WINDOW;
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(all_children_are_missing_of_a_block_without_contributions)
{
	struct answer_words body;

	start(_i);
	ck_assert_uint_eq(ask(1, FANIN_FLAG_RETRANSMIT, &body)->count, FANIN_BLOCK_ABSENT);
	/* Of ranks elsewhere nothing is known. */
	ck_assert_uint_eq(0x3ff & ~answer_missing(&body), 0x303);
	ck_assert_uint_eq(rig.ctx.missing, 0x5);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(first_state_is_that_of_the_block_asked_for)
{
	struct answer_words body;

	start(_i);
	contribute(1);
	/* As if the slot had changed between the two looks. */
	slots[INDEX] = (uint8_t *)&unused;
	ck_assert_uint_eq(ask(1, 0, &body)->count, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(fanin_answer_state(&body.body, 0), FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(fanin_answer_state(&body.body, 1), FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(body.body.n_blocks, WINDOW);
	ck_assert_uint_eq(0x3ff & ~answer_missing(&body), 0x333);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(answer_that_is_passed_on_names_the_child)
{
	struct fanin_packet packet;

	start(_i);
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute(child);
	handler_rig_flush(&rig);
	packet = parent_answers(1, OWN_RANK, FANIN_BLOCK_OPEN);
	handler_rig_emission(&rig, FANIN_EMIT_CHILDREN, 0x2);
	ck_assert_uint_eq(packet.headers->fanin.rank, 4);
	ck_assert_uint_eq(packet.headers->fanin.number, NUMBER);
	ck_assert_uint_eq(packet.headers->fanin.members, 0);
	handler_rig_stop(&rig);
}
END_TEST

START_TEST(answer_to_another_switch_is_not_taken)
{
	start(_i);
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute(child);
	handler_rig_flush(&rig);
	parent_answers(1, OWN_RANK + 6, FANIN_BLOCK_OPEN);
	parent_answers(1, OWN_RANK + 6, FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	handler_rig_stop(&rig);
}
END_TEST

/* An overdue query of a child. Returns whether it went on to the parent; else it was answered. */
static bool
is_passed_up(uint16_t child)
{
	struct fanin_packet packet = make(FANIN_TYPE_QUERY, 0, child);
	enum fanin_reason reason;
	bool passed;

	packet.headers->fanin.flags = FANIN_FLAG_RETRANSMIT;
	ck_assert_int_eq(rig.handler->other(&rig.ctx, rig.slot, rig.index, &packet, &reason),
			 FANIN_VERDICT_HELD);
	passed = packet.headers->fanin.type == FANIN_TYPE_QUERY;
	if (passed)
		ck_assert_uint_eq(packet.headers->fanin.members, fanin_way_push(0, child));
	else
		ck_assert_uint_eq(packet.headers->fanin.count, FANIN_BLOCK_SENT);
	handler_rig_flush(&rig);
	return passed;
}

START_TEST(a_loss_further_up_costs_one_repetition)
{
	start(_i);
	for (uint16_t child = 0; child < CHILDREN; child++)
		contribute(child);
	handler_rig_flush(&rig);
	/* One query goes on; one who asks again makes sure that it was not lost. */
	ck_assert(is_passed_up(1));
	ck_assert(!is_passed_up(0));
	ck_assert(is_passed_up(1));
	ck_assert(is_passed_up(0));
	ck_assert_uint_eq(rig.stats.upward_queries, 3);
	/* Three answers say that the contribution is not there. */
	parent_answers(1, OWN_RANK, FANIN_BLOCK_ABSENT);
	handler_rig_emission(&rig, FANIN_EMIT_PARENT, 0);
	handler_rig_flush(&rig);
	parent_answers(1, OWN_RANK, FANIN_BLOCK_ABSENT);
	parent_answers(0, OWN_RANK, FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	ck_assert_uint_eq(rig.stats.upward_repeats, 1);
	/* It is lost again. */
	ck_assert(is_passed_up(2));
	parent_answers(2, OWN_RANK, FANIN_BLOCK_ABSENT);
	ck_assert_uint_eq(rig.stats.upward_repeats, 2);
	handler_rig_stop(&rig);
}
END_TEST

Suite *
suite_answers(void)
{
	Suite *suite = suite_create("answers");
	TCase *one = tcase_create("one slot");

	tcase_add_loop_test(one, all_children_are_missing_of_a_block_without_contributions, 0,
			    N_HANDLERS);
	tcase_add_loop_test(one, first_state_is_that_of_the_block_asked_for, 0, N_HANDLERS);
	tcase_add_loop_test(one, answer_that_is_passed_on_names_the_child, 0, N_HANDLERS);
	tcase_add_loop_test(one, answer_to_another_switch_is_not_taken, 0, N_HANDLERS);
	tcase_add_loop_test(one, a_loss_further_up_costs_one_repetition, 0, N_HANDLERS);
	tcase_add_loop_test(one, query_changes_no_slot, 0, N_HANDLERS);
	tcase_add_loop_test(one, query_of_a_new_run_leaves_the_slot_to_its_first_contribution, 0,
			    N_HANDLERS);
	tcase_add_loop_test(one, overdue_query_of_a_finished_block_brings_its_result, 0,
			    N_HANDLERS);
	tcase_add_loop_test(one, overdue_query_of_a_block_whose_slot_went_on_is_refused, 0,
			    N_HANDLERS);
	tcase_add_loop_test(one, answer_tells_about_the_blocks_that_follow, 0, 2 * N_HANDLERS);
	suite_add_tcase(suite, one);
	return suite;
}
