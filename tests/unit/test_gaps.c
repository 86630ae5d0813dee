/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Missing packets (hostlib/src/engine/gaps.h): a sender, a path that delays and loses, and a
 * receiver that asks, in steps of time. The packets asked for are compared with those that the path
 * really loses.
 */
#include <check.h>
#include <string.h>

#include "hostlib/src/engine/gaps.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define N 600u
#define RING 128u
#define REORDER_NS 50u
#define ANSWER_NS 40u
#define NEVER UINT64_MAX

static uint64_t have[(N + 63) / 64];
static uint64_t asked[(N + 63) / 64];
static struct fanin_gaps gaps;

static void
begin(uint32_t ring)
{
	memset(have, 0, sizeof(have));
	memset(asked, 0, sizeof(asked));
	gaps = (struct fanin_gaps){ .have = have, .asked = asked, .ring = ring, .end = N };
}

static void
take(uint32_t first, uint32_t end)
{
	for (uint32_t packet = first; packet < end; packet++)
		(void)fanin_gaps_take(&gaps, packet);
}

static struct fanin_question
question_of(uint32_t first, uint32_t span, uint32_t left)
{
	return (struct fanin_question){ .first = first, .span = span, .left = left };
}

/* ------------------------------------------------------------------ the way */

/* One packet is sent in each nanosecond, in their order. */
struct way {
	uint64_t comes_ns[N];    /* as first sent; NEVER: it is lost */
	uint64_t answer_ns[N];   /* after it was asked for; NEVER: it does not come */
	uint64_t passed_ns[N];   /* when it was overtaken; NEVER: it has not been */
	uint32_t n_questions[N]; /* for each packet */
};

static struct way way;

/* delay: maximum delay of packets. lost: number of lost packets per thousand. */
static void
way_make(struct random *random, uint32_t delay, uint32_t lost)
{
	memset(&way, 0, sizeof(way));
	for (uint32_t i = 0; i < N; i++) {
		way.comes_ns[i] = 1 + i + random_below(random, delay);
		/* Each packet is overtaken by some packet. */
		if (i + 1 < N && random_below(random, 1000) < lost)
			way.comes_ns[i] = NEVER;
		way.answer_ns[i] = NEVER;
		way.passed_ns[i] = NEVER;
	}
}

static void
packets_come(uint64_t now_ns)
{
	for (uint32_t i = gaps.whole; i < N; i++) {
		const bool sent = way.comes_ns[i] == now_ns;

		if (!fanin_gaps_fits(&gaps, i) || fanin_gaps_has(&gaps, i) ||
		    (!sent && way.answer_ns[i] != now_ns))
			continue;
		ck_assert(fanin_gaps_take(&gaps, i) == (way.n_questions[i] != 0));
		if (sent)
			fanin_gaps_pass(&gaps, i + 1);
	}
	for (uint32_t i = 0; i < gaps.passed; i++) {
		if (way.passed_ns[i] == NEVER)
			way.passed_ns[i] = now_ns;
	}
}

/*
 * Asks as users of gaps.h do: for new ones at each check, and again at intervals; an answer may be
 * lost.
 */
static void
ask(struct random *random, uint64_t now_ns, uint64_t *again_ns, uint64_t *wait_ns, uint32_t lost)
{
	const bool again = now_ns >= *again_ns;
	struct fanin_question question = question_of(FANIN_QUESTION_ANYWHERE, 64, 16);

	if (!fanin_gaps_is_due(&gaps, now_ns))
		return;
	(void)fanin_gaps_ask(&gaps, 0, gaps.checked, again, &question);
	for (uint32_t i = 0; question.n != 0 && i < question.n_words * 64; i++) {
		const uint32_t packet = question.first + i;

		if (!fanin_bit(question.words, i))
			continue;
		ck_assert(packet < gaps.passed && !fanin_gaps_has(&gaps, packet));
		ck_assert(now_ns >= way.passed_ns[packet] + REORDER_NS);
		ck_assert(again || way.n_questions[packet] == 0);
		way.n_questions[packet]++;
		if (random_below(random, 1000) >= lost)
			way.answer_ns[packet] = now_ns + ANSWER_NS;
	}
	if (question.n != 0) {
		(void)fanin_gaps_asked(&gaps, &question, gaps.passed);
		*wait_ns = again ? fanin_question_wait(*wait_ns, ANSWER_NS) : *wait_ns;
		*again_ns = again ? now_ns + *wait_ns : *again_ns;
	}
	fanin_gaps_checked(&gaps, now_ns, REORDER_NS);
	if (question.n == 0)
		*wait_ns = 0;
}

/* Returns when all packets are there. */
static uint64_t
run(struct random *random, uint32_t lost)
{
	uint64_t again_ns = 0, wait_ns = 0, now_ns = 0;

	for (; gaps.whole < N; now_ns++) {
		ck_assert_uint_lt(now_ns, 1000000);
		packets_come(now_ns);
		ask(random, now_ns, &again_ns, &wait_ns, lost);
	}
	return now_ns;
}

/* ------------------------------------------------------------------ missing packets */

/* _i: a seed. */
START_TEST(packets_reordered_within_the_interval_are_never_asked_for)
{
	struct random random = random_seed((uint64_t)_i);

	way_make(&random, REORDER_NS, 0);
	begin(0);
	run(&random, 0);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_uint_eq(way.n_questions[i], 0);
}
END_TEST

START_TEST(only_lost_packets_are_asked_for_until_they_come)
{
	struct random random = random_seed((uint64_t)_i);
	const uint32_t lost = 100 * (uint32_t)(_i % 10);

	way_make(&random, REORDER_NS, lost);
	begin(0);
	run(&random, lost);
	for (uint32_t i = 0; i < N; i++)
		ck_assert((way.n_questions[i] != 0) == (way.comes_ns[i] == NEVER));
	ck_assert_uint_eq(gaps.whole, N);
}
END_TEST

/* The same with a ring: a sender is never further ahead than its size. */
START_TEST(a_ring_has_all_that_its_sender_may_have_sent)
{
	struct random random = random_seed((uint64_t)_i);

	begin(RING);
	for (uint32_t next = 0; next < N; next += RING / 2) {
		const uint32_t end = next + RING / 2 < N ? next + RING / 2 : N;
		bool lost[N] = { false };
		struct fanin_question question = question_of(next, RING, RING);
		uint32_t n = 0;

		for (uint32_t i = next; i < end; i++) {
			ck_assert(fanin_gaps_fits(&gaps, i) && !fanin_gaps_has(&gaps, i));
			lost[i] = random_below(&random, 3) == 0;
			n += lost[i];
			if (!lost[i])
				(void)fanin_gaps_take(&gaps, i);
		}
		fanin_gaps_pass(&gaps, end);
		ck_assert_uint_eq(fanin_gaps_ask(&gaps, 0, end, false, &question), end);
		ck_assert_uint_eq(question.n, n);
		ck_assert_uint_eq(fanin_gaps_asked(&gaps, &question, end), n);
		for (uint32_t i = next; i < end; i++) {
			ck_assert(fanin_gaps_has(&gaps, i) == !lost[i]);
			if (lost[i])
				ck_assert(fanin_gaps_take(&gaps, i));
		}
		ck_assert_uint_eq(gaps.whole, end);
	}
	for (uint32_t i = 0; i < RING / 64; i++)
		ck_assert_uint_eq(have[i] | asked[i], 0);
}
END_TEST

START_TEST(a_ring_has_no_room_for_what_is_further_ahead)
{
	struct fanin_question question = question_of(0, RING, RING);

	begin(RING);
	take(1, RING);
	ck_assert(fanin_gaps_fits(&gaps, RING - 1));
	ck_assert(!fanin_gaps_fits(&gaps, RING));
	ck_assert_uint_eq(fanin_gaps_ask(&gaps, 0, N, true, &question), RING);
	ck_assert_uint_eq(question.n, 1);
	(void)fanin_gaps_take(&gaps, 0);
	ck_assert_uint_eq(gaps.whole, RING);
	ck_assert(fanin_gaps_fits(&gaps, RING) && !fanin_gaps_has(&gaps, RING));
	ck_assert(fanin_gaps_fits(&gaps, 0) && fanin_gaps_has(&gaps, 0));
	gaps.end = RING;
	ck_assert(!fanin_gaps_fits(&gaps, RING));
}
END_TEST

START_TEST(a_check_asks_for_what_was_overtaken_before_the_one_before)
{
	begin(0);
	ck_assert(fanin_gaps_is_due(&gaps, 0));
	take(1, 2);
	fanin_gaps_pass(&gaps, 2);
	ck_assert_uint_eq(gaps.checked, 0);
	fanin_gaps_checked(&gaps, 100, REORDER_NS);
	ck_assert_uint_eq(gaps.checked, 2);
	fanin_gaps_pass(&gaps, 1);
	fanin_gaps_pass(&gaps, 5);
	ck_assert_uint_eq(gaps.checked, 2);
	ck_assert(!fanin_gaps_is_due(&gaps, 100 + REORDER_NS - 1));
	ck_assert(fanin_gaps_is_due(&gaps, 100 + REORDER_NS));
	fanin_gaps_checked(&gaps, 200, 0);
	ck_assert_uint_eq(gaps.checked, 5);
	ck_assert(fanin_gaps_is_due(&gaps, 200));
}
END_TEST

START_TEST(only_repeated_questions_have_what_was_asked_for)
{
	struct fanin_question question = question_of(FANIN_QUESTION_ANYWHERE, 64, 64);

	begin(0);
	take(2, 4);
	(void)fanin_gaps_ask(&gaps, 0, 6, false, &question);
	ck_assert_uint_eq(question.words[0], 0x33);
	/* Only packets that were certainly sent count as asked for. */
	ck_assert_uint_eq(fanin_gaps_asked(&gaps, &question, 5), 3);
	ck_assert_uint_eq(fanin_gaps_asked(&gaps, &question, 5), 0);
	fanin_question_clear(&question);
	(void)fanin_gaps_ask(&gaps, 0, 6, false, &question);
	ck_assert_uint_eq(question.first, 5);
	ck_assert_uint_eq(question.n, 1);
	fanin_question_clear(&question);
	(void)fanin_gaps_ask(&gaps, 0, 6, true, &question);
	ck_assert_uint_eq(question.words[0], 0x33);
	ck_assert(!fanin_gaps_take(&gaps, 5));
	ck_assert(fanin_gaps_take(&gaps, 0));
}
END_TEST

/* Like roots that take turns: each sender notes its own packets of a question. */
START_TEST(senders_share_bitmaps_and_questions)
{
	struct fanin_question question = question_of(FANIN_QUESTION_ANYWHERE, 64, 64);
	struct fanin_gaps second;

	begin(0);
	gaps.end = 10;
	second = (struct fanin_gaps){
		.have = have, .asked = asked, .end = N, .whole = 10, .passed = 10, .checked = 10
	};
	take(0, 8);
	(void)fanin_gaps_take(&second, 10);
	ck_assert_uint_eq(fanin_gaps_ask(&gaps, 0, 10, true, &question), 10);
	ck_assert_uint_eq(fanin_gaps_ask(&second, 10, 13, true, &question), 13);
	ck_assert_uint_eq(question.first, 8);
	ck_assert_uint_eq(question.words[0], 0x1b);
	ck_assert_uint_eq(fanin_gaps_asked(&gaps, &question, gaps.end), 2);
	ck_assert_uint_eq(fanin_gaps_asked(&second, &question, second.end), 2);
	take(8, 10);
	ck_assert_uint_eq(gaps.whole, 10);
	ck_assert_uint_eq(second.whole, 11);
}
END_TEST

/* ------------------------------------------------------------------ questions */

START_TEST(a_question_covers_its_span_and_the_next_one_goes_on_behind_it)
{
	struct fanin_question question = question_of(FANIN_QUESTION_ANYWHERE, 64, 70);
	uint32_t packet;

	begin(0);
	take(0, 3);
	packet = fanin_gaps_ask(&gaps, 0, N, true, &question);
	ck_assert_uint_eq(question.first, 3);
	ck_assert_uint_eq(packet, 67);
	ck_assert_uint_eq(question.n, 64);
	ck_assert_uint_eq(fanin_question_len(&question), 8);
	fanin_question_clear(&question);
	packet = fanin_gaps_ask(&gaps, packet, N, true, &question);
	ck_assert_uint_eq(question.first, 67);
	ck_assert_uint_eq(question.words[0], 0x3f);
	ck_assert_uint_eq(packet, 73);
	fanin_question_clear(&question);
	ck_assert_uint_eq(fanin_gaps_ask(&gaps, packet, N, true, &question), packet);
	ck_assert_uint_eq(question.n, 0);
}
END_TEST

START_TEST(a_question_that_begins_somewhere_takes_nothing_before_that)
{
	struct fanin_question question = question_of(100, 128, 128);

	ck_assert(!fanin_question_add(&question, 99));
	ck_assert(!fanin_question_add(&question, 228));
	ck_assert(fanin_question_add(&question, 227));
	ck_assert(fanin_question_add(&question, 100));
	ck_assert_uint_eq(question.n, 2);
	ck_assert_uint_eq(fanin_question_len(&question), 16);
	ck_assert_uint_eq(question.words[0], 1);
	ck_assert_uint_eq(question.words[1], UINT64_C(1) << 63);
}
END_TEST

START_TEST(intervals_begin_with_the_time_of_an_answer_and_double_up_to_a_bound)
{
	static const uint64_t expected[] = { 20, 40, 80, 100, 100 };
	const uint64_t ms = 1000000;
	uint64_t wait_ns = 0;

	for (unsigned int i = 0; i < 5; i++) {
		wait_ns = fanin_question_wait(wait_ns, 20 * ms);
		ck_assert_uint_eq(wait_ns, expected[i] * ms);
	}
	ck_assert_uint_eq(fanin_question_wait(0, 300 * ms), 300 * ms);
}
END_TEST

START_TEST(patience_doubles_by_what_was_late_and_shrinks_by_what_was_lost_within_bounds)
{
	struct fanin_patience patience = { .ns = 80, .min_ns = 60, .max_ns = 200 };

	fanin_patience_was_late(&patience);
	ck_assert_uint_eq(patience.ns, 160);
	fanin_patience_was_late(&patience);
	ck_assert_uint_eq(patience.ns, 200);
	fanin_patience_was_lost(&patience);
	ck_assert_uint_eq(patience.ns, 175);
	for (unsigned int i = 0; i < 20; i++)
		fanin_patience_was_lost(&patience);
	ck_assert_uint_eq(patience.ns, 60);
}
END_TEST

Suite *
suite_gaps(void)
{
	Suite *suite = suite_create("gaps");
	TCase *missing = tcase_create("missing");
	TCase *questions = tcase_create("questions");

	tcase_add_loop_test(missing, packets_reordered_within_the_interval_are_never_asked_for, 0,
			    50);
	tcase_add_loop_test(missing, only_lost_packets_are_asked_for_until_they_come, 0, 100);
	tcase_add_loop_test(missing, a_ring_has_all_that_its_sender_may_have_sent, 0, 20);
	tcase_add_test(missing, a_ring_has_no_room_for_what_is_further_ahead);
	tcase_add_test(missing, a_check_asks_for_what_was_overtaken_before_the_one_before);
	tcase_add_test(missing, only_repeated_questions_have_what_was_asked_for);
	tcase_add_test(missing, senders_share_bitmaps_and_questions);
	suite_add_tcase(suite, missing);
	tcase_add_test(questions, a_question_covers_its_span_and_the_next_one_goes_on_behind_it);
	tcase_add_test(questions, a_question_that_begins_somewhere_takes_nothing_before_that);
	tcase_add_test(questions,
		       intervals_begin_with_the_time_of_an_answer_and_double_up_to_a_bound);
	tcase_add_test(
		questions,
		patience_doubles_by_what_was_late_and_shrinks_by_what_was_lost_within_bounds);
	suite_add_tcase(suite, questions);
	return suite;
}
