/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of ranks (wire/ranks.h) compared with an array of booleans: each function on sets of any
 * density, at the boundaries of words, and in the wire's format.
 */
#include <string.h>

#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/ranks.h"

#define ROUNDS 50

/* The same set as an array. */
struct plain {
	bool has[FANIN_WIRE_MAX_RANKS];
};

static const unsigned int sizes[] = { 1, 2, 63, 64, 65, 127, 128, 129, 1000, 1024, 4095, 4096 };

#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

/* Draws a set of a job of n ranks, with one rank in `one_in` in it. */
static void
draw(struct random *random, unsigned int n, unsigned int one_in, struct fanin_ranks *set,
     struct plain *plain)
{
	memset(set, 0, sizeof(*set));
	memset(plain, 0, sizeof(*plain));
	for (unsigned int rank = 0; rank < n; rank++) {
		if (random_below(random, one_in) != 0)
			continue;
		fanin_ranks_add(set, rank);
		plain->has[rank] = true;
	}
}

static void
expect(const struct fanin_ranks *set, const struct plain *plain)
{
	unsigned int n = 0, wrong = 0, each = 0, rank, last = 0;
	unsigned int lowest = FANIN_WIRE_MAX_RANKS;

	for (unsigned int i = 0; i < FANIN_WIRE_MAX_RANKS; i++) {
		wrong += fanin_ranks_has(set, i) != plain->has[i];
		n += plain->has[i];
		if (plain->has[i] && lowest == FANIN_WIRE_MAX_RANKS)
			lowest = i;
	}
	FANIN_RANKS_EACH(rank, set)
	{
		wrong += !plain->has[rank] || (each != 0 && rank <= last);
		last = rank;
		each++;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(each, n);
	ck_assert_uint_eq(fanin_ranks_count(set), n);
	ck_assert_uint_eq(fanin_ranks_lowest(set), lowest);
	ck_assert(fanin_ranks_is_empty(set) == (n == 0));
}

START_TEST(sets_hold_what_was_added_and_not_removed)
{
	const unsigned int n = sizes[_i];
	struct random random = random_seed(n);
	struct fanin_ranks set;
	struct plain plain;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		draw(&random, n, 1 + round * round, &set, &plain);
		expect(&set, &plain);
		for (unsigned int k = 0; k < 20; k++) {
			const unsigned int rank = random_below(&random, n);

			if (random_below(&random, 2) == 0)
				fanin_ranks_add(&set, rank);
			else
				fanin_ranks_remove(&set, rank);
			plain.has[rank] = fanin_ranks_has(&set, rank);
		}
		expect(&set, &plain);
	}
	ck_assert(!fanin_ranks_has(&set, FANIN_WIRE_MAX_RANKS));
	ck_assert(!fanin_ranks_has(&set, UINT64_MAX));
	ck_assert_uint_eq(fanin_ranks_next(&set, FANIN_WIRE_MAX_RANKS), FANIN_WIRE_MAX_RANKS);
}
END_TEST

START_TEST(one_and_all_are_those_ranks)
{
	const unsigned int n = sizes[_i];
	struct fanin_ranks all = fanin_ranks_all(n);
	struct fanin_ranks one = fanin_ranks_one(n - 1);
	struct plain plain = { 0 };

	plain.has[n - 1] = true;
	expect(&one, &plain);
	memset(plain.has, true, n);
	expect(&all, &plain);
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		ck_assert_uint_eq(all.words[i], fanin_ranks_all_word(n, i));
}
END_TEST

START_TEST(sets_are_combined_as_sets)
{
	const unsigned int n = sizes[_i];
	struct random random = random_seed(n + 1);
	struct fanin_ranks a, b, result;
	struct plain in_a, in_b, expected;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		bool meet = false;

		draw(&random, n, 1 + round, &a, &in_a);
		draw(&random, n, 1 + round * 3, &b, &in_b);
		result = a;
		fanin_ranks_merge(&result, &b);
		for (unsigned int i = 0; i < FANIN_WIRE_MAX_RANKS; i++)
			expected.has[i] = in_a.has[i] || in_b.has[i];
		expect(&result, &expected);
		result = a;
		fanin_ranks_subtract(&result, &b);
		for (unsigned int i = 0; i < FANIN_WIRE_MAX_RANKS; i++)
			expected.has[i] = in_a.has[i] && !in_b.has[i];
		expect(&result, &expected);
		ck_assert(!fanin_ranks_meet(&result, &b));
		result = a;
		fanin_ranks_keep(&result, &b);
		for (unsigned int i = 0; i < FANIN_WIRE_MAX_RANKS; i++) {
			expected.has[i] = in_a.has[i] && in_b.has[i];
			meet |= expected.has[i];
		}
		expect(&result, &expected);
		ck_assert(fanin_ranks_meet(&a, &b) == meet);
		ck_assert(fanin_ranks_equal(&a, &b) == (memcmp(&in_a, &in_b, sizeof(in_a)) == 0));
		ck_assert(fanin_ranks_equal(&a, &a));
	}
}
END_TEST

/*
 * A set has one word for each 64 ranks of the job, the first ranks in the lowest bits; bytes behind
 * them are not touched.
 */
START_TEST(sets_on_the_wire_have_the_words_that_the_job_needs)
{
	const unsigned int n = sizes[_i];
	const uint32_t len = fanin_ranks_bytes(n);
	uint8_t bytes[sizeof(struct fanin_ranks) + 2];
	struct random random = random_seed(n + 2);
	struct fanin_ranks set, read;
	struct plain plain;

	ck_assert_uint_eq(fanin_ranks_words(n), (n + 63) / 64);
	ck_assert_uint_eq(len, (n + 63) / 64 * 8);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int wrong = 0;

		draw(&random, n, 1 + round, &set, &plain);
		memset(bytes, 0xa5, sizeof(bytes));
		fanin_ranks_write(bytes + 1, &set, n);
		ck_assert_uint_eq(bytes[0], 0xa5);
		ck_assert_uint_eq(bytes[1 + len], 0xa5);
		for (unsigned int i = 0; i < 8 * len; i++)
			wrong += (bytes[1 + i / 8] >> i % 8 & 1) != (i < n && plain.has[i]);
		ck_assert_uint_eq(wrong, 0);
		memset(&read, 0xff, sizeof(read));
		fanin_ranks_read(&read, bytes + 1, n);
		ck_assert(fanin_ranks_equal(&read, &set));
	}
}
END_TEST

START_TEST(bits_beyond_the_jobs_ranks_are_not_read)
{
	const unsigned int n = sizes[_i];
	const struct fanin_ranks all = fanin_ranks_all(n);
	uint8_t bytes[sizeof(struct fanin_ranks)];
	struct fanin_ranks read;

	memset(bytes, 0xff, sizeof(bytes));
	fanin_ranks_read(&read, bytes, n);
	ck_assert(fanin_ranks_equal(&read, &all));
}
END_TEST

Suite *
suite_ranks(void)
{
	Suite *suite = suite_create("ranks");
	TCase *tests = tcase_create("ranks");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 300);
	tcase_add_loop_test(tests, sets_hold_what_was_added_and_not_removed, 0, N_SIZES);
	tcase_add_loop_test(tests, one_and_all_are_those_ranks, 0, N_SIZES);
	tcase_add_loop_test(tests, sets_are_combined_as_sets, 0, N_SIZES);
	tcase_add_loop_test(tests, sets_on_the_wire_have_the_words_that_the_job_needs, 0, N_SIZES);
	tcase_add_loop_test(tests, bits_beyond_the_jobs_ranks_are_not_read, 0, N_SIZES);
	return suite;
}
