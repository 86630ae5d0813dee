/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of f16. Elements are combined in f32 and rounded to nearest even after every combination,
 * by CPU instructions if these exist. AVX512-FP16 computes in f16 itself. The results are the same,
 * because f32 has at least two more digits than twice those of f16: rounding a sum, a product or a
 * quotient twice then equals rounding it once. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_F16_H
#define FANIN_HANDLERS_KERNELS_F16_H

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "handlers/kernels/float.h"
#include "handlers/kernels/half.h"
#include "handlers/kernels/loop.h"

#define F16_DENORMAL_UNIT 0x1p-24f
#define F16_MIN_NORMAL 0x1p-14f
#define F16_MIN_TOO_LARGE 0x1p16f
#define F16_REBIAS ((127 - 15) << 23)

/*
 * Converts like the CPUs' instruction: a NaN becomes quiet and keeps its payload. The difference of
 * the two exponent biases is half the difference of the exponents of infinity.
 */
static inline float
f16_widen(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
	int32_t magnitude = bits & 0x7fff;
	int32_t normal = (magnitude << 13) + F16_REBIAS;
	int32_t denormal = (int32_t)f32_bits((float)magnitude * F16_DENORMAL_UNIT);
	int32_t result = magnitude < 0x0400 ? denormal : normal;

	result = magnitude >= 0x7c00 ? normal + F16_REBIAS : result;
	result = magnitude > 0x7c00 ? result | 0x00400000 : result;
	return f32_from_bits(sign | (uint32_t)result);
}

/*
 * A number in the range of f16's denormal numbers is rounded by adding 0.5, whose last bit is worth
 * one of their units. Other numbers are rounded as in bf16; a number too large for f16 then has the
 * bits of infinity or more.
 */
static inline uint16_t
f16_narrow(float value)
{
	uint32_t sign = f32_bits(value) >> 16 & 0x8000;
	int32_t magnitude = (int32_t)(f32_bits(value) & 0x7fffffff);
	int32_t denormal = (int32_t)(f32_bits(__builtin_fabsf(value) + 0.5f) - f32_bits(0.5f));
	int32_t normal = (magnitude - F16_REBIAS + 0x0fff + (magnitude >> 13 & 1)) >> 13;
	int32_t result = magnitude < (int32_t)f32_bits(F16_MIN_NORMAL) ? denormal : normal;

	result = magnitude >= (int32_t)f32_bits(F16_MIN_TOO_LARGE) ? 0x7c00 : result;
	result = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x03ff) : result;
	return (uint16_t)(sign | (uint32_t)result);
}

/*
 * Conversion of F16_LANES elements to a vector of f32 and back: GCC does not use the instructions
 * for this by itself. Sums in the L2 cache of a Xeon at 3.6 GHz, 10^9 elements per second: 11.8
 * with F16C, 14.6 with AVX-512's form of it, 24.9 with AVX512-FP16 below, 0.3 with integers; f32
 * has 12.5.
 */
#if defined(__AVX512F__)
#define F16_LANES 16
typedef __m512 f16_lanes;

static inline f16_lanes
f16_load(const any_half *from)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

static inline void
f16_store(any_half *to, f16_lanes lanes)
{
	_mm256_storeu_si256((void *)to, _mm512_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__F16C__)
#define F16_LANES 8
typedef __m256 f16_lanes;

static inline f16_lanes
f16_load(const any_half *from)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

static inline void
f16_store(any_half *to, f16_lanes lanes)
{
	_mm_storeu_si128((void *)to, _mm256_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT));
}

#else
#define F16_LANES 1
typedef float f16_lanes;

static inline f16_lanes
f16_load(const any_half *from)
{
	return f16_widen(*from);
}

static inline void
f16_store(any_half *to, f16_lanes lanes)
{
	*to = f16_narrow(lanes);
}
#endif

typedef f16_lanes any_f16_lanes ANY_ADDRESS;

/*
 * Runs vector_statement for vectors of F16_LANES at i, then element_statement for single elements.
 */
#define F16_LOOP(vector_statement, element_statement)                                              \
	do {                                                                                       \
		size_t n_whole = count / F16_LANES * F16_LANES;                                    \
                                                                                                   \
		for (size_t i = 0; i < n_whole; i += F16_LANES)                                    \
			vector_statement;                                                          \
		for (size_t i = n_whole; i < count; i++)                                           \
			element_statement;                                                         \
	} while (0)

#ifdef __AVX512FP16__
FLOAT_COMBINE_KERNELS(f16, _Float16, uint16_t, 0x7e00)
#else
#define F16_COMBINE(name, operator)                                                                \
	static void kernel_##name(void *restrict acc, const void *restrict in, size_t count)       \
	{                                                                                          \
		any_half *a = acc;                                                                 \
		const any_half *b = in;                                                            \
                                                                                                   \
		F16_LOOP(f16_store(a + i, f16_load(a + i) operator f16_load(b + i)),               \
			 a[i] = f16_narrow(f16_widen(a[i]) operator f16_widen(b[i])));             \
	}

F16_COMBINE(f16_sum, +)
F16_COMBINE(f16_prod, *)
COMBINE_LOOP(f16_min, int16_t, half_or_nan(x, y, half_lesser(x, y), 0x7c00, 0x7e00))
COMBINE_LOOP(f16_max, int16_t, half_or_nan(x, y, half_greater(x, y), 0x7c00, 0x7e00))
#endif

static void
finish_f16_avg(void *acc, uint32_t contributions, size_t count)
{
	any_half *a = acc;
	float n = (float)contributions;

	F16_LOOP(f16_store(a + i, f16_load(a + i) / n), a[i] = f16_narrow(f16_widen(a[i]) / n));
}

static inline void
convert_f16_widen(any_single *restrict out, const any_half *restrict in, size_t count)
{
	F16_LOOP(*(any_f16_lanes *)(out + i) = f16_load(in + i), out[i] = f16_widen(in[i]));
}

static inline void
convert_f16_narrow(any_half *restrict out, const any_single *restrict in, size_t count)
{
	F16_LOOP(f16_store(out + i, *(const any_f16_lanes *)(in + i)), out[i] = f16_narrow(in[i]));
}

WIDE_IN_PLACE(f16)

static void
wide_f16_accumulate(void *restrict acc, const void *restrict in, size_t count)
{
	any_single *a = acc;
	const any_half *b = in;

	F16_LOOP(*(any_f16_lanes *)(a + i) += f16_load(b + i), a[i] += f16_widen(b[i]));
}

#endif
