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
	uint32_t most; /* timers that may stay; of those beyond, the first ones expire early */
	uint32_t mask; /* of serial numbers: the index in timers */
	struct fanin_timer timers[];
};

static inline bool
fanin_timer_fifo_is_empty(const struct fanin_timer_fifo *fifo)
{
	return fifo->head == fifo->tail;
}

/* How many timers there are. */
static inline uint32_t
fanin_timer_fifo_count(const struct fanin_timer_fifo *fifo)
{
	return fifo->tail - fifo->head;
}

/* The first timer; there is one. */
static inline const struct fanin_timer *
fanin_timer_fifo_first(const struct fanin_timer_fifo *fifo)
{
	return &fifo->timers[fifo->head & fifo->mask];
}

/*
 * Appends a timer, which expires not before those that are there. Beyond `most` it makes the FIFO due at once.
 *
 * Returns false if there is no room for it at all.
 */
static inline bool
fanin_timer_fifo_append(struct fanin_timer_fifo *fifo, const struct fanin_timer *timer)
{
	uint64_t due_ns = timer->due_ns;

	if (__builtin_expect(fanin_timer_fifo_count(fifo) > fifo->mask, 0))
		return false;
	fifo->timers[fifo->tail++ & fifo->mask] = *timer;
	if (__builtin_expect(fanin_timer_fifo_count(fifo) > fifo->most, 0))
		due_ns = 0;
	if (due_ns < *fifo->earliest_ns)
		*fifo->earliest_ns = due_ns;
	return true;
}

#endif
