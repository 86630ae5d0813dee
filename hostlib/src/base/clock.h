/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's clock. Any thread.
 */
#ifndef FANIN_HOSTLIB_CLOCK_H
#define FANIN_HOSTLIB_CLOCK_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. arg is not used: the engine's clock has one. */
uint64_t fanin_now_ns(void *arg);

#endif
