/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Included last by every file whose functions run per packet: functions that must never be called
 * there no longer compile.
 */
#ifndef FANIN_PIPELINE_FASTPATH_H
#define FANIN_PIPELINE_FASTPATH_H

#pragma GCC poison malloc calloc realloc free strdup printf fprintf snprintf rte_malloc rte_zmalloc
#pragma GCC poison rte_free pthread_mutex_lock clock_gettime gettimeofday time syslog

#endif
