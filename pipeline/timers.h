/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers (handlers/timer.h): each worker has one FIFO per timeout that jobs use. A
 * round in which no timer has expired costs one comparison.
 */
#ifndef FANIN_PIPELINE_TIMERS_H
#define FANIN_PIPELINE_TIMERS_H

#include "pipeline/base/worker.h"

/*
 * Adds a job to the users of a timeout; creates the timeout's FIFOs if there are none. Main thread,
 * before workers can see the job.
 *
 * timeout_ns: at least 1. shorter: index of the timeout that this one is FANIN_TIMER_STEP times as
 * long as; -1: this is the job's own timeout. Returns the index in pipeline->timeouts; -ENOSPC if
 * jobs use PIPELINE_TIMEOUTS others; or -ENOMEM.
 */
int timers_use(struct pipeline *pipeline, uint64_t timeout_ns, int shorter);

/*
 * Removes a job from the users of the timeout with this index; workers can no longer see the job.
 * When the last user is removed, the FIFOs are freed as soon as no worker uses them. Main thread.
 */
void timers_unuse(struct pipeline *pipeline, int timeout);

/* Frees all FIFOs; the workers must have stopped. */
void timers_free(struct pipeline *pipeline);

/* Returns true if a timer has expired, or if there are too many timers. Worker. */
static inline bool
timers_are_due(const struct worker *worker)
{
	return worker->now_ns >= worker->timers_due_ns;
}

/*
 * Calls the handlers of expired timers. If a FIFO holds too many timers, its oldest ones expire
 * early. Worker, between bursts.
 */
void timers_expire(struct worker *worker);

#endif
