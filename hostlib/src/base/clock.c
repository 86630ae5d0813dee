/* SPDX-License-Identifier: BSD-3-Clause */
/* See clock.h. */
#include "clock.h"

#include <time.h>

uint64_t
fanin_now_ns(void *arg)
{
	struct timespec now;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
