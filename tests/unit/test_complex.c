/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The example of docs/custom-operators.md: products of complex numbers.
 */
#include <complex.h>
#include <string.h>

#include "handlers/operator.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define CODE 128
#define COUNT 301
#define N_OFFSETS 9

/* Returns -7 to 8: all products of two are exact. */
static float
small_integer(struct random *random)
{
	return (float)((int)random_below(random, 16) - 7);
}

START_TEST(products_are_those_of_the_compiler)
{
	const struct fanin_operator *prod = fanin_operator_find(CODE);
	static uint8_t acc[COUNT * 8 + N_OFFSETS], in[COUNT * 8 + N_OFFSETS];
	static float _Complex expected[COUNT];
	struct random random = random_seed(1);

	for (int offset = 0; offset < N_OFFSETS; offset++) {
		memset(acc, 0xa5, sizeof(acc));
		for (int i = 0; i < COUNT; i++) {
			float parts[4];

			for (int part = 0; part < 4; part++)
				parts[part] = small_integer(&random);
			memcpy(acc + offset + i * 8, parts, 8);
			memcpy(in + i * 8 + N_OFFSETS - offset, parts + 2, 8);
			expected[i] = __builtin_complex(parts[0], parts[1]) *
				      __builtin_complex(parts[2], parts[3]);
		}
		prod->combine(acc + offset, in + N_OFFSETS - offset, COUNT);
		for (int i = 0; i < COUNT; i++) {
			float found[2];

			memcpy(found, acc + offset + i * 8, 8);
			ck_assert_float_eq(found[0], crealf(expected[i]));
			ck_assert_float_eq(found[1], cimagf(expected[i]));
		}
		/* Bytes beside the elements are unchanged. */
		for (int i = 0; i < N_OFFSETS; i++)
			ck_assert_uint_eq(acc[i < offset ? i : COUNT * 8 + i], 0xa5);
	}
}
END_TEST

START_TEST(one_changes_nothing)
{
	const struct fanin_operator *prod = fanin_operator_find(CODE);
	float x[2] = { -3.5f, 0x1p-130f };
	float one[2];

	memcpy(one, prod->identity, sizeof(one));
	prod->combine(x, one, 1);
	ck_assert_float_eq(x[0], -3.5f);
	ck_assert_float_eq(x[1], 0x1p-130f);
	prod->combine(one, x, 1);
	ck_assert_mem_eq(one, x, sizeof(x));
}
END_TEST

Suite *
suite_complex(void)
{
	Suite *suite = suite_create("complex");
	TCase *product = tcase_create("product");

	tcase_add_test(product, products_are_those_of_the_compiler);
	tcase_add_test(product, one_changes_nothing);
	suite_add_tcase(suite, product);
	return suite;
}
