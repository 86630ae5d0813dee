/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Minimum and maximum of 16-bit floating-point formats, on their bits as integers: no conversion, twice the elements per
 * vector. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_HALF_H
#define FANIN_HANDLERS_KERNELS_HALF_H

#include <stdbool.h>

#include "handlers/kernels/loop.h"

typedef uint16_t any_half ANY_ADDRESS;

/*
 * The order of the numbers as int16_t: with the bits behind the sign turned around, negative numbers count down, and
 * -0 becomes -1. Doing it twice gives the number back.
 */
static inline int16_t
half_order(int16_t bits)
{
	return (int16_t)(bits ^ (bits >> 15 & 0x7fff));
}

/* The order of the lesser or the greater one. */
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

/* What is greater than infinity is no number. */
static inline int16_t
half_or_nan(int16_t x, int16_t y, int16_t order, int16_t infinity, int16_t canonical_nan)
{
	bool is_nan = half_magnitude(x) > infinity || half_magnitude(y) > infinity;

	return is_nan ? canonical_nan : half_order(order);
}

#endif
