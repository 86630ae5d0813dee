/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push reductions in one process and in virtual time: real engines around real switches. Results
 * are exact and the same bits on all ranks whatever is lost, doubled or reordered on any link,
 * however small the tables are; where nothing is lost or evicted, nobody asks.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "protocols/push/switch/push.h"
#include "protocols/push/host/push_internal.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"

struct found {
	struct fanin_push_stats own;
	struct fanin_engine_stats engine;
};

static struct found
totals(void)
{
	struct found sum = { 0 };

	for (uint16_t i = 0; i < world.n_members; i++) {
		world_add(&sum.own, fanin_push_stats(world_engine(i)), sizeof(sum.own));
		world_add(&sum.engine, fanin_engine_stats(world_engine(i)), sizeof(sum.engine));
	}
	return sum;
}

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.handler = "push";
	opened.host_mbit = 1000;
	world_open(&opened);
}

/* Nobody who is true is ever refused as ahead of what it can have sent. */
static void
close_world(void)
{
	ck_assert_uint_eq(world_drops(FANIN_REASON_BLOCK_WINDOW), 0);
	world_close();
}

/* ------------------------------------------------------------------ without loss */

static const uint16_t sizes_of_jobs[] = { 2, 3, 8, 16 };

static uint16_t
leaves_of(uint16_t n_ranks, bool wants_tree)
{
	return !wants_tree || n_ranks == 3 ? 1 : n_ranks == 16 ? 4 : 2;
}

START_TEST(without_loss_and_eviction_nobody_asks)
{
	const uint16_t n_ranks = sizes_of_jobs[_i % 4];
	const struct trial trial = { .seed = 1,
				     .n_ranks = n_ranks,
				     .n_leaves = leaves_of(n_ranks, _i >= 4),
				     .window = 64,
				     .entries = 4096 };
	struct found found;

	open_world(&trial);
	world_post_all(0, world_sum(100000));
	world_run();
	found = totals();
	ck_assert_uint_eq(found.engine.blocks, n_ranks * ((100000u * 4 + 1407) / 1408));
	ck_assert_uint_eq(found.engine.queries, 0);
	ck_assert_uint_eq(found.engine.invalid, 0);
	ck_assert_uint_eq(found.engine.duplicates, 0);
	ck_assert_uint_eq(found.own.made, 0);
	ck_assert_uint_eq(found.own.asks, 0);
	ck_assert_uint_eq(found.own.repeats, 0);
	close_world();
}
END_TEST

START_TEST(without_loss_what_is_evicted_comes_to_home_hosts_and_nobody_asks)
{
	const struct trial trial = { .seed = 1,
				     .n_ranks = 8,
				     .n_leaves = 2,
				     .window = 64,
				     .entries = 4,
				     .waves = 16,
				     .wave_blocks = 4 };
	struct found found;

	open_world(&trial);
	world_post_all(0, world_sum(100000));
	/* Ranks that are apart keep many blocks open. */
	for (uint16_t rank = 0; rank < 8; rank++)
		rig_host_pause(world.members[rank].host, rank * MS / 4);
	world_run();
	found = totals();
	ck_assert_uint_ge(found.own.made, 50);
	ck_assert_uint_ge(found.own.merged, found.own.made);
	ck_assert_uint_eq(found.own.answered, 0);
	ck_assert_uint_eq(found.engine.invalid, 0);
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ loss */

static struct trial
trial_of(unsigned int i)
{
	static const uint32_t entries[] = { 4, 64, 4096 };
	static const double faults[] = { 0.02, 0.1, 0 };
	static const uint16_t windows[] = { 64, 16, 4, 256 };
	static const uint32_t waves[] = { 0, 1, 4, 16, 64 };
	static const uint32_t wave_blocks[] = { 0, 0, 1, 4 };
	const uint16_t n_ranks = sizes_of_jobs[i % 4];

	return (struct trial){
		.seed = i + 100,
		.n_ranks = n_ranks,
		.n_leaves = leaves_of(n_ranks, i / 4 % 2 != 0),
		.window = windows[i / 3 % 4],
		.entries = entries[i / 2 % 3],
		.timeout_us = i % 7 == 0 ? 20 : 0,
		.waves = waves[i % 5],
		.wave_blocks = wave_blocks[i / 5 % 4],
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
	world_expect_equal_bits();
	close_world();
}
END_TEST

/*
 * By _i: the data type. All operators, and all collectives, in a network that loses, with tables of
 * all sizes.
 */
START_TEST(all_collectives_and_operators_are_exact)
{
	static const uint32_t entries[] = { 4, 64, 4096 };
	struct trial trial = { .seed = (uint64_t)_i, .n_ranks = 4, .n_leaves = 2, .window = 32 };
	struct perf_collective like;

	for (unsigned int n = 0; world_collective((enum fanin_dtype)_i, n, &like); n++) {
		trial.seed++;
		trial.entries = entries[(unsigned int)(trial.seed + like.data.op) % 3];
		trial.faults = trial.seed % 2 == 0 ? 0.02 : 0.1;
		trial.timeout_us = trial.seed % 3 == 0 ? 10 : 0;
		open_world(&trial);
		world_post_all(0, like);
		world_run();
		close_world();
	}
}
END_TEST

/* Their order is another one for each block, in the table and at home hosts. */
START_TEST(float_sums_have_the_same_bits_on_all_ranks)
{
	struct trial trial = trial_of((unsigned int)_i * 3 + 1);

	trial.entries = _i % 2 == 0 ? 4 : 64;
	open_world(&trial);
	world_post_all(0, world_float_sum(30000));
	world_run();
	world_expect_equal_bits();
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ what may happen to a block */

static struct trial
usual_trial(void)
{
	return (struct trial){
		.seed = 5, .n_ranks = 4, .n_leaves = 2, .window = 16, .entries = 64
	};
}

static bool
loses_results(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 2 && hdr->type == FANIN_TYPE_RESULT;
}

static bool
loses_all_results(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_RESULT;
}

START_TEST(ranks_that_lost_a_result_get_it_from_the_home_host)
{
	struct trial trial = usual_trial();
	struct found found;

	/* Nothing leaves the table while a rank asks. */
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.loses = loses_results;
	world_post_all(0, world_sum(10000));
	world_run();
	found = totals();
	ck_assert_uint_ge(found.own.repeats, 1);
	ck_assert_uint_eq(found.own.made, 0);
	world_expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_all_at_first(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 2 && hdr->type == FANIN_TYPE_RESULT && hdr->block >= 16 && hdr->block < 80;
}

/*
 * Once the window has gone beyond them, which is after the first ones, they are overtaken, and
 * asked for together.
 */
START_TEST(many_blocks_lost_in_a_row_are_asked_for_together)
{
	struct trial trial = usual_trial();
	uint64_t us;

	trial.window = 64;
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.loses = loses_all_at_first;
	world_post_all(0, world_sum(40000));
	us = world_run() / 1000;
	ck_assert_msg(us < 160000, "found %lu us", (unsigned long)us);
	world_expect_equal_bits();
	close_world();
}
END_TEST

START_TEST(a_result_that_all_have_lost_is_made_again_by_the_home_host_and_taken_by_all)
{
	const struct trial trial = usual_trial();
	struct found found;

	open_world(&trial);
	world.loses = loses_all_results;
	world_post_all(0, world_float_sum(10000));
	world_run();
	found = totals();
	ck_assert_uint_eq(found.own.made, found.engine.blocks / trial.n_ranks);
	world_expect_equal_bits();
	close_world();
}
END_TEST

/* Results for rank 1 that are held back until it has given its data to the block's home host. */
static struct world_frame held[64];

static bool
holds_results(uint16_t rank, const struct fanin_hdr *hdr)
{
	if (hdr->type != FANIN_TYPE_RESULT)
		return false;
	if (rank == 1)
		held[hdr->block % RTE_DIM(held)] = world_frame_of(hdr);
	return true;
}

static bool
frees_results(uint16_t rank, const struct fanin_hdr *hdr)
{
	const struct world_frame *one = &held[hdr->block % RTE_DIM(held)];

	if (rank == 1 && hdr->type == FANIN_TYPE_UNICAST &&
	    (hdr->number & 0xff) == FANIN_PUSH_DATA && one->len != 0 &&
	    ((const struct fanin_headers *)one->bytes)->fanin.block == hdr->block)
		world_give(1, one);
	return false;
}

START_TEST(a_rank_that_has_given_its_data_away_takes_no_result_of_the_table)
{
	const struct trial trial = usual_trial();

	open_world(&trial);
	memset(held, 0, sizeof(held));
	world.loses = holds_results;
	world.keeps = frees_results;
	world_post_all(0, world_float_sum(10000));
	world_run();
	ck_assert_uint_ge(fanin_push_stats(world_engine(1))->ignored, 10);
	world_expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_to_homes(uint16_t rank, const struct fanin_hdr *hdr)
{
	return hdr->type == FANIN_TYPE_RESULT && rank == fanin_push_home(hdr->block, 4);
}

START_TEST(a_home_host_that_has_lost_a_result_gets_it_from_ranks)
{
	struct trial trial = usual_trial();
	struct found found;

	/* Nothing leaves the table while a rank asks. */
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.loses = loses_to_homes;
	world_post_all(0, world_float_sum(10000));
	world_run();
	found = totals();
	ck_assert_uint_eq(found.own.made, 0);
	ck_assert_uint_ge(found.own.asks, 1);
	ck_assert_uint_ge(found.own.repeats, 1);
	world_expect_equal_bits();
	close_world();
}
END_TEST

/* Rank 1 is later than the others with every second block, and in time with the next one. */
static bool
holds_even_blocks(uint16_t rank, const struct fanin_hdr *hdr)
{
	if (rank == 1 && hdr->type == FANIN_TYPE_CONTRIBUTION && hdr->block % 2 == 0)
		rig_host_pause(world.members[1].host, MS / 5);
	return false;
}

START_TEST(every_second_block_is_evicted_and_made_by_its_home_host)
{
	struct trial trial = usual_trial();
	struct found found;

	trial.n_leaves = 1;
	trial.entries = 1;
	trial.waves = 2;
	trial.wave_blocks = 1;
	open_world(&trial);
	world.keeps = holds_even_blocks;
	world_post_all(0, world_sum(50000));
	world_run();
	found = totals();
	ck_assert_uint_ge(found.own.made, found.engine.blocks / trial.n_ranks / 3);
	ck_assert_uint_le(found.own.made, found.engine.blocks / trial.n_ranks * 2 / 3);
	ck_assert_uint_eq(found.own.answered, 0);
	close_world();
}
END_TEST

/* The contribution of rank 1 that the test sends once more is one to this block. */
static uint32_t kept_block;

static bool
keeps_block(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 1 && hdr->type == FANIN_TYPE_CONTRIBUTION && hdr->block == kept_block;
}

static bool
is_at_next_use(void *user)
{
	(void)user;
	return fanin_engine_of(world_engine(0))->oldest >= kept_block + 2 * world.trial.window - 1;
}

START_TEST(a_late_duplicate_of_the_last_use_of_a_slot_changes_nothing)
{
	struct trial trial = usual_trial();

	for (kept_block = 0; kept_block < 40; kept_block += 13) {
		trial.entries = kept_block % 2 == 0 ? 4 : 64;
		open_world(&trial);
		world.keeps = keeps_block;
		world_post_all(0, world_sum(50000));
		ck_assert(world_wait(10 * SECOND, is_at_next_use, NULL));
		ck_assert_uint_ne(world.members[1].n_kept, 0);
		for (unsigned int i = 0; i < 3; i++)
			world_repeat(1);
		world_run();
		close_world();
	}
}
END_TEST

/*
 * An EMPTY contribution, or a question of the home host, for each slot of the root, in the name of
 * rank 1, from this block on. Returns how many there are.
 */
static uint32_t
forge_all(enum fanin_type type, uint32_t first)
{
	uint32_t n = 0;

	for (uint32_t block = first; block != first + 2 * world.trial.window; block++) {
		struct fanin_headers headers = world_forge(1, type, block, 0);

		if (type == FANIN_TYPE_QUERY) {
			headers.fanin.flags = FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT;
			headers.fanin.number = block | 1;
			if (block % world.trial.n_ranks != 1)
				continue;
		} else {
			headers.fanin.flags = FANIN_FLAG_EMPTY;
			headers.fanin.dtype = FANIN_WIRE_I32;
			headers.fanin.op = FANIN_WIRE_SUM;
			headers.fanin.count = 1;
		}
		world_send(1, &headers);
		n++;
	}
	return n;
}

/*
 * Whoever has the key and is behind a rank's port: one packet for each slot, which would be lost to
 * the table for long. By _i: 0 to 2 data 2^20 blocks ahead, past the half of all numbers, and step
 * by step; 3 and 4 questions of the home host. Odd: over two levels.
 */
START_TEST(blocks_far_ahead_take_nothing_from_others)
{
	static const uint32_t firsts[] = { 1u << 20, (1u << 31) + 64, 256, 1u << 20,
					   (1u << 31) + 64 };
	const enum fanin_type type = _i % 5 < 3 ? FANIN_TYPE_CONTRIBUTION : FANIN_TYPE_QUERY;
	const uint32_t first = firsts[_i % 5];
	const struct perf_collective sum = world_sum(200000);
	struct trial trial = usual_trial();
	uint64_t usual_ns, ns;
	uint32_t n_forged;
	struct found found;

	trial.window = 64;
	trial.entries = 64;
	trial.n_leaves = (uint16_t)(1 + _i / 5);
	open_world(&trial);
	world_post_all(0, sum);
	usual_ns = world_run();
	close_world();

	open_world(&trial);
	world_post_all(0, sum);
	world_pass(MS);
	n_forged = forge_all(type, first);
	ns = MS + world_run();
	found = totals();
	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
	ck_assert_uint_ge(world_drops(FANIN_REASON_BLOCK_WINDOW) +
				  world_drops(FANIN_REASON_BLOCK_STALE),
			  n_forged / 2);
	/* Who is spoken for is told, and goes on. */
	if (first < 1u << 31)
		ck_assert_uint_gt(found.engine.invalid, 0);
	world_close();
}
END_TEST

START_TEST(a_home_host_that_is_deaf_for_a_while_is_waited_for)
{
	struct trial trial = usual_trial();

	trial.entries = 4;
	trial.faults = 0.05;
	open_world(&trial);
	world_post_all(0, world_sum(20000));
	world_pass(2 * MS);
	world_leave(3);
	world_pass(2 * SECOND);
	world_return(3);
	world_run();
	close_world();
}
END_TEST

/* Away is for 50 ms, after each about 10 ms there, and each rank at its own times. */
static void
ranks_come_and_go(struct random *random)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const bool is_away = world.members[rank].is_away;

		if (random_below(random, is_away ? 50 : 10) == 0)
			(is_away ? world_return : world_leave)(rank);
	}
}

/*
 * Tables' entries time out meanwhile, and home hosts are away. What is not lost is hardly asked
 * for.
 */
START_TEST(ranks_that_come_and_go_are_waited_for_and_hardly_asked)
{
	struct trial trial = usual_trial();
	struct random random = random_seed(40 + (uint64_t)_i);
	uint64_t begin_ns, ms;
	struct found found;

	trial.window = 128;
	trial.entries = 16;
	trial.faults = _i % 2 == 0 ? 0 : 0.005;
	open_world(&trial);
	begin_ns = world_now();
	world_post_all(0, world_sum(250000));
	while (!world_done(NULL)) {
		ranks_come_and_go(&random);
		world_wait(MS, world_done, NULL);
		ck_assert_uint_lt(world_now() - begin_ns, 60 * SECOND);
	}
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		world.members[rank].is_away = false;
	ms = (world_now() - begin_ns) / MS;
	found = totals();
	ck_assert_msg(ms < (trial.faults == 0 ? 8000 : 40000), "found %lu ms", (unsigned long)ms);
	ck_assert_uint_lt(found.engine.queries, found.engine.blocks / 2);
	ck_assert_uint_lt(found.own.asks, found.engine.blocks / 10);
	world_expect_equal_bits();
	close_world();
}
END_TEST

/* Its application computes, and its library answers. */
START_TEST(a_rank_that_is_late_is_waited_for)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = world_sum(20000);

	trial.faults = _i == 0 ? 0 : 0.02;
	open_world(&trial);
	for (uint16_t rank = 0; rank < 3; rank++)
		world_post(rank, 0, sum);
	world_pass(20 * SECOND);
	for (uint16_t rank = 0; rank < 3; rank++) {
		ck_assert_msg(world.members[rank].requests[0].status == FANIN_IN_PROGRESS, "%s",
			      world_error(rank));
		ck_assert_uint_eq(world_late(rank), 8);
	}
	/* Each second some questions about the oldest block, and no more. */
	ck_assert_uint_le(totals().engine.queries, 1500);
	ck_assert_uint_eq(totals().own.answered, 0);
	world_post(3, 0, sum);
	world_run();
	close_world();
}
END_TEST

/* By _i: the rank. It is home to blocks, too. */
START_TEST(a_rank_that_dies_is_named_by_all_within_the_timeout)
{
	struct trial trial = usual_trial();

	trial.faults = 0.02;
	trial.entries = 4;
	open_world(&trial);
	world_post_all(0, world_sum(200000));
	world_pass(2 * MS);
	world_kill(_i);
	ck_assert(world_wait(8 * SECOND, world_done, NULL));
	world_expect_named((uint16_t)_i, "not answer");
	close_world();
}
END_TEST

/*
 * All have sent the block, and what has left the table is lost with the data of the rank that dies.
 */
static bool
loses_data_of_3(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_EVICTED ||
	       (hdr->type == FANIN_TYPE_UNICAST_DELIVERY && hdr->members == 3);
}

START_TEST(a_rank_that_dies_after_it_has_sent_a_block_is_named)
{
	struct trial trial = usual_trial();

	trial.timeout_us = 10;
	open_world(&trial);
	world.loses = loses_data_of_3;
	world_post_all(0, world_sum(100));
	rig_host_pause(world.members[0].host, 10 * MS);
	world_pass(20 * MS);
	world_kill(3);
	ck_assert(world_wait(8 * SECOND, world_done, NULL));
	world_expect_named(3, "not answer");
	close_world();
}
END_TEST

/* By _i: of which rank the collective is another one. */
START_TEST(ranks_that_disagree_fail_all_and_none_hangs)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = world_sum(10000);
	struct perf_collective other = sum;

	trial.entries = 1;
	trial.timeout_us = 10;
	other.data.op = FANIN_MAX;
	open_world(&trial);
	for (uint16_t rank = 0; rank < 4; rank++)
		world_post(rank, 0, rank == _i ? other : sum);
	ck_assert(world_wait(20 * SECOND, world_done, NULL));
	for (uint16_t rank = 0; rank < 4; rank++)
		ck_assert_int_lt(world.members[rank].requests[0].status, 0);
	close_world();
}
END_TEST

START_TEST(jobs_that_share_switches_keep_apart)
{
	struct trial trial = usual_trial();

	trial.n_jobs = 2;
	trial.entries = 8;
	trial.faults = 0.03;
	open_world(&trial);
	world_post_all(0, world_sum(30000));
	world_run();
	world_expect_equal_bits();
	close_world();
}
END_TEST

/* A rank that has its last result tells the home host, which goes once all have. */
static bool
all_gone(void *user)
{
	bool all = true;

	(void)user;
	for (uint16_t i = 0; i < world.n_members; i++)
		all &= fanin_push_say_bye(fanin_engine_of(world_engine(i)));
	return all;
}

START_TEST(a_run_ends_when_all_have_its_last_result)
{
	struct trial trial = usual_trial();
	struct perf_collective barrier = { .kind = PERF_BARRIER,
					   .data = { .dtype = FANIN_U8, .op = FANIN_BOR } };

	trial.faults = 0.1;
	for (trial.seed = 1; trial.seed <= 10; trial.seed++) {
		open_world(&trial);
		world_post_all(0, barrier);
		/* Nobody goes before it has the result. */
		world_run();
		ck_assert(world_wait(SECOND, all_gone, NULL));
		close_world();
	}
}
END_TEST

START_TEST(a_job_that_accumulates_in_a_longer_type_is_refused_by_name)
{
	const struct trial trial = {
		.seed = 1, .n_ranks = 2, .n_leaves = 1, .window = 16, .entries = 4
	};
	const struct job_spec spec = { .handler = "push", .slots = 32, .wide = true };
	char error[PIPELINE_ERROR_LEN] = "";
	struct rig_job refused;

	open_world(&trial);
	ck_assert_int_eq(rig_job_create_on(&world.network, &spec, world.hosts[0], 2, 0, &refused,
					   error),
			 -EINVAL);
	ck_assert_str_eq(error,
			 "found accumulate \"f32\" for a job of \"push\", expected \"native\"");
	close_world();
}
END_TEST

START_TEST(a_job_of_more_than_64_ranks_is_refused_by_hosts)
{
	const struct fanin_protocol_config config = { .size = 65, .rank = 0, .window = 16 };
	struct fanin_error error = { 0 };
	struct fanin_endpoint *engine = NULL;
	char reason[256];
	const struct fanin_protocol *push = fanin_protocol_of("push", reason, sizeof(reason));

	ck_assert_ptr_nonnull(push);
	ck_assert_int_eq(push->open(push, &config, &engine, &error), FANIN_ERR_UNSUPPORTED);
	ck_assert_str_eq(error.text,
			 "the job has 65 ranks, jobs of the handler push have 64 at most");
	ck_assert_ptr_null(engine);
}
END_TEST

/* Some ranks have results that others lack. */
START_TEST(unfinished_blocks_of_a_run_complete_in_the_next_one)
{
	struct trial trial = trial_of((unsigned int)_i);

	trial.window = 64;
	trial.entries = _i % 2 == 0 ? 4 : 64;
	open_world(&trial);
	world_post_all(0, world_float_sum(30000));
	world_pass((uint64_t)(1 + _i) * MS / 2);
	world_lose_run(0);
	world_run();
	world_expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_results_but_of_1(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank != 1 && hdr->type == FANIN_TYPE_RESULT;
}

static bool
has_part_at_home(void *user)
{
	(void)user;
	return fanin_push_stats(world_engine(0))->merged == 1;
}

/*
 * Rank 0 has the data of rank 1 from a run that is lost. In the next one the table makes the
 * result, which rank 1 alone gets: rank 0 has to ask it, too, and would make another one of what it
 * had.
 */
START_TEST(a_home_host_makes_nothing_of_sums_of_an_earlier_run)
{
	struct trial trial = usual_trial();
	struct perf_collective sum = world_float_sum(300);

	trial.n_leaves = 1;
	trial.timeout_us = 10;
	open_world(&trial);
	world_post(0, 0, sum);
	world_post(1, 0, sum);
	rig_host_pause(world.members[0].host, SECOND / 100);
	ck_assert(world_wait(5 * MS, has_part_at_home, NULL));
	world_post(2, 0, sum);
	world_post(3, 0, sum);
	world_lose_run(0);
	world.loses = loses_results_but_of_1;
	world_run();
	ck_assert_uint_eq(totals().own.made, 0);
	world_expect_equal_bits();
	close_world();
}
END_TEST

Suite *
suite_push_hosts(void)
{
	Suite *suite = suite_create("push_hosts");
	TCase *exact = tcase_create("exact"), *tcase = tcase_create("blocks");

	tcase_set_timeout(exact, 240);
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, without_loss_and_eviction_nobody_asks, 0, 8);
	tcase_add_test(tcase, without_loss_what_is_evicted_comes_to_home_hosts_and_nobody_asks);
	tcase_add_loop_test(exact, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 60);
	tcase_add_loop_test(exact, all_collectives_and_operators_are_exact, FANIN_I8,
			    FANIN_F64 + 1);
	tcase_add_loop_test(exact, float_sums_have_the_same_bits_on_all_ranks, 0, 12);
	tcase_add_test(tcase, ranks_that_lost_a_result_get_it_from_the_home_host);
	tcase_add_test(tcase, many_blocks_lost_in_a_row_are_asked_for_together);
	tcase_add_test(tcase,
		       a_result_that_all_have_lost_is_made_again_by_the_home_host_and_taken_by_all);
	tcase_add_test(tcase, a_rank_that_has_given_its_data_away_takes_no_result_of_the_table);
	tcase_add_test(tcase, a_home_host_that_has_lost_a_result_gets_it_from_ranks);
	tcase_add_test(tcase, every_second_block_is_evicted_and_made_by_its_home_host);
	tcase_add_test(tcase, a_late_duplicate_of_the_last_use_of_a_slot_changes_nothing);
	tcase_add_loop_test(tcase, blocks_far_ahead_take_nothing_from_others, 0, 10);
	tcase_add_test(tcase, a_home_host_that_is_deaf_for_a_while_is_waited_for);
	tcase_add_loop_test(tcase, ranks_that_come_and_go_are_waited_for_and_hardly_asked, 0, 4);
	tcase_add_loop_test(tcase, a_rank_that_is_late_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_rank_that_dies_is_named_by_all_within_the_timeout, 0, 4);
	tcase_add_test(tcase, a_rank_that_dies_after_it_has_sent_a_block_is_named);
	tcase_add_loop_test(tcase, ranks_that_disagree_fail_all_and_none_hangs, 0, 4);
	tcase_add_test(tcase, jobs_that_share_switches_keep_apart);
	tcase_add_test(tcase, a_run_ends_when_all_have_its_last_result);
	tcase_add_test(tcase, a_job_that_accumulates_in_a_longer_type_is_refused_by_name);
	tcase_add_test(tcase, a_job_of_more_than_64_ranks_is_refused_by_hosts);
	tcase_add_loop_test(tcase, unfinished_blocks_of_a_run_complete_in_the_next_one, 0, 12);
	tcase_add_test(tcase, a_home_host_makes_nothing_of_sums_of_an_earlier_run);
	suite_add_tcase(suite, exact);
	suite_add_tcase(suite, tcase);
	return suite;
}
