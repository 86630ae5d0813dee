/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of f32 and f64. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_FLOAT_H
#define FANIN_HANDLERS_KERNELS_FLOAT_H

#include <string.h>

#include "handlers/kernels/loop.h"

#define BIT_CASTS(name, type, bits_type)                                                           \
	static inline bits_type name##_bits(type value)                                            \
	{                                                                                          \
		bits_type bits;                                                                    \
                                                                                                   \
		memcpy(&bits, &value, sizeof(bits));                                               \
		return bits;                                                                       \
	}                                                                                          \
	static inline type name##_from_bits(bits_type bits)                                        \
	{                                                                                          \
		type value;                                                                        \
                                                                                                   \
		memcpy(&value, &bits, sizeof(value));                                              \
		return value;                                                                      \
	}

/*
 * IEEE 754-2019 minimum and maximum. Each comparison is the CPU's own minimum instruction, which
 * returns its second operand if both are equal. Equal numbers have the same bits, except for the
 * two zeros: for these, "or" gives -0, the minimum, and "and" gives +0, the maximum.
 */
#define FLOAT_COMBINE_KERNELS(name, type, bits_type, canonical_nan)                                \
	BIT_CASTS(name, type, bits_type)                                                           \
	static inline type name##_or_nan(type x, type y, bits_type bits)                           \
	{                                                                                          \
		return name##_from_bits(__builtin_isunordered(x, y) ? (canonical_nan) : bits);     \
	}                                                                                          \
	COMBINE_LOOP(name##_sum, type, x + y)                                                      \
	COMBINE_LOOP(name##_prod, type, (x) * (y))                                                 \
	COMBINE_LOOP(name##_min, type,                                                             \
		     name##_or_nan(x, y, name##_bits(x < y ? x : y) | name##_bits(y < x ? y : x))) \
	COMBINE_LOOP(name##_max, type,                                                             \
		     name##_or_nan(x, y, name##_bits(x > y ? x : y) & name##_bits(y > x ? y : x)))

FLOAT_COMBINE_KERNELS(f32, float, uint32_t, 0x7fc00000)
FLOAT_COMBINE_KERNELS(f64, double, uint64_t, 0x7ff8000000000000)
FINISH_LOOP(f32_avg, float, float, x / n)
FINISH_LOOP(f64_avg, double, double, x / n)

#endif
