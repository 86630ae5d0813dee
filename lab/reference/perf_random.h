/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data of fanin-perf whose sum depends on the order of the ranks: pseudo-random floating-point
 * numbers of very different sizes. Their reference is the sum in the order that docs/operators.md
 * defines, which reproducible jobs use on any network.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_RANDOM_H
#define FANIN_LAB_REFERENCE_PERF_RANDOM_H

#include <stdbool.h>

#include "lab/reference/perf_data.h"

#define PERF_RANDOM_MAX 2048

/* True if there is random data for it: sums of floating-point numbers. */
bool perf_random_supports(enum fanin_dtype dtype, enum fanin_op op);

/*
 * Writes elements first to first + n - 1 of the supported data that a rank sends in an iteration.
 * Each is a number of its own that the data type represents, and never zero.
 */
void perf_random_values(const struct perf_data *data, uint16_t rank, uint64_t iteration,
			uint64_t first, uint64_t n, double *values);

/*
 * Writes the same elements of the sum in the defined order. They are rounded to the data type after
 * every addition; if the job accumulates in f32, to f32 after every addition and once to the data
 * type.
 *
 * n: at most PERF_RANDOM_MAX.
 */
void perf_random_sum(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		     double *sum);

#endif
