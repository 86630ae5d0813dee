/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that makes calls that go to MPI, whose instructions the net tests count.
 * Arguments: how many, and which: "self", sums of MPI_COMM_SELF; "world", of MPI_COMM_WORLD, of 8
 * bytes; "receive", MPI_Irecv of a neighbor's message and its MPI_Wait.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 2

int
main(int argc, char **argv)
{
	const int n = argc > 1 ? atoi(argv[1]) : 0;
	const char *which = argc > 2 ? argv[2] : "self";
	int ones[COUNT] = { 1, 1 }, sums[COUNT], rank, size;
	MPI_Request req;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < n; i++) {
		if (strcmp(which, "receive") == 0) {
			MPI_Irecv(sums, COUNT, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
				  &req);
			MPI_Send(ones, COUNT, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
			MPI_Wait(&req, MPI_STATUS_IGNORE);
		} else {
			MPI_Allreduce(ones, sums, COUNT, MPI_INT, MPI_SUM,
				      strcmp(which, "self") == 0 ? MPI_COMM_SELF : MPI_COMM_WORLD);
		}
	}
	MPI_Finalize();
	return 0;
}
