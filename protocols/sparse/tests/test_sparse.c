/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse blocks in switches: whatever the form, order and number of the hosts' packets, all hosts
 * have the exact sum, even if packets are lost, duplicated and reordered.
 */
#include <string.h>

#include "lab/reference/kernel_reference.h"
#include "protocols/sparse/tests/sparse_rig.h"
#include "tests/unit/suites.h"

#define PAYLOAD 512

static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse" };

#define N_HANDLERS (int)RTE_DIM(handlers)

static struct sparse_rig rig;

/* Starts the rig for each handler, on one switch and on two levels. */
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
			rig.span = RTE_MIN(spans[s], fanin_shard_span_max(4, PAYLOAD));
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

START_TEST(workers_that_share_slots_lose_nothing)
{
	start(_i, 4);
	for (uint16_t i = 0; i < rig.n_nodes; i++)
		rig.nodes[i].job.shared = true;
	rig.span = 2000;
	for (uint32_t block = 0; block < SPARSE_RIG_BLOCKS; block++)
		sparse_rig_fill(&rig, block, 100);
	rig.reorder = true;
	rig.lose_percent = 10;
	rig.double_percent = 10;
	sparse_rig_run(&rig, SPARSE_RIG_BLOCKS);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(elements_that_fill_their_packets_exactly_are_all)
{
	const uint32_t most = fanin_shard_list_max(1000, 4, PAYLOAD);

	for (uint32_t packets = 1; packets <= 3; packets++) {
		start(_i, 4);
		for (uint32_t i = 0; i < packets * most; i++)
			sparse_rig_bring(&rig, 1, 0, 3 * i, i);
		sparse_rig_run(&rig, 1);
		ck_assert_uint_eq(rig.asked, 0);
		ck_assert_uint_eq(rig.hosts[0].received[0].shards.total, packets);
		sparse_rig_stop(&rig);
	}
}
END_TEST

START_TEST(a_block_of_nothing_has_one_shard)
{
	start(_i, 4);
	sparse_rig_run(&rig, 3);
	for (uint32_t block = 0; block < 3; block++) {
		for (uint16_t h = 0; h < 4; h++) {
			ck_assert_uint_eq(rig.hosts[h].received[block].shards.total, 1);
			ck_assert_uint_eq(sparse_hdr(rig.hosts[h].received[block].frames[0])->count,
					  0);
		}
	}
	ck_assert_uint_eq(rig.asked, 0);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(sums_that_cancel_stay_in_the_result)
{
	const uint64_t one = 0x3f800000, minus_one = 0xbf800000;
	const struct sparse_received *received = &rig.hosts[0].received[0];
	unsigned int count = 0;

	start(_i, 2);
	for (uint32_t i = 0; i < 100; i++) {
		sparse_rig_bring(&rig, 0, 0, 5 * i, one);
		sparse_rig_bring(&rig, 1, 0, 5 * i, minus_one);
	}
	sparse_rig_run(&rig, 1);
	for (unsigned int s = 0; s < received->shards.total; s++)
		count += sparse_hdr(received->frames[s])->count;
	ck_assert_uint_eq(count, 100);
	sparse_rig_stop(&rig);
}
END_TEST

/*
 * A zero is a value like any other, whichever host brings it first, and so is a result of zero: a
 * table must not take it for a free place.
 */
START_TEST(zeros_are_values_to_every_operator)
{
	for (unsigned int op = FANIN_WIRE_SUM; op < FANIN_WIRE_OP_COUNT; op++) {
		if (op == FANIN_WIRE_AVG)
			continue;
		start(_i, 4);
		rig.dtype = FANIN_WIRE_I32;
		rig.op = op;
		for (uint32_t i = 0; i < 120; i++) {
			for (uint16_t h = 0; h < 4; h++) {
				const int32_t value = h == i % 4   ? 0
						      : i % 3 == 0 ? -3 - h
						      : i % 3 == 1 ? 3 + h
						      : h % 2 == 0 ? 9
								   : -9;

				/* Every host is first, second and so on. */
				sparse_rig_bring(&rig, h, 0, 7 * i, (uint32_t)value);
			}
		}
		rig.reorder = true;
		sparse_rig_run(&rig, 1);
		ck_assert_uint_eq(rig.asked, 0);
		sparse_rig_stop(&rig);
	}
}
END_TEST

/*
 * As at 0.2 %: few values in a block of many indices, which take four bytes. The last block is
 * full.
 */
START_TEST(spans_of_more_than_16_bits_are_exact)
{
	static const unsigned int densities[] = { 0, 2, 100, 1000 };
	const uint32_t payload = FAKE_PAYLOAD_MAX;

	for (size_t d = 0; d < RTE_DIM(densities); d++) {
		start_of(_i, 2, (uint16_t)payload);
		rig.dtype = FANIN_WIRE_U8;
		rig.span = fanin_shard_span_max(1, payload);
		ck_assert_uint_gt(rig.span, FANIN_SHARD_SHORT_SPAN);
		rig.bitmaps = densities[d] >= 100;
		sparse_rig_fill(&rig, 0, densities[d]);
		/* Indices that differ only in the bits above the 16th. */
		sparse_rig_bring(&rig, 0, 0, 5, 1);
		sparse_rig_bring(&rig, 1, 0, 65536 + 5, 2);
		sparse_rig_bring(&rig, 0, 0, rig.span - 1, 3);
		sparse_rig_run(&rig, 1);
		ck_assert_uint_eq(rig.asked, 0);
		sparse_rig_stop(&rig);
	}
}
END_TEST

/* Returns the first value of an index in a host's result. */
static uint64_t
value_of(uint16_t h, uint32_t wanted)
{
	const struct sparse_received *received = &rig.hosts[h].received[0];

	for (unsigned int s = 0; s < received->shards.total; s++) {
		const struct fanin_hdr *hdr = sparse_hdr(received->frames[s]);
		const uint8_t *values = received->frames[s]->data + FANIN_PAYLOAD_OFFSET;
		const uint16_t *indices = (const void *)(values + hdr->count * 4);

		ck_assert_uint_eq(fanin_shard_decode(hdr->members).form, FANIN_SHARD_LIST);
		for (uint16_t i = 0; i < hdr->count; i++) {
			uint32_t value;

			if (indices[i] != wanted)
				continue;
			memcpy(&value, values + 4 * i, sizeof(value));
			return value;
		}
	}
	ck_abort_msg("index %u is in no shard", wanted);
	return 0;
}

START_TEST(values_of_one_rank_alone_keep_their_bits)
{
	/* -0.0, a signalling NaN, a NaN with a payload, the smallest denormal number */
	static const uint32_t bits[] = { 0x80000000, 0x7f800001, 0xffc12345, 1 };
	static const unsigned int ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_PROD, FANIN_WIRE_MIN,
					    FANIN_WIRE_MAX };

	for (size_t o = 0; o < RTE_DIM(ops); o++) {
		start(_i, 2);
		rig.op = ops[o];
		for (uint32_t i = 0; i < RTE_DIM(bits); i++)
			sparse_rig_bring(&rig, i % 2, 0, 100 * i, bits[i]);
		sparse_rig_run(&rig, 1);
		for (uint32_t i = 0; i < RTE_DIM(bits); i++)
			ck_assert_uint_eq(value_of(0, 100 * i), bits[i]);
		sparse_rig_stop(&rig);
	}
}
END_TEST

START_TEST(full_blocks_take_as_many_shards_as_there_may_be)
{
	static const unsigned int dtypes[] = { FANIN_WIRE_U8, FANIN_WIRE_I16, FANIN_WIRE_F32,
					       FANIN_WIRE_F64 };

	for (size_t d = 0; d < RTE_DIM(dtypes); d++) {
		start_of(_i, 2, 576);
		rig.dtype = dtypes[d];
		rig.bitmaps = true;
		rig.span = fanin_shard_span_max(fanin_dtype_size(dtypes[d]), 576);
		sparse_rig_fill(&rig, 0, 1000);
		sparse_rig_run(&rig, 1);
		ck_assert_uint_ge(rig.hosts[0].received[0].shards.total, FANIN_SHARDS_FULL);
		ck_assert_uint_eq(rig.asked, 0);
		sparse_rig_stop(&rig);
	}
}
END_TEST

START_TEST(one_host_may_have_64_shards)
{
	start(_i, 2);
	rig.per_shard = 3;
	for (uint32_t i = 0; i < 64 * 3; i++)
		sparse_rig_bring(&rig, 0, 0, 4 * i + 1, i);
	rig.reorder = true;
	sparse_rig_run(&rig, 1);
	ck_assert_uint_eq(rig.asked, 0);
	sparse_rig_stop(&rig);
}
END_TEST

/* Lanes of the table of two hosts. */
#define LANES 320

/*
 * Makes every host bring all indices of the table's first buckets, eleven times as many as have
 * room there.
 */
static void
bring_buckets(uint16_t n_hosts, uint32_t n_buckets)
{
	rig.span = fanin_shard_span_max(4, PAYLOAD);
	for (uint32_t i = 0; i < rig.span; i++) {
		const uint64_t hash = i * UINT32_C(2654435769);

		for (uint16_t h = 0;
		     h < n_hosts && hash * (LANES / FANIN_BUCKET_LANES) >> 32 < n_buckets; h++)
			sparse_rig_bring(&rig, h, 0, i, i + h);
	}
}

/* On one switch, and below another switch. */
START_TEST(values_that_find_their_bucket_full_leave_early)
{
	sparse_rig_start(&rig, "sparse-hash", 2, (uint16_t)_i, PAYLOAD);
	bring_buckets(2, 1);
	rig.dtype = FANIN_WIRE_I32;
	sparse_rig_run(&rig, 1);
	ck_assert_uint_eq(rig.asked, 0);
	ck_assert_uint_eq(sparse_rig_slot(sparse_rig_node_of(&rig, 0), 0)->n_lanes, LANES);
	ck_assert_uint_ge(rig.nodes[_i].stats.own[FANIN_SPARSE_SPILLS], 1);
	ck_assert_uint_le(rig.nodes[_i].stats.own[FANIN_SPARSE_SPILLS], FANIN_SPILLS_MAX);
	ck_assert_uint_eq(rig.nodes[_i].stats.own[FANIN_SPARSE_CHANGED_OVER], 0);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_table_that_spills_too_much_becomes_an_array)
{
	sparse_rig_start(&rig, "sparse-hash", 2, (uint16_t)_i, PAYLOAD);
	bring_buckets(2, 8);
	rig.dtype = FANIN_WIRE_I32;
	rig.bitmaps = true;
	sparse_rig_run(&rig, 1);
	ck_assert_uint_eq(rig.asked, 0);
	ck_assert_uint_eq(rig.nodes[_i].stats.own[FANIN_SPARSE_SPILLS], FANIN_SPILLS_MAX);
	ck_assert_uint_eq(rig.nodes[_i].stats.own[FANIN_SPARSE_CHANGED_OVER], 1);
	sparse_rig_stop(&rig);
}
END_TEST

START_TEST(a_table_that_is_full_becomes_an_array)
{
	sparse_rig_start(&rig, "sparse-hash", 2, (uint16_t)_i, PAYLOAD);
	rig.span = 3000;
	sparse_rig_fill(&rig, 0, 300);
	sparse_rig_run(&rig, 1);
	ck_assert_uint_eq(rig.asked, 0);
	ck_assert_uint_eq(rig.nodes[_i].stats.own[FANIN_SPARSE_CHANGED_OVER], 1);
	sparse_rig_stop(&rig);
}
END_TEST

/* Spilled values are lost as often as any others. */
START_TEST(spills_are_sent_again)
{
	for (unsigned int seed = 1; seed <= 10; seed++) {
		sparse_rig_start(&rig, "sparse-hash", 2, (uint16_t)_i, PAYLOAD);
		rig.random = random_seed(seed);
		bring_buckets(2, seed);
		rig.dtype = FANIN_WIRE_I32;
		rig.lose_percent = 30;
		rig.double_percent = 30;
		rig.reorder = true;
		sparse_rig_run(&rig, 1);
		sparse_rig_stop(&rig);
	}
}
END_TEST

START_TEST(tables_of_full_packets_hardly_spill)
{
	const uint32_t most = fanin_shard_list_max(40000, 4, 1024);
	uint64_t in = 0, out = 0;

	/*
	 * All children bring a packet of different indices: the maximum that a table is made for.
	 */
	for (unsigned int seed = 1; seed <= 20; seed++) {
		sparse_rig_start(&rig, "sparse-hash", 8, 0, 1024);
		rig.random = random_seed(seed);
		rig.span = fanin_shard_span_max(4, 1024);
		for (uint16_t h = 0; h < 8; h++) {
			for (uint32_t i = 0; i < most; i++)
				sparse_rig_bring(&rig, h, 0, random_below(&rig.random, rig.span),
						 i);
		}
		sparse_rig_run(&rig, 1);
		for (uint32_t i = 0; i < rig.span; i++) {
			bool has = false;

			for (uint16_t h = 0; h < 8; h++)
				has = has || rig.hosts[h].brings[0].has[i];
			in += has;
		}
		for (unsigned int s = 0; s < rig.hosts[0].received[0].shards.total; s++)
			out += sparse_hdr(rig.hosts[0].received[0].frames[s])->count;
		ck_assert_uint_eq(sparse_rig_counter(&rig, FANIN_SPARSE_CHANGED_OVER), 0);
		sparse_rig_stop(&rig);
	}
	/* Less than 5 % is sent twice because of spills. */
	ck_assert_uint_lt(out * 100, in * 105);
}
END_TEST

Suite *
suite_sparse(void)
{
	Suite *suite = suite_create("sparse");
	TCase *exact = tcase_create("exact");
	TCase *blocks = tcase_create("blocks");
	TCase *loss = tcase_create("loss");

	tcase_set_timeout(exact, 120);
	tcase_add_loop_test(exact, every_operator_is_exact_on_every_data_type, 0, N_NETWORKS);
	tcase_add_loop_test(exact, every_density_is_exact, 0, N_NETWORKS);
	tcase_add_loop_test(exact, values_of_one_rank_alone_keep_their_bits, 0, N_NETWORKS);
	tcase_add_loop_test(exact, sums_that_cancel_stay_in_the_result, 0, N_NETWORKS);
	tcase_add_loop_test(exact, zeros_are_values_to_every_operator, 0, N_NETWORKS);
	tcase_add_loop_test(exact, spans_of_more_than_16_bits_are_exact, 0, N_NETWORKS);
	suite_add_tcase(suite, exact);
	tcase_set_timeout(blocks, 60);
	tcase_add_loop_test(blocks, elements_that_fill_their_packets_exactly_are_all, 0,
			    N_NETWORKS);
	tcase_add_loop_test(blocks, a_block_of_nothing_has_one_shard, 0, N_NETWORKS);
	tcase_add_loop_test(blocks, full_blocks_take_as_many_shards_as_there_may_be, 0, N_NETWORKS);
	tcase_add_loop_test(blocks, one_host_may_have_64_shards, 0, N_NETWORKS);
	tcase_add_loop_test(blocks, values_that_find_their_bucket_full_leave_early, 0, 2);
	tcase_add_loop_test(blocks, a_table_that_spills_too_much_becomes_an_array, 0, 2);
	tcase_add_loop_test(blocks, a_table_that_is_full_becomes_an_array, 0, 2);
	tcase_add_test(blocks, tables_of_full_packets_hardly_spill);
	suite_add_tcase(suite, blocks);
	tcase_set_timeout(loss, 120);
	tcase_add_loop_test(loss, loss_doubling_and_reordering_change_nothing, 0, N_NETWORKS);
	tcase_add_loop_test(loss, spills_are_sent_again, 0, 2);
	tcase_add_loop_test(loss, workers_that_share_slots_lose_nothing, 0, N_NETWORKS);
	suite_add_tcase(suite, loss);
	return suite;
}
