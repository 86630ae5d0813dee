/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a communicator is an attribute of it. */
#include "preload.h"

/* A cache of states by handle, since looking up an attribute takes locks. */
#define CACHE_SIZE 64

static int keyval = MPI_KEYVAL_INVALID;
static struct comm_state *cache[CACHE_SIZE];

static unsigned int
cache_place(MPI_Comm comm)
{
	return (unsigned int)(((uint64_t)(uintptr_t)comm * 0x9e3779b97f4a7c15u) >> 58) &
	       (CACHE_SIZE - 1);
}

/*
 * The attribute's delete callback. MPI may call it later than MPI_Comm_free, and at another place
 * on each rank, so nothing here is collective: a job that comm_close has not ended ends in
 * MPI_Finalize.
 */
static int
state_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	struct comm_state *state = value;

	(void)key;
	(void)extra;
	__atomic_store_n(&cache[cache_place(comm)], NULL, __ATOMIC_RELEASE);
	state->comm = MPI_COMM_NULL;
	if (state->way != WAY_NETWORK)
		state_drop(state);
	return MPI_SUCCESS;
}

int
attributes_init(void)
{
	return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, state_delete, &keyval, NULL);
}

void
attributes_finish(void)
{
	/* A program may have started with PMPI_Init. */
	if (keyval != MPI_KEYVAL_INVALID)
		PMPI_Comm_free_keyval(&keyval);
}

static int
state_of_comm(MPI_Comm comm, struct comm_state **state)
{
	struct comm_state **place = &cache[cache_place(comm)];
	void *value;
	int status, found = 0;

	*state = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	if (*state != NULL && (*state)->comm == comm)
		return MPI_SUCCESS;
	*state = NULL;
	status = PMPI_Comm_get_attr(comm, keyval, &value, &found);
	if (status != MPI_SUCCESS || !found)
		return status;
	__atomic_store_n(place, value, __ATOMIC_RELEASE);
	*state = value;
	return MPI_SUCCESS;
}

int
state_find(const struct collective *call, struct comm_state **state)
{
	return state_of_comm(call->comm, state);
}

void
state_attach(const struct collective *call, struct comm_state *state)
{
	if (PMPI_Comm_set_attr(call->comm, keyval, state) != MPI_SUCCESS)
		no_memory();
}

/* True if MPI frees the communicator; otherwise the communicator keeps its job. */
static bool
can_be_freed(const MPI_Comm *comm)
{
	return comm != NULL && *comm != MPI_COMM_NULL && *comm != MPI_COMM_WORLD &&
	       *comm != MPI_COMM_SELF && mpi_settings.enabled;
}

int
comm_drain(const MPI_Comm *comm)
{
	struct comm_state *state = NULL;
	int status = MPI_SUCCESS;

	if (can_be_freed(comm))
		status = state_of_comm(*comm, &state);
	if (state != NULL && state->way == WAY_NETWORK)
		queue_drain(state->queue);
	return status;
}

int
comm_close(const MPI_Comm *comm)
{
	struct comm_state *state = NULL;
	bool in_background;
	int status;

	if (!can_be_freed(comm))
		return MPI_SUCCESS;
	status = state_of_comm(*comm, &state);
	if (state == NULL)
		return status;
	in_background = state->way == WAY_NETWORK && state->queue != NULL;
	if (in_background)
		/* This keeps other threads from freeing it while this one needs it. */
		__atomic_store_n(&state->is_taken, true, __ATOMIC_RELAXED);
	if (state->way == WAY_NETWORK) {
		state_close_begin(state);
		if (!in_background)
			state_close_end(state);
	}
	PMPI_Comm_delete_attr(*comm, keyval);
	if (in_background)
		__atomic_store_n(&state->is_taken, false, __ATOMIC_RELEASE);
	closed_free();
	return MPI_SUCCESS;
}
