/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers. All jobs with the same timeout share a FIFO on each worker: the timeout is constant, so the FIFO is sorted by
 * when its timers expire. To arm one is to append to it. Nothing is ever cancelled: a timer is a value that says what it was armed
 * for, and whoever gets it back looks whether that is still so.
 *
 * One thread at a time: a worker's FIFOs are its own.
 */
#ifndef FANIN_HANDLERS_TIMER_H
#define FANIN_HANDLERS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct fanin_timer {
	uint64_t due_ns;
	uint32_t job;
	uint32_t epoch; /* run of the job, unique among all jobs of the switch */
	uint32_t index; /* of the slot */
	uint32_t block;
};

struct fanin_timer_fifo {
	uint64_t timeout_ns;
	uint64_t *earliest_ns; /* of all FIFOs of the worker: when the first timer expires; UINT64_MAX: there is none */
	uint32_t head; /* serial numbers of the first timer and of the one behind the last */
	uint32_t tail;
	uint32_t mask; /* of serial numbers: the index in timers */
	struct fanin_timer timers[];
};

static inline bool
fanin_timer_fifo_is_empty(const struct fanin_timer_fifo *fifo)
{
	return fifo->head == fifo->tail;
}

static inline bool
fanin_timer_fifo_is_full(const struct fanin_timer_fifo *fifo)
{
	return fifo->tail - fifo->head > fifo->mask;
}

/* The first timer; there is one. */
static inline const struct fanin_timer *
fanin_timer_fifo_first(const struct fanin_timer_fifo *fifo)
{
	return &fifo->timers[fifo->head & fifo->mask];
}

/* Appends a timer, which expires not before those that are there. The FIFO is not full. */
static inline void
fanin_timer_fifo_append(struct fanin_timer_fifo *fifo, const struct fanin_timer *timer)
{
	fifo->timers[fifo->tail++ & fifo->mask] = *timer;
	if (timer->due_ns < *fifo->earliest_ns)
		*fifo->earliest_ns = timer->due_ns;
}

#endif
