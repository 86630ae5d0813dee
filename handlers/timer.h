/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of handlers. All jobs with the same timeout share a FIFO on each worker: the timeout is
 * constant, so the FIFO is sorted by when its timers expire. To arm one is to append to it. Nothing
 * is ever cancelled: a timer is a value that says what it was armed for, and whoever gets it back
 * looks whether that is still so.
 *
 * One thread at a time: a worker's FIFOs are its own.
 */
#ifndef FANIN_HANDLERS_TIMER_H
#define FANIN_HANDLERS_TIMER_H

#include <stdbool.h>
#include <stdint.h>

/* A job whose waits differ has FIFOs that are each so many times as long as the one before. */
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
	 * That of FANIN_TIMER_STEP times the timeout; NULL: there is none. Control: w (release),
	 * worker: r (acquire).
	 */
	struct fanin_timer_fifo *longer;
	uint64_t *earliest_ns; /* of all FIFOs of the worker: when the first timer expires;
				  UINT64_MAX: there is none */
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

/* The FIFO with the longest timeout up to this one; at least the one that is given. */
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
 * Makes room for a timer, which the caller fills in at once and which expires not before those that
 * are there. Beyond `most` the FIFO is due at once.
 *
 * due_ns: of the timer. Returns NULL if there is no room for it at all.
 */
static inline struct fanin_timer *
fanin_timer_fifo_append(struct fanin_timer_fifo *fifo, uint64_t due_ns)
{
	const uint32_t count = fanin_timer_fifo_count(fifo);

	/* `most` is below the mask, so that one comparison is enough mostly. */
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
