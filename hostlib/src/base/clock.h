/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's clock. Any thread.
 */
#ifndef FANIN_HOSTLIB_CLOCK_H
#define FANIN_HOSTLIB_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Returns nanoseconds of the monotonic clock. arg is unused; struct fanin_clock needs it. */
uint64_t fanin_now_ns(void *arg);

/* The clock of a protocol: the monotonic one, or a simulated one. It never goes back. */
struct fanin_clock {
	uint64_t (*now_ns)(void *arg);
	void *arg;
};

/* now_ns: NULL for the monotonic clock. */
static inline struct fanin_clock
fanin_clock_of(uint64_t (*now_ns)(void *arg), void *arg)
{
	return (struct fanin_clock){ now_ns != NULL ? now_ns : fanin_now_ns, arg };
}

static inline uint64_t
fanin_clock_read(const struct fanin_clock *clock)
{
	return clock->now_ns(clock->arg);
}

#endif
