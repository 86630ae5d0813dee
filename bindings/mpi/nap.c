/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits of a thread that looks again and again. */
#include "core.h"

#include <sched.h>
#include <time.h>

/* Looks before a thread naps, and the length of its naps, which grows. */
#define QUIET_LOOKS 50
#define SHORTEST_NAP_NS 20000
#define LONGEST_NAP_NS 1000000

void
thread_nap(unsigned int looks)
{
	struct timespec time = { .tv_nsec = SHORTEST_NAP_NS };

	if (looks < QUIET_LOOKS) {
		sched_yield();
		return;
	}
	for (; looks > QUIET_LOOKS && time.tv_nsec < LONGEST_NAP_NS; looks -= QUIET_LOOKS / 2)
		time.tv_nsec += time.tv_nsec / 2;
	nanosleep(&time, NULL);
}
