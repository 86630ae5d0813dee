/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce of floats, measured. Run by mpirun; arguments: BYTES ITERS WARMUP. A failure inside MPI ends the program,
 * that is MPI's default.
 */
#include <mpi.h>
#include <stdio.h>

#include "bench/peers/loop.h"

static void
mpi_barrier(struct peer *peer)
{
	(void)peer;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void
mpi_allreduce(struct peer *peer, const float *send, float *recv, size_t count)
{
	(void)peer;
	MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void
mpi_maximum(struct peer *peer, double *values, size_t count)
{
	(void)peer;
	MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int
main(int argc, char **argv)
{
	struct peer peer = {
		.barrier = mpi_barrier,
		.allreduce = mpi_allreduce,
		.maximum = mpi_maximum,
	};
	struct peer_task task;
	int status;

	if (argc != 4) {
		fputs("usage: mpirun ... allreduce-mpi BYTES ITERS WARMUP\n", stderr);
		return 2;
	}
	peer_task_parse(&task, (const char *const *)argv + 1);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
	status = peer_run(&peer, &task);
	MPI_Finalize();
	return status;
}
