/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The check of MPI programs that compare their own results with what is right, and where MPI's
 * errors go.
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

/*
 * Has MPI's errors reported by a handler, also those of calls that belong to no communicator: since
 * MPI 4.0 they are MPI_COMM_SELF's, before MPI_COMM_WORLD's.
 */
static inline void
set_errhandler(MPI_Errhandler handler)
{
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
}

#endif
