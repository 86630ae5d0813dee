/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse vectors made of dense ones' large elements. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fanin/fanin.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

static void
compact_expect(const float *dense, uint64_t n, const struct fanin_compact_opts *options,
	       const uint32_t *expected, uint64_t n_expected)
{
	uint32_t indices[64];
	float values[64];
	uint64_t count;

	ck_assert_int_eq(fanin_compact(dense, n, FANIN_F32, options, indices, values, 64, &count),
			 FANIN_OK);
	ck_assert_uint_eq(count, n_expected);
	for (uint64_t i = 0; i < count; i++) {
		ck_assert_uint_eq(indices[i], expected[i]);
		ck_assert_int_eq(memcmp(&values[i], &dense[expected[i]], sizeof(float)), 0);
	}
	if (n_expected == 0)
		return;
	ck_assert_int_eq(fanin_compact(dense, n, FANIN_F32, options, indices, values,
				       n_expected - 1, &count),
			 FANIN_ERR_CAPACITY);
	ck_assert_uint_eq(count, n_expected);
}

START_TEST(compaction_takes_what_is_large)
{
	const float dense[] = { 0, -0.0f, 1e-44f, -2, 3, NAN, -3, INFINITY, 0.5f, 3 };
	struct fanin_compact_opts options = { .sz = sizeof(options) };

	compact_expect(dense, 10, NULL, (const uint32_t[]){ 2, 3, 4, 5, 6, 7, 8, 9 }, 8);
	options.threshold = 0.5;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 3, 4, 5, 6, 7, 9 }, 6);
	options.threshold = 2.5;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 4, 5, 6, 7, 9 }, 5);
	options.threshold = INFINITY;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 5 }, 1);
	options.threshold = 0;
	/* The largest of each bucket of 5; the first one of equal elements. */
	options.bucket = 5;
	options.top = 1;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 4, 5 }, 2);
	options.top = 3;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 2, 3, 4, 5, 6, 7 }, 6);
	options.bucket = 0;
	options.top = 4;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 4, 5, 6, 7 }, 4);
	options.top = 100;
	compact_expect(dense, 10, &options, (const uint32_t[]){ 2, 3, 4, 5, 6, 7, 8, 9 }, 8);
	compact_expect(dense, 2, &options, NULL, 0);
	compact_expect(NULL, 0, NULL, NULL, 0);
}
END_TEST

START_TEST(magnitudes_of_integers_have_no_sign)
{
	static const int8_t bytes[] = { 0, 1, -1, 127, -128, 5 };
	static const uint64_t words[] = { 0, UINT64_MAX, 7, UINT64_MAX - 1 };
	struct fanin_compact_opts options = { .sz = sizeof(options), .top = 1, .index_bytes = 8 };
	uint64_t indices[8], values[8], count;
	int8_t few[8];

	ck_assert_int_eq(fanin_compact(bytes, 6, FANIN_I8, &options, indices, few, 8, &count),
			 FANIN_OK);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(indices[0], 4);
	ck_assert_int_eq(few[0], -128);
	options.threshold = 4;
	options.top = 0;
	ck_assert_int_eq(fanin_compact(bytes, 6, FANIN_I8, &options, indices, few, 8, &count),
			 FANIN_OK);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(indices[2], 5);
	options.top = 2;
	ck_assert_int_eq(fanin_compact(words, 4, FANIN_U64, &options, indices, values, 8, &count),
			 FANIN_OK);
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(indices[0], 1);
	ck_assert_uint_eq(indices[1], 3);
}
END_TEST

START_TEST(compaction_of_random_data_takes_the_largest)
{
	struct random random = random_seed(3);
	float dense[5000];
	uint32_t indices[5000];
	float values[5000];
	uint64_t count;
	const struct fanin_compact_opts options = { .sz = sizeof(options),
						    .bucket = 512,
						    .top = 7 };

	for (int i = 0; i < 5000; i++)
		dense[i] = (float)(int32_t)random_below(&random, 41) - 20;
	ck_assert_int_eq(fanin_compact(dense, 5000, FANIN_F32, &options, indices, values, 5000,
				       &count),
			 FANIN_OK);
	ck_assert_uint_eq(count, 10 * 7);
	for (uint64_t bucket = 0; bucket < 10; bucket++) {
		float least = INFINITY;
		int larger = 0;

		for (uint64_t i = bucket * 7; i < bucket * 7 + 7; i++) {
			ck_assert_uint_eq(indices[i] / 512, bucket);
			ck_assert(i == bucket * 7 || indices[i] > indices[i - 1]);
			least = fminf(least, fabsf(values[i]));
		}
		for (uint64_t i = bucket * 512; i < 5000 && i < bucket * 512 + 512; i++)
			larger += fabsf(dense[i]) > least;
		ck_assert_int_le(larger, 6);
	}
}
END_TEST

START_TEST(compaction_refuses_what_makes_no_sense)
{
	const float dense[2] = { 1, 2 };
	struct fanin_compact_opts options = { .sz = sizeof(options), .threshold = -1 };
	uint64_t count;

	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_F32, &options, NULL, NULL, 0, &count),
			 FANIN_ERR_INVALID);
	options.threshold = NAN;
	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_F32, &options, NULL, NULL, 0, &count),
			 FANIN_ERR_INVALID);
	options.threshold = 0;
	options.index_bytes = 2;
	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_F32, &options, NULL, NULL, 0, &count),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_OPAQUE(4), NULL, NULL, NULL, 0, &count),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_F32, NULL, NULL, NULL, 1, &count),
			 FANIN_ERR_INVALID);
	ck_assert_int_eq(fanin_compact(dense, 2, FANIN_F32, NULL, NULL, NULL, 0, &count),
			 FANIN_ERR_CAPACITY);
	ck_assert_uint_eq(count, 2);
}
END_TEST

/*
 * The largest of a bucket are found by another algorithm, element by element: if almost all are
 * requested, the result is the elements above the threshold.
 */
START_TEST(all_types_have_the_same_elements_either_way)
{
	static const double thresholds[] = { 0, 1e-30, 0.3, 1, 90, 40000, 1e19, INFINITY };
	const enum fanin_dtype dtype = (enum fanin_dtype)(FANIN_I8 + _i);
	const size_t size = fanin_dtype_size_of(dtype);
	struct random random = random_seed((uint64_t)_i);
	uint8_t dense[1000 * 8];
	uint64_t indices[2][1000], count[2];
	uint8_t values[2][1000 * 8];

	for (size_t round = 0; round < 200; round++) {
		const uint64_t n = 300 + random_below(&random, 700);
		struct fanin_compact_opts options = {
			.sz = sizeof(options),
			.threshold =
				thresholds[round % (sizeof(thresholds) / sizeof(thresholds[0]))],
			.index_bytes = 8,
		};

		memset(dense, 0, sizeof(dense));
		/*
		 * Random bits, few bits, and zeros, so that all magnitudes occur; the first ones
		 * are zeros with either sign.
		 */
		for (uint64_t i = 2; i < n; i++) {
			uint64_t bits = (uint64_t)random_u32(&random) << 32 | random_u32(&random);

			if (random_below(&random, 2) == 0)
				bits &= bits << random_below(&random, 64);
			if (random_below(&random, 3) != 0)
				memcpy(dense + i * size, &bits, size);
		}
		dense[2 * size - 1] = dtype >= FANIN_F16 ? 0x80 : 0;
		ck_assert_int_eq(fanin_compact(dense, n, dtype, &options, indices[0], values[0],
					       1000, &count[0]),
				 FANIN_OK);
		options.top = n - 1;
		ck_assert_int_eq(fanin_compact(dense, n, dtype, &options, indices[1], values[1],
					       1000, &count[1]),
				 FANIN_OK);
		ck_assert_uint_lt(count[1], n - 1);
		ck_assert_uint_eq(count[0], count[1]);
		ck_assert_int_eq(memcmp(indices[0], indices[1], count[0] * 8), 0);
		ck_assert_int_eq(memcmp(values[0], values[1], count[0] * size), 0);
		if (count[0] == 0)
			continue;
		ck_assert_uint_ge(indices[0][0], 2);
		options.top = 0;
		ck_assert_int_eq(fanin_compact(dense, n, dtype, &options, indices[1], values[1],
					       count[0] - 1, &count[1]),
				 FANIN_ERR_CAPACITY);
		ck_assert_uint_eq(count[0], count[1]);
	}
}
END_TEST

Suite *
suite_sparse_compact(void)
{
	Suite *suite = suite_create("sparse_compact");
	TCase *compaction = tcase_create("compaction");

	tcase_add_test(compaction, compaction_takes_what_is_large);
	tcase_add_test(compaction, magnitudes_of_integers_have_no_sign);
	tcase_add_test(compaction, compaction_of_random_data_takes_the_largest);
	tcase_add_test(compaction, compaction_refuses_what_makes_no_sense);
	tcase_add_loop_test(compaction, all_types_have_the_same_elements_either_way, 0,
			    FANIN_F64 - FANIN_I8 + 1);
	suite_add_tcase(suite, compaction);
	return suite;
}
