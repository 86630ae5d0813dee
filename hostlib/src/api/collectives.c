/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective calls: they check the arguments and leave everything else to the protocol. The
 * barrier is an allreduce without elements, as in Flare's section 8. See fanin/fanin.h.
 */
#include "collectives.h"

#include <stdlib.h>

#include "hostlib/src/comm/comm.h"
#include "hostlib/src/vector/vector.h"

/* True if overlapping buffers overlap in place: as parts of one vector would. */
static bool
is_in_place(const struct fanin_request *request)
{
	return (uintptr_t)request->send - request->send_offset ==
	       (uintptr_t)request->recv - request->recv_offset;
}

/* Checks the buffers of a request whose layout is made. */
static int
buffers_check(const struct fanin_request *request, size_t count, struct fanin_error *error)
{
	bool send_missing = request->send == NULL && request->send_bytes != 0;
	bool recv_missing = request->recv == NULL && request->recv_bytes != 0;

	if (send_missing || recv_missing)
		return fanin_error_set(error, FANIN_ERR_INVALID, "%s is NULL, but count is %zu",
				       request->collective == FANIN_COLLECTIVE_BROADCAST ? "buffer"
				       : send_missing                                    ? "send"
											 : "recv",
				       count);
	if (fanin_buffers_overlap(request->send, request->send_bytes, request->recv,
				  request->recv_bytes) &&
	    !is_in_place(request))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "send and recv overlap, but not as they do in place");
	return FANIN_OK;
}

/*
 * Checks a call's arguments and makes the layout. dtype and op are as the caller gave them; the
 * request has room for valid ones only.
 */
static int
arguments_check(struct fanin_request *request, size_t count, enum fanin_dtype dtype,
		enum fanin_op op, struct fanin_error *error)
{
	const struct fanin_member_config *member = &request->comm->member.config;
	size_t element_bytes = fanin_dtype_size_of(dtype);
	bool in_parts = request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER ||
			request->collective == FANIN_COLLECTIVE_ALLGATHER;

	if (element_bytes == 0)
		return fanin_error_set(error, FANIN_ERR_INVALID, "%d is not a data type",
				       (int)dtype);
	if (count > SIZE_MAX / element_bytes / (in_parts ? member->size : 1u))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%zu elements of %s%s exceed the address space", count,
				       fanin_dtype_name_of(dtype),
				       in_parts ? " for each rank" : "");
	if (request->root != 0 && request->root >= member->size)
		return fanin_error_set(error, FANIN_ERR_INVALID, "root is %u, expected 0 to %u",
				       request->root, member->size - 1);
	/* Only the switch knows the custom operators. */
	if (fanin_request_combines(request) && !fanin_supports(dtype, op) &&
	    !fanin_op_is_custom((unsigned int)op))
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED, "%s is not defined on %s",
				       fanin_op_name_of(op), fanin_dtype_name_of(dtype));
	if (fanin_request_combines(request) && !fanin_supports(dtype, op) &&
	    request->comm->is_local)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"custom operator %d is compiled into switches, and ranks of one host reduce "
			"in their memory",
			(int)op);
	if (fanin_request_combines(request) && !fanin_supports(dtype, op) &&
	    !request->comm->protocol->has_custom && request->comm->protocol->on_switch != NULL)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"custom operator %d is not supported by the protocol %s, which this job runs",
			(int)op, request->comm->protocol->name);
	if (fanin_request_combines(request) && !fanin_supports(dtype, op) &&
	    !request->comm->protocol->has_custom)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"custom operator %d is compiled into switches, and this job runs without one: %s",
			(int)op, request->comm->mode_reason);
	if ((request->comm->protocol->collectives >> request->collective & 1) == 0)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "the protocol %s, which this job runs, has no %s",
				       request->comm->protocol->name,
				       fanin_collective_name(request->collective));
	request->dtype = (uint8_t)dtype;
	request->op = (uint8_t)op;
	fanin_request_layout(request, member->rank, member->size, count);
	return buffers_check(request, count, error);
}

void
fanin_request_link(struct fanin_request *request)
{
	struct fanin_request **link = &request->comm->requests;

	/*
	 * Callers mostly wait for requests in the order of posting: freeing the first one is then
	 * quick.
	 */
	while (*link != NULL)
		link = &(*link)->sibling;
	*link = request;
}

int
fanin_request_post(const struct fanin_request *call, size_t count, fanin_request **req)
{
	struct fanin_comm *comm = call->comm;
	struct fanin_error *error = &comm->ctx->error;
	struct fanin_request *request = malloc(sizeof(*request));
	int status;

	if (request == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	*request = *call;
	status = comm->ops->post(comm, request, count);
	if (status != FANIN_OK) {
		free(request);
		if (call->sparse != NULL && call->sparse->error.text[0] != '\0') {
			*error = call->sparse->error;
			return status;
		}
		if (status == FANIN_ERR_INVALID)
			return fanin_error_set(
				error, status,
				"%zu elements and what is posted already exceed 2^31 packets",
				count);
		fanin_error_set(error, status, "%s", fanin_comm_error(comm));
		fanin_comm_missing_set(comm, &error->missing);
		return status;
	}
	fanin_request_link(request);
	*req = request;
	comm->ops->poll(comm);
	fanin_ctx_wake(comm->ctx);
	return FANIN_OK;
}

/*
 * Checks and posts a request.
 *
 * call: has send, recv, comm, collective and root. op: not used if nothing is combined. hints: 0
 * except for allreduce. blocking: the caller waits for it, as the callers at all ranks do.
 */
static int
hinted_post(struct fanin_request call, size_t count, enum fanin_dtype dtype, enum fanin_op op,
	    unsigned int hints, bool blocking, fanin_request **req)
{
	struct fanin_ctx *ctx;
	int status;

	if (call.comm == NULL || req == NULL)
		return FANIN_ERR_INVALID;
	ctx = call.comm->ctx;
	fanin_error_clear(&ctx->error);
	status = arguments_check(&call, count, dtype, op, &ctx->error);
	if (status == FANIN_OK && (hints & ~FANIN_MAYBE_SPARSE) != 0)
		status = fanin_error_set(&ctx->error, FANIN_ERR_INVALID,
					 "hints are 0x%x, expected 0 or FANIN_MAYBE_SPARSE", hints);
	if (status == FANIN_OK && hints != 0)
		status = fanin_vector_hint_take(&call, count);
	if (status != FANIN_OK)
		return status;
	if (blocking)
		status = fanin_comm_multicast_prepare(call.comm, &call, &ctx->error);
	if (status != FANIN_OK)
		return status;
	call.comm = fanin_comm_for(call.comm, &call);
	fanin_ctx_lock(ctx);
	status = fanin_request_post(&call, count, req);
	fanin_ctx_unlock(ctx);
	if (status != FANIN_OK)
		fanin_vector_free(call.sparse);
	return status;
}

static int
collective_post(struct fanin_request call, size_t count, enum fanin_dtype dtype, enum fanin_op op,
		fanin_request **req)
{
	return hinted_post(call, count, dtype, op, 0, false, req);
}

/* Waits for the request of a blocking call and frees it. */
static int
wait_for(int status, fanin_request **req)
{
	return status == FANIN_OK ? fanin_wait(req) : status;
}

int
fanin_iallreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
		 enum fanin_op op, fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = {
		.comm = comm, .send = send, .recv = recv, .collective = FANIN_COLLECTIVE_ALLREDUCE
	};

	return collective_post(call, count, dtype, op, req);
}

int
fanin_iallreduce_hinted(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			enum fanin_op op, unsigned int hints, fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = {
		.comm = comm, .send = send, .recv = recv, .collective = FANIN_COLLECTIVE_ALLREDUCE
	};

	return hinted_post(call, count, dtype, op, hints, false, req);
}

int
fanin_ireduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype, enum fanin_op op,
	      uint16_t root, fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = { .comm = comm,
					    .send = send,
					    .recv = recv,
					    .collective = FANIN_COLLECTIVE_REDUCE,
					    .root = root };

	return collective_post(call, count, dtype, op, req);
}

int
fanin_ireduce_scatter(const void *send, void *recv, size_t recv_count, enum fanin_dtype dtype,
		      enum fanin_op op, fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = { .comm = comm,
					    .send = send,
					    .recv = recv,
					    .collective = FANIN_COLLECTIVE_REDUCE_SCATTER };

	return collective_post(call, recv_count, dtype, op, req);
}

static int
broadcast_post(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root, bool blocking,
	       fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = { .comm = comm,
					    .send = buffer,
					    .recv = buffer,
					    .collective = FANIN_COLLECTIVE_BROADCAST,
					    .root = root };

	return hinted_post(call, count, dtype, 0, 0, blocking, req);
}

static int
allgather_post(const void *send, void *recv, size_t send_count, enum fanin_dtype dtype,
	       bool blocking, fanin_comm *comm, fanin_request **req)
{
	const struct fanin_request call = {
		.comm = comm, .send = send, .recv = recv, .collective = FANIN_COLLECTIVE_ALLGATHER
	};

	return hinted_post(call, send_count, dtype, 0, 0, blocking, req);
}

int
fanin_ibroadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root,
		 fanin_comm *comm, fanin_request **req)
{
	return broadcast_post(buffer, count, dtype, root, false, comm, req);
}

int
fanin_iallgather(const void *send, void *recv, size_t send_count, enum fanin_dtype dtype,
		 fanin_comm *comm, fanin_request **req)
{
	return allgather_post(send, recv, send_count, dtype, false, comm, req);
}

int
fanin_ibarrier(fanin_comm *comm, fanin_request **req)
{
	return fanin_iallreduce(NULL, NULL, 0, FANIN_U8, FANIN_BOR, comm, req);
}

int
fanin_allreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
		enum fanin_op op, fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(fanin_iallreduce(send, recv, count, dtype, op, comm, &request), &request);
}

int
fanin_allreduce_hinted(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
		       enum fanin_op op, unsigned int hints, fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(fanin_iallreduce_hinted(send, recv, count, dtype, op, hints, comm,
						&request),
			&request);
}

int
fanin_reduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype, enum fanin_op op,
	     uint16_t root, fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(fanin_ireduce(send, recv, count, dtype, op, root, comm, &request),
			&request);
}

int
fanin_reduce_scatter(const void *send, void *recv, size_t recv_count, enum fanin_dtype dtype,
		     enum fanin_op op, fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(fanin_ireduce_scatter(send, recv, recv_count, dtype, op, comm, &request),
			&request);
}

int
fanin_broadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root, fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(broadcast_post(buffer, count, dtype, root, true, comm, &request), &request);
}

int
fanin_allgather(const void *send, void *recv, size_t send_count, enum fanin_dtype dtype,
		fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(allgather_post(send, recv, send_count, dtype, true, comm, &request),
			&request);
}

int
fanin_barrier(fanin_comm *comm)
{
	fanin_request *request;

	return wait_for(fanin_ibarrier(comm, &request), &request);
}
