/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab/reference/perf_custom.h"

#include <string.h>

/*
 * ------------------------------------------------ complex-f32 prod: the product of complex numbers
 */

struct complex_f32 {
	float re, im;
};

/* A complex number whose parts are integers. */
struct gauss {
	int64_t re, im;
};

/*
 * 5^10 is less than 2^24: this many factors of 1 + 2i, two per rank, leave all parts and their
 * products exact in f32.
 */
#define RANKS_WITH_FACTORS 5

static inline struct gauss
gauss_product(struct gauss x, struct gauss y)
{
	return (struct gauss){ x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re };
}

/*
 * Returns 1, i, -1 or -i, for the first ranks times 1 + 2i or its square. No power of 1 + 2i is
 * real or imaginary, so no part of the result is zero, whose sign would depend on the order.
 */
static struct gauss
complex_value(uint32_t bits, uint16_t rank)
{
	static const struct gauss units[] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 0, -1 } };
	static const struct gauss factor = { 1, 2 };
	struct gauss value = units[bits & 3];

	if (rank < RANKS_WITH_FACTORS)
		value = gauss_product(value, factor);
	if (rank < RANKS_WITH_FACTORS && (bits & 4) != 0)
		value = gauss_product(value, factor);
	return value;
}

static void
complex_fill(const struct perf_data *data, uint16_t rank, uint64_t iteration, uint64_t first,
	     uint64_t n, void *elements)
{
	struct complex_f32 *to = elements;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t bits = perf_data_random(data, rank, iteration, first + i);
		struct gauss value = complex_value(bits, rank);

		to[i] = (struct complex_f32){ (float)value.re, (float)value.im };
	}
}

static void
complex_expect(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
	       void *elements)
{
	struct complex_f32 *to = elements;

	for (uint64_t i = 0; i < n; i++) {
		struct gauss product = { 1, 0 };

		for (uint16_t rank = 0; rank < data->size; rank++) {
			uint32_t bits = perf_data_random(data, rank, iteration, first + i);

			product = gauss_product(product, complex_value(bits, rank));
		}
		to[i] = (struct complex_f32){ (float)product.re, (float)product.im };
	}
}

/*
 * --------------------------------------------------------------------------------------------
 * table
 */

static const struct perf_custom customs[] = {
	{ "complex-f32", "prod", FANIN_OPAQUE(sizeof(struct complex_f32)), FANIN_CUSTOM(128),
	  complex_fill, complex_expect },
};

const struct perf_custom *
perf_custom_at(size_t number)
{
	return number < sizeof(customs) / sizeof(customs[0]) ? &customs[number] : NULL;
}

const struct perf_custom *
perf_custom_find(const char *dtype_name, const char *op_name)
{
	const struct perf_custom *custom;

	for (size_t i = 0; (custom = perf_custom_at(i)) != NULL; i++) {
		if (strcmp(custom->dtype_name, dtype_name) == 0 &&
		    strcmp(custom->op_name, op_name) == 0)
			break;
	}
	return custom;
}

const struct perf_custom *
perf_custom_of(enum fanin_op op)
{
	const struct perf_custom *custom;

	for (size_t i = 0; (custom = perf_custom_at(i)) != NULL; i++) {
		if (custom->op == op)
			break;
	}
	return custom;
}
