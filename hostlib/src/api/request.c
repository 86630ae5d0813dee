/* SPDX-License-Identifier: BSD-3-Clause */
/* Posted requests: progress, waiting, and their end. See fanin/fanin.h. */
#include "hostlib/src/comm/comm.h"
#include "hostlib/src/protocol/split.h"
#include "hostlib/src/vector/vector.h"

#include <stdlib.h>

static void
request_free(struct fanin_request *request)
{
	struct fanin_request **link = &request->comm->requests;

	while (*link != request)
		link = &(*link)->sibling;
	*link = request->sibling;
	fanin_split_free(request);
	fanin_vector_free(request->sparse);
	free(request);
}

/*
 * Makes the error of a request that has failed the context's last error. Called with the lock held.
 */
static void
failure_note(struct fanin_ctx *ctx, const struct fanin_request *req, int status)
{
	const char *text;

	if (req->sparse != NULL && req->sparse->error.text[0] != '\0') {
		/* The error is the request's own: the communicator goes on. */
		ctx->error = req->sparse->error;
		return;
	}
	text = fanin_comm_error(req->comm);
	/* A request that was held back may fail alone, too. */
	fanin_error_set(&ctx->error, status, "%s", text[0] != '\0' ? text : fanin_strerror(status));
	fanin_comm_missing_set(req->comm, &ctx->error.missing);
}

int
fanin_test(fanin_request *req)
{
	struct fanin_ctx *ctx;
	int status;

	if (req == NULL)
		return FANIN_ERR_INVALID;
	ctx = req->comm->ctx;
	fanin_ctx_lock(ctx);
	if (req->status == FANIN_IN_PROGRESS)
		fanin_ctx_poll(ctx, NULL);
	status = req->status;
	if (status < 0)
		failure_note(ctx, req, status);
	fanin_ctx_polled(ctx);
	fanin_ctx_unlock(ctx);
	return status;
}

/* Waits for a request. Called with the context's lock held. */
static int
request_wait(struct fanin_ctx *ctx, fanin_request **req)
{
	int status = fanin_ctx_wait(ctx, *req, UINT64_MAX);

	if (status == FANIN_ERR_INTERRUPTED)
		return fanin_error_set(&ctx->error, status,
				       "interrupted while waiting for a collective");
	if (status != FANIN_OK)
		failure_note(ctx, *req, status);
	request_free(*req);
	*req = NULL;
	return status;
}

int
fanin_wait(fanin_request **req)
{
	struct fanin_ctx *ctx;
	int status;

	if (req == NULL || *req == NULL)
		return FANIN_ERR_INVALID;
	ctx = (*req)->comm->ctx;
	fanin_error_clear(&ctx->error);
	fanin_ctx_lock(ctx);
	status = request_wait(ctx, req);
	fanin_ctx_polled(ctx);
	fanin_ctx_unlock(ctx);
	return status;
}

uint64_t
fanin_request_progress(const fanin_request *req, uint64_t *total_bytes)
{
	uint64_t done_bytes;

	if (total_bytes != NULL)
		*total_bytes = req == NULL ? 0 : req->total_bytes;
	if (req == NULL)
		return 0;
	fanin_ctx_lock(req->comm->ctx);
	done_bytes = fanin_split_done_bytes(req);
	fanin_ctx_unlock(req->comm->ctx);
	return done_bytes;
}
