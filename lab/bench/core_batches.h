/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of core-bench's batches count. A virtual machine's core may share its execution units with
 * somebody else's thread, in phases of seconds to minutes, which nothing inside of the machine
 * tells but the time that a fixed number of additions takes: batches are calibrated with it, and
 * those that were disturbed are left out. Not thread-safe.
 */
#ifndef FANIN_LAB_BENCH_CORE_BATCHES_H
#define FANIN_LAB_BENCH_CORE_BATCHES_H

#include <stdint.h>

/* Of a batch, TSC cycles. */
struct batch {
	uint64_t pipeline;
	uint64_t bare;        /* of the bare loop */
	uint64_t calibration; /* the slowest before and after each of them, on any of the workers'
				 cores */
};

/*
 * Brings the undisturbed batches to the front: those whose calibration took at most 5 % longer than
 * the fastest.
 *
 * fastest: calibration so far, of other combinations too; UINT64_MAX: none. Lowered if one of the
 * batches was faster. Returns how many batches are undisturbed.
 */
unsigned int batches_undisturbed(struct batch *batches, unsigned int n, uint64_t *fastest);

/*
 * How many undisturbed batches are enough for medians, if `wanted` batches would be without any
 * disturbance.
 */
unsigned int batches_enough(unsigned int wanted);

/* The medians of the first n batches, at least one. It sorts them; calibration is not set. */
struct batch batches_median(struct batch *batches, unsigned int n);

#endif
