/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program whose collectives end in the middle. Argument: "abort", one rank calls MPI_Abort;
 * "loop", sums until somebody ends a rank or the program; "gives-up", the same, without rank 0,
 * which does nothing, and MPI_Abort after an error; "idle FILE", 250 barriers of a communicator,
 * then nothing until there is such a file, for a minute at most, and sums to the end, which prints
 * "cases". Rank 0 prints "running" once it runs, and "idle".
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT 20000
/* A minute */
#define LOOK_US 10000
#define MAX_LOOKS 6000

/* Calls nothing of MPI. */
static void
wait_for_file(const char *path)
{
	for (int looks = 0; access(path, F_OK) != 0; looks++) {
		if (looks == MAX_LOOKS)
			MPI_Abort(MPI_COMM_WORLD, 5);
		usleep(LOOK_US);
	}
}

int
main(int argc, char **argv)
{
	static double numbers[COUNT], sums[COUNT];
	MPI_Comm comm = MPI_COMM_WORLD, copy;
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc > 1 && strcmp(argv[1], "gives-up") == 0) {
		MPI_Comm_split(MPI_COMM_WORLD, rank != 0, -rank, &comm);
		MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
		if (rank == 0)
			MPI_Recv(sums, COUNT, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Comm_rank(comm, &rank);
	}
	MPI_Comm_size(comm, &size);
	for (long i = 0;; i++) {
		numbers[7] = (double)i;
		if (MPI_Allreduce(numbers, sums, COUNT, MPI_DOUBLE, MPI_SUM, comm) != MPI_SUCCESS)
			MPI_Abort(MPI_COMM_WORLD, 4);
		if (sums[7] != (double)i * size)
			MPI_Abort(MPI_COMM_WORLD, 3);
		if (i == 10 && rank == 0) {
			puts("running");
			fflush(stdout);
		}
		if (i == 10 && argc > 2 && strcmp(argv[1], "idle") == 0) {
			MPI_Comm_dup(MPI_COMM_WORLD, &copy);
			for (int k = 0; k < 250; k++)
				MPI_Barrier(copy);
			if (rank == 0) {
				puts("idle");
				fflush(stdout);
			}
			wait_for_file(argv[2]);
			MPI_Barrier(copy);
		}
		if (i == 20 && argc > 2) {
			if (rank == 0) {
				puts("cases 20");
				fflush(stdout);
			}
			MPI_Finalize();
			return 0;
		}
		if (i == 50 && rank == 1 && argc > 1 && strcmp(argv[1], "abort") == 0)
			MPI_Abort(MPI_COMM_WORLD, 42);
	}
}
