/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_trial.h. */
#include "protocols/sparse/tests/sparse_trial.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lab/rig/leaf_spine.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"

#define SECOND_NS UINT64_C(1000000000)

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct fanin_endpoint *engines[SPARSE_MAX_RANKS];
	struct sparse_vectors *vectors;
	uint32_t span; /* of the vectors' blocks */
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
open_world(const struct sparse_trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->vectors.seed,
						 .n_packets = trial->mtu > 3000 ? 8191 : 32767,
						 .mtu = trial->mtu };
	const uint16_t n_ranks = trial->vectors.n_ranks;
	const bool tree = trial->tree;
	const struct rig_leaf_spine_options options = {
		.n_leaves = tree ? (n_ranks < 4 ? n_ranks : 4) : 1,
		.hosts_per_leaf = tree && n_ranks >= 4 ? n_ranks / 4
				  : tree               ? 1
						       : n_ranks,
		.n_spines = tree ? 1 : 0,
		.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults + trial->doubled,
			    .reorder = trial->faults,
			    .seed = trial->vectors.seed },
		.max_jobs = 1,
		/* Each slot keeps a result of this many packets. */
		.slots = trial->slots * (FANIN_SHARDS_MAX + 1),
	};
	const struct job_spec spec = { .handler = trial->handler };
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
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS,
							.cc = &fanin_cc_fixed };
		struct fanin_error why = { 0 };

		rig_protocol_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config,
						   &world.engines[rank], &why),
				 FANIN_OK);
		rig_host_set_poll(world.network.hosts[rank], poll_rank, (void *)(uintptr_t)rank);
	}
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		fanin_engine_close(world.engines[rank]);
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

/* Checks that all ranks have the same bits, including those of NaNs. */
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
	world.span = world.vectors->requests[0].sparse->span;
	sparse_vectors_expect(world.vectors);
	expect_alike(world.vectors);
	sparse_vectors_free(world.vectors);
	world.vectors = NULL;
}

static void
count(struct sparse_trial_counts *counts)
{
	const struct fanin_engine_stats *stats = fanin_engine_stats(world.engines[0]);

	*counts = (struct sparse_trial_counts){
		.span = world.span,
		.blocks = stats->sparse_blocks,
		.shards_sent = stats->shards_sent,
		.shards_received = stats->shards_received,
		.duplicates = stats->duplicates,
	};
}

void
sparse_trial_run(const struct sparse_trial *trial, struct sparse_trial_counts *counts)
{
	open_world(trial);
	allreduce(&trial->vectors);
	/* The second allreduce reuses slots. */
	allreduce(&trial->vectors);
	for (uint16_t rank = 0; rank < trial->vectors.n_ranks && trial->faults == 0; rank++) {
		const struct fanin_engine_stats *stats = fanin_engine_stats(world.engines[rank]);

		ck_assert_uint_eq(stats->retransmits, 0);
		if (trial->doubled != 0)
			continue;
		ck_assert_uint_eq(stats->duplicates, 0);
		ck_assert_uint_eq(stats->invalid, 0);
	}
	if (counts != NULL)
		count(counts);
	close_world();
}
