/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Debian's package of Open MPI 5.0 lacks the headers of the threads that it was built with, POSIX
 * threads, which its other headers include. These have what the other headers use.
 */
#ifndef FANIN_BINDINGS_MPI_THREADS_PTHREADS_MUTEX_H
#define FANIN_BINDINGS_MPI_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

#include <opal/constants.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_RECURSIVE_MUTEX_INITIALIZER PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

/* Of mutexes that are not recursive. */
#define opal_thread_internal_mutex_init(mutex, recursive) ((void)pthread_mutex_init(mutex, NULL))
#define opal_thread_internal_mutex_lock(mutex) ((void)pthread_mutex_lock(mutex))
#define opal_thread_internal_mutex_unlock(mutex) ((void)pthread_mutex_unlock(mutex))
#define opal_thread_internal_mutex_trylock(mutex) (pthread_mutex_trylock(mutex) != 0)
#define opal_thread_internal_mutex_destroy(mutex) ((void)pthread_mutex_destroy(mutex))
#define opal_thread_internal_cond_init(cond) ((void)pthread_cond_init(cond, NULL))
#define opal_thread_internal_cond_destroy(cond) ((void)pthread_cond_destroy(cond))
#define opal_thread_internal_cond_wait(cond, mutex) ((void)pthread_cond_wait(cond, mutex))
#define opal_thread_internal_cond_signal(cond) ((void)pthread_cond_signal(cond))
#define opal_thread_internal_cond_broadcast(cond) ((void)pthread_cond_broadcast(cond))

#endif
