/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A histogram of times in logarithmic buckets: exact up to 32 ns, above that 32 buckets for each
 * doubling, so that a percentile is at most 1/32 (3.1 %) above the true one.
 */
#ifndef FANIN_TOOLS_MEASURE_HISTOGRAM_H
#define FANIN_TOOLS_MEASURE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 5
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS];
	uint64_t n;
	uint64_t max_ns;
};

static inline unsigned int
histogram_index(uint64_t ns)
{
	unsigned int shift;

	if (ns >> HISTOGRAM_SUB_BITS == 0)
		return (unsigned int)ns;
	shift = 63 - HISTOGRAM_SUB_BITS - (unsigned int)__builtin_clzll(ns);
	return (shift << HISTOGRAM_SUB_BITS) + (unsigned int)(ns >> shift);
}

static inline void
histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->counts[histogram_index(ns)]++;
	histogram->n++;
	if (ns > histogram->max_ns)
		histogram->max_ns = ns;
}

/*
 * Returns the largest time of the percentile's bucket, or the largest time of all if that is less.
 *
 * percent: 0 to 100. Returns nanoseconds; 0 if nothing was added.
 */
uint64_t histogram_percentile(const struct histogram *histogram, double percent);

#endif
