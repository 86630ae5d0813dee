/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that reduces to each rank, in place and not, by operators of MPI and its own, of
 * MPI_COMM_WORLD and of all its ranks but the first. The last line has "cases" and how many
 * reductions each rank has made in all.
 */
#include "check.h"

#include <stdint.h>
#include <stdlib.h>

#define MAX_COUNT 5000

static int n_made;

static void
add(void *in, void *acc, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((uint64_t *)acc)[i] += ((uint64_t *)in)[i];
}

static void
reduce(int count, MPI_Op op, int root, int in_place, MPI_Comm comm)
{
	static uint64_t mine[MAX_COUNT], sums[MAX_COUNT];
	int comm_rank, n, status, n_wrong = 0;

	MPI_Comm_rank(comm, &comm_rank);
	MPI_Comm_size(comm, &n);
	for (int i = 0; i < count; i++)
		mine[i] = sums[i] = (uint64_t)i * (uint64_t)(comm_rank + 1);
	if (comm_rank != root)
		status = MPI_Reduce(mine, NULL, count, MPI_UINT64_T, op, root, comm);
	else
		status = MPI_Reduce(in_place ? MPI_IN_PLACE : mine, sums, count, MPI_UINT64_T, op,
				    root, comm);
	for (int i = 0; i < count && comm_rank == root; i++)
		n_wrong += sums[i] != (uint64_t)i * (uint64_t)(n * (n + 1) / 2);
	if (n_wrong != 0)
		fprintf(stderr, "count %d, root %d, in place %d, %d ranks: %d wrong\n", count, root,
			in_place, n, n_wrong);
	check(status == MPI_SUCCESS && n_wrong == 0, "a reduction");
	n_made++;
}

static void
all_of(MPI_Comm comm)
{
	static const int counts[] = { 1, 200, 286, MAX_COUNT };
	MPI_Op own;
	int n;

	MPI_Comm_size(comm, &n);
	MPI_Op_create(add, 1, &own);
	for (int k = 0; k < 4; k++)
		for (int root = 0; root < n; root++)
			for (int in_place = 0; in_place < 2; in_place++) {
				reduce(counts[k], MPI_SUM, root, in_place, comm);
				reduce(counts[k], own, root, in_place, comm);
			}
	MPI_Op_free(&own);
}

int
main(int argc, char **argv)
{
	MPI_Comm others;
	int n_all;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, rank, &others);
	all_of(MPI_COMM_WORLD);
	if (others != MPI_COMM_NULL) {
		all_of(others);
		MPI_Comm_free(&others);
	}
	MPI_Allreduce(&n_made, &n_all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("cases %d\n", n_all);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
