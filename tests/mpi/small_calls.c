/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program of one rank that makes calls that go to MPI, whose instructions the net tests
 * count. Argument: how many.
 */
#include <mpi.h>
#include <stdlib.h>

int
main(int argc, char **argv)
{
	const int n = argc > 1 ? atoi(argv[1]) : 0;
	int one = 1, sum;

	MPI_Init(&argc, &argv);
	for (int i = 0; i < n; i++)
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	MPI_Finalize();
	return 0;
}
