/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that goes on after errors of collectives: it counts them, and ends after a number of sums that were right. Every sum
 * that is returned without an error must be right. Rank 0 prints "running" once it runs, and at the end "cases" with the number of errors.
 * Argument: sums that are to be right after the last error, or after the first sums if there is none.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT 20000
#define FIRST_SUMS 20

int
main(int argc, char **argv)
{
	static double numbers[COUNT], sums[COUNT];
	const int wanted = argc > 1 ? atoi(argv[1]) : 100;
	int rank, size, n_errors = 0, all_errors[2], right = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (long i = 0;; i++) {
		double stop, votes;

		for (int k = 0; k < COUNT; k++)
			numbers[k] = (double)(i + k);
		if (MPI_Allreduce(numbers, sums, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) !=
		    MPI_SUCCESS) {
			n_errors++;
			right = 0;
		} else {
			for (int k = 0; k < COUNT; k++)
				if (sums[k] != (double)(i + k) * size)
					MPI_Abort(MPI_COMM_WORLD, 3);
			right++;
		}
		if (i == FIRST_SUMS && rank == 0) {
			puts("running");
			fflush(stdout);
		}
		/* Too small for the network: who has had enough, if all have. */
		stop = n_errors != 0 && right >= wanted;
		MPI_Allreduce(&stop, &votes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		if (votes == size)
			break;
		usleep(1000);
	}
	MPI_Allreduce(&n_errors, &all_errors[0], 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&n_errors, &all_errors[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("cases: errors %d to %d\n", all_errors[0], all_errors[1]);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
