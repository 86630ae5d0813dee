/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which calls go into the network. All that is looked at is the same on all ranks of a communicator; what may differ, such as
 * MPI_IN_PLACE, alignment and derived types of the same signature, is dealt with where the call is carried out.
 */
#include "preload.h"

#include <limits.h>
#include <stdio.h>

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

	*operation = (struct operation){ .dtype = FANIN_U8, .op = FANIN_SUM };
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
	if (operation->bytes < preload_settings.min_bytes)
		return WAY_TOO_SMALL;
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
	if (call->root < 0 || call->root >= state->size)
		return WAY_ARGUMENT;
	if (has_parts(call) && is_shared && !state->regular)
		return WAY_PLACEMENT;
	/* MPI's own counts are int. */
	if ((!is_reduced(call) || is_shared) && operation->bytes > INT_MAX)
		return WAY_TOO_LARGE;
	return WAY_NETWORK;
}

static int
collective_error(const struct collective *call)
{
	PMPI_Comm_call_errhandler(call->comm, MPI_ERR_OTHER);
	return MPI_ERR_OTHER;
}

/* In the network, or as all ranks agree after a failure. Returns false if MPI does the call. */
static bool
collective_do(struct comm_state *state, const struct collective *call,
	      const struct operation *operation, int *result)
{
	int status;

	state->calls++;
	if (state->failed) {
		if (state_agree(state)) {
			report_count(call->kind, WAY_FAILED, operation->bytes);
			return false;
		}
		*result = collective_error(call);
		return true;
	}
	status = collective_run(state, call, operation);
	if (status == FANIN_OK) {
		report_count(call->kind, WAY_NETWORK, operation->bytes);
		*result = MPI_SUCCESS;
		return true;
	}
	state_fail(state, status);
	*result = collective_error(call);
	return true;
}

bool
collective_take(const struct collective *call, int *result)
{
	struct operation operation;
	struct comm_state *state;
	enum way way = collective_way(call, &operation);
	int is_inter;

	if (way == WAY_NETWORK) {
		state = state_find(call->comm);
		if (state == NULL && PMPI_Comm_test_inter(call->comm, &is_inter) != MPI_SUCCESS) {
			report_count(call->kind, WAY_ARGUMENT, operation.bytes);
			return false;
		}
		if (state == NULL)
			state = state_make(call->comm);
		if (state == NULL) {
			/* The other ranks are about to agree with this one: MPI can't do the call without it. */
			fputs("fanin-mpi: out of memory\n", stderr);
			*result = collective_error(call);
			return true;
		}
		way = collective_way_of_state(call, state, &operation);
		if (way == WAY_NETWORK)
			return collective_do(state, call, &operation, result);
	}
	report_count(call->kind, way, operation.bytes);
	return false;
}

void
collective_count_nonblocking(const struct collective *call)
{
	struct operation operation;
	const enum way way = collective_way(call, &operation);

	report_count(call->kind, way == WAY_NETWORK ? WAY_NONBLOCKING : way, operation.bytes);
}
