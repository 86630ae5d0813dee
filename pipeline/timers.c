/* SPDX-License-Identifier: BSD-3-Clause */
/* The workers' part of timers.h. No packet waits for it. */
#include "pipeline/timers.h"

#include "pipeline/aggregate.h"
#include "pipeline/emission.h"

#include "pipeline/base/fastpath.h"

/* The run in which the current timers were armed. */
struct armed_in {
	uint32_t id; /* 0: not looked up yet */
	uint32_t epoch;
	const struct job *job; /* NULL: the run is over */
};

static void __rte_noinline
look_up(struct worker *worker, const struct fanin_timer *timer, struct armed_in *armed_in)
{
	const struct job *job = job_lookup(worker->pipeline->jobs, timer->job);

	if (job != NULL &&
	    (job->timeout < 0 || !aggregate_select_expired(worker, job, timer->epoch)))
		job = NULL;
	*armed_in = (struct armed_in){ .id = timer->job, .epoch = timer->epoch, .job = job };
}

/*
 * Timers that are armed during this call wait for a later round, so that a round ends. Consecutive
 * timers mostly belong to one run. The run is therefore looked up once for all of them, as for a
 * burst's packets, and their emissions are carried out together: 110 instructions per timer, arming
 * included, instead of 186.
 */
static void
expire_fifo(struct worker *worker, struct fanin_timer_fifo *fifo)
{
	const uint32_t count = fanin_timer_fifo_count(fifo);
	uint32_t too_many = count > fifo->most ? count - fifo->most : 0;
	struct armed_in armed_in = { 0 };
	uint32_t n;

	for (n = 0; n < count; n++) {
		const struct fanin_timer *timer = fanin_timer_fifo_first(fifo);
		const uint32_t index = timer->index, block = timer->block;

		if (timer->due_ns > worker->now_ns) {
			if (too_many == 0)
				break;
			worker->counters.timers_early++;
		}
		if (unlikely(too_many != 0))
			too_many--;
		if (unlikely(timer->job != armed_in.id || timer->epoch != armed_in.epoch))
			look_up(worker, timer, &armed_in);
		/* From here on another timer may be written to this place. */
		fifo->head++;
		if (likely(armed_in.job != NULL))
			aggregate_call_expired(worker, armed_in.job, index, block);
	}
	worker->counters.timers += n;
	emission_drain(worker);
	if (!fanin_timer_fifo_is_empty(fifo) &&
	    fanin_timer_fifo_first(fifo)->due_ns < worker->timers_due_ns)
		worker->timers_due_ns = fanin_timer_fifo_first(fifo)->due_ns;
}

void
timers_expire(struct worker *worker)
{
	const uint32_t end = __atomic_load_n(&worker->pipeline->timeouts_end, __ATOMIC_RELAXED);

	worker->timers_due_ns = UINT64_MAX;
	for (unsigned int i = 0; i < end; i++) {
		struct fanin_timer_fifo *fifo = __atomic_load_n(&worker->timers[i],
								__ATOMIC_ACQUIRE);

		if (fifo != NULL)
			expire_fifo(worker, fifo);
	}
}
