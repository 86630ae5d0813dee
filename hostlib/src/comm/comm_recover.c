/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovers a communicator whose run the switch has lost, because the job was created again there:
 * joins again and resumes. Nothing here blocks: each poll does what can be done.
 */
#include "comm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A refusal counts for this long: a switch whose parent is silent refuses every second JOIN. */
#define REFUSED_NS (3000 * 1000000ull)
static_assert(REFUSED_NS > 2 * FANIN_REJOIN_REPEAT_MAX_NS, "from one refusal to the next");
/* A rank whose connection to the manager has been down for this long is gone. */
#define AWAY_NS (1000 * 1000000ull)

/* True if the new run has room for the blocks in flight, and for packets as they were cut. */
static bool
run_fits(const struct fanin_comm *comm)
{
	return comm->member.window >= comm->window &&
	       comm->member.payload_bytes >= comm->payload_bytes;
}

/*
 * True if only missing ranks keep the new run from starting: the manager has this rank at the
 * switch that it joins at, knows a tree, and the switch does not refuse.
 */
static bool
only_ranks_are_missing(const struct fanin_comm *comm, uint64_t now_ns)
{
	return comm->manager != NULL && fanin_manager_is_current(comm->manager) &&
	       fanin_manager_stranded(comm->manager, comm->trees.index)[0] == '\0' &&
	       comm->recovery.path_problem[0] == '\0' && !fanin_comm_is_elsewhere(comm) &&
	       (comm->recovery.refused_ns == 0 || now_ns - comm->recovery.refused_ns >= REFUSED_NS);
}

/*
 * Tells the engine which ranks the new run waits for. Only the manager knows whether a rank that
 * has not joined again is late or gone: a switch can't tell before the run.
 */
static void
missing_note(struct fanin_comm *comm)
{
	struct fanin_member *member = &comm->member;
	struct fanin_rejoin rejoin = { 0 };
	const uint64_t now_ns = fanin_now_ns(NULL);
	struct fanin_ranks away, left;
	uint64_t away_ns;

	if (member->refusal != FANIN_REASON_NONE)
		comm->recovery.refused_ns = now_ns;
	member->refusal = FANIN_REASON_NONE;
	if (member->acknowledged) {
		rejoin.told_ns = member->told_ns;
		rejoin.missing = fanin_ranks_all(member->config.size);
		fanin_ranks_subtract(&rejoin.missing, &member->joined);
	}
	if (comm->manager != NULL && fanin_manager_is_current(comm->manager)) {
		fanin_manager_away(comm->manager, &away, &away_ns);
		fanin_ranks_keep(&away, &rejoin.missing);
		left = *fanin_manager_left(comm->manager);
		fanin_ranks_keep(&left, &rejoin.missing);
		if (only_ranks_are_missing(comm, now_ns)) {
			rejoin.late = rejoin.missing;
			fanin_ranks_subtract(&rejoin.late, &left);
			fanin_ranks_subtract(&rejoin.late, &away);
		}
		/*
		 * A link may be down for a moment. A rank that has left may have given up because
		 * of ranks that are away.
		 */
		if (fanin_ranks_is_empty(&away))
			rejoin.gone = left;
		else if (now_ns - away_ns >= AWAY_NS)
			rejoin.gone = away;
		/*
		 * A switch of a tree does not know which ranks elsewhere have joined until the
		 * switches behind it are complete.
		 */
		if (!fanin_ranks_is_empty(&rejoin.gone))
			rejoin.missing = rejoin.gone;
	}
	comm->protocol->on_switch->note_rejoin(comm->endpoint, &rejoin);
}

static void
rejoin(struct fanin_comm *comm)
{
	struct fanin_member *member = &comm->member;
	const struct fanin_log *log = &comm->ctx->log;
	struct fanin_error error = { 0 };
	int status;

	if (!comm->recovery.rejoining) {
		fanin_log_line(log, FANIN_LOG_WARNING, "the run of job %u is lost: joining again",
			       member->config.job);
		fanin_member_rejoin(member, comm->protocol->on_switch->progress(comm->endpoint));
		comm->recovery.rejoining = true;
		comm->recovery.refused_ns = 0;
	}
	status = fanin_member_rejoin_poll(member, &error);
	missing_note(comm);
	if (status == FANIN_IN_PROGRESS)
		return;
	comm->recovery.rejoining = false;
	if (status == FANIN_OK && run_fits(comm))
		status = fanin_comm_move_end(comm, &error);
	if (status != FANIN_OK || !run_fits(comm)) {
		/* The job may still be under repair; the engine's timeout ends this. */
		fanin_log_line(log, FANIN_LOG_WARNING, "can't go on with job %u yet: %s",
			       member->config.job,
			       status != FANIN_OK
				       ? error.text
				       : "its window or its packets are smaller than before");
		return;
	}
	if (comm->protocol->on_switch->resume(comm->endpoint, member->epoch, member->instance,
					      member->first_block) == FANIN_OK)
		fanin_log_line(log, FANIN_LOG_INFO, "job %u goes on at block %u",
			       member->config.job, member->first_block);
}

/* Fails all blocks in flight: the manager has removed the job from the switches. */
static void
job_end(struct fanin_comm *comm)
{
	struct fanin_error error;
	uint64_t away_ns;

	fanin_error_set(&error, 0, "the manager %s has ended the job: %.300s",
			fanin_manager_address(comm->manager), fanin_manager_ended(comm->manager));
	fanin_manager_away(comm->manager, &error.missing, &away_ns);
	comm->protocol->on_switch->abort(comm->endpoint, FANIN_ERR_MANAGER, &error);
}

/* Applies the manager's statement of where the job continues, or why it can't. */
static void
home_apply(struct fanin_comm *comm)
{
	struct fanin_recovery *recovery = &comm->recovery;
	const struct fanin_manager_home *home = fanin_manager_home(comm->manager,
								   comm->trees.index);
	const char *stranded = fanin_manager_stranded(comm->manager, comm->trees.index);

	if (home != NULL) {
		/*
		 * A rank with nothing to send would not learn this from the switch, while other
		 * ranks wait for it there.
		 */
		if (home->generation != recovery->generation)
			comm->protocol->on_switch->suspect_run(comm->endpoint);
		recovery->generation = home->generation;
		fanin_comm_move(comm, home);
	}
	if (stranded[0] != '\0')
		snprintf(recovery->hint, sizeof(recovery->hint),
			 "the manager has no other tree: %s", stranded);
	else
		memcpy(recovery->hint, recovery->path_problem, sizeof(recovery->path_problem));
	comm->protocol->on_switch->hint(comm->endpoint, recovery->hint);
}

/*
 * Applies the manager's messages. If the protocol resumes no runs, only the end of the job counts.
 */
static void
manager_apply_changes(struct fanin_comm *comm)
{
	if (fanin_protocol_recovers(comm->protocol))
		home_apply(comm);
	comm->recovery.applied_changes = fanin_manager_changes(comm->manager);
	if (fanin_manager_ended(comm->manager)[0] != '\0' &&
	    comm->protocol->on_switch->abort != NULL)
		job_end(comm);
}

/*
 * True if a rank has left: either it had all results and knew that all others had them, or it has
 * given up. Without it there can't be another run.
 */
static bool
is_over(const struct fanin_comm *comm)
{
	return comm->closing.has_begun && comm->manager != NULL &&
	       !fanin_ranks_is_empty(fanin_manager_left(comm->manager));
}

static void
give_up(struct fanin_comm *comm)
{
	const struct fanin_ranks *left = fanin_manager_left(comm->manager);
	struct fanin_error error;
	char ranks[256];

	fanin_error_set(&error, 0, "%s has left", fanin_format_ranks(left, ranks, sizeof(ranks)));
	error.missing = *left;
	comm->protocol->on_switch->abort(comm->endpoint, FANIN_ERR_MANAGER, &error);
}

int
fanin_comm_recover_poll(struct fanin_comm *comm)
{
	int n;

	if (comm->manager != NULL &&
	    (fanin_manager_changes(comm->manager) != comm->recovery.applied_changes ||
	     comm->recovery.path_problem[0] != '\0'))
		manager_apply_changes(comm);
	if (!fanin_protocol_recovers(comm->protocol))
		return comm->protocol->poll(comm->endpoint);
	fanin_comm_follow(comm);
	n = comm->protocol->poll(comm->endpoint);
	if (n < 0 || !comm->protocol->on_switch->run_lost(comm->endpoint))
		return n;
	if (is_over(comm))
		give_up(comm);
	else
		rejoin(comm);
	return n;
}
