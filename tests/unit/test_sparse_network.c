/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces in virtual time: real engines around real pipelines, on one switch and on leaves below a spine, with and without faults.
 * Cases are chosen so that each two values of different dimensions meet in one of them.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define N_INDICES 12000
#define SLOTS 32 /* of a job, each of which keeps a result of that many packets */

#define N_CASES 200
#define N_PARTS 10 /* tests that share the cases */
#define N_TRIES 40

enum dimension {
	HOSTS,
	DENSITY,
	PATTERN,
	DTYPE,
	OP,
	HANDLER,
	TREE,
	FAULTS,
	OUTPUT,
	HINT,
	DIMENSIONS
};

static const uint16_t hosts[] = { 1, 2, 3, 8, 16 };
static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 1 };
static const uint8_t dtypes[] = { FANIN_WIRE_F32, FANIN_WIRE_I32, FANIN_WIRE_BF16, FANIN_WIRE_F64,
				  FANIN_WIRE_U8 };
static const uint8_t ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_MIN, FANIN_WIRE_MAX, FANIN_WIRE_PROD };
static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };
static const uint8_t sizes[DIMENSIONS] = { 5, 7, SPARSE_PATTERNS, 5, 4, 3, 2, 2, 3, 2 };

static uint8_t cases[N_CASES][DIMENSIONS];
static bool met[DIMENSIONS][8][DIMENSIONS][8];

/* How many pairs of a case have not met before. take: they have from now on. */
static unsigned int
pairs_new(const uint8_t *values, bool take)
{
	unsigned int n = 0;

	for (int a = 0; a < DIMENSIONS; a++) {
		for (int b = a + 1; b < DIMENSIONS; b++) {
			n += !met[a][values[a]][b][values[b]];
			met[a][values[a]][b][values[b]] |= take;
		}
	}
	return n;
}

/* Each case is the best of some random ones. */
static void
cases_choose(void)
{
	struct random random = random_seed(2026);

	for (int i = 0; i < N_CASES; i++) {
		unsigned int best = 0;

		for (int try = 0; try < N_TRIES; try++) {
			uint8_t values[DIMENSIONS];
			unsigned int n;

			for (int d = 0; d < DIMENSIONS; d++)
				values[d] = (uint8_t)random_below(&random, sizes[d]);
			n = pairs_new(values, false);
			if (try == 0 || n > best) {
				memcpy(cases[i], values, sizeof(values));
				best = n;
			}
		}
		pairs_new(cases[i], true);
	}
}

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct fanin_engine *engines[SPARSE_MOST_RANKS];
	struct sparse_vectors *vectors;
} world;

static void
poll_rank(struct rig_host *host, void *user)
{
	const uint16_t rank = (uint16_t)(uintptr_t)user;

	fanin_engine_poll(world.engines[rank]);
	if (world.vectors != NULL && world.vectors->requests[rank].status == FANIN_IN_PROGRESS)
		rig_host_wake(host, rig_now_ns(world.rig) +
					    RTE_MAX(fanin_engine_idle_ns(world.engines[rank]), 1u));
}

static void
open_world(uint16_t n_ranks, const char *handler, bool tree, bool faults, uint64_t seed)
{
	const struct rig_options rig_options = { .seed = seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = tree ? (n_ranks < 4 ? n_ranks : 4) : 1,
		.hosts_per_leaf = tree && n_ranks >= 4 ? n_ranks / 4
				  : tree               ? 1
						       : n_ranks,
		.n_spines = tree ? 1 : 0,
		.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
		.faults = { .drop = faults ? 0.05 : 0,
			    .duplicate = faults ? 0.05 : 0,
			    .reorder = faults ? 0.05 : 0,
			    .seed = seed },
		.max_jobs = 1,
		.slots = SLOTS * (FANIN_SHARDS_MAX + 1),
	};
	const struct job_spec spec = { .handler = handler };
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	memset(&world, 0, sizeof(world));
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ret = rig_job_create(&world.network, &spec, n_ranks, 0, &world.job, error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 600 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		struct fanin_engine_config config = { .timeout_ns = 5 * SECOND_NS };

		rig_engine_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_create(&config,
						     rig_host_transport(world.network.hosts[rank]),
						     &world.engines[rank]),
				 FANIN_OK);
		rig_host_set_poll(world.network.hosts[rank], poll_rank, (void *)(uintptr_t)rank);
	}
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		fanin_engine_destroy(world.engines[rank]);
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		if (world.vectors->requests[rank].status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* All ranks have the same bits, NaNs and all. */
static void
expect_alike(const struct sparse_vectors *vectors)
{
	const struct fanin_sparse_result *first = &vectors->results[0];

	for (uint16_t rank = 1; rank < vectors->options.n_ranks; rank++) {
		const struct fanin_sparse_result *result = &vectors->results[rank];

		ck_assert_uint_eq(result->count, first->count);
		if (first->dense != NULL)
			ck_assert_int_eq(memcmp(first->dense, result->dense,
						vectors->options.n * vectors->element_bytes),
					 0);
		else
			ck_assert_int_eq(memcmp(first->values, result->values,
						first->count * vectors->element_bytes),
					 0);
	}
}

static void
allreduce(const struct sparse_vectors_options *options)
{
	world.vectors = sparse_vectors_make(options);
	for (uint16_t rank = 0; rank < options->n_ranks; rank++) {
		sparse_vectors_request(world.vectors, rank);
		ck_assert_int_eq(fanin_engine_post(world.engines[rank],
						   &world.vectors->requests[rank], options->n),
				 FANIN_OK);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < options->n_ranks; rank++)
		ck_assert_msg(world.vectors->requests[rank].status == FANIN_OK, "rank %u: %s", rank,
			      fanin_engine_error(world.engines[rank])->text);
	sparse_vectors_expect(world.vectors);
	expect_alike(world.vectors);
	sparse_vectors_free(world.vectors);
	world.vectors = NULL;
}

static void
case_run(unsigned int number)
{
	const uint8_t *values = cases[number];
	const struct sparse_vectors_options options = {
		.n = N_INDICES,
		.seed = number,
		.density = densities[values[DENSITY]],
		/* One that is too small makes blocks of many shards. */
		.hint = values[HINT] == 0 ? 0 : densities[values[DENSITY]] / 20,
		.pattern = (enum sparse_pattern)values[PATTERN],
		.n_ranks = hosts[values[HOSTS]],
		.dtype = dtypes[values[DTYPE]],
		.op = ops[values[OP]],
		.index_bytes = number % 2 == 0 ? 4 : 8,
		.dense = values[OUTPUT] == 0,
		.in_place = values[OUTPUT] == 1,
	};
	const bool faults = values[FAULTS] != 0;

	open_world(options.n_ranks, handlers[values[HANDLER]], values[TREE] != 0, faults, number);
	allreduce(&options);
	/* Slots are used again. */
	allreduce(&options);
	for (uint16_t rank = 0; rank < options.n_ranks && !faults; rank++) {
		const struct fanin_engine_stats *stats = fanin_engine_stats(world.engines[rank]);

		ck_assert_uint_eq(stats->retransmits, 0);
		ck_assert_uint_eq(stats->duplicates, 0);
		ck_assert_uint_eq(stats->invalid, 0);
	}
	close_world();
}

START_TEST(results_are_exact)
{
	ring_switch_eal_of(256);
	cases_choose();
	for (unsigned int i = (unsigned int)_i; i < N_CASES; i += N_PARTS)
		case_run(i);
}
END_TEST

START_TEST(each_two_values_meet_in_a_case)
{
	cases_choose();
	for (int a = 0; a < DIMENSIONS; a++) {
		for (int b = a + 1; b < DIMENSIONS; b++) {
			for (int i = 0; i < sizes[a] * sizes[b]; i++)
				ck_assert(met[a][i / sizes[b]][b][i % sizes[b]]);
		}
	}
}
END_TEST

Suite *
suite_sparse_network(void)
{
	Suite *suite = suite_create("sparse_network");
	TCase *tcase = tcase_create("sparse_network");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, each_two_values_meet_in_a_case);
	tcase_add_loop_test(tcase, results_are_exact, 0, N_PARTS);
	suite_add_tcase(suite, tcase);
	return suite;
}
