/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job beside a communicator's by which broadcasts and allgathers go (docs/protocol.md, "Reliable multicast"), and which of them do. It is one of its own, with runs,
 * trees and block numbers of its own, so that an allgather and a reduce_scatter run side by side.
 */
#include "context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/protocol/split.h"

#define SUFFIX ".multicast"
#define HANDLER "broadcast"
/* Another whose own jobs multicast. */
#define HANDLER_PULL "pull"

static bool
reduces_nothing(struct fanin_comm *comm)
{
	return comm->ops->part(comm, 0)->member.multicast;
}

/* Returns from how many bytes on a vector is better off by multicast. The same at all ranks. */
static uint64_t
least_bytes(struct fanin_comm *comm)
{
	return (uint64_t)FANIN_MULTICAST_LEAST_PACKETS * comm->ops->part(comm, 0)->payload_bytes;
}

/* Returns why this rank can't join another job, or NULL. */
static const char *
obstacle(struct fanin_comm *comm, const struct fanin_join_opts *options)
{
	if (options->multicast == FANIN_MULTICAST_NEVER)
		return "the options say never";
	if (options->job_name == NULL)
		return "the job was given by its switch, and only the network manager makes another one";
	if (comm->protocol->on_switch == NULL)
		return "the job runs without a switch";
	if (comm->protocol->has_leaders)
		return "the job has no tree";
	if (reduces_nothing(comm))
		return "the job's handler reduces nothing";
	if (comm->member.config.size < 2)
		return "there is one rank";
	if (fanin_comm_wants_memif(comm->ctx, options))
		return "memif serves one job of a host";
	if (strcmp(comm->ctx->transport, "af_xdp") == 0)
		return "af_xdp serves one job of a host";
	if (strlen(options->job_name) + strlen(SUFFIX) > FANIN_JOB_NAME_MAX)
		return "the job's name is too long for that of another one";
	return NULL;
}

/* Ends a communicator whose ranks may not agree any more about what is next. Returns the status. */
static int
end_all(struct fanin_comm *comm, int status, struct fanin_error *error)
{
	struct fanin_error why = { 0 };

	fanin_error_set(&why, status,
			"%s while the ranks of job '%s' agreed on a second one for multicast",
			status == FANIN_ERR_INTERRUPTED ? "interrupted" : fanin_strerror(status),
			comm->job_name);
	fanin_comm_abort(comm, status, &why);
	*error = why;
	return status;
}

/*
 * Finds the least value of all ranks, by an allreduce on the communicator. Returns FANIN_OK or a negative status. If it is interrupted, the communicator has failed:
 * nothing refers to the request any more, and no rank goes on as if all had agreed.
 */
static int
least_of_all(struct fanin_comm *comm, uint8_t *value, struct fanin_error *error)
{
	struct fanin_request request = {
		.comm = comm,
		.send = value,
		.recv = value,
		.collective = FANIN_COLLECTIVE_ALLREDUCE,
		.dtype = FANIN_U8,
		.op = FANIN_MIN,
	};
	int status;

	fanin_ctx_lock(comm->ctx);
	status = comm->ops->post(comm, &request, 1);
	if (status == FANIN_OK) {
		fanin_ctx_wake(comm->ctx);
		status = fanin_ctx_wait(comm->ctx, &request, UINT64_MAX);
		if (request.status == FANIN_IN_PROGRESS)
			end_all(comm, status, error);
		else if (status != FANIN_OK)
			fanin_error_set(error, status, "%s", fanin_comm_error(comm));
		fanin_split_free(&request);
	} else {
		fanin_error_set(error, status, "%s", fanin_comm_error(comm));
	}
	fanin_ctx_unlock(comm->ctx);
	return status;
}

/* For the report, which another thread may ask for. */
__attribute__((format(printf, 2, 3))) static void
reason_set(struct fanin_comm *comm, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fanin_ctx_lock(comm->ctx);
	vsnprintf(comm->multicast_reason, sizeof(comm->multicast_reason), format, arguments);
	fanin_ctx_unlock(comm->ctx);
	va_end(arguments);
}

/* There is none: for the report, or an error if there has to be. */
static int
refuse(struct fanin_comm *comm, const struct fanin_join_opts *options, const char *why,
       struct fanin_error *error)
{
	reason_set(comm, "none: %.370s", why);
	if (options->multicast != FANIN_MULTICAST_ALWAYS)
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_UNSUPPORTED, "job '%s' has no multicast: %.300s",
			       comm->job_name, why);
}

/* Joins the other job. Returns FANIN_OK, or why this rank is not in it. */
static int
beside_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
	    struct fanin_comm **beside, struct fanin_error *error)
{
	struct fanin_join_opts other = *options;
	char name[FANIN_JOB_NAME_MAX + 1];
	int status;

	snprintf(name, sizeof(name), "%s%s", options->job_name, SUFFIX);
	other.job_name = name;
	other.handler = HANDLER;
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
	if (options->subgroups != 0)
		other.trees = (uint16_t)options->subgroups;
	status = fanin_join(comm->ctx, &other, beside);
	if (status != FANIN_OK)
		*error = comm->ctx->error;
	return status;
}

/* What a communicator was joined with, to join the other job later. */
struct fanin_multicast_later {
	struct fanin_join_opts options;
	char *texts[4];
};

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
fanin_comm_multicast_forget(struct fanin_comm *comm)
{
	struct fanin_multicast_later *later = comm->multicast_later;

	if (later == NULL)
		return;
	for (size_t i = 0; i < sizeof(later->texts) / sizeof(later->texts[0]); i++)
		free(later->texts[i]);
	free(later);
	comm->multicast_later = NULL;
}

static int
later_keep(struct fanin_comm *comm, const struct fanin_join_opts *options, struct fanin_error *error)
{
	struct fanin_multicast_later *later = calloc(1, sizeof(*later));

	comm->multicast_later = later;
	if (later != NULL) {
		later->options = *options;
		later->options.job_name = comm->job_name;
		if (text_copy(&later->options.manager, &later->texts[0]) &&
		    text_copy(&later->options.token, &later->texts[1]) &&
		    text_copy(&later->options.interface, &later->texts[2]) &&
		    text_copy(&later->options.address, &later->texts[3]))
			return FANIN_OK;
	}
	fanin_comm_multicast_forget(comm);
	return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
}

/* Joins the other job if all ranks can. The rest is as for fanin_comm_multicast_begin. */
static int
join_if_all_can(struct fanin_comm *comm, const struct fanin_join_opts *options,
		struct fanin_error *error)
{
	const char *why = obstacle(comm, options);
	uint8_t can = why == NULL;
	struct fanin_error found = { 0 };
	struct fanin_comm *beside = NULL;
	uint8_t there;
	int status = least_of_all(comm, &can, error);

	if (status != FANIN_OK)
		return status;
	if (!can)
		return refuse(comm, options,
			      why != NULL ? why : "another rank can't join a second job", error);
	status = beside_join(comm, options, &beside, &found);
	if (status == FANIN_ERR_INTERRUPTED) {
		fanin_ctx_lock(comm->ctx);
		end_all(comm, status, error);
		fanin_ctx_unlock(comm->ctx);
		return status;
	}
	/* All use it, or none: a rank that does not hear the result has no communicator any more. */
	there = status == FANIN_OK;
	status = least_of_all(comm, &there, error);
	if (status != FANIN_OK || !there) {
		struct fanin_error kept = *error;

		fanin_leave(beside);
		*error = kept;
		if (status != FANIN_OK)
			return status;
		fanin_error_clear(error);
		return refuse(comm, options,
			      found.text[0] != '\0' ? found.text
						    : "another rank could not join the second job",
			      error);
	}
	fanin_ctx_lock(comm->ctx);
	beside->owner = comm;
	comm->multicast = beside;
	fanin_ctx_unlock(comm->ctx);
	reason_set(comm,
		   options->multicast == FANIN_MULTICAST_ALWAYS
			   ? "all broadcasts and allgathers: the options say always"
			   : "broadcasts and allgathers of %llu bytes or more",
		   (unsigned long long)least_bytes(comm));
	return FANIN_OK;
}

/* True if all ranks know from what is the same everywhere that there is no other job. */
static bool
is_out_of_question(struct fanin_comm *comm, const struct fanin_join_opts *options)
{
	return options->multicast == FANIN_MULTICAST_NEVER || options->job_name == NULL ||
	       comm->protocol->on_switch == NULL || comm->protocol->has_leaders ||
	       comm->member.config.size < 2 || reduces_nothing(comm);
}

int
fanin_comm_multicast_begin(struct fanin_comm *comm, const struct fanin_join_opts *options,
			   struct fanin_error *error)
{
	comm->multicast_use = options->multicast;
	if (comm->protocol->on_switch != NULL && (strcmp(comm->member.handler, HANDLER) == 0 ||
						  strcmp(comm->member.handler, HANDLER_PULL) == 0)) {
		reason_set(comm, "all broadcasts and allgathers: the job's own handler multicasts");
		return FANIN_OK;
	}
	if (is_out_of_question(comm, options))
		return refuse(comm, options, obstacle(comm, options), error);
	if (options->multicast == FANIN_MULTICAST_ALWAYS)
		return join_if_all_can(comm, options, error);
	reason_set(comm,
		   "none yet: the first blocking broadcast or allgather of %llu bytes or more asks for it",
		   (unsigned long long)least_bytes(comm));
	return later_keep(comm, options, error);
}

/* True if a collective is better off by multicast. */
static bool
suits(struct fanin_comm *comm, const struct fanin_request *request)
{
	return !fanin_request_combines(request) && (comm->multicast_use == FANIN_MULTICAST_ALWAYS ||
						    request->total_bytes >= least_bytes(comm));
}

int
fanin_comm_multicast_prepare(struct fanin_comm *comm, const struct fanin_request *request,
			     struct fanin_error *error)
{
	struct fanin_join_opts options;
	int status;

	if (comm->multicast_later == NULL || !suits(comm, request))
		return FANIN_OK;
	options = comm->multicast_later->options;
	status = join_if_all_can(comm, &options, error);
	fanin_comm_multicast_forget(comm);
	return status;
}

struct fanin_comm *
fanin_comm_for(struct fanin_comm *comm, const struct fanin_request *request)
{
	return comm->multicast != NULL && suits(comm, request) ? comm->multicast : comm;
}
