/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of MPI that this library takes over, in C. Each describes itself, and MPI does it by its profiling interface if the
 * network does not.
 */
#include "preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MIN_BYTES 1024
#define DEFAULT_MAX_JOBS 8
#define DEFAULT_TIMEOUT_MS 5000

struct settings preload_settings;

/* A number of the environment. What can't be read is told and stays at its default. */
static uint64_t
setting(const char *name, uint64_t least, uint64_t most, uint64_t value)
{
	const char *text = getenv(name);
	unsigned long long found;
	char *end;

	if (text == NULL)
		return value;
	errno = 0;
	found = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || found < least ||
	    found > most) {
		fprintf(stderr,
			"fanin-mpi: %s: found '%s', expected a number from %llu to %llu; it is %llu\n",
			name, text, (unsigned long long)least, (unsigned long long)most,
			(unsigned long long)value);
		return value;
	}
	return found;
}

static void
settings_read(void)
{
	const char *report = getenv("FANIN_MPI_REPORT");

	preload_settings = (struct settings){
		.enabled = setting("FANIN_MPI", 0, 1, 1) != 0,
		.min_bytes = setting("FANIN_MPI_MIN_BYTES", 1, UINT64_MAX, DEFAULT_MIN_BYTES),
		.max_jobs = (uint32_t)setting("FANIN_MPI_MAX_JOBS", 0, 4096, DEFAULT_MAX_JOBS),
		.timeout_ms = (uint32_t)setting("FANIN_MPI_TIMEOUT_MS", 100, 3600000,
						DEFAULT_TIMEOUT_MS),
		.report = report != NULL && strcmp(report, "0") != 0 && *report != '\0',
		.report_json = report != NULL && strcmp(report, "json") == 0,
	};
}

/* All ranks do as rank 0's environment says. */
static void
preload_start(void)
{
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		settings_read();
	PMPI_Bcast(&preload_settings, (int)sizeof(preload_settings), MPI_BYTE, 0, MPI_COMM_WORLD);
	types_init();
	states_init();
}

PRELOAD_EXPORT int
MPI_Init(int *argc, char ***argv)
{
	const int status = PMPI_Init(argc, argv);

	if (status == MPI_SUCCESS)
		preload_start();
	return status;
}

PRELOAD_EXPORT int
MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	const int status = PMPI_Init_thread(argc, argv, required, provided);

	if (status == MPI_SUCCESS)
		preload_start();
	return status;
}

PRELOAD_EXPORT int
MPI_Finalize(void)
{
	report_print();
	states_finish();
	return PMPI_Finalize();
}

/* The blocking calls, for counts of int and, where MPI has them, of MPI_Count. */
#define ALLREDUCE(name, count_type)                                                                \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type, \
				MPI_Op op, MPI_Comm comm)                                          \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_ALLREDUCE,                     \
						 .send = send,                                     \
						 .recv = recv,                                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .op = op,                                         \
						 .comm = comm };                                   \
		int result;                                                                        \
                                                                                                   \
		return collective_take(&call, &result)                                             \
			       ? result                                                            \
			       : P##name(send, recv, count, type, op, comm);                       \
	}

#define REDUCE(name, count_type)                                                                   \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type, \
				MPI_Op op, int root, MPI_Comm comm)                                \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_REDUCE,                        \
						 .send = send,                                     \
						 .recv = recv,                                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .op = op,                                         \
						 .root = root,                                     \
						 .comm = comm };                                   \
		int result;                                                                        \
                                                                                                   \
		return collective_take(&call, &result)                                             \
			       ? result                                                            \
			       : P##name(send, recv, count, type, op, root, comm);                 \
	}

#define BCAST(name, count_type)                                                                    \
	PRELOAD_EXPORT int name(void *data, count_type count, MPI_Datatype type, int root,         \
				MPI_Comm comm)                                                     \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_BCAST,                         \
						 .recv = data,                                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .root = root,                                     \
						 .comm = comm };                                   \
		int result;                                                                        \
                                                                                                   \
		return collective_take(&call, &result) ? result                                    \
						       : P##name(data, count, type, root, comm);   \
	}

#define ALLGATHER(name, count_type)                                                                \
	PRELOAD_EXPORT int name(const void *send, count_type send_count, MPI_Datatype send_type,   \
				void *recv, count_type count, MPI_Datatype type, MPI_Comm comm)    \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_ALLGATHER,                     \
						 .send = send,                                     \
						 .recv = recv,                                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .send_count = send_count,                         \
						 .send_type = send_type,                           \
						 .comm = comm };                                   \
		int result;                                                                        \
                                                                                                   \
		return collective_take(&call, &result)                                             \
			       ? result                                                            \
			       : P##name(send, send_count, send_type, recv, count, type, comm);    \
	}

#define REDUCE_SCATTER_BLOCK(name, count_type)                                                     \
	PRELOAD_EXPORT int name(const void *send, void *recv, count_type count, MPI_Datatype type, \
				MPI_Op op, MPI_Comm comm)                                          \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_REDUCE_SCATTER_BLOCK,          \
						 .send = send,                                     \
						 .recv = recv,                                     \
						 .count = count,                                   \
						 .type = type,                                     \
						 .op = op,                                         \
						 .comm = comm };                                   \
		int result;                                                                        \
                                                                                                   \
		return collective_take(&call, &result)                                             \
			       ? result                                                            \
			       : P##name(send, recv, count, type, op, comm);                       \
	}

ALLREDUCE(MPI_Allreduce, int)
REDUCE(MPI_Reduce, int)
BCAST(MPI_Bcast, int)
ALLGATHER(MPI_Allgather, int)
REDUCE_SCATTER_BLOCK(MPI_Reduce_scatter_block, int)

#if MPI_VERSION >= 4
ALLREDUCE(MPI_Allreduce_c, MPI_Count)
REDUCE(MPI_Reduce_c, MPI_Count)
BCAST(MPI_Bcast_c, MPI_Count)
ALLGATHER(MPI_Allgather_c, MPI_Count)
REDUCE_SCATTER_BLOCK(MPI_Reduce_scatter_block_c, MPI_Count)
#endif

PRELOAD_EXPORT int
MPI_Barrier(MPI_Comm comm)
{
	const struct collective call = { .kind = COLLECTIVE_BARRIER, .comm = comm };
	int result;

	return collective_take(&call, &result) ? result : PMPI_Barrier(comm);
}
