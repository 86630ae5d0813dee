/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of communicators' states: communicators.c makes and enters them, agreement.c takes them
 * off when their jobs end.
 */
#ifndef FANIN_BINDINGS_MPI_STATES_H
#define FANIN_BINDINGS_MPI_STATES_H

#include "preload.h"

#include <pthread.h>

/* States with a job, now or before a failure, under the lock. */
extern struct comm_state *joined_states;
extern pthread_mutex_t states_lock;

/* Takes it off the list. */
void state_note_left(struct comm_state *state);
/* Leaves the job, if there is one: with all ranks, or at once. */
void job_leave(struct comm_state *state, bool at_once);
/* The same, and frees what a state without a job does not need. */
void state_shrink(struct comm_state *state);
/* Keeps it for another communicator. */
void state_free(struct comm_state *state);
/* Takes the communicator's state away from it; and from all. */
void state_forget(MPI_Comm comm);
void states_forget(void);
/*
 * Frees what communicators have left that the program has freed. Returns false if some are not at
 * their end.
 */
bool closed_free(void);

#endif
