/* SPDX-License-Identifier: BSD-3-Clause */
/* Drives MPI's progress, and waits for its requests and the network's. */
#include "preload.h"

#include <sched.h>
#include <time.h>

/*
 * Looks without a result before the thread sleeps between looks: about 10 ms on a core that others
 * want, too.
 */
#define LOOKS_BEFORE_NAPS 20000
#define NAP_NS 50000
/* First looks of a wait; after these it sleeps until frames come. */
#define FIRST_LOOKS 16
/*
 * After a wait that was long enough that MPI may have been its cause, this many waits drive MPI's
 * progress all the time, and twice as many the next time.
 */
#define DRIVEN_WAITS 8
#define MAX_DRIVEN_WAITS 1024
/* MPI's progress is driven in one of this many looks. */
#define LOOKS_PER_PROGRESS 4

MPI_Comm library_comm = MPI_COMM_NULL;

int
progress_init(void)
{
	return PMPI_Comm_dup(MPI_COMM_WORLD, &library_comm);
}

void
progress_finish(void)
{
	if (library_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&library_comm);
}

void
mpi_progress(void)
{
	messages_look();
}

void
nap(unsigned int looks)
{
	thread_nap(looks);
}

/* Messages are looked for whenever MPI's progress is driven. */
void
message_awaited(MPI_Request req)
{
	(void)req;
}

void
own_comm(MPI_Comm comm)
{
	(void)comm;
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

/*
 * Looks n times, or without end if n is 0, whether the request is done, and drives MPI's progress.
 * Returns what fanin_wait does, or FANIN_IN_PROGRESS.
 */
static int
request_look(fanin_request **req, unsigned int n)
{
	const struct timespec pause = { .tv_nsec = NAP_NS };
	uint64_t done_bytes = 0;
	unsigned int idle = 0;

	for (unsigned int i = 0; n == 0 || i < n; i++) {
		uint64_t now_bytes;
		int status = fanin_test(*req);

		if (status != FANIN_IN_PROGRESS)
			return fanin_wait(req);
		now_bytes = fanin_request_progress(*req, NULL);
		if (i % LOOKS_PER_PROGRESS == 0)
			mpi_progress();
		idle = now_bytes == done_bytes ? idle + 1 : 0;
		done_bytes = now_bytes;
		if (idle < LOOKS_BEFORE_NAPS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
	return FANIN_IN_PROGRESS;
}

/* Sleeps until the request is done, for at most 0.1 s. Returns FANIN_IN_PROGRESS then. */
static int
request_sleep(struct channel *channel, fanin_request **req)
{
	int status;

	channel->sleeps = true;
	status = fanin_wait(req);
	channel->sleeps = false;
	return status == FANIN_ERR_INTERRUPTED ? FANIN_IN_PROGRESS : status;
}

/*
 * fanin_wait sleeps until frames come, which leaves the core to others, but stops MPI's progress: a
 * peer may have to complete a receive of a large message before its own call, which needs this
 * process. So a long wait drives MPI's progress, too, and so do the next waits, which are likely to
 * be of the same kind.
 */
int
channel_wait(struct channel *channel, fanin_request **req)
{
	int status = request_look(req, FIRST_LOOKS);

	if (status != FANIN_IN_PROGRESS)
		return status;
	if (channel->driven_waits == 0) {
		status = request_sleep(channel, req);
		if (status != FANIN_IN_PROGRESS)
			return status;
		if (channel->next_driven_waits == 0)
			channel->next_driven_waits = DRIVEN_WAITS;
		channel->driven_waits = channel->next_driven_waits;
		if (channel->next_driven_waits < MAX_DRIVEN_WAITS)
			channel->next_driven_waits *= 2;
	}
	channel->driven_waits--;
	return request_look(req, 0);
}

int
channel_wait_some(struct channel *channel, fanin_request **req)
{
	/*
	 * This does not yield to the program's thread, which may keep the core for long: a sleeping
	 * thread gets the core when frames come.
	 */
	for (unsigned int i = 0; i < FIRST_LOOKS; i++)
		if (fanin_test(*req) != FANIN_IN_PROGRESS)
			return fanin_wait(req);
	return request_sleep(channel, req);
}
