/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense vectors that may be sparse: when sparse ones pay, that all ranks decide the same, and that
 * sums are the same either way.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/dense/host/window.h"
#include "protocols/sparse/host/sparse.h"
#include "hostlib/src/vector/vector.h"
#include "lab/reference/random.h"
#include "protocols/sparse/tests/sparse_comms.h"
#include "tests/unit/suites.h"

#define N 20000

static struct fanin_report
report_of(uint16_t rank)
{
	struct fanin_report report = { .sz = sizeof(report) };

	ck_assert_int_eq(fanin_comm_report(&sparse_comms[rank], &report), FANIN_OK);
	return report;
}

static bool
pays(uint64_t n, uint64_t most, uint16_t n_ranks, uint8_t element_bytes, bool on_switch)
{
	const struct fanin_vector sparse = { .n = n, .element_bytes = element_bytes };

	return fanin_vector_pays(&sparse, most, n_ranks, on_switch);
}

START_TEST(it_pays_until_the_result_is_nearly_full)
{
	const bool on_switch = _i == 0;

	for (uint16_t n_ranks = 2; n_ranks <= 1024; n_ranks *= 2) {
		for (uint8_t element_bytes = 1; element_bytes <= 8; element_bytes *= 2) {
			bool before = true;

			ck_assert(pays(1000000, 0, n_ranks, element_bytes, on_switch));
			for (uint64_t most = 0; most <= 1000000; most += 997) {
				const bool now = pays(1000000, most, n_ranks, element_bytes,
						      on_switch);

				/*
				 * If it does not pay for some number of values, it does not pay for
				 * more.
				 */
				ck_assert(before || !now);
				before = now;
			}
			ck_assert(!before);
			ck_assert(!pays(1000000, 1000000, n_ranks, element_bytes, on_switch));
		}
	}
	ck_assert(!pays(0, 0, 4, 4, on_switch));
	/* A fifth of 8 ranks' values makes a result of five sixths. */
	ck_assert(pays(1 << 22, (1 << 22) / 10, 8, 4, on_switch));
	ck_assert_int_eq(pays(1 << 22, (1 << 22) / 8, 8, 4, on_switch), on_switch);
	ck_assert(pays(1 << 22, (1 << 22) / 20, 8, 4, on_switch));
	ck_assert(!pays(1 << 22, (1 << 22) / 5, 8, 4, on_switch));
	ck_assert(pays(UINT64_C(1) << 40, UINT64_C(1) << 30, 8, 4, on_switch));
	ck_assert(!pays(UINT64_C(1) << 40, UINT64_C(1) << 39, 8, 4, on_switch));
}
END_TEST

/* Makes small whole numbers at random indices, so that sums are exact in any order. */
static void
vector_fill(float *vector, struct random *random, double density)
{
	for (uint64_t i = 0; i < N; i++)
		vector[i] = random_chance(random, density) ? (float)random_below(random, 100) - 50
							   : 0;
}

struct hinted {
	double density[SPARSE_WORLD_RANKS];
	bool is_sparse;
};

static const struct hinted worlds[] = {
	{ { 0.001, 0.001, 0.001 }, true },
	{ { 0, 0, 0 }, true },
	/* Only one rank has too many values. */
	{ { 0, 0, 0.9 }, false },
	{ { 0.01, 0.02, 0.1 }, true },
	{ { 1, 1, 1 }, false },
};

START_TEST(sums_are_the_same_whichever_way_they_take)
{
	const struct hinted *world = &worlds[_i / 2];
	const bool in_place = _i % 2 != 0;
	static float send[3][N], recv[3][N];
	static double expected[N];
	struct random random = random_seed((uint64_t)_i);
	fanin_request *requests[SPARSE_WORLD_RANKS];

	sparse_comms_open(3);
	sparse_world.loss = 0.02;
	sparse_world.duplication = 0.02;
	for (int round = 0; round < 3; round++) {
		memset(expected, 0, sizeof(expected));
		for (uint16_t rank = 0; rank < 3; rank++) {
			vector_fill(send[rank], &random, world->density[rank]);
			for (uint64_t i = 0; i < N; i++)
				expected[i] += (double)send[rank][i];
			memset(recv[rank], 0xa5, sizeof(recv[rank]));
		}
		for (uint16_t rank = 0; rank < 3; rank++) {
			float *to = in_place ? send[rank] : recv[rank];

			ck_assert_int_eq(fanin_iallreduce_hinted(send[rank], to, N, FANIN_F32,
								 FANIN_SUM, FANIN_MAYBE_SPARSE,
								 &sparse_comms[rank],
								 &requests[rank]),
					 FANIN_OK);
		}
		ck_assert_int_eq(sparse_comms_finish(requests), FANIN_OK);
		for (uint16_t rank = 0; rank < 3; rank++) {
			const float *found = in_place ? send[rank] : recv[rank];

			for (uint64_t i = 0; i < N; i++)
				ck_assert_float_eq(found[i], (float)expected[i]);
			ck_assert_uint_eq(report_of(rank).maybe_sparse, (uint64_t)round + 1);
			ck_assert_uint_eq(report_of(rank).maybe_sparse_taken,
					  world->is_sparse ? (uint64_t)round + 1 : 0);
			ck_assert_uint_eq(report_of(rank).sparse_blocks != 0, world->is_sparse);
		}
	}
	sparse_world_close();
}
END_TEST

/*
 * Hints change nothing if sparse vectors can't carry the operation: the ranks do not even start an
 * agreement.
 */
START_TEST(a_hint_is_ignored_where_it_does_not_apply)
{
	static const struct {
		enum fanin_dtype dtype;
		enum fanin_op op;
	} calls[] = {
		{ FANIN_U32, FANIN_MAX },
		{ FANIN_U32, FANIN_BOR },
		{ FANIN_U8, FANIN_SUM },  /* with a handler that does not support sparse blocks */
		{ FANIN_F16, FANIN_SUM }, /* accumulated in f32 */
	};
	uint64_t data[2][64];
	fanin_request *requests[SPARSE_WORLD_RANKS];

	sparse_comms_open(2);
	for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++) {
		const size_t size = fanin_dtype_size_of(calls[k].dtype);

		for (uint16_t rank = 0; rank < 2; rank++) {
			memset(data[rank], 0, sizeof(data[rank]));
			/*
			 * 1 at one index of rank 0, 2 at another one of rank 1; as f16 these are
			 * the bits of a small number.
			 */
			((uint8_t *)data[rank])[(3 + 5 * rank) * size] = (uint8_t)(1 + rank);
			sparse_comms[rank].member.wide = calls[k].dtype == FANIN_F16;
			sparse_comms[rank].protocol = calls[k].dtype == FANIN_U8
							      ? &fanin_protocol_window
							      : &fanin_protocol_sparse;
			ck_assert_int_eq(fanin_iallreduce_hinted(data[rank], data[rank], 64,
								 calls[k].dtype, calls[k].op,
								 FANIN_MAYBE_SPARSE,
								 &sparse_comms[rank],
								 &requests[rank]),
					 FANIN_OK);
			ck_assert(!sparse_comms[rank].agreement.is_open);
		}
		ck_assert_int_eq(sparse_comms_finish(requests), FANIN_OK);
		for (uint16_t rank = 0; rank < 2; rank++) {
			for (size_t i = 0; i < 64 * size; i++)
				ck_assert_uint_eq(((const uint8_t *)data[rank])[i],
						  i == 3 * size   ? 1u
						  : i == 8 * size ? 2u
								  : 0u);
		}
	}
	ck_assert_uint_eq(report_of(0).maybe_sparse, 0);
	sparse_world_close();
}
END_TEST

START_TEST(unknown_hints_are_told)
{
	static float data[1];
	fanin_request *request;

	sparse_comms_open(2);
	ck_assert_int_eq(fanin_iallreduce_hinted(data, data, 1, FANIN_F32, FANIN_SUM, 6,
						 &sparse_comms[0], &request),
			 FANIN_ERR_INVALID);
	ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[0]),
			 "hints are 0x6, expected 0 or FANIN_MAYBE_SPARSE");
	sparse_world_close();
}
END_TEST

/*
 * Posts a hinted sum of `count` ones at index 5 at each rank, with `less` fewer elements at rank 1.
 */
static void
post_ones(float (*data)[N], uint64_t less, fanin_request **requests)
{
	for (uint16_t rank = 0; rank < 2; rank++) {
		memset(data[rank], 0, sizeof(data[rank]));
		data[rank][5] = 1;
		ck_assert_int_eq(fanin_iallreduce_hinted(data[rank], data[rank], N - rank * less,
							 FANIN_F32, FANIN_SUM, FANIN_MAYBE_SPARSE,
							 &sparse_comms[rank], &requests[rank]),
				 FANIN_OK);
	}
}

START_TEST(another_count_is_an_error_at_all_ranks_and_the_next_call_is_none)
{
	static float data[2][N];
	fanin_request *requests[SPARSE_WORLD_RANKS];
	char text[128];

	sparse_comms_open(2);
	post_ones(data, 1, requests);
	for (uint16_t rank = 0; rank < 2; rank++) {
		while (fanin_test(requests[rank]) == FANIN_IN_PROGRESS) {
			sparse_world_step();
			fanin_progress(&sparse_contexts[0]);
			fanin_progress(&sparse_contexts[1]);
		}
		ck_assert_int_eq(fanin_wait(&requests[rank]), FANIN_ERR_INVALID);
		snprintf(text, sizeof(text),
			 "n is %d here, and 19999 to 20000 at all ranks, expected the same at all",
			 N - rank);
		ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[rank]), text);
	}
	post_ones(data, 0, requests);
	ck_assert_int_eq(sparse_comms_finish(requests), FANIN_OK);
	for (uint16_t rank = 0; rank < 2; rank++) {
		ck_assert_float_eq(data[rank][5], 2);
		ck_assert_uint_eq(report_of(rank).maybe_sparse_taken, 1);
	}
	sparse_world_close();
}
END_TEST

Suite *
suite_sparse_hint(void)
{
	Suite *suite = suite_create("sparse_hint");
	TCase *hint = tcase_create("hint");

	tcase_set_timeout(hint, 60);
	tcase_add_loop_test(hint, it_pays_until_the_result_is_nearly_full, 0, 2);
	tcase_add_loop_test(hint, sums_are_the_same_whichever_way_they_take, 0,
			    2 * (int)(sizeof(worlds) / sizeof(worlds[0])));
	tcase_add_test(hint, a_hint_is_ignored_where_it_does_not_apply);
	tcase_add_test(hint, unknown_hints_are_told);
	tcase_add_test(hint, another_count_is_an_error_at_all_ranks_and_the_next_call_is_none);
	suite_add_tcase(suite, hint);
	return suite;
}
