/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction loops. This file is compiled once per instruction set, with FANIN_KERNEL_TABLE naming the table that it
 * then defines; the compiler's vectoriser does the rest. Only select.c refers to the tables.
 */
#include <string.h>

#include "handlers/kernels/table.h"

#define CANONICAL_NAN 0x7fc00000u

static inline uint32_t
f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float
f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Unsigned, because signed overflow is undefined and sums are to wrap. */
static inline int32_t
i32_sum(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t
i32_min(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static inline int32_t
i32_max(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

static inline float
f32_sum(float a, float b)
{
	return a + b;
}

static inline float
f32_or_nan(float a, float b, uint32_t bits)
{
	return f32_from_bits(__builtin_isunordered(a, b) ? CANONICAL_NAN : bits);
}

/*
 * Each comparison is the CPU's own minimum instruction, which returns its second operand for equal ones. Equal numbers
 * have the same bits, but for the two zeros: "or" makes -0 of those, which is the minimum, "and" +0, the maximum.
 */
static inline float
f32_min(float a, float b)
{
	return f32_or_nan(a, b, f32_bits(a < b ? a : b) | f32_bits(b < a ? b : a));
}

static inline float
f32_max(float a, float b)
{
	return f32_or_nan(a, b, f32_bits(a > b ? a : b) & f32_bits(b > a ? b : a));
}

/* An element at any address: payloads in foreign buffers need not be aligned. */
typedef int32_t any_int32_t __attribute__((aligned(1), may_alias));
typedef float any_float __attribute__((aligned(1), may_alias));

#define KERNEL(dtype, op, type, combine)                                                           \
	static void kernel_##combine(void *acc, const void *in, size_t count)                      \
	{                                                                                          \
		any_##type *restrict a = acc;                                                      \
		const any_##type *restrict b = in;                                                 \
                                                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = combine(a[i], b[i]);                                                \
	}
FANIN_KERNELS(KERNEL)
#undef KERNEL

const struct fanin_kernel_table FANIN_KERNEL_TABLE = {
	.kernels = {
#define ENTRY(dtype, op, type, combine) [FANIN_WIRE_##dtype][FANIN_WIRE_##op] = kernel_##combine,
		FANIN_KERNELS(ENTRY)
#undef ENTRY
	},
};
