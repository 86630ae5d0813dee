/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of the integer types. Sums and products wrap modulo 2^n. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_INTEGER_H
#define FANIN_HANDLERS_KERNELS_INTEGER_H

#include "handlers/kernels/loop.h"

/*
 * wide: the unsigned type for computation, of at least 32 bits: signed overflow is undefined, also
 * in a product of two uint16_t, which multiply as int.
 *
 * quotient: the type for the division of averages, which holds every element. CPUs divide vectors
 * of floating-point numbers only. The rounded floating-point quotient, truncated, is the integer
 * quotient: a true quotient that is not an integer is at least 1/n below the next integer. This is
 * more than half the distance of two floating-point numbers there, as long as the elements are
 * below 2^24 in f32, 2^53 in f64.
 */
#define INTEGER_KERNELS(name, type, wide, quotient)                                                \
	COMBINE_LOOP(name##_sum, type, (wide)x + (wide)y)                                          \
	COMBINE_LOOP(name##_prod, type, (wide)1 * x * y)                                           \
	COMBINE_LOOP(name##_min, type, x < y ? x : y)                                              \
	COMBINE_LOOP(name##_max, type, x > y ? x : y)                                              \
	COMBINE_LOOP(name##_land, type, (x != 0) & (y != 0))                                       \
	COMBINE_LOOP(name##_lor, type, (x | y) != 0)                                               \
	COMBINE_LOOP(name##_lxor, type, (x != 0) ^ (y != 0))                                       \
	COMBINE_LOOP(name##_band, type, (x) & (y))                                                 \
	COMBINE_LOOP(name##_bor, type, x | y)                                                      \
	COMBINE_LOOP(name##_bxor, type, x ^ y)                                                     \
	FINISH_LOOP(name##_avg, type, quotient, (quotient)x / n)

INTEGER_KERNELS(i8, int8_t, uint32_t, float)
INTEGER_KERNELS(i16, int16_t, uint32_t, float)
INTEGER_KERNELS(i32, int32_t, uint32_t, double)
INTEGER_KERNELS(i64, int64_t, uint64_t, int64_t)
INTEGER_KERNELS(u8, uint8_t, uint32_t, float)
INTEGER_KERNELS(u16, uint16_t, uint32_t, float)
INTEGER_KERNELS(u32, uint32_t, uint32_t, double)
INTEGER_KERNELS(u64, uint64_t, uint64_t, uint64_t)

#endif
