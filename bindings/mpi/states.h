/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of communicators' states: communicators.c makes and adds them, agreement.c removes them
 * when their jobs end.
 */
#ifndef FANIN_BINDINGS_MPI_STATES_H
#define FANIN_BINDINGS_MPI_STATES_H

#include "preload.h"

#include <pthread.h>

/* States with a job, now or before a failure, under the lock. */
extern struct comm_state *joined_states;
extern pthread_mutex_t states_lock;

/* Removes a state from the list. */
void state_note_left(struct comm_state *state);
/* Leaves the job, if there is one: with all ranks, or at once. */
void job_leave(struct comm_state *state, bool at_once);
/* Leaves the job, if there is one, and frees memory that a state without a job does not need. */
void state_shrink(struct comm_state *state);
/* Keeps the memory for another communicator's state. */
void state_free(struct comm_state *state);
/* Removes the state of one communicator, or of all. */
void state_forget(MPI_Comm comm);
void states_forget(void);
/*
 * Frees the states of communicators that the program has freed. Returns false if the jobs of some
 * have not ended.
 */
bool closed_free(void);

#endif
