/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handler "single": one slot of one job under exact control, with the test acting as the
 * pipeline. test_faults.c tests whole jobs under random faults.
 */
#include <string.h>

#include "tests/unit/answer_words.h"
#include "tests/unit/handler_rig.h"
#include "tests/unit/suites.h"

#define JOB 5
#define EPOCH 9
#define UP_KEY UINT64_C(0xfeedfacecafebeef)
#define DOWN_KEY UINT64_C(0xcafebeeffeedface)
#define WINDOW 4
#define SLOTS (2 * WINDOW)
#define COUNT 16
#define PAYLOAD (COUNT * 4)

static struct handler_rig rig;

/* The handler of the next rig; set by fixtures. */
static const char *rig_handler = "single";

static void
use_single(void)
{
	rig_handler = "single";
}

static void
use_multi(void)
{
	rig_handler = "multi";
}

static void
use_tree(void)
{
	rig_handler = "tree";
}

static void
rig_start(uint16_t n_children, uint32_t first_block)
{
	const struct fanin_job_params job = {
		.id = JOB,
		.n_children = n_children,
		.window = WINDOW,
		.payload_bytes = PAYLOAD,
		.keys = { .up = UP_KEY, .down = DOWN_KEY },
		.buffers = 2,
	};

	handler_rig_start(&rig, rig_handler, &job, first_block);
	rig.ctx.epoch = EPOCH;
}

static void
rig_flush(void)
{
	handler_rig_flush(&rig);
}

static void
rig_stop(void)
{
	handler_rig_stop(&rig);
}

static const struct shape plain = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT };

/* Returns a child's value in the elements of a block. */
static int32_t
value_of(uint16_t child, uint32_t block, unsigned int i)
{
	return (int32_t)((child + 1u) * 1000003u + block * 17u + i);
}

static struct answer
contribute_shape(uint16_t child, uint32_t block, uint16_t flags, const struct shape *shape)
{
	int32_t values[FAKE_PAYLOAD_MAX / 4];

	for (unsigned int i = 0; i < shape->count * fanin_dtype_size(shape->dtype) / 4; i++)
		values[i] = value_of(child, block, i);
	return handler_rig_contribute(&rig, child, block, flags, shape, values);
}

static struct answer
contribute(uint16_t child, uint32_t block, uint16_t flags)
{
	return contribute_shape(child, block, flags, &plain);
}

static void
expect_drop(struct answer answer, enum fanin_reason reason)
{
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_DROP);
	ck_assert_str_eq(fanin_reason_name(answer.reason), fanin_reason_name(reason));
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	ck_assert_uint_eq(rig.ctx.n_frees, 0);
}

static const struct fanin_emission *
only_emission(enum fanin_emission_kind kind, uint64_t children)
{
	return handler_rig_emission(&rig, kind, children);
}

static void
expect_sum(struct rte_mbuf *mbuf, uint32_t block)
{
	const struct fanin_hdr *hdr = &headers_of(mbuf)->fanin;
	const int32_t *elements = elements_of(mbuf);

	ck_assert_uint_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(hdr->block, block);
	for (unsigned int i = 0; i < COUNT; i++) {
		uint32_t sum = 0;

		for (uint16_t child = 0; child < rig.job.n_children; child++)
			sum += (uint32_t)value_of(child, block, i);
		ck_assert_int_eq(elements[i], (int32_t)sum);
	}
}

/* Makes all children contribute; the result is sent. */
static void
finish(uint32_t block)
{
	for (uint16_t child = 0; child < rig.job.n_children; child++)
		contribute(child, block, 0);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, rig.job.children)->mbuf, block);
	rig_flush();
}

START_TEST(the_registry_knows_the_handler)
{
	const struct fanin_handler *handler = fanin_handler_find("single");
	unsigned int seen = 0;

	ck_assert_ptr_nonnull(handler);
	ck_assert_uint_le(strlen(handler->name), 15);
	ck_assert_ptr_null(fanin_handler_find("singl"));
	ck_assert_ptr_null(fanin_handler_find(""));
	for (const struct fanin_handler *each = fanin_handler_first(); each != NULL;
	     each = each->next)
		seen += each == handler;
	ck_assert_uint_eq(seen, 1);
}
END_TEST

START_TEST(a_slot_is_one_cache_line_and_holds_one_mbuf)
{
	rig_start(2, 0);
	ck_assert_uint_eq(fanin_slot_size(rig.handler, &rig.job), RTE_CACHE_LINE_SIZE);
	ck_assert_uint_eq(fanin_slot_mbufs(rig.handler, rig.job.n_children, 1, rig.job.buffers), 1);
	rig_stop();
}
END_TEST

START_TEST(the_result_leaves_with_the_last_contribution)
{
	static const uint16_t sizes[] = { 1, 2, 3, 8, 11, 16, 63, 64 };
	uint16_t n = sizes[_i];

	rig_start(n, 3);
	for (uint16_t child = 0; child < n; child++) {
		struct answer answer = contribute((uint16_t)(n - 1 - child), 3, 0);

		ck_assert_int_eq(answer.verdict,
				 child == 0 ? FANIN_VERDICT_HELD : FANIN_VERDICT_FREE);
		ck_assert_uint_eq(rig.ctx.n_emissions, child == n - 1);
	}
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, rig.job.children)->mbuf, 3);
	ck_assert_uint_eq(rig.stats.contributions, n);
	ck_assert_uint_eq(rig.stats.results, 1);
	rig_stop();
}
END_TEST

START_TEST(the_first_contribution_becomes_the_result_in_place)
{
	struct rte_mbuf *first;

	rig_start(3, 0);
	first = contribute(2, 0, 0).mbuf;
	contribute(0, 0, 0);
	contribute(1, 0, 0);
	ck_assert_ptr_eq(only_emission(FANIN_EMIT_CHILDREN, 7)->mbuf, first);
	rig_stop();
}
END_TEST

START_TEST(the_result_header_tells_what_it_holds)
{
	const struct fanin_emission *emission;
	const struct fanin_hdr *hdr;

	rig_start(3, 6);
	contribute(2, 6, FANIN_FLAG_RETRANSMIT);
	contribute(1, 6, 0);
	contribute(0, 6, 0);
	emission = only_emission(FANIN_EMIT_CHILDREN, 7);
	hdr = &headers_of(emission->mbuf)->fanin;
	ck_assert_uint_eq(emission->payload_len, PAYLOAD);
	ck_assert_uint_eq(hdr->version, FANIN_WIRE_VERSION);
	ck_assert_uint_eq(hdr->type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(hdr->flags, 0);
	ck_assert_uint_eq(hdr->job, JOB);
	ck_assert_uint_eq(hdr->epoch, EPOCH);
	ck_assert_uint_eq(hdr->key, DOWN_KEY);
	ck_assert_uint_eq(hdr->rank, 0);
	ck_assert_uint_eq(hdr->contributions, 3);
	ck_assert_uint_eq(hdr->block, 6);
	ck_assert_uint_eq(hdr->dtype, FANIN_WIRE_I32);
	ck_assert_uint_eq(hdr->op, FANIN_WIRE_SUM);
	ck_assert_uint_eq(hdr->count, COUNT);
	ck_assert_uint_eq(hdr->progress, 0);
	ck_assert_uint_eq(hdr->members, 0);
	rig_stop();
}
END_TEST

START_TEST(a_result_has_a_reference_for_each_child_and_one_for_the_slot)
{
	struct rte_mbuf *result;

	rig_start(8, 0);
	for (uint16_t child = 0; child < 8; child++)
		contribute(child, 0, 0);
	result = only_emission(FANIN_EMIT_CHILDREN, 0xff)->mbuf;
	ck_assert_uint_eq(rte_mbuf_refcnt_read(result), 9);
	rig_flush();
	ck_assert_uint_eq(rte_mbuf_refcnt_read(result), 1);
	rig_stop();
}
END_TEST

START_TEST(a_barrier_block_without_elements_completes)
{
	static const struct shape barrier = { FANIN_WIRE_F32, FANIN_WIRE_SUM, 0 };

	rig_start(2, 0);
	contribute_shape(0, 0, 0, &barrier);
	contribute_shape(1, 0, 0, &barrier);
	ck_assert_uint_eq(only_emission(FANIN_EMIT_CHILDREN, 3)->payload_len, 0);
	rig_stop();
}
END_TEST

START_TEST(a_duplicate_contribution_is_counted_once)
{
	rig_start(2, 0);
	contribute(0, 0, 0);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(contribute(0, 0, 0).verdict, FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	contribute(1, 0, 0);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 3)->mbuf, 0);
	ck_assert_uint_eq(rig.stats.contributions, 2);
	ck_assert_uint_eq(rig.stats.duplicates, 5);
	ck_assert_uint_eq(rig.stats.pendings, 0);
	rig_stop();
}
END_TEST

START_TEST(a_retransmission_learns_who_is_there)
{
	struct answer_words body;
	const struct fanin_emission *emission;
	const struct fanin_hdr *hdr;
	struct answer answer;

	rig_start(4, 0);
	contribute(1, 0, 0);
	contribute(3, 0, 0);
	answer = contribute(3, 0, FANIN_FLAG_RETRANSMIT);
	ck_assert_int_eq(answer.verdict, FANIN_VERDICT_HELD);
	emission = only_emission(FANIN_EMIT_REPLY, 1 << 3);
	ck_assert_ptr_eq(emission->mbuf, answer.mbuf);
	ck_assert_uint_eq(emission->payload_len, sizeof(body));
	ck_assert_uint_eq(rte_mbuf_refcnt_read(emission->mbuf), 1);
	hdr = &headers_of(emission->mbuf)->fanin;
	ck_assert_uint_eq(hdr->type, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(hdr->flags, 0);
	ck_assert_uint_eq(hdr->job, JOB);
	ck_assert_uint_eq(hdr->epoch, EPOCH);
	ck_assert_uint_eq(hdr->key, DOWN_KEY);
	ck_assert_uint_eq(hdr->rank, 3);
	ck_assert_uint_eq(hdr->block, 0);
	ck_assert_uint_eq(hdr->members, 0);
	ck_assert_uint_eq(hdr->number, 0);
	ck_assert_uint_eq(hdr->dtype, FANIN_WIRE_DTYPE_NONE);
	ck_assert_uint_eq(hdr->op, FANIN_WIRE_OP_NONE);
	ck_assert_uint_eq(hdr->count, FANIN_BLOCK_OPEN);
	memcpy(&body, headers_of(emission->mbuf) + 1, sizeof(body));
	/* Ranks that the job doesn't have are not missing. */
	ck_assert_uint_eq(answer_missing(&body), 1 << 0 | 1 << 2);
	ck_assert_uint_eq(body.body.n_blocks, 0);
	ck_assert_uint_eq(answer_ended(&body) | answer_silent(&body), 0);
	ck_assert_uint_eq(rig.stats.pendings, 1);
	ck_assert_uint_eq(rig.stats.duplicates, 1);
	rig_stop();
}
END_TEST

START_TEST(a_retransmission_that_is_the_first_to_arrive_is_merged)
{
	rig_start(2, 0);
	ck_assert_int_eq(contribute(1, 0, FANIN_FLAG_RETRANSMIT).verdict, FANIN_VERDICT_HELD);
	ck_assert_int_ne(contribute(0, 0, FANIN_FLAG_RETRANSMIT).verdict, FANIN_VERDICT_DROP);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 3)->mbuf, 0);
	ck_assert_uint_eq(rig.stats.duplicates, 0);
	rig_stop();
}
END_TEST

START_TEST(a_lost_result_is_repeated_to_the_one_who_asks)
{
	struct rte_mbuf *result;
	const struct fanin_emission *emission;

	rig_start(3, 0);
	result = contribute(0, 0, 0).mbuf;
	contribute(1, 0, 0);
	contribute(2, 0, 0);
	rig_flush();
	ck_assert_int_eq(contribute(1, 0, FANIN_FLAG_RETRANSMIT).verdict, FANIN_VERDICT_FREE);
	emission = only_emission(FANIN_EMIT_CHILDREN, 1 << 1);
	ck_assert_ptr_eq(emission->mbuf, result);
	ck_assert_uint_eq(emission->payload_len, PAYLOAD);
	ck_assert_uint_eq(rte_mbuf_refcnt_read(result), 2);
	expect_sum(result, 0);
	ck_assert_uint_eq(rig.stats.repeats, 1);
	ck_assert_uint_eq(rig.stats.contributions, 3);
	ck_assert_uint_eq(rig.stats.results, 1);
	rig_stop();
}
END_TEST

START_TEST(a_repeat_leaves_the_result_as_it_is)
{
	uint8_t before[FANIN_PAYLOAD_OFFSET + PAYLOAD];
	struct rte_mbuf *result;

	rig_start(2, 0);
	result = contribute(0, 0, 0).mbuf;
	contribute(1, 0, 0);
	memcpy(before, headers_of(result), sizeof(before));
	contribute(0, 0, FANIN_FLAG_RETRANSMIT);
	ck_assert_mem_eq(before, headers_of(result), sizeof(before));
	rig_stop();
}
END_TEST

START_TEST(a_network_duplicate_of_a_finished_block_gets_no_answer)
{
	rig_start(2, 0);
	finish(0);
	ck_assert_int_eq(contribute(1, 0, 0).verdict, FANIN_VERDICT_FREE);
	ck_assert_uint_eq(rig.ctx.n_emissions, 0);
	ck_assert_uint_eq(rig.stats.duplicates, 1);
	ck_assert_uint_eq(rig.stats.repeats, 0);
	rig_stop();
}
END_TEST

START_TEST(a_slot_is_reused_only_by_the_next_window)
{
	rig_start(2, 1);
	finish(1);
	expect_drop(contribute(0, 1 + WINDOW, 0), FANIN_REASON_BLOCK_WINDOW);
	expect_drop(contribute(0, 1 + SLOTS - 1, 0), FANIN_REASON_BLOCK_WINDOW);
	expect_drop(contribute(0, 1 + SLOTS + 1, 0), FANIN_REASON_BLOCK_WINDOW);
	expect_drop(contribute(0, 1 + 2 * SLOTS, 0), FANIN_REASON_BLOCK_WINDOW);
	expect_drop(contribute(0, 1 + (1u << 31) - 1, 0), FANIN_REASON_BLOCK_WINDOW);
	finish(1 + SLOTS);
	finish(1 + 2 * SLOTS);
	rig_stop();
}
END_TEST

START_TEST(an_incomplete_block_is_not_overtaken)
{
	rig_start(2, 0);
	contribute(0, 0, 0);
	expect_drop(contribute(0, SLOTS, 0), FANIN_REASON_BLOCK_WINDOW);
	expect_drop(contribute(1, SLOTS, 0), FANIN_REASON_BLOCK_WINDOW);
	contribute(1, 0, 0);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 3)->mbuf, 0);
	rig_stop();
}
END_TEST

START_TEST(the_old_result_is_given_up_when_the_slot_is_reused)
{
	struct rte_mbuf *old;

	rig_start(2, 0);
	old = contribute(0, 0, 0).mbuf;
	contribute(1, 0, 0);
	rig_flush();
	contribute(0, SLOTS, 0);
	ck_assert_uint_eq(rig.ctx.n_frees, 1);
	ck_assert_ptr_eq(rig.ctx.frees[0], old);
	rig_stop();
}
END_TEST

START_TEST(a_block_before_the_current_one_is_stale)
{
	rig_start(2, 2);
	finish(2);
	contribute(0, 2 + SLOTS, 0);
	rig_flush();
	expect_drop(contribute(1, 2, 0), FANIN_REASON_BLOCK_STALE);
	expect_drop(contribute(1, 2, FANIN_FLAG_RETRANSMIT), FANIN_REASON_BLOCK_STALE);
	contribute(1, 2 + SLOTS, 0);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 3)->mbuf, 2 + SLOTS);
	rig_stop();
}
END_TEST

START_TEST(the_first_block_of_a_slot_is_its_index)
{
	rig_start(2, 5);
	expect_drop(contribute(0, 5u - SLOTS, 0), FANIN_REASON_BLOCK_STALE);
	expect_drop(contribute(0, 5u - SLOTS, FANIN_FLAG_RETRANSMIT), FANIN_REASON_BLOCK_STALE);
	expect_drop(contribute(0, 5u - 2 * SLOTS, 0), FANIN_REASON_BLOCK_STALE);
	expect_drop(contribute(0, 5u + SLOTS, 0), FANIN_REASON_BLOCK_WINDOW);
	finish(5);
	rig_stop();
}
END_TEST

START_TEST(block_numbers_wrap_around)
{
	uint32_t block = UINT32_MAX - 3 * SLOTS + 1;

	rig_start(3, block);
	for (int i = 0; i < 6; i++, block += SLOTS) {
		finish(block);
		contribute(2, block, FANIN_FLAG_RETRANSMIT);
		expect_sum(only_emission(FANIN_EMIT_CHILDREN, 1 << 2)->mbuf, block);
		rig_flush();
		expect_drop(contribute(1, block - SLOTS, 0), FANIN_REASON_BLOCK_STALE);
	}
	ck_assert_uint_eq(block, 3 * SLOTS);
	rig_stop();
}
END_TEST

START_TEST(contributions_of_another_shape_are_dropped)
{
	static const struct shape others[] = {
		{ FANIN_WIRE_F32, FANIN_WIRE_SUM, COUNT },
		{ FANIN_WIRE_I32, FANIN_WIRE_MIN, COUNT },
		{ FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT - 1 },
		{ FANIN_WIRE_I32, FANIN_WIRE_SUM, 0 },
	};

	rig_start(2, 0);
	contribute(0, 0, 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		expect_drop(contribute_shape(1, 0, 0, &others[i]), FANIN_REASON_MISMATCH);
		expect_drop(contribute_shape(0, 0, FANIN_FLAG_RETRANSMIT, &others[i]),
			    FANIN_REASON_MISMATCH);
	}
	contribute(1, 0, 0);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 3)->mbuf, 0);
	rig_flush();
	expect_drop(contribute_shape(1, 0, FANIN_FLAG_RETRANSMIT, &others[0]),
		    FANIN_REASON_MISMATCH);
	rig_stop();
}
END_TEST

START_TEST(an_unsupported_operation_is_dropped_and_harms_nothing)
{
	static const struct shape unsupported = { FANIN_WIRE_F32, FANIN_WIRE_BXOR, COUNT };

	rig_start(2, 0);
	expect_drop(contribute_shape(0, 0, 0, &unsupported), FANIN_REASON_OPERATION);
	finish(0);
	expect_drop(contribute_shape(0, SLOTS, 0, &unsupported), FANIN_REASON_OPERATION);
	contribute(0, 0, FANIN_FLAG_RETRANSMIT);
	expect_sum(only_emission(FANIN_EMIT_CHILDREN, 1)->mbuf, 0);
	rig_flush();
	finish(SLOTS);
	rig_stop();
}
END_TEST

START_TEST(more_elements_than_the_job_allows_are_dropped)
{
	static const struct shape longer = { FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT + 1 };

	rig_start(2, 0);
	expect_drop(contribute_shape(0, 0, 0, &longer), FANIN_REASON_PAYLOAD);
	contribute(0, 0, 0);
	expect_drop(contribute_shape(1, 0, 0, &longer), FANIN_REASON_PAYLOAD);
	rig_stop();
}
END_TEST

START_TEST(a_new_run_gives_up_what_the_slot_holds_and_starts_over)
{
	rig_start(2, 0);
	contribute(0, 0, 0);
	/* The slot learns of the next run from its first packet. */
	rig.ctx.epoch++;
	contribute(0, 0, 0);
	ck_assert_uint_eq(rig.ctx.n_frees, 1);
	rig_flush();
	contribute(1, 0, 0);
	rig_flush();
	rig.ctx.epoch++;
	finish(0);
	rig.ctx.epoch--;
	expect_drop(contribute(0, 0, 0), FANIN_REASON_EPOCH);
	rig_stop();
}
END_TEST

START_TEST(the_run_after_the_last_epoch_is_a_later_one)
{
	rig_start(2, 0);
	rig.ctx.epoch = UINT32_MAX;
	contribute(0, 0, 0);
	rig.ctx.epoch = 1;
	contribute(0, 0, 0);
	ck_assert_uint_eq(rig.ctx.n_frees, 1);
	rig_flush();
	rig.ctx.epoch = UINT32_MAX;
	expect_drop(contribute(1, 0, 0), FANIN_REASON_EPOCH);
	rig_flush();
	rig.ctx.epoch = 1;
	contribute(1, 0, 0);
	rig_flush();
	rig_stop();
}
END_TEST

START_TEST(a_released_slot_holds_nothing)
{
	rig_start(2, 0);
	finish(0);
	rig.handler->slot_release(&rig.ctx, rig.slot);
	ck_assert_uint_eq(rig.ctx.n_frees, 1);
	rig.handler->slot_release(&rig.ctx, rig.slot);
	ck_assert_uint_eq(rig.ctx.n_frees, 1);
	rig_stop();
}
END_TEST

/* Contributes at a given time. */
static void
contribute_at(uint64_t now_ns, uint16_t child, uint32_t block, uint16_t flags)
{
	rig.ctx.now_ns = now_ns;
	contribute(child, block, flags);
	rig_flush();
}

START_TEST(the_time_of_a_block_is_from_its_first_contribution_to_its_last)
{
	rig_start(3, 0);
	contribute_at(1000, 2, 0, 0);
	contribute_at(1700, 0, 0, 0);
	contribute_at(2500, 0, 0, 0); /* a duplicate, and one that asks for a result, begin nothing
				       */
	contribute_at(2600, 0, 0, FANIN_FLAG_RETRANSMIT);
	ck_assert_uint_eq(rig.stats.block_ns, 0);
	contribute_at(4000, 1, 0, 0);
	ck_assert_uint_eq(rig.stats.block_ns, 3000);
	contribute_at(9000, 1, 0, FANIN_FLAG_RETRANSMIT); /* the result is repeated */
	ck_assert_uint_eq(rig.stats.block_ns, 3000);

	contribute_at(10000, 0, SLOTS, 0);
	contribute_at(10000, 1, SLOTS, 0);
	contribute_at(10500, 2, SLOTS, 0);
	ck_assert_uint_eq(rig.stats.block_ns, 3500);
	ck_assert_uint_eq(rig.stats.results, 2);
	rig_stop();
}
END_TEST

START_TEST(the_time_of_a_block_is_never_negative)
{
	rig_start(2, 0);
	contribute_at(2000, 0, 0, 0);
	contribute_at(1900, 1, 0, 0); /* by a worker whose round began earlier */
	ck_assert_uint_eq(rig.stats.results, 1);
	ck_assert_uint_eq(rig.stats.block_ns, 0);
	rig_stop();
}
END_TEST

START_TEST(a_block_that_a_new_run_gives_up_takes_no_time)
{
	rig_start(2, 0);
	contribute_at(1000, 0, 0, 0);
	rig.ctx.epoch++;
	contribute_at(5000, 0, 0, 0);
	contribute_at(5250, 1, 0, 0);
	ck_assert_uint_eq(rig.stats.block_ns, 250);
	rig_stop();
}
END_TEST

/* Adds the tests that every dense handler passes. */
static void
add_common(Suite *suite, const char *handler, void (*use)(void))
{
	TCase *tcase = tcase_create(handler);

	tcase_add_checked_fixture(tcase, use, NULL);
	tcase_add_test(tcase, a_duplicate_contribution_is_counted_once);
	tcase_add_test(tcase, a_retransmission_learns_who_is_there);
	tcase_add_test(tcase, a_retransmission_that_is_the_first_to_arrive_is_merged);
	tcase_add_test(tcase, a_lost_result_is_repeated_to_the_one_who_asks);
	tcase_add_test(tcase, a_repeat_leaves_the_result_as_it_is);
	tcase_add_test(tcase, a_network_duplicate_of_a_finished_block_gets_no_answer);
	tcase_add_test(tcase, a_slot_is_reused_only_by_the_next_window);
	tcase_add_test(tcase, an_incomplete_block_is_not_overtaken);
	tcase_add_test(tcase, the_old_result_is_given_up_when_the_slot_is_reused);
	tcase_add_test(tcase, a_block_before_the_current_one_is_stale);
	tcase_add_test(tcase, the_first_block_of_a_slot_is_its_index);
	tcase_add_test(tcase, block_numbers_wrap_around);
	tcase_add_test(tcase, a_new_run_gives_up_what_the_slot_holds_and_starts_over);
	tcase_add_test(tcase, the_run_after_the_last_epoch_is_a_later_one);
	tcase_add_test(tcase, a_released_slot_holds_nothing);
	tcase_add_test(tcase, the_time_of_a_block_is_from_its_first_contribution_to_its_last);
	tcase_add_test(tcase, the_time_of_a_block_is_never_negative);
	tcase_add_test(tcase, a_block_that_a_new_run_gives_up_takes_no_time);
	tcase_add_test(tcase, contributions_of_another_shape_are_dropped);
	tcase_add_test(tcase, an_unsupported_operation_is_dropped_and_harms_nothing);
	tcase_add_test(tcase, more_elements_than_the_job_allows_are_dropped);
	suite_add_tcase(suite, tcase);
}

Suite *
suite_handler(void)
{
	Suite *suite = suite_create("handler");
	TCase *blocks = tcase_create("blocks");
	tcase_add_test(blocks, the_registry_knows_the_handler);
	tcase_add_test(blocks, a_slot_is_one_cache_line_and_holds_one_mbuf);
	tcase_add_loop_test(blocks, the_result_leaves_with_the_last_contribution, 0, 8);
	tcase_add_test(blocks, the_first_contribution_becomes_the_result_in_place);
	tcase_add_test(blocks, the_result_header_tells_what_it_holds);
	tcase_add_test(blocks, a_result_has_a_reference_for_each_child_and_one_for_the_slot);
	tcase_add_test(blocks, a_barrier_block_without_elements_completes);
	suite_add_tcase(suite, blocks);

	add_common(suite, "single", use_single);
	add_common(suite, "multi", use_multi);
	add_common(suite, "tree", use_tree);
	return suite;
}
