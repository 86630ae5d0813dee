/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a run among ranks (hostlib/src/engine/run_end.h): which ranks it blames, and for how
 * long questions are answered.
 */
#include <check.h>
#include <string.h>

#include "hostlib/src/engine/engine_internal.h"
#include "tests/unit/suites.h"

#define TIMEOUT_NS UINT64_C(5000000000)

static uint64_t now_ns;
static unsigned int n_waiting; /* frames to be received */
static unsigned int n_released, n_flushed, n_answered;

static uint64_t
clock_now(void *arg)
{
	(void)arg;
	return now_ns;
}

static unsigned int
rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	if (n > n_waiting)
		n = n_waiting;
	memset(frames, 0, n * sizeof(*frames));
	n_waiting -= n;
	return n;
}

static void
rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	(void)frames;
	n_released += n;
}

static int
tx_flush(struct fanin_transport *transport)
{
	(void)transport;
	n_flushed++;
	return 0;
}

static const struct fanin_transport_ops ops = { .rx_burst = rx_burst,
						.rx_release = rx_release,
						.tx_flush = tx_flush };
static struct fanin_transport transport = { .ops = &ops };
static struct fanin_engine engine;

static void
answer(struct fanin_engine *asked, const struct fanin_frame *frame)
{
	ck_assert_ptr_eq(asked, &engine);
	ck_assert_ptr_nonnull(frame);
	n_answered++;
}

static const struct fanin_engine_rules rules = { .answer = answer };

static void
set_up(void)
{
	const struct fanin_clock clock = fanin_clock_of(clock_now, NULL);

	now_ns = 1000;
	n_waiting = n_released = n_flushed = n_answered = 0;
	engine = (struct fanin_engine){ .rules = &rules, .config.timeout_ns = TIMEOUT_NS };
	fanin_loop_init(&engine.loop, NULL, &transport, &clock, TIMEOUT_NS, 1);
	engine.loop.status = FANIN_ERR_TIMEOUT;
}

START_TEST(a_mismatch_is_the_smaller_groups_or_on_a_tie_everybodys)
{
	ck_assert_uint_eq(fanin_run_end_blame(1 << 3, 0x7), 1 << 3);
	ck_assert_uint_eq(fanin_run_end_blame(0x7, 1 << 3), 1 << 3);
	ck_assert_uint_eq(fanin_run_end_blame(0x3, 0xc), 0xf);
}
END_TEST

START_TEST(a_mismatch_names_the_ranks_and_the_block)
{
	const struct fanin_error *error = &engine.loop.error;

	fanin_run_end_fail(&engine, 7, FANIN_RUN_MISMATCH, 1 << 2 | 1 << 5);
	ck_assert_int_eq(engine.loop.status, FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(error->text, "ranks 2, 5 posted another collective"));
	ck_assert_ptr_nonnull(strstr(error->text, "block 7"));
	ck_assert_uint_eq(error->missing.words[0], 1 << 2 | 1 << 5);
}
END_TEST

START_TEST(a_run_that_goes_on_answers_nothing)
{
	n_waiting = 3;
	ck_assert_uint_eq(fanin_run_end_idle_ns(&engine), UINT64_MAX);
	ck_assert_int_eq(fanin_run_end_poll(&engine), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(n_waiting, 3);
	ck_assert_uint_eq(n_answered, 0);
}
END_TEST

START_TEST(questions_are_answered_for_one_timeout)
{
	fanin_run_end_note(&engine, FANIN_RUN_GONE, 1);
	ck_assert_uint_eq(fanin_run_end_idle_ns(&engine), TIMEOUT_NS);
	n_waiting = 40;
	now_ns += TIMEOUT_NS - 1;
	/* Frames are received in bursts, and returned. */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fanin_run_end_poll(&engine), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(n_answered, 40);
	ck_assert_uint_eq(n_released, 40);
	ck_assert_uint_ge(n_flushed, 1);
	ck_assert_uint_eq(fanin_run_end_idle_ns(&engine), 1);
	n_waiting = 1;
	now_ns++;
	ck_assert_int_eq(fanin_run_end_poll(&engine), FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(n_answered, 40);
	ck_assert_uint_eq(fanin_run_end_idle_ns(&engine), UINT64_MAX);
}
END_TEST

START_TEST(goodbyes_count_for_the_latest_block)
{
	const uint32_t block = UINT32_MAX; /* 0 comes after it */
	struct fanin_run_end end = { 0 };

	ck_assert(fanin_run_end_has_byes(&end, block, 0));
	fanin_run_end_note_bye(&end, block, 1);
	ck_assert(!fanin_run_end_has_byes(&end, block, 1 << 1 | 1 << 2));
	fanin_run_end_note_bye(&end, block, 2);
	ck_assert(fanin_run_end_has_byes(&end, block, 1 << 1 | 1 << 2));
	fanin_run_end_note_bye(&end, 0, 1);
	ck_assert(!fanin_run_end_has_byes(&end, block, 1 << 1 | 1 << 2));
	/* A late acknowledgment of the block before. */
	fanin_run_end_note_bye(&end, block, 2);
	ck_assert(!fanin_run_end_has_byes(&end, 0, 1 << 1 | 1 << 2));
	fanin_run_end_note_bye(&end, 0, 2);
	ck_assert(fanin_run_end_has_byes(&end, 0, 1 << 1 | 1 << 2));
}
END_TEST

static unsigned int n_polls, n_asked, polls_to_fail;

static int
poll_once(struct fanin_endpoint *endpoint)
{
	(void)endpoint;
	return ++n_polls == polls_to_fail ? FANIN_ERR_TIMEOUT : 0;
}

static unsigned int
no_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	(void)endpoint;
	(void)fds;
	return 0;
}

static bool
third_time(struct fanin_engine *leaving)
{
	(void)leaving;
	return ++n_asked == 3;
}

START_TEST(a_goodbye_polls_until_it_is_said_or_the_endpoint_fails)
{
	const struct fanin_protocol protocol = { .poll = poll_once, .poll_fds = no_fds };
	const struct fanin_engine_rules leaving = { .say_bye = third_time };

	engine.endpoint.protocol = &protocol;
	engine.rules = &leaving;
	fanin_run_end_goodbye(&engine);
	ck_assert_uint_eq(n_asked, 3);
	ck_assert_uint_eq(n_polls, 2);
	n_asked = n_polls = 0;
	polls_to_fail = 1;
	fanin_run_end_goodbye(&engine);
	ck_assert_uint_eq(n_polls, 1);
}
END_TEST

START_TEST(intervals_double_up_to_a_bound)
{
	ck_assert_uint_eq(fanin_doubled(3, 100), 6);
	ck_assert_uint_eq(fanin_doubled(60, 100), 100);
	ck_assert_uint_eq(fanin_earlier(1, 2), 1);
	ck_assert_uint_eq(fanin_later(1, 2), 2);
}
END_TEST

Suite *
suite_run_end(void)
{
	Suite *suite = suite_create("run_end");
	TCase *tcase = tcase_create("run_end");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, a_mismatch_is_the_smaller_groups_or_on_a_tie_everybodys);
	tcase_add_test(tcase, a_mismatch_names_the_ranks_and_the_block);
	tcase_add_test(tcase, a_run_that_goes_on_answers_nothing);
	tcase_add_test(tcase, questions_are_answered_for_one_timeout);
	tcase_add_test(tcase, goodbyes_count_for_the_latest_block);
	tcase_add_test(tcase, a_goodbye_polls_until_it_is_said_or_the_endpoint_fails);
	tcase_add_test(tcase, intervals_double_up_to_a_bound);
	suite_add_tcase(suite, tcase);
	return suite;
}
