/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Common part of f16 and bf16. Minimum and maximum compare their bits as integers: no conversion,
 * twice the elements per vector. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_HALF_H
#define FANIN_HANDLERS_KERNELS_HALF_H

#include <stdbool.h>
#include <string.h>

#include "handlers/kernels/loop.h"

typedef uint16_t any_half ANY_ADDRESS;
typedef float any_single ANY_ADDRESS;

/*
 * Maps the numbers to int16_t in their order: with the bits behind the sign inverted, negative
 * numbers count down, and -0 becomes -1. Applying the function twice gives the number back.
 */
static inline int16_t
half_order(int16_t bits)
{
	return (int16_t)(bits ^ (bits >> 15 & 0x7fff));
}

/* Return the order of the lesser or the greater number. */
static inline int16_t
half_lesser(int16_t x, int16_t y)
{
	return half_order(x) < half_order(y) ? half_order(x) : half_order(y);
}

static inline int16_t
half_greater(int16_t x, int16_t y)
{
	return half_order(x) > half_order(y) ? half_order(x) : half_order(y);
}

static inline int16_t
half_magnitude(int16_t bits)
{
	return (int16_t)(bits & 0x7fff);
}

/*
 * Returns canonical_nan if x or y is a NaN: its magnitude is above infinity's. Otherwise returns
 * the number of this order.
 */
static inline int16_t
half_or_nan(int16_t x, int16_t y, int16_t order, int16_t infinity, int16_t canonical_nan)
{
	bool is_nan = half_magnitude(x) > infinity || half_magnitude(y) > infinity;

	return is_nan ? canonical_nan : half_order(order);
}

/* Elements that are converted at a time. */
#define WIDE_CHUNK 128

/*
 * Defines wide_NAME_widen and wide_NAME_narrow, which work in place, from convert_NAME_widen and
 * _narrow, loops over vectors that must not overlap: each chunk is copied aside. Widening begins
 * with the last element and narrowing with the first one, so that only elements that were already
 * read are overwritten.
 */
#define WIDE_IN_PLACE(name)                                                                        \
	static void wide_##name##_widen(void *acc, const void *in, size_t count)                   \
	{                                                                                          \
		uint16_t chunk[WIDE_CHUNK];                                                        \
		size_t n = count % WIDE_CHUNK;                                                     \
                                                                                                   \
		for (size_t end = count; end != 0; n = WIDE_CHUNK) {                               \
			end -= n;                                                                  \
			memcpy(chunk, (const any_half *)in + end, n * sizeof(*chunk));             \
			convert_##name##_widen((any_single *)acc + end, chunk, n);                 \
		}                                                                                  \
	}                                                                                          \
	static void wide_##name##_narrow(void *out, const void *acc, size_t count)                 \
	{                                                                                          \
		uint16_t chunk[WIDE_CHUNK];                                                        \
		size_t n = WIDE_CHUNK;                                                             \
                                                                                                   \
		for (size_t start = 0; start < count; start += n) {                                \
			n = count - start < WIDE_CHUNK ? count - start : WIDE_CHUNK;               \
			convert_##name##_narrow(chunk, (const any_single *)acc + start, n);        \
			memcpy((any_half *)out + start, chunk, n * sizeof(*chunk));                \
		}                                                                                  \
	}

#endif
