/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's hosts in one process and in virtual time: real engines around real switches, leaves and spines. Sums are exact and the same bits on all ranks whatever is
 * lost, doubled or reordered on any link, however few descriptors there are; where nothing is lost, nobody asks.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/canary/canary.h"
#include "reference/perf_collective.h"
#include "reference/random.h"
#include "rig/leaders.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 32
#define MOST_BYTES (1u << 20)
#define MOST_REQUESTS 3
#define TIMEOUT_NS (5 * SECOND)
#define RUN 1000

struct trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t n_spines;
	uint16_t window;
	uint32_t descriptors; /* of each switch */
	double faults;
};

struct member {
	struct fanin_canary *engine;
	struct fanin_request requests[MOST_REQUESTS];
	struct perf_collective collectives[MOST_REQUESTS];
	uint8_t *send[MOST_REQUESTS];
	uint8_t *recv[MOST_REQUESTS]; /* the same where it is in place */
	bool taken[MOST_REQUESTS];    /* result and memory were looked at, and used again */
	uint64_t digest[MOST_REQUESTS];
	bool is_dead;
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct job_spec spec;
	struct rig_leaders job;
	uint32_t n_requests;
	struct member members[MOST_RANKS];
} world;

static bool eal_is_there; /* a test may open several worlds, one after the other */

/* ------------------------------------------------------------------ world */

static uint64_t
digest_of(const uint8_t *bytes, size_t n)
{
	uint64_t digest = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	return digest;
}

/* The result is what it has to be. All memory is used again at once. */
static void
request_take(struct member *member, uint32_t r)
{
	static uint8_t expected[MOST_BYTES];
	const struct perf_collective *collective = &member->collectives[r];
	const struct perf_range range = perf_collective_receives(collective);
	const size_t size = fanin_dtype_size_of(collective->data.dtype);
	const uint8_t *got = member->recv[r] + range.first * size;

	ck_assert_msg(member->requests[r].status == FANIN_OK, "seed %lu, rank %u: %s",
		      (unsigned long)world.trial.seed, collective->rank,
		      fanin_canary_error(member->engine)->text);
	member->digest[r] = digest_of(got, range.n * size);
	if (collective->data.dtype != FANIN_F32) {
		perf_collective_expect(collective, r, range.first, range.n, expected);
		ck_assert_msg(memcmp(got, expected, range.n * size) == 0, "seed %lu, rank %u: wrong",
			      (unsigned long)world.trial.seed, collective->rank);
	}
	memset(member->send[r], 0x55, collective->count * size);
	memset(member->recv[r], 0x55, collective->count * size);
	member->taken[r] = true;
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;
	uint64_t idle_ns;

	if (member->is_dead)
		return;
	fanin_canary_poll(member->engine);
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = fanin_canary_idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

static struct rig_host *
host_of(uint16_t rank)
{
	return world.network.hosts[world.job.hosts[rank]];
}

static void
engine_open(uint16_t rank, uint64_t nonce)
{
	const struct fanin_canary_seed seed = { .nonce = nonce, .roll = 77 + nonce, .run = RUN };
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS };
	struct fanin_peer peers[MOST_RANKS];
	struct fanin_error error = { 0 };
	int status;

	rig_leaders_config(&world.job, rank, peers, &config);
	status = fanin_canary_create(&config, &seed, &world.members[rank].engine, &error);
	ck_assert_msg(status == FANIN_OK, "%s", error.text);
	rig_host_set_poll(host_of(rank), member_poll, &world.members[rank]);
	rig_host_wake(host_of(rank), rig_now_ns(world.rig));
}

static void
open_network(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end host_end = { .egress = { .rate_mbit = 1000 }, .delay_ns = 2000 };
	const struct rig_end up_end = { .egress = { .rate_mbit = 1000 }, .delay_ns = 2000 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks / trial->n_leaves,
		.n_spines = trial->n_spines,
		.host_end = host_end,
		.up_end = up_end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 2,
		.slots = 64,
		.shared_slots = trial->descriptors,
	};
	char error[RIG_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	world.spec = (struct job_spec){ .handler = "canary", .slots = 2u * trial->window };
	ret = rig_leaders_create(&world.network, &world.spec, NULL, trial->n_ranks, &world.job,
				 error);
	ck_assert_msg(ret == 0, "%s", error);
}

static void
open_world(const struct trial *trial)
{
	open_network(trial);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank, 100u + rank);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];

		fanin_canary_destroy(member->engine);
		for (uint32_t r = 0; r < world.n_requests; r++) {
			if (member->recv[r] != member->send[r])
				free(member->recv[r]);
			free(member->send[r]);
		}
	}
	rig_leaders_destroy(&world.job);
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* ------------------------------------------------------------------ requests */

static void
post(uint16_t rank, uint32_t r, const struct perf_collective *like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	struct member *member = &world.members[rank];
	struct perf_collective *collective = &member->collectives[r];
	const size_t size = fanin_dtype_size_of(like->data.dtype);
	struct perf_range sends, receives;
	uint64_t count = like->count;

	*collective = *like;
	collective->rank = rank;
	collective->data.size = world.trial.n_ranks;
	sends = perf_collective_sends(collective);
	receives = perf_collective_receives(collective);
	ck_assert_uint_le(count * size, MOST_BYTES);
	member->send[r] = calloc(1, count * size + 1);
	member->recv[r] = (rank + r) % 2 == 0 ? member->send[r] : calloc(1, count * size + 1);
	member->taken[r] = false;
	perf_data_fill(&collective->data, rank, r, sends.first, sends.n,
		       member->send[r] + sends.first * size);
	if (like->kind == PERF_REDUCE_SCATTER || like->kind == PERF_ALLGATHER)
		count /= world.trial.n_ranks;
	member->requests[r] = (struct fanin_request){
		.send = member->send[r] + sends.first * size,
		.recv = member->recv[r] + receives.first * size,
		.collective = collectives[like->kind],
		.dtype = (uint8_t)like->data.dtype,
		.op = (uint8_t)like->data.op,
		.root = like->root,
	};
	ck_assert_int_eq(fanin_canary_post(member->engine, &member->requests[r], count), FANIN_OK);
	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	rig_host_wake(host_of(rank), rig_now_ns(world.rig));
}

static void
post_all(uint32_t r, const struct perf_collective *like)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		post(rank, r, like);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < world.n_requests && !world.members[rank].is_dead; r++) {
			if (!world.members[rank].taken[r] &&
			    world.members[rank].requests[r].status >= 0)
				return false;
		}
	}
	return true;
}

/* Until all are done. Returns how long that took. */
static uint64_t
run_all(void)
{
	const uint64_t begin_ns = rig_now_ns(world.rig);

	rig_run(world.rig, begin_ns + 600 * SECOND, all_done, NULL);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_msg(world.members[rank].taken[r],
				      "seed %lu, rank %u, request %u: %s",
				      (unsigned long)world.trial.seed, rank, r,
				      fanin_canary_error(world.members[rank].engine)->text);
	}
	return rig_now_ns(world.rig) - begin_ns;
}

static struct perf_collective
sum_of(uint64_t count)
{
	return (struct perf_collective){
		.kind = PERF_ALLREDUCE,
		.count = count,
		.data = { .dtype = FANIN_I32, .op = FANIN_SUM, .seed = 1 },
	};
}

static struct fanin_canary_stats
totals(void)
{
	struct fanin_canary_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const struct fanin_canary_stats *stats =
			fanin_canary_stats(world.members[rank].engine);

		sum.queries += stats->queries;
		sum.asks += stats->asks;
		sum.retransmits += stats->retransmits;
		sum.restores += stats->restores;
		sum.repeats += stats->repeats;
		sum.duplicates += stats->duplicates;
		sum.invalid += stats->invalid;
		sum.led += stats->led;
		sum.direct += stats->direct;
	}
	return sum;
}

/* ------------------------------------------------------------------ tests */

static const struct trial quiet_trials[] = {
	{ .n_ranks = 1, .n_leaves = 1, .n_spines = 0, .window = 16, .descriptors = 1024 },
	{ .n_ranks = 2, .n_leaves = 1, .n_spines = 0, .window = 16, .descriptors = 1024 },
	{ .n_ranks = 2, .n_leaves = 2, .n_spines = 1, .window = 64, .descriptors = 1024 },
	{ .n_ranks = 4, .n_leaves = 2, .n_spines = 2, .window = 64, .descriptors = 1024 },
	{ .n_ranks = 16, .n_leaves = 4, .n_spines = 4, .window = 64, .descriptors = 4096 },
};

START_TEST(without_loss_nobody_asks)
{
	const struct perf_collective sum = sum_of(100000);
	struct trial trial = quiet_trials[_i];
	struct fanin_canary_stats found;

	trial.seed = 1;
	open_world(&trial);
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_eq(found.queries, 0);
	ck_assert_uint_eq(found.asks, 0);
	ck_assert_uint_eq(found.retransmits, 0);
	ck_assert_uint_eq(found.repeats, 0);
	ck_assert_uint_eq(found.invalid, 0);
	ck_assert_uint_eq(found.led, 1 + (100000 * 4 + 1407) / 1408);
	close_world();
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
		.descriptors = descriptors[i / 2 % 3],
		.faults = faults[i % 3],
	};
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = sum_of(30000);

	open_world(&trial);
	for (uint32_t r = 0; r < 2; r++) {
		post_all(r, &like);
		like.count = 5000;
	}
	run_all();
	close_world();
}
END_TEST

Suite *
suite_canary_hosts(void)
{
	Suite *suite = suite_create("canary_hosts");
	TCase *tcase = tcase_create("canary_hosts");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, without_loss_nobody_asks, 0, RTE_DIM(quiet_trials));
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 36);
	suite_add_tcase(suite, tcase);
	return suite;
}
