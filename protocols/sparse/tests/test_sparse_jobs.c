/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs of sparse handlers in a switch, with its admission, workers and tags: only members' shards
 * reach the job's slots, and results reach all members.
 */
#include <string.h>

#include "protocols/sparse/switch/sparse.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define HOSTS 3
#define SPAN 1000
#define SLOTS 4

static const char *const handlers[] = { "sparse", "sparse-array", "sparse-hash" };

static struct ring_switch sw;
static struct job *job;
static uint32_t epoch;
static uint8_t out[4096] __attribute__((aligned(8)));
static struct fanin_headers *const got = (struct fanin_headers *)out;

/* Opens a switch with a job. how: bit 0 tags, bit 1 two workers for each block */
static void
open_job(int which, unsigned int how)
{
	ring_switch_eal();
	if ((how & 2) != 0)
		ring_switch_open_clusters(&sw, HOSTS, 2, 2, NULL);
	else
		ring_switch_open(&sw, HOSTS, 1, NULL);
	if ((how & 1) != 0)
		ring_switch_authenticate(&sw);
	/* A slot may hold as many packets as a block has shards. */
	sw.pipeline->jobs->mbufs_per_job = SLOTS * FANIN_SPARSE_MBUFS;
	job = ring_switch_job_of(&sw, handlers[which], HOSTS, SLOTS);
	epoch = host_join_all(&sw, job, HOSTS, 5);
	for (uint16_t h = 0; h < HOSTS; h++) {
		while (ring_switch_take(&sw, h, out) != 0)
			;
	}
}

/* Makes host h send a shard of two values: h + 1 at 5 * h, and 10 at 900 + number. */
static void
send_shard(unsigned int h, uint32_t block, uint8_t number, uint8_t total)
{
	const struct fanin_shard shard = { .span = SPAN, .number = number, .total = total };
	const uint32_t values[2] = { h + 1, 10 };
	const uint16_t indices[2] = { (uint16_t)(5 * h), (uint16_t)(900 + number) };
	uint8_t payload[sizeof(values) + sizeof(indices)];
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	memcpy(payload, values, sizeof(values));
	memcpy(payload + sizeof(values), indices, sizeof(indices));
	len = host_packet(&sw, h, FANIN_TYPE_SPARSE, job->params.id, epoch, payload,
			  sizeof(payload), headers);
	headers->fanin.contributions = 1;
	headers->fanin.block = block;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = 2;
	headers->fanin.members = fanin_shard_encode(&shard);
	ring_switch_put(&sw, (uint16_t)h, frame, len);
}

/*
 * Checks that all hosts have the block's result: 5 h has h + 1, 900 the sum of three, 901 that of
 * host 0 alone.
 */
static void
check_result(uint32_t block)
{
	static const uint16_t expected_indices[5] = { 0, 5, 10, 900, 901 };
	static const uint32_t expected[5] = { 2, 2, 3, 30, 10 };

	for (uint16_t h = 0; h < HOSTS; h++) {
		uint32_t found[5] = { 0 };
		uint32_t values[5];
		uint16_t indices[5];

		ck_assert_uint_eq(ring_switch_take(&sw, h, out),
				  FANIN_PAYLOAD_OFFSET + sizeof(values) + sizeof(indices));
		ck_assert_uint_eq(fanin_wire_validate(out, sizeof(out)), FANIN_REASON_NONE);
		ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_SPARSE_RESULT);
		ck_assert_uint_eq(got->fanin.block, block);
		ck_assert_uint_eq(got->fanin.contributions, HOSTS);
		ck_assert_uint_eq(got->ip.dst_be, job->group_be);
		ck_assert_uint_eq(got->fanin.count, 5);
		memcpy(values, got + 1, sizeof(values));
		memcpy(indices, (uint8_t *)(got + 1) + sizeof(values), sizeof(indices));
		for (unsigned int i = 0; i < 5; i++) {
			for (unsigned int e = 0; e < 5; e++)
				found[e] = indices[i] == expected_indices[e] ? values[i] : found[e];
		}
		ck_assert_mem_eq(found, expected, sizeof(found));
		ck_assert_uint_eq(ring_switch_take(&sw, h, out), 0);
	}
}

START_TEST(shards_of_members_become_a_result_for_all)
{
	open_job(_i % 3, (unsigned int)_i / 3);
	for (uint32_t block = 0; block < 3 * SLOTS; block++) {
		send_shard(0, block, 1, 2);
		send_shard(1, block, 0, 1);
		send_shard(2, block, 0, 1);
		for (uint16_t h = 0; h < HOSTS; h++)
			ck_assert_uint_eq(ring_switch_take(&sw, h, out), 0);
		send_shard(0, block, 0, 0);
		check_result(block);
		/* Some blocks are dense. */
		if (block % 3 != 0)
			continue;
		block++;
		for (unsigned int h = 0; h < HOSTS; h++)
			host_contribute(&sw, job, h, epoch, block, false);
		for (uint16_t h = 0; h < HOSTS; h++)
			host_result_check(job, HOSTS, block, out, ring_switch_take(&sw, h, out));
	}
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_host_learns_why_a_shard_is_refused)
{
	open_job(_i, 0);
	send_shard(0, 0, 1, 2);
	send_shard(0, 0, 2, 0);
	ck_assert_uint_ne(ring_switch_take(&sw, 0, out), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(got->fanin.count, FANIN_REASON_BLOCK_WINDOW);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_BLOCK_WINDOW), 1);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(a_host_that_lacks_a_result_asks_for_it)
{
	open_job(_i, 0);
	send_shard(0, 0, 0, 0);
	send_shard(0, 0, 1, 2);
	send_shard(1, 0, 0, 1);
	send_shard(2, 0, 0, 1);
	check_result(0);
	host_query(&sw, job, 1, epoch, 0, 77, true);
	ck_assert_uint_ne(ring_switch_take(&sw, 1, out), 0);
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_SPARSE_RESULT);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, out),
			  FANIN_PAYLOAD_OFFSET + fanin_answer_len(HOSTS) + sizeof(uint64_t));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(got->fanin.number, 77);
	ck_assert_uint_eq(got->fanin.count, FANIN_BLOCK_DONE);
	ck_assert_uint_eq(ring_switch_take(&sw, 1, out), 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(jobs_of_other_handlers_have_no_use_for_shards)
{
	ring_switch_eal();
	ring_switch_open(&sw, HOSTS, 1, NULL);
	job = ring_switch_job(&sw, HOSTS, SLOTS);
	epoch = host_join_all(&sw, job, HOSTS, 5);
	send_shard(0, 0, 0, 1);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_TYPE), 1);
	ring_switch_close(&sw);
}
END_TEST

/* Two slots are the minimum: a switch without packets for two slots reports this. */
START_TEST(a_switch_without_room_for_two_slots_says_so)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = handlers[_i],
		.n_members = 1,
		.members = { { .ip_be = host_ip_be(0) } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code = NULL;
	struct job *none = NULL;

	ring_switch_eal();
	ring_switch_open(&sw, 1, 1, NULL);
	ck_assert_uint_lt(sw.pipeline->jobs->mbufs_per_job, 2 * FANIN_SPARSE_MBUFS);
	ck_assert_int_ne(job_create(sw.pipeline, &spec, &none, &code, error), 0);
	ck_assert_str_eq(code, "no_room");
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_sparse_jobs(void)
{
	Suite *suite = suite_create("sparse_jobs");
	TCase *tcase = tcase_create("jobs");

	tcase_add_loop_test(tcase, shards_of_members_become_a_result_for_all, 0, 12);
	tcase_add_loop_test(tcase, a_host_learns_why_a_shard_is_refused, 0, 3);
	tcase_add_loop_test(tcase, a_host_that_lacks_a_result_asks_for_it, 0, 3);
	tcase_add_test(tcase, jobs_of_other_handlers_have_no_use_for_shards);
	tcase_add_loop_test(tcase, a_switch_without_room_for_two_slots_says_so, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite;
}
