/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's membership in a job: joined and left here, and waited for. Each has a context of its own, so that threads
 * wait in different communicators at the same time.
 */
#include "preload.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Looks without a result before the thread sleeps between them: about 10 ms on a core that others want, too. */
#define LOOKS_BEFORE_NAPS 20000
#define NAP_NS 50000
/* MPI's progress is asked for in each of so many looks. */
#define LOOKS_PER_PROGRESS 4

static void
channel_print(int level, const char *line, void *arg)
{
	(void)arg;
	if (level <= 1)
		fprintf(stderr, "fanin-mpi: %s\n", line);
}

static enum way
way_of_status(int status)
{
	switch (status) {
	case FANIN_ERR_MANAGER:
	case FANIN_ERR_INVALID: /* what the library says without a manager's address */
		return WAY_NO_MANAGER;
	case FANIN_ERR_PERMISSION:
		return WAY_PERMISSION;
	case FANIN_ERR_NO_MEMORY:
		return WAY_MEMORY;
	default:
		return WAY_NOT_JOINED;
	}
}

int
channel_join(const char *job_name, int rank, int size, struct channel **channel, enum way *way)
{
	const struct fanin_init_opts init = { .sz = sizeof(init),
					      .print = channel_print,
					      .transport = getenv("FANIN_MPI_TRANSPORT") };
	const struct fanin_join_opts join = {
		.sz = sizeof(join),
		.job_name = job_name,
		.rank = (uint16_t)rank,
		.size = (uint16_t)size,
		.fixed_rank = true,
		.no_fallback = true,
		.interface = getenv("FANIN_MPI_INTERFACE"),
		.handler = getenv("FANIN_MPI_HANDLER"),
		.timeout_ms = preload_settings.timeout_ms,
		.multicast = FANIN_MULTICAST_NEVER,
	};
	struct channel *made = calloc(1, sizeof(*made));
	int status;

	if (made == NULL) {
		*way = WAY_MEMORY;
		return FANIN_ERR_NO_MEMORY;
	}
	status = fanin_init(&init, &made->ctx);
	if (status == FANIN_OK)
		status = fanin_join(made->ctx, &join, &made->comm);
	if (status == FANIN_OK) {
		pthread_mutex_init(&made->lock, NULL);
		*channel = made;
		*way = WAY_NETWORK;
		return FANIN_OK;
	}
	*way = way_of_status(status);
	fprintf(stderr, "fanin-mpi: not in the network: %s: %s\n", fanin_strerror(status),
		made->ctx == NULL ? "" : fanin_ctx_error(made->ctx));
	fanin_finalize(made->ctx);
	free(made);
	return status;
}

void
channel_leave(struct channel *channel)
{
	if (channel == NULL)
		return;
	fanin_leave(channel->comm);
	fanin_finalize(channel->ctx);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
}

/*
 * fanin_wait sleeps until frames come, and MPI would stand still meanwhile: a peer's receive of a large message, which it must
 * end before its own call, needs this process. So both are looked at in turns.
 */
int
channel_wait(struct channel *channel, fanin_request **req)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	uint64_t done_bytes = 0;
	unsigned int looks = 0;

	for (unsigned int i = 0;; i++) {
		uint64_t now_bytes;
		int status;

		pthread_mutex_lock(&channel->lock);
		status = fanin_test(*req);
		now_bytes = status == FANIN_IN_PROGRESS ? fanin_request_progress(*req, NULL) : 0;
		if (status != FANIN_IN_PROGRESS)
			status = fanin_wait(req);
		pthread_mutex_unlock(&channel->lock);
		if (status != FANIN_IN_PROGRESS)
			return status;
		if (i % LOOKS_PER_PROGRESS == 0)
			mpi_progress();
		looks = now_bytes == done_bytes ? looks + 1 : 0;
		done_bytes = now_bytes;
		if (looks < LOOKS_BEFORE_NAPS)
			sched_yield();
		else
			nanosleep(&nap, NULL);
	}
}
