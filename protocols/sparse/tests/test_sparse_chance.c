/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces in virtual time, with everything random: 2,000 of them. FANIN_SPARSE_SEED=N
 * runs only the one with this seed; with FANIN_SPARSE_CASES=M, M of them from this seed on.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <fanin/fanin.h>

#include "tests/unit/ring_switch.h"
#include "protocols/sparse/tests/sparse_trial.h"
#include "tests/unit/suites.h"

#define FIRST_SEED 1000000u
#define N_CASES 2000u
#define PART 50u /* cases of a test */
#define MAX_PARTS 4096

/*
 * The current seed of each test, 0 if it has ended well. Tests are processes of their own, and
 * share this memory.
 */
static uint32_t *at_seed;
static uint32_t first_seed, n_cases;

/* One of several values. */
#define CHOOSE(random, values) (values)[random_below(random, sizeof(values) / sizeof((values)[0]))]

static void
operation_choose(struct random *random, uint8_t *dtype, uint8_t *op)
{
	do {
		*dtype = (uint8_t)(FANIN_I8 + random_below(random, FANIN_F64 - FANIN_I8 + 1));
		*op = (uint8_t)(FANIN_SUM + random_below(random, FANIN_BXOR - FANIN_SUM + 1));
	} while (!fanin_supports((enum fanin_dtype) * dtype, (enum fanin_op) * op));
}

static struct sparse_trial
trial_choose(uint32_t seed)
{
	static const uint16_t hosts[] = { 1, 2, 3, 8, 16 };
	static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 1 };
	static const double hints[] = { 0, 1, 0.05, 20 };
	static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };
	static const uint32_t slots[] = { 4, 16, 32 };
	static const uint16_t mtus[] = { 1300, 1500, 2200 };
	struct random random = random_seed(seed);
	struct sparse_trial trial = {
		.vectors = {
			.n = 1 + random_below(&random, CHOOSE(&random, ((uint32_t[]){ 300, 12000 }))),
			.seed = seed,
			.density = CHOOSE(&random, densities),
			.pattern = (enum sparse_pattern)random_below(&random, SPARSE_PATTERNS),
			.n_ranks = CHOOSE(&random, hosts),
			.index_bytes = random_chance(&random, 0.5) ? 4 : 8,
		},
		.handler = CHOOSE(&random, handlers),
		.slots = CHOOSE(&random, slots),
		.mtu = CHOOSE(&random, mtus),
		.tree = random_chance(&random, 0.5),
		.faults = random_chance(&random, 0.5) ? 0.05 : 0,
	};
	const uint32_t output = random_below(&random, 3);
	const double hint = CHOOSE(&random, hints) * trial.vectors.density;

	trial.vectors.dense = output == 0;
	trial.vectors.in_place = output == 1;
	trial.vectors.hint = hint < 1 ? hint : 1;
	operation_choose(&random, &trial.vectors.dtype, &trial.vectors.op);
	return trial;
}

START_TEST(chance_reductions_are_exact)
{
	ring_switch_eal();
	for (uint32_t i = (uint32_t)_i * PART; i < n_cases && i < ((uint32_t)_i + 1) * PART; i++) {
		const struct sparse_trial trial = trial_choose(first_seed + i);

		at_seed[_i] = first_seed + i;
		sparse_trial_run(&trial, NULL);
	}
	at_seed[_i] = 0;
}
END_TEST

static void
seeds_begin(void)
{
	at_seed = mmap(NULL, MAX_PARTS * sizeof(*at_seed), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(at_seed, MAP_FAILED);
}

/* Prints the seeds, even of a case that crashed or did not end. */
static void
seeds_end(void)
{
	for (uint32_t part = 0; part < MAX_PARTS; part++) {
		const uint32_t seed = at_seed[part];
		const struct sparse_trial trial = trial_choose(seed);

		if (seed != 0)
			fprintf(stderr,
				"sparse_chance: failed: FANIN_SPARSE_SEED=%u, handler %s, %u ranks, %s %s, n %lu, "
				"density %g, pattern %d, %u slots, MTU %u%s%s\n",
				seed, trial.handler, trial.vectors.n_ranks,
				fanin_dtype_name_of((enum fanin_dtype)trial.vectors.dtype),
				fanin_op_name_of((enum fanin_op)trial.vectors.op),
				(unsigned long)trial.vectors.n, trial.vectors.density,
				(int)trial.vectors.pattern, trial.slots, trial.mtu,
				trial.tree ? ", leaves and a spine" : "",
				trial.faults != 0 ? ", faults" : "");
	}
	munmap(at_seed, MAX_PARTS * sizeof(*at_seed));
}

static uint32_t
number_of(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : (uint32_t)strtoul(text, NULL, 0);
}

Suite *
suite_sparse_chance(void)
{
	Suite *suite = suite_create("sparse_chance");
	TCase *tcase = tcase_create("sparse_chance");

	first_seed = number_of("FANIN_SPARSE_SEED", FIRST_SEED);
	n_cases = number_of("FANIN_SPARSE_CASES",
			    getenv("FANIN_SPARSE_SEED") == NULL ? N_CASES : 1);
	if (n_cases > MAX_PARTS * PART)
		n_cases = MAX_PARTS * PART;
	tcase_set_timeout(tcase, 300);
	tcase_add_unchecked_fixture(tcase, seeds_begin, seeds_end);
	tcase_add_loop_test(tcase, chance_reductions_are_exact, 0,
			    (int)((n_cases + PART - 1) / PART));
	suite_add_tcase(suite, tcase);
	return suite;
}
