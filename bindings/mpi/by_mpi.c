/* SPDX-License-Identifier: BSD-3-Clause */
/* Carries out by MPI the collectives that the network can't do any more, after a failure. */
#include "core.h"

/* MPI 4 takes counts wider than int. Other versions have no such calls to be carried out. */
#if MPI_VERSION >= 4
#define COUNT(count) (count)
#define BY_MPI(name, iname, ...) MPI_CALL(in_background, name##_c, iname##_c, __VA_ARGS__)
#define REDUCE(...) REDUCE_BY_MPI(_c, in_background, __VA_ARGS__)
#else
#define COUNT(count) ((int)(count))
#define BY_MPI(name, iname, ...) MPI_CALL(in_background, name, iname, __VA_ARGS__)
#define REDUCE(...) REDUCE_BY_MPI(, in_background, __VA_ARGS__)
#endif

int
collective_by_mpi(const struct collective *call, MPI_Comm comm, bool in_background)
{
	const MPI_Op op = operator_for_mpi(call->type, call->op);

	switch (call->kind) {
	case COLLECTIVE_ALLREDUCE:
		return BY_MPI(Allreduce, Iallreduce, call->send, call->recv, COUNT(call->count),
			      call->type, op, comm);
	case COLLECTIVE_REDUCE:
		return REDUCE(call->send, call->recv, COUNT(call->count), call->type, op,
			      call->root, comm);
	case COLLECTIVE_BCAST:
		return BY_MPI(Bcast, Ibcast, call->recv, COUNT(call->count), call->type, call->root,
			      comm);
	case COLLECTIVE_ALLGATHER:
		return BY_MPI(Allgather, Iallgather, call->send, COUNT(call->send_count),
			      call->send_type, call->recv, COUNT(call->count), call->type, comm);
	case COLLECTIVE_REDUCE_SCATTER_BLOCK:
		return BY_MPI(Reduce_scatter_block, Ireduce_scatter_block, call->send, call->recv,
			      COUNT(call->count), call->type, op, comm);
	default:
		return MPI_CALL(in_background, Barrier, Ibarrier, comm);
	}
}
