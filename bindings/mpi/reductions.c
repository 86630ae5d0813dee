/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions in the network.
 */
#include "network.h"

#include <stdlib.h>
#include <string.h>

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
	return NETWORK_CALL(step->state, post_allreduce(step, &posted_req));
}

int
post_reduce(const struct step *step, fanin_request **req)
{
	const struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool is_root = call->root == state->rank;

	return fanin_ireduce(is_root ? own_data(call) : call->send, is_root ? call->recv : NULL,
			     step->elements, step->dtype, step->op, (uint16_t)call->root,
			     state->channel->comm, req);
}

int
run_reduce(const struct step *step)
{
	return NETWORK_CALL(step->state, post_reduce(step, &posted_req));
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
 * Runs a reduce_scatter. In place, the vector is in recv, and the result goes to its start. The
 * network would write the result over the rank's own part, but programs expect that part to stay.
 */
int
run_reduce_scatter(const struct step *step)
{
	struct comm_state *state = step->state;
	const struct collective *call = step->call;
	const bool copies = call->send == MPI_IN_PLACE && state->rank != 0;
	uint8_t *own = copies ? malloc(step->part) : call->recv;
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
