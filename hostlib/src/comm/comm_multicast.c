/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job beside a communicator's that carries broadcasts and allgathers
 * (protocols/broadcast/README.md), and the choice of collectives for it. The job has runs, trees
 * and block numbers of its own, so an allgather and a reduce_scatter run side by side.
 */
#include "comm.h"

#include <stdarg.h>
#include <stdio.h>

/*
 * Minimum of packets of a broadcast or allgather that goes by multicast, if the library chooses:
 * shorter ones are faster by blocks, which need no barriers before and after (docs/performance.md,
 * "Multicast").
 */
#define MIN_MULTICAST_PACKETS 16u

static bool
reduces_nothing(struct fanin_comm *comm)
{
	return comm->ops->part(comm, 0)->member.multicast;
}

/* Returns the size in bytes from which multicast is faster. The same at all ranks. */
static uint64_t
min_bytes(struct fanin_comm *comm)
{
	return (uint64_t)MIN_MULTICAST_PACKETS * comm->ops->part(comm, 0)->payload_bytes;
}

/* Returns why no rank can join another job, for a reason that all ranks know, or NULL. */
static const char *
common_obstacle(struct fanin_comm *comm, const struct fanin_join_opts *options)
{
	if (options->multicast == FANIN_MULTICAST_NEVER)
		return "the options say never";
	if (options->job_name == NULL || !fanin_protocol_has_tree(comm->protocol))
		return fanin_comm_beside_obstacle(comm, options, FANIN_BESIDE_MULTICAST, "");
	if (reduces_nothing(comm))
		return "the job's handler reduces nothing";
	return comm->member.config.size < 2 ? "there is one rank" : NULL;
}

/* Sets the text for the report, which another thread may read. */
__attribute__((format(printf, 2, 3))) static void
reason_set(struct fanin_comm *comm, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fanin_ctx_lock(comm->ctx);
	vsnprintf(comm->multicast.reason, sizeof(comm->multicast.reason), format, arguments);
	fanin_ctx_unlock(comm->ctx);
	va_end(arguments);
}

/* Records why there is no such job: for the report, or as an error if one is required. */
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

/*
 * Joins the other job if all ranks can; there is no obstacle common to all. The arguments and the
 * result are as for fanin_comm_multicast_begin.
 */
static int
join_if_all_can(struct fanin_comm *comm, const struct fanin_join_opts *options,
		struct fanin_error *error)
{
	const struct fanin_beside job = {
		.owner = comm,
		.use = FANIN_BESIDE_MULTICAST,
		.number = "",
		.what = "multicast",
		.trees = options->subgroups != 0 ? (uint16_t)options->subgroups : options->trees,
	};
	char why[FANIN_TEXT_LEN];
	const char *obstacle = fanin_comm_beside_obstacle(comm, options, FANIN_BESIDE_MULTICAST,
							  "");
	int status = fanin_comm_beside_join(options, &job, obstacle,
					    &comm->beside[FANIN_BESIDE_MULTICAST], why, error);

	if (status != FANIN_OK)
		return status;
	if (comm->beside[FANIN_BESIDE_MULTICAST] == NULL)
		return refuse(comm, options, why, error);
	reason_set(comm,
		   options->multicast == FANIN_MULTICAST_ALWAYS
			   ? "all broadcasts and allgathers: the options say always"
			   : "broadcasts and allgathers of %llu bytes or more",
		   (unsigned long long)min_bytes(comm));
	return FANIN_OK;
}

int
fanin_comm_multicast_begin(struct fanin_comm *comm, const struct fanin_join_opts *options,
			   struct fanin_error *error)
{
	const char *why = common_obstacle(comm, options);

	comm->multicast.use = options->multicast;
	if (comm->protocol->multicasts) {
		reason_set(comm, "all broadcasts and allgathers: the job's own handler multicasts");
		return FANIN_OK;
	}
	if (why != NULL)
		return refuse(comm, options, why, error);
	if (options->multicast == FANIN_MULTICAST_ALWAYS)
		return join_if_all_can(comm, options, error);
	reason_set(
		comm,
		"none yet: the first blocking broadcast or allgather of %llu bytes or more asks for it",
		(unsigned long long)min_bytes(comm));
	comm->multicast.is_open = true;
	return FANIN_OK;
}

/* True if a collective is faster by multicast. */
static bool
suits(struct fanin_comm *comm, const struct fanin_request *request)
{
	return !fanin_request_combines(request) && (comm->multicast.use == FANIN_MULTICAST_ALWAYS ||
						    request->total_bytes >= min_bytes(comm));
}

int
fanin_comm_multicast_prepare(struct fanin_comm *comm, const struct fanin_request *request,
			     struct fanin_error *error)
{
	if (!comm->multicast.is_open || !suits(comm, request))
		return FANIN_OK;
	comm->multicast.is_open = false;
	return join_if_all_can(comm, &comm->kept.options, error);
}

void
fanin_comm_multicast_failed(struct fanin_comm *multicast, int status)
{
	struct fanin_comm *comm = multicast->owner;
	struct fanin_error error = { 0 };

	/* A communicator that is being left may find that others are gone already. */
	if (comm->beside[FANIN_BESIDE_MULTICAST] != multicast || multicast->closing.has_begun ||
	    comm->ops->error(comm)->text[0] != '\0')
		return;
	fanin_error_set(&error, status, "job '%s', by which broadcasts go, has failed: %.400s",
			multicast->job_name, multicast->ops->error(multicast)->text);
	multicast->ops->missing(multicast, &error.missing);
	fanin_comm_abort(comm, status, &error);
}

struct fanin_comm *
fanin_comm_for(struct fanin_comm *comm, const struct fanin_request *request)
{
	struct fanin_comm *multicast = comm->beside[FANIN_BESIDE_MULTICAST];

	return multicast != NULL && suits(comm, request) ? multicast : comm;
}
