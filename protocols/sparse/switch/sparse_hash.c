/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse reduction in hash tables (Flare section 7): the memory that a block touches, and the time
 * to go through it, follow the number of values, not of indices. Values that do not fit leave
 * early, as spills, and are combined further up, or by the hosts. A slot reserves more than an
 * array does: a table that spills too much becomes an array, so there is room for both (sparse.c).
 */
#include "protocols/sparse/switch/sparse.h"

static size_t
sparse_hash_slot_size(const struct fanin_job_params *job)
{
	return fanin_sparse_slot_size(job, FANIN_SPARSE_TABLE);
}

static enum fanin_verdict
sparse_hash_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		  struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_sparse_other(ctx, slot, index, packet, FANIN_SPARSE_TABLE, reason);
}

static struct fanin_handler sparse_hash = {
	.name = "sparse-hash",
	.description = "sparse reduction in hash tables, and dense reduction",
	.makes_packets = true,
	.slot_mbufs = { .fixed = FANIN_SPARSE_MBUFS },
	.counters = fanin_sparse_counters,
	.slot_size = sparse_hash_slot_size,
	.contribution = fanin_sparse_contribution,
	.types = fanin_sparse_types,
	.other = sparse_hash_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_sparse_release,
};

FANIN_HANDLER_REGISTER(sparse_hash)
