/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects the batches of core-bench that count. A virtual machine's core may share its execution
 * units with another machine's thread, in phases of seconds to minutes. Inside the machine only the
 * time that a fixed number of additions takes shows this: batches are calibrated with it, and
 * disturbed ones are left out. Not thread-safe.
 */
#ifndef FANIN_LAB_BENCH_CORE_BATCHES_H
#define FANIN_LAB_BENCH_CORE_BATCHES_H

#include <stdint.h>

/* TSC cycles of a batch. */
struct batch {
	uint64_t pipeline;
	uint64_t bare;        /* of the bare loop */
	uint64_t calibration; /* the slowest of those before and after each of them, on any worker's
				 core */
};

/*
 * Moves the undisturbed batches to the front: those whose calibration took at most 5 % longer than
 * the fastest.
 *
 * fastest: calibration so far, including other combinations; UINT64_MAX: none. Lowered if one of
 * the batches was faster. Returns how many batches are undisturbed.
 */
unsigned int batches_undisturbed(struct batch *batches, unsigned int n, uint64_t *fastest);

/*
 * Returns how many undisturbed batches suffice for medians, if `wanted` batches would be taken
 * without any disturbance.
 */
unsigned int batches_enough(unsigned int wanted);

/*
 * Returns the medians of the first n batches, at least one. Sorts the batches; does not set
 * calibration.
 */
struct batch batches_median(struct batch *batches, unsigned int n);

#endif
