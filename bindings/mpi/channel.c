/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's membership in a job: joining, leaving and waiting. Each has a context of its
 * own, so that threads can wait in different communicators at the same time.
 */
#include "core.h"

#include <stdlib.h>

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
channel_join(const char *job_name, int rank, int size, const uint16_t *hosts,
	     struct channel **channel, enum way *way)
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
		.timeout_ms = mpi_settings.timeout_ms,
		.multicast = FANIN_MULTICAST_NEVER,
		.hosts = hosts,
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

int
channel_wait_quietly(struct channel *channel, fanin_request **req)
{
	int status;

	do
		status = channel_wait_some(channel, req);
	while (status == FANIN_IN_PROGRESS && !states_give_up());
	return status == FANIN_IN_PROGRESS ? FANIN_ERR_INTERRUPTED : status;
}
