/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of fanin-perf --profile: each prints its verdict from its bound on, and only then. Also
 * the kernel's figures of a thread.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control/schedstat.h"
#include "tests/unit/suites.h"
#include "tools/perf_profile.h"

static struct profile profile;
static struct fanin_report report;
static struct profile_verdict verdicts[PROFILE_MAX_VERDICTS];
static size_t n_verdicts;

/* Makes the profile of a rank on udp without verdicts: in 10 s it computed 4 s and slept 4.5 s. */
static void
profile_make(void)
{
	profile = (struct profile){
		.collectives = 1,
		.mib = 8,
		.seconds = 10,
		.caller_cpu_seconds = 4,
		.caller_run_queue_seconds = 1.5,
		.knows_run_queue = true,
		.values = { .frames_sent = 1000,
			    .super_frame_packets_sent = 500,
			    .frames_received = 1000,
			    .super_frame_packets_received = 500,
			    .system_calls = 800,
			    .bytes_copied_out = 4 << 20,
			    .bytes_copied_in = 12 << 20 },
	};
	report = (struct fanin_report){ .transport = "udp",
					.transport_reason = "asked for",
					.payload_bytes = 1024 };
}

/* Returns the text of the verdict with this name; NULL: there is none. */
static const char *
verdict(const char *name)
{
	n_verdicts = profile_judge(&profile, &report, verdicts);
	ck_assert_uint_ge(n_verdicts, 1);
	ck_assert_uint_le(n_verdicts, PROFILE_MAX_VERDICTS);
	for (size_t i = 0; i < n_verdicts; i++) {
		if (strcmp(verdicts[i].name, name) == 0)
			return verdicts[i].text;
	}
	return NULL;
}

static void
expect_verdict(const char *name, const char *part)
{
	const char *text = verdict(name);

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, part) != NULL, "found %s, expected %s", text, part);
	ck_assert_ptr_null(verdict("nothing"));
}

/* Checks that there is no verdict. */
static void
expect_nothing(void)
{
	ck_assert_ptr_nonnull(verdict("nothing"));
	ck_assert_uint_eq(n_verdicts, 1);
}

START_TEST(of_a_rank_that_is_well_nothing_stands_out)
{
	expect_nothing();
	/* With long packets a super-frame has one packet, and few packets prove little. */
	profile.values.super_frame_packets_sent = profile.values.super_frame_packets_received = 0;
	report.payload_bytes = 32000;
	expect_nothing();
	report.payload_bytes = 1024;
	profile.values.frames_sent = profile.values.frames_received = 63;
	expect_nothing();
	/* Over memif packets have no system calls at all. */
	profile.values.frames_sent = profile.values.frames_received = 1000;
	report.transport = "memif";
	expect_nothing();
}
END_TEST

START_TEST(packets_that_leave_one_by_one_are_told_with_their_reason)
{
	profile.values.super_frame_packets_sent = 499;
	expect_verdict("sent_one_by_one", "one by one: few were alike");
	report.transport_reason = "asked for; packets leave one by one: a router in between";
	expect_verdict("sent_one_by_one", "packets leave one by one: a router in between");
	report.transport = "af_packet";
	expect_verdict("sent_one_by_one", "af_packet sends no super-frames");
	ck_assert_uint_eq(n_verdicts, 1);
}
END_TEST

START_TEST(packets_that_come_in_one_by_one_are_told)
{
	profile.values.super_frame_packets_received = 499;
	expect_verdict("received_one_by_one", "faninctl ports");
	report.transport = "af_xdp";
	expect_nothing();
}
END_TEST

START_TEST(losses_are_told_with_where_they_happen)
{
	profile.values.retransmits = 9;
	expect_nothing();
	profile.values.retransmits = 34;
	profile.values.spurious = 16;
	expect_verdict("sent_again",
		       "3.4 % of the packets were sent again: they were lost on the way");
	profile.values.spurious = 17;
	expect_verdict("sent_again", "most were not lost");
	profile.values.ring_drops = 1;
	expect_verdict("sent_again", "net.core.rmem_max");
	ck_assert_uint_eq(n_verdicts, 1);
	profile.values.retransmits = 9;
	expect_verdict("dropped", "1 packets found no room to be received");
	ck_assert_uint_eq(n_verdicts, 1);
}
END_TEST

START_TEST(verdicts_are_told_from_their_bounds_on)
{
	profile.caller_run_queue_seconds = 1.99;
	profile.caller_cpu_seconds = 3.02;
	expect_nothing();
	profile.caller_run_queue_seconds = 2;
	expect_verdict("run_queue", "waited for a core for 20 % of the time");
	profile.caller_run_queue_seconds = 0;
	profile.caller_cpu_seconds = 5.01;
	expect_nothing();
	profile.caller_cpu_seconds = 5;
	expect_verdict("asleep", "asleep for 50 % of the time");
	profile.caller_cpu_seconds = 6.99;
	expect_nothing();
	profile.caller_cpu_seconds = 7;
	expect_verdict(
		"computing",
		"computing for 70 % of the time: its own core is the limit; 100 system calls and 2.00 MiB copied for each MiB");
	/* A barrier has no vector. */
	profile.mib = 0;
	expect_verdict("computing", "0 system calls");
}
END_TEST

START_TEST(all_that_can_be_said_at_once_has_room)
{
	profile.values.super_frame_packets_sent = profile.values.super_frame_packets_received = 0;
	profile.values.retransmits = 1000;
	profile.caller_cpu_seconds = 0;
	profile.caller_run_queue_seconds = 5;
	ck_assert_ptr_nonnull(verdict("asleep"));
	ck_assert_uint_eq(n_verdicts, 5);
}
END_TEST

START_TEST(shares_are_all_of_the_time)
{
	struct profile_shares shares = profile_shares(&profile);

	ck_assert_double_eq_tol(shares.computing, 0.4, 1e-9);
	ck_assert_double_eq_tol(shares.run_queue, 0.15, 1e-9);
	ck_assert_double_eq_tol(shares.asleep, 0.45, 1e-9);
	/* Readings are slightly apart in time: no share may be below 0 or above 1. */
	profile.caller_cpu_seconds = 9;
	shares = profile_shares(&profile);
	ck_assert_double_eq_tol(shares.run_queue, 0.1, 1e-9);
	ck_assert_double_eq_tol(shares.asleep, 0, 1e-9);
	profile.caller_cpu_seconds = 11;
	shares = profile_shares(&profile);
	ck_assert_double_eq_tol(shares.computing, 1, 1e-9);
	ck_assert_double_eq_tol(shares.asleep, 0, 1e-9);
	profile.seconds = 0;
	shares = profile_shares(&profile);
	ck_assert_double_eq(shares.computing, 0);
}
END_TEST

static uint64_t
own_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

START_TEST(the_kernel_says_how_long_a_thread_ran)
{
	const struct timespec nap = { .tv_nsec = 2000000 };
	struct schedstat before, after;
	uint64_t begun_ns, ran_ns;

	nanosleep(&nap, NULL);
	ck_assert_int_eq(schedstat_read(gettid(), &before), 0);
	begun_ns = own_cpu_ns();
	while (own_cpu_ns() - begun_ns < 30000000)
		;
	ran_ns = own_cpu_ns() - begun_ns;
	/* The figures of a thread that has just slept are up to date. */
	nanosleep(&nap, NULL);
	ck_assert_int_eq(schedstat_read(gettid(), &after), 0);
	ck_assert_uint_ge(after.run_ns - before.run_ns + 2000000, ran_ns);
	ck_assert_uint_le(after.run_ns, own_cpu_ns());
	ck_assert_uint_gt(after.slices, before.slices);
	ck_assert_uint_ge(after.wait_ns, before.wait_ns);
}
END_TEST

START_TEST(of_a_thread_that_is_not_there_nothing_is_set)
{
	struct schedstat stat = { .run_ns = 7 };

	/* The figures of the first process can't be read. */
	ck_assert_int_eq(schedstat_read(1, &stat), -ENOENT);
	ck_assert_uint_eq(stat.run_ns, 7);
}
END_TEST

Suite *
suite_perf_profile(void)
{
	Suite *suite = suite_create("perf_profile");
	TCase *tcase = tcase_create("perf_profile");

	tcase_add_checked_fixture(tcase, profile_make, NULL);
	tcase_add_test(tcase, of_a_rank_that_is_well_nothing_stands_out);
	tcase_add_test(tcase, packets_that_leave_one_by_one_are_told_with_their_reason);
	tcase_add_test(tcase, packets_that_come_in_one_by_one_are_told);
	tcase_add_test(tcase, losses_are_told_with_where_they_happen);
	tcase_add_test(tcase, verdicts_are_told_from_their_bounds_on);
	tcase_add_test(tcase, all_that_can_be_said_at_once_has_room);
	tcase_add_test(tcase, shares_are_all_of_the_time);
	tcase_add_test(tcase, the_kernel_says_how_long_a_thread_ran);
	tcase_add_test(tcase, of_a_thread_that_is_not_there_nothing_is_set);
	suite_add_tcase(suite, tcase);
	return suite;
}
