/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions in the network.
 */
#include "network.h"

#include <stdlib.h>
#include <string.h>

/*
 * Sums the vectors of a host's ranks into the leader's `sum`: moved by MPI, combined as in the
 * network.
 */
static int
node_reduce(const struct step *step, void *sum, int count)
{
	const struct collective *call = step->call;
	const void *mine = own_data(call);
	const void *send = is_leader(step->state) && mine == sum ? MPI_IN_PLACE : mine;

	return NODE_CALL(step->state, Reduce, Ireduce, send, sum, count, call->type,
			 operator_own(step->op), 0, step->state->node);
}

/* Posts an allreduce. Each host has one rank, and all ranks post it. */
int
post_allreduce(const struct step *step, fanin_request **req)
{
	const struct collective *call = step->call;

	return fanin_iallreduce(own_data(call), call->recv, step->elements, step->dtype, step->op,
				step->state->channel->comm, req);
}

int
run_allreduce(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const size_t count = (size_t)call->count;
	int status = FANIN_OK;

	if (state->shared != NULL)
		return shared_allreduce(step);
	if (is_alone(state))
		return NETWORK_CALL(state, post_allreduce(step, &posted_req));
	status = node_reduce(step, call->recv, (int)count);
	if (is_leader(state) && status == FANIN_OK)
		status = NETWORK_CALL(state, fanin_iallreduce(call->recv, call->recv,
							      step->elements, step->dtype, step->op,
							      state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = NODE_CALL(state, Bcast, Ibcast, call->recv, (int)count, call->type, 0,
				   state->node);
	return status;
}

/* Runs the leader's part of a reduce. sum: receives the result at the leader of the root's host. */
static int
leader_reduce(const struct step *step, void *sum)
{
	struct comm_state *state = step->state;
	int status = node_reduce(step, sum, (int)step->call->count);

	if (status == FANIN_OK)
		status = NETWORK_CALL(state,
				      fanin_ireduce(sum, sum, step->elements, step->dtype, step->op,
						    (uint16_t)state->host_of[step->call->root],
						    state->channel->comm, &posted_req));
	return status;
}

int
post_reduce(const struct step *step, fanin_request **req)
{
	const struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool is_root = call->root == state->rank;

	return fanin_ireduce(is_root ? own_data(call) : call->send, is_root ? call->recv : NULL,
			     step->elements, step->dtype, step->op,
			     (uint16_t)state->host_of[call->root], state->channel->comm, req);
}

/* Moves the result to the root, which may not be the leader of its host. */
static int
result_to_root(const struct step *step, void *sum)
{
	const struct collective *call = step->call;
	struct comm_state *state = step->state;
	const int place = state->place_of[call->root];
	MPI_Request req;

	if (state->host != state->host_of[call->root] || place == 0)
		return FANIN_OK;
	if (is_leader(state))
		return NODE_CALL(state, Send, Isend, sum, (int)call->count, call->type, place, 0,
				 state->node);
	if (call->root != state->rank)
		return FANIN_OK;
	return mpi_status(mpi_finish(PMPI_Irecv(call->recv, (int)call->count, call->type, 0, 0,
						state->node, &req),
				     &req, state->in_background));
}

int
run_reduce(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool is_root = call->root == state->rank;
	void *sum = is_root ? call->recv : NULL;
	int status = FANIN_OK;

	if (is_alone(state))
		return NETWORK_CALL(state, post_reduce(step, &posted_req));
	if (!is_leader(state)) {
		status = node_reduce(step, NULL, (int)call->count);
	} else {
		if (sum == NULL)
			sum = scratch(state, step->bytes);
		status = leader_reduce(step, sum);
	}
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = result_to_root(step, sum);
	if (is_leader(state) && !is_root)
		free(sum);
	return status;
}

/* Posts a reduce_scatter. own: receives the rank's part. */
static int
post_parts(const struct step *step, void *own, fanin_request **req)
{
	return fanin_ireduce_scatter(own_data(step->call), own, step->part / step->element_bytes,
				     step->dtype, step->op, step->state->channel->comm, req);
}

/* Posts a reduce_scatter that is not in place. */
int
post_reduce_scatter(const struct step *step, fanin_request **req)
{
	return post_parts(step, step->call->recv, req);
}

/*
 * Runs a reduce_scatter with one rank on each host. In place, the vector is in recv, and the result
 * goes to its start. The network would write the result over the rank's own part, but programs
 * expect that part to stay.
 */
static int
run_reduce_scatter_alone(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool copies = call->send == MPI_IN_PLACE && state->rank != 0;
	uint8_t *own = copies ? scratch(state, step->part) : call->recv;
	int status;

	if (own == NULL)
		return FANIN_ERR_NO_MEMORY;
	status = NETWORK_CALL(state, post_parts(step, own, &posted_req));
	if (copies && status == FANIN_OK)
		memcpy(call->recv, own, step->part);
	if (copies)
		free(own);
	return status;
}

int
run_reduce_scatter(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const size_t part = step->part, hosts_part = part * (size_t)state->node_size;
	const bool leads = is_leader(state);
	uint8_t *sum = NULL, *own = NULL;
	int status;

	if (is_alone(state))
		return run_reduce_scatter_alone(step);
	if (leads) {
		sum = scratch(state, step->bytes);
		own = sum + (size_t)state->host * hosts_part;
	}
	status = node_reduce(step, sum, (int)call->count * state->size);
	if (leads && status == FANIN_OK)
		status = NETWORK_CALL(state,
				      fanin_ireduce_scatter(sum, own,
							    hosts_part / step->element_bytes,
							    step->dtype, step->op,
							    state->channel->comm, &posted_req));
	status = status_share(state, status);
	if (status == FANIN_OK)
		status = NODE_CALL(state, Scatter, Iscatter, own, (int)call->count, call->type,
				   call->recv, (int)call->count, call->type, 0, state->node);
	free(sum);
	return status;
}
