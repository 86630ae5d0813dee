/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse blocks in switches: whatever hosts bring, in whatever form, order and number of packets, all have the sum of exactly that, also where packets are lost,
 * doubled and reordered.
 */
#include <string.h>

#include "reference/kernel_reference.h"
#include "tests/unit/sparse_rig.h"
#include "tests/unit/suites.h"

#define PAYLOAD 512

static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };

#define N_HANDLERS (int)RTE_DIM(handlers)

static struct sparse_rig rig;

/* Each handler, on one switch and on two levels. */
static void
start_of(int which, uint16_t n_hosts, uint16_t payload_bytes)
{
	sparse_rig_start(&rig, handlers[which % N_HANDLERS], n_hosts, which < N_HANDLERS ? 0 : 2,
			 payload_bytes);
}

static void
start(int which, uint16_t n_hosts)
{
	start_of(which, n_hosts, PAYLOAD);
}

#define N_NETWORKS (2 * N_HANDLERS)

START_TEST(every_operator_is_exact_on_every_data_type)
{
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (!fanin_operation_defined(dtype, op) || op == FANIN_WIRE_AVG)
				continue;
			/* Room for 64 elements of 8 bytes and their bits. */
			start_of(_i, 4, 576);
			rig.dtype = dtype;
			rig.op = op;
			rig.span = 300;
			rig.bitmaps = op % 2 == 0;
			sparse_rig_fill(&rig, 0, 100);
			sparse_rig_fill(&rig, 1, 500);
			rig.reorder = true;
			sparse_rig_run(&rig, 2);
			ck_assert_uint_eq(rig.asked, 0);
			sparse_rig_stop(&rig);
		}
	}
}
END_TEST

START_TEST(every_density_is_exact)
{
	static const unsigned int densities[] = { 0, 1, 10, 100, 300, 600, 999, 1000 };
	static const uint32_t spans[] = { 1, 63, 64, 65, 1000, 4000 };

	for (size_t d = 0; d < RTE_DIM(densities); d++) {
		for (size_t s = 0; s < RTE_DIM(spans); s++) {
			start(_i, 4);
			rig.span = RTE_MIN(spans[s], fanin_shard_span_most(4, PAYLOAD));
			rig.bitmaps = densities[d] > 200;
			for (uint32_t block = 0; block < 6; block++)
				sparse_rig_fill(&rig, block, densities[d]);
			sparse_rig_run(&rig, 6);
			ck_assert_uint_eq(rig.asked, 0);
			sparse_rig_stop(&rig);
		}
	}
}
END_TEST

START_TEST(loss_doubling_and_reordering_change_nothing)
{
	for (unsigned int seed = 1; seed <= 20; seed++) {
		start(_i, 6);
		rig.random = random_seed(seed);
		rig.span = 3000;
		rig.bitmaps = seed % 2 == 0;
		for (uint32_t block = 0; block < SPARSE_RIG_BLOCKS; block++)
			sparse_rig_fill(&rig, block, 20 * seed);
		rig.reorder = seed % 3 != 0;
		rig.lose_percent = 10;
		rig.double_percent = 10;
		sparse_rig_run(&rig, SPARSE_RIG_BLOCKS);
		ck_assert_uint_ne(rig.asked, 0);
		sparse_rig_stop(&rig);
	}
}
END_TEST

Suite *
suite_sparse(void)
{
	Suite *suite = suite_create("sparse");
	TCase *exact = tcase_create("exact");
	TCase *loss = tcase_create("loss");

	tcase_set_timeout(exact, 120);
	tcase_add_loop_test(exact, every_operator_is_exact_on_every_data_type, 0, N_NETWORKS);
	tcase_add_loop_test(exact, every_density_is_exact, 0, N_NETWORKS);
	suite_add_tcase(suite, exact);
	tcase_set_timeout(loss, 120);
	tcase_add_loop_test(loss, loss_doubling_and_reordering_change_nothing, 0, N_NETWORKS);
	suite_add_tcase(suite, loss);
	return suite;
}
