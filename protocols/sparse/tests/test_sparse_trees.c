/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces over several trees, in virtual time: each tree is a network of its own, and the
 * blocks of all requests are dealt to them in turn.
 */
#include <check.h>
#include <string.h>

#include "hostlib/src/protocol/split.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/sparse/host/sparse.h"
#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define N_RANKS 4
#define MAX_TREES 3
#define SLOTS 32 /* of a job; each slot keeps a result of this many packets */

struct tree {
	struct rig_leaf_spine network;
	struct rig_job job;
	struct fanin_endpoint *engines[N_RANKS];
};

static struct {
	struct rig *rig;
	uint16_t n_trees;
	struct tree trees[MAX_TREES];
	struct fanin_split splits[N_RANKS];
	struct sparse_vectors *vectors;
} world;

static void
poll_engine(struct rig_host *host, void *user)
{
	struct fanin_endpoint *engine = user;
	uint64_t idle_ns;

	fanin_engine_poll(engine);
	idle_ns = fanin_engine_idle_ns(engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MAX(idle_ns, 1u));
}

static void
open_tree(struct tree *tree, uint64_t seed)
{
	const struct rig_leaf_spine_options options = {
		.n_leaves = 2,
		.hosts_per_leaf = N_RANKS / 2,
		.n_spines = 1,
		.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
		.faults = { .drop = 0.03, .duplicate = 0.03, .reorder = 0.03, .seed = seed },
		.max_jobs = 1,
		.slots = SLOTS * (FANIN_SHARDS_MAX + 1),
	};
	const struct job_spec spec = { .handler = "sparse" };
	char error[PIPELINE_ERROR_LEN] = "";
	int ret = rig_leaf_spine_build(world.rig, &options, &tree->network, error);

	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ret = rig_job_create(&tree->network, &spec, N_RANKS, 0, &tree->job, error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&tree->job, 600 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS,
							.cc = &fanin_cc_fixed };
		struct fanin_error why = { 0 };

		rig_protocol_config(&tree->job, rank, &config);
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_sparse, &config,
						   &tree->engines[rank], &why),
				 FANIN_OK);
		rig_host_set_poll(tree->network.hosts[rank], poll_engine, tree->engines[rank]);
	}
}

static void
open_world(uint16_t n_trees)
{
	const struct rig_options options = { .seed = n_trees, .n_packets = 32767, .mtu = 1500 };
	char error[RIG_ERROR_LEN] = "";

	memset(&world, 0, sizeof(world));
	world.n_trees = n_trees;
	world.rig = rig_create(&options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	for (uint16_t t = 0; t < n_trees; t++)
		open_tree(&world.trees[t], 10u + t);
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		world.splits[rank].protocol = &fanin_protocol_sparse;
		world.splits[rank].n_endpoints = n_trees;
		for (uint16_t t = 0; t < n_trees; t++)
			world.splits[rank].endpoints[t] = world.trees[t].engines[rank];
	}
}

static void
close_world(void)
{
	for (uint16_t t = 0; t < world.n_trees; t++) {
		for (uint16_t rank = 0; rank < N_RANKS; rank++)
			fanin_engine_close(world.trees[t].engines[rank]);
		rig_leaf_spine_free(&world.trees[t].network);
		free(world.trees[t].job.joining);
	}
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		if (world.vectors->requests[rank].status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

static void
allreduce(const struct sparse_vectors_options *options)
{
	uint64_t n_blocks = 0;
	uint32_t payload_bytes = world.trees[0].job.joining[0].ack.payload_bytes;

	world.vectors = sparse_vectors_make(options);
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		struct fanin_request *request = &world.vectors->requests[rank];

		sparse_vectors_request(world.vectors, rank);
		ck_assert_int_eq(fanin_vector_layout(request->sparse, payload_bytes), FANIN_OK);
		n_blocks = request->sparse->n_blocks;
		ck_assert_int_eq(fanin_split_post(&world.splits[rank], request, options->n),
				 FANIN_OK);
		ck_assert_uint_eq(request->n_parts, RTE_MIN(n_blocks, world.n_trees));
		for (uint16_t t = 0; t < world.n_trees; t++)
			rig_host_wake(world.trees[t].network.hosts[rank], rig_now_ns(world.rig));
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		struct fanin_request *request = &world.vectors->requests[rank];

		ck_assert_int_eq(fanin_split_settle(&world.splits[rank]), FANIN_OK);
		request->done_bytes = fanin_split_done_bytes(request);
		fanin_split_free(request);
	}
	sparse_vectors_expect(world.vectors);
	sparse_vectors_free(world.vectors);
}

START_TEST(blocks_take_turns_on_all_trees)
{
	const struct sparse_vectors_options options = {
		.n = 150000,
		.seed = 3,
		.density = 0.05,
		.n_ranks = N_RANKS,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
		.index_bytes = 4,
		.dense = _i % 2 == 0,
		.in_place = _i % 2 != 0,
	};
	struct sparse_vectors_options small = options;
	uint64_t least = UINT64_MAX, most = 0;

	ring_switch_eal();
	open_world((uint16_t)(2 + _i % 2));
	allreduce(&options);
	/* The small request has one block, so the next one begins with another tree. */
	small.n = 10;
	allreduce(&small);
	allreduce(&options);
	for (uint16_t t = 0; t < world.n_trees; t++) {
		const struct fanin_engine_stats *stats =
			fanin_engine_stats(world.trees[t].engines[0]);

		least = RTE_MIN(least, stats->sparse_blocks);
		most = RTE_MAX(most, stats->sparse_blocks);
	}
	ck_assert_uint_gt(least, 10);
	ck_assert_uint_le(most - least, 1);
	close_world();
}
END_TEST

/* A result without room fails the whole request, once all of its parts are done. */
START_TEST(a_result_without_room_is_an_error_of_the_whole)
{
	const struct sparse_vectors_options options = {
		.n = 20000,
		.seed = 4,
		.density = 0.05,
		.n_ranks = N_RANKS,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
		.index_bytes = 4,
		.in_place = true,
	};

	ring_switch_eal();
	open_world(2);
	world.vectors = sparse_vectors_make(&options);
	world.vectors->results[1].capacity = world.vectors->n_expected - 1;
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		struct fanin_request *request = &world.vectors->requests[rank];

		sparse_vectors_request(world.vectors, rank);
		ck_assert_int_eq(
			fanin_vector_layout(request->sparse,
					    world.trees[0].job.joining[0].ack.payload_bytes),
			FANIN_OK);
		ck_assert_int_eq(fanin_split_post(&world.splits[rank], request, options.n),
				 FANIN_OK);
		for (uint16_t t = 0; t < world.n_trees; t++)
			rig_host_wake(world.trees[t].network.hosts[rank], rig_now_ns(world.rig));
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < N_RANKS; rank++) {
		ck_assert_int_eq(world.vectors->requests[rank].status,
				 rank == 1 ? FANIN_ERR_CAPACITY : FANIN_OK);
		fanin_split_free(&world.vectors->requests[rank]);
	}
	sparse_vectors_expect_result(world.vectors, &world.vectors->results[0]);
	sparse_vectors_free(world.vectors);
	close_world();
}
END_TEST

Suite *
suite_sparse_trees(void)
{
	Suite *suite = suite_create("sparse_trees");
	TCase *tcase = tcase_create("sparse_trees");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, blocks_take_turns_on_all_trees, 0, 4);
	tcase_add_test(tcase, a_result_without_room_is_an_error_of_the_whole);
	suite_add_tcase(suite, tcase);
	return suite;
}
