/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's hosts in one process and in virtual time: real engines around real switches, leaves and
 * spines. Sums are exact and the same bits on all ranks, even if any link loses, duplicates or
 * reorders packets, and however few descriptors there are. Without loss no rank asks.
 */
#include <check.h>
#include <string.h>

#include "protocols/canary/switch/canary.h"
#include "protocols/canary/host/canary_internal.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"

#define RUN 1000

struct found {
	struct fanin_canary_stats own;
	struct fanin_engine_stats engine;
};

static struct found
totals(void)
{
	struct found sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		world_add(&sum.own, fanin_canary_stats(world_engine(rank)), sizeof(sum.own));
		world_add(&sum.engine, fanin_engine_stats(world_engine(rank)), sizeof(sum.engine));
	}
	return sum;
}

/* It calls the roll from now on, as a process with this number. */
static void
begin(uint16_t rank, uint64_t nonce)
{
	struct fanin_canary *canary = canary_of(fanin_engine_of(world_engine(rank)));

	canary->seed = (struct canary_seed){ .nonce = nonce, .roll = 77 + nonce, .run = RUN };
	fanin_canary_roll_begin(canary);
	world_wake(rank);
}

static void
begin_anew(uint16_t rank, uint64_t nonce)
{
	world_restart(rank);
	begin(rank, nonce);
}

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.handler = "canary";
	opened.host_mbit = 1000;
	opened.no_recovery = true;
	world_open(&opened);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		begin(rank, 100u + rank);
}

/* ------------------------------------------------------------------ tests */

static const struct trial quiet_trials[] = {
	{ .n_ranks = 1, .n_leaves = 1, .window = 16, .shared_slots = 1024 },
	{ .n_ranks = 2, .n_leaves = 1, .window = 16, .shared_slots = 1024 },
	{ .n_ranks = 2, .n_leaves = 2, .n_spines = 1, .window = 64, .shared_slots = 1024 },
	{ .n_ranks = 4, .n_leaves = 2, .n_spines = 2, .window = 64, .shared_slots = 1024 },
	{ .n_ranks = 16, .n_leaves = 4, .n_spines = 4, .window = 64, .shared_slots = 4096 },
};

START_TEST(without_loss_nobody_asks)
{
	struct trial trial = quiet_trials[_i];
	struct found found;

	trial.seed = 1;
	open_world(&trial);
	world_post_all(0, world_sum(100000));
	world_run();
	found = totals();
	ck_assert_uint_eq(found.engine.queries, 0);
	ck_assert_uint_eq(found.own.asks, 0);
	ck_assert_uint_eq(found.engine.retransmits, 0);
	ck_assert_uint_eq(found.own.repeats, 0);
	ck_assert_uint_eq(found.engine.invalid, 0);
	ck_assert_uint_eq(found.own.led, 1 + (100000 * 4 + 1407) / 1408);
	world_close();
}
END_TEST

/*
 * A packet without data of another job, in the name of its rank, which is at the port of this
 * one's.
 */
static void
forge(const struct rig_leaders *other, uint16_t rank, uint32_t block)
{
	const uint16_t leader = fanin_canary_leader(block, other->n_ranks);
	struct fanin_headers headers = world_forge(rank, FANIN_TYPE_REDUCE, block, 0);

	headers.ip.dst_be = rig_host_ip_be(&world.network, other->hosts[leader]);
	fanin_wire_set_payload_len(&headers, 0);
	headers.fanin.key = other->leaf_jobs[0]->params.keys.up;
	headers.fanin.job = other->id;
	headers.fanin.epoch = RUN + 1;
	headers.fanin.members = UINT64_C(1) << rank;
	headers.fanin.flags = FANIN_FLAG_EMPTY;
	headers.fanin.dtype = FANIN_WIRE_I32;
	headers.fanin.op = FANIN_WIRE_SUM;
	headers.fanin.count = 1;
	if (leader != rank)
		world_send(rank, &headers);
}

static uint64_t
time_beside(const struct trial *trial, bool is_attacked)
{
	char error[PIPELINE_ERROR_LEN] = "";
	struct rig_leaders other;
	struct job_spec spec;
	uint64_t ns;

	open_world(trial);
	spec = world_spec();
	ck_assert_msg(rig_leaders_create(&world.network, &spec, NULL, trial->n_ranks, false, &other,
					 error) == 0,
		      "%s", error);
	for (uint32_t block = 0; is_attacked && block < 2 * trial->shared_slots; block++) {
		for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
			forge(&other, rank, block);
		world_pass(10000);
	}
	/* Their timers have expired, and no result comes. */
	world_pass(10 * MS);
	if (is_attacked)
		ck_assert_uint_ge(world_job_counter(other.leaf_jobs[0], CANARY_REDUCES),
				  trial->shared_slots);
	world_post_all(0, world_sum(200000));
	ns = world_run();
	for (uint16_t leaf = 0; leaf < trial->n_leaves; leaf++)
		ck_assert_uint_eq(world_job_counter(world.leaders[0].leaf_jobs[leaf],
						    CANARY_COLLISIONS),
				  0);
	rig_leaders_destroy(&other);
	world_close();
	return ns;
}

/*
 * By _i: the size of the table. All of it is as well as the forger's, but for what the other job
 * keeps.
 */
START_TEST(forged_blocks_of_another_job_take_no_descriptor_and_no_time)
{
	static const uint32_t descriptors[] = { 128, 256, 1024 };
	const struct trial trial = { .seed = 3,
				     .n_ranks = 8,
				     .n_leaves = 2,
				     .window = 64,
				     .shared_slots = descriptors[_i] };
	const uint64_t usual_ns = time_beside(&trial, false), ns = time_beside(&trial, true);

	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
}
END_TEST

static struct trial
trial_of(unsigned int i)
{
	static const uint16_t ranks[] = { 2, 4, 8, 16, 6, 32 };
	static const uint16_t leaves[] = { 1, 2, 4, 4, 3, 8 };
	static const double faults[] = { 0.01, 0.03, 0.1 };
	static const uint16_t windows[] = { 64, 16, 4, 256 };
	static const uint32_t descriptors[] = { 16, 64, 4096 };

	return (struct trial){
		.seed = i + 100,
		.n_ranks = ranks[i % 6],
		.n_leaves = leaves[i % 6],
		.n_spines = i % 6 == 0 ? 0 : 1 + i / 6 % 4,
		.window = windows[i / 3 % 4],
		.shared_slots = descriptors[i / 2 % 3],
		.faults = faults[i % 3],
	};
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = world_sum(30000);

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
				     .n_leaves = 2,
				     .window = 32,
				     .shared_slots = _i % 3 == 0 ? 16 : 1024,
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

static const struct trial usual = {
	.seed = 3, .n_ranks = 8, .n_leaves = 2, .window = 64, .shared_slots = 1024
};

/*
 * Which packets meet, and so the order of additions, differs from block to block, but not from rank
 * to rank.
 */
START_TEST(float_sums_have_the_same_bits_on_all_ranks)
{
	struct trial trial = usual;

	trial.faults = 0.02;
	trial.shared_slots = _i == 0 ? 16 : 1024;
	open_world(&trial);
	world_post_all(0, world_float_sum(50000));
	world_run();
	world_expect_equal_bits();
	world_close();
}
END_TEST

static bool
all_ready(void *user)
{
	struct fanin_error problem;

	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (!fanin_canary_ready(world_engine(rank), &problem))
			return false;
	}
	return true;
}

/* By _i: the rank. All others name it, at about the same time. */
START_TEST(a_rank_that_is_gone_is_named_by_all_others)
{
	struct trial trial = usual;
	uint64_t gone_ns;

	trial.faults = _i % 2 == 0 ? 0 : 0.01;
	open_world(&trial);
	world_post_all(0, world_sum(200000));
	ck_assert(world_wait(SECOND, all_ready, NULL));
	world_pass(2 * MS);
	world_kill((uint16_t)_i);
	gone_ns = world_now();
	ck_assert(world_wait(60 * SECOND, world_done, NULL));
	ck_assert_uint_le(world_now() - gone_ns, WORLD_TIMEOUT + WORLD_TIMEOUT / 4);
	world_expect_named((uint16_t)_i, "not answer");
	world_close();
}
END_TEST

/*
 * By _i: the late rank. It is later than the timeout, but alive: the others wait, and only ask now
 * and then.
 */
START_TEST(a_late_rank_is_waited_for)
{
	const struct perf_collective sum = world_sum(100000);
	const uint16_t late = (uint16_t)_i;
	struct found found;

	open_world(&usual);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		if (rank != late)
			world_post(rank, 0, sum);
	}
	world_pass(20 * SECOND);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		if (rank == late)
			continue;
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_IN_PROGRESS);
		ck_assert_uint_eq(world_late(rank), UINT64_C(1) << late);
	}
	found = totals();
	/* At most two a second and rank, and those while the intervals still grow. */
	ck_assert_uint_le(found.engine.queries + found.own.asks, 20 * 2 * 8 + 200);
	world_post(late, 0, sum);
	ck_assert_uint_le(world_run(), 200 * MS);
	world_close();
}
END_TEST

static bool
all_to_rank_3(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)hdr;
	return rank == 3;
}

/* All but this one have their results, or have failed. */
static bool
others_done(void *user)
{
	const uint16_t but = *(const uint16_t *)user;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (rank != but && !world.members[rank].taken[0] &&
		    world.members[rank].requests[0].status >= 0)
			return false;
	}
	return true;
}

static bool
all_have_sent(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (fanin_engine_stats(world_engine(rank))->blocks < 50)
			return false;
	}
	return true;
}

/*
 * Nobody else has anything in progress, as their applications compute: leaders answer all the same.
 */
START_TEST(the_last_results_to_one_rank_are_lost_and_all_others_compute)
{
	uint16_t deaf = 3;

	open_world(&usual);
	world_post_all(0, world_sum(20000)); /* 57 blocks */
	ck_assert(world_wait(SECOND, all_have_sent, NULL));
	world.loses = all_to_rank_3;
	ck_assert(world_wait(10 * SECOND, others_done, &deaf));
	world_pass(2 * SECOND);
	ck_assert(!world.members[deaf].taken[0]);
	world.loses = NULL;
	ck_assert_uint_le(world_run(), SECOND);
	world_close();
}
END_TEST

/* All switches forget what they know of the run, one after the other, in the middle of it. */
START_TEST(switches_that_forget_cost_time_only)
{
	struct trial trial = usual;
	char error[PIPELINE_ERROR_LEN];
	struct job_spec spec;

	trial.seed = (uint64_t)_i;
	open_world(&trial);
	spec = world_spec();
	world_post_all(0, world_sum(200000));
	ck_assert(world_wait(SECOND, all_ready, NULL));
	for (unsigned int i = 0; i < 4u; i++) {
		struct rig_switch *sw = i < 2 ? world.network.leaves[i]
					      : world.network.spines[i - 2];

		world_pass(700000 + 100000u * (unsigned int)_i);
		rig_job_remove(sw, world.leaders[0].id);
		world_pass(100000);
		ck_assert_int_eq(rig_leaders_restore(&world.leaders[0], &spec, i < 2, i % 2, error),
				 0);
	}
	ck_assert_uint_le(world_run(), SECOND);
	world_close();
}
END_TEST

/* A leaf dies in the middle of it, and comes back after a while. By _i: which one, and when. */
START_TEST(ranks_with_two_links_go_on_by_the_other_one)
{
	const struct perf_collective sum = world_sum(250000);
	const struct trial trial = { .seed = (uint64_t)_i,
				     .n_ranks = 8,
				     .n_leaves = 4,
				     .window = 64,
				     .shared_slots = 1024,
				     .has_pairs = true };
	struct rig_switch *leaf;
	uint64_t ns;

	open_world(&trial);
	world_post_all(0, sum);
	ck_assert(world_wait(SECOND, all_ready, NULL));
	world_pass(300000 * (uint64_t)(1 + _i / 4));
	leaf = world.network.leaves[_i % 4];
	rig_switch_kill(leaf, true);
	ns = world_run();
	ck_assert_msg(ns <= 300 * MS, "%lu ms", (unsigned long)(ns / MS));
	rig_switch_kill(leaf, false);
	world_post_all(1, sum);
	ck_assert_uint_le(world_run(), 500 * MS);
	rig_switch_kill(world.network.leaves[(_i + 1) % 4], true);
	world_post_all(2, sum);
	ck_assert_uint_le(world_run(), 500 * MS);
	rig_switch_kill(world.network.leaves[(_i + 1) % 4], false);
	world_close();
}
END_TEST

START_TEST(ranks_that_disagree_are_told)
{
	struct perf_collective sum = world_sum(10000);

	open_world(&usual);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		sum.data.op = rank == 5 ? FANIN_MAX : FANIN_SUM;
		world_post(rank, 0, sum);
	}
	ck_assert(world_wait(SECOND, world_done, NULL));
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		const struct fanin_error *error = fanin_engine_error(world_engine(rank));

		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		/* Two shapes differ, and nobody knows which one is wrong. */
		ck_assert_msg(fanin_ranks_has(&error->missing, 5) &&
				      fanin_ranks_count(&error->missing) <= 2,
			      "%s", error->text);
		ck_assert(strstr(error->text, "posted another collective") != NULL);
	}
	world_close();
}
END_TEST

/*
 * The last rank is missing; then another process of rank 1 takes part in the roll instead of the
 * first one.
 */
START_TEST(a_run_begins_when_all_have_called_and_with_those_that_are_there)
{
	const uint16_t last = usual.n_ranks - 1;
	struct fanin_error problem;

	open_world(&usual);
	world_leave(last);
	world_pass(10 * SECOND);
	for (uint16_t rank = 0; rank < last; rank++) {
		ck_assert(!fanin_canary_ready(world_engine(rank), &problem));
		ck_assert_msg(strcmp(problem.text, "rank 7 did not answer rank 0's roll") == 0,
			      "%s", problem.text);
	}
	begin_anew(1, 999);
	begin_anew(last, 107);
	ck_assert(world_wait(SECOND, all_ready, NULL));
	world_post_all(0, world_sum(1000));
	world_run();
	/* One more process of that rank is none of the run's. */
	begin_anew(1, 1000);
	world_pass(SECOND);
	ck_assert(!fanin_canary_ready(world_engine(1), &problem));
	world_close();
}
END_TEST

START_TEST(without_rank_0_it_is_named)
{
	struct fanin_error problem;

	open_world(&usual);
	world_leave(0);
	world_pass(SECOND);
	ck_assert(!fanin_canary_ready(world_engine(1), &problem));
	ck_assert(strstr(problem.text, "rank 0, which calls the roll, does not answer") != NULL);
	begin_anew(0, 100);
	ck_assert(world_wait(SECOND, all_ready, NULL));
	world_close();
}
END_TEST

static const struct perf_collective barrier = { .kind = PERF_BARRIER,
						.data = { .dtype = FANIN_U8, .op = FANIN_BOR } };

/* The ranks leave together: the leader of the last block when all have told. */
START_TEST(ranks_leave_when_all_have_all_results)
{
	unsigned int n_waiting = 0;

	open_world(&usual);
	world_post_all(0, world_sum(10000));
	world_run();
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		ck_assert(world.protocol->on_switch->peers_may_need_results(world_engine(rank)));
	world_post_all(1, barrier);
	world_run();
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		n_waiting += !fanin_canary_say_bye(fanin_engine_of(world_engine(rank)));
	ck_assert_uint_eq(n_waiting, 1);
	world_pass(MS);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		ck_assert(fanin_canary_say_bye(fanin_engine_of(world_engine(rank))));
	world_close();
}
END_TEST

/* Descriptors wait for long, as their operator wants it: ranks know that, and don't ask before. */
START_TEST(long_timeouts_make_nobody_ask)
{
	struct trial trial = usual;
	struct found found;

	trial.timeout_us = _i == 0 ? 2000 : 5000;
	open_world(&trial);
	for (uint32_t r = 0; r < 2; r++) {
		world_post_all(r, world_sum(100000));
		world_run();
	}
	found = totals();
	ck_assert_msg(found.engine.queries == 0 && found.own.asks == 0,
		      "%lu queries, %lu asks, %lu retransmits", (unsigned long)found.engine.queries,
		      (unsigned long)found.own.asks, (unsigned long)found.engine.retransmits);
	world_close();
}
END_TEST

/*
 * By _i: round trips of 12, 100 and 400 ms. Hosts ask little before they know the round trip, and
 * nothing afterwards.
 */
START_TEST(long_round_trips_are_learned)
{
	static const uint64_t delays_ns[] = { 3 * MS, 25 * MS, 100 * MS };
	const struct perf_collective sum = world_sum(100000);
	struct trial trial = usual;
	struct found first, found;

	trial.host_delay_ns = delays_ns[_i];
	open_world(&trial);
	world_post_all(0, sum);
	world_run();
	first = totals();
	ck_assert_uint_le(first.engine.queries + first.own.asks, first.own.led);
	for (uint32_t r = 1; r < 3; r++) {
		world_post_all(r, sum);
		world_run();
	}
	found = totals();
	ck_assert_msg(found.engine.queries == first.engine.queries &&
			      found.own.asks == first.own.asks,
		      "%lu and %lu queries, %lu and %lu asks", (unsigned long)first.engine.queries,
		      (unsigned long)found.engine.queries, (unsigned long)first.own.asks,
		      (unsigned long)found.own.asks);
	world_close();
}
END_TEST

static bool
the_first_word_of_rank_3_to_rank_2(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 2 && hdr->type == FANIN_TYPE_ANSWER && hdr->rank == 3 &&
	       (hdr->block & 7) == 3;
}

/* A rank has failed, as it waits for these. */
static void
expect_missing(uint16_t rank, uint64_t missing)
{
	ck_assert_int_lt(world.members[rank].requests[0].status, 0);
	ck_assert_msg(world_missing(rank) == missing, "rank %u: %s", rank, world_error(rank));
}

/*
 * Rank 3 does not wait for rank 0 any longer. Rank 2 does not hear that, and asks rank 1, which
 * leads the block.
 */
START_TEST(ranks_that_missed_the_end_learn_it_from_others)
{
	const struct perf_collective sum = world_sum(100000);
	uint16_t late = 0;
	uint64_t begin_ns;

	open_world(&usual);
	fanin_engine_of(world_engine(3))->config.wait_limit_ns = 2 * SECOND;
	world.loses = the_first_word_of_rank_3_to_rank_2;
	for (uint16_t rank = 1; rank < usual.n_ranks; rank++)
		world_post(rank, 0, sum);
	begin_ns = world_now();
	ck_assert(world_wait(20 * SECOND, others_done, &late));
	ck_assert_uint_le(world_now() - begin_ns, 3 * SECOND);
	for (uint16_t rank = 1; rank < usual.n_ranks; rank++)
		expect_missing(rank, rank == 3 ? 1 : 1 << 3);
	world_close();
}
END_TEST

/* Alone there is nobody to wait for. */
START_TEST(one_rank_leaves_at_once)
{
	open_world(&quiet_trials[0]);
	world_post_all(0, barrier);
	world_run();
	ck_assert(fanin_canary_say_bye(fanin_engine_of(world_engine(0))));
	world_close();
}
END_TEST

static const struct trial odd_trials[] = {
	{ .n_ranks = 64, .n_leaves = 8, .n_spines = 2, .window = 2, .shared_slots = 64 },
	{ .n_ranks = 64, .n_leaves = 8, .n_spines = 2, .window = 64, .shared_slots = 16 },
	{ .n_ranks = 3, .n_leaves = 3, .n_spines = 2, .window = 2, .shared_slots = 16 },
	{ .n_ranks = 7, .n_leaves = 1, .window = 2, .shared_slots = 16 },
	{ .n_ranks = 2, .n_leaves = 2, .n_spines = 1, .window = 2, .shared_slots = 1024 },
	{ .n_ranks = 15, .n_leaves = 5, .n_spines = 3, .window = 8, .shared_slots = 16 },
};

/* More ranks than blocks in flight, and numbers of ranks that are no power of two. */
START_TEST(windows_may_be_smaller_than_the_job)
{
	struct trial trial = odd_trials[_i / 2];
	struct perf_collective like = world_sum(8000);

	trial.seed = (uint64_t)_i + 500;
	trial.faults = _i % 2 == 0 ? 0.05 : 0;
	open_world(&trial);
	for (uint32_t r = 0; r < 3; r++) {
		world_post_all(r, like);
		like.count = 700;
	}
	world_run();
	world_close();
}
END_TEST

static bool
half_of_results(uint16_t rank, const struct fanin_hdr *hdr)
{
	static uint32_t n;

	return rank % 2 == 1 && (hdr->type == FANIN_TYPE_RESULT || hdr->type == FANIN_TYPE_ANSWER ||
				 (hdr->type == FANIN_TYPE_REPEAT && ++n % 2 == 0));
}

static bool
large_packets_to_rank_3(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 3 && world_frame_of(hdr).len > FANIN_PAYLOAD_OFFSET + 200;
}

START_TEST(results_come_by_repetition_alone)
{
	open_world(&usual);
	world.loses = half_of_results;
	world_post_all(0, world_sum(20000));
	world_run();
	world_close();
}
END_TEST

/* It has no results, although all others answer it: it goes, and they name it. */
START_TEST(a_rank_that_large_packets_never_reach_is_named)
{
	uint64_t begin_ns;

	open_world(&usual);
	world.loses = large_packets_to_rank_3;
	begin_ns = world_now();
	world_post_all(0, world_sum(20000));
	ck_assert(world_wait(60 * SECOND, world_done, NULL));
	ck_assert_uint_le(world_now() - begin_ns, WORLD_TIMEOUT + WORLD_TIMEOUT / 4);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		expect_missing(rank, rank == 3 ? 0 : 1 << 3);
	world_close();
}
END_TEST

/* The leader has its own result, and waits for nothing. */
START_TEST(a_result_leaves_as_soon_as_there_is_room)
{
	const struct trial trial = {
		.n_ranks = 2, .n_leaves = 1, .window = 16, .shared_slots = 64
	};
	const struct perf_collective sum = world_sum(10);

	open_world(&trial);
	ck_assert(world_wait(SECOND, all_ready, NULL));
	world_post(0, 0, sum);
	world_pass(MS / 2);
	/* Rank 1 leads block 1. */
	world.members[1].is_full = true;
	world_post(1, 0, sum);
	world_pass(MS / 2);
	ck_assert(world.members[1].taken[0]);
	ck_assert(!world.members[0].taken[0]);
	world.members[1].is_full = false;
	world_pass(MS / 2);
	ck_assert(world.members[0].taken[0]);
	ck_assert_uint_eq(totals().engine.queries, 0);
	world_close();
}
END_TEST

/* A result waits behind no more data than keeps the link busy. */
START_TEST(data_is_held_back_behind_a_queue_and_results_are_not)
{
	const struct trial trial = {
		.n_ranks = 2, .n_leaves = 1, .window = 128, .shared_slots = 512
	};
	const struct perf_collective sum = world_sum(21000); /* 60 blocks */
	uint64_t blocks;

	open_world(&trial);
	ck_assert(world_wait(SECOND, all_ready, NULL));
	blocks = fanin_engine_stats(world_engine(0))->blocks;
	world.members[1].n_waiting = 1000;
	world_post(1, 0, sum);
	world_pass(MS / 2);
	world_post(0, 0, sum);
	world_pass(2 * MS);
	/* Rank 1 leads every second one of 60 blocks, and has sent data of some 24. */
	blocks = fanin_engine_stats(world_engine(0))->blocks - blocks;
	ck_assert_uint_ge(blocks, 30);
	ck_assert_uint_lt(blocks, 60);
	ck_assert(!world.members[1].taken[0]);
	world.members[1].n_waiting = 0;
	world_pass(MS);
	ck_assert(world.members[0].taken[0] && world.members[1].taken[0]);
	ck_assert_uint_eq(totals().engine.queries, 0);
	world_close();
}
END_TEST

Suite *
suite_canary_hosts(void)
{
	Suite *suite = suite_create("canary_hosts");
	TCase *tcase = tcase_create("canary_hosts"), *forgers = tcase_create("forgers");

	tcase_set_timeout(tcase, 120);
	tcase_set_timeout(forgers, 120);
	tcase_add_loop_test(forgers, forged_blocks_of_another_job_take_no_descriptor_and_no_time, 0,
			    3);
	tcase_add_loop_test(tcase, without_loss_nobody_asks, 0, RTE_DIM(quiet_trials));
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 36);
	tcase_add_loop_test(tcase, all_collectives_and_operators_are_exact, FANIN_I8,
			    FANIN_F64 + 1);
	tcase_add_loop_test(tcase, float_sums_have_the_same_bits_on_all_ranks, 0, 2);
	tcase_add_loop_test(tcase, a_rank_that_is_gone_is_named_by_all_others, 0, 8);
	tcase_add_loop_test(tcase, a_late_rank_is_waited_for, 0, 8);
	tcase_add_test(tcase, the_last_results_to_one_rank_are_lost_and_all_others_compute);
	tcase_add_loop_test(tcase, switches_that_forget_cost_time_only, 0, 8);
	tcase_add_loop_test(tcase, ranks_with_two_links_go_on_by_the_other_one, 0, 16);
	tcase_add_test(tcase, a_result_leaves_as_soon_as_there_is_room);
	tcase_add_test(tcase, data_is_held_back_behind_a_queue_and_results_are_not);
	tcase_add_test(tcase, ranks_that_disagree_are_told);
	tcase_add_test(tcase, a_run_begins_when_all_have_called_and_with_those_that_are_there);
	tcase_add_test(tcase, without_rank_0_it_is_named);
	tcase_add_test(tcase, ranks_leave_when_all_have_all_results);
	tcase_add_loop_test(tcase, long_timeouts_make_nobody_ask, 0, 2);
	tcase_add_loop_test(tcase, long_round_trips_are_learned, 0, 3);
	tcase_add_test(tcase, ranks_that_missed_the_end_learn_it_from_others);
	tcase_add_test(tcase, one_rank_leaves_at_once);
	tcase_add_loop_test(tcase, windows_may_be_smaller_than_the_job, 0, 2 * RTE_DIM(odd_trials));
	tcase_add_test(tcase, results_come_by_repetition_alone);
	tcase_add_test(tcase, a_rank_that_large_packets_never_reach_is_named);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, forgers);
	return suite;
}
