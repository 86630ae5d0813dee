/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP in one process and in virtual time: real engines around real switches, with and without
 * leaves, and real parameter servers. Sums are exact even if any link loses, duplicates or reorders
 * packets, and however few aggregators there are. Without loss no rank asks.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/switch/pa_atp.h"
#include "protocols/pa_atp/host/pa_atp.h"
#include "protocols/pa_atp/tests/rig_server.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"
#include "protocols/pa_atp/pa_atp.h"

#define TYPES FANIN_DUAL_TYPES
#define STRAW 2
#define PA_ATP 5
#define ROUND_TRIP_NS 30000 /* at least, from a host to the server and back */
#define MANY_SLOTS 1024

/* Hosts can't fill a queue. */
static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.handler = "pa-atp";
	opened.servers = &rig_parameter_server;
	opened.host_mbit = 1000;
	opened.up_mbit = 25000;
	world_open(&opened);
}

static uint64_t
sum_run(uint64_t count)
{
	world_post_all(0, world_sum(count));
	return world_run();
}

struct totals {
	struct fanin_engine_stats engine;
	struct fanin_pa_atp_stats own;
};

static struct totals
totals(void)
{
	struct totals sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		world_add(&sum.engine, fanin_engine_stats(world_engine(rank)), sizeof(sum.engine));
		world_add(&sum.own, fanin_pa_atp_stats(world_engine(rank)), sizeof(sum.own));
	}
	return sum;
}

static struct fanin_server_job_stats
server_stats(void)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	const struct fanin_server_core *core = rig_server_core(rig_job_server(&world.jobs[0]));

	fanin_server_job_describe(fanin_server_core_job(core, world.jobs[0].id), &stats);
	return stats;
}

/* Of the switch that is the server's member. */
static uint64_t
handler_counter(enum pa_atp_counter counter)
{
	const struct rig_job *job = &world.jobs[0];

	return world_job_counter(job->jobs[job->n_leaves > 1 ? job->n_leaves : 0], counter);
}

/* ------------------------------------------------------------------ tests */

/* By _i: the congestion control, and the network. */
START_TEST(without_loss_and_overflow_nobody_asks)
{
	static const uint16_t ranks[] = { 2, 4, 16 };
	const struct trial trial = {
		.seed = 1,
		.n_ranks = ranks[_i / TYPES % 3],
		.n_leaves = _i / TYPES / 3 == 0 ? 1 : 2,
		.congestion = (uint32_t)_i % TYPES,
		.shared_slots = MANY_SLOTS,
		.window = 64,
	};
	const uint64_t count = 200000;
	const uint64_t blocks = (count * 4 + 1407) / 1408;
	struct totals found;

	open_world(&trial);
	sum_run(count);
	found = totals();
	ck_assert_uint_eq(found.engine.retransmits, 0);
	ck_assert_uint_eq(found.engine.queries, 0);
	ck_assert_uint_eq(found.own.asks_answered, 0);
	ck_assert_uint_eq(found.own.gacks, trial.n_ranks * blocks);
	ck_assert_uint_eq(found.engine.frames_sent, trial.n_ranks * blocks);
	ck_assert_uint_eq(server_stats().results, blocks);
	ck_assert_uint_eq(server_stats().sums, blocks);
	ck_assert_uint_eq(server_stats().flushes, 0);
	ck_assert_uint_eq(server_stats().asks, 0);
	ck_assert_uint_eq(handler_counter(PA_ATP_OVERFLOWS), 0);
	ck_assert_uint_eq(handler_counter(PA_ATP_GACKS), trial.n_ranks * blocks);
	world_close();
}
END_TEST

static struct trial
trial_of(unsigned int i)
{
	static const uint16_t ranks[] = { 1, 2, 3, 4, 8, 16 };
	static const double faults[] = { 0.01, 0.03, 0.1 };
	static const uint32_t windows[] = { 64, 16, 4, 256 };
	const uint16_t n_ranks = ranks[i % 6];

	return (struct trial){
		.seed = i + 100,
		.n_ranks = n_ranks,
		.n_leaves = i / 6 % 2 == 0 || n_ranks == 1 ? 1
			    : n_ranks == 3                 ? 3
							   : 2,
		.congestion = i / 2 % TYPES,
		.shared_slots = i % 4 == 0   ? 16
				: i % 4 == 1 ? 64
					     : MANY_SLOTS,
		.window = windows[i / 3 % 4],
		.faults = faults[i % 3],
	};
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = world_sum(60000);

	open_world(&trial);
	for (uint32_t r = 0; r < 2; r++) {
		world_post_all(r, like);
		like.count = 5000;
	}
	world_run();
	world_close();
}
END_TEST

/* By _i: the data type. All operators, and all collectives, in a network that loses. */
START_TEST(all_collectives_and_operators_are_exact)
{
	const struct trial trial = { .seed = (uint64_t)_i,
				     .n_ranks = 4,
				     .n_leaves = _i % 2 == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .shared_slots = _i % 3 == 0 ? 32 : MANY_SLOTS,
				     .window = 32,
				     .faults = 0.02 };
	struct perf_collective like;

	for (unsigned int n = 0; world_collective((enum fanin_dtype)_i, n, &like); n++) {
		open_world(&trial);
		world_post_all(0, like);
		world_run();
		world_close();
	}
}
END_TEST

/*
 * The others run ahead of rank 0, as far as their windows allow. Returns how long a sum takes then.
 */
static uint64_t
sum_of_late_rank(const struct trial *trial)
{
	const struct perf_collective sum = world_sum(100000);

	open_world(trial);
	for (uint16_t rank = 1; rank < trial->n_ranks; rank++)
		world_post(rank, 0, sum);
	world_pass(2 * MS);
	world_post(0, 0, sum);
	return 2 * MS + world_run();
}

/*
 * Every second block finds its aggregator taken: no stall of more than three round trips to the
 * server. By _i: straw, pa-atp; on one level, on two.
 */
START_TEST(few_aggregators_cost_time_and_nothing_else)
{
	struct trial trial = { .seed = 5,
			       .n_ranks = 4,
			       .n_leaves = _i % 2 == 0 ? 1 : 2,
			       .congestion = _i < 2 ? STRAW : PA_ATP,
			       .shared_slots = MANY_SLOTS,
			       .window = 128 };
	const uint64_t min_ns = sum_of_late_rank(&trial);
	uint64_t elapsed_ns;

	ck_assert_uint_eq(handler_counter(PA_ATP_OVERFLOWS), 0);
	world_close();
	trial.shared_slots = 64;
	elapsed_ns = sum_of_late_rank(&trial);
	/* AWD keeps the others from running further ahead than there are aggregators. */
	if (trial.congestion == PA_ATP)
		ck_assert_uint_eq(handler_counter(PA_ATP_OVERFLOWS), 0);
	else
		ck_assert_uint_gt(handler_counter(PA_ATP_OVERFLOWS), 0);
	ck_assert_uint_eq(totals().engine.retransmits, 0);
	world_close();
	ck_assert_uint_le(elapsed_ns, min_ns + 3 * ROUND_TRIP_NS);
}
END_TEST

/*
 * A packet without data in the name of rank 1, as whoever is behind its port and has the key can
 * send it.
 */
static void
forge(enum fanin_type type, uint32_t block, uint32_t progress)
{
	struct fanin_headers headers = world_forge(1, type, block, 0);

	if (type == FANIN_TYPE_KNOWN)
		headers.fanin.contributions = world.trial.n_ranks;
	headers.fanin.progress = progress;
	if (type == FANIN_TYPE_QUERY) {
		headers.fanin.flags = FANIN_FLAG_RETRANSMIT;
		headers.fanin.number = 7;
	} else {
		headers.fanin.flags = FANIN_FLAG_EMPTY;
		headers.fanin.dtype = FANIN_WIRE_I32;
		headers.fanin.op = FANIN_WIRE_SUM;
		headers.fanin.count = 1;
	}
	world_send(1, &headers);
}

/*
 * By _i: what is forged, and whether there are leaves. Neither the switch nor the server ends the
 * job, and it is as fast as ever.
 */
START_TEST(impossible_packets_end_nothing_and_cost_nothing)
{
	static const enum fanin_type types[] = { FANIN_TYPE_KNOWN, FANIN_TYPE_QUERY,
						 FANIN_TYPE_CONTRIBUTION };
	const enum fanin_type type = types[_i % 3];
	struct trial trial = { .seed = 3,
			       .n_ranks = 4,
			       .n_leaves = (uint16_t)(1 + _i / 3),
			       .congestion = PA_ATP,
			       .shared_slots = MANY_SLOTS,
			       .window = 64 };
	struct perf_collective sum = world_sum(200000);
	uint64_t usual_ns, ns;

	open_world(&trial);
	usual_ns = sum_run(sum.count);
	world_close();

	open_world(&trial);
	world_post_all(0, sum);
	world_pass(MS);
	for (uint32_t i = 0; i < 2 * trial.window; i++)
		forge(type, (1u << 20) + i, type == FANIN_TYPE_KNOWN ? 0 : (1u << 20) + i);
	ns = MS + world_run();
	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
	ck_assert_uint_ge(world_drops(FANIN_REASON_BLOCK_WINDOW), 2 * trial.window);
	world_close();
}
END_TEST

START_TEST(a_late_rank_is_waited_for)
{
	const struct trial trial = { .seed = 6,
				     .n_ranks = 4,
				     .n_leaves = _i == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .shared_slots = MANY_SLOTS,
				     .window = 64 };
	const struct perf_collective sum = world_sum(30000);

	open_world(&trial);
	for (uint16_t rank = 0; rank < 3; rank++)
		world_post(rank, 0, sum);
	world_pass(20 * SECOND);
	for (uint16_t rank = 0; rank < 3; rank++) {
		ck_assert_msg(world.members[rank].requests[0].status == FANIN_IN_PROGRESS, "%s",
			      world_error(rank));
		ck_assert_uint_eq(world_missing(rank), 1 << 3);
	}
	world_post(3, 0, sum);
	world_run();
	ck_assert_uint_eq(totals().engine.retransmits, 0);
	world_close();
}
END_TEST

/* By _i: whether there is a leaf between. */
START_TEST(a_dead_server_is_named_in_time)
{
	const struct trial trial = { .seed = 7,
				     .n_ranks = 2,
				     .n_leaves = _i == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .shared_slots = MANY_SLOTS,
				     .window = 64 };

	open_world(&trial);
	world_post_all(0, world_sum(200000));
	world_pass(MS / 10);
	rig_parameter_server.kill(rig_job_server(&world.jobs[0]));
	ck_assert(world_wait(6 * SECOND, world_done, NULL));
	ck_assert_int_eq(world.members[0].requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_msg(strstr(world_error(0), "server does not answer") != NULL, "%s",
		      world_error(0));
	world_close();
}
END_TEST

/* Some ranks' memory is overwritten already when others still lack the results. */
START_TEST(a_server_may_be_lost_at_any_moment)
{
	static const uint16_t ranks[] = { 2, 4, 8 };
	const struct trial trial = { .seed = (uint64_t)_i + 1,
				     .n_ranks = ranks[_i % 3],
				     .n_leaves = 2,
				     .congestion = (uint32_t)_i % TYPES,
				     .shared_slots = _i % 2 == 0 ? 32 : MANY_SLOTS,
				     .window = _i % 5 == 0 ? 8 : 64,
				     .faults = _i % 4 == 0 ? 0 : 0.03 };
	struct perf_collective like = world_sum(20000);

	open_world(&trial);
	for (uint32_t r = 0; r < 3; r++) {
		world_post_all(r, like);
		like.count = like.count / 4 + 1;
	}
	for (int losses = 1 + _i % 3; losses > 0; losses--) {
		world_wait(random_below(&world.random, 1000000), world_done, NULL);
		world_lose_run(random_below(&world.random, 20000));
	}
	world_run();
	world_close();
}
END_TEST

Suite *
suite_pa_atp_network(void)
{
	Suite *suite = suite_create("pa_atp_network");
	TCase *tcase = tcase_create("pa_atp_network"), *forgers = tcase_create("forgers");

	tcase_set_timeout(tcase, 240);
	tcase_set_timeout(forgers, 240);
	tcase_add_loop_test(tcase, without_loss_and_overflow_nobody_asks, 0, TYPES * 3 * 2);
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 120);
	tcase_add_loop_test(tcase, all_collectives_and_operators_are_exact, FANIN_I8,
			    FANIN_F64 + 1);
	tcase_add_loop_test(tcase, few_aggregators_cost_time_and_nothing_else, 0, 4);
	tcase_add_loop_test(forgers, impossible_packets_end_nothing_and_cost_nothing, 0, 6);
	tcase_add_loop_test(tcase, a_late_rank_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_dead_server_is_named_in_time, 0, 2);
	tcase_add_loop_test(tcase, a_server_may_be_lost_at_any_moment, 0, 60);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, forgers);
	return suite;
}
