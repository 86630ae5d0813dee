/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the ranks of a communicator stop using the network: after a failure, and when the
 * communicator is freed. A rank that fails tells the others at once, without waiting, from which
 * call on it could use MPI: the first that it has not begun. No rank can complete the failed call
 * in the network, so each other rank fails in it, or earlier, and tells its own number before it
 * returns. From the last such call on all use MPI; a rank that is behind it fails its calls up to
 * it. A communicator that is freed ends in the same way, so each rank takes part in exactly one
 * agreement, whatever happens to the others.
 */
#include "states.h"

#include <time.h>

/* Limit of waiting for communicators that other ranks may not have freed yet: about a second. */
#define LOOKS_FOR_END 1000

static bool gives_up; /* atomic */

enum phase
state_phase(const struct comm_state *state)
{
	return __atomic_load_n(&state->phase, __ATOMIC_ACQUIRE);
}

static void
agreement_begin(struct comm_state *state)
{
	state->next = state->calls + 1;
	if (PMPI_Iallreduce(&state->next, &state->meet, 1, MPI_UINT64_T, MPI_MAX, state->shadow,
			    &state->agreement) != MPI_SUCCESS)
		no_memory();
	__atomic_store_n(&state->phase, PHASE_FAILED, __ATOMIC_RELEASE);
	/*
	 * The queue's worker continues the agreement while the program computes, as the others wait
	 * for it.
	 */
	if (state->queue != NULL)
		queue_wake(state->queue);
}

static void
agreement_finish(struct comm_state *state)
{
	if (mpi_finish_surely(&state->agreement, state->queue != NULL) != MPI_SUCCESS)
		PMPI_Abort(MPI_COMM_WORLD, 1);
	__atomic_store_n(&state->phase, PHASE_AGREED, __ATOMIC_RELEASE);
}

void
state_wait_agreed(struct comm_state *state)
{
	if (state->queue == NULL && state_phase(state) == PHASE_FAILED)
		agreement_finish(state);
	for (unsigned int looks = 0; state_phase(state) == PHASE_FAILED; looks++) {
		mpi_progress();
		nap(looks);
	}
}

void
state_fail(struct comm_state *state, int status, bool ends_program)
{
	const char *reason = fanin_strerror(status);
	const char *detail = state->channel != NULL ? fanin_comm_error(state->channel->comm) : "";

	say(reason, ends_program, "rank %d: a collective in the network failed: %s%s%s",
	    state->rank, reason, detail[0] != '\0' ? ": " : "", detail);
	worker_leave(state->channel, true);
	state->channel = NULL;
	agreement_begin(state);
}

static bool
is_closing(const struct comm_state *state)
{
	return __atomic_load_n(&state->closing, __ATOMIC_ACQUIRE);
}

static bool
has_left(const struct comm_state *state)
{
	return __atomic_load_n(&state->left, __ATOMIC_ACQUIRE);
}

bool
state_has_duty(const struct comm_state *state)
{
	return state_phase(state) == PHASE_FAILED || (is_closing(state) && !has_left(state));
}

void
state_do_duty(struct comm_state *state)
{
	if (state_phase(state) == PHASE_IN_NETWORK)
		agreement_begin(state);
	if (state_phase(state) == PHASE_FAILED) {
		agreement_finish(state);
		/* Calls that are still queued are carried out before the job is left. */
		if (state->queue != NULL)
			return;
	}
	/* Members leave a job together: the agreement has waited for the late ones. */
	if (is_closing(state)) {
		worker_leave(state->channel, false);
		state->channel = NULL;
		__atomic_store_n(&state->left, true, __ATOMIC_RELEASE);
	}
}

void
state_close_begin(struct comm_state *state)
{
	__atomic_store_n(&state->closing, true, __ATOMIC_RELEASE);
	if (state->queue != NULL)
		queue_wake(state->queue);
	else if (state_phase(state) == PHASE_IN_NETWORK)
		agreement_begin(state);
}

void
state_close_end(struct comm_state *state)
{
	if (state->queue == NULL)
		state_do_duty(state);
	for (unsigned int looks = 0; !has_left(state); looks++) {
		mpi_progress();
		nap(looks);
	}
	state_note_left(state);
	state_shrink(state);
	state->way = WAY_DISABLED;
}

/*
 * Finds the state of a communicator that was freed and whose job has ended, and marks it as taken;
 * NULL: there is none.
 */
static struct comm_state *
closed_take(bool *some_close)
{
	struct comm_state *state;

	*some_close = false;
	pthread_mutex_lock(&states_lock);
	for (state = joined_states; state != NULL; state = state->next_joined) {
		if (state->queue == NULL || !is_closing(state))
			continue;
		*some_close = true;
		/* Another thread may have found the same one. */
		if (has_left(state) &&
		    !__atomic_exchange_n(&state->is_taken, true, __ATOMIC_ACQUIRE))
			break;
	}
	pthread_mutex_unlock(&states_lock);
	return state;
}

bool
closed_free(void)
{
	struct comm_state *state;
	bool some_close;

	while ((state = closed_take(&some_close)) != NULL) {
		state_close_end(state);
		state_free(state);
	}
	return !some_close;
}

void
closed_wait(void)
{
	for (unsigned int looks = 0; !closed_free() && looks < LOOKS_FOR_END; looks++) {
		mpi_progress();
		nap(looks);
	}
}

static uint32_t
states_open(void)
{
	uint32_t n = 0;

	for (const struct comm_state *state = joined_states; state != NULL;
	     state = state->next_joined)
		n += queue_open(state->queue);
	return n;
}

static int
library_rank(void)
{
	int rank;

	PMPI_Comm_rank(library_comm, &rank);
	return rank;
}

static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool
states_give_up(void)
{
	return __atomic_load_n(&gives_up, __ATOMIC_ACQUIRE);
}

/*
 * In MPI_Finalize no other thread of the program calls MPI, so the list is walked without its lock.
 */
void
states_drain(void)
{
	uint64_t since = now_ms();
	uint32_t before = 0, n;
	MPI_Request all_here;
	int are_here = 0;

	if (PMPI_Ibarrier(library_comm, &all_here) != MPI_SUCCESS)
		return;
	for (unsigned int looks = 0; !are_here || states_open() != 0; looks++) {
		n = states_open();
		if (n != before || !are_here)
			since = now_ms();
		before = n;
		if (n != 0 && now_ms() - since > mpi_settings.timeout_ms && !states_give_up()) {
			say(NULL, false,
			    "rank %d of MPI_COMM_WORLD: MPI_Finalize with nonblocking collectives under way that other ranks have not made: they fail",
			    library_rank());
			__atomic_store_n(&gives_up, true, __ATOMIC_RELEASE);
		}
		if (!are_here && PMPI_Test(&all_here, &are_here, MPI_STATUS_IGNORE) != MPI_SUCCESS)
			return;
		mpi_progress();
		nap(looks);
	}
	__atomic_store_n(&gives_up, false, __ATOMIC_RELEASE);
}

/* Ends the jobs of all communicators, including those that the program has not freed. */
void
states_finish(void)
{
	mpi_settings.enabled = false;
	for (struct comm_state *state = joined_states; state != NULL; state = state->next_joined)
		if (!is_closing(state))
			state_close_begin(state);
	for (struct comm_state *state = joined_states; state != NULL; state = state->next_joined)
		state_wait_agreed(state);
	while (joined_states != NULL)
		state_close_end(joined_states);
}
