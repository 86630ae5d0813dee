/* SPDX-License-Identifier: BSD-3-Clause */
/* See histogram.h. */
#include "tools/measure/histogram.h"

/* Returns the least time above the bucket. */
static uint64_t
bucket_end(unsigned int index)
{
	const unsigned int sub = 1u << HISTOGRAM_SUB_BITS;
	unsigned int shift;

	if (index < sub)
		return index + 1;
	shift = index / sub - 1;
	return (uint64_t)(index % sub + sub + 1) << shift;
}

uint64_t
histogram_percentile(const struct histogram *histogram, double percent)
{
	const double wanted = (double)histogram->n * percent / 100;
	uint64_t sum = 0;

	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		sum += histogram->counts[i];
		if (histogram->counts[i] != 0 && (double)sum >= wanted) {
			uint64_t last = bucket_end(i) - 1;

			return last < histogram->max_ns ? last : histogram->max_ns;
		}
	}
	return histogram->max_ns;
}
