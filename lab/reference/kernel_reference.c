/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab/reference/kernel_reference.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "wire/types.h"

const struct float_format format_f16 = { 5, 10 };
const struct float_format format_bf16 = { 8, 7 };
const struct float_format format_f32 = { 8, 23 };
const struct float_format format_f64 = { 11, 52 };

const struct float_format *
reference_format(unsigned int dtype)
{
	switch (dtype) {
	case FANIN_WIRE_F16:
		return &format_f16;
	case FANIN_WIRE_BF16:
		return &format_bf16;
	case FANIN_WIRE_F32:
		return &format_f32;
	case FANIN_WIRE_F64:
		return &format_f64;
	default:
		return NULL;
	}
}

static uint64_t
ones(unsigned int n)
{
	return (UINT64_C(1) << n) - 1;
}

static int
bias(const struct float_format *format)
{
	return (int)ones(format->exponent_bits - 1);
}

static bool
sign_of(const struct float_format *format, uint64_t bits)
{
	return bits >> (format->exponent_bits + format->mantissa_bits) & 1;
}

static uint64_t
infinity_of(const struct float_format *format)
{
	return ones(format->exponent_bits) << format->mantissa_bits;
}

static uint64_t
magnitude_of(const struct float_format *format, uint64_t bits)
{
	return bits & ones(format->exponent_bits + format->mantissa_bits);
}

bool
reference_is_nan(const struct float_format *format, uint64_t bits)
{
	return magnitude_of(format, bits) > infinity_of(format);
}

uint64_t
reference_canonical_nan(const struct float_format *format)
{
	return infinity_of(format) | UINT64_C(1) << (format->mantissa_bits - 1);
}

double
reference_decode(const struct float_format *format, uint64_t bits)
{
	uint64_t mantissa = bits & ones(format->mantissa_bits);
	int exponent = (int)(magnitude_of(format, bits) >> format->mantissa_bits);
	double value;

	if (exponent == (int)ones(format->exponent_bits))
		value = mantissa == 0 ? INFINITY : NAN;
	else if (exponent == 0)
		value = ldexp((double)mantissa, 1 - bias(format) - (int)format->mantissa_bits);
	else
		value = ldexp((double)(mantissa | UINT64_C(1) << format->mantissa_bits),
			      exponent - bias(format) - (int)format->mantissa_bits);
	return sign_of(format, bits) ? -value : value;
}

uint64_t
reference_encode(const struct float_format *format, double value)
{
	uint64_t sign = (uint64_t)(signbit(value) != 0)
			<< (format->exponent_bits + format->mantissa_bits);
	uint64_t units;
	int exponent;

	if (isnan(value))
		return reference_canonical_nan(format);
	if (isinf(value))
		return sign | infinity_of(format);
	if (value == 0)
		return sign;

	/* Finds the exponent: 1 <= |value| / 2^exponent < 2, or less for denormal numbers. */
	frexp(value, &exponent);
	exponent--;
	if (exponent < 1 - bias(format))
		exponent = 1 - bias(format);
	/* In units of the last place, rounded by the C library. */
	units = (uint64_t)nearbyint(ldexp(fabs(value), (int)format->mantissa_bits - exponent));
	/*
	 * A mantissa that was rounded up to the next power of two carries into the exponent; so
	 * does 1.0, which is not stored.
	 */
	units += (uint64_t)(exponent + bias(format) - 1) << format->mantissa_bits;
	return sign | (units < infinity_of(format) ? units : infinity_of(format));
}

/* --------------------------------------------------------------- integers */

static bool
is_signed(unsigned int dtype)
{
	return dtype <= FANIN_WIRE_I64;
}

/* Decodes an integer, sign or zero extended. */
static __int128
integer_decode(unsigned int dtype, uint64_t bits)
{
	unsigned int n_bits = 8 * fanin_dtype_size(dtype);
	__int128 value = (__int128)bits;

	return is_signed(dtype) && (bits >> (n_bits - 1) & 1) != 0 ? value - ((__int128)1 << n_bits)
								   : value;
}

static uint64_t
integer_encode(unsigned int dtype, __int128 value)
{
	unsigned int n_bits = 8 * fanin_dtype_size(dtype);

	return (uint64_t)value & (n_bits == 64 ? UINT64_MAX : ones(n_bits));
}

static __int128
integer_combine(unsigned int op, __int128 a, __int128 b)
{
	switch (op) {
	case FANIN_WIRE_SUM:
	case FANIN_WIRE_AVG:
		return a + b;
	case FANIN_WIRE_PROD:
		return (__int128)((unsigned __int128)a * (unsigned __int128)b);
	case FANIN_WIRE_MIN:
		return a < b ? a : b;
	case FANIN_WIRE_MAX:
		return a < b ? b : a;
	case FANIN_WIRE_LAND:
		return a != 0 && b != 0;
	case FANIN_WIRE_LOR:
		return a != 0 || b != 0;
	case FANIN_WIRE_LXOR:
		return (a != 0) != (b != 0);
	case FANIN_WIRE_BAND:
		return a & b;
	case FANIN_WIRE_BOR:
		return a | b;
	case FANIN_WIRE_BXOR:
		return a ^ b;
	default:
		abort();
	}
}

/* ----------------------------------------------------------------- floats */

/* IEEE 754-2019 minimum and maximum. */
static uint64_t
float_extreme(const struct float_format *format, uint64_t a, uint64_t b, bool want_max)
{
	double x = reference_decode(format, a), y = reference_decode(format, b);

	if (isnan(x) || isnan(y))
		return reference_canonical_nan(format);
	if (x == 0 && y == 0)
		return sign_of(format, a) == want_max ? b : a;
	return (x < y) == want_max ? b : a;
}

/*
 * double has more than twice the digits of the others and two more, so that rounding to it first
 * changes nothing. Only a product of bf16 may be too small for this: it is defined as that of f32,
 * rounded.
 */
static double
float_arithmetic(unsigned int dtype, unsigned int op, double a, double b)
{
	if (op != FANIN_WIRE_PROD)
		return a + b;
	return dtype == FANIN_WIRE_BF16 ? (double)(float)(a * b) : a * b;
}

static uint64_t
float_combine(unsigned int dtype, unsigned int op, uint64_t a, uint64_t b)
{
	const struct float_format *format = reference_format(dtype);

	if (op == FANIN_WIRE_MIN || op == FANIN_WIRE_MAX)
		return float_extreme(format, a, b, op == FANIN_WIRE_MAX);
	return reference_encode(format, float_arithmetic(dtype, op, reference_decode(format, a),
							 reference_decode(format, b)));
}

/* -------------------------------------------------------------------- all */

uint64_t
reference_combine(unsigned int dtype, unsigned int op, uint64_t a, uint64_t b)
{
	if (reference_format(dtype) != NULL)
		return float_combine(dtype, op, a, b);
	return integer_encode(dtype, integer_combine(op, integer_decode(dtype, a),
						     integer_decode(dtype, b)));
}

uint64_t
reference_divide(unsigned int dtype, uint64_t a, uint32_t n)
{
	const struct float_format *format = reference_format(dtype);
	double quotient;

	if (format == NULL)
		return integer_encode(dtype, integer_decode(dtype, a) / n);
	quotient = reference_decode(format, a) / n;
	/* With many contributions, f16 and bf16 show that the division is f32's. */
	return reference_encode(format, format == &format_f64 ? quotient : (double)(float)quotient);
}

bool
reference_same(unsigned int dtype, unsigned int op, uint64_t found, uint64_t expected)
{
	const struct float_format *format = reference_format(dtype);

	if (format != NULL && op != FANIN_WIRE_MIN && op != FANIN_WIRE_MAX &&
	    reference_is_nan(format, expected))
		return reference_is_nan(format, found);
	return found == expected;
}

static uint64_t
random_float(struct random *random, const struct float_format *format)
{
	uint64_t sign = (uint64_t)random_below(random, 2)
			<< (format->exponent_bits + format->mantissa_bits);
	uint64_t infinity = infinity_of(format);
	uint64_t min_normal = UINT64_C(1) << format->mantissa_bits;
	uint64_t one = (uint64_t)bias(format) << format->mantissa_bits;
	uint64_t random_bits = (uint64_t)random_u32(random) << 32 | random_u32(random);

	switch (random_below(random, 12)) {
	case 0:
		return sign;
	case 1:
		return sign | 1;
	case 2:
		return sign | (min_normal - 1);
	case 3:
		return sign | min_normal;
	case 4:
		return sign | one;
	case 5:
		return sign | (infinity - 1);
	case 6:
		return sign | infinity;
	case 7: /* a quiet NaN */
		return sign | reference_canonical_nan(format) | (random_bits & ones(2));
	case 8: /* a signalling NaN */
		return sign | infinity | 1 | (random_bits & ones(format->mantissa_bits - 1));
	case 9: /* a denormal number */
		return sign | (random_bits & (min_normal - 1));
	default: /* near one, where sums and products of two are rounded much */
		return sign |
		       (one + (random_bits & ones(format->mantissa_bits + 2)) - 2 * min_normal);
	}
}

uint64_t
reference_random(struct random *random, unsigned int dtype)
{
	const struct float_format *format = reference_format(dtype);
	uint64_t bits = (uint64_t)random_u32(random) << 32 | random_u32(random);

	if (format != NULL && random_below(random, 2) == 0)
		return random_float(random, format);
	switch (random_below(random, 8)) {
	case 0:
		bits = 0;
		break;
	case 1:
		bits = UINT64_MAX;
		break;
	case 2:
		bits = UINT64_C(1) << (8 * fanin_dtype_size(dtype) - 1);
		break;
	case 3:
		bits = ones(8 * fanin_dtype_size(dtype) - 1);
		break;
	case 4:
		bits &= 3;
		break;
	default:
		break;
	}
	return integer_encode(dtype, (__int128)bits);
}
