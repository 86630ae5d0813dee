/* SPDX-License-Identifier: BSD-3-Clause */
/* As threads_pthreads_mutex.h. */
#ifndef FANIN_BINDINGS_MPI_THREADS_PTHREADS_TSD_H
#define FANIN_BINDINGS_MPI_THREADS_PTHREADS_TSD_H

#include <pthread.h>

typedef pthread_key_t opal_tsd_key_t;

#endif
