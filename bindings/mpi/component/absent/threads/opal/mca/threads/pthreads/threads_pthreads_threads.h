/* SPDX-License-Identifier: BSD-3-Clause */
/* As threads_pthreads_mutex.h. */
#ifndef FANIN_BINDINGS_MPI_THREADS_PTHREADS_THREADS_H
#define FANIN_BINDINGS_MPI_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <opal/mca/threads/threads.h>

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

static inline void
opal_thread_yield(void)
{
	sched_yield();
}

#endif
