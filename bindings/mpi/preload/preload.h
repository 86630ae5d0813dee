/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload into MPI programs: it takes the place of MPI's functions, and hands calls
 * that are not for the network to MPI by its profiling interface.
 */
#ifndef FANIN_BINDINGS_MPI_PRELOAD_H
#define FANIN_BINDINGS_MPI_PRELOAD_H

#include "bindings/mpi/core.h"

#define PRELOAD_EXPORT __attribute__((visibility("default")))

/* progress.c */
int progress_init(void);
void progress_finish(void);

/* attributes.c */
int attributes_init(void);
void attributes_finish(void);
/*
 * Ends the communicator's job before the communicator is freed: in the background, or together with
 * all ranks if there are no queues. Returns an error of MPI, which has been passed to its handler,
 * if there is no such communicator.
 */
int comm_close(const MPI_Comm *comm);
/* Waits for queued calls of the communicator. Returns the same errors. */
int comm_drain(const MPI_Comm *comm);

/* requests.c: waits for those requests that belong to calls in a queue. */
void requests_wait(int n, const MPI_Request reqs[]);

#endif
