/* SPDX-License-Identifier: BSD-3-Clause */
/* The monotonic clock for deadlines. Any thread. */
#ifndef FANIN_CONTROL_CLOCK_H
#define FANIN_CONTROL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns milliseconds since an arbitrary start. */
static inline uint64_t
clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
