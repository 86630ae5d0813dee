/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator whose run the switch has lost, because the job was made anew there, joins again and goes on. Nothing
 * here blocks: each poll does what can be done.
 */
#include "context.h"

#include <stdio.h>
#include <string.h>

/* The new run has to have room for what is in flight, and for packets as they were cut. */
static bool
run_fits(const struct fanin_comm *comm)
{
	return comm->member.window >= comm->window &&
	       comm->member.payload_bytes >= comm->payload_bytes;
}

static void
rejoin(struct fanin_comm *comm)
{
	struct fanin_member *member = &comm->member;
	const struct fanin_log *log = &comm->ctx->log;
	struct fanin_error error = { 0 };
	int status;

	if (!comm->rejoining) {
		fanin_log_line(log, FANIN_LOG_WARNING, "the run of job %u is lost: joining again",
			       member->config.job);
		fanin_member_rejoin(member, fanin_engine_progress(comm->engine));
		comm->rejoining = true;
	}
	status = fanin_member_rejoin_poll(member, &error);
	if (status == FANIN_IN_PROGRESS)
		return;
	comm->rejoining = false;
	if (status == FANIN_OK && run_fits(comm))
		status = fanin_comm_move_end(comm, &error);
	if (status != FANIN_OK || !run_fits(comm)) {
		/* Somebody may still be at work on the job; the engine's timeout ends this. */
		fanin_log_line(log, FANIN_LOG_WARNING, "can't go on with job %u yet: %s",
			       member->config.job,
			       status != FANIN_OK
				       ? error.text
				       : "its window or its packets are smaller than before");
		return;
	}
	if (fanin_engine_resume(comm->engine, member->epoch, member->instance,
				member->first_block) == FANIN_OK)
		fanin_log_line(log, FANIN_LOG_INFO, "job %u goes on at block %u",
			       member->config.job, member->first_block);
}

/* What the manager has said meanwhile: where the job goes on, or that it can't. */
static void
manager_heed(struct fanin_comm *comm)
{
	const struct fanin_manager_home *home = fanin_manager_home(comm->manager, comm->tree);
	const char *stranded = fanin_manager_stranded(comm->manager, comm->tree);

	if (home != NULL) {
		/* Who has nothing to send would not hear it from the switch, while others wait for it there. */
		if (home->generation != comm->generation)
			fanin_engine_doubt_run(comm->engine);
		comm->generation = home->generation;
		fanin_comm_move(comm, home);
	}
	if (stranded[0] != '\0')
		snprintf(comm->hint, sizeof(comm->hint), "the manager has no other tree: %s",
			 stranded);
	else
		memcpy(comm->hint, comm->way_problem, sizeof(comm->way_problem));
	fanin_engine_hint(comm->engine, comm->hint);
	comm->heeded_news = fanin_manager_news(comm->manager);
}

/* Who has left had all results, and knew that all others had them; and without it there is no other run. */
static bool
is_over(const struct fanin_comm *comm)
{
	return comm->closes && comm->manager != NULL && fanin_manager_left(comm->manager) != 0;
}

static void
give_up(struct fanin_comm *comm)
{
	struct fanin_error error = { .missing = fanin_manager_left(comm->manager) };
	char ranks[256];

	fanin_error_set(&error, 0, "%s has left",
			fanin_format_ranks(error.missing, ranks, sizeof(ranks)));
	fanin_engine_abort(comm->engine, FANIN_ERR_MANAGER, &error);
}

int
fanin_comm_recover_poll(struct fanin_comm *comm)
{
	int n;

	if (comm->manager != NULL &&
	    (fanin_manager_news(comm->manager) != comm->heeded_news || comm->way_problem[0] != '\0'))
		manager_heed(comm);
	fanin_comm_follow(comm);
	n = fanin_engine_poll(comm->engine);
	if (n < 0 || !fanin_engine_run_lost(comm->engine))
		return n;
	if (is_over(comm))
		give_up(comm);
	else
		rejoin(comm);
	return n;
}
