/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_core.h: the rig with a job for each kind. */
#include <stdlib.h>

#include <rte_malloc.h>

#include "lab/bench/sparse_core.h"
#include "protocols/sparse/switch/sparse.h"
#include "pipeline/slot_pool.h"

static const char *const handlers[SPARSE_KINDS] = {
	[SPARSE_KIND_ARRAY] = "sparse-array",
	[SPARSE_KIND_HASH] = "sparse-hash",
	[SPARSE_KIND_DENSE] = "single",
};

static uint32_t
power_of_two(uint32_t least)
{
	uint32_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

static void
open_rig(struct sparse_bench *bench)
{
	const struct sparse_options *options = &bench->options;
	const uint32_t slots = 2 * options->blocks;
	const struct rig_options rig = {
		.handler = handlers[SPARSE_KIND_DENSE],
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.payload = bench->data.payload_bytes,
		.mbufs = options->blocks * options->hosts,
		.hosts = options->hosts,
		.jobs = 1,
		.n_workers = 1,
		.isa = options->isa,
		.more_jobs = SPARSE_KINDS - 1,
		.slots = SPARSE_KINDS * slots * power_of_two(FANIN_SPARSE_MBUFS),
		/* Mbufs for a batch, and for the maximum of shards of each block. */
		.more_mbufs = options->blocks * (options->hosts + 2u * FANIN_SHARDS_MAX),
		.port_entries = power_of_two(options->blocks * (FANIN_SHARDS_MAX + 1u)),
	};

	rig_open(&bench->rig, &rig);
	bench->lanes[SPARSE_KIND_DENSE].job = bench->rig.jobs[0];
	for (int kind = 0; kind < SPARSE_KIND_DENSE; kind++)
		rig_job_open(&bench->rig, handlers[kind], slots, &bench->lanes[kind].job);
}

/*
 * Returns the lanes of a hash slot's table for f32, which the handler chooses: the bare loop has as
 * many.
 */
static uint32_t
table_lanes(const struct sparse_bench *bench)
{
	return fanin_sparse_table_lanes(&bench->lanes[SPARSE_KIND_HASH].job->params, sizeof(float));
}

static void
open_bare(struct sparse_bench *bench, enum sparse_kind kind)
{
	struct bare *bare = &bench->lanes[kind].bare;

	*bare = (struct bare){
		.n_blocks = bench->options.blocks,
		.span = bench->data.span,
		.payload_bytes = bench->data.payload_bytes,
		.n_lanes = kind == SPARSE_KIND_HASH ? table_lanes(bench) : 0,
		.n_hosts = bench->options.hosts,
		.headers = bench->lanes[kind].job->params.result_headers,
	};
	bare->headers.fanin.type = FANIN_TYPE_SPARSE_RESULT;
	bare->headers.fanin.dtype = FANIN_WIRE_F32;
	bare->headers.fanin.op = FANIN_WIRE_SUM;
	bare_make(bare);
}

void
sparse_bench_open(struct sparse_bench *bench, const struct sparse_options *options)
{
	const uint32_t most = options->blocks * options->hosts * FANIN_SHARDS_MAX;

	bench->options = *options;
	sparse_data_make(&bench->data, options->density, fanin_payload_for_mtu(options->mtu, false),
			 options->hosts);
	open_rig(bench);
	open_bare(bench, SPARSE_KIND_ARRAY);
	open_bare(bench, SPARSE_KIND_HASH);
	bench->accumulators = rte_zmalloc("accumulators", rig_bare_size(&bench->rig), 64);
	bench->mbufs = calloc(most, sizeof(*bench->mbufs));
	bench->n_stock = options->blocks * FANIN_SHARDS_MAX;
	bench->stock = calloc(bench->n_stock, sizeof(*bench->stock));
	bench->seen = calloc(options->blocks, sizeof(*bench->seen));
	if (bench->accumulators == NULL || bench->mbufs == NULL || bench->stock == NULL ||
	    bench->seen == NULL)
		rig_die("no memory for %u packets", most);
	for (uint32_t i = 0; i < options->blocks; i++)
		sparse_seen_make(&bench->seen[i], &bench->data);
}

void
sparse_bench_close(struct sparse_bench *bench)
{
	for (uint32_t i = 0; i < bench->options.blocks; i++)
		sparse_seen_free(&bench->seen[i]);
	free(bench->seen);
	free(bench->stock);
	free(bench->mbufs);
	rte_free(bench->accumulators);
	bare_free(&bench->lanes[SPARSE_KIND_ARRAY].bare);
	bare_free(&bench->lanes[SPARSE_KIND_HASH].bare);
	rig_close(&bench->rig);
	sparse_data_free(&bench->data);
}
