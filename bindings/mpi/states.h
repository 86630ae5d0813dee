/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of communicators' states: communicators.c makes and adds them, agreement.c removes them
 * when their jobs end.
 */
#ifndef FANIN_BINDINGS_MPI_STATES_H
#define FANIN_BINDINGS_MPI_STATES_H

#include "core.h"

#include <pthread.h>

/* States with a job, now or before a failure, under the lock. */
extern struct comm_state *joined_states;
extern pthread_mutex_t states_lock;

/* Removes a state from the list. */
void state_note_left(struct comm_state *state);
/* Leaves the job, if there is one, and frees memory that a state without a job does not need. */
void state_shrink(struct comm_state *state);
/* Keeps the memory for another communicator's state. */
void state_free(struct comm_state *state);

#endif
