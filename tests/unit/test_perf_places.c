/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of fanin-perf --pattern: which are read, which are refused with which message, and the
 * vectors made from them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/reference/perf_places.h"
#include "lab/reference/perf_sparse.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define N 1000
#define MAX_PLACED_RANKS 6
#define N_RANDOM 300
#define N_MUTATED 3000
#define MAX_TEXT (MAX_PLACED_RANKS * N * 5)

static struct perf_places places;
static char error[PERF_PLACES_ERROR_LEN];
static char path[] = "/tmp/fanin-places-XXXXXX";

/* Loads a text of `len` bytes from a file, which is removed afterwards. */
static int
load_bytes(const char *text, size_t len, uint16_t n_ranks, uint64_t n, bool n_is_fixed)
{
	int descriptor, ret;

	strcpy(path + sizeof(path) - 7, "XXXXXX");
	descriptor = mkstemp(path);
	ck_assert_int_ge(descriptor, 0);
	ck_assert_int_eq(write(descriptor, text, len), (ssize_t)len);
	close(descriptor);
	error[0] = '\0';
	ret = perf_places_load(&places, path, n_ranks, n, n_is_fixed, error);
	ck_assert_int_eq(unlink(path), 0);
	return ret;
}

static int
load(const char *text, uint16_t n_ranks)
{
	return load_bytes(text, strlen(text), n_ranks, N, false);
}

START_TEST(each_rank_has_its_line)
{
	ck_assert_int_eq(load("# places of three ranks\n"
			      "\n"
			      "n 800 # the length\n"
			      "  0 17\t512 799\r\n"
			      "   # nothing of it is an index: 5 3 x\n"
			      "-\n"
			      "17#18",
			      3),
			 0);
	ck_assert_uint_eq(places.n, 800);
	ck_assert_uint_eq(places.n_ranks, 3);
	ck_assert_uint_eq(places.counts[0], 4);
	ck_assert_uint_eq(places.indices[0][0], 0);
	ck_assert_uint_eq(places.indices[0][1], 17);
	ck_assert_uint_eq(places.indices[0][2], 512);
	ck_assert_uint_eq(places.indices[0][3], 799);
	ck_assert_uint_eq(places.counts[1], 0);
	ck_assert_uint_eq(places.counts[2], 1);
	ck_assert_uint_eq(places.indices[2][0], 17);
	ck_assert(perf_places_density(&places) == 4.0 / 800);
	ck_assert_uint_eq(perf_places_find(&places, 0, 0), 0);
	ck_assert_uint_eq(perf_places_find(&places, 0, 18), 2);
	ck_assert_uint_eq(perf_places_find(&places, 0, 800), 4);
	ck_assert_uint_eq(perf_places_find(&places, 1, 0), 0);
	perf_places_free(&places);
}
END_TEST

START_TEST(the_length_is_the_callers_unless_the_file_has_one)
{
	ck_assert_int_eq(load("999\n", 1), 0);
	ck_assert_uint_eq(places.n, N);
	perf_places_free(&places);
	ck_assert_int_eq(load("n 5000\n4999\n", 1), 0);
	ck_assert_uint_eq(places.n, 5000);
	perf_places_free(&places);
	ck_assert_int_eq(load_bytes("n 5000\n4999\n", 12, 1, 5000, true), 0);
	perf_places_free(&places);
	ck_assert_int_eq(load_bytes("n 5000\n4999\n", 12, 1, N, true), -EINVAL);
	ck_assert_str_eq(error + strlen(path),
			 ":1: found n 5000, expected 1000, the vector's length");
}
END_TEST

START_TEST(lines_beyond_the_last_rank_are_not_read)
{
	ck_assert_int_eq(load("1\n2\nnonsense\n", 2), 0);
	perf_places_free(&places);
	ck_assert_int_eq(load("1\n2\nnonsense\n", 3), -EINVAL);
}
END_TEST

static const struct {
	const char *text;
	const char *says; /* after the path */
} wrong[] = {
	{ "", ": found 0 lines of indices, expected 2, one for each rank" },
	{ "n 7\n# 1\n3\n", ": found 1 lines of indices, expected 2, one for each rank" },
	{ "1\n3 2\n", ":2: found 2 after 3, expected indices in ascending order, each once" },
	{ "1 1\n3\n", ":1: found 1 after 1, expected indices in ascending order, each once" },
	{ "1\n\n1000\n", ":3: found the index 1000, expected 0 to 999 in a vector of 1000" },
	{ "n 5\n1\n5\n", ":3: found the index 5, expected 0 to 4 in a vector of 5" },
	{ "18446744073709551616\n1\n",
	  ":1: found the index 18446744073709551616, expected 0 to 999 in a vector of 1000" },
	{ "1\n99999999999999999999999999999999999999999\n",
	  ":2: found the index 999999999999999999999999..., expected 0 to 999 in a vector of 1000" },
	{ "1\n1 -2\n", ":2: found '-2', expected an index in decimal digits" },
	{ "x\n1\n",
	  ":1: found 'x', expected an index in decimal digits, or '-' for a rank without any" },
	{ "1:0.5\n1\n",
	  ":1: found '1:0.5', expected an index in decimal digits, or '-' for a rank without any" },
	{ "1 0x2\n1\n", ":1: found '0x2', expected an index in decimal digits" },
	{ "1,2\n1\n",
	  ":1: found '1,2', expected an index in decimal digits, or '-' for a rank without any" },
	{ "1 \xc3\x28\n1\n", ":1: found '?(', expected an index in decimal digits" },
	{ "- 1\n1\n", ":1: found '1' behind '-', expected the end of the line" },
	{ "n\n1\n2\n", ":1: found 'n' alone, expected the length of the vector behind it" },
	{ "n 0\n1\n2\n", ":1: found 'n 0', expected a length of 1 or more, in decimal digits" },
	{ "n 1e3\n1\n2\n", ":1: found 'n 1e3', expected a length of 1 or more, in decimal digits" },
	{ "n 18446744073709551616\n1\n2\n",
	  ":1: found 'n 18446744073709551616', expected a length of 1 or more, in decimal digits" },
	{ "n 5 6\n1\n2\n", ":1: found '6' behind 'n 5', expected the end of the line" },
	{ "n 5\nn 5\n1\n2\n", ":2: found 'n', expected it once, before the first line of indices" },
	{ "1\nn 5\n2\n", ":2: found 'n', expected it once, before the first line of indices" },
};

#define N_WRONG (int)(sizeof(wrong) / sizeof(wrong[0]))

START_TEST(errors_are_told_with_file_and_line)
{
	ck_assert_int_eq(load(wrong[_i].text, 2), -EINVAL);
	ck_assert_mem_eq(error, path, strlen(path));
	ck_assert_str_eq(error + strlen(path), wrong[_i].says);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_told)
{
	ck_assert_int_eq(perf_places_load(&places, "/nowhere/places", 2, N, false, error), -ENOENT);
	ck_assert_str_eq(error, "/nowhere/places: cannot open: No such file or directory");
	ck_assert_int_eq(perf_places_load(&places, "/", 2, N, false, error), -EISDIR);
	ck_assert_str_eq(error, "/: cannot read: Is a directory");
}
END_TEST

START_TEST(bytes_of_zero_are_no_end_of_a_line)
{
	ck_assert_int_eq(load_bytes("1 \0 2\n3\n", 8, 2, N, false), -EINVAL);
	ck_assert_str_eq(error + strlen(path),
			 ":1: found '?', expected an index in decimal digits");
}
END_TEST

/* Makes random vectors of all ranks, and their text in a file. Returns the length of the text. */
static size_t
text_random(struct random *random, uint16_t n_ranks, bool has[MAX_PLACED_RANKS][N], char *text)
{
	size_t len = 0;

	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		const double density = random_below(random, 3) * 0.1;
		bool any = false;

		if (random_chance(random, 0.2))
			len += (size_t)sprintf(text + len, "# comment\n\n");
		for (unsigned int i = 0; i < N; i++) {
			has[rank][i] = random_chance(random, density);
			if (has[rank][i])
				len += (size_t)sprintf(text + len, "%s%u", any ? " " : "", i);
			any |= has[rank][i];
		}
		len += (size_t)sprintf(text + len, "%s\n", any ? "" : "-");
	}
	return len;
}

START_TEST(written_indices_are_read_back)
{
	struct random random = random_seed(71);
	static bool has[MAX_PLACED_RANKS][N];
	static char text[MAX_TEXT];

	for (int i = 0; i < N_RANDOM; i++) {
		const uint16_t n_ranks = (uint16_t)(1 + random_below(&random, MAX_PLACED_RANKS));
		const size_t len = text_random(&random, n_ranks, has, text);

		ck_assert_msg(load_bytes(text, len, n_ranks, N, true) == 0, "%s", error);
		for (uint16_t rank = 0; rank < n_ranks; rank++) {
			uint64_t at = 0;

			for (uint64_t index = 0; index < N; index++) {
				ck_assert_uint_eq(perf_places_find(&places, rank, index), at);
				if (!has[rank][index])
					continue;
				ck_assert_uint_lt(at, places.counts[rank]);
				ck_assert_uint_eq(places.indices[rank][at++], index);
			}
			ck_assert_uint_eq(at, places.counts[rank]);
		}
		perf_places_free(&places);
	}
}
END_TEST

/*
 * Bytes of a valid text are changed, removed and duplicated: if it is still read, its indices
 * ascend and are below its length.
 */
START_TEST(any_file_is_read_or_refused)
{
	static const char bytes[] = "0123456789 \t\r\n#n-x:\0\xff";
	struct random random = random_seed(72);
	static bool has[MAX_PLACED_RANKS][N];
	static char text[MAX_TEXT];
	unsigned int n_read = 0;

	for (int i = 0; i < N_MUTATED; i++) {
		const uint16_t n_ranks = (uint16_t)(1 + random_below(&random, 3));
		size_t len = text_random(&random, n_ranks, has, text);
		int ret;

		for (uint32_t change = 1 + random_below(&random, 4); change > 0; change--) {
			const size_t at = random_below(&random, (uint32_t)len);

			if (random_chance(&random, 0.5))
				text[at] = bytes[random_below(&random, sizeof(bytes) - 1)];
			else
				len = at + 1;
		}
		ret = load_bytes(text, len, n_ranks, N, false);
		if (ret != 0) {
			ck_assert_int_eq(ret, -EINVAL);
			ck_assert_ptr_nonnull(strstr(error, "expected"));
			ck_assert_mem_eq(error, path, strlen(path));
			continue;
		}
		n_read++;
		for (uint16_t rank = 0; rank < n_ranks; rank++) {
			for (uint64_t at = 0; at < places.counts[rank]; at++) {
				ck_assert_uint_lt(places.indices[rank][at], places.n);
				ck_assert(at == 0 ||
					  places.indices[rank][at] > places.indices[rank][at - 1]);
			}
		}
		perf_places_free(&places);
	}
	/* Both outcomes occur. */
	ck_assert_uint_gt(n_read, N_MUTATED / 20);
	ck_assert_uint_lt(n_read, N_MUTATED);
}
END_TEST

/* This includes parts whose length is not a chunk's, and that don't begin with a chunk. */
START_TEST(vectors_and_their_sum_have_values_where_the_file_says)
{
	const struct perf_sparse sparse = {
		.data = { .dtype = FANIN_U32,
			  .op = FANIN_SUM,
			  .seed = 3,
			  .size = MAX_PLACED_RANKS },
		.places = &places,
	};
	struct random random = random_seed(73);
	static bool has[MAX_PLACED_RANKS][N];
	static char text[MAX_TEXT];
	static uint64_t indices[N];
	static uint32_t values[N], sums[N], found[N];
	const size_t len = text_random(&random, MAX_PLACED_RANKS, has, text);

	ck_assert_int_eq(load_bytes(text, len, MAX_PLACED_RANKS, N, false), 0);
	for (uint16_t rank = 0; rank < MAX_PLACED_RANKS; rank++) {
		const uint64_t count = perf_sparse_fill(&sparse, rank, 7, N, 8, indices, values);
		uint64_t at = 0;

		for (uint64_t i = 0; i < N; i++) {
			uint32_t value;

			if (!has[rank][i])
				continue;
			perf_data_fill(&sparse.data, rank, 7, i, 1, &value);
			ck_assert_uint_eq(indices[at], i);
			ck_assert_uint_eq(values[at++], value);
			sums[i] += value;
		}
		ck_assert_uint_eq(count, at);
	}
	for (uint64_t first = 0; first < N; first += 613)
		perf_sparse_expect(&sparse, 7, first, N - first < 613 ? N - first : 613,
				   found + first);
	ck_assert_mem_eq(sums, found, sizeof(sums));
	perf_places_free(&places);
}
END_TEST

Suite *
suite_perf_places(void)
{
	Suite *suite = suite_create("perf_places");
	TCase *tcase = tcase_create("places");

	tcase_add_test(tcase, each_rank_has_its_line);
	tcase_add_test(tcase, the_length_is_the_callers_unless_the_file_has_one);
	tcase_add_test(tcase, lines_beyond_the_last_rank_are_not_read);
	tcase_add_loop_test(tcase, errors_are_told_with_file_and_line, 0, N_WRONG);
	tcase_add_test(tcase, a_file_that_cannot_be_read_is_told);
	tcase_add_test(tcase, bytes_of_zero_are_no_end_of_a_line);
	tcase_add_test(tcase, written_indices_are_read_back);
	tcase_add_test(tcase, any_file_is_read_or_refused);
	tcase_add_test(tcase, vectors_and_their_sum_have_values_where_the_file_says);
	suite_add_tcase(suite, tcase);
	return suite;
}
