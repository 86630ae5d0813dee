/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab/reference/perf_data.h"

#include "lab/reference/perf_custom.h"
#include "lab/reference/perf_random.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK PERF_RANDOM_MAX /* elements */

/*
 * Elements in an intermediate form: integers as two's complement in 64 bits, sign or zero extended;
 * others exactly.
 */
union chunk {
	uint64_t integers[CHUNK];
	double numbers[CHUNK];
};

/* Ranks whose factors are other than 1 and -1: f16 represents 2^-14 to 2^15 with all its digits. */
#define SCALING_RANKS 14

static bool
is_float(enum fanin_dtype dtype)
{
	return dtype >= FANIN_F16;
}

static bool
is_signed(enum fanin_dtype dtype)
{
	return dtype <= FANIN_I64;
}

bool
perf_data_widens(enum fanin_dtype dtype, enum fanin_op op)
{
	return (dtype == FANIN_F16 || dtype == FANIN_BF16) && (op == FANIN_SUM || op == FANIN_AVG);
}

/* ------------------------------------------------------------------ values */

/* Returns well mixed 32 bits; the same for the same arguments on every host. */
static inline uint32_t
mix(uint32_t stream, uint32_t index)
{
	uint32_t x = index * 0x9e3779b1u ^ stream;

	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

static uint32_t
stream_of(uint32_t seed, uint32_t rank, uint64_t iteration)
{
	return mix(mix(mix(seed, rank + 1), (uint32_t)iteration), (uint32_t)(iteration >> 32));
}

uint32_t
perf_data_random(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t index)
{
	return perf_data_mix(perf_data_stream(data, rank, iteration), index);
}

uint32_t
perf_data_stream(const struct perf_data *data, uint16_t rank, uint64_t iteration)
{
	return stream_of(data->seed, rank, iteration);
}

uint32_t
perf_data_mix(uint32_t stream, uint64_t index)
{
	return mix(stream, (uint32_t)index);
}

static inline uint64_t
mix64(uint32_t stream, uint64_t index)
{
	return (uint64_t)mix(stream, (uint32_t)index) * UINT64_C(0xd6e8feb86659fd93);
}

/*
 * Returns a value such that an operator's result differs between elements, whatever the number of
 * ranks.
 */
static inline uint64_t
integer_value(enum fanin_op op, uint32_t stream, uint64_t index)
{
	uint64_t value = mix64(stream, index);
	uint64_t other = mix64(~stream, index);

	switch (op) {
	case FANIN_PROD:
		return value | 1; /* even factors would soon make it zero */
	case FANIN_LAND:
		return other >> 60 == 0 ? 0 : value;
	case FANIN_LOR:
		return other >> 60 == 0 ? value : 0;
	case FANIN_LXOR:
		return other >> 63 == 0 ? value : 0;
	case FANIN_BAND:
		return value | other | other >> 8;
	case FANIN_BOR:
		return value & other & other >> 8;
	default:
		return value;
	}
}

/* Sign or zero extends the low bytes. */
static inline uint64_t
integer_extend(uint64_t value, unsigned int shift, bool with_sign)
{
	return with_sign ? (uint64_t)((int64_t)(value << shift) >> shift) : value << shift >> shift;
}

static void
integers_extend(enum fanin_dtype dtype, uint64_t n, union chunk *chunk)
{
	unsigned int shift = 64 - 8 * (unsigned int)fanin_dtype_size_of(dtype);
	bool with_sign = is_signed(dtype);

	for (uint64_t i = 0; i < n; i++)
		chunk->integers[i] = integer_extend(chunk->integers[i], shift, with_sign);
}

/*
 * Returns the limit up to which, and down to whose negative, a data type represents every integer.
 */
static uint64_t
exact_limit(enum fanin_dtype dtype)
{
	switch (dtype) {
	case FANIN_F16:
		return 1 << 11;
	case FANIN_BF16:
		return 1 << 8;
	case FANIN_F32:
		return 1 << 24;
	default: /* f64 holds more; values come from 32 bits */
		return UINT64_C(1) << 31;
	}
}

static inline double
factor(uint32_t bits, uint16_t rank)
{
	static const double powers[] = { 0.5, 1, 2, 1 };
	double magnitude = rank < SCALING_RANKS ? powers[bits & 3] : 1;

	return bits >> 31 != 0 ? -magnitude : magnitude;
}

/* Returns a number from -limit to limit - 1. */
static inline double
small_integer(uint32_t bits, uint64_t limit)
{
	return (double)(int64_t)(bits * (limit * 2) >> 32) - (double)limit;
}

/*
 * Returns the factor by which integers are multiplied so that they use all digits of f16 or bf16.
 * The sum of 64 of them is exact in f32 and, rounded, a normal number of the type. Averages are of
 * numbers up to the largest f16: sums need not fit the type.
 */
static double
wide_scale(const struct perf_data *data)
{
	if (data->dtype == FANIN_BF16)
		return 1;
	return data->op == FANIN_AVG ? 0x1p5 : 0x1p-6;
}

static void
values_fill(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
	    uint64_t n, union chunk *chunk)
{
	uint32_t stream = stream_of(data->seed, rank, iteration);
	bool is_extreme = data->op == FANIN_MIN || data->op == FANIN_MAX;
	bool is_wide = data->wide && perf_data_widens(data->dtype, data->op);
	uint64_t limit = exact_limit(data->dtype) / (is_extreme ? 1 : data->size);
	double scale = is_wide ? wide_scale(data) : 1;

	if (is_wide)
		limit = exact_limit(data->dtype) - 1;
	if (data->random) {
		perf_random_values(data, rank, iteration, first, n, chunk->numbers);
	} else if (!is_float(data->dtype)) {
		for (uint64_t i = 0; i < n; i++)
			chunk->integers[i] = integer_value(data->op, stream, first + i);
		integers_extend(data->dtype, n, chunk);
	} else if (data->op == FANIN_PROD) {
		for (uint64_t i = 0; i < n; i++)
			chunk->numbers[i] = factor(mix(stream, (uint32_t)(first + i)), rank);
	} else {
		for (uint64_t i = 0; i < n; i++)
			chunk->numbers[i] =
				small_integer(mix(stream, (uint32_t)(first + i)), limit) * scale;
	}
}

/* --------------------------------------------------------------- reference */

#define FOLD(field, expression)                                                                    \
	do {                                                                                       \
		for (uint64_t i = 0; i < n; i++) {                                                 \
			__typeof__(acc->field[0]) a = acc->field[i];                               \
			__typeof__(acc->field[0]) b = in->field[i];                                \
                                                                                                   \
			acc->field[i] = (expression);                                              \
		}                                                                                  \
	} while (0)

static void
integers_fold(const struct perf_data *data, uint64_t n, union chunk *acc, const union chunk *in)
{
	/* Converts the order of signed numbers to that of unsigned ones. */
	uint64_t flip = is_signed(data->dtype) ? UINT64_C(1) << 63 : 0;

	switch (data->op) {
	case FANIN_SUM:
	case FANIN_AVG:
		FOLD(integers, a + b);
		break;
	case FANIN_PROD:
		FOLD(integers, a * b);
		break;
	case FANIN_MIN:
		FOLD(integers, (a ^ flip) < (b ^ flip) ? a : b);
		break;
	case FANIN_MAX:
		FOLD(integers, (a ^ flip) > (b ^ flip) ? a : b);
		break;
	case FANIN_LAND:
		FOLD(integers, a != 0 && b != 0);
		break;
	case FANIN_LOR:
		FOLD(integers, a != 0 || b != 0);
		break;
	case FANIN_LXOR:
		FOLD(integers, (a != 0) != (b != 0));
		break;
	case FANIN_BAND:
		FOLD(integers, a & b);
		break;
	case FANIN_BOR:
		FOLD(integers, a | b);
		break;
	case FANIN_BXOR:
		FOLD(integers, a ^ b);
		break;
	default: /* custom */
		break;
	}
}

static void
numbers_fold(const struct perf_data *data, uint64_t n, union chunk *acc, const union chunk *in)
{
	switch (data->op) {
	case FANIN_SUM:
	case FANIN_AVG:
		FOLD(numbers, a + b);
		break;
	case FANIN_PROD:
		FOLD(numbers, a * b);
		break;
	case FANIN_MIN:
		FOLD(numbers, a < b ? a : b);
		break;
	case FANIN_MAX:
		FOLD(numbers, a > b ? a : b);
		break;
	default: /* not defined */
		break;
	}
}

static void
average(const struct perf_data *data, uint64_t n, union chunk *chunk)
{
	if (is_float(data->dtype)) {
		for (uint64_t i = 0; i < n; i++)
			chunk->numbers[i] /= data->size;
	} else if (is_signed(data->dtype)) {
		integers_extend(data->dtype, n, chunk);
		for (uint64_t i = 0; i < n; i++)
			chunk->integers[i] = (uint64_t)((int64_t)chunk->integers[i] / data->size);
	} else {
		integers_extend(data->dtype, n, chunk);
		for (uint64_t i = 0; i < n; i++)
			chunk->integers[i] /= data->size;
	}
}

/* ----------------------------------------------------------------- elements */

static inline uint32_t
float_bits(double value)
{
	float narrow = (float)value;
	uint32_t bits;

	memcpy(&bits, &narrow, sizeof(bits));
	return bits;
}

/*
 * Rounds to nearest even. Only for zero and for numbers that are neither denormal nor too large in
 * f16, as all data and results here are.
 */
static inline uint16_t
f16_of(double value)
{
	uint32_t bits = float_bits(value);
	uint32_t magnitude = bits & 0x7fffffff;
	uint32_t rounded = (magnitude - ((127 - 15) << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13;

	return (uint16_t)((bits >> 16 & 0x8000) | (magnitude == 0 ? 0 : rounded));
}

static inline uint16_t
bf16_of(double value)
{
	uint32_t bits = float_bits(value);

	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define STORE(type, expression)                                                                    \
	do {                                                                                       \
		for (uint64_t i = 0; i < n; i++)                                                   \
			((type *)elements)[i] = (type)(expression);                                \
	} while (0)

static void
elements_store(enum fanin_dtype dtype, uint64_t n, const union chunk *chunk, void *elements)
{
	switch (dtype) {
	case FANIN_I8:
	case FANIN_U8:
		STORE(uint8_t, chunk->integers[i]);
		break;
	case FANIN_I16:
	case FANIN_U16:
		STORE(uint16_t, chunk->integers[i]);
		break;
	case FANIN_I32:
	case FANIN_U32:
		STORE(uint32_t, chunk->integers[i]);
		break;
	case FANIN_I64:
	case FANIN_U64:
		STORE(uint64_t, chunk->integers[i]);
		break;
	case FANIN_F16:
		STORE(uint16_t, f16_of(chunk->numbers[i]));
		break;
	case FANIN_BF16:
		STORE(uint16_t, bf16_of(chunk->numbers[i]));
		break;
	case FANIN_F32:
		STORE(float, chunk->numbers[i]);
		break;
	case FANIN_F64:
		STORE(double, chunk->numbers[i]);
		break;
	default: /* custom */
		break;
	}
}

void
perf_data_fill(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
	       uint64_t n, void *elements)
{
	const struct perf_custom *custom = perf_custom_of(data->op);
	size_t size = fanin_dtype_size_of(data->dtype);

	if (custom != NULL) {
		custom->fill(data, rank, iteration, first, n, elements);
		return;
	}
	for (uint64_t done = 0; done < n; done += CHUNK) {
		uint64_t part = n - done < CHUNK ? n - done : CHUNK;
		union chunk chunk;

		values_fill(data, rank, iteration, first + done, part, &chunk);
		elements_store(data->dtype, part, &chunk, (uint8_t *)elements + done * size);
	}
}

static void
chunk_expect(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
	     void *elements)
{
	union chunk acc, in;

	if (data->random) {
		perf_random_sum(data, iteration, first, n, acc.numbers);
		elements_store(data->dtype, n, &acc, elements);
		return;
	}
	values_fill(data, 0, iteration, first, n, &acc);
	for (uint16_t rank = 1; rank < data->size; rank++) {
		values_fill(data, rank, iteration, first, n, &in);
		if (is_float(data->dtype))
			numbers_fold(data, n, &acc, &in);
		else
			integers_fold(data, n, &acc, &in);
	}
	if (data->op == FANIN_AVG)
		average(data, n, &acc);
	elements_store(data->dtype, n, &acc, elements);
}

void
perf_data_expect(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		 void *elements)
{
	const struct perf_custom *custom = perf_custom_of(data->op);
	size_t size = fanin_dtype_size_of(data->dtype);

	if (custom != NULL) {
		custom->expect(data, iteration, first, n, elements);
		return;
	}
	for (uint64_t done = 0; done < n; done += CHUNK) {
		uint64_t part = n - done < CHUNK ? n - done : CHUNK;

		chunk_expect(data, iteration, first + done, part,
			     (uint8_t *)elements + done * size);
	}
}
