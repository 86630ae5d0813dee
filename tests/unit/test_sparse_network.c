/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces in virtual time: real engines around real pipelines, on one switch and on leaves below a spine, with and without faults.
 * Cases are chosen so that each two values of different dimensions meet in one of them.
 */
#include <check.h>
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "tests/unit/sparse_trial.h"
#include "tests/unit/suites.h"

#define N_INDICES 12000
#define SLOTS 32

#define N_CASES 200
#define N_PARTS 10 /* tests that share the cases */
#define N_TRIES 40

enum dimension {
	HOSTS,
	DENSITY,
	PATTERN,
	DTYPE,
	OP,
	HANDLER,
	TREE,
	FAULTS,
	OUTPUT,
	HINT,
	DIMENSIONS
};

static const uint16_t hosts[] = { 1, 2, 3, 8, 16 };
static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 1 };
static const uint8_t dtypes[] = { FANIN_WIRE_F32, FANIN_WIRE_I32, FANIN_WIRE_BF16, FANIN_WIRE_F64,
				  FANIN_WIRE_U8 };
static const uint8_t ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_MIN, FANIN_WIRE_MAX, FANIN_WIRE_PROD };
static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };
static const uint8_t sizes[DIMENSIONS] = { 5, 7, SPARSE_PATTERNS, 5, 4, 3, 2, 2, 3, 2 };

static uint8_t cases[N_CASES][DIMENSIONS];
static bool met[DIMENSIONS][8][DIMENSIONS][8];

/* How many pairs of a case have not met before. take: they have from now on. */
static unsigned int
pairs_new(const uint8_t *values, bool take)
{
	unsigned int n = 0;

	for (int a = 0; a < DIMENSIONS; a++) {
		for (int b = a + 1; b < DIMENSIONS; b++) {
			n += !met[a][values[a]][b][values[b]];
			met[a][values[a]][b][values[b]] |= take;
		}
	}
	return n;
}

/* Each case is the best of some random ones. */
static void
cases_choose(void)
{
	struct random random = random_seed(2026);

	for (int i = 0; i < N_CASES; i++) {
		unsigned int best = 0;

		for (int try = 0; try < N_TRIES; try++) {
			uint8_t values[DIMENSIONS];
			unsigned int n;

			for (int d = 0; d < DIMENSIONS; d++)
				values[d] = (uint8_t)random_below(&random, sizes[d]);
			n = pairs_new(values, false);
			if (try == 0 || n > best) {
				memcpy(cases[i], values, sizeof(values));
				best = n;
			}
		}
		pairs_new(cases[i], true);
	}
}

static void
case_run(unsigned int number)
{
	const uint8_t *values = cases[number];
	const struct sparse_trial trial = {
		.vectors = {
			.n = N_INDICES,
			.seed = number,
			.density = densities[values[DENSITY]],
			/* One that is too small makes blocks of many shards. */
			.hint = values[HINT] == 0 ? 0 : densities[values[DENSITY]] / 20,
			.pattern = (enum sparse_pattern)values[PATTERN],
			.n_ranks = hosts[values[HOSTS]],
			.dtype = dtypes[values[DTYPE]],
			.op = ops[values[OP]],
			.index_bytes = number % 2 == 0 ? 4 : 8,
			.dense = values[OUTPUT] == 0,
			.in_place = values[OUTPUT] == 1,
		},
		.handler = handlers[values[HANDLER]],
		.slots = SLOTS,
		.mtu = 1500,
		.tree = values[TREE] != 0,
		.faults = values[FAULTS] != 0 ? 0.05 : 0,
	};

	sparse_trial_run(&trial);
}

START_TEST(results_are_exact)
{
	ring_switch_eal_of(256);
	cases_choose();
	for (unsigned int i = (unsigned int)_i; i < N_CASES; i += N_PARTS)
		case_run(i);
}
END_TEST

START_TEST(each_two_values_meet_in_a_case)
{
	cases_choose();
	for (int a = 0; a < DIMENSIONS; a++) {
		for (int b = a + 1; b < DIMENSIONS; b++) {
			for (int i = 0; i < sizes[a] * sizes[b]; i++)
				ck_assert(met[a][i / sizes[b]][b][i % sizes[b]]);
		}
	}
}
END_TEST

Suite *
suite_sparse_network(void)
{
	Suite *suite = suite_create("sparse_network");
	TCase *tcase = tcase_create("sparse_network");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, each_two_values_meet_in_a_case);
	tcase_add_loop_test(tcase, results_are_exact, 0, N_PARTS);
	suite_add_tcase(suite, tcase);
	return suite;
}
