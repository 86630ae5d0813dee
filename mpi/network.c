/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries out collectives in the network: whole, or posted, so that several are under way.
 */
#include "network.h"

#include <stdlib.h>

void *
scratch(const struct comm_state *state, size_t bytes)
{
	void *memory = malloc(bytes);

	if (memory == NULL && !is_alone(state))
		no_memory();
	return memory;
}

int
status_share(const struct comm_state *state, int status)
{
	if (!is_alone(state) &&
	    NODE_CALL(state, Bcast, Ibcast, &status, 1, MPI_INT, 0, state->node) != FANIN_OK)
		return FANIN_ERR_SYSTEM;
	return status;
}

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
	struct comm_state *state = step->state;
	int status = is_alone(state) ? FANIN_OK : NODE_CALL(state, Barrier, Ibarrier, state->node);

	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state, post_barrier(step, &posted_req));
	return status_share(state, status);
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
	const struct step step = step_of(state, call, operation);

	return runs[call->kind](&step);
}

bool
collective_can_post(const struct comm_state *state, const struct collective *call)
{
	const bool in_place = call->send == MPI_IN_PLACE;

	/* The same on all ranks: those of a host take the same steps. */
	if (state->n_hosts != state->size)
		return false;
	switch (call->kind) {
	case COLLECTIVE_BCAST:
		return type_plain_bytes(call->type) != 0;
	case COLLECTIVE_ALLGATHER:
		return type_plain_bytes(call->type) != 0 &&
		       (in_place || type_plain_bytes(call->send_type) != 0);
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
