/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives that this library takes over, in C: blocking and nonblocking, for counts of int
 * and, where MPI has them, of MPI_Count. Each function describes its call, and hands it to MPI by
 * the profiling interface if the network does not carry it out.
 */
#include "preload.h"

#define CARRY_OUT(description, by_mpi)                                                             \
	const struct collective call = description;                                                \
	int result;                                                                                \
	return collective_take(&call, &result) ? result : (by_mpi)

#define START(description, by_mpi)                                                                 \
	const struct collective call = description;                                                \
	int result;                                                                                \
	return collective_start(&call, req, &result) ? result : (by_mpi)

/*
 * A call is wholly MPI's or the network's. If MPI's own operator is wrong, MPI gets this library's.
 */
#define FOR_MPI operator_for_mpi(type, op)

#define ALLREDUCE_CALL                                                                             \
	{                                                                                          \
		.kind = COLLECTIVE_ALLREDUCE, .send = send, .recv = recv, .count = count,          \
		.type = type, .op = op, .comm = comm                                               \
	}

#define ALLREDUCE(suffix, count_type)                                                              \
	PRELOAD_EXPORT int MPI_Allreduce##suffix(const void *send, void *recv, count_type count,   \
						 MPI_Datatype type, MPI_Op op, MPI_Comm comm)      \
	{                                                                                          \
		CARRY_OUT(ALLREDUCE_CALL,                                                          \
			  PMPI_Allreduce##suffix(send, recv, count, type, FOR_MPI, comm));         \
	}                                                                                          \
	PRELOAD_EXPORT int MPI_Iallreduce##suffix(const void *send, void *recv, count_type count,  \
						  MPI_Datatype type, MPI_Op op, MPI_Comm comm,     \
						  MPI_Request *req)                                \
	{                                                                                          \
		START(ALLREDUCE_CALL,                                                              \
		      PMPI_Iallreduce##suffix(send, recv, count, type, FOR_MPI, comm, req));       \
	}

#define REDUCE_CALL                                                                                \
	{                                                                                          \
		.kind = COLLECTIVE_REDUCE, .send = send, .recv = recv, .count = count,             \
		.type = type, .op = op, .root = root, .comm = comm                                 \
	}

#define REDUCE(suffix, count_type)                                                                 \
	PRELOAD_EXPORT int MPI_Reduce##suffix(const void *send, void *recv, count_type count,      \
					      MPI_Datatype type, MPI_Op op, int root,              \
					      MPI_Comm comm)                                       \
	{                                                                                          \
		CARRY_OUT(REDUCE_CALL,                                                             \
			  mpi_settings.enabled                                                     \
				  ? REDUCE_BY_MPI(suffix, false, send, recv, count, type, FOR_MPI, \
						  root, comm)                                      \
				  : PMPI_Reduce##suffix(send, recv, count, type, op, root, comm)); \
	}                                                                                          \
	PRELOAD_EXPORT int MPI_Ireduce##suffix(const void *send, void *recv, count_type count,     \
					       MPI_Datatype type, MPI_Op op, int root,             \
					       MPI_Comm comm, MPI_Request *req)                    \
	{                                                                                          \
		START(REDUCE_CALL,                                                                 \
		      PMPI_Ireduce##suffix(send, recv, count, type, FOR_MPI, root, comm, req));    \
	}

#define BCAST_CALL                                                                                 \
	{                                                                                          \
		.kind = COLLECTIVE_BCAST, .recv = data, .count = count, .type = type,              \
		.root = root, .comm = comm                                                         \
	}

#define BCAST(suffix, count_type)                                                                  \
	PRELOAD_EXPORT int MPI_Bcast##suffix(void *data, count_type count, MPI_Datatype type,      \
					     int root, MPI_Comm comm)                              \
	{                                                                                          \
		CARRY_OUT(BCAST_CALL, PMPI_Bcast##suffix(data, count, type, root, comm));          \
	}                                                                                          \
	PRELOAD_EXPORT int MPI_Ibcast##suffix(void *data, count_type count, MPI_Datatype type,     \
					      int root, MPI_Comm comm, MPI_Request *req)           \
	{                                                                                          \
		START(BCAST_CALL, PMPI_Ibcast##suffix(data, count, type, root, comm, req));        \
	}

#define ALLGATHER_CALL                                                                             \
	{                                                                                          \
		.kind = COLLECTIVE_ALLGATHER, .send = send, .send_count = send_count,              \
		.send_type = send_type, .recv = recv, .count = count, .type = type, .comm = comm   \
	}

#define ALLGATHER(suffix, count_type)                                                              \
	PRELOAD_EXPORT int MPI_Allgather##suffix(const void *send, count_type send_count,          \
						 MPI_Datatype send_type, void *recv,               \
						 count_type count, MPI_Datatype type,              \
						 MPI_Comm comm)                                    \
	{                                                                                          \
		CARRY_OUT(ALLGATHER_CALL, PMPI_Allgather##suffix(send, send_count, send_type,      \
								 recv, count, type, comm));        \
	}                                                                                          \
	PRELOAD_EXPORT int MPI_Iallgather##suffix(const void *send, count_type send_count,         \
						  MPI_Datatype send_type, void *recv,              \
						  count_type count, MPI_Datatype type,             \
						  MPI_Comm comm, MPI_Request *req)                 \
	{                                                                                          \
		START(ALLGATHER_CALL, PMPI_Iallgather##suffix(send, send_count, send_type, recv,   \
							      count, type, comm, req));            \
	}

#define REDUCE_SCATTER_BLOCK_CALL                                                                  \
	{                                                                                          \
		.kind = COLLECTIVE_REDUCE_SCATTER_BLOCK, .send = send, .recv = recv,               \
		.count = count, .type = type, .op = op, .comm = comm                               \
	}

#define REDUCE_SCATTER_BLOCK(suffix, count_type)                                                   \
	PRELOAD_EXPORT int MPI_Reduce_scatter_block##suffix(const void *send, void *recv,          \
							    count_type count, MPI_Datatype type,   \
							    MPI_Op op, MPI_Comm comm)              \
	{                                                                                          \
		CARRY_OUT(REDUCE_SCATTER_BLOCK_CALL,                                               \
			  PMPI_Reduce_scatter_block##suffix(send, recv, count, type, FOR_MPI,      \
							    comm));                                \
	}                                                                                          \
	PRELOAD_EXPORT int MPI_Ireduce_scatter_block##suffix(const void *send, void *recv,         \
							     count_type count, MPI_Datatype type,  \
							     MPI_Op op, MPI_Comm comm,             \
							     MPI_Request *req)                     \
	{                                                                                          \
		START(REDUCE_SCATTER_BLOCK_CALL,                                                   \
		      PMPI_Ireduce_scatter_block##suffix(send, recv, count, type, FOR_MPI, comm,   \
							 req));                                    \
	}

#define ALL(suffix, count_type)                                                                    \
	ALLREDUCE(suffix, count_type)                                                              \
	REDUCE(suffix, count_type)                                                                 \
	BCAST(suffix, count_type)                                                                  \
	ALLGATHER(suffix, count_type)                                                              \
	REDUCE_SCATTER_BLOCK(suffix, count_type)

ALL(, int)
#if MPI_VERSION >= 4
ALL(_c, MPI_Count)
#endif

#define BARRIER_CALL                                                                               \
	{                                                                                          \
		.kind = COLLECTIVE_BARRIER, .comm = comm                                           \
	}

PRELOAD_EXPORT int
MPI_Barrier(MPI_Comm comm)
{
	CARRY_OUT(BARRIER_CALL, PMPI_Barrier(comm));
}

PRELOAD_EXPORT int
MPI_Ibarrier(MPI_Comm comm, MPI_Request *req)
{
	START(BARRIER_CALL, PMPI_Ibarrier(comm, req));
}
