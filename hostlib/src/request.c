/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective calls: arguments are checked here, everything else is the engine's. See fanin/fanin.h.
 */
#include "context.h"

#include <stdlib.h>

static int
arguments_check(const void *send, const void *recv, size_t count, enum fanin_dtype dtype,
		enum fanin_op op, struct fanin_error *error)
{
	size_t element_bytes = fanin_dtype_size_of(dtype);

	if (element_bytes == 0)
		return fanin_error_set(error, FANIN_ERR_INVALID, "%d is not a data type", (int)dtype);
	if (count != 0 && (send == NULL || recv == NULL))
		return fanin_error_set(error, FANIN_ERR_INVALID, "%s is NULL, but count is %zu",
				       send == NULL ? "send" : "recv", count);
	if (count > SIZE_MAX / element_bytes)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%zu elements of %s exceed the address space", count,
				       fanin_dtype_name_of(dtype));
	/* Which custom operators there are is the switch's to say. */
	if (!fanin_supports(dtype, op) && !fanin_op_is_custom((unsigned int)op))
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED, "%s is not defined on %s",
				       fanin_op_name_of(op), fanin_dtype_name_of(dtype));
	return FANIN_OK;
}

static void
request_free(struct fanin_request *request)
{
	struct fanin_request **link = &request->comm->requests;

	while (*link != request)
		link = &(*link)->sibling;
	*link = request->sibling;
	free(request);
}

int
fanin_iallreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
		 enum fanin_op op, fanin_comm *comm, fanin_request **req)
{
	struct fanin_request **link;
	struct fanin_request *request;
	struct fanin_error *error;
	int status;

	if (comm == NULL || req == NULL)
		return FANIN_ERR_INVALID;
	error = &comm->ctx->error;
	fanin_error_clear(error);
	status = arguments_check(send, recv, count, dtype, op, error);
	if (status != FANIN_OK)
		return status;

	request = calloc(1, sizeof(*request));
	if (request == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	request->comm = comm;
	request->send = send;
	request->recv = recv;
	request->dtype = (uint8_t)dtype;
	request->op = (uint8_t)op;
	status = fanin_engine_post(comm->engine, request, count);
	if (status != FANIN_OK) {
		free(request);
		if (status == FANIN_ERR_INVALID)
			fanin_error_set(error, status,
					"%zu elements and what is posted already exceed 2^31 packets",
					count);
		else
			fanin_error_set(error, status, "%s", fanin_comm_error(comm));
		return status;
	}
	/* Requests are mostly waited for in the order of posting: freeing the first one is then quick. */
	link = &comm->requests;
	while (*link != NULL)
		link = &(*link)->sibling;
	*link = request;
	*req = request;
	fanin_engine_poll(comm->engine);
	return FANIN_OK;
}

int
fanin_test(fanin_request *req)
{
	if (req == NULL)
		return FANIN_ERR_INVALID;
	if (req->status == FANIN_IN_PROGRESS)
		fanin_ctx_poll(req->comm->ctx, NULL);
	return req->status;
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
	status = fanin_ctx_wait(ctx, *req);
	if (status == FANIN_ERR_INTERRUPTED)
		return fanin_error_set(&ctx->error, status,
				       "interrupted while waiting for a collective");
	if (status != FANIN_OK) {
		fanin_error_set(&ctx->error, status, "%s", fanin_comm_error((*req)->comm));
		ctx->error.missing = fanin_comm_missing((*req)->comm);
	}
	request_free(*req);
	*req = NULL;
	return status;
}

int
fanin_allreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
		enum fanin_op op, fanin_comm *comm)
{
	fanin_request *request;
	int status;

	status = fanin_iallreduce(send, recv, count, dtype, op, comm, &request);
	return status == FANIN_OK ? fanin_wait(&request) : status;
}

uint64_t
fanin_request_progress(const fanin_request *req, uint64_t *total_bytes)
{
	if (total_bytes != NULL)
		*total_bytes = req == NULL ? 0 : req->total_bytes;
	return req == NULL ? 0 : req->done_bytes;
}
