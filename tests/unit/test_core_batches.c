/* SPDX-License-Identifier: BSD-3-Clause */
/* The batches that core-bench takes its medians of. */
#include "lab/bench/core_batches.h"
#include "tests/unit/suites.h"

#include <rte_common.h>

START_TEST(disturbed_batches_are_left_out)
{
	struct batch batches[] = {
		{ 150, 100, 1051 }, { 90, 60, 1000 }, { 160, 110, 1400 },
		{ 91, 62, 1050 },   { 92, 61, 1020 },
	};
	uint64_t fastest = UINT64_MAX;
	struct batch median;

	ck_assert_uint_eq(batches_undisturbed(batches, RTE_DIM(batches), &fastest), 3);
	ck_assert_uint_eq(fastest, 1000);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_uint_lt(batches[i].pipeline, 100);
	median = batches_median(batches, 3);
	ck_assert_uint_eq(median.pipeline, 91);
	ck_assert_uint_eq(median.bare, 61);
	median = batches_median(batches, RTE_DIM(batches));
	ck_assert_uint_eq(median.pipeline, 92);
	ck_assert_uint_eq(median.bare, 62);
}
END_TEST

START_TEST(a_faster_calibration_than_any_batch_had_counts)
{
	struct batch batches[] = { { 150, 100, 1400 }, { 151, 101, 1410 } };
	uint64_t fastest = 1000;

	ck_assert_uint_eq(batches_undisturbed(batches, RTE_DIM(batches), &fastest), 0);
	ck_assert_uint_eq(fastest, 1000);
	ck_assert_uint_eq(batches[0].pipeline + batches[1].pipeline, 301);
}
END_TEST

START_TEST(a_quarter_is_enough_if_that_is_not_too_few)
{
	ck_assert_uint_eq(batches_enough(4096), 1024);
	ck_assert_uint_eq(batches_enough(200), 50);
	ck_assert_uint_eq(batches_enough(100), 50);
	ck_assert_uint_eq(batches_enough(6), 6);
}
END_TEST

Suite *
suite_core_batches(void)
{
	Suite *suite = suite_create("core_batches");
	TCase *tcase = tcase_create("choice");

	tcase_add_test(tcase, disturbed_batches_are_left_out);
	tcase_add_test(tcase, a_faster_calibration_than_any_batch_had_counts);
	tcase_add_test(tcase, a_quarter_is_enough_if_that_is_not_too_few);
	suite_add_tcase(suite, tcase);
	return suite;
}
