/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of all communicators, whatever their collectives run on. */
#include "comm_join.h"
#include "comm_local.h"
#include "hostlib/src/base/report.h"
#include "hostlib/src/protocol/split.h"
#include "hostlib/src/vector/vector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_JOIN_TIMEOUT_MS 30000
#define DEFAULT_TIMEOUT_MS 5000

/*
 * Two fields of fanin_join_opts were put into former padding at the end of the struct. Callers with
 * that size may have been compiled without these fields; the bytes are then undefined.
 */
#define SZ_WITHOUT_RECOVER offsetof(struct fanin_join_opts, job_name)
#define SZ_WITHOUT_TREES offsetof(struct fanin_join_opts, wait_limit_ms)

/* Copies a caller's options. options: zeroed. Returns false if their size is impossible. */
static bool
options_copy(struct fanin_join_opts *options, const struct fanin_join_opts *opts)
{
	if (!fanin_options_copy(options, sizeof(*options), opts))
		return false;
	if (options->sz <= SZ_WITHOUT_RECOVER)
		options->recover = false;
	if (options->sz <= SZ_WITHOUT_TREES)
		options->trees = 0;
	return true;
}

/* Frees a communicator and all parts of it that exist. */
static int
comm_destroy(struct fanin_comm *comm, struct fanin_error *error)
{
	int status;

	while (comm->requests != NULL) {
		struct fanin_request *request = comm->requests;

		comm->requests = request->sibling;
		fanin_split_free(request);
		fanin_vector_free(request->sparse);
		free(request);
	}
	status = comm->ops->leave(comm, error);
	free(comm->texts);
	fanin_comm_options_forget(comm);
	/*
	 * The manager comes last: once all ranks have left it, it removes the job from the
	 * switches.
	 */
	fanin_manager_leave(comm->manager);
	free(comm);
	return status;
}

/* Joins a job in the network on its switches. */
static int
switches_join(struct fanin_comm *comm, struct fanin_join_opts *options,
	      struct fanin_manager_answer *answer, struct fanin_error *error)
{
	uint64_t deadline_ns = fanin_now_ns(NULL) + options->join_timeout_ms * 1000000ull;

	if (answer->has_leaders)
		return fanin_comm_leaders(comm, options, answer, deadline_ns, error);
	if (answer->n_trees > 1)
		return fanin_comm_trees_join(comm, options, answer, deadline_ns, error);
	return fanin_comm_switch_join(comm, options, answer->trees[0].peers, 0, deadline_ns, error);
}

int
fanin_join(fanin_ctx *ctx, const struct fanin_join_opts *opts, fanin_comm **comm)
{
	return fanin_comm_join(ctx, opts, &(struct fanin_beside){ 0 }, comm);
}

int
fanin_comm_join(struct fanin_ctx *ctx, const struct fanin_join_opts *opts,
		const struct fanin_beside *beside, struct fanin_comm **comm)
{
	struct fanin_join_opts options = { 0 };
	struct fanin_error ignored;
	struct fanin_manager_answer answer = { .n_trees = 1 };
	struct fanin_comm *joined;
	int status = FANIN_OK;

	if (ctx == NULL || opts == NULL || comm == NULL)
		return FANIN_ERR_INVALID;
	fanin_error_clear(&ctx->error);
	if (!options_copy(&options, opts))
		return fanin_error_set(
			&ctx->error, FANIN_ERR_INVALID,
			"the options' sz is %zu, this library knows %zu bytes of options", opts->sz,
			sizeof(options));
	if (options.join_timeout_ms == 0)
		options.join_timeout_ms = DEFAULT_JOIN_TIMEOUT_MS;
	if (options.multicast > FANIN_MULTICAST_NEVER || options.subgroups > FANIN_MAX_TREES)
		return fanin_error_set(
			&ctx->error, FANIN_ERR_INVALID,
			"multicast is %u and subgroups %u, expected 0 (auto), 1 (always) or 2 (never), and 0 to %u",
			options.multicast, options.subgroups, FANIN_MAX_TREES);
	if (options.timeout_ms == 0)
		options.timeout_ms = DEFAULT_TIMEOUT_MS;

	joined = calloc(1, sizeof(*joined));
	if (joined == NULL)
		return fanin_error_set(&ctx->error, FANIN_ERR_NO_MEMORY, "out of memory");
	joined->ops = &fanin_comm_single_ops;
	joined->texts = calloc(1, sizeof(*joined->texts));
	joined->ctx = ctx;
	joined->closing.timeout_ns = options.timeout_ms * UINT64_C(1000000);
	joined->trees.n = 1;
	joined->trees.n_asked = 1;
	snprintf(joined->mode_reason, sizeof(joined->mode_reason),
		 "the job was given by its switch");
	if (joined->texts == NULL)
		status = fanin_error_set(&ctx->error, FANIN_ERR_NO_MEMORY, "out of memory");
	else if (fanin_comm_is_local(&options))
		status = fanin_comm_local_join(joined, &options, &ctx->error);
	else if (options.job_name != NULL || options.manager != NULL)
		status = fanin_comm_manager(joined, &options, beside, &answer, &ctx->error);
	else if (options.trees > 1)
		status = fanin_error_set(&ctx->error, FANIN_ERR_INVALID,
					 "trees is %u, expected 0 or 1 without job_name",
					 options.trees);
	if (status == FANIN_OK && joined->endpoint == NULL)
		status = switches_join(joined, &options, &answer, &ctx->error);
	fanin_manager_answer_free(&answer);
	if (status == FANIN_OK)
		status = fanin_ctx_attach(ctx, joined, &ctx->error);
	if (status != FANIN_OK) {
		struct fanin_error error = ctx->error;

		fanin_leave(joined->network);
		comm_destroy(joined, &ignored);
		ctx->error = error;
		return status;
	}
	status = fanin_comm_options_keep(joined, &options, &ctx->error);
	if (status == FANIN_OK && !fanin_comm_is_local(&options))
		status = fanin_comm_multicast_begin(joined, &options, &ctx->error);
	if (status != FANIN_OK) {
		struct fanin_error error = ctx->error;

		fanin_leave(joined);
		ctx->error = error;
		return status;
	}
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
	struct fanin_error beside_error = { 0 };
	struct fanin_ctx *ctx;
	int beside_status;
	int status;

	if (comm == NULL)
		return FANIN_OK;
	ctx = comm->ctx;
	beside_status = fanin_comm_beside_leave(comm, &beside_error);
	if (comm->is_local)
		beside_status = fanin_comm_local_leave(comm, &beside_error);
	fanin_ctx_lock(ctx);
	fanin_comm_close_begin(comm);
	fanin_comm_close_wait(comm);
	fanin_progress_pause(ctx);
	fanin_ctx_detach(ctx, comm);
	fanin_error_clear(&ctx->error);
	status = comm_destroy(comm, &ctx->error);
	/* The jobs beside it are left with it. */
	if (status == FANIN_OK && beside_status != FANIN_OK) {
		status = beside_status;
		ctx->error = beside_error;
	}
	fanin_progress_resume(ctx);
	fanin_ctx_unlock(ctx);
	if (ctx->comms == NULL)
		fanin_progress_stop(ctx);
	return status;
}

int
fanin_abort(fanin_comm *comm)
{
	if (comm == NULL)
		return FANIN_OK;
	fanin_ctx_lock(comm->ctx);
	fanin_comm_close_skip(comm);
	fanin_ctx_unlock(comm->ctx);
	return fanin_leave(comm);
}

void
fanin_comm_abort(struct fanin_comm *comm, int status, const struct fanin_error *error)
{
	if (comm->trees.all != NULL)
		fanin_comm_trees_abort(comm->trees.all, status, error);
	else if (comm->protocol->on_switch != NULL && comm->protocol->on_switch->abort != NULL)
		comm->protocol->on_switch->abort(comm->endpoint, status, error);
	else if (comm->protocol->abort != NULL)
		comm->protocol->abort(comm->endpoint, status, error);
	if (comm->agreement.is_open)
		fanin_request_list_fail(&comm->agreement.held, status);
}

const struct fanin_error *
fanin_comm_error_of(const struct fanin_comm *comm)
{
	const struct fanin_error *error = comm->ops->error(comm);

	for (unsigned int use = 0; use < FANIN_BESIDE_USES && error->text[0] == '\0'; use++) {
		const struct fanin_comm *other = comm->beside[use];

		if (other != NULL)
			error = other->ops->error(other);
	}
	return error;
}

const char *
fanin_comm_error(const fanin_comm *comm)
{
	struct fanin_progress *progress;
	const char *text;

	if (comm == NULL)
		return "";
	progress = comm->ctx->progress;
	if (progress == NULL)
		return fanin_comm_error_of(comm)->text;
	/* The engine may fail while the caller reads the text. */
	fanin_progress_lock(progress);
	text = fanin_comm_error_of(comm)->text;
	snprintf(progress->text, sizeof(progress->text), "%s", text);
	fanin_progress_unlock(progress);
	return progress->text;
}

void
fanin_comm_missing_set(const struct fanin_comm *comm, struct fanin_ranks *ranks)
{
	fanin_ctx_lock(comm->ctx);
	comm->ops->missing(comm, ranks);
	for (unsigned int use = 0; use < FANIN_BESIDE_USES && fanin_ranks_is_empty(ranks); use++) {
		const struct fanin_comm *other = comm->beside[use];

		if (other != NULL)
			other->ops->missing(other, ranks);
	}
	fanin_ctx_unlock(comm->ctx);
}

uint64_t
fanin_comm_missing(const fanin_comm *comm)
{
	struct fanin_ranks missing;

	if (comm == NULL)
		return 0;
	fanin_comm_missing_set(comm, &missing);
	return missing.words[0];
}

size_t
fanin_comm_missing_ranks(const fanin_comm *comm, uint16_t *ranks, size_t n)
{
	struct fanin_ranks missing;

	if (comm == NULL)
		return 0;
	fanin_comm_missing_set(comm, &missing);
	return fanin_list_ranks(&missing, ranks, n);
}

/* Copies a text and updates the pointer to it. */
static void
text_keep(const char **text, char *copy, size_t copy_len)
{
	snprintf(copy, copy_len, "%s", *text);
	*text = copy;
}

static void
texts_keep(struct fanin_report *report, struct fanin_comm_texts *texts)
{
	text_keep(&report->transport_reason, texts->transport_reason,
		  sizeof(texts->transport_reason));
	text_keep(&report->interface, texts->interface, sizeof(texts->interface));
	text_keep(&report->handler, texts->handler, sizeof(texts->handler));
	text_keep(&report->manager_problem, texts->manager_problem, sizeof(texts->manager_problem));
}

void
fanin_comm_report_fill(const struct fanin_comm *comm, struct fanin_report *full)
{
	struct fanin_report beside = { 0 };

	*full = (struct fanin_report){
		.sz = full->sz,
		.rank = comm->member.config.rank,
		.size = comm->member.config.size,
		.mode = comm->protocol->on_switch != NULL ? "network" : comm->protocol->name,
		.mode_reason = comm->mode_reason,
		.manager = "",
		.job_name = comm->job_name,
		.manager_problem = "",
		.trees = comm->trees.n,
		.trees_asked = comm->trees.n_asked,
		.trees_reason = comm->trees.reason,
		.protocol = comm->protocol->name,
		.protocol_reason = comm->protocol_reason,
		.maybe_sparse = comm->agreement.maybe_sparse,
		.maybe_sparse_taken = comm->agreement.maybe_sparse_taken,
		.sparse_algorithm = "",
		.congestion = "",
		.sleeps = comm->ctx->sleeps,
		.yields = comm->ctx->yields,
	};
	if (comm->protocol->on_switch != NULL &&
	    (comm->protocol->collectives >> FANIN_COLLECTIVE_ALLREDUCE_SPARSE & 1) != 0)
		full->sparse_algorithm = "in-network";
	if (comm->manager != NULL) {
		full->manager = fanin_manager_address(comm->manager);
		full->manager_problem = fanin_manager_problem(comm->manager);
		full->manager_reconnects = fanin_manager_reconnects(comm->manager);
	}
	full->multicast_reason = comm->multicast.reason;
	comm->ops->report(comm, full);
	if (comm->beside[FANIN_BESIDE_MULTICAST] != NULL)
		comm->beside[FANIN_BESIDE_MULTICAST]->ops->report(
			comm->beside[FANIN_BESIDE_MULTICAST], &beside);
#define ADD(field, trees) full->field += beside.field;
	FANIN_REPORT_MULTICAST(ADD)
#undef ADD
}

int
fanin_comm_report(const fanin_comm *comm, struct fanin_report *report)
{
	struct fanin_report full;

	if (comm == NULL || report == NULL || report->sz < sizeof(report->sz))
		return FANIN_ERR_INVALID;
	full.sz = report->sz;
	fanin_ctx_lock(comm->ctx);
	fanin_comm_report_fill(comm, &full);
	if (comm->texts != NULL)
		texts_keep(&full, comm->texts);
	fanin_ctx_unlock(comm->ctx);
	memcpy(report, &full, report->sz < sizeof(full) ? report->sz : sizeof(full));
	return FANIN_OK;
}
