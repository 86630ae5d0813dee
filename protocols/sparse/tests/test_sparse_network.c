/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces in virtual time: real engines around real pipelines, on one switch and on
 * leaves below a spine, with and without faults. Cases are chosen such that any two values of
 * different dimensions occur together in one of them.
 */
#include <check.h>
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "protocols/sparse/tests/sparse_trial.h"
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

/* Returns how many pairs of a case are new. take: they count as used from now on. */
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

/* Chooses the cases: each is the best of some random ones. */
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
			/* A hint that is too small makes blocks of many shards. */
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

	sparse_trial_run(&trial, NULL);
}

START_TEST(results_are_exact)
{
	ring_switch_eal();
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

/* Special cases, for each handler on one switch and on leaves below a spine. */
#define N_HANDLERS 3
#define N_NETWORKS (2 * N_HANDLERS)
#define PAYLOAD 1408 /* of packets at an MTU of 1500 */

static struct sparse_trial
trial_of(int network)
{
	return (struct sparse_trial){
		.vectors = { .n = N_INDICES,
			     .seed = (uint64_t)network,
			     .n_ranks = 4,
			     .dtype = FANIN_WIRE_I32,
			     .op = FANIN_WIRE_SUM,
			     .index_bytes = 4 },
		.handler = handlers[network % N_HANDLERS],
		.slots = SLOTS,
		.mtu = 1500,
		.tree = network >= N_HANDLERS,
	};
}

/* For every block: the distance between values, and their number. */
static uint32_t span, stride, per_block;

static bool
has_as_many_per_block(uint16_t rank, uint64_t index)
{
	const uint64_t at = index % span;

	(void)rank;
	return at % stride == 0 && at / stride < per_block;
}

START_TEST(blocks_whose_values_exactly_fill_their_packets_are_complete)
{
	const uint32_t most = fanin_shard_list_max(N_INDICES, 4, PAYLOAD);
	const double hint = 0.01;
	struct sparse_trial trial = trial_of(_i);
	struct sparse_trial_counts counts;

	ring_switch_eal();
	/* The length is a multiple of the block's. */
	for (int i = 0; i < 10; i++) {
		span = fanin_vector_span(trial.vectors.n,
					 1 + (uint64_t)(hint * (double)trial.vectors.n), 4,
					 PAYLOAD);
		trial.vectors.n = 3 * (uint64_t)span;
	}
	trial.vectors.hint = hint;
	for (uint32_t packets = 1; packets <= 3; packets++) {
		per_block = packets * most;
		stride = span / per_block;
		trial.vectors.has = has_as_many_per_block;
		sparse_trial_run(&trial, &counts);
		ck_assert_uint_eq(counts.span, span);
		ck_assert_uint_eq(counts.blocks, 2 * 3);
		/* All packets are full, up and down. */
		ck_assert_uint_eq(counts.shards_sent, packets * counts.blocks);
		ck_assert_uint_eq(counts.shards_received, packets * counts.blocks);
	}
}
END_TEST

static bool
has_nothing(uint16_t rank, uint64_t index)
{
	(void)rank;
	(void)index;
	return false;
}

START_TEST(vectors_without_a_value_are_over_at_all_ranks)
{
	struct sparse_trial trial = trial_of(_i);
	struct sparse_trial_counts counts;

	ring_switch_eal();
	trial.vectors.n = 100000;
	trial.vectors.has = has_nothing;
	trial.vectors.hint = 0.1;
	sparse_trial_run(&trial, &counts);
	ck_assert_uint_gt(counts.blocks, 10);
	ck_assert_uint_eq(counts.shards_sent, counts.blocks);
	ck_assert_uint_eq(counts.shards_received, counts.blocks);
}
END_TEST

static bool
has_every_seventh(uint16_t rank, uint64_t index)
{
	(void)rank;
	return index % 7 == 0;
}

/*
 * Each rank has zeros at some indices, and all ranks have zeros at others: a table must not take
 * them for free places.
 */
static uint64_t
zero_or_rank(uint16_t rank, uint64_t index)
{
	const int32_t value = (index / 7) % 5 == rank || (index / 7) % 5 == 4 ? 0
			      : (index & 8) != 0                              ? -2 - rank
									      : 2 + rank;

	return (uint32_t)value;
}

START_TEST(zeros_are_values_to_every_operator)
{
	struct sparse_trial trial = trial_of(_i);

	ring_switch_eal();
	trial.vectors.has = has_every_seventh;
	trial.vectors.value = zero_or_rank;
	for (uint8_t op = FANIN_WIRE_SUM; op < FANIN_WIRE_OP_COUNT; op++) {
		if (op == FANIN_WIRE_AVG)
			continue;
		trial.vectors.op = op;
		sparse_trial_run(&trial, NULL);
	}
}
END_TEST

/* Ranks 0 and 1 cancel, ranks 2 and 3 do, too, and so do partial sums at leaves. */
static uint64_t
cancelling(uint16_t rank, uint64_t index)
{
	const int32_t value = (int32_t)index + 1 + rank / 2;

	return (uint32_t)(rank % 2 == 0 ? value : -value);
}

START_TEST(sums_that_cancel_are_in_the_result)
{
	struct sparse_trial trial = trial_of(_i);

	ring_switch_eal();
	trial.vectors.has = has_every_seventh;
	trial.vectors.value = cancelling;
	sparse_trial_run(&trial, NULL);
}
END_TEST

START_TEST(duplicates_are_no_shards)
{
	struct sparse_trial trial = trial_of(_i);
	struct sparse_trial_counts counts;

	ring_switch_eal();
	trial.vectors.density = 0.05;
	/* Each block has some shards. */
	trial.vectors.hint = 0.01;
	trial.doubled = 0.5;
	sparse_trial_run(&trial, &counts);
	ck_assert_uint_gt(counts.shards_sent, 2 * counts.blocks);
	ck_assert_uint_gt(counts.duplicates, 0);
}
END_TEST

/*
 * At 0.2 %, where the ranks expect so few values that longer indices cost less than more packets,
 * and the longest packets.
 */
START_TEST(spans_of_more_than_16_bits_are_exact)
{
	struct sparse_trial trial = trial_of(_i);
	struct sparse_trial_counts counts;

	ring_switch_eal();
	trial.mtu = 9000;
	trial.slots = 8;
	trial.vectors.n = 300000;
	trial.vectors.density = 0.002;
	trial.vectors.hint = 0.0005;
	trial.vectors.dtype = FANIN_WIRE_F32;
	sparse_trial_run(&trial, &counts);
	ck_assert_uint_gt(counts.span, 65536);
	ck_assert_uint_eq(counts.shards_sent, counts.blocks);
}
END_TEST

/* All ranks have values at all indices, with a hint close to 0. */
START_TEST(blocks_of_the_largest_span_may_be_full)
{
	struct sparse_trial trial = trial_of(_i);
	struct sparse_trial_counts counts;

	ring_switch_eal();
	span = fanin_shard_span_max(4, PAYLOAD);
	trial.vectors.n = 2 * (uint64_t)span;
	trial.vectors.density = 1;
	trial.vectors.hint = 1e-9;
	sparse_trial_run(&trial, &counts);
	ck_assert_uint_eq(counts.span, span);
	ck_assert_uint_eq(counts.shards_sent, FANIN_SHARDS_FULL * counts.blocks);
	ck_assert_uint_ge(counts.shards_received, FANIN_SHARDS_FULL * counts.blocks);
}
END_TEST

Suite *
suite_sparse_network(void)
{
	Suite *suite = suite_create("sparse_network");
	TCase *tcase = tcase_create("sparse_network");
	TCase *known = tcase_create("known");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, each_two_values_meet_in_a_case);
	tcase_add_loop_test(tcase, results_are_exact, 0, N_PARTS);
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(known, 120);
	tcase_add_loop_test(known, blocks_whose_values_exactly_fill_their_packets_are_complete, 0,
			    N_NETWORKS);
	tcase_add_loop_test(known, vectors_without_a_value_are_over_at_all_ranks, 0, N_NETWORKS);
	tcase_add_loop_test(known, zeros_are_values_to_every_operator, 0, N_NETWORKS);
	tcase_add_loop_test(known, sums_that_cancel_are_in_the_result, 0, N_NETWORKS);
	tcase_add_loop_test(known, duplicates_are_no_shards, 0, N_NETWORKS);
	tcase_add_loop_test(known, spans_of_more_than_16_bits_are_exact, 0, N_NETWORKS);
	tcase_add_loop_test(known, blocks_of_the_largest_span_may_be_full, 0, N_NETWORKS);
	suite_add_tcase(suite, known);
	return suite;
}
