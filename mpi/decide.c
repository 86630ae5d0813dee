/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which calls go into the network. All that is looked at is the same on all ranks of a communicator; what may differ, such as
 * MPI_IN_PLACE, alignment and derived types of the same signature, is dealt with where the call is carried out.
 */
#include "preload.h"

#include <limits.h>

/* The type's data in bytes, 0 if there are none. */
static size_t
type_bytes(MPI_Datatype type)
{
	const size_t plain = type_plain_bytes(type);
	MPI_Count bytes;

	if (plain != 0)
		return plain;
	if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0)
		return 0;
	return (size_t)bytes;
}

static bool
has_parts(const struct collective *call)
{
	return call->kind == COLLECTIVE_ALLGATHER || call->kind == COLLECTIVE_REDUCE_SCATTER_BLOCK;
}

static bool
is_reduced(const struct collective *call)
{
	return call->kind != COLLECTIVE_BARRIER && call->kind != COLLECTIVE_ALLGATHER &&
	       call->kind != COLLECTIVE_BCAST;
}

static enum way
collective_way(const struct collective *call, struct operation *operation)
{
	int size;

	*operation = (struct operation){ .dtype = FANIN_U8, .op = FANIN_SUM, .way = WAY_NETWORK };
	if (!preload_settings.enabled)
		return WAY_DISABLED;
	if (call->comm == MPI_COMM_NULL)
		return WAY_ARGUMENT;
	if (call->kind == COLLECTIVE_BARRIER)
		return WAY_NETWORK;
	if (call->count < 0 || call->type == MPI_DATATYPE_NULL)
		return WAY_ARGUMENT;
	operation->bytes = (size_t)call->count * type_bytes(call->type);
	if (has_parts(call)) {
		if (PMPI_Comm_size(call->comm, &size) != MPI_SUCCESS)
			return WAY_ARGUMENT;
		operation->bytes *= (size_t)size;
	}
	if (operation->bytes < preload_settings.min_bytes) {
		if (operation->bytes == 0 || !is_reduced(call) ||
		    !type_is_wrong_in_mpi(call->type, call->op))
			return WAY_TOO_SMALL;
		operation->way = WAY_MPI_WRONG;
	}
	return is_reduced(call)
		       ? type_to_fanin(call->type, call->op, &operation->dtype, &operation->op)
		       : WAY_NETWORK;
}

static enum way
collective_way_of_state(const struct collective *call, const struct comm_state *state,
			const struct operation *operation)
{
	const bool is_shared = state->n_hosts != state->size;

	if (state->way != WAY_NETWORK)
		return state->way;
	/* After a failure, too, this decides: calls that were for the network are carried out on another communicator then. */
	if (call->root < 0 || call->root >= state->size)
		return WAY_ARGUMENT;
	if (has_parts(call) && is_shared && !state->regular)
		return WAY_PLACEMENT;
	/* MPI's own counts are int. */
	if ((!is_reduced(call) || is_shared) && operation->bytes > INT_MAX)
		return WAY_TOO_LARGE;
	return WAY_NETWORK;
}

/* By the communicator's error handler. */
static int
error_raise(MPI_Comm comm, int error)
{
	if (error != MPI_SUCCESS)
		PMPI_Comm_call_errhandler(comm, error);
	return error;
}

int
collective_carry_out(struct comm_state *state, const struct collective *call,
		     const struct operation *operation)
{
	int status;

	state->calls++;
	if (state_phase(state) != PHASE_IN_NETWORK) {
		state_wait_agreed(state);
		if (state->calls < state->meet) {
			report_count(call->kind, WAY_ERROR, operation->bytes);
			return MPI_ERR_OTHER;
		}
		report_count(call->kind, WAY_FAILED, operation->bytes);
		return collective_by_mpi(call, state->shadow, state->in_background);
	}
	status = collective_run(state, call, operation);
	if (status == FANIN_OK) {
		report_count(call->kind, operation->way, operation->bytes);
		return MPI_SUCCESS;
	}
	report_count(call->kind, WAY_ERROR, operation->bytes);
	state_fail(state, status);
	return MPI_ERR_OTHER;
}

/* True if the communicator's job is to be made for this blocking call. way: as far as the call alone decides. */
static bool
collective_makes_job(const struct collective *call, enum way way, struct comm_state *state)
{
	if (state != NULL && (state->way != WAY_NO_JOB_YET || state->wanted))
		return state->way == WAY_NO_JOB_YET;
	if (way != WAY_NETWORK)
		return false;
	return call->kind != COLLECTIVE_BARRIER || state_count_barrier(call->comm, state);
}

bool
collective_take(const struct collective *call, int *result)
{
	struct operation operation;
	enum way way = collective_way(call, &operation);
	const bool may_make = way != WAY_DISABLED && way != WAY_ARGUMENT;
	struct comm_state *state = NULL;

	if (way == WAY_NETWORK || (may_make && states_are_wanted()))
		state = state_find(call->comm);
	if (may_make && collective_makes_job(call, way, state))
		state = state_make(call->comm, state);
	if (way == WAY_NETWORK)
		way = state == NULL ? WAY_NO_JOB_YET
				    : collective_way_of_state(call, state, &operation);
	if (way != WAY_NETWORK) {
		report_count(call->kind, way, operation.bytes);
		return false;
	}
	queue_hold(state->queue);
	state->in_background = false;
	*result = collective_carry_out(state, call, &operation);
	queue_release(state->queue);
	error_raise(call->comm, *result);
	return true;
}

bool
collective_start(const struct collective *call, MPI_Request *req, int *result)
{
	struct operation operation;
	enum way way = collective_way(call, &operation);
	struct comm_state *state;
	int is_inter;

	if (way == WAY_NETWORK && !preload_settings.nonblocking)
		way = WAY_NONBLOCKING;
	if (way == WAY_NETWORK) {
		state = state_find(call->comm);
		if (state != NULL)
			way = collective_way_of_state(call, state, &operation);
		else if (PMPI_Comm_test_inter(call->comm, &is_inter) == MPI_SUCCESS)
			way = is_inter ? WAY_INTERCOMM : WAY_NO_JOB_YET;
		else
			way = WAY_ARGUMENT;
		if (way == WAY_NO_JOB_YET && call->kind != COLLECTIVE_BARRIER)
			state_want(call->comm, state);
	}
	if (way != WAY_NETWORK) {
		report_count(call->kind, way, operation.bytes);
		return false;
	}
	queue_add(state->queue, call, &operation, req);
	*result = MPI_SUCCESS;
	return true;
}
