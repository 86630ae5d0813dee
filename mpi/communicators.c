/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is kept about each communicator, and its job. The state is an attribute of the communicator, so that it goes away with
 * it. It is made in the first blocking collective that is for the network; whether there is a job is agreed on by MPI: all
 * ranks have joined, or none uses it.
 */
#include "preload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NAME_BYTES 8
/* A cache of states by handle, since looking up an attribute takes locks. */
#define CACHE_SIZE 64

static int keyval = MPI_KEYVAL_INVALID;
static MPI_Comm progress_comm = MPI_COMM_NULL;
static struct comm_state *cache[CACHE_SIZE];
/* States that are in use no more. Never freed: a thread may still compare the handle of one that it found in the cache. */
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm_state *free_states;
static struct comm_state *joined_states; /* with a job; under free_lock, too */
static uint32_t n_jobs;

static unsigned int
cache_place(MPI_Comm comm)
{
	return (unsigned int)(((uint64_t)(uintptr_t)comm * 0x9e3779b97f4a7c15u) >> 58) &
	       (CACHE_SIZE - 1);
}

static struct comm_state *
state_alloc(MPI_Comm comm)
{
	struct comm_state *state;

	pthread_mutex_lock(&free_lock);
	state = free_states;
	if (state != NULL)
		free_states = state->next_free;
	pthread_mutex_unlock(&free_lock);
	if (state == NULL)
		state = malloc(sizeof(*state));
	if (state == NULL)
		return NULL;
	*state = (struct comm_state){ .comm = comm, .shadow = MPI_COMM_NULL, .node = MPI_COMM_NULL };
	return state;
}

static void
comm_drop(MPI_Comm *comm)
{
	if (*comm != MPI_COMM_NULL)
		PMPI_Comm_free(comm);
}

static void
state_note_joined(struct comm_state *state)
{
	__atomic_add_fetch(&n_jobs, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&free_lock);
	state->next_joined = joined_states;
	joined_states = state;
	pthread_mutex_unlock(&free_lock);
}

static void
state_note_left(struct comm_state *state)
{
	struct comm_state **link;

	__atomic_sub_fetch(&n_jobs, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&free_lock);
	for (link = &joined_states; *link != NULL && *link != state; link = &(*link)->next_joined)
		;
	if (*link != NULL)
		*link = state->next_joined;
	pthread_mutex_unlock(&free_lock);
}

/* Leaves the job, if there is one, and frees what a state without a job does not need. */
static void
state_shrink(struct comm_state *state)
{
	channel_leave(state->channel);
	state->channel = NULL;
	comm_drop(&state->node);
	comm_drop(&state->shadow);
	free(state->host_of);
	free(state->place_of);
	state->host_of = state->place_of = NULL;
}

/* The attribute's delete callback: MPI_Comm_free and MPI_Comm_disconnect are collective, as what is freed here needs. */
static int
state_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	struct comm_state *state = value;

	(void)key;
	(void)extra;
	__atomic_store_n(&cache[cache_place(comm)], NULL, __ATOMIC_RELEASE);
	if (state->way == WAY_NETWORK) {
		/* Members leave a job together: MPI waits for the late ones, and moves its data meanwhile. */
		PMPI_Barrier(state->shadow);
		state_note_left(state);
	}
	state_shrink(state);
	state->comm = MPI_COMM_NULL;
	pthread_mutex_lock(&free_lock);
	state->next_free = free_states;
	free_states = state;
	pthread_mutex_unlock(&free_lock);
	return MPI_SUCCESS;
}

int
states_init(void)
{
	int status = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, state_delete, &keyval, NULL);

	if (status == MPI_SUCCESS)
		status = PMPI_Comm_dup(MPI_COMM_WORLD, &progress_comm);
	return status;
}

/* Looks for a message that nobody sends. On a communicator of this process alone MPICH would not look at the network. */
void
mpi_progress(void)
{
	int there;

	PMPI_Iprobe(MPI_ANY_SOURCE, 0, progress_comm, &there, MPI_STATUS_IGNORE);
}

struct comm_state *
state_find(MPI_Comm comm)
{
	struct comm_state **place = &cache[cache_place(comm)];
	struct comm_state *state = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	void *value;
	int found = 0;

	if (state != NULL && state->comm == comm)
		return state;
	if (PMPI_Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS || !found)
		return NULL;
	__atomic_store_n(place, value, __ATOMIC_RELEASE);
	return value;
}

/* All processes are of this MPI_COMM_WORLD, so that all have the same settings. */
static bool
is_of_this_world(MPI_Comm comm, int size)
{
	MPI_Group group, world;
	int *ranks = malloc(2 * sizeof(int) * (size_t)size);
	bool all = ranks != NULL;

	if (ranks == NULL)
		return false;
	for (int i = 0; i < size; i++)
		ranks[i] = i;
	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_translate_ranks(group, size, ranks, world, ranks + size);
	for (int i = 0; i < size; i++)
		all = all && ranks[size + i] != MPI_UNDEFINED;
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	free(ranks);
	return all;
}

/* The largest of all ranks' ways: NETWORK only if each has it. */
static enum way
way_agree(MPI_Comm comm, enum way mine)
{
	int way = (int)mine;

	if (PMPI_Allreduce(MPI_IN_PLACE, &way, 1, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS)
		return WAY_NOT_JOINED;
	return (enum way)way;
}

static int
compare_int(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Numbers the hosts by their leaders' ranks, and finds out whether their ranks lie in a row. */
static void
hosts_number(struct comm_state *state, const int *leaders, int *sorted)
{
	memcpy(sorted, leaders, sizeof(int) * (size_t)state->size);
	qsort(sorted, (size_t)state->size, sizeof(int), compare_int);
	state->n_hosts = 0;
	for (int i = 0; i < state->size; i++)
		if (i == 0 || sorted[i] != sorted[i - 1])
			sorted[state->n_hosts++] = sorted[i];
	state->regular = state->size % state->n_hosts == 0;
	for (int i = 0; i < state->size; i++) {
		const int *found = bsearch(&leaders[i], sorted, (size_t)state->n_hosts, sizeof(int),
					   compare_int);

		state->host_of[i] = (int)(found - sorted);
		state->regular = state->regular &&
				 state->host_of[i] == i / (state->size / state->n_hosts);
	}
	state->host = state->host_of[state->rank];
}

/* Which ranks are on which hosts. Collective. Returns NETWORK or why the network has nothing to do. */
static enum way
hosts_find(struct comm_state *state)
{
	const size_t n = (size_t)state->size;
	int *leaders = malloc(2 * sizeof(int) * n);
	int leader = state->rank;
	enum way way;

	state->host_of = malloc(sizeof(int) * n);
	state->place_of = malloc(sizeof(int) * n);
	way = leaders == NULL || state->host_of == NULL || state->place_of == NULL ? WAY_MEMORY
										   : WAY_NETWORK;
	way = way_agree(state->shadow, way);
	if (way == WAY_NETWORK && leaders != NULL) {
		PMPI_Comm_split_type(state->shadow, MPI_COMM_TYPE_SHARED, state->rank,
				     MPI_INFO_NULL, &state->node);
		PMPI_Comm_rank(state->node, &state->node_rank);
		PMPI_Comm_size(state->node, &state->node_size);
		PMPI_Bcast(&leader, 1, MPI_INT, 0, state->node);
		PMPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, state->shadow);
		PMPI_Allgather(&state->node_rank, 1, MPI_INT, state->place_of, 1, MPI_INT,
			       state->shadow);
		hosts_number(state, leaders, leaders + n);
		if (state->n_hosts == 1)
			way = WAY_ONE_HOST;
	}
	free(leaders);
	return way;
}

/* A name that no other job has: siblings of a split must not meet. */
static void
job_name_make(struct comm_state *state, char name[2 * NAME_BYTES + 8])
{
	uint8_t bytes[NAME_BYTES];
	int n = sprintf(name, "mpi-");

	if (state->rank == 0 && getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		memset(bytes, 0, sizeof(bytes));
	PMPI_Bcast(bytes, NAME_BYTES, MPI_BYTE, 0, state->shadow);
	for (int i = 0; i < NAME_BYTES; i++)
		n += sprintf(name + n, "%02x", bytes[i]);
}

/* Collective. Returns NETWORK if all leaders have joined. */
static enum way
job_join(struct comm_state *state)
{
	char name[2 * NAME_BYTES + 8];
	enum way way = WAY_NETWORK;

	PMPI_Comm_split(state->comm, 0, state->rank, &state->shadow);
	PMPI_Comm_set_errhandler(state->shadow, MPI_ERRORS_RETURN);
	way = hosts_find(state);
	if (way != WAY_NETWORK)
		return way;
	job_name_make(state, name);
	if (state->node_rank == 0)
		channel_join(name, state->host, state->n_hosts, &state->channel, &way);
	return way_agree(state->shadow, way);
}

struct comm_state *
state_make(MPI_Comm comm)
{
	struct comm_state *state = state_alloc(comm);
	int is_inter;

	if (state == NULL)
		return NULL;
	PMPI_Comm_test_inter(comm, &is_inter);
	PMPI_Comm_rank(comm, &state->rank);
	PMPI_Comm_size(comm, &state->size);
	if (is_inter)
		state->way = WAY_INTERCOMM;
	else if (state->size == 1)
		state->way = WAY_ONE_RANK;
	else if (!is_of_this_world(comm, state->size))
		state->way = WAY_FOREIGN;
	else
		state->way = way_agree(comm, __atomic_load_n(&n_jobs, __ATOMIC_RELAXED) >=
							     preload_settings.max_jobs
						     ? WAY_MANY_JOBS
						     : WAY_NETWORK);
	if (state->way == WAY_NETWORK) {
		state->way = job_join(state);
		if (state->way == WAY_NETWORK)
			state_note_joined(state);
		else
			state_shrink(state);
	}
	report_communicator(state->way);
	PMPI_Comm_set_attr(comm, keyval, state);
	return state;
}

void
state_fail(struct comm_state *state, int status)
{
	fprintf(stderr, "fanin-mpi: rank %d: a collective in the network failed: %s%s%s\n",
		state->rank, fanin_strerror(status), state->channel != NULL ? ": " : "",
		state->channel != NULL ? fanin_comm_error(state->channel->comm) : "");
	channel_leave(state->channel);
	state->channel = NULL;
	state->failed = true;
}

/*
 * Ranks that have failed in the same call as this one, or waited in a later one for those that had, meet here: the later ones
 * with their next call. A rank that is behind them fails once more, as they did. Nobody can have completed a call that a rank
 * has not begun, so all go on together with MPI.
 */
bool
state_agree(struct comm_state *state)
{
	uint64_t last = state->calls;
	uint64_t all;

	for (;;) {
		uint64_t ends[2] = { state->calls, UINT64_MAX - state->calls };

		if (PMPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MAX, state->shadow) !=
		    MPI_SUCCESS)
			return false;
		all = ends[0];
		if (all > last)
			return false;
		if (UINT64_MAX - ends[1] == all)
			break;
	}
	state->way = WAY_FAILED;
	state_note_left(state);
	state_shrink(state);
	return true;
}

/* Communicators that the program has not freed leave their jobs here, in the reverse order of joining at all ranks. */
void
states_finish(void)
{
	while (joined_states != NULL) {
		struct comm_state *state = joined_states;

		state_note_left(state);
		state->way = WAY_DISABLED;
		state_shrink(state);
	}
	comm_drop(&progress_comm);
	/* A program may have begun by PMPI_Init. */
	if (keyval != MPI_KEYVAL_INVALID)
		PMPI_Comm_free_keyval(&keyval);
}
