/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of each communicator, and its job. The door keeps the state with the communicator; a
 * state with a job outlives the communicator until the job has ended (agreement.c). It is made in
 * the first blocking collective with data for the network, or after many barriers. The ranks agree
 * by MPI whether there is a job: all ranks have joined it, or none uses it.
 */
#include "states.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NAME_BYTES 8
/*
 * A job costs as much as some hundred barriers by MPI, and many communicators live for a few
 * barriers only.
 */
#define BARRIERS_BEFORE_JOB 200
/*
 * Wait for other communicators' jobs to end, before a communicator goes without one: about a
 * second.
 */
#define LOOKS_FOR_ROOM 1000

/*
 * free_states are unused, but never freed: a thread may still compare the handle of a state that it
 * found in the cache.
 */
pthread_mutex_t states_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm_state *free_states;
struct comm_state *joined_states; /* states with a job, now or before a failure; under states_lock,
				     too */
static uint32_t n_jobs;
uint32_t n_wanted_states;

void
no_memory(void)
{
	fputs("fanin-mpi: out of memory\n", stderr);
	PMPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

static struct comm_state *
state_alloc(MPI_Comm comm)
{
	struct comm_state *state;

	pthread_mutex_lock(&states_lock);
	state = free_states;
	if (state != NULL)
		free_states = state->next_free;
	pthread_mutex_unlock(&states_lock);
	if (state == NULL)
		state = malloc(sizeof(*state));
	if (state == NULL)
		no_memory();
	*state = (struct comm_state){ .comm = comm, .shadow = MPI_COMM_NULL };
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
	pthread_mutex_lock(&states_lock);
	state->next_joined = joined_states;
	joined_states = state;
	pthread_mutex_unlock(&states_lock);
}

void
state_note_left(struct comm_state *state)
{
	struct comm_state **link;

	__atomic_sub_fetch(&n_jobs, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&states_lock);
	for (link = &joined_states; *link != NULL && *link != state; link = &(*link)->next_joined)
		;
	if (*link != NULL)
		*link = state->next_joined;
	pthread_mutex_unlock(&states_lock);
}

/* Leaves the job, if there is one, and frees memory that a state without a job does not need. */
void
state_shrink(struct comm_state *state)
{
	queue_end(state->queue);
	state->queue = NULL;
	channel_leave(state->channel, true);
	state->channel = NULL;
	comm_drop(&state->shadow);
}

void
state_free(struct comm_state *state)
{
	pthread_mutex_lock(&states_lock);
	state->next_free = free_states;
	free_states = state;
	pthread_mutex_unlock(&states_lock);
}

void
state_drop(struct comm_state *state)
{
	if (state->wanted)
		__atomic_sub_fetch(&n_wanted_states, 1, __ATOMIC_RELAXED);
	state_shrink(state);
	state_free(state);
}

/* Makes a state without a job. */
static struct comm_state *
state_begin(const struct collective *call)
{
	struct comm_state *state = state_alloc(call->comm);

	state->way = WAY_NO_JOB_YET;
	state_attach(call, state);
	return state;
}

void
state_want(const struct collective *call, struct comm_state *state)
{
	if (state == NULL)
		state = state_begin(call);
	if (state->wanted)
		return;
	state->wanted = true;
	__atomic_add_fetch(&n_wanted_states, 1, __ATOMIC_RELAXED);
}

bool
state_count_barrier(const struct collective *call, struct comm_state *state)
{
	if (state == NULL)
		state = state_begin(call);
	return ++state->barriers == BARRIERS_BEFORE_JOB;
}

/* True if all processes are of library_comm, so that all have the same settings. */
static bool
is_of_this_program(MPI_Comm comm, int size)
{
	MPI_Group group, ours;
	bool all = true;

	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(library_comm, &ours);
	for (int i = 0; i < size && all; i++) {
		int rank;

		PMPI_Group_translate_ranks(group, 1, &i, ours, &rank);
		all = rank != MPI_UNDEFINED;
	}
	PMPI_Group_free(&group);
	PMPI_Group_free(&ours);
	return all;
}

/* Returns the largest of all ranks' ways: NETWORK only if all ranks have it. */
static enum way
way_agree(MPI_Comm comm, enum way mine)
{
	int way = (int)mine;

	if (PMPI_Allreduce(MPI_IN_PLACE, &way, 1, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS)
		return WAY_NOT_JOINED;
	return (enum way)way;
}

/*
 * Numbers the hosts in the order of their lowest ranks. ids: of the host of each rank. Returns how
 * many hosts there are.
 */
static unsigned int
hosts_number(const char (*ids)[FANIN_HOST_ID_LEN], int size, uint16_t *hosts)
{
	unsigned int n = 0;

	for (int i = 0; i < size; i++) {
		int same = 0;

		while (strcmp(ids[same], ids[i]) != 0)
			same++;
		hosts[i] = same < i ? hosts[same] : (uint16_t)n++;
	}
	return n;
}

/*
 * Finds which ranks are on which hosts. Collective. hosts: receives memory with the host of each
 * rank. Returns NETWORK, or why the network can't help.
 */
static enum way
hosts_find(struct comm_state *state, uint16_t **hosts)
{
	char(*ids)[FANIN_HOST_ID_LEN] = calloc((size_t)state->size, FANIN_HOST_ID_LEN);
	enum way way;

	*hosts = calloc((size_t)state->size, sizeof(**hosts));
	way = way_agree(state->shadow, ids == NULL || *hosts == NULL ? WAY_MEMORY : WAY_NETWORK);
	if (way == WAY_NETWORK && ids != NULL) {
		if (fanin_host_id(ids[state->rank]) != FANIN_OK)
			snprintf(ids[state->rank], FANIN_HOST_ID_LEN, "rank %d", state->rank);
		PMPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, ids, FANIN_HOST_ID_LEN, MPI_CHAR,
			       state->shadow);
		if (hosts_number(ids, state->size, *hosts) == 1)
			way = WAY_ONE_HOST;
	}
	free(ids);
	return way;
}

/* Makes a name that no other job has: the parts of a split must not share a job. */
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

/* Joins a job. Collective. Returns NETWORK if all ranks have joined. */
static enum way
job_join(struct comm_state *state)
{
	char name[2 * NAME_BYTES + 8];
	uint16_t *hosts;
	enum way way;

	PMPI_Comm_split(state->comm, 0, state->rank, &state->shadow);
	own_comm(state->shadow);
	PMPI_Comm_set_errhandler(state->shadow, MPI_ERRORS_RETURN);
	way = hosts_find(state, &hosts);
	if (way == WAY_NETWORK) {
		job_name_make(state, name);
		if (worker_is_wanted() && (state->queue = queue_start(state)) == NULL)
			way = WAY_MEMORY;
		else
			channel_join(name, state->rank, state->size, hosts, &state->channel, &way);
		way = way_agree(state->shadow, way);
	}
	free(hosts);
	return way;
}

/*
 * True if there is room for another job, perhaps after waiting for the jobs of freed communicators
 * to end.
 */
static bool
has_room_for_job(void)
{
	unsigned int looks = 0;

	while (!closed_free() &&
	       __atomic_load_n(&n_jobs, __ATOMIC_RELAXED) >= mpi_settings.max_jobs &&
	       looks < LOOKS_FOR_ROOM) {
		mpi_progress();
		nap(looks++);
	}
	return __atomic_load_n(&n_jobs, __ATOMIC_RELAXED) < mpi_settings.max_jobs;
}

/*
 * Returns NETWORK if a job has to be made, or why not. Collective, except for intercommunicators
 * and those of one rank.
 */
static enum way
way_before_job(const struct comm_state *state, MPI_Comm comm)
{
	enum way way;
	int is_inter;

	PMPI_Comm_test_inter(comm, &is_inter);
	if (is_inter)
		return WAY_INTERCOMM;
	if (state->size == 1)
		return WAY_ONE_RANK;
	way = has_room_for_job() ? WAY_NETWORK : WAY_MANY_JOBS;
	if (!is_of_this_program(comm, state->size))
		way = WAY_FOREIGN;
	return way_agree(comm, way);
}

struct comm_state *
state_make(const struct collective *call, struct comm_state *begun)
{
	struct comm_state *state = begun != NULL ? begun : state_alloc(call->comm);
	enum way way;

	PMPI_Comm_rank(call->comm, &state->rank);
	PMPI_Comm_size(call->comm, &state->size);
	way = way_before_job(state, call->comm);
	if (way == WAY_NETWORK) {
		way = job_join(state);
		if (way == WAY_NETWORK) {
			queue_release(state->queue);
			state_note_joined(state);
		} else {
			state_shrink(state);
		}
	}
	/* Other ranks may have been refused a job, too. */
	messages_look();
	report_communicator(way);
	state->way = way;
	if (state->wanted)
		__atomic_sub_fetch(&n_wanted_states, 1, __ATOMIC_RELAXED);
	state->wanted = false;
	if (begun == NULL)
		state_attach(call, state);
	return state;
}
