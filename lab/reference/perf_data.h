/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of fanin-perf send, and what must come back, computed here without the switch.
 * Every rank can tell every other's data from the seed. The data are such that the result is exact
 * in any order of the ranks: each bit counts.
 *
 * Integers take any value. Floating-point sums are of integers that are small enough for every
 * partial sum to be exact, products of ones, twos and halves with either sign. Custom operators:
 * perf_custom.h. Data whose sum does depend on the order: perf_random.h.
 *
 * Where sums and averages of f16 and bf16 are accumulated in f32, partial sums are exact in f32 but
 * not in the type, so that native accumulation, which rounds each of them, gives other bits
 * somewhere: with three ranks or more, and for averages of f16 with two, whose sum f16 can't hold.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_DATA_H
#define FANIN_LAB_REFERENCE_PERF_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include <fanin/fanin.h>

struct perf_data {
	enum fanin_dtype dtype;
	enum fanin_op op; /* one that is defined on dtype */
	uint32_t seed;
	uint16_t size; /* ranks, 1 to 64 */
	bool wide;     /* the job accumulates in f32 what perf_data_widens names */
	bool random;   /* of perf_random.h, which has to support dtype and op */
};

/* True for sums and averages of f16 and bf16. */
bool perf_data_widens(enum fanin_dtype dtype, enum fanin_op op);

/*
 * Elements first to first + n - 1 of what a rank sends in an iteration.
 *
 * elements: n elements of the data type, aligned to their size.
 */
void perf_data_fill(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
		    uint64_t n, void *elements);

/* The same elements of the result. */
void perf_data_expect(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		      void *elements);

/* Well mixed bits for an element; the same for the same arguments on every host. */
uint32_t perf_data_random(const struct perf_data *data, uint16_t rank, uint64_t iteration,
			  uint64_t index);

/*
 * The same in two steps, for many elements of a rank: perf_data_mix(perf_data_stream(data, rank,
 * iteration), index).
 */
uint32_t perf_data_stream(const struct perf_data *data, uint16_t rank, uint64_t iteration);
uint32_t perf_data_mix(uint32_t stream, uint64_t index);

#endif
