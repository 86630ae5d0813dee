/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries out collectives in the network: as a whole, or posted, so that several are in progress.
 */
#include "network.h"

#include <stdlib.h>
#include <string.h>

int
posted_finish(struct comm_state *state, int posted, fanin_request *req)
{
	if (posted != FANIN_OK)
		return posted;
	return state->in_background ? channel_wait_quietly(state->channel, &req)
				    : channel_wait(state->channel, &req);
}

static int
post_barrier(const struct step *step, fanin_request **req)
{
	return fanin_ibarrier(step->state->channel->comm, req);
}

static int
run_barrier(const struct step *step)
{
	return NETWORK_CALL(step->state, post_barrier(step, &posted_req));
}

static struct step
step_of(struct comm_state *state, const struct collective *call, const struct operation *operation)
{
	const size_t element_bytes = fanin_dtype_size_of(operation->dtype);

	return (struct step){ .state = state,
			      .call = call,
			      .bytes = operation->bytes,
			      .part = operation->bytes / (size_t)state->size,
			      .elements = operation->bytes / element_bytes,
			      .element_bytes = element_bytes,
			      .dtype = operation->dtype,
			      .op = operation->op };
}

static bool
is_apart(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes)
{
	return (uintptr_t)a + a_bytes <= (uintptr_t)b || (uintptr_t)b + b_bytes <= (uintptr_t)a;
}

/*
 * Returns the bytes of a send buffer that overlaps the receive buffer in a way that MPI accepts and
 * the network does not; 0: it does not.
 */
static size_t
overlap_bytes(const struct step *step)
{
	const struct collective *call = step->call;
	const size_t own = (size_t)step->state->rank * step->part;
	const uint8_t *send = call->send, *recv = call->recv;
	size_t send_bytes = step->bytes, recv_bytes = step->bytes;

	if (send == MPI_IN_PLACE || call->kind == COLLECTIVE_BCAST ||
	    call->kind == COLLECTIVE_BARRIER ||
	    (call->kind == COLLECTIVE_REDUCE && call->root != step->state->rank))
		return 0;
	if (call->kind == COLLECTIVE_ALLGATHER) {
		/* Other send buffers are packed. */
		if (!is_sent_as_is(call) || send == recv + own)
			return 0;
		send_bytes = step->part;
	} else if (call->kind == COLLECTIVE_REDUCE_SCATTER_BLOCK) {
		recv_bytes = step->part;
	} else if (send == recv) {
		return 0;
	}
	return is_apart(send, send_bytes, recv, recv_bytes) ? 0 : send_bytes;
}

int
collective_run(struct comm_state *state, const struct collective *call,
	       const struct operation *operation)
{
	static int (*const runs[N_COLLECTIVES])(const struct step *) = {
		[COLLECTIVE_ALLREDUCE] = run_allreduce,
		[COLLECTIVE_REDUCE] = run_reduce,
		[COLLECTIVE_BCAST] = run_broadcast,
		[COLLECTIVE_BARRIER] = run_barrier,
		[COLLECTIVE_ALLGATHER] = run_allgather,
		[COLLECTIVE_REDUCE_SCATTER_BLOCK] = run_reduce_scatter,
	};
	struct collective mended = *call;
	struct step step = step_of(state, &mended, operation);
	const size_t overlap = overlap_bytes(&step);
	MPI_Datatype committed = MPI_DATATYPE_NULL;
	void *copy = NULL;
	int status;

	if (overlap != 0) {
		copy = malloc(overlap);
		if (copy == NULL)
			return FANIN_ERR_NO_MEMORY;
		mended.send = memcpy(copy, call->send, overlap);
	}
	if (call->kind == COLLECTIVE_ALLGATHER)
		committed = type_committed(call->type);
	if (committed != MPI_DATATYPE_NULL)
		mended.type = committed;
	status = runs[call->kind](&step);
	if (committed != MPI_DATATYPE_NULL)
		PMPI_Type_free(&committed);
	free(copy);
	return status;
}

bool
collective_can_post(struct comm_state *state, const struct collective *call,
		    const struct operation *operation)
{
	const bool in_place = call->send == MPI_IN_PLACE;
	const struct step step = step_of(state, call, operation);

	if (overlap_bytes(&step) != 0)
		return false;
	switch (call->kind) {
	case COLLECTIVE_BCAST:
		return type_plain_bytes(call->type) != 0;
	case COLLECTIVE_ALLGATHER:
		return type_plain_bytes(call->type) != 0 && is_sent_as_is(call);
	case COLLECTIVE_REDUCE_SCATTER_BLOCK:
		return !in_place;
	default:
		return true;
	}
}

int
collective_post(struct comm_state *state, const struct collective *call,
		const struct operation *operation, fanin_request **req)
{
	static int (*const posts[N_COLLECTIVES])(const struct step *, fanin_request **) = {
		[COLLECTIVE_ALLREDUCE] = post_allreduce,
		[COLLECTIVE_REDUCE] = post_reduce,
		[COLLECTIVE_BCAST] = post_broadcast,
		[COLLECTIVE_BARRIER] = post_barrier,
		[COLLECTIVE_ALLGATHER] = post_allgather,
		[COLLECTIVE_REDUCE_SCATTER_BLOCK] = post_reduce_scatter,
	};
	const struct step step = step_of(state, call, operation);

	return posts[call->kind](&step, req);
}
