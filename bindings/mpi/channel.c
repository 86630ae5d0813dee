/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's membership in a job: joining, leaving and waiting. Each has a context of its
 * own, so that threads can wait in different communicators at the same time.
 */
#include "preload.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
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

static void
channel_print(int level, const char *line, void *arg)
{
	(void)arg;
	if (level <= 1)
		say(NULL, false, "%s", line);
}

/*
 * Ends a wait that sleeps at the library's first call, 0.1 s after the wait has begun; does not end
 * a join.
 */
static bool
channel_interrupt(void *arg)
{
	const struct channel *channel = arg;

	return channel->sleeps;
}

static enum way
way_of_status(int status)
{
	switch (status) {
	case FANIN_ERR_MANAGER:
	case FANIN_ERR_INVALID: /* the library's status without a manager's address */
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
	char interface[SETTING_LEN], handler[SETTING_LEN], transport[SETTING_LEN];
	const struct fanin_join_opts join = {
		.sz = sizeof(join),
		.job_name = job_name,
		.rank = (uint16_t)rank,
		.size = (uint16_t)size,
		.fixed_rank = true,
		.no_fallback = true,
		.interface = setting_text("FANIN_MPI_INTERFACE", interface),
		.handler = setting_text("FANIN_MPI_HANDLER", handler),
		.timeout_ms = preload_settings.timeout_ms,
		.multicast = FANIN_MULTICAST_NEVER,
	};
	struct fanin_init_opts init = { .sz = sizeof(init),
					.print = channel_print,
					.transport = setting_text("FANIN_MPI_TRANSPORT", transport),
					.interrupt = channel_interrupt };
	struct channel *made = calloc(1, sizeof(*made));
	const char *detail;
	int status;

	if (made == NULL) {
		*way = WAY_MEMORY;
		return FANIN_ERR_NO_MEMORY;
	}
	made->next_driven_waits = DRIVEN_WAITS;
	init.interrupt_arg = made;
	status = fanin_init(&init, &made->ctx);
	if (status == FANIN_OK)
		status = fanin_join(made->ctx, &join, &made->comm);
	if (status == FANIN_OK) {
		*channel = made;
		*way = WAY_NETWORK;
		return FANIN_OK;
	}
	*way = way_of_status(status);
	detail = made->ctx == NULL ? "" : fanin_ctx_error(made->ctx);
	say(NULL, false, "not in the network: %s%s%s", fanin_strerror(status),
	    detail[0] != '\0' ? ": " : "", detail);
	fanin_finalize(made->ctx);
	free(made);
	return status;
}

void
channel_leave(struct channel *channel, bool at_once)
{
	if (channel == NULL)
		return;
	(at_once ? fanin_abort : fanin_leave)(channel->comm);
	fanin_finalize(channel->ctx);
	free(channel);
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

int
channel_wait_quietly(struct channel *channel, fanin_request **req)
{
	int status;

	do
		status = channel_wait_some(channel, req);
	while (status == FANIN_IN_PROGRESS && !states_give_up());
	return status == FANIN_IN_PROGRESS ? FANIN_ERR_INTERRUPTED : status;
}
