/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures MPI's collectives of floats. Run by mpirun; arguments: COLLECTIVE BYTES ITERS WARMUP
 * [in-place] [mark=SOCKET]. A failure inside MPI ends the program, which is MPI's default.
 */
#include <mpi.h>
#include <stdio.h>

#include "lab/bench/peers/loop.h"

static void
mpi_barrier(struct peer *peer)
{
	(void)peer;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void
mpi_collective(struct peer *peer, const float *send, float *recv, size_t count)
{
	const void *from = recv == send ? MPI_IN_PLACE : send;
	const int n = (int)count, part = n / peer->size;

	switch (peer->kind) {
	case PEER_ALLREDUCE:
		MPI_Allreduce(from, recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case PEER_REDUCE_SCATTER:
		MPI_Reduce_scatter_block(from, recv == send ? recv : recv + part * peer->rank, part,
					 MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		break;
	case PEER_BROADCAST:
		MPI_Bcast(recv, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
		break;
	case PEER_ALLGATHER:
		MPI_Allgather(recv == send ? from : send + part * peer->rank, part, MPI_FLOAT, recv,
			      part, MPI_FLOAT, MPI_COMM_WORLD);
		break;
	default:
		MPI_Barrier(MPI_COMM_WORLD);
	}
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
		.collective = mpi_collective,
		.maximum = mpi_maximum,
	};
	struct peer_task task = { 0 };
	int status;

	if (argc < 5) {
		fputs("usage: mpirun ... collective-mpi COLLECTIVE BYTES ITERS WARMUP [in-place] [mark=SOCKET]\n",
		      stderr);
		return 2;
	}
	peer_task_parse(&task, (const char *const *)argv + 2);
	peer_task_more(&task, (const char *const *)argv + 5);
	peer.kind = peer_collective_parse(argv[1]);
	if (peer.kind == PEER_BROADCAST)
		task.in_place = true;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
	status = peer_run(&peer, &task);
	MPI_Finalize();
	return status;
}
