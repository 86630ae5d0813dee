/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that goes on after errors of collectives: it counts them, and ends after a number
 * of sums that were right. Every sum that is returned without an error must be right. Rank 0 prints
 * "running" once it runs, and at the end "cases" with the number of errors. Arguments: sums that
 * are to be right after the last error, or after the first sums if there is none; "nonblocking": by
 * several nonblocking calls at once.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 20000
#define FIRST_SUMS 20
#define AT_ONCE 4

static double numbers[AT_ONCE][COUNT], sums[AT_ONCE][COUNT];

static bool
is_right(int which, long i, int size)
{
	for (int k = 0; k < COUNT; k++)
		if (sums[which][k] != (double)(i + which + k) * size)
			return false;
	return true;
}

/* Returns how many of the sums have ended with an error. */
static int
sum_all(long i, int size, bool nonblocking)
{
	const int n = nonblocking ? AT_ONCE : 1;
	int errors[AT_ONCE] = { MPI_SUCCESS }, n_errors = 0, status;
	MPI_Request reqs[AT_ONCE];
	MPI_Status statuses[AT_ONCE];

	for (int which = 0; which < n; which++)
		for (int k = 0; k < COUNT; k++)
			numbers[which][k] = (double)(i + which + k);
	if (!nonblocking) {
		errors[0] = MPI_Allreduce(numbers[0], sums[0], COUNT, MPI_DOUBLE, MPI_SUM,
					  MPI_COMM_WORLD);
	} else {
		for (int which = 0; which < n; which++)
			MPI_Iallreduce(numbers[which], sums[which], COUNT, MPI_DOUBLE, MPI_SUM,
				       MPI_COMM_WORLD, &reqs[which]);
		status = MPI_Waitall(n, reqs, statuses);
		for (int which = 0; which < n && status == MPI_ERR_IN_STATUS; which++) {
			errors[which] = statuses[which].MPI_ERROR;
			/* The others of the array may be left for another wait. */
			if (errors[which] == MPI_ERR_PENDING)
				errors[which] = MPI_Wait(&reqs[which], &statuses[which]);
		}
		if (status != MPI_SUCCESS && status != MPI_ERR_IN_STATUS)
			MPI_Abort(MPI_COMM_WORLD, 4);
	}
	for (int which = 0; which < n; which++) {
		if (errors[which] != MPI_SUCCESS)
			n_errors++;
		else if (!is_right(which, i, size))
			MPI_Abort(MPI_COMM_WORLD, 3);
	}
	return n_errors;
}

int
main(int argc, char **argv)
{
	const int wanted = argc > 1 ? atoi(argv[1]) : 100;
	const bool nonblocking = argc > 2 && strcmp(argv[2], "nonblocking") == 0;
	int rank, size, n_errors = 0, all_errors[2], right = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	/* Since MPI 4.0 errors of MPI_Waitall belong to no communicator, and are this one's. */
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	MPI_Barrier(MPI_COMM_WORLD);
	for (long i = 0;; i++) {
		const int n = sum_all(i, size, nonblocking);
		double stop, votes;

		n_errors += n;
		right = n == 0 ? right + 1 : 0;
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
