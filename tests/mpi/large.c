/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program whose vectors have more bytes than an int counts: a sum in place, a broadcast, and
 * where MPI has counts that are wider than int, a nonblocking reduction of more bytes than an int
 * counts, one each. Rank 0 prints "cases N". Argument: MiB of a vector.
 */
#include "check.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int
main(int argc, char **argv)
{
	const size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
	const size_t n = bytes / sizeof(double);
	double *vector = malloc(bytes);
	int right = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(vector != NULL && n <= INT_MAX, "memory");
	for (size_t i = 0; i < n; i++)
		vector[i] = (double)(i % 1000003) + rank;
	MPI_Allreduce(MPI_IN_PLACE, vector, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (size_t i = 0; i < n; i++)
		right = right &&
			vector[i] == (double)(i % 1000003) * size + size * (size - 1) / 2.0;
	check(right, "a large sum");
	for (size_t i = 0; i < n && rank != 1; i++)
		vector[i] = -1;
	MPI_Bcast(vector, (int)n, MPI_DOUBLE, 1, MPI_COMM_WORLD);
	for (size_t i = 0; i < n; i++)
		right = right &&
			vector[i] == (double)(i % 1000003) * size + size * (size - 1) / 2.0;
	check(right, "a large broadcast");
#if MPI_VERSION >= 4
	{
		uint8_t *byte = (uint8_t *)vector;
		MPI_Request req;

		for (size_t i = 0; i < bytes; i++)
			byte[i] = (uint8_t)(i % 7 == (size_t)rank ? 1 << rank : 0);
		MPI_Iallreduce_c(MPI_IN_PLACE, byte, (MPI_Count)bytes, MPI_BYTE, MPI_BOR,
				 MPI_COMM_WORLD, &req);
		MPI_Wait(&req, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < bytes; i++)
			right = right &&
				byte[i] == (i % 7 < (size_t)size ? (uint8_t)(1 << (i % 7)) : 0);
		check(right, "a large reduction of bytes");
	}
#endif
	if (rank == 0) {
		printf("cases %d\n", n_cases);
		fflush(stdout);
	}
	free(vector);
	MPI_Finalize();
	return 0;
}
