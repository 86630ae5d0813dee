/* SPDX-License-Identifier: BSD-3-Clause */
/* See timers.h: the workers' part, on no packet's way. */
#include "pipeline/timers.h"

#include "pipeline/aggregate.h"

#include "pipeline/base/fastpath.h"

/* The job of a timer, if its run still goes on. */
static struct job *
job_of(const struct worker *worker, const struct fanin_timer *timer)
{
	struct job *job = job_lookup(worker->pipeline->jobs, timer->job);

	if (job == NULL || job->timeout < 0 || job_epoch(job) != timer->epoch)
		return NULL;
	return job;
}

static void
expire(struct worker *worker, const struct fanin_timer *timer)
{
	struct job *job = job_of(worker, timer);

	worker->counters.timers++;
	if (job != NULL)
		aggregate_expired(worker, job, timer);
}

/* Timers that are armed meanwhile have their turn in later rounds: a round ends. */
static void
expire_fifo(struct worker *worker, struct fanin_timer_fifo *fifo)
{
	const uint32_t count = fanin_timer_fifo_count(fifo);
	uint32_t too_many = count > fifo->most ? count - fifo->most : 0;

	for (uint32_t n = 0; n < count; n++) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(fifo);

		if (timer.due_ns > worker->now_ns) {
			if (too_many == 0)
				break;
			worker->counters.timers_early++;
		}
		if (too_many != 0)
			too_many--;
		fifo->head++;
		expire(worker, &timer);
	}
	if (!fanin_timer_fifo_is_empty(fifo) &&
	    fanin_timer_fifo_first(fifo)->due_ns < worker->timers_due_ns)
		worker->timers_due_ns = fanin_timer_fifo_first(fifo)->due_ns;
}

void
timers_expire(struct worker *worker)
{
	worker->timers_due_ns = UINT64_MAX;
	for (unsigned int i = 0; i < PIPELINE_TIMEOUTS; i++) {
		struct fanin_timer_fifo *fifo = __atomic_load_n(&worker->timers[i], __ATOMIC_ACQUIRE);

		if (fifo != NULL)
			expire_fifo(worker, fifo);
	}
}
