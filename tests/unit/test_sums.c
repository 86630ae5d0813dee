/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums and their sets of ranks (hostlib/src/engine/sums.h): parts in any order, any number of times
 * and merged in any way, compared with a sum that is computed from the set alone.
 */
#include <check.h>
#include <string.h>

#include "hostlib/src/engine/sums.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/ranks.h"

#define WORDS 3
#define N_RANKS (64 * (WORDS - 1) + 7)
#define COUNT 5
/* Few enough that parts meet in every way; in all words of a set. */
#define PLAYERS 6

static const unsigned int player_ranks[PLAYERS] = { 0, 1, 63, 64, 127, N_RANKS - 1 };
static struct fanin_sums sums;
static struct fanin_sum sum;
static uint64_t set[WORDS];
static int64_t elements[COUNT] __attribute__((aligned(64)));

static struct fanin_hdr
header(uint8_t op)
{
	return (struct fanin_hdr){ .dtype = FANIN_WIRE_I64, .op = op, .count = COUNT };
}

static void
begin(uint64_t shape)
{
	memset(set, 0xff, sizeof(set));
	memset(elements, 0xff, sizeof(elements));
	fanin_sum_begin(&sums, &sum, set, elements, shape);
}

static void
set_up(void)
{
	sums = (struct fanin_sums){ .isa = fanin_isa_detect(),
				    .n_ranks = N_RANKS,
				    .n_words = WORDS };
	begin(0);
}

/* Makes the set of the players in a bitmap. */
static void
ranks_of(unsigned int players, uint64_t *ranks)
{
	memset(ranks, 0, WORDS * sizeof(*ranks));
	for (unsigned int p = 0; p < PLAYERS; p++) {
		if ((players >> p & 1) != 0)
			ranks[player_ranks[p] / 64] |= UINT64_C(1) << player_ranks[p] % 64;
	}
}

/*
 * Returns the sum of players. Each has a digit of its own, so a sum shows how often each player is
 * in it. `quiet` ones bring nothing.
 */
static int64_t
value_of(unsigned int players, unsigned int quiet, unsigned int i)
{
	int64_t value = 0, digit = 1;

	for (unsigned int p = 0; p < PLAYERS; p++, digit *= 100) {
		if ((players & ~quiet) >> p & 1)
			value += digit * (i + 1);
	}
	return value;
}

static enum fanin_sum_outcome
add(unsigned int players, unsigned int quiet, const struct fanin_hdr *hdr)
{
	int64_t data[COUNT] __attribute__((aligned(64)));
	uint64_t ranks[WORDS];
	const struct fanin_sum_part part = {
		.ranks = ranks,
		.hdr = hdr,
		.payload = (players & ~quiet) == 0 ? NULL : data,
	};

	ranks_of(players, ranks);
	for (unsigned int i = 0; i < COUNT; i++)
		data[i] = value_of(players, quiet, i);
	return fanin_sum_add(&sums, &sum, &part);
}

/* Checks the invariant. */
static void
expect_sum_of(unsigned int players, unsigned int quiet)
{
	uint64_t ranks[WORDS];

	ranks_of(players, ranks);
	ck_assert_mem_eq(set, ranks, sizeof(ranks));
	ck_assert(sum.empty == ((players & ~quiet) == 0));
	ck_assert_uint_eq(fanin_sum_len(&sum), sum.empty ? 0 : sizeof(elements));
	for (unsigned int i = 0; i < COUNT && !sum.empty; i++)
		ck_assert_int_eq(elements[i], value_of(players, quiet, i));
}

/* Each part meets each sum. _i: the players that bring no data. */
START_TEST(each_part_is_merged_or_replaces_or_is_dropped_by_the_sets_alone)
{
	static const unsigned int quiet_ones[] = { 0, 1, 0x15, (1 << PLAYERS) - 1 };
	const unsigned int quiet = quiet_ones[_i];
	const struct fanin_hdr hdr = header(FANIN_WIRE_SUM);

	for (unsigned int there = 0; there < 1u << PLAYERS; there++) {
		for (unsigned int comes = 1; comes < 1u << PLAYERS; comes++) {
			const bool meets = (there & comes) != 0;
			const bool is_replaced = meets && (there & ~comes) == 0 && there != comes;
			enum fanin_sum_outcome expected = FANIN_SUM_OVERLAP;

			if (!meets)
				expected = FANIN_SUM_MERGED;
			else if ((comes & ~there) == 0)
				expected = FANIN_SUM_DUPLICATE;
			else if (is_replaced)
				expected = FANIN_SUM_REPLACED;
			begin(0);
			if (there != 0)
				ck_assert_int_eq(add(there, quiet, &hdr), FANIN_SUM_MERGED);
			ck_assert_int_eq(add(comes, quiet, &hdr), expected);
			expect_sum_of(!meets || is_replaced ? there | comes : there, quiet);
		}
	}
}
END_TEST

/* Parts are random sets, until single ranks complete the sum. _i: a seed. */
START_TEST(each_rank_is_summed_once_and_single_ranks_complete_it)
{
	const struct fanin_hdr hdr = header(FANIN_WIRE_SUM);
	const unsigned int all = (1 << PLAYERS) - 1;
	struct random random = random_seed((uint64_t)_i);
	const unsigned int quiet = random_below(&random, 2) == 0 ? 0 : random_below(&random, all);
	unsigned int there = 0;

	for (unsigned int step = 0; step < 50; step++) {
		const unsigned int comes = 1 + random_below(&random, all);
		const enum fanin_sum_outcome outcome = add(comes, quiet, &hdr);

		if (outcome == FANIN_SUM_MERGED || outcome == FANIN_SUM_REPLACED)
			there |= comes;
		expect_sum_of(there, quiet);
	}
	for (unsigned int p = 0; p < PLAYERS; p++) {
		const bool is_there = (there >> p & 1) != 0;

		ck_assert_int_eq(add(1u << p, quiet, &hdr),
				 is_there ? FANIN_SUM_DUPLICATE : FANIN_SUM_MERGED);
		there |= 1u << p;
	}
	expect_sum_of(all, quiet);
}
END_TEST

START_TEST(a_part_of_another_shape_changes_nothing)
{
	const struct fanin_hdr hdr = header(FANIN_WIRE_SUM);
	struct fanin_hdr others[4] = { hdr, hdr, hdr, hdr };

	others[0].op = FANIN_WIRE_MAX;
	others[1].dtype = FANIN_WIRE_I32;
	others[2].count--;
	others[3].root = 1;
	ck_assert_int_eq(add(3, 0, &hdr), FANIN_SUM_MERGED);
	for (unsigned int i = 0; i < 4; i++) {
		ck_assert_int_eq(add(4, 0, &others[i]), FANIN_SUM_MISMATCH);
		ck_assert_int_eq(add(7, 0, &others[i]), FANIN_SUM_MISMATCH);
		expect_sum_of(3, 0);
	}
	/* This also holds before anything has come, if the shape is known. */
	begin(fanin_wire_shape(&hdr));
	ck_assert_int_eq(add(1, 0, &others[0]), FANIN_SUM_MISMATCH);
	ck_assert_int_eq(add(1, 0, &hdr), FANIN_SUM_MERGED);
}
END_TEST

START_TEST(of_a_copy_the_data_of_one_rank_stays)
{
	const struct fanin_hdr hdr = header(FANIN_WIRE_COPY);

	ck_assert_int_eq(add(1, 0, &hdr), FANIN_SUM_MERGED);
	ck_assert_int_eq(add(2, 2, &hdr), FANIN_SUM_MERGED);
	ck_assert_int_eq(add(4, 0, &hdr), FANIN_SUM_MERGED);
	for (unsigned int i = 0; i < COUNT; i++)
		ck_assert_int_eq(elements[i], value_of(1, 0, i));
	fanin_sum_finish(&sums, &sum);
	for (unsigned int i = 0; i < COUNT; i++)
		ck_assert_int_eq(elements[i], value_of(1, 0, i));
}
END_TEST

START_TEST(an_average_is_divided_once_by_all_ranks)
{
	double data[COUNT] __attribute__((aligned(64)));
	const struct fanin_hdr hdr = { .dtype = FANIN_WIRE_F64,
				       .op = FANIN_WIRE_AVG,
				       .count = COUNT };
	uint64_t ranks[WORDS];
	const struct fanin_sum_part part = { .ranks = ranks, .hdr = &hdr, .payload = data };

	for (unsigned int i = 0; i < COUNT; i++)
		data[i] = N_RANKS * (i + 1.0);
	for (unsigned int i = 0; i < WORDS; i++)
		ranks[i] = fanin_ranks_all_word(N_RANKS, i);
	ck_assert(!fanin_sum_is_whole(&sums, &sum, NULL));
	ck_assert(fanin_sum_is_whole(&sums, &sum, ranks));
	ck_assert_int_eq(fanin_sum_add(&sums, &sum, &part), FANIN_SUM_MERGED);
	ck_assert(fanin_sum_is_whole(&sums, &sum, NULL));
	fanin_sum_finish(&sums, &sum);
	for (unsigned int i = 0; i < COUNT; i++) {
		double found;

		memcpy(&found, &elements[i], sizeof(found));
		ck_assert_double_eq(found, i + 1.0);
	}
}
END_TEST

/* A block without elements lacks no data. */
START_TEST(a_block_without_elements_is_not_empty)
{
	struct fanin_hdr hdr = header(FANIN_WIRE_SUM);

	hdr.count = 0;
	ck_assert_int_eq(add(1, 1, &hdr), FANIN_SUM_MERGED);
	ck_assert(sum.empty);
	fanin_sum_finish(&sums, &sum);
	ck_assert(!sum.empty);
	ck_assert_uint_eq(fanin_sum_len(&sum), 0);
}
END_TEST

START_TEST(a_known_result_takes_the_place_of_what_is_there)
{
	const struct fanin_hdr hdr = header(FANIN_WIRE_SUM);
	int64_t result[COUNT] __attribute__((aligned(64))) = { 1, 2, 3, 4, 5 };

	ck_assert_int_eq(add(5, 0, &hdr), FANIN_SUM_MERGED);
	fanin_sum_put(&sums, &sum, &hdr, result);
	ck_assert(fanin_sum_is_whole(&sums, &sum, NULL));
	ck_assert_mem_eq(elements, result, sizeof(result));
	ck_assert_int_eq(add(5, 0, &hdr), FANIN_SUM_DUPLICATE);
	/* This includes a result that no rank has sent data for. */
	fanin_sum_put(&sums, &sum, &hdr, NULL);
	ck_assert(sum.empty);
}
END_TEST

Suite *
suite_sums(void)
{
	Suite *suite = suite_create("sums");
	TCase *tcase = tcase_create("sums");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_loop_test(tcase, each_part_is_merged_or_replaces_or_is_dropped_by_the_sets_alone,
			    0, 4);
	tcase_add_loop_test(tcase, each_rank_is_summed_once_and_single_ranks_complete_it, 0, 100);
	tcase_add_test(tcase, a_part_of_another_shape_changes_nothing);
	tcase_add_test(tcase, of_a_copy_the_data_of_one_rank_stays);
	tcase_add_test(tcase, an_average_is_divided_once_by_all_ranks);
	tcase_add_test(tcase, a_block_without_elements_is_not_empty);
	tcase_add_test(tcase, a_known_result_takes_the_place_of_what_is_there);
	suite_add_tcase(suite, tcase);
	return suite;
}
