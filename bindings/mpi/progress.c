/* SPDX-License-Identifier: BSD-3-Clause */
/* Drives MPI's progress, and waits for its requests. */
#include "preload.h"

#include <sched.h>
#include <time.h>

/* Looks of a background thread before it naps, and the length of its naps, which grows. */
#define QUIET_LOOKS 50
#define SHORTEST_NAP_NS 20000
#define LONGEST_NAP_NS 1000000

MPI_Comm preload_comm = MPI_COMM_NULL;

int
progress_init(void)
{
	return PMPI_Comm_dup(MPI_COMM_WORLD, &preload_comm);
}

void
progress_finish(void)
{
	if (preload_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&preload_comm);
}

/*
 * Drives progress by looking for a message. On a communicator of this process alone MPICH would not
 * look at the network.
 */
void
mpi_progress(void)
{
	messages_look();
}

void
nap(unsigned int looks)
{
	struct timespec time = { .tv_nsec = SHORTEST_NAP_NS };

	if (looks < QUIET_LOOKS) {
		sched_yield();
		return;
	}
	for (; looks > QUIET_LOOKS && time.tv_nsec < LONGEST_NAP_NS; looks -= QUIET_LOOKS / 2)
		time.tv_nsec += time.tv_nsec / 2;
	nanosleep(&time, NULL);
}

/* Waits in the background. may_give_up: fails when calls in progress in MPI_Finalize must fail. */
static int
wait_quietly(MPI_Request *req, bool may_give_up)
{
	int done = 0;

	for (unsigned int looks = 0;; looks++) {
		const int status = PMPI_Test(req, &done, MPI_STATUS_IGNORE);

		if (status != MPI_SUCCESS || done)
			return status;
		if (may_give_up && states_give_up())
			return MPI_ERR_OTHER;
		nap(looks);
	}
}

int
mpi_finish(int posted, MPI_Request *req, bool in_background)
{
	if (posted != MPI_SUCCESS)
		return posted;
	return in_background ? wait_quietly(req, true) : PMPI_Wait(req, MPI_STATUS_IGNORE);
}

int
mpi_finish_surely(MPI_Request *req, bool in_background)
{
	return in_background ? wait_quietly(req, false) : PMPI_Wait(req, MPI_STATUS_IGNORE);
}
