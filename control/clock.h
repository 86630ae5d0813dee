/* SPDX-License-Identifier: BSD-3-Clause */
/* The monotonic clock, for deadlines and durations. Any thread. */
#ifndef FANIN_CONTROL_CLOCK_H
#define FANIN_CONTROL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns nanoseconds since an arbitrary start. */
static inline uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns milliseconds since the same start. */
static inline uint64_t
clock_ms(void)
{
	return clock_ns() / 1000000;
}

#endif
