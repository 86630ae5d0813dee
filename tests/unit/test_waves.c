/* SPDX-License-Identifier: BSD-3-Clause */
/* The wave controller (hostlib/src/cc/waves.h): the size of waves, and when the next one begins. */
#include <check.h>

#include "hostlib/src/cc/waves.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

static struct fanin_waves
opened(uint32_t capacity, uint32_t limit, uint32_t wave_blocks, uint32_t n_waves)
{
	const struct fanin_waves_config config = {
		.capacity = capacity,
		.limit = limit,
		.wave_blocks = wave_blocks,
		.n_waves = n_waves,
	};
	struct fanin_waves waves;

	fanin_waves_open(&waves, &config, 0);
	return waves;
}

START_TEST(waves_fill_the_capacity_and_never_pass_the_limit)
{
	/* capacity, limit, wave_blocks, n_waves; and the resulting wave_blocks, n_waves */
	static const uint32_t cases[][6] = {
		{ 256, 1024, 0, 0, 16, 16 }, /* sixteen waves by default */
		{ 4, 1024, 0, 0, 1, 4 },     /* as many as fit */
		{ 0, 64, 0, 0, 4, 16 },      /* an unknown capacity */
		{ 4096, 64, 0, 0, 4, 16 },   /* a capacity that the window doesn't reach */
		{ 64, 1024, 0, 4, 16, 4 },   /* one of the two sizes is given */
		{ 64, 1024, 8, 0, 8, 8 },       { 4, 1024, 8, 0, 8, 1 },
		{ 4, 1024, 8, 64, 8, 64 }, /* both sizes: more than the tables hold */
		{ 4, 128, 8, 64, 8, 16 },       { 64, 1024, 0, 1, 64, 1 },
		{ 64, 32, 100, 2, 32, 1 },      { 64, 1024, 1, 5000, 1, 1024 },
		{ 64, 4096, 1, 5000, 1, 4096 }, { 0, 1, 0, 0, 1, 1 },
		{ 0, 0, 0, 0, 1, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint32_t *c = cases[i];
		const struct fanin_waves waves = opened(c[0], c[1], c[2], c[3]);

		ck_assert_msg(waves.wave_blocks == c[4] && waves.n_waves == c[5],
			      "case %zu: %u waves of %u blocks, expected %u of %u", i,
			      waves.n_waves, waves.wave_blocks, c[5], c[4]);
	}
}
END_TEST

START_TEST(the_next_wave_begins_when_the_oldest_one_is_complete)
{
	struct fanin_waves waves = opened(8, 64, 4, 2);

	ck_assert(fanin_waves_may_start(&waves, 7));
	ck_assert(!fanin_waves_may_start(&waves, 8));
	/* The second wave is completed first. */
	for (uint32_t block = 4; block < 8; block++)
		ck_assert_uint_eq(fanin_waves_completed(&waves, block), 0);
	ck_assert(!fanin_waves_may_start(&waves, 8));
	for (uint32_t block = 0; block < 3; block++)
		ck_assert_uint_eq(fanin_waves_completed(&waves, block), 0);
	ck_assert_uint_eq(fanin_waves_completed(&waves, 3), 8);
	ck_assert(fanin_waves_may_start(&waves, 15));
	ck_assert(!fanin_waves_may_start(&waves, 16));
	/* Blocks of complete waves don't count any more, and may start again. */
	ck_assert_uint_eq(fanin_waves_completed(&waves, 3), 0);
	ck_assert(fanin_waves_may_start(&waves, 3));
}
END_TEST

/* Blocks complete in any order that the waves allow, and their numbers wrap around. */
START_TEST(any_order_of_completions_ends_with_all_blocks_started)
{
	for (uint32_t seed = 0; seed < 50; seed++) {
		struct random random = random_seed(seed);
		const struct fanin_waves_config config = {
			.capacity = 1 + (uint32_t)random_below(&random, 100),
			.limit = 1 + (uint32_t)random_below(&random, 100),
			.wave_blocks = (uint32_t)random_below(&random, 9),
			.n_waves = (uint32_t)random_below(&random, 65),
		};
		const uint32_t first = UINT32_MAX - 200;
		uint32_t flying[100];
		uint32_t n_flying = 0;
		uint32_t started = 0;
		uint32_t complete = 0;
		struct fanin_waves waves;

		fanin_waves_open(&waves, &config, first);
		while (complete < 1000) {
			uint32_t i;

			while (fanin_waves_may_start(&waves, first + started))
				flying[n_flying++] = first + started++;
			ck_assert_uint_gt(n_flying, 0);
			ck_assert_uint_le(n_flying, config.limit);
			i = (uint32_t)random_below(&random, n_flying);
			fanin_waves_completed(&waves, flying[i]);
			flying[i] = flying[--n_flying];
			complete++;
		}
	}
}
END_TEST

Suite *
suite_waves(void)
{
	Suite *suite = suite_create("waves");
	TCase *tcase = tcase_create("waves");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, waves_fill_the_capacity_and_never_pass_the_limit);
	tcase_add_test(tcase, the_next_wave_begins_when_the_oldest_one_is_complete);
	tcase_add_test(tcase, any_order_of_completions_ends_with_all_blocks_started);
	return suite;
}
