/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that relies on MPI's progress: a rank that waits in a collective must move its
 * messages meanwhile, nonblocking collectives complete before what is posted after them, and
 * one-sided calls, late ranks and threads change nothing. Rank 0 prints "cases N". Arguments:
 * seconds that a rank sleeps before a collective; "threads": also with MPI_THREAD_MULTIPLE,
 * "one-sided": also one-sided calls, which Open MPI does not have over TCP.
 */
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE (4 << 20)
#define COUNT 5000
#define THREADS 3
#define ROUNDS 20

static int numbers[COUNT], sums[COUNT];

static void
sum_and_check(MPI_Comm comm, const char *what)
{
	int n;

	MPI_Comm_size(comm, &n);
	for (int i = 0; i < COUNT; i++)
		numbers[i] = i;
	MPI_Allreduce(numbers, sums, COUNT, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < COUNT; i++)
		if (sums[i] != n * i)
			check(0, what);
	check(1, what);
}

/* The sender waits in the collective before the receiver has got the message. */
static void
message_over_collective(void)
{
	char *large = calloc(LARGE, 1);
	MPI_Request req;

	if (rank == 0) {
		for (int i = 0; i < LARGE; i++)
			large[i] = (char)(i / 4096);
		MPI_Isend(large, LARGE, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &req);
		sum_and_check(MPI_COMM_WORLD, "allreduce after a large send");
		MPI_Wait(&req, MPI_STATUS_IGNORE);
	} else {
		if (rank == 1) {
			MPI_Recv(large, LARGE, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(large[LARGE - 1] == (char)((LARGE - 1) / 4096), "a large message");
		}
		sum_and_check(MPI_COMM_WORLD, "allreduce after a large receive");
	}
	free(large);
}

/* Rank 1 receives what rank 0 sends after its wait for the nonblocking collective. */
static void
nonblocking_before_receive(void)
{
	MPI_Request reqs[2];
	MPI_Status statuses[2];
	int word = -1, done = 0;

	for (int i = 0; i < COUNT; i++)
		numbers[i] = rank + i;
	MPI_Iallreduce(numbers, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &reqs[0]);
	if (rank == 1) {
		MPI_Irecv(&word, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, &reqs[1]);
		MPI_Waitall(2, reqs, statuses);
		check(word == 4711, "what was sent after the wait");
	} else {
		while (!done)
			MPI_Test(&reqs[0], &done, MPI_STATUS_IGNORE);
		word = 4711;
		if (rank == 0)
			MPI_Send(&word, 1, MPI_INT, 1, 8, MPI_COMM_WORLD);
	}
	check(sums[10] == size * 10 + size * (size - 1) / 2, "a nonblocking sum");
}

static void
one_sided(void)
{
	int *memory = calloc((size_t)size, sizeof(int)), put = rank;
	MPI_Win win;

	MPI_Win_create(memory, (MPI_Aint)sizeof(int) * size, sizeof(int), MPI_INFO_NULL,
		       MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < size; i++)
		MPI_Put(&put, 1, MPI_INT, i, rank, 1, MPI_INT, win);
	sum_and_check(MPI_COMM_WORLD, "allreduce beside one-sided calls");
	MPI_Win_fence(0, win);
	for (int i = 0; i < size; i++)
		check(memory[i] == i, "what was put");
	MPI_Win_free(&win);
	free(memory);
}

static void *
thread_run(void *arg)
{
	MPI_Comm comm = *(MPI_Comm *)arg;
	long mine[2000], all[2000];

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 2000; i++)
			mine[i] = i + rank + round;
		MPI_Allreduce(mine, all, 2000, MPI_LONG, MPI_SUM, comm);
		for (int i = 0; i < 2000; i++)
			if (all[i] != (long)size * (i + round) + size * (size - 1) / 2)
				return arg;
	}
	return NULL;
}

/* Threads with communicators of their own, which go on in any order. */
static void
threads_run(void)
{
	MPI_Comm comms[THREADS];
	pthread_t threads[THREADS];
	void *wrong;

	for (int i = 0; i < THREADS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		/* Its job is made here, so that threads do not make theirs in different orders. */
		sum_and_check(comms[i], "the first sum of a communicator");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread_run, &comms[(i + rank) % THREADS]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &wrong);
		check(wrong == NULL, "sums in threads");
	}
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
}

int
main(int argc, char **argv)
{
	const char *more = argc > 2 ? argv[2] : "";
	const int wanted = strcmp(more, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
	int level;

	MPI_Init_thread(&argc, &argv, wanted, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	sum_and_check(MPI_COMM_WORLD, "the first sum");
	message_over_collective();
	nonblocking_before_receive();
	if (strcmp(more, "one-sided") == 0)
		one_sided();
	if (rank == size - 1 && argc > 1)
		sleep((unsigned int)atoi(argv[1]));
	sum_and_check(MPI_COMM_WORLD, "a sum with a late rank");
	if (wanted == MPI_THREAD_MULTIPLE && level == wanted)
		threads_run();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("cases %d, thread level %s\n", n_cases,
		       level == MPI_THREAD_MULTIPLE ? "multiple" : "lower");
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
