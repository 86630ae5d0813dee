/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control (hostlib/src/cc/cc.h) on a path whose delay is a mathematical function of the
 * window: which window it finds, that it keeps goodput, and that it follows a path that changes.
 */
#include <check.h>
#include <math.h>

#include "hostlib/src/cc/cc.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define LIMIT 256u
#define US 1000.0

/*
 * A path: base_ns without load, plus for_each_ns for each block in flight; each delay varies by up
 * to `noise` of it. If cores are given to processes in turns, base_ns is the mean of waits that all
 * blocks of a window share: `waits`.
 */
struct path {
	double base_ns;
	double for_each_ns;
	double noise;
	bool waits;
};

struct run {
	struct fanin_cc cc;
	struct random random;
	double now_ns;
	double wait;         /* of this window's blocks, in base_ns */
	uint32_t wait_until; /* block */
	uint32_t block;
	uint32_t smallest;
};

static void
run_start(struct run *run, const char *type, uint32_t limit)
{
	*run = (struct run){ .random = random_seed(7), .smallest = limit };
	ck_assert_ptr_nonnull(fanin_cc_find(type));
	fanin_cc_init(&run->cc, fanin_cc_find(type), limit);
}

static double
delay_of(struct run *run, const struct path *path)
{
	const double queue_ns = path->for_each_ns * run->cc.window;

	if (path->waits && run->block >= run->wait_until) {
		run->wait = -log((1 + (double)random_below(&run->random, 1000)) / 1000);
		run->wait_until = run->block + run->cc.window;
	}
	return (path->base_ns * (path->waits ? run->wait : 1) + queue_ns) *
	       (1 + path->noise * (2 * (double)random_below(&run->random, 1001) / 1000 - 1));
}

/*
 * Runs n blocks one after the other, a window of them in each delay. Returns how many seconds they
 * took.
 */
static double
run_blocks(struct run *run, const struct path *path, uint32_t n)
{
	const double start_ns = run->now_ns;

	for (uint32_t i = 0; i < n; i++) {
		const double delay_ns = delay_of(run, path);
		const struct fanin_cc_sample sample = {
			.now_ns = (uint64_t)run->now_ns,
			.delay_ns = (uint64_t)delay_ns,
			.block = run->block++,
			.generation = run->cc.generation,
		};

		run->now_ns += delay_ns / run->cc.window;
		run->cc.type->on_delay(&run->cc, &sample);
		ck_assert_uint_ge(run->cc.window, 1);
		ck_assert_uint_le(run->cc.window, run->cc.limit);
		if (run->cc.window < run->smallest)
			run->smallest = run->cc.window;
	}
	return (run->now_ns - start_ns) / 1e9;
}

START_TEST(every_type_is_found_by_its_name)
{
	for (const struct fanin_cc_type *const *type = fanin_cc_types; *type != NULL; type++)
		ck_assert_ptr_eq(fanin_cc_find((*type)->name), *type);
	ck_assert_ptr_null(fanin_cc_find("cubic"));
}
END_TEST

START_TEST(a_fixed_window_stays)
{
	const struct path path = { .base_ns = 10 * US, .for_each_ns = 50 * US };
	struct run run;

	run_start(&run, "fixed", LIMIT);
	run_blocks(&run, &path, 100 * LIMIT);
	ck_assert_uint_eq(run.smallest, LIMIT);
}
END_TEST

START_TEST(a_window_that_fills_queues_shrinks_and_goodput_stays)
{
	/* Two cores with four hosts: 50 us of work for each block, 200 us until one is back. */
	const struct path path = { .base_ns = 200 * US, .for_each_ns = 50 * US, .noise = 0.2 };
	const uint32_t n = 1000 * LIMIT;
	struct run fixed, run;
	double seconds;

	run_start(&fixed, "fixed", LIMIT);
	run_start(&run, "delay", LIMIT);
	seconds = run_blocks(&run, &path, n);
	ck_assert_uint_le(run.cc.delay.steady, LIMIT / 4);
	ck_assert_double_lt(seconds, 1.1 * run_blocks(&fixed, &path, n));
}
END_TEST

START_TEST(a_window_that_covers_a_long_way_stays)
{
	/*
	 * Cores that others use, or a long link: 20 ms, of which the host's own blocks are little.
	 */
	const struct path path = { .base_ns = 20000 * US, .for_each_ns = 5 * US, .noise = 0.5 };
	const uint32_t n = 1000 * LIMIT;
	struct run fixed, run;
	double seconds;

	run_start(&fixed, "fixed", LIMIT);
	run_start(&run, "delay", LIMIT);
	seconds = run_blocks(&run, &path, n);
	ck_assert_uint_eq(run.cc.delay.steady, LIMIT);
	/* Limit of the cost of trials. */
	ck_assert_double_lt(seconds, 1.03 * run_blocks(&fixed, &path, n));
}
END_TEST

/* Half the window would have 7/10 of the goodput, but single windows may be lucky. */
START_TEST(a_window_that_waits_for_cores_stays)
{
	const struct path path = {
		.base_ns = 4000 * US, .for_each_ns = 20 * US, .noise = 0.2, .waits = true
	};
	const uint32_t n = 20000 * LIMIT;
	struct run fixed, run;
	double seconds;

	run_start(&fixed, "fixed", LIMIT);
	run_start(&run, "delay", LIMIT);
	seconds = run_blocks(&run, &path, n);
	ck_assert_double_lt(seconds, 1.05 * run_blocks(&fixed, &path, n));
}
END_TEST

START_TEST(a_path_that_changes_is_followed)
{
	const struct path quick = { .base_ns = 200 * US, .for_each_ns = 50 * US, .noise = 0.2 };
	const struct path slow = { .base_ns = 20000 * US, .for_each_ns = 50 * US, .noise = 0.2 };
	struct run run;

	run_start(&run, "delay", LIMIT);
	run_blocks(&run, &quick, 300 * LIMIT);
	ck_assert_uint_le(run.cc.delay.steady, LIMIT / 4);
	run_blocks(&run, &slow, 600 * LIMIT);
	ck_assert_uint_ge(run.cc.delay.steady, LIMIT / 2);
	run_blocks(&run, &quick, 600 * LIMIT);
	ck_assert_uint_le(run.cc.delay.steady, LIMIT / 4);
}
END_TEST

START_TEST(queues_that_nobody_feels_are_left_alone)
{
	const struct path path = { .base_ns = 1 * US, .for_each_ns = 1 * US };
	struct run run;

	run_start(&run, "delay", LIMIT);
	/* This skips the start. */
	run_blocks(&run, &path, LIMIT);
	run.smallest = LIMIT;
	run_blocks(&run, &path, 500 * LIMIT);
	ck_assert_uint_eq(run.smallest, LIMIT);
}
END_TEST

START_TEST(the_first_windows_double_until_all_is_in_flight)
{
	const struct path path = { .base_ns = 1000 * US, .for_each_ns = 1 * US };
	struct run run;

	run_start(&run, "delay", 1024);
	for (uint32_t window = 64; window < 1024; window *= 2) {
		ck_assert_uint_eq(run.cc.window, window);
		run_blocks(&run, &path, window);
	}
	ck_assert_uint_eq(run.cc.window, 1024);
	ck_assert(!run.cc.delay.starting);
	/* No window is larger than the limit. A limit below the first window replaces it. */
	run_start(&run, "delay", 16);
	ck_assert_uint_eq(run.cc.window, 16);
	run_blocks(&run, &path, 1000);
	ck_assert_uint_eq(run.cc.window, 16);
}
END_TEST

/* The queue holds 100 blocks: blocks in flight beyond these are lost. */
START_TEST(a_queue_that_overflows_ends_the_start)
{
	const struct path path = { .base_ns = 1000 * US, .for_each_ns = 700 * US };
	struct run run;

	run_start(&run, "delay", 1024);
	for (int round = 0; round < 20; round++) {
		const uint32_t window = run.cc.window;
		const uint32_t lost = window > 100 ? window - 100 : 0;

		/* Losses are found when later blocks are done. */
		run_blocks(&run, &path, 1);
		for (uint32_t i = 0; i < lost; i++)
			run.cc.type->on_loss(&run.cc, (uint64_t)run.now_ns);
		run_blocks(&run, &path, window - lost - 1);
		ck_assert_uint_le(run.cc.window, 256);
	}
	ck_assert(!run.cc.delay.starting);
	ck_assert_uint_le(run.cc.window, 128);
	ck_assert_uint_ge(run.cc.window, 64);
}
END_TEST

/* Losses of a window that overflowed a queue may be found only after the window was halved. */
START_TEST(losses_of_a_larger_window_are_not_those_of_its_half)
{
	const struct path path = { .base_ns = 1000 * US, .for_each_ns = 1 * US };
	struct run run;

	run_start(&run, "delay", 1024);
	run_blocks(&run, &path, 2000);
	ck_assert_uint_eq(run.cc.window, 1024);
	for (uint32_t i = 0; i < 400; i++)
		run.cc.type->on_loss(&run.cc, (uint64_t)run.now_ns);
	while (run.cc.window == 1024)
		run_blocks(&run, &path, 1);
	ck_assert_uint_eq(run.cc.window, 512);
	for (uint32_t i = 0; i < 300; i++)
		run.cc.type->on_loss(&run.cc, (uint64_t)run.now_ns);
	run_blocks(&run, &path, 600);
	ck_assert_uint_ge(run.cc.delay.steady, 512);
}
END_TEST

/*
 * A link that lost nothing loses a third from now on: half the window does not help, and the window
 * does not shrink further.
 */
START_TEST(losses_at_random_that_begin_later_cost_no_more_than_half_the_window)
{
	const struct path path = { .base_ns = 20000 * US, .for_each_ns = 5 * US };
	struct run run;

	run_start(&run, "delay", LIMIT);
	run_blocks(&run, &path, 20 * LIMIT);
	for (uint32_t i = 0; i < 4000; i++) {
		run.cc.type->on_loss(&run.cc, (uint64_t)run.now_ns);
		run_blocks(&run, &path, 2);
		ck_assert_uint_ge(run.cc.delay.steady, LIMIT / 2);
	}
	ck_assert_uint_eq(run.cc.delay.steady, LIMIT);
}
END_TEST

/* One in six blocks is lost: four links lose this many, and a smaller window does not help. */
START_TEST(losses_at_random_change_nothing)
{
	const struct path path = { .base_ns = 20000 * US, .for_each_ns = 5 * US };
	struct run run;

	run_start(&run, "delay", LIMIT);
	run_blocks(&run, &path, LIMIT);
	run.smallest = LIMIT;
	for (uint32_t i = 0; i < 1000; i++) {
		run.cc.type->on_loss(&run.cc, (uint64_t)run.now_ns);
		run_blocks(&run, &path, 5);
	}
	ck_assert_uint_ge(run.smallest, LIMIT / 2);
	ck_assert_uint_eq(run.cc.delay.steady, LIMIT);
}
END_TEST

START_TEST(a_host_that_computes_for_a_second_changes_nothing)
{
	const struct path path = { .base_ns = 20000 * US, .for_each_ns = 5 * US };
	struct run run;

	run_start(&run, "delay", LIMIT);
	for (int i = 0; i < 100; i++) {
		const struct fanin_cc_sample late = { .delay_ns = 1000000000,
						      .block = run.block,
						      .generation = run.cc.generation };

		run_blocks(&run, &path, 5 * LIMIT);
		run.cc.type->on_delay(&run.cc, &late);
	}
	ck_assert_uint_eq(run.cc.delay.steady, LIMIT);
}
END_TEST

START_TEST(any_limit_holds)
{
	const struct path path = { .base_ns = 200 * US, .for_each_ns = 50 * US, .noise = 0.9 };
	static const uint32_t limits[] = { 1, 2, 8, 33, 64, 100, 1000, 4096 };
	struct run run;

	run_start(&run, "delay", limits[_i]);
	run_blocks(&run, &path, 300000);
	ck_assert_uint_ge(run.smallest, limits[_i] < 16 ? limits[_i] : 16);
}
END_TEST

Suite *
suite_cc(void)
{
	Suite *suite = suite_create("cc");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 300);
	tcase_add_test(all, every_type_is_found_by_its_name);
	tcase_add_test(all, a_fixed_window_stays);
	tcase_add_test(all, a_window_that_fills_queues_shrinks_and_goodput_stays);
	tcase_add_test(all, a_window_that_covers_a_long_way_stays);
	tcase_add_test(all, a_window_that_waits_for_cores_stays);
	tcase_add_test(all, a_path_that_changes_is_followed);
	tcase_add_test(all, queues_that_nobody_feels_are_left_alone);
	tcase_add_test(all, the_first_windows_double_until_all_is_in_flight);
	tcase_add_test(all, a_queue_that_overflows_ends_the_start);
	tcase_add_test(all, losses_at_random_change_nothing);
	tcase_add_test(all, losses_of_a_larger_window_are_not_those_of_its_half);
	tcase_add_test(all, losses_at_random_that_begin_later_cost_no_more_than_half_the_window);
	tcase_add_test(all, a_host_that_computes_for_a_second_changes_nothing);
	tcase_add_loop_test(all, any_limit_holds, 0, 8);
	suite_add_tcase(suite, all);
	return suite;
}
