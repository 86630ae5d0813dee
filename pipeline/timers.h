/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers (handlers/timer.h): a FIFO for each timeout that jobs have, on each worker. A
 * round without one that has expired costs a comparison.
 */
#ifndef FANIN_PIPELINE_TIMERS_H
#define FANIN_PIPELINE_TIMERS_H

#include "pipeline/base/worker.h"

/*
 * A job's timeout: makes the FIFOs for it if there are none. Main thread, before workers can see
 * the job.
 *
 * timeout_ns: 1 at least. shorter: index of that of which this is FANIN_TIMER_STEP times; -1: it is
 * the job's own. Returns its index in pipeline->timeouts; -ENOSPC: jobs have PIPELINE_TIMEOUTS
 * others; -ENOMEM.
 */
int timers_use(struct pipeline *pipeline, uint64_t timeout_ns, int shorter);

/*
 * A job that had the timeout of this index has gone, and no worker can see it any more. With the
 * last one the FIFOs go as soon as no worker uses them. Main thread.
 */
void timers_unuse(struct pipeline *pipeline, int timeout);

/* Frees all FIFOs; the workers must have stopped. */
void timers_free(struct pipeline *pipeline);

/* Has a timer expired, or are there too many? Worker. */
static inline bool
timers_are_due(const struct worker *worker)
{
	return worker->now_ns >= worker->timers_due_ns;
}

/*
 * Calls the handlers of timers that have expired, and of the first ones of those that are too many.
 * Worker, between bursts.
 */
void timers_expire(struct worker *worker);

#endif
