/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of `./dev bench stragglers`: sizes and arrivals of background flows, the model of DCTCP,
 * and the dumbbell whose queues mark and drop.
 */
#include <check.h>
#include <stdlib.h>

#include "lab/bench/dctcp.h"
#include "lab/bench/dumbbell.h"
#include "lab/reference/random.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS UINT64_C(1000000)
#define RATE_MBIT 100u

START_TEST(sizes_are_those_of_the_table)
{
	/*
	 * Computed by hand from the mean of each part, which is log-uniform: 100 to 300: 182.0, to
	 * 1000: 581.4, to 10000: 3908.7, to 100000: 39086.5, to 300000: 182047.8, to 1000000:
	 * 581414.0; 5 % are 1000000.
	 */
	const double mean = 0.25 * 182.048 + 0.25 * 581.409 + 0.2 * 3908.65 + 0.15 * 39086.5 +
			    0.06 * 182047.8 + 0.04 * 581408.6 + 50000;
	struct random random = random_seed(1);
	double sum = 0;
	unsigned small = 0;

	ck_assert_uint_eq(flow_size_at(0), 100);
	ck_assert_uint_eq(flow_size_at(0.5), 1000);
	/* Half way between 1000 and 10000, in logarithms. */
	ck_assert_uint_eq(flow_size_at(0.6), 3162);
	ck_assert_uint_eq(flow_size_at(0.96), 1000000);
	ck_assert_double_eq_tol(flow_size_mean(), mean, 5);
	for (unsigned i = 0; i < 1000000; i++) {
		const uint32_t bytes = flow_size_at(random_u32(&random) / 4294967296.0);

		sum += bytes;
		small += bytes < 10000;
	}
	ck_assert_double_eq_tol(sum / 1000000, mean, 0.01 * mean);
	ck_assert_double_eq_tol(small / 1e6, 0.7, 0.002);
}
END_TEST

START_TEST(a_schedule_has_its_load_in_each_second)
{
	const double load = 0.2 * (_i + 1);
	const struct flow_schedule_options options = {
		.seed = 5, .load = load, .rate_mbit = RATE_MBIT, .n_paths = 4, .seconds = 10
	};
	struct flow_schedule schedule, same;
	uint64_t of_path[4] = { 0 };
	double gap = 0;
	double square = 0;

	ck_assert_int_eq(flow_schedule_make(&schedule, &options), 0);
	ck_assert_int_eq(flow_schedule_make(&same, &options), 0);
	ck_assert_uint_eq(schedule.n, same.n);
	for (uint64_t second = 1; second <= 10; second++) {
		const double wanted = load * 4 * 12.5e6 * (double)second;

		ck_assert_double_eq_tol((double)flow_schedule_offered(&schedule,
								      second * SECOND_NS),
					wanted, 0.001 * wanted);
	}
	for (size_t i = 0; i < schedule.n; i++) {
		ck_assert_uint_eq(schedule.flows[i].at_ns, same.flows[i].at_ns);
		ck_assert_uint_eq(schedule.flows[i].bytes, same.flows[i].bytes);
		ck_assert_uint_eq(schedule.flows[i].path, same.flows[i].path);
		of_path[schedule.flows[i].path]++;
		if (i != 0) {
			const double between =
				(double)(schedule.flows[i].at_ns - schedule.flows[i - 1].at_ns);

			gap += between;
			square += between * between;
		}
	}
	/* The standard deviation of a Poisson process's gaps equals their mean. */
	gap /= (double)schedule.n - 1;
	ck_assert_double_eq_tol(square / ((double)schedule.n - 1) / (gap * gap), 2, 0.25);
	for (unsigned path = 0; path < 4; path++)
		ck_assert_double_eq_tol((double)of_path[path], (double)schedule.n / 4,
					0.15 * (double)schedule.n / 4);
	flow_schedule_free(&same);
	flow_schedule_free(&schedule);
}
END_TEST

/*
 * Sends as many segments as the window has room for. Returns their number, and the first one in
 * *first.
 */
static uint32_t
send_all(struct dctcp *flow, uint64_t now_ns, uint32_t *first)
{
	uint32_t segment, n = 0;

	while (dctcp_send(flow, now_ns, &segment)) {
		if (n++ == 0)
			*first = segment;
	}
	return n;
}

START_TEST(dctcp_doubles_and_then_cuts_by_half_of_alpha)
{
	struct dctcp *flow = malloc(sizeof(*flow));
	uint32_t first = 0;

	dctcp_init(flow, 1000);
	ck_assert_uint_eq(send_all(flow, 1, &first), 10);
	for (uint32_t i = 0; i < 10; i++)
		dctcp_on_ack(flow, i, false, 1000);
	ck_assert_uint_eq(send_all(flow, 1000, &first), 20);
	ck_assert_double_eq(flow->cwnd, 20);
	/*
	 * alpha was 1. The first segment's acknowledgment ended a round trip without a mark, and
	 * the second one's ended another: segment 10's.
	 */
	ck_assert_double_eq(flow->alpha, 15.0 / 16);
	dctcp_on_ack(flow, 10, true, 2000);
	ck_assert_double_eq(flow->cwnd, 20 * (1 - 15.0 / 32));
	/* Other segments that were sent before are marked, too: they change nothing more. */
	for (uint32_t i = 11; i < 30; i++)
		dctcp_on_ack(flow, i, true, 2000);
	ck_assert_double_eq(flow->cwnd, 20 * (1 - 15.0 / 32));
	ck_assert_uint_eq(flow->timeouts, 0);
	free(flow);
}
END_TEST

START_TEST(dctcp_sends_lost_segments_again_and_halves_once)
{
	struct dctcp *flow = malloc(sizeof(*flow));
	uint32_t first = 0;

	dctcp_init(flow, 30);
	ck_assert_uint_eq(send_all(flow, 1, &first), 10);
	/* Segments 0 and 1 are lost: 3 and 4 were sent three later. */
	dctcp_on_ack(flow, 2, false, 1000);
	ck_assert_uint_eq(flow->n_lost, 0);
	dctcp_on_ack(flow, 3, false, 1000);
	ck_assert_uint_eq(flow->n_lost, 1);
	ck_assert_double_eq(flow->cwnd, 6);
	dctcp_on_ack(flow, 4, false, 1000);
	dctcp_on_ack(flow, 5, false, 1000);
	ck_assert_uint_eq(flow->n_lost, 2);
	ck_assert_double_eq(flow->cwnd, 6);
	/* With 4 in flight, two are sent again, and nothing new. */
	ck_assert_uint_eq(send_all(flow, 1000, &first), 2);
	ck_assert_uint_eq(first, 0);
	for (uint32_t i = 6; i < 10; i++)
		dctcp_on_ack(flow, i, false, 2000);
	dctcp_on_ack(flow, 0, false, 2000);
	dctcp_on_ack(flow, 1, false, 2000);
	ck_assert_uint_eq(flow->first, 10);
	/* All are lost: after a timeout segments are sent one by one. */
	ck_assert_uint_ge(send_all(flow, 2000, &first), 6);
	dctcp_on_time(flow, 2000 + 5 * SECOND_NS);
	ck_assert_uint_eq(flow->timeouts, 1);
	ck_assert_uint_eq(send_all(flow, 6 * SECOND_NS, &first), 1);
	ck_assert_uint_eq(first, 10);
	for (uint32_t i = 10; i < 30; i++) {
		send_all(flow, 7 * SECOND_NS, &first);
		dctcp_on_ack(flow, i, false, 7 * SECOND_NS);
	}
	ck_assert(dctcp_is_done(flow));
	free(flow);
}
END_TEST

/* No acknowledgment makes room for the lost segment, as those behind it are gone, too. */
START_TEST(dctcp_has_a_timeout_when_its_first_segment_waits_for_room)
{
	struct dctcp *flow = malloc(sizeof(*flow));
	uint32_t first = 0;

	dctcp_init(flow, 10);
	ck_assert_uint_eq(send_all(flow, 1, &first), 10);
	for (uint32_t i = 1; i < 4; i++)
		dctcp_on_ack(flow, i, false, 1000);
	ck_assert_uint_eq(flow->n_lost, 1);
	ck_assert_uint_eq(send_all(flow, 1000, &first), 0);
	dctcp_on_time(flow, 1000);
	ck_assert_uint_eq(flow->timeouts, 0);
	dctcp_on_time(flow, 1 + SECOND_NS);
	ck_assert_uint_eq(flow->timeouts, 1);
	ck_assert_uint_eq(send_all(flow, 2 * SECOND_NS, &first), 1);
	ck_assert_uint_eq(first, 0);
	free(flow);
}
END_TEST

static struct dumbbell dumbbell;

static void
open_dumbbell(uint32_t ecn_bytes)
{
	const struct dumbbell_options options = { .seed = 1,
						  .n_paths = 2,
						  .n_workers = 2,
						  .n_servers = 1,
						  .path_of_worker = { 0, 1 },
						  .rate_mbit = RATE_MBIT,
						  .back_rate_mbit = 1000,
						  .host_rate_mbit = 1000,
						  .ecn_bytes = ecn_bytes,
						  .queue_bytes = 256000,
						  .delay_ns = 10000,
						  .aggregators = 64,
						  .server_bytes = 1 << 20,
						  .max_jobs = 2,
						  .n_packets = 8191 };
	char error[RIG_ERROR_LEN] = "";

	ring_switch_eal();
	ck_assert_msg(dumbbell_open(&dumbbell, &options, error) == 0, "%s", error);
}

/* Makes flows that last longer than the test, on path 0. */
static void
long_flows(struct flow_schedule *schedule, size_t n)
{
	schedule->n = n;
	schedule->flows = calloc(n, sizeof(schedule->flows[0]));
	for (size_t i = 0; i < n; i++)
		schedule->flows[i] = (struct flow_arrival){ .bytes = 1000000000,
							    .at_ns = i * 10 * MS_NS };
}

START_TEST(dctcp_fills_a_path_and_marks_keep_its_queue_short)
{
	struct flow_schedule schedule;
	struct background *background;
	uint64_t before;

	open_dumbbell(_i == 0 ? 50000 : 0);
	background = background_create(dumbbell.rig, dumbbell.paths, 2);
	long_flows(&schedule, 2);
	ck_assert_int_eq(background_flows(background, &schedule, rig_now_ns(dumbbell.rig), 0), 0);
	rig_run(dumbbell.rig, rig_now_ns(dumbbell.rig) + SECOND_NS, NULL, NULL);
	before = background_delivered(background, 0);
	rig_run(dumbbell.rig, rig_now_ns(dumbbell.rig) + SECOND_NS, NULL, NULL);
	/* 100 Mbit/s are 12.5 MB in a second. */
	ck_assert_uint_ge(background_delivered(background, 0) - before, 12300000);
	ck_assert_uint_le(background_delivered(background, 0) - before, 12510000);
	ck_assert_uint_eq(background_delivered(background, 1), 0);
	if (_i == 0) {
		ck_assert_uint_gt(background_stats(background)->marked, 0);
		ck_assert_uint_eq(background_stats(background)->timeouts, 0);
	} else {
		ck_assert_uint_eq(background_stats(background)->marked, 0);
	}
	background_destroy(background);
	flow_schedule_free(&schedule);
	ck_assert_uint_eq(dumbbell_close(&dumbbell), 0);
}
END_TEST

START_TEST(scheduled_flows_all_end_and_their_load_is_on_the_paths)
{
	const struct flow_schedule_options options = {
		.seed = 3, .load = 0.5, .rate_mbit = RATE_MBIT, .n_paths = 2, .seconds = 4
	};
	const struct background_stats *stats;
	struct flow_schedule schedule;
	struct background *background;

	open_dumbbell(50000);
	ck_assert_int_eq(flow_schedule_make(&schedule, &options), 0);
	background = background_create(dumbbell.rig, dumbbell.paths, 2);
	ck_assert_int_eq(background_flows(background, &schedule, rig_now_ns(dumbbell.rig), 0), 0);
	rig_run(dumbbell.rig, rig_now_ns(dumbbell.rig) + 10 * SECOND_NS, NULL, NULL);
	stats = background_stats(background);
	ck_assert_uint_eq(stats->flows, schedule.n);
	ck_assert_uint_eq(stats->done, schedule.n);
	ck_assert_uint_eq(stats->offered, flow_schedule_offered(&schedule, UINT64_MAX));
	/* Repeated segments come on top. */
	ck_assert_uint_ge(stats->delivered, stats->offered);
	ck_assert_double_eq_tol((double)stats->delivered / (0.5 * 2 * 12.5e6 * 4), 1, 0.05);
	background_destroy(background);
	flow_schedule_free(&schedule);
	ck_assert_uint_eq(dumbbell_close(&dumbbell), 0);
}
END_TEST

START_TEST(udp_has_its_rate_and_yields_to_nobody)
{
	struct flow_schedule schedule;
	struct background *background;
	uint64_t begin_ns;

	open_dumbbell(50000);
	background = background_create(dumbbell.rig, dumbbell.paths, 2);
	begin_ns = rig_now_ns(dumbbell.rig);
	background_udp(background, 0, 80, begin_ns, begin_ns + SECOND_NS);
	long_flows(&schedule, 1);
	ck_assert_int_eq(background_flows(background, &schedule, begin_ns, 0), 0);
	rig_run(dumbbell.rig, begin_ns + SECOND_NS, NULL, NULL);
	/* The path is full, and 80 of its 100 Mbit/s were UDP's. */
	ck_assert_double_eq_tol((double)background_delivered(background, 0), 12.5e6, 0.3e6);
	ck_assert_double_eq_tol((double)(background_delivered(background, 0) -
					 background_stats(background)->received_flows *
						 (FLOW_SEGMENT + FLOW_OVERHEAD)),
				10e6, 0.3e6);
	background_destroy(background);
	flow_schedule_free(&schedule);
	ck_assert_uint_eq(dumbbell_close(&dumbbell), 0);
}
END_TEST

Suite *
suite_stragglers(void)
{
	Suite *suite = suite_create("stragglers");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, sizes_are_those_of_the_table);
	tcase_add_loop_test(all, a_schedule_has_its_load_in_each_second, 0, 4);
	tcase_add_test(all, dctcp_doubles_and_then_cuts_by_half_of_alpha);
	tcase_add_test(all, dctcp_sends_lost_segments_again_and_halves_once);
	tcase_add_test(all, dctcp_has_a_timeout_when_its_first_segment_waits_for_room);
	tcase_add_loop_test(all, dctcp_fills_a_path_and_marks_keep_its_queue_short, 0, 2);
	tcase_add_test(all, scheduled_flows_all_end_and_their_load_is_on_the_paths);
	tcase_add_test(all, udp_has_its_rate_and_yields_to_nobody);
	suite_add_tcase(suite, all);
	return suite;
}
