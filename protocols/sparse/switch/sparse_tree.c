/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse reduction along a tree as Flare section 7 has it: data gets denser on its way up, so there
 * are hash tables in all switches but the root, and arrays there.
 */
#include "protocols/sparse/switch/sparse.h"

static enum fanin_sparse_mode
mode_of(const struct fanin_job_params *job)
{
	return job->has_parent ? FANIN_SPARSE_TABLE : FANIN_SPARSE_ARRAY;
}

static size_t
sparse_tree_slot_size(const struct fanin_job_params *job)
{
	return fanin_sparse_slot_size(job, mode_of(job));
}

static enum fanin_verdict
sparse_tree_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		  struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_sparse_other(ctx, slot, index, packet, mode_of(ctx->job), reason);
}

static struct fanin_handler sparse_tree = {
	.name = "sparse",
	.description =
		"sparse reduction, arrays at the root and hash tables elsewhere, and dense reduction",
	.makes_packets = true,
	.slot_mbufs = { .fixed = FANIN_SPARSE_MBUFS },
	.counters = fanin_sparse_counters,
	.slot_size = sparse_tree_slot_size,
	.contribution = fanin_sparse_contribution,
	.types = fanin_sparse_types,
	.other = sparse_tree_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_sparse_release,
};

FANIN_HANDLER_REGISTER(sparse_tree)
