/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: what is the same for all of them, whatever their collectives run on.
 */
#include "context.h"
#include "hostlib/src/protocol/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_JOIN_TIMEOUT_MS 30000
#define DEFAULT_TIMEOUT_MS 5000

/* Takes apart what there is of a communicator. */
static int
comm_destroy(struct fanin_comm *comm, struct fanin_error *error)
{
	int status;

	while (comm->requests != NULL) {
		struct fanin_request *request = comm->requests;

		comm->requests = request->sibling;
		fanin_split_free(request);
		free(request);
	}
	status = comm->ops->leave(comm, error);
	/* The manager comes last: once all have left it, it takes the job off the switches. */
	fanin_manager_leave(comm->manager);
	free(comm);
	return status;
}

/* The job runs in the network: its ranks meet there. */
static int
switches_join(struct fanin_comm *comm, struct fanin_join_opts *options,
	      struct fanin_manager_answer *answer, struct fanin_error *error)
{
	uint64_t deadline_ns = fanin_now_ns(NULL) + options->join_timeout_ms * 1000000ull;

	if (answer->n_trees > 1)
		return fanin_comm_trees(comm, options, answer, deadline_ns, error);
	return fanin_comm_switch_join(comm, options, 0, deadline_ns, error);
}

int
fanin_join(fanin_ctx *ctx, const struct fanin_join_opts *opts, fanin_comm **comm)
{
	struct fanin_join_opts options = { 0 };
	struct fanin_error ignored;
	struct fanin_manager_answer answer = { .n_trees = 1 };
	struct fanin_comm *joined;
	int status = FANIN_OK;

	if (ctx == NULL || opts == NULL || comm == NULL)
		return FANIN_ERR_INVALID;
	fanin_error_clear(&ctx->error);
	if (!fanin_join_options_copy(&options, opts))
		return fanin_error_set(&ctx->error, FANIN_ERR_INVALID,
				       "the options' sz is %zu, this library knows %zu bytes of options",
				       opts->sz, sizeof(options));
	if (options.join_timeout_ms == 0)
		options.join_timeout_ms = DEFAULT_JOIN_TIMEOUT_MS;
	if (options.timeout_ms == 0)
		options.timeout_ms = DEFAULT_TIMEOUT_MS;

	joined = calloc(1, sizeof(*joined));
	if (joined == NULL)
		return fanin_error_set(&ctx->error, FANIN_ERR_NO_MEMORY, "out of memory");
	joined->ops = &fanin_comm_single_ops;
	joined->ctx = ctx;
	joined->timeout_ns = options.timeout_ms * UINT64_C(1000000);
	joined->n_trees = 1;
	joined->trees_asked = 1;
	snprintf(joined->mode_reason, sizeof(joined->mode_reason), "the job was given by its switch");
	if (options.job_name != NULL || options.manager != NULL)
		status = fanin_comm_manager(joined, &options, &answer, &ctx->error);
	else if (options.trees > 1)
		status = fanin_error_set(&ctx->error, FANIN_ERR_INVALID,
					 "trees is %u, expected 0 or 1 without job_name",
					 options.trees);
	if (status == FANIN_OK && joined->engine == NULL)
		status = switches_join(joined, &options, &answer, &ctx->error);
	if (status != FANIN_OK) {
		comm_destroy(joined, &ignored);
		return status;
	}
	joined->next = ctx->comms;
	ctx->comms = joined;
	*comm = joined;
	return FANIN_OK;
}

int
fanin_join_job(fanin_ctx *ctx, const char *job_name, uint16_t size, fanin_comm **comm)
{
	const struct fanin_join_opts options = { .sz = sizeof(options),
						 .job_name = job_name,
						 .size = size };

	if (job_name == NULL)
		return FANIN_ERR_INVALID;
	return fanin_join(ctx, &options, comm);
}

int
fanin_leave(fanin_comm *comm)
{
	struct fanin_comm **link;

	if (comm == NULL)
		return FANIN_OK;
	fanin_comm_close_begin(comm);
	fanin_comm_close_wait(comm);
	link = &comm->ctx->comms;
	while (*link != comm)
		link = &(*link)->next;
	*link = comm->next;
	fanin_error_clear(&comm->ctx->error);
	return comm_destroy(comm, &comm->ctx->error);
}

const char *
fanin_comm_error(const fanin_comm *comm)
{
	return comm == NULL ? "" : comm->ops->error(comm)->text;
}

uint64_t
fanin_comm_missing(const fanin_comm *comm)
{
	return comm == NULL ? 0 : comm->ops->missing(comm);
}

int
fanin_comm_report(const fanin_comm *comm, struct fanin_report *report)
{
	struct fanin_report full;

	if (comm == NULL || report == NULL || report->sz < sizeof(report->sz))
		return FANIN_ERR_INVALID;
	full = (struct fanin_report){
		.sz = report->sz,
		.rank = comm->member.config.rank,
		.size = comm->member.config.size,
		.mode = comm->protocol->on_switch != NULL ? "network" : comm->protocol->name,
		.mode_reason = comm->mode_reason,
		.manager = "",
		.job_name = comm->job_name,
		.manager_problem = "",
		.trees = comm->n_trees,
		.trees_asked = comm->trees_asked,
		.trees_reason = comm->trees_reason,
		.protocol = comm->protocol->name,
		.protocol_reason = comm->protocol_reason,
	};
	if (comm->manager != NULL) {
		full.manager = fanin_manager_address(comm->manager);
		full.manager_problem = fanin_manager_problem(comm->manager);
		full.manager_reconnects = fanin_manager_reconnects(comm->manager);
	}
	comm->ops->report(comm, &full);
	memcpy(report, &full, report->sz < sizeof(full) ? report->sz : sizeof(full));
	return FANIN_OK;
}
