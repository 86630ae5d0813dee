/* SPDX-License-Identifier: BSD-3-Clause */
/* Times and intervals in nanoseconds. */
#ifndef FANIN_HOSTLIB_TIMES_H
#define FANIN_HOSTLIB_TIMES_H

#include <stdint.h>

static inline uint64_t
fanin_earlier(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

static inline uint64_t
fanin_later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

/* Returns the interval after one of `ns`: twice as long, with a bound. */
static inline uint64_t
fanin_doubled(uint64_t ns, uint64_t max_ns)
{
	return fanin_earlier(2 * ns, max_ns);
}

#endif
