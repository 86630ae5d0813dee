/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The check of MPI programs that compare their own results with what is right.
 */
#ifndef FANIN_TESTS_MPI_CHECK_H
#define FANIN_TESTS_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>

static int rank, size; /* in MPI_COMM_WORLD */
static int n_cases;

/* Counts a case, or ends all ranks if it is wrong. */
static void
check(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "rank %d: wrong: %s\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	n_cases++;
}

#endif
