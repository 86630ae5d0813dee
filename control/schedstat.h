/* SPDX-License-Identifier: BSD-3-Clause */
/* Scheduler statistics of a thread of this process. Any thread. */
#ifndef FANIN_CONTROL_SCHEDSTAT_H
#define FANIN_CONTROL_SCHEDSTAT_H

#include <stdint.h>
#include <sys/types.h>

/* Since the thread began. */
struct schedstat {
	uint64_t run_ns;  /* time on a core; for a running thread as of its last tick */
	uint64_t wait_ns; /* time runnable while others had the core */
	uint64_t slices;  /* number of times that it got a core */
};

/*
 * Reads /proc/self/task/THREAD/schedstat.
 *
 * stat: set on success only. Returns 0, or -errno: -ENOENT if there is no such thread, or not any
 * more; -ENODATA if the kernel does not count.
 */
int schedstat_read(pid_t thread, struct schedstat *stat);

#endif
