/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The nonblocking calls: they go to MPI, and are counted, so that the report tells of them.
 */
#include "preload.h"

#define IALLREDUCE(name, count_type)                                                               \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type, \
				MPI_Op op, MPI_Comm comm, MPI_Request *req)                        \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_ALLREDUCE,                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .op = op,                                         \
						 .comm = comm };                                   \
                                                                                                   \
		collective_count_nonblocking(&call);                                               \
		return P##name(send, recv, count, type, op, comm, req);                            \
	}

#define IREDUCE(name, count_type)                                                                       \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type,      \
				MPI_Op op, int root, MPI_Comm comm, MPI_Request *req)                   \
	{                                                                                               \
		const struct collective call = {                                                        \
			.kind = COLLECTIVE_REDUCE, .count = count, .type = type, .op = op, .comm = comm \
		};                                                                                      \
                                                                                                        \
		collective_count_nonblocking(&call);                                                    \
		return P##name(send, recv, count, type, op, root, comm, req);                           \
	}

#define IBCAST(name, count_type)                                                                   \
	PRELOAD_EXPORT int name(void *data, count_type count, MPI_Datatype type, int root,         \
				MPI_Comm comm, MPI_Request *req)                                   \
	{                                                                                          \
		const struct collective call = {                                                   \
			.kind = COLLECTIVE_BCAST, .count = count, .type = type, .comm = comm       \
		};                                                                                 \
                                                                                                   \
		collective_count_nonblocking(&call);                                               \
		return P##name(data, count, type, root, comm, req);                                \
	}

#define IALLGATHER(name, count_type)                                                               \
	PRELOAD_EXPORT int name(const void *send, count_type send_count, MPI_Datatype send_type,   \
				void *recv, count_type count, MPI_Datatype type, MPI_Comm comm,    \
				MPI_Request *req)                                                  \
	{                                                                                          \
		const struct collective call = {                                                   \
			.kind = COLLECTIVE_ALLGATHER, .count = count, .type = type, .comm = comm   \
		};                                                                                 \
                                                                                                   \
		collective_count_nonblocking(&call);                                               \
		return P##name(send, send_count, send_type, recv, count, type, comm, req);         \
	}

#define IREDUCE_SCATTER_BLOCK(name, count_type)                                                    \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type, \
				MPI_Op op, MPI_Comm comm, MPI_Request *req)                        \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_REDUCE_SCATTER_BLOCK,          \
						 .count = count,                                   \
						 .type = type,                                     \
						 .op = op,                                         \
						 .comm = comm };                                   \
                                                                                                   \
		collective_count_nonblocking(&call);                                               \
		return P##name(send, recv, count, type, op, comm, req);                            \
	}

IALLREDUCE(MPI_Iallreduce, int)
IREDUCE(MPI_Ireduce, int)
IBCAST(MPI_Ibcast, int)
IALLGATHER(MPI_Iallgather, int)
IREDUCE_SCATTER_BLOCK(MPI_Ireduce_scatter_block, int)

#if MPI_VERSION >= 4
IALLREDUCE(MPI_Iallreduce_c, MPI_Count)
IREDUCE(MPI_Ireduce_c, MPI_Count)
IBCAST(MPI_Ibcast_c, MPI_Count)
IALLGATHER(MPI_Iallgather_c, MPI_Count)
IREDUCE_SCATTER_BLOCK(MPI_Ireduce_scatter_block_c, MPI_Count)
#endif

PRELOAD_EXPORT int
MPI_Ibarrier(MPI_Comm comm, MPI_Request *req)
{
	const struct collective call = { .kind = COLLECTIVE_BARRIER, .comm = comm };

	collective_count_nonblocking(&call);
	return PMPI_Ibarrier(comm, req);
}
