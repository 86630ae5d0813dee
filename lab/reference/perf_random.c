/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab/reference/perf_random.h"

#include <stddef.h>
#include <string.h>

#define DOUBLE_MANTISSA 52
#define DOUBLE_BIAS 1023

/*
 * A data type's numbers, kept as doubles: sign and mantissa at random, and as many exponents as a
 * power of two, from the smallest one on. The smallest one is such that no difference is denormal,
 * the largest such that 64 of them don't overflow.
 */
struct format {
	unsigned int mantissa_bits; /* that are stored */
	int min_exponent;
	unsigned int exponents_log2;
};

static const struct format *
format_of(enum fanin_dtype dtype)
{
	static const struct format f16 = { 10, -4, 3 };
	static const struct format bf16 = { 7, -8, 4 };
	static const struct format f32 = { 23, -16, 5 };
	static const struct format f64 = { 52, -32, 6 };

	switch (dtype) {
	case FANIN_F16:
		return &f16;
	case FANIN_BF16:
		return &bf16;
	case FANIN_F32:
		return &f32;
	case FANIN_F64:
		return &f64;
	default:
		return NULL;
	}
}

bool
perf_random_supports(enum fanin_dtype dtype, enum fanin_op op)
{
	return op == FANIN_SUM && format_of(dtype) != NULL;
}

static inline uint64_t
double_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline double
double_from(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* ------------------------------------------------------------------ values */

/* Returns well mixed 64 bits; a bijection. */
static inline uint64_t
mix64(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

void
perf_random_values(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
		   uint64_t n, double *values)
{
	const struct format *format = format_of(data->dtype);
	const uint64_t sign = UINT64_C(1) << 63;
	const uint64_t mantissa = ((UINT64_C(1) << format->mantissa_bits) - 1)
				  << (DOUBLE_MANTISSA - format->mantissa_bits);
	const uint64_t exponents = (UINT64_C(1) << format->exponents_log2) - 1;
	const uint64_t least = (uint64_t)(DOUBLE_BIAS + format->min_exponent);
	const uint64_t stream = (uint64_t)perf_data_random(data, rank, iteration, 0) << 32 |
				perf_data_random(data, rank, iteration, 1);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t bits = mix64(stream + first + i);
		uint64_t exponent = least + (bits >> DOUBLE_MANTISSA & exponents);

		values[i] = double_from((bits & (sign | mantissa)) | exponent << DOUBLE_MANTISSA);
	}
}

/* --------------------------------------------------------------- reference */

/*
 * Rounds to nearest even. A double has more than twice the digits of the other types and two more,
 * so rounding a sum to it first does not change the result.
 */
static inline double
rounded(double value, unsigned int surplus_bits)
{
	uint64_t bits = double_bits(value);
	uint64_t half_less = (UINT64_C(1) << surplus_bits >> 1) - 1;

	bits += half_less + (bits >> surplus_bits & 1);
	return double_from(bits >> surplus_bits << surplus_bits);
}

/* Returns how many bits of a double's mantissa a data type lacks. */
static unsigned int
surplus_bits(enum fanin_dtype dtype)
{
	return DOUBLE_MANTISSA - format_of(dtype)->mantissa_bits;
}

/*
 * Returns the sum of ranks first_rank to first_rank + width - 1, of which those from data->size on
 * don't exist.
 */
static void
sum_in_order(const struct perf_data *data, uint16_t first_rank, uint16_t width, uint64_t iteration,
	     uint64_t first, uint64_t n, double *sum)
{
	const unsigned int surplus = surplus_bits(data->wide ? FANIN_F32 : data->dtype);
	const uint16_t half = width / 2;
	double right[PERF_RANDOM_MAX];

	if (width == 1) {
		perf_random_values(data, first_rank, iteration, first, n, sum);
		return;
	}
	sum_in_order(data, first_rank, half, iteration, first, n, sum);
	if (first_rank + half >= data->size)
		return;
	sum_in_order(data, (uint16_t)(first_rank + half), half, iteration, first, n, right);
	for (uint64_t i = 0; i < n; i++)
		sum[i] += right[i];
	for (uint64_t i = 0; surplus != 0 && i < n; i++)
		sum[i] = rounded(sum[i], surplus);
}

void
perf_random_sum(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		double *sum)
{
	uint16_t width = 1;

	while (width < data->size)
		width *= 2;
	sum_in_order(data, 0, width, iteration, first, n, sum);
	for (uint64_t i = 0; data->wide && i < n; i++)
		sum[i] = rounded(sum[i], surplus_bits(data->dtype));
}
