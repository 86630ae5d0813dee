/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides which calls go into the network. All values that it uses are the same on all ranks of a
 * communicator. Where ranks may differ, as in MPI_IN_PLACE, alignment and derived types of the same
 * signature, the code that carries out the call handles the difference. Only a call that MPI
 * refuses may be decided differently: for the other ranks it is no call, and they wait until this
 * rank makes the right one.
 */
#include "core.h"

#include <limits.h>

/* Returns the bytes of a type's data, 0 if it has none. */
static size_t
type_bytes(MPI_Datatype type)
{
	const size_t plain = type_plain_bytes(type);
	MPI_Count bytes;

	if (plain != 0)
		return plain;
	return PMPI_Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0 ? 0 : (size_t)bytes;
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

/*
 * Decides by the call alone. *error: set if the communicator is invalid; MPI has passed the error
 * to its handler.
 */
static enum way
collective_way(const struct collective *call, struct operation *operation, int *error)
{
	int size = 1;

	*error = MPI_SUCCESS;
	*operation = (struct operation){ .dtype = FANIN_U8, .op = FANIN_SUM, .way = WAY_NETWORK };
	if (!mpi_settings.enabled)
		return WAY_DISABLED;
	if (call->comm == MPI_COMM_NULL)
		return WAY_ARGUMENT;
	if (call->kind == COLLECTIVE_BARRIER)
		return WAY_NETWORK;
	if (call->count < 0 || !received_type_holds(call))
		return WAY_ARGUMENT;
	if (has_parts(call) && (*error = PMPI_Comm_size(call->comm, &size)) != MPI_SUCCESS)
		return WAY_ARGUMENT;
	if (__builtin_mul_overflow((size_t)call->count, type_bytes(call->type),
				   &operation->bytes) ||
	    __builtin_mul_overflow(operation->bytes, (size_t)size, &operation->bytes)) {
		operation->bytes = 0;
		return WAY_TOO_LARGE;
	}
	if (operation->bytes < mpi_settings.min_bytes) {
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
	if (state->way != WAY_NETWORK)
		return state->way;
	/*
	 * This decides after a failure, too: calls for the network are then carried out on another
	 * communicator. MPI's own counts are int.
	 */
	if (!is_reduced(call) && operation->bytes > INT_MAX)
		return WAY_TOO_LARGE;
	return WAY_NETWORK;
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
	state_fail(state, status,
		   state->in_background ? state->ends_program : errors_are_fatal(call->comm));
	return MPI_ERR_OTHER;
}

/* True if this blocking call makes the communicator's job. way: the decision by the call alone. */
static bool
collective_makes_job(const struct collective *call, enum way way, struct comm_state *state)
{
	if (state != NULL && (state->way != WAY_NO_JOB_YET || state->wanted))
		return state->way == WAY_NO_JOB_YET;
	/* A state is also made to record that there is no job. */
	if (way != WAY_NETWORK && way != WAY_INTERCOMM)
		return false;
	return call->kind != COLLECTIVE_BARRIER || state_count_barrier(call, state);
}

/*
 * Finds the communicator's state, and decides whether the call may use a job or make one. A call
 * that MPI refuses may not. way: the decision by the call alone. *error: as for collective_way; an
 * invalid buffer that MPI would use is an error, too.
 */
static enum way
collective_way_of_arguments(const struct collective *call, size_t bytes, struct comm_state **state,
			    int *error)
{
	int is_inter = 0, rank, size;
	enum verdict verdict;

	*error = state_find(call, state);
	if (*error != MPI_SUCCESS)
		return WAY_ARGUMENT;
	if (*state != NULL && (*state)->way == WAY_NETWORK) {
		rank = (*state)->rank;
		size = (*state)->size;
	} else if (*state != NULL && (*state)->way != WAY_NO_JOB_YET) {
		return (*state)->way;
	} else {
		PMPI_Comm_test_inter(call->comm, &is_inter);
		PMPI_Comm_rank(call->comm, &rank);
		PMPI_Comm_size(call->comm, &size);
	}
	if (is_inter)
		return WAY_INTERCOMM;
	verdict = arguments_judge(call, bytes, rank, size);
	if (verdict == VERDICT_UNUSABLE)
		*error = error_raise(call->comm, MPI_ERR_BUFFER);
	return verdict == VERDICT_TAKEN ? WAY_NETWORK : WAY_ARGUMENT;
}

/*
 * Finds the communicator's state for a call that goes to MPI in any case, so that the caller can
 * make a job that is wanted. way: the reason why the call goes to MPI. Returns it, or WAY_ARGUMENT
 * if MPI refuses the call, which then makes no job. Arguments that would crash MPI don't matter
 * here.
 */
static enum way
collective_way_if_wanted(const struct collective *call, enum way way, size_t bytes,
			 struct comm_state **state, int *error)
{
	int rank, size;

	*error = state_find(call, state);
	if (*error != MPI_SUCCESS || *state == NULL || !(*state)->wanted)
		return way;
	PMPI_Comm_rank(call->comm, &rank);
	PMPI_Comm_size(call->comm, &size);
	if (arguments_judge(call, bytes, rank, size) == VERDICT_REFUSED ||
	    (is_reduced(call) && !operator_holds(call)))
		return WAY_ARGUMENT;
	return way;
}

/* Records that the call goes to MPI, unless its error has been reported. */
static bool
collective_to_mpi(const struct collective *call, enum way way, uint64_t bytes, int error,
		  int *result)
{
	report_count(call->kind, way, bytes);
	*result = error;
	return error != MPI_SUCCESS;
}

bool
collective_take(const struct collective *call, int *result)
{
	struct operation operation;
	struct comm_state *state = NULL;
	int error;
	enum way way = collective_way(call, &operation, &error);

	if (way == WAY_NETWORK)
		way = collective_way_of_arguments(call, operation.bytes, &state, &error);
	else if (way != WAY_DISABLED && way != WAY_ARGUMENT && states_are_wanted())
		way = collective_way_if_wanted(call, way, operation.bytes, &state, &error);
	if (way != WAY_DISABLED && way != WAY_ARGUMENT && error == MPI_SUCCESS &&
	    collective_makes_job(call, way, state))
		state = state_make(call, state);
	if (way == WAY_NETWORK)
		way = state == NULL ? WAY_NO_JOB_YET
				    : collective_way_of_state(call, state, &operation);
	if (way != WAY_NETWORK)
		return collective_to_mpi(call, way, operation.bytes, error, result);
	*result = error_raise(call->comm, collective_wait(state, call, &operation));
	return true;
}

bool
collective_start(const struct collective *call, MPI_Request *req, int *result)
{
	struct operation operation;
	struct comm_state *state = NULL;
	int error;
	enum way way = collective_way(call, &operation, &error);

	if (way == WAY_NETWORK && req == NULL)
		way = WAY_ARGUMENT;
	if (way == WAY_NETWORK && !mpi_settings.nonblocking)
		way = WAY_NONBLOCKING;
	if (way == WAY_NETWORK)
		way = collective_way_of_arguments(call, operation.bytes, &state, &error);
	if (way == WAY_NETWORK) {
		way = state == NULL ? WAY_NO_JOB_YET
				    : collective_way_of_state(call, state, &operation);
		if (way == WAY_NO_JOB_YET && call->kind != COLLECTIVE_BARRIER)
			state_want(call, state);
	}
	if (way != WAY_NETWORK)
		return collective_to_mpi(call, way, operation.bytes, error, result);
	queue_add(state->queue, call, &operation, req);
	*result = MPI_SUCCESS;
	return true;
}
