/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program with many nonblocking collectives under way at the same time: completed in another
 * order than they were begun, on two communicators that ranks use in different orders, among
 * blocking ones and messages, with types and communicators that are freed before the end. Rank 0
 * prints "cases N". Argument: "wait": a rank does not take part, and the others wait for it until
 * they are ended from outside.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 3000
#define MANY 50

static int numbers[MANY][COUNT], sums[MANY][COUNT];

static void
fill(int which)
{
	for (int i = 0; i < COUNT; i++)
		numbers[which][i] = i * (which + 1) + rank;
	memset(sums[which], 0, sizeof(sums[which]));
}

static int
is_sum(int which)
{
	for (int i = 0; i < COUNT; i++)
		if (sums[which][i] != size * i * (which + 1) + size * (size - 1) / 2)
			return 0;
	return 1;
}

static void
many_in_any_order(MPI_Comm comm)
{
	MPI_Request reqs[MANY];
	int n_done = 0;

	for (int which = 0; which < MANY; which++) {
		fill(which);
		MPI_Iallreduce(numbers[which], sums[which], COUNT, MPI_INT, MPI_SUM, comm,
			       &reqs[which]);
	}
	for (int which = MANY - 1; which >= MANY / 2; which -= 2) {
		MPI_Wait(&reqs[which], MPI_STATUS_IGNORE);
		check(is_sum(which), "the latest first");
		n_done++;
	}
	while (n_done < MANY) {
		int which;

		MPI_Waitany(MANY, reqs, &which, MPI_STATUS_IGNORE);
		check(is_sum(which), "any of them");
		n_done++;
	}
}

/* Even ranks begin on one communicator, odd ranks on the other. */
static void
two_communicators(MPI_Comm a, MPI_Comm b)
{
	MPI_Comm comms[2] = { rank % 2 ? a : b, rank % 2 ? b : a };
	MPI_Request reqs[2];
	MPI_Status statuses[2];

	for (int i = 0; i < 2; i++) {
		const int which = comms[i] == a ? 0 : 1;

		fill(which);
		MPI_Iallreduce(numbers[which], sums[which], COUNT, MPI_INT, MPI_SUM, comms[i],
			       &reqs[i]);
	}
	MPI_Waitall(2, reqs, statuses);
	check(is_sum(0) && is_sum(1), "two communicators in different orders");
}

/*
 * Blocking collectives are called while nonblocking ones of the communicator are under way, and are
 * carried out after these.
 */
static void
blocking_between(MPI_Comm comm)
{
	MPI_Request reqs[3];
	MPI_Status statuses[3];

	for (int which = 0; which < 6; which++) {
		fill(which);
		if (which % 2 == 0)
			MPI_Iallreduce(numbers[which], sums[which], COUNT, MPI_INT, MPI_SUM, comm,
				       &reqs[which / 2]);
		else
			MPI_Allreduce(numbers[which], sums[which], COUNT, MPI_INT, MPI_SUM, comm);
	}
	MPI_Waitall(3, reqs, statuses);
	for (int which = 0; which < 6; which++)
		check(is_sum(which), "blocking calls between nonblocking ones");
}

/*
 * Types and communicators may be freed while calls that use them are under way: the calls still
 * complete with the right results.
 */
static void
freed_before_the_end(void)
{
	static double strided[2 * COUNT];
	MPI_Datatype gaps;
	MPI_Comm copy;
	MPI_Request reqs[2];
	MPI_Status statuses[2];

	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	/* The first blocking collective gives the communicator a job. */
	fill(0);
	MPI_Allreduce(numbers[0], sums[0], COUNT, MPI_INT, MPI_SUM, copy);
	check(is_sum(0), "a communicator's first sum");
	MPI_Type_vector(COUNT, 1, 2, MPI_DOUBLE, &gaps);
	MPI_Type_commit(&gaps);
	for (int i = 0; i < 2 * COUNT; i++)
		strided[i] = rank == 0 ? i : -1;
	fill(1);
	MPI_Ibcast(strided, 1, gaps, 0, copy, &reqs[0]);
	MPI_Iallreduce(numbers[1], sums[1], COUNT, MPI_INT, MPI_SUM, copy, &reqs[1]);
	MPI_Type_free(&gaps);
	MPI_Comm_free(&copy);
	MPI_Waitall(2, reqs, statuses);
	check(is_sum(1), "a sum on a communicator that was freed");
	for (int i = 0; i < COUNT; i++)
		if (strided[2 * i] != 2 * i || (rank != 0 && strided[2 * i + 1] != -1))
			check(0, "a broadcast of a type that was freed");
}

/*
 * MPI_Comm_free doesn't wait for other ranks here: odd and even ranks free two communicators in
 * different orders, and the last rank frees its own only after a message that rank 0 sends when it
 * has freed both.
 */
static void
freed_in_any_order(void)
{
	MPI_Comm comms[2];
	int word = 0;

	for (int i = 0; i < 2; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		fill(i);
		MPI_Allreduce(numbers[i], sums[i], COUNT, MPI_INT, MPI_SUM, comms[i]);
		check(is_sum(i), "sums before the end");
	}
	if (rank == size - 1)
		MPI_Recv(&word, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Comm_free(&comms[rank % 2]);
	MPI_Comm_free(&comms[1 - rank % 2]);
	if (rank == 0)
		MPI_Send(&word, 1, MPI_INT, size - 1, 99, MPI_COMM_WORLD);
}

/*
 * The last rank waits in MPI_Recv for a message that rank 0 sends only after its sum is complete.
 * This sum needs the last rank's data, so the nonblocking sum has to go on during the MPI_Recv.
 */
static void
messages_between(void)
{
	MPI_Request req;
	int word = -1;

	for (int round = 0; round < 20; round++) {
		fill(0);
		MPI_Iallreduce(numbers[0], sums[0], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &req);
		if (rank == size - 1) {
			MPI_Recv(&word, 1, MPI_INT, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(word == round, "what was sent after the sum");
		}
		MPI_Wait(&req, MPI_STATUS_IGNORE);
		check(is_sum(0), "a sum before a receive");
		if (rank == 0)
			MPI_Send(&round, 1, MPI_INT, size - 1, round, MPI_COMM_WORLD);
	}
}

/* Rank 1 does not take part, and waits to be ended. */
static void
wait_for_ever(void)
{
	MPI_Request req;

	if (rank == 0) {
		puts("running");
		fflush(stdout);
	}
	while (rank == 1)
		pause();
	MPI_Iallreduce(numbers[0], sums[0], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &req);
	MPI_Wait(&req, MPI_STATUS_IGNORE);
}

int
main(int argc, char **argv)
{
	MPI_Comm copy;
	int word = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	/*
	 * Nonblocking calls before any blocking one: MPI_COMM_WORLD may have a job since MPI_Init,
	 * the copy gets its job with the MPI_Bcast below.
	 */
	many_in_any_order(MPI_COMM_WORLD);
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	many_in_any_order(copy);
	fill(0);
	MPI_Allreduce(numbers[0], sums[0], COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check(is_sum(0), "the first sum");
	MPI_Bcast(&word, 1, MPI_INT, 0, copy);
	if (argc > 1 && strcmp(argv[1], "wait") == 0)
		wait_for_ever();
	many_in_any_order(MPI_COMM_WORLD);
	many_in_any_order(copy);
	two_communicators(MPI_COMM_WORLD, copy);
	blocking_between(copy);
	messages_between();
	freed_before_the_end();
	for (int i = 0; i < 10; i++)
		freed_in_any_order();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("cases %d\n", n_cases);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
