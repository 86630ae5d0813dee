/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second implementation of the kernels' arithmetic: one element at a time, by cases, with wider
 * arithmetic. An element is the low bits of a uint64_t.
 */
#ifndef FANIN_LAB_REFERENCE_KERNEL_REFERENCE_H
#define FANIN_LAB_REFERENCE_KERNEL_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/reference/random.h"

/* A binary floating-point format of IEEE 754. */
struct float_format {
	unsigned int exponent_bits;
	unsigned int mantissa_bits; /* as stored */
};

extern const struct float_format format_f16;
extern const struct float_format format_bf16;
extern const struct float_format format_f32;
extern const struct float_format format_f64;

/* Returns the format of a data type, or NULL for integers. */
const struct float_format *reference_format(unsigned int dtype);

/* Returns the value of bits; exact. */
double reference_decode(const struct float_format *format, uint64_t bits);

/* Returns the bits of the value, rounded to nearest even; the canonical NaN for any NaN. */
uint64_t reference_encode(const struct float_format *format, double value);

bool reference_is_nan(const struct float_format *format, uint64_t bits);
uint64_t reference_canonical_nan(const struct float_format *format);

/* Returns a op b; an average is a sum here. The pair must be a defined one. */
uint64_t reference_combine(unsigned int dtype, unsigned int op, uint64_t a, uint64_t b);

/* Returns the average: a divided by n. */
uint64_t reference_divide(unsigned int dtype, uint64_t a, uint32_t n);

/* True if both are equal, or both NaN where arithmetic may give any. */
bool reference_same(unsigned int dtype, unsigned int op, uint64_t found, uint64_t expected);

/*
 * Returns random bits, often those of a special number: zeros, ones, the ends of the range,
 * denormal numbers, NaNs.
 */
uint64_t reference_random(struct random *random, unsigned int dtype);

#endif
