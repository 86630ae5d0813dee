/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse reduction in arrays (Flare section 7): values are combined in memory that has an element
 * for each index of a block, so that the result is whole. For dense data, or where little memory is
 * saved by anything else.
 */
#include "protocols/sparse/switch/sparse.h"

static size_t
sparse_array_slot_size(const struct fanin_job_params *job)
{
	return fanin_sparse_slot_size(job, FANIN_SPARSE_ARRAY);
}

static enum fanin_verdict
sparse_array_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_sparse_other(ctx, slot, index, packet, FANIN_SPARSE_ARRAY, reason);
}

static struct fanin_handler sparse_array = {
	.name = "sparse-array",
	.description = "sparse reduction in arrays, and dense reduction",
	.makes_packets = true,
	.slot_mbufs = { .fixed = FANIN_SPARSE_MBUFS },
	.counters = fanin_sparse_counters,
	.slot_size = sparse_array_slot_size,
	.contribution = fanin_sparse_contribution,
	.types = fanin_sparse_types,
	.other = sparse_array_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_sparse_release,
};

FANIN_HANDLER_REGISTER(sparse_array)
