/* SPDX-License-Identifier: BSD-3-Clause */
/* See timers.h: the workers' part, on no packet's way. */
#include "pipeline/timers.h"

#include "pipeline/aggregate.h"

#include "pipeline/fastpath.h"

/* Of one FIFO in one round: the others, and packets, have their turn. */
#define EXPIRE_MOST 1024

/* The job of a timer, if its run still goes on. */
static struct job *
job_of(const struct worker *worker, const struct fanin_timer *timer)
{
	struct job *job = job_lookup(worker->pipeline->jobs, timer->job);

	if (job == NULL || job->timeout < 0 ||
	    __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE) != timer->epoch)
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

static void
expire_early(struct worker *worker)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	struct fanin_timer early[FANIN_MAX_EARLY];
	const uint16_t n = ctx->n_early;

	if (n == 0)
		return;
	memcpy(early, ctx->early, n * sizeof(early[0]));
	ctx->n_early = 0;
	worker->counters.timers_early += n;
	for (uint16_t i = 0; i < n; i++)
		expire(worker, &early[i]);
}

static void
expire_fifo(struct worker *worker, struct fanin_timer_fifo *fifo)
{
	for (unsigned int n = 0; n < EXPIRE_MOST && !fanin_timer_fifo_is_empty(fifo) &&
				 fanin_timer_fifo_first(fifo)->due_ns <= worker->now_ns;
	     n++) {
		const struct fanin_timer timer = *fanin_timer_fifo_first(fifo);

		fifo->head++;
		expire(worker, &timer);
		expire_early(worker);
	}
	if (!fanin_timer_fifo_is_empty(fifo) &&
	    fanin_timer_fifo_first(fifo)->due_ns < worker->timers_due_ns)
		worker->timers_due_ns = fanin_timer_fifo_first(fifo)->due_ns;
}

void
timers_expire(struct worker *worker)
{
	worker->timers_due_ns = UINT64_MAX;
	expire_early(worker);
	for (unsigned int i = 0; i < PIPELINE_TIMEOUTS; i++) {
		struct fanin_timer_fifo *fifo = __atomic_load_n(&worker->timers[i], __ATOMIC_ACQUIRE);

		if (fifo != NULL)
			expire_fifo(worker, fifo);
	}
}
