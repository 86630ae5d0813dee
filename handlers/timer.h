/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers. All jobs with the same timeout share a FIFO on each worker: the timeout is
 * constant, so the FIFO is sorted by expiry. Arming a timer appends it to the FIFO. Timers are
 * never cancelled: a timer names the block that it was armed for, and on expiry the handler checks
 * if the slot still holds that block.
 *
 * One thread at a time: a worker's FIFOs are its own.
 */
#ifndef FANIN_HANDLERS_TIMER_H
#define FANIN_HANDLERS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A job with different waits has several FIFOs; each one's timeout is this many times the previous
 * one's.
 */
#define FANIN_TIMER_STEP 4u

struct fanin_timer {
	uint64_t due_ns;
	uint32_t job;
	uint32_t epoch; /* run of the job, unique among all jobs of the switch */
	uint32_t index; /* of the slot */
	uint32_t block;
};

struct fanin_timer_fifo {
	uint64_t timeout_ns;
	/*
	 * The FIFO with FANIN_TIMER_STEP times the timeout; NULL: there is none. Control: w
	 * (release), worker: r (acquire).
	 */
	struct fanin_timer_fifo *longer;
	uint64_t *earliest_ns; /* earliest expiry in all FIFOs of the worker; UINT64_MAX: there is
				  no timer */
	uint32_t head; /* serial number of the first timer; tail: the one after the last timer's */
	uint32_t tail;
	uint32_t most; /* timers that may stay; if there are more, the first ones expire early */
	uint32_t mask; /* serial number & mask: the index in timers */
	struct fanin_timer timers[];
};

static inline bool
fanin_timer_fifo_is_empty(const struct fanin_timer_fifo *fifo)
{
	return fifo->head == fifo->tail;
}

/* Returns the number of timers. */
static inline uint32_t
fanin_timer_fifo_count(const struct fanin_timer_fifo *fifo)
{
	return fifo->tail - fifo->head;
}

/* Returns the first timer. The FIFO must not be empty. */
static inline const struct fanin_timer *
fanin_timer_fifo_first(const struct fanin_timer_fifo *fifo)
{
	return &fifo->timers[fifo->head & fifo->mask];
}

/* Returns the FIFO with the longest timeout up to timeout_ns; at least the given FIFO. */
static inline struct fanin_timer_fifo *
fanin_timer_fifo_within(struct fanin_timer_fifo *fifo, uint64_t timeout_ns)
{
	for (struct fanin_timer_fifo *longer = fifo;
	     longer != NULL && longer->timeout_ns <= timeout_ns;
	     longer = __atomic_load_n(&longer->longer, __ATOMIC_ACQUIRE))
		fifo = longer;
	return fifo;
}

/*
 * Appends a timer, which the caller fills in at once and which must not expire before the timers in
 * the FIFO. With more than `most` timers the FIFO is due at once.
 *
 * due_ns: the timer's expiry. Returns NULL if the FIFO is full.
 */
static inline struct fanin_timer *
fanin_timer_fifo_append(struct fanin_timer_fifo *fifo, uint64_t due_ns)
{
	const uint32_t count = fanin_timer_fifo_count(fifo);

	/* `most` is less than the mask, so one comparison usually suffices. */
	if (__builtin_expect(count >= fifo->most, 0)) {
		if (count > fifo->mask)
			return NULL;
		due_ns = 0;
	}
	if (due_ns < *fifo->earliest_ns)
		*fifo->earliest_ns = due_ns;
	return &fifo->timers[fifo->tail++ & fifo->mask];
}

#endif
