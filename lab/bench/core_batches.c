/* SPDX-License-Identifier: BSD-3-Clause */
/* See core_batches.h. */
#include "lab/bench/core_batches.h"

#include <stdlib.h>

#include <rte_common.h>

/*
 * Measured on the reference machine: undisturbed calibrations lie within 3 %, others begin at 8 %
 * above the fastest.
 */
#define TOLERANCE_PERCENT 5

unsigned int
batches_undisturbed(struct batch *batches, unsigned int n, uint64_t *fastest)
{
	unsigned int undisturbed = 0;

	for (unsigned int i = 0; i < n; i++)
		*fastest = RTE_MIN(*fastest, batches[i].calibration);
	for (unsigned int i = 0; i < n; i++) {
		if ((batches[i].calibration - *fastest) * 100 <= *fastest * TOLERANCE_PERCENT) {
			struct batch batch = batches[i];

			batches[i] = batches[undisturbed];
			batches[undisturbed++] = batch;
		}
	}
	return undisturbed;
}

unsigned int
batches_enough(unsigned int wanted)
{
	return RTE_MIN(wanted, RTE_MAX(wanted / 4, 50u));
}

static int
compare(uint64_t left, uint64_t right)
{
	return (left > right) - (left < right);
}

static int
compare_pipeline(const void *left, const void *right)
{
	return compare(((const struct batch *)left)->pipeline,
		       ((const struct batch *)right)->pipeline);
}

static int
compare_bare(const void *left, const void *right)
{
	return compare(((const struct batch *)left)->bare, ((const struct batch *)right)->bare);
}

struct batch
batches_median(struct batch *batches, unsigned int n)
{
	struct batch median = { 0 };

	qsort(batches, n, sizeof(*batches), compare_pipeline);
	median.pipeline = batches[n / 2].pipeline;
	qsort(batches, n, sizeof(*batches), compare_bare);
	median.bare = batches[n / 2].bare;
	return median;
}
