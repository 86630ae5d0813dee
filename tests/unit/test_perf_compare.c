/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of how fanin-perf compares results: elements of all sizes that custom operators may have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "lab/reference/perf_compare.h"
#include "tests/unit/suites.h"

#define COUNT 150001 /* more than are compared at a time, for any size */

static const size_t sizes[] = { 1, 2, 8, 12, 16, 64 };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

/* Writes elements whose bytes show their index and their position. user: the size. */
static void
count_up(const void *user, uint64_t first, uint64_t n, void *elements)
{
	const size_t size = *(const size_t *)user;
	uint8_t *to = elements;

	for (uint64_t i = 0; i < n; i++) {
		for (size_t k = 0; k < size; k++)
			*to++ = (uint8_t)((first + i) * 7 + k);
	}
}

START_TEST(wrong_elements_of_any_size_are_counted_and_the_first_is_told)
{
	const volatile sig_atomic_t stop = 0;
	const struct perf_comparison comparison = { sizes[_i], count_up, &sizes[_i], &stop };
	const size_t size = sizes[_i];
	struct perf_difference difference = { 0 };
	/* Exactly as long as needed: sanitizers find reads beyond the end. */
	uint8_t *found = calloc(COUNT, size);
	char expected[PERF_ELEMENT_TEXT] = "0x";

	ck_assert_ptr_nonnull(found);
	count_up(&size, 3, COUNT, found);
	ck_assert_uint_eq(perf_compare(&comparison, found, 3, COUNT, &difference), 0);
	/* One difference is in the last byte of an element, one in the very last element. */
	for (size_t k = size; k-- > 0;)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%02x",
			 found[100000 * size + k]);
	found[100000 * size + size - 1] ^= 0x80;
	found[COUNT * size - 1] ^= 1;
	ck_assert_uint_eq(perf_compare(&comparison, found, 3, COUNT, &difference), 2);
	ck_assert_uint_eq(difference.index, 100003);
	ck_assert_str_eq(difference.expected, expected);
	ck_assert_str_ne(difference.found, expected);
	ck_assert_uint_eq(strlen(difference.found), 2 + 2 * size);
	free(found);
}
END_TEST

START_TEST(a_comparison_ends_when_it_is_told_to)
{
	const volatile sig_atomic_t stop = 1;
	const struct perf_comparison comparison = { sizes[5], count_up, &sizes[5], &stop };
	struct perf_difference difference = { 0 };

	ck_assert_uint_eq(perf_compare(&comparison, "", 0, COUNT, &difference), 0);
}
END_TEST

Suite *
suite_perf_compare(void)
{
	Suite *suite = suite_create("perf_compare");
	TCase *tcase = tcase_create("perf_compare");

	tcase_add_loop_test(tcase, wrong_elements_of_any_size_are_counted_and_the_first_is_told, 0,
			    N_SIZES);
	tcase_add_test(tcase, a_comparison_ends_when_it_is_told_to);
	suite_add_tcase(suite, tcase);
	return suite;
}
