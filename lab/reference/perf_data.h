/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data that the ranks of fanin-perf send, and the expected results, computed here without the
 * switch. Every rank can compute every other's data from the seed. The data are such that the
 * result is exact in any order of the ranks, so every bit must be equal.
 *
 * Integers take any value. Floating-point sums are of integers that are small enough for every
 * partial sum to be exact, products of ones, twos and halves with either sign. Custom operators:
 * perf_custom.h. Data whose sum depends on the order: perf_random.h.
 *
 * If sums and averages of f16 and bf16 are accumulated in f32, partial sums are exact in f32 but
 * not in the type. So native accumulation, which rounds each partial sum, gives other bits
 * somewhere: with three ranks or more, and for averages of f16 with two, whose sum f16 can't
 * represent.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_DATA_H
#define FANIN_LAB_REFERENCE_PERF_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include <fanin/fanin.h>

struct perf_data {
	enum fanin_dtype dtype;
	enum fanin_op op; /* an operator defined on dtype */
	uint32_t seed;
	uint16_t size; /* ranks, 1 to 64 */
	bool wide;     /* the job accumulates in f32, for the pairs of perf_data_widens */
	bool random;   /* data of perf_random.h, which has to support dtype and op */
};

/* True for sums and averages of f16 and bf16. */
bool perf_data_widens(enum fanin_dtype dtype, enum fanin_op op);

/*
 * Writes elements first to first + n - 1 of the data that a rank sends in an iteration.
 *
 * elements: n elements of the data type, aligned to their size.
 */
void perf_data_fill(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
		    uint64_t n, void *elements);

/* Writes the same elements of the result. */
void perf_data_expect(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		      void *elements);

/* Returns well mixed bits for an element; the same for the same arguments on every host. */
uint32_t perf_data_random(const struct perf_data *data, uint16_t rank, uint64_t iteration,
			  uint64_t index);

/*
 * Returns the same bits in two steps, for many elements of a rank:
 * perf_data_mix(perf_data_stream(data, rank, iteration), index).
 */
uint32_t perf_data_stream(const struct perf_data *data, uint16_t rank, uint64_t iteration);
uint32_t perf_data_mix(uint32_t stream, uint64_t index);

#endif
