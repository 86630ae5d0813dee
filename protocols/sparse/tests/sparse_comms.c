/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_comms.h. */
#include "sparse_comms.h"

#include <check.h>

#include "protocols/sparse/host/sparse.h"

struct fanin_ctx sparse_contexts[SPARSE_WORLD_RANKS];
struct fanin_comm sparse_comms[SPARSE_WORLD_RANKS];

void
sparse_comms_open(uint16_t n_ranks)
{
	sparse_world_open(n_ranks);
	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		sparse_contexts[rank] = (struct fanin_ctx){ .comms = &sparse_comms[rank] };
		sparse_comms[rank] = (struct fanin_comm){
			.ops = &fanin_comm_single_ops,
			.protocol = &fanin_protocol_sparse,
			.ctx = &sparse_contexts[rank],
			.trees.n = 1,
			.endpoint = sparse_world.engines[rank],
			.recovery.next_follow_ns = UINT64_MAX, /* there is no kernel with a
								  neighbour table */
			.member.config = { .rank = rank, .size = n_ranks },
			.member.handler = "sparse",
		};
	}
}

int
sparse_comms_finish(fanin_request **requests)
{
	int status = FANIN_OK;

	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		for (uint32_t step = 0; fanin_test(requests[rank]) == FANIN_IN_PROGRESS; step++) {
			ck_assert_uint_lt(step, 200000);
			sparse_world_step();
			for (uint16_t i = 0; i < sparse_world.n_ranks; i++)
				fanin_progress(&sparse_contexts[i]);
		}
		status = fanin_wait(&requests[rank]);
	}
	return status;
}
