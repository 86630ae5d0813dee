/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs of the same ranks beside a communicator's, each with runs, trees and block numbers of its
 * own. Either all ranks join one or none does, which they agree on by collectives of the
 * communicator.
 */
#include "comm_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/protocol/split.h"

const char *
fanin_comm_beside_obstacle(struct fanin_comm *comm, const struct fanin_join_opts *options,
			   enum fanin_beside_use use, const char *number)
{
	const struct fanin_protocol *protocol = fanin_protocol_beside(use);

	if (options->job_name == NULL)
		return "the job was given by its switch, and only the network manager makes another one";
	if (comm->protocol->on_switch == NULL)
		return "the job runs without a switch";
	if (comm->protocol->has_leaders)
		return "the job has no tree";
	if (fanin_comm_wants_memif(comm->ctx, options))
		return "memif serves one job of a host";
	if (strcmp(comm->ctx->transport, "af_xdp") == 0)
		return "af_xdp serves one job of a host";
	if (protocol == NULL)
		return "this library was built without the protocol of such a job";
	if (strlen(options->job_name) + strlen(".") + strlen(protocol->name) + strlen(number) >
	    FANIN_JOB_NAME_MAX)
		return "the job's name is too long for that of another one";
	return NULL;
}

/* Fails a communicator whose ranks may no longer agree on what comes next. Returns the status. */
static int
end_all(struct fanin_comm *comm, const char *what, int status, struct fanin_error *error)
{
	struct fanin_error why = { 0 };

	fanin_error_set(&why, status,
			"%s while the ranks of job '%s' agreed on a second one for %s",
			status == FANIN_ERR_INTERRUPTED ? "interrupted" : fanin_strerror(status),
			comm->job_name, what);
	fanin_comm_abort(comm, status, &why);
	*error = why;
	return status;
}

/*
 * Sets the error of a communicator that has failed, and the ranks that it lacks. Returns the
 * status.
 */
static int
failed(const struct fanin_comm *comm, int status, struct fanin_error *error)
{
	fanin_error_set(error, status, "%s", fanin_comm_error(comm));
	fanin_comm_missing_set(comm, &error->missing);
	return status;
}

int
fanin_comm_min_of_all(struct fanin_comm *comm, const char *what, enum fanin_dtype dtype,
		      void *values, uint64_t n, struct fanin_error *error)
{
	struct fanin_request request = {
		.comm = comm,
		.send = values,
		.recv = values,
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = (uint8_t)dtype,
		.op = FANIN_MIN,
	};
	int status;

	fanin_ctx_lock(comm->ctx);
	status = comm->ops->post(comm, &request, n);
	if (status == FANIN_OK) {
		fanin_ctx_wake(comm->ctx);
		status = fanin_ctx_wait(comm->ctx, &request, UINT64_MAX);
		if (request.status == FANIN_IN_PROGRESS)
			end_all(comm, what, status, error);
		else if (status != FANIN_OK)
			failed(comm, status, error);
		fanin_split_free(&request);
	} else if (status == FANIN_ERR_NO_MEMORY) {
		/*
		 * The other ranks have posted it, and would take this rank's next collective for
		 * its part of this one.
		 */
		end_all(comm, what, status, error);
	} else {
		failed(comm, status, error);
	}
	fanin_ctx_unlock(comm->ctx);
	return status;
}

/* Joins the other job. Returns FANIN_OK, or why this rank is not in it. */
static int
other_join(const struct fanin_join_opts *options, const struct fanin_beside *job,
	   struct fanin_comm **joined, struct fanin_error *error)
{
	struct fanin_comm *comm = job->owner;
	struct fanin_join_opts other = *options;
	const struct fanin_protocol *protocol = fanin_protocol_beside(job->use);
	char name[FANIN_JOB_NAME_MAX + 1];
	int status;

	snprintf(name, sizeof(name), "%s.%s%s", options->job_name, protocol->name, job->number);
	other.job_name = name;
	other.handler = protocol->handlers[0];
	other.switch_address = NULL;
	other.job = 0;
	other.key = 0;
	other.fixed_rank = true;
	other.rank = comm->member.config.rank;
	other.reproducible = false;
	other.accumulate_f32 = false;
	other.authenticate = comm->ops->part(comm, 0)->member.config.authenticate;
	other.no_fallback = true;
	other.window = 0;
	other.multicast = FANIN_MULTICAST_NEVER;
	other.trees = job->trees;
	status = fanin_comm_join(comm->ctx, &other, job, joined);
	if (status != FANIN_OK)
		*error = comm->ctx->error;
	return status;
}

int
fanin_comm_beside_join(const struct fanin_join_opts *options, const struct fanin_beside *job,
		       const char *obstacle, struct fanin_comm **joined, char *why,
		       struct fanin_error *error)
{
	struct fanin_comm *comm = job->owner;
	uint8_t can = obstacle == NULL;
	struct fanin_error found = { 0 };
	struct fanin_comm *beside = NULL;
	uint8_t there;
	int status = fanin_comm_min_of_all(comm, job->what, FANIN_U8, &can, 1, error);

	if (status != FANIN_OK)
		return status;
	if (!can) {
		snprintf(why, FANIN_TEXT_LEN, "%s",
			 obstacle != NULL ? obstacle : "another rank can't join a second job");
		return FANIN_OK;
	}
	status = other_join(options, job, &beside, &found);
	if (status == FANIN_ERR_INTERRUPTED) {
		fanin_ctx_lock(comm->ctx);
		end_all(comm, job->what, status, error);
		fanin_ctx_unlock(comm->ctx);
		return status;
	}
	/*
	 * All ranks use the job, or none does: at a rank that gets no result here the communicator
	 * has failed.
	 */
	there = status == FANIN_OK;
	status = fanin_comm_min_of_all(comm, job->what, FANIN_U8, &there, 1, error);
	if (status == FANIN_OK && there) {
		fanin_ctx_lock(comm->ctx);
		beside->owner = comm;
		*joined = beside;
		fanin_ctx_unlock(comm->ctx);
		return FANIN_OK;
	}
	if (beside != NULL) {
		struct fanin_error kept = *error;

		fanin_leave(beside);
		*error = kept;
	}
	if (status != FANIN_OK)
		return status;
	fanin_error_clear(error);
	snprintf(why, FANIN_TEXT_LEN, "%s",
		 found.text[0] != '\0' ? found.text : "another rank could not join the second job");
	return FANIN_OK;
}

/* Removes this communicator from beside its owner. */
static void
owner_forget(struct fanin_comm *comm)
{
	struct fanin_comm *owner = comm->owner;

	for (unsigned int use = 0; use < FANIN_BESIDE_USES; use++) {
		if (owner->beside[use] == comm)
			owner->beside[use] = NULL;
	}
}

int
fanin_comm_beside_leave(struct fanin_comm *comm, struct fanin_error *error)
{
	int last = FANIN_OK;
	int status;

	/* All at once: ranks need not have freed the same ones before. */
	fanin_ctx_lock(comm->ctx);
	for (struct fanin_region *region = comm->regions.first; region != NULL;
	     region = region->next)
		fanin_comm_close_begin(region->comm);
	fanin_ctx_unlock(comm->ctx);
	while (comm->regions.first != NULL) {
		status = fanin_comm_region_free(comm->regions.first);
		if (status != FANIN_OK) {
			last = status;
			*error = comm->ctx->error;
		}
	}
	for (unsigned int use = 0; use < FANIN_BESIDE_USES; use++) {
		status = fanin_leave(comm->beside[use]);
		if (status != FANIN_OK) {
			last = status;
			*error = comm->ctx->error;
		}
	}
	if (comm->owner != NULL)
		owner_forget(comm);
	return last;
}

/* Copies a text. Returns false without memory. */
static bool
text_copy(const char **text, char **copy)
{
	if (*text == NULL)
		return true;
	*copy = strdup(*text);
	*text = *copy;
	return *copy != NULL;
}

void
fanin_comm_options_forget(struct fanin_comm *comm)
{
	char **texts = comm->kept.texts;

	for (size_t i = 0; i < sizeof(comm->kept.texts) / sizeof(texts[0]); i++)
		free(texts[i]);
}

int
fanin_comm_options_keep(struct fanin_comm *comm, const struct fanin_join_opts *options,
			struct fanin_error *error)
{
	struct fanin_join_opts *kept = &comm->kept.options;
	char **texts = comm->kept.texts;

	*kept = *options;
	kept->job_name = options->job_name != NULL ? comm->job_name : NULL;
	kept->switch_address = NULL;
	kept->handler = NULL;
	kept->hosts = NULL;
	if (text_copy(&kept->manager, &texts[0]) && text_copy(&kept->token, &texts[1]) &&
	    text_copy(&kept->interface, &texts[2]) && text_copy(&kept->address, &texts[3]))
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
}
