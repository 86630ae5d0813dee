/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Bcast or MPI_Allgather of bytes, measured. Run by mpirun; arguments: broadcast|allgather BYTES ITERS WARMUP, bytes being those of the whole vector. Rank 0
 * prints one JSON object: "times", each collective's seconds on the slowest rank, and "mismatches", wrong bytes of the first and last one on all ranks. A
 * failure inside MPI ends the program, that is MPI's default.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
	bool is_broadcast;
	int rank, size;
	size_t bytes;
	uint8_t *vector;
};

static uint8_t
byte_of(size_t i, unsigned long iteration)
{
	return (uint8_t)(i * 7 + i / 251 + iteration);
}

static void
fill(const struct run *run, unsigned long iteration)
{
	const size_t part = run->bytes / (size_t)run->size;
	const size_t first = run->is_broadcast ? 0 : part * (size_t)run->rank;
	const size_t n = run->is_broadcast ? (run->rank == 0 ? run->bytes : 0) : part;

	memset(run->vector, 0, run->bytes);
	for (size_t i = first; i < first + n; i++)
		run->vector[i] = byte_of(i, iteration);
}

static unsigned long
count_wrong(const struct run *run, unsigned long iteration)
{
	unsigned long wrong = 0;

	for (size_t i = 0; i < run->bytes; i++)
		wrong += run->vector[i] != byte_of(i, iteration);
	return wrong;
}

static double
collective_time(const struct run *run)
{
	double begin;

	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	if (run->is_broadcast)
		MPI_Bcast(run->vector, (int)run->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	else
		MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, run->vector,
			      (int)(run->bytes / (size_t)run->size), MPI_BYTE, MPI_COMM_WORLD);
	return MPI_Wtime() - begin;
}

static int
measure(const struct run *run, unsigned long iters, unsigned long warmup)
{
	double *times = calloc(iters, sizeof(*times));
	unsigned long wrong = 0, all_wrong = 0;

	if (times == NULL)
		return 1;
	for (unsigned long i = 0; i < warmup + iters; i++) {
		const bool is_checked = i == warmup || i + 1 == warmup + iters;
		double seconds;

		if (is_checked)
			fill(run, i);
		seconds = collective_time(run);
		if (is_checked)
			wrong += count_wrong(run, i);
		if (i >= warmup)
			times[i - warmup] = seconds;
	}
	MPI_Allreduce(MPI_IN_PLACE, times, (int)iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (run->rank == 0) {
		printf("{\"mismatches\": %lu, \"times\": [", all_wrong);
		for (unsigned long i = 0; i < iters; i++)
			printf("%s%.9f", i == 0 ? "" : ", ", times[i]);
		printf("]}\n");
	}
	free(times);
	return all_wrong != 0;
}

int
main(int argc, char **argv)
{
	struct run run;
	int status;

	if (argc != 5 || (strcmp(argv[1], "broadcast") != 0 && strcmp(argv[1], "allgather") != 0)) {
		fputs("usage: mpirun ... collective-mpi broadcast|allgather BYTES ITERS WARMUP\n",
		      stderr);
		return 2;
	}
	MPI_Init(&argc, &argv);
	run.is_broadcast = strcmp(argv[1], "broadcast") == 0;
	run.bytes = strtoul(argv[2], NULL, 10);
	MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &run.size);
	run.vector = malloc(run.bytes + 1);
	if (run.vector == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	status = measure(&run, strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
	free(run.vector);
	MPI_Finalize();
	return status;
}
