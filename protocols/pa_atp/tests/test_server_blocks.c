/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of a parameter server: which sums are combined, when a result goes out, and which ranks
 * are asked. The last test feeds partial sums in any order, randomly lost, repeated and merged, and
 * compares every result with the reference.
 */
#include <stdlib.h>
#include <string.h>

#include "lab/reference/hosts.h"
#include "lab/reference/random.h"
#include "protocols/pa_atp/tests/server_rig.h"
#include "tests/unit/suites.h"

#define ROUND_TRIP SERVER_RIG_ROUND_TRIP

static struct server_rig rig;

static void
close_rig(void)
{
	server_rig_close(&rig);
}

/* The first element of the last result, which is i32. */
static int32_t
result(void)
{
	int32_t value;

	memcpy(&value, server_rig_last(&rig, FANIN_TYPE_RESULT)->payload, sizeof(value));
	return value;
}

static size_t
n_results(void)
{
	return server_rig_count(&rig, FANIN_TYPE_RESULT);
}

/* A packet of four i32. */
static void
put(uint8_t type, uint32_t block, uint64_t members, int32_t value, uint16_t flags, uint8_t tos)
{
	const int32_t data[4] = { value, value, value, value };

	server_rig_put(&rig, &(struct server_rig_packet){ .type = type,
							  .flags = flags,
							  .block = block,
							  .members = members,
							  .data = data,
							  .data_len = sizeof(data),
							  .tos = tos });
}

static void
put_empty(uint8_t type, uint32_t block, uint64_t members)
{
	server_rig_put(&rig, &(struct server_rig_packet){ .type = type,
							  .flags = FANIN_FLAG_EMPTY,
							  .block = block,
							  .members = members,
							  .count = 4 });
}

static void
query(uint32_t block, uint64_t way, uint32_t number)
{
	server_rig_put(&rig, &(struct server_rig_packet){ .type = FANIN_TYPE_QUERY,
							  .flags = FANIN_FLAG_RETRANSMIT,
							  .block = block,
							  .members = way,
							  .number = number });
}

/* Complete sums of the blocks from first on. */
static void
complete(uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put(FANIN_TYPE_CONTRIBUTION, first + i, 0, (int32_t)(first + i), 0, 0);
}

static unsigned int
refused(void)
{
	const struct server_rig_sent *sent = server_rig_last(&rig, FANIN_TYPE_REFUSED);

	ck_assert_uint_eq(sent->hdr.key, rig.keys.down);
	return sent->hdr.count;
}

START_TEST(a_complete_sum_is_the_result)
{
	const struct server_rig_sent *sent;

	server_rig_start(&rig, 3);
	put(FANIN_TYPE_CONTRIBUTION, 2, 0, 42, 0, 0);
	ck_assert_uint_eq(rig.n_sent, 1);
	sent = server_rig_last(&rig, FANIN_TYPE_RESULT);
	ck_assert_int_eq(result(), 42);
	ck_assert_uint_eq(sent->payload_len, 16);
	ck_assert_uint_eq(sent->dst_ip_be, __builtin_bswap32(FANIN_WIRE_GROUPS | SERVER_RIG_JOB));
	ck_assert_uint_eq(sent->dst_port, SERVER_RIG_PORT);
	ck_assert_uint_eq(sent->hdr.epoch, rig.epoch);
	ck_assert_uint_eq(sent->hdr.key, rig.keys.down);
	ck_assert_uint_eq(sent->hdr.block, 2);
	ck_assert_uint_eq(sent->hdr.contributions, 3);
	ck_assert_uint_eq(sent->hdr.flags, 0);
	ck_assert_uint_eq(sent->hdr.count, 4);
	ck_assert_uint_eq(sent->hdr.dtype, FANIN_WIRE_I32);
	ck_assert_uint_eq(sent->hdr.op, FANIN_WIRE_SUM);
	ck_assert_uint_eq(sent->hdr.rank, 0);
	ck_assert_uint_eq(sent->hdr.members, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).sums, 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), UINT64_MAX);
}
END_TEST

START_TEST(packets_of_the_server_are_valid)
{
	struct fanin_headers headers;
	const struct fanin_flow flow = { 0 };

	server_rig_start(&rig, 3);
	complete(0, 1);
	query(0, 0x45, 3);
	query(1, 0x45, 4);
	put_empty(FANIN_TYPE_CONTRIBUTION, 2, 0);
	server_rig_partial(&rig, 3, 1, 1);
	fanin_server_core_timers(rig.core, rig.now_ns + ROUND_TRIP);
	ck_assert_uint_eq(rig.n_sent, 6);
	for (size_t i = 0; i < rig.n_sent; i++) {
		fanin_wire_encode_l4(&headers, &flow, rig.sent[i].payload_len);
		headers.fanin = rig.sent[i].hdr;
		ck_assert_msg(fanin_wire_validate(&headers,
						  FANIN_PAYLOAD_OFFSET + rig.sent[i].payload_len) ==
				      FANIN_REASON_NONE,
			      "packet %zu of type %u", i, headers.fanin.type);
	}
}
END_TEST

START_TEST(disjoint_sums_are_merged)
{
	server_rig_start(&rig, 5);
	server_rig_partial(&rig, 0, 0x02, 10);
	server_rig_partial(&rig, 0, 0x15, 300);
	ck_assert_uint_eq(n_results(), 0);
	server_rig_partial(&rig, 0, 0x08, 7000);
	ck_assert_uint_eq(n_results(), 1);
	ck_assert_int_eq(result(), 7310);
	ck_assert_uint_eq(server_rig_stats(&rig).singles, 2);
	ck_assert_uint_eq(server_rig_stats(&rig).partials, 1);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, 0);
}
END_TEST

START_TEST(contained_sums_are_duplicates)
{
	server_rig_start(&rig, 3);
	server_rig_partial(&rig, 0, 0x3, 30);
	server_rig_partial(&rig, 0, 0x1, 10);
	server_rig_partial(&rig, 0, 0x3, 30);
	server_rig_partial(&rig, 0, 0x2, 20);
	ck_assert_uint_eq(server_rig_stats(&rig).duplicates, 3);
	server_rig_partial(&rig, 0, 0x4, 5);
	ck_assert_int_eq(result(), 35);
}
END_TEST

START_TEST(a_superset_replaces_what_is_there)
{
	server_rig_start(&rig, 4);
	server_rig_partial(&rig, 0, 0x1, 10);
	server_rig_partial(&rig, 0, 0x7, 60);
	ck_assert_uint_eq(server_rig_stats(&rig).replaced, 1);
	server_rig_partial(&rig, 0, 0x8, 5);
	ck_assert_int_eq(result(), 65);
	server_rig_partial(&rig, 1, 0x6, 11);
	put(FANIN_TYPE_CONTRIBUTION, 1, 0, 99, 0, 0);
	ck_assert_int_eq(result(), 99);
	ck_assert_uint_eq(n_results(), 2);
}
END_TEST

START_TEST(other_overlaps_are_dropped_and_the_missing_ranks_asked)
{
	server_rig_start(&rig, 4);
	server_rig_partial(&rig, 0, 0x3, 30);
	server_rig_partial(&rig, 0, 0x6, 50);
	ck_assert_uint_eq(server_rig_stats(&rig).overlaps, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.members, 0xc);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.block, 0);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->dst_ip_be, SERVER_RIG_SWITCH);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.epoch, rig.epoch);
	/* Single ones always complete it. */
	put(FANIN_TYPE_PARTIAL, 0, 0x4, 4, FANIN_FLAG_DIRECT, 0);
	put(FANIN_TYPE_PARTIAL, 0, 0x8, 8, FANIN_FLAG_DIRECT, 0);
	ck_assert_int_eq(result(), 42);
	ck_assert_uint_eq(server_rig_stats(&rig).direct, 2);
}
END_TEST

START_TEST(a_result_goes_out_once_and_never_changes)
{
	server_rig_start(&rig, 2);
	complete(0, 1);
	put(FANIN_TYPE_CONTRIBUTION, 0, 0, 77, FANIN_FLAG_RETRANSMIT, 0);
	server_rig_partial(&rig, 0, 0x1, 78);
	put(FANIN_TYPE_KNOWN, 0, 0, 79, 0, 0);
	ck_assert_uint_eq(n_results(), 1);
	ck_assert_uint_eq(server_rig_stats(&rig).duplicates, 3);
	query(0, 0x41, 1);
	ck_assert_int_eq(*(const int32_t *)server_rig_last(&rig, FANIN_TYPE_REPEAT)->payload, 0);
}
END_TEST

START_TEST(slots_serve_block_after_block)
{
	server_rig_start(&rig, 2);
	complete(0, 5 * SERVER_RIG_SLOTS);
	ck_assert_uint_eq(n_results(), 5 * SERVER_RIG_SLOTS);
	ck_assert_int_eq(result(), 5 * SERVER_RIG_SLOTS - 1);
	server_rig_clear(&rig);
	/* All ranks have the results of these blocks: late copies change nothing. */
	put(FANIN_TYPE_CONTRIBUTION, 4 * SERVER_RIG_SLOTS - 1, 0, 5, 0, 0);
	server_rig_partial(&rig, 0, 1, 5);
	put(FANIN_TYPE_KNOWN, 3, 0, 5, 0, 0);
	query(7, 0x41, 1);
	ck_assert_uint_eq(rig.n_sent, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).stale, 4);
	ck_assert_uint_eq(fanin_server_core_drops(rig.core, FANIN_REASON_BLOCK_STALE), 4);
	/* The last one that is kept. */
	query(4 * SERVER_RIG_SLOTS, 0x41, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_REPEAT)->hdr.block,
			  4 * SERVER_RIG_SLOTS);
}
END_TEST

/*
 * Nobody is told: a switch can't know which of its ranks it was, and all others would end with it.
 */
START_TEST(blocks_beyond_the_window_are_counted_and_dropped)
{
	server_rig_start(&rig, 2);
	put(FANIN_TYPE_CONTRIBUTION, SERVER_RIG_SLOTS, 0, 5, 0, 0);
	put(FANIN_TYPE_KNOWN, SERVER_RIG_SLOTS, 0, 5, 0, 0);
	query(3 * SERVER_RIG_SLOTS, 0x41, 1);
	ck_assert_uint_eq(fanin_server_core_drops(rig.core, FANIN_REASON_BLOCK_WINDOW), 3);
	ck_assert_uint_eq(rig.n_sent, 0);
	/* The slot's block is not done. */
	server_rig_partial(&rig, 3, 1, 5);
	put(FANIN_TYPE_CONTRIBUTION, SERVER_RIG_SLOTS + 3, 0, 5, 0, 0);
	ck_assert_uint_eq(fanin_server_core_drops(rig.core, FANIN_REASON_BLOCK_WINDOW), 4);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_REFUSED), 0);
	ck_assert_uint_eq(n_results(), 0);
	put(FANIN_TYPE_CONTRIBUTION, 3, 0, 5, 0, 0);
	put(FANIN_TYPE_CONTRIBUTION, SERVER_RIG_SLOTS + 3, 0, 5, 0, 0);
	ck_assert_uint_eq(n_results(), 2);
}
END_TEST

START_TEST(block_numbers_wrap)
{
	struct fanin_server_job *job;
	const uint32_t first = 0u - 2 * SERVER_RIG_SLOTS;

	server_rig_start(&rig, 2);
	/* As after 2^32 blocks less some. */
	job = rig.core->by_id[SERVER_RIG_JOB];
	for (uint32_t i = 0; i < SERVER_RIG_SLOTS; i++)
		job->entries[i].block = first + i - SERVER_RIG_SLOTS;
	for (uint32_t i = 0; i < 4 * SERVER_RIG_SLOTS; i++) {
		server_rig_partial(&rig, first + i, 1, (int32_t)i);
		server_rig_partial(&rig, first + i, 2, 1);
		ck_assert_uint_eq(n_results(), i + 1);
		ck_assert_int_eq(result(), (int32_t)i + 1);
	}
	server_rig_clear(&rig);
	server_rig_partial(&rig, UINT32_MAX, 1, 5);
	ck_assert_uint_eq(rig.n_sent, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).stale, 1);
}
END_TEST

START_TEST(a_known_result_is_published_as_it_is)
{
	const int32_t data[4] = { 9, 9, 9, 9 };

	server_rig_start(&rig, 3);
	put(FANIN_TYPE_KNOWN, 0, 0, 12, 0, 0);
	ck_assert_int_eq(result(), 12);
	/* In place of what others have brought. */
	server_rig_partial(&rig, 1, 0x3, 100);
	put(FANIN_TYPE_KNOWN, 1, 0, 13, 0, 0);
	ck_assert_int_eq(result(), 13);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).known, 2);
	/* An average is divided already. */
	server_rig_put(&rig, &(struct server_rig_packet){ .type = FANIN_TYPE_KNOWN,
							  .block = 2,
							  .op = FANIN_WIRE_AVG,
							  .data = data,
							  .data_len = sizeof(data) });
	ck_assert_int_eq(result(), 9);
	put_empty(FANIN_TYPE_KNOWN, 3, 0);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, FANIN_FLAG_EMPTY);
	ck_assert_uint_eq(n_results(), 4);
}
END_TEST

START_TEST(empty_contributions_take_part_without_data)
{
	const struct server_rig_sent *sent;

	server_rig_start(&rig, 3);
	put_empty(FANIN_TYPE_PARTIAL, 0, 0x1);
	server_rig_partial(&rig, 0, 0x2, 5);
	put_empty(FANIN_TYPE_PARTIAL, 0, 0x4);
	ck_assert_int_eq(result(), 5);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, 0);
	/* A barrier. */
	put_empty(FANIN_TYPE_PARTIAL, 1, 0x3);
	put_empty(FANIN_TYPE_PARTIAL, 1, 0x4);
	sent = server_rig_last(&rig, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(sent->hdr.flags, FANIN_FLAG_EMPTY);
	ck_assert_uint_eq(sent->hdr.count, 4);
	ck_assert_uint_eq(sent->payload_len, 0);
	query(1, 0x41, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_REPEAT)->payload_len, 0);
	/* The slot had data before. */
	complete(2, SERVER_RIG_SLOTS - 2);
	put_empty(FANIN_TYPE_PARTIAL, SERVER_RIG_SLOTS, 0x3);
	server_rig_partial(&rig, SERVER_RIG_SLOTS, 0x4, 6);
	ck_assert_int_eq(result(), 6);
}
END_TEST

START_TEST(a_copy_has_the_data_of_its_root)
{
	const int32_t data[4] = { 8, 8, 8, 8 };
	struct server_rig_packet packet = { .type = FANIN_TYPE_PARTIAL,
					    .members = 0x2,
					    .op = FANIN_WIRE_COPY,
					    .root = 1,
					    .data = data,
					    .data_len = sizeof(data) };

	server_rig_start(&rig, 2);
	server_rig_put(&rig, &packet);
	packet = (struct server_rig_packet){ .type = FANIN_TYPE_PARTIAL,
					     .flags = FANIN_FLAG_EMPTY,
					     .members = 0x1,
					     .op = FANIN_WIRE_COPY,
					     .root = 1,
					     .count = 4 };
	server_rig_put(&rig, &packet);
	ck_assert_int_eq(result(), 8);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.root, 1);
}
END_TEST

START_TEST(marks_of_congestion_are_passed_on)
{
	server_rig_start(&rig, 2);
	put(FANIN_TYPE_PARTIAL, 0, 0x1, 1, FANIN_FLAG_CE, 0);
	put(FANIN_TYPE_PARTIAL, 0, 0x2, 1, 0, 0);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, FANIN_FLAG_CE);
	query(0, 0x41, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_REPEAT)->hdr.flags, FANIN_FLAG_CE);
	/* By the switch's own way to here. */
	put(FANIN_TYPE_CONTRIBUTION, 1, 0, 1, 0, 3);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, FANIN_FLAG_CE);
	/* ECT is none. */
	put(FANIN_TYPE_CONTRIBUTION, 2, 0, 1, 0, 2);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, 0);
	/* Of a copy that is dropped, too. */
	server_rig_partial(&rig, 3, 0x1, 1);
	put(FANIN_TYPE_PARTIAL, 3, 0x1, 1, 0, 3);
	server_rig_partial(&rig, 3, 0x2, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, FANIN_FLAG_CE);
	/* A slot forgets the mark with its block. */
	complete(4, SERVER_RIG_SLOTS);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->hdr.flags, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).ce, 3);
}
END_TEST

START_TEST(sums_that_can_not_be_are_refused)
{
	static const int32_t data[128];
	struct server_rig_packet packet = {
		.type = FANIN_TYPE_PARTIAL, .members = 0x1, .data = data, .data_len = 16
	};
	struct fanin_headers headers;

	server_rig_start(&rig, 3);
	server_rig_partial(&rig, 0, 0x9, 1);
	ck_assert_uint_eq(refused(), FANIN_REASON_RANK);
	server_rig_partial(&rig, 0, 0, 1);
	ck_assert_uint_eq(refused(), FANIN_REASON_RANK);
	server_rig_headers(&rig, &packet, &headers);
	headers.fanin.contributions = 2;
	server_rig_give(&rig, &headers, data);
	ck_assert_uint_eq(refused(), FANIN_REASON_SIZE);
	headers.fanin.type = FANIN_TYPE_CONTRIBUTION;
	server_rig_give(&rig, &headers, data);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_REFUSED), 4);
	ck_assert_uint_eq(refused(), FANIN_REASON_SIZE);
	packet.data_len = SERVER_RIG_PAYLOAD + 4;
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_PAYLOAD);
	packet.data = NULL;
	packet.data_len = 0;
	packet.flags = FANIN_FLAG_EMPTY;
	packet.count = SERVER_RIG_PAYLOAD / 4 + 1;
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_PAYLOAD);
	packet = (struct server_rig_packet){ .type = FANIN_TYPE_PARTIAL,
					     .members = 1,
					     .op = FANIN_WIRE_CUSTOM,
					     .data = data,
					     .data_len = 16 };
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_OPERATION);
	packet.dtype = FANIN_WIRE_F32;
	packet.op = FANIN_WIRE_BXOR;
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_OPERATION);
	packet = (struct server_rig_packet){ .type = FANIN_TYPE_MULTICAST };
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_TYPE);
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 0);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_REFUSED), rig.n_sent);
}
END_TEST

START_TEST(ranks_that_disagree_about_a_block_are_refused)
{
	const int32_t data[4] = { 1, 1, 1, 1 };
	struct server_rig_packet packet = { .type = FANIN_TYPE_PARTIAL,
					    .members = 0x2,
					    .op = FANIN_WIRE_MAX,
					    .data = data,
					    .data_len = sizeof(data) };

	server_rig_start(&rig, 2);
	server_rig_partial(&rig, 0, 0x1, 1);
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(refused(), FANIN_REASON_MISMATCH);
	packet.op = 0;
	packet.data_len = 12;
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_REFUSED), 2);
	packet.type = FANIN_TYPE_KNOWN;
	server_rig_put(&rig, &packet);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_REFUSED), 3);
	server_rig_partial(&rig, 0, 0x2, 1);
	ck_assert_int_eq(result(), 2);
}
END_TEST

START_TEST(a_query_of_a_block_that_is_done_gets_its_result)
{
	const struct server_rig_sent *sent;

	server_rig_start(&rig, 3);
	complete(0, 4);
	server_rig_clear(&rig);
	query(3, 0x1234, 55);
	ck_assert_uint_eq(rig.n_sent, 1);
	sent = server_rig_last(&rig, FANIN_TYPE_REPEAT);
	ck_assert_uint_eq(sent->hdr.members, 0x1234);
	ck_assert_uint_eq(sent->hdr.block, 3);
	ck_assert_uint_eq(sent->hdr.contributions, 3);
	ck_assert_uint_eq(sent->payload_len, 16);
	ck_assert_int_eq(*(const int32_t *)sent->payload, 3);
	ck_assert_uint_eq(sent->dst_ip_be, SERVER_RIG_SWITCH);
	ck_assert_uint_eq(server_rig_stats(&rig).repeats, 1);
	ck_assert_uint_eq(server_rig_stats(&rig).asks, 0);
}
END_TEST

static uint64_t
answered_missing(const struct server_rig_sent *sent)
{
	struct fanin_answer_ranks ranks;

	ck_assert_uint_eq(sent->payload_len, fanin_answer_len(rig.n_ranks));
	fanin_answer_read_ranks(sent->payload + sizeof(struct fanin_answer_body), rig.n_ranks,
				&ranks);
	ck_assert(fanin_ranks_is_empty(&ranks.ended));
	ck_assert(fanin_ranks_is_empty(&ranks.silent));
	return ranks.missing.words[0];
}

START_TEST(a_query_of_an_open_block_asks_the_missing_ranks_and_names_them)
{
	const struct server_rig_sent *sent;
	struct fanin_answer_body body;

	server_rig_start(&rig, 4);
	server_rig_partial(&rig, 5, 0x2, 1);
	query(5, 0x41, 9);
	ck_assert_uint_eq(rig.n_sent, 2);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.members, 0xd);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.block, 5);
	sent = server_rig_last(&rig, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(sent->hdr.count, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(sent->hdr.members, 0x41);
	ck_assert_uint_eq(sent->hdr.number, 9);
	ck_assert_uint_eq(sent->hdr.block, 5);
	ck_assert_uint_eq(sent->hdr.rank, 0);
	memcpy(&body, sent->payload, sizeof(body));
	ck_assert_uint_eq(body.n_blocks, 0);
	ck_assert_uint_eq(answered_missing(sent), 0xd);
}
END_TEST

START_TEST(a_query_of_a_block_of_which_nothing_has_come_asks_all)
{
	server_rig_start(&rig, 4);
	complete(0, SERVER_RIG_SLOTS);
	server_rig_clear(&rig);
	query(SERVER_RIG_SLOTS + 2, 0x41, 9);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_ASK)->hdr.members, 0xf);
	ck_assert_uint_eq(answered_missing(server_rig_last(&rig, FANIN_TYPE_ANSWER)), 0xf);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, 0);
	/* The slot has kept the result that it had. */
	query(2, 0x41, 10);
	ck_assert_int_eq(*(const int32_t *)server_rig_last(&rig, FANIN_TYPE_REPEAT)->payload, 2);
}
END_TEST

START_TEST(a_block_is_asked_for_once_in_a_round_trip)
{
	server_rig_start(&rig, 4);
	server_rig_partial(&rig, 0, 0x2, 1);
	for (uint32_t i = 1; i <= 5; i++)
		query(0, 0x41, i);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ASK), 1);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ANSWER), 5);
	rig.now_ns += ROUND_TRIP - 1;
	query(0, 0x41, 6);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ASK), 1);
	rig.now_ns += 1;
	query(0, 0x41, 7);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ASK), 2);
	/* Each block has its own. */
	query(1, 0x41, 8);
	query(1, 0x41, 9);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ASK), 3);
	/* The next block of the slot, too. */
	complete(0, SERVER_RIG_SLOTS);
	query(SERVER_RIG_SLOTS, 0x41, 9);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_ASK), 4);
}
END_TEST

/* Lets time pass up to a moment and returns how many FLUSHes went out, each when it was due. */
static size_t
flushes_until(uint64_t until_ns)
{
	const size_t before = server_rig_count(&rig, FANIN_TYPE_FLUSH);

	for (;;) {
		const uint64_t due_ns = fanin_server_core_due(rig.core);

		if (due_ns > until_ns)
			break;
		/* Not a moment too early. */
		if (due_ns > rig.now_ns) {
			const size_t so_far = rig.n_sent;

			fanin_server_core_timers(rig.core, due_ns - 1);
			ck_assert_uint_eq(rig.n_sent, so_far);
			rig.now_ns = due_ns;
		}
		fanin_server_core_timers(rig.core, rig.now_ns);
		ck_assert_uint_gt(fanin_server_core_due(rig.core), rig.now_ns);
	}
	rig.now_ns = until_ns;
	return server_rig_count(&rig, FANIN_TYPE_FLUSH) - before;
}

START_TEST(parts_that_wait_for_a_round_trip_are_flushed_with_backoff)
{
	const uint64_t begun_ns = (server_rig_start(&rig, 4), rig.now_ns);
	struct fanin_server_wait wait;

	ck_assert_uint_eq(fanin_server_core_due(rig.core), UINT64_MAX);
	server_rig_partial(&rig, 5, 0x2, 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), begun_ns + ROUND_TRIP);
	ck_assert_uint_eq(flushes_until(begun_ns + ROUND_TRIP), 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_FLUSH)->hdr.block, 5);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_FLUSH)->dst_ip_be, SERVER_RIG_SWITCH);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_FLUSH)->hdr.epoch, rig.epoch);
	/* Then after 2, 4, 8, 16, ... round trips. */
	ck_assert_uint_eq(fanin_server_core_due(rig.core), begun_ns + 3 * ROUND_TRIP);
	ck_assert_uint_eq(flushes_until(begun_ns + 3 * ROUND_TRIP), 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), begun_ns + 7 * ROUND_TRIP);
	ck_assert_uint_eq(flushes_until(begun_ns + 7 * ROUND_TRIP), 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), begun_ns + 15 * ROUND_TRIP);
	ck_assert_uint_eq(flushes_until(begun_ns + 39 * ROUND_TRIP), 2);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), begun_ns + 63 * ROUND_TRIP);
	ck_assert_uint_eq(fanin_server_job_waits(fanin_server_core_job(rig.core, SERVER_RIG_JOB),
						 rig.now_ns, &wait, 1),
			  1);
	ck_assert_uint_eq(wait.block, 5);
	ck_assert_uint_eq(wait.flushes, 5);
	ck_assert_uint_eq(wait.missing, 0xd);
	ck_assert_uint_eq(wait.since_ns, 39 * ROUND_TRIP);
	server_rig_partial(&rig, 5, 0xd, 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), UINT64_MAX);
	ck_assert_uint_eq(flushes_until(rig.now_ns + 100 * ROUND_TRIP), 0);
}
END_TEST

/* A rank is late by minutes, or the switch is no more. */
START_TEST(blocks_that_wait_for_long_are_flushed_seldom)
{
	const uint32_t n = FANIN_SERVER_FLUSH_BLOCKS;
	const uint64_t second_ns = UINT64_C(1000000000);

	server_rig_open(&rig, 64 << 20, ROUND_TRIP);
	server_rig_add(&rig, 2, 256, SERVER_RIG_PAYLOAD);
	server_rig_begin(&rig, 1);
	for (uint32_t block = 0; block < n; block++)
		server_rig_partial(&rig, block, 1, 1);
	ck_assert_uint_le(flushes_until(rig.now_ns + second_ns), 10 * n);
	server_rig_clear(&rig);
	ck_assert_uint_eq(flushes_until(rig.now_ns + 30 * second_ns), 30 * n);
}
END_TEST

START_TEST(blocks_that_complete_in_time_are_never_flushed)
{
	server_rig_start(&rig, 4);
	for (uint32_t block = 0; block < 100; block++) {
		server_rig_partial(&rig, block, 0x2, 1);
		ck_assert_uint_eq(flushes_until(rig.now_ns + ROUND_TRIP - 1), 0);
		server_rig_partial(&rig, block, 0xd, 1);
	}
	ck_assert_uint_eq(n_results(), 100);
	ck_assert_uint_eq(server_rig_stats(&rig).flushes, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).asks, 0);
}
END_TEST

START_TEST(only_the_oldest_blocks_are_flushed)
{
	const uint32_t n = FANIN_SERVER_FLUSH_BLOCKS + 3;

	server_rig_open(&rig, 64 << 20, ROUND_TRIP);
	server_rig_add(&rig, 2, 256, SERVER_RIG_PAYLOAD);
	server_rig_begin(&rig, 1);
	for (uint32_t block = 0; block < n; block++)
		server_rig_partial(&rig, block, 1, 1);
	rig.now_ns += ROUND_TRIP;
	fanin_server_core_timers(rig.core, rig.now_ns);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_FLUSH), FANIN_SERVER_FLUSH_BLOCKS);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_FLUSH)->hdr.block,
			  FANIN_SERVER_FLUSH_BLOCKS - 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), rig.now_ns + 2 * ROUND_TRIP);
	/* One that is done makes room for the next. */
	server_rig_partial(&rig, 7, 2, 1);
	ck_assert_uint_eq(flushes_until(rig.now_ns + 1), 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_FLUSH)->hdr.block,
			  FANIN_SERVER_FLUSH_BLOCKS);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, n - 1);
}
END_TEST

/* All ranks' contributions of a block in a random order, combined by chance on the way. */
START_TEST(every_operation_on_every_data_type_gives_the_reference)
{
	enum {
		N = 5,
		BYTES = 192
	};
	struct random random = random_seed(3);
	uint32_t block = 0;

	server_rig_start(&rig, N);
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			struct hosts_data data;
			uint64_t left = (1u << N) - 1;

			if (!fanin_operation_defined(dtype, op))
				continue;
			ck_assert_int_eq(hosts_data_make(&data, dtype, op, false, N, BYTES, op), 0);
			while (left != 0) {
				const unsigned int rank = random_below(&random, N);

				if ((left >> rank & 1) == 0)
					continue;
				left &= ~(UINT64_C(1) << rank);
				server_rig_put(&rig, &(struct server_rig_packet){
							     .type = FANIN_TYPE_PARTIAL,
							     .block = block,
							     .members = UINT64_C(1) << rank,
							     .dtype = (uint8_t)dtype,
							     .op = (uint8_t)op,
							     .data = hosts_contribution(
								     &data, (uint16_t)rank, block),
							     .data_len = BYTES });
			}
			ck_assert_msg(memcmp(server_rig_last(&rig, FANIN_TYPE_RESULT)->payload,
					     hosts_result(&data, block), BYTES) == 0,
				      "%s %s", fanin_dtype_name(dtype), fanin_op_name(op));
			hosts_data_free(&data);
			server_rig_clear(&rig);
			block++;
		}
	}
}
END_TEST

START_TEST(averages_are_divided_once)
{
	const int32_t data[4] = { 7, -7, 10, 11 };
	const int32_t expected[4] = { 7, -7, 10, 11 };

	server_rig_start(&rig, 3);
	for (unsigned int rank = 0; rank < 3; rank++)
		server_rig_put(&rig, &(struct server_rig_packet){ .type = FANIN_TYPE_PARTIAL,
								  .members = UINT64_C(1) << rank,
								  .op = FANIN_WIRE_AVG,
								  .data = data,
								  .data_len = sizeof(data) });
	ck_assert_mem_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->payload, expected,
			 sizeof(expected));
	query(0, 0x41, 1);
	ck_assert_mem_eq(server_rig_last(&rig, FANIN_TYPE_REPEAT)->payload, expected,
			 sizeof(expected));
}
END_TEST

/*
 * The search: ranks 0 to n - 1 run through blocks within their windows. Partial sums of random
 * disjoint or overlapping sets come in any order, some are lost, some come several times, some
 * late. What the server asks for comes, too, unless it is lost.
 */
#define SEARCH_RANKS 7
#define SEARCH_BLOCKS 200u
#define SEARCH_BYTES 64u
#define SEARCH_LATE 64u

struct late {
	struct server_rig_packet packet;
	uint8_t data[SEARCH_BYTES];
};

struct search {
	struct random random;
	struct hosts_data data;
	unsigned int dtype;
	unsigned int op;
	uint32_t done[SEARCH_BLOCKS]; /* how many results of the block went out */
	uint32_t oldest;              /* the first block without a result */
	struct late late[SEARCH_LATE];
	uint32_t n_late;
};

static uint64_t
get(const uint8_t *bytes, unsigned int size)
{
	uint64_t value = 0;

	memcpy(&value, bytes, size);
	return value;
}

/* The combination of the contributions of some ranks. */
static void
combine(const struct search *search, uint32_t block, uint64_t members, uint8_t *sum)
{
	const fanin_kernel_fn kernel = fanin_kernel(FANIN_ISA_PORTABLE, search->dtype, search->op);
	bool first = true;

	for (uint16_t rank = 0; rank < SEARCH_RANKS; rank++) {
		const uint8_t *data = hosts_contribution(&search->data, rank, block);

		if ((members >> rank & 1) == 0)
			continue;
		if (first)
			memcpy(sum, data, SEARCH_BYTES);
		else
			kernel(sum, data, SEARCH_BYTES / fanin_dtype_size(search->dtype));
		first = false;
	}
}

/*
 * Looks at what the server has sent: results are right, each went out once. Answers what it asks
 * for.
 */
static void
search_look(struct search *search)
{
	uint64_t asked[SEARCH_BLOCKS] = { 0 };

	for (size_t i = 0; i < rig.n_sent; i++) {
		const struct server_rig_sent *sent = &rig.sent[i];
		const uint32_t block = sent->hdr.block;

		ck_assert_uint_ne(sent->hdr.type, FANIN_TYPE_REFUSED);
		if (sent->hdr.type == FANIN_TYPE_RESULT || sent->hdr.type == FANIN_TYPE_REPEAT) {
			search->done[block] += sent->hdr.type == FANIN_TYPE_RESULT;
			ck_assert_msg(search->done[block] == 1, "block %u: %u results", block,
				      search->done[block]);
			ck_assert_msg(memcmp(sent->payload, hosts_result(&search->data, block),
					     SEARCH_BYTES) == 0,
				      "block %u: %#lx", block,
				      (unsigned long)get(sent->payload,
							 fanin_dtype_size(search->dtype)));
		} else if (sent->hdr.type == FANIN_TYPE_ASK) {
			asked[block] = sent->hdr.members;
		}
	}
	server_rig_clear(&rig);
	while (search->oldest < SEARCH_BLOCKS && search->done[search->oldest] != 0)
		search->oldest++;
	for (uint32_t block = 0; block < SEARCH_BLOCKS; block++) {
		for (uint64_t left = asked[block]; left != 0; left &= left - 1) {
			struct server_rig_packet packet = {
				.type = FANIN_TYPE_PARTIAL,
				.flags = FANIN_FLAG_DIRECT,
				.block = block,
				.members = left & -left,
				.dtype = (uint8_t)search->dtype,
				.op = (uint8_t)search->op,
				.data_len = SEARCH_BYTES,
			};

			packet.data = hosts_contribution(&search->data,
							 (uint16_t)__builtin_ctzll(left), block);
			if (!random_chance(&search->random, 0.3))
				server_rig_put(&rig, &packet);
		}
	}
}

static void
search_send(struct search *search)
{
	/* No rank is more than a window ahead of the slowest result. */
	const uint32_t reach = SERVER_RIG_SLOTS / 2;
	const uint32_t block = search->oldest + random_below(&search->random, reach);
	struct server_rig_packet packet = {
		.type = FANIN_TYPE_PARTIAL,
		.block = block,
		.members = 1 + random_below(&search->random, (1u << SEARCH_RANKS) - 1),
		.dtype = (uint8_t)search->dtype,
		.op = (uint8_t)search->op,
		.data_len = SEARCH_BYTES,
	};
	uint8_t sum[SEARCH_BYTES];

	if (block >= SEARCH_BLOCKS)
		return;
	/* Most packets are of one rank, as those of places that are taken. */
	if (random_chance(&search->random, 0.6))
		packet.members = UINT64_C(1) << random_below(&search->random, SEARCH_RANKS);
	combine(search, block, packet.members, sum);
	packet.data = sum;
	if (packet.members == (1u << SEARCH_RANKS) - 1) {
		packet.type = FANIN_TYPE_CONTRIBUTION;
		packet.members = 0;
	}
	if (random_chance(&search->random, 0.3)) {
		struct late *late = &search->late[search->n_late++ % SEARCH_LATE];

		late->packet = packet;
		memcpy(late->data, sum, sizeof(sum));
		late->packet.data = late->data;
	}
	if (!random_chance(&search->random, 0.2))
		server_rig_put(&rig, &packet);
}

static void
search_step(struct search *search)
{
	const uint32_t kind = random_below(&search->random, 10);

	rig.now_ns += random_below(&search->random, ROUND_TRIP / 4);
	if (kind < 7) {
		search_send(search);
	} else if (kind == 7 && search->n_late != 0) {
		const uint32_t n = search->n_late < SEARCH_LATE ? search->n_late : SEARCH_LATE;

		server_rig_put(&rig, &search->late[random_below(&search->random, n)].packet);
	} else if (kind == 8 && search->oldest < SEARCH_BLOCKS) {
		query(search->oldest, 0x41, 1);
	} else {
		fanin_server_core_timers(rig.core, rig.now_ns);
	}
	search_look(search);
}

START_TEST(any_order_of_any_sums_gives_exact_results)
{
	static const uint8_t dtypes[] = { FANIN_WIRE_I32, FANIN_WIRE_F32, FANIN_WIRE_U8,
					  FANIN_WIRE_F64 };
	static const uint8_t ops[] = { FANIN_WIRE_SUM, FANIN_WIRE_AVG, FANIN_WIRE_MAX,
				       FANIN_WIRE_PROD };
	struct search *search = calloc(1, sizeof(*search));
	struct fanin_server_job_stats stats;
	uint32_t steps = 0;

	ck_assert_ptr_nonnull(search);
	search->random = random_seed((uint64_t)_i);
	search->dtype = dtypes[_i % 4];
	search->op = ops[_i / 4 % 4];
	server_rig_start(&rig, SEARCH_RANKS);
	ck_assert_int_eq(hosts_data_make(&search->data, search->dtype, search->op, false,
					 SEARCH_RANKS, SEARCH_BYTES, (uint32_t)_i),
			 0);
	while (search->oldest < SEARCH_BLOCKS) {
		search_step(search);
		ck_assert_msg(++steps < 200000, "no end with seed %d: at block %u", _i,
			      search->oldest);
	}
	stats = server_rig_stats(&rig);
	ck_assert_uint_eq(stats.results, SEARCH_BLOCKS);
	ck_assert_uint_eq(stats.blocks, SEARCH_BLOCKS);
	ck_assert_uint_eq(stats.waiting, 0);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), UINT64_MAX);
	/* The search has been everywhere. */
	ck_assert_uint_gt(stats.duplicates, 0);
	ck_assert_uint_gt(stats.replaced, 0);
	ck_assert_uint_gt(stats.overlaps, 0);
	ck_assert_uint_gt(stats.stale, 0);
	ck_assert_uint_gt(stats.asks, 0);
	ck_assert_uint_gt(stats.flushes, 0);
	hosts_data_free(&search->data);
	free(search);
}
END_TEST

Suite *
suite_server_blocks(void)
{
	Suite *suite = suite_create("server_blocks");
	TCase *sums = tcase_create("sums");
	TCase *asked = tcase_create("asked");
	TCase *exact = tcase_create("exact");

	tcase_add_checked_fixture(sums, NULL, close_rig);
	tcase_add_test(sums, a_complete_sum_is_the_result);
	tcase_add_test(sums, packets_of_the_server_are_valid);
	tcase_add_test(sums, disjoint_sums_are_merged);
	tcase_add_test(sums, contained_sums_are_duplicates);
	tcase_add_test(sums, a_superset_replaces_what_is_there);
	tcase_add_test(sums, other_overlaps_are_dropped_and_the_missing_ranks_asked);
	tcase_add_test(sums, a_result_goes_out_once_and_never_changes);
	tcase_add_test(sums, slots_serve_block_after_block);
	tcase_add_test(sums, blocks_beyond_the_window_are_counted_and_dropped);
	tcase_add_test(sums, block_numbers_wrap);
	tcase_add_test(sums, a_known_result_is_published_as_it_is);
	tcase_add_test(sums, empty_contributions_take_part_without_data);
	tcase_add_test(sums, a_copy_has_the_data_of_its_root);
	tcase_add_test(sums, marks_of_congestion_are_passed_on);
	tcase_add_test(sums, sums_that_can_not_be_are_refused);
	tcase_add_test(sums, ranks_that_disagree_about_a_block_are_refused);
	suite_add_tcase(suite, sums);
	tcase_add_checked_fixture(asked, NULL, close_rig);
	tcase_add_test(asked, a_query_of_a_block_that_is_done_gets_its_result);
	tcase_add_test(asked, a_query_of_an_open_block_asks_the_missing_ranks_and_names_them);
	tcase_add_test(asked, a_query_of_a_block_of_which_nothing_has_come_asks_all);
	tcase_add_test(asked, a_block_is_asked_for_once_in_a_round_trip);
	tcase_add_test(asked, parts_that_wait_for_a_round_trip_are_flushed_with_backoff);
	tcase_add_test(asked, blocks_that_wait_for_long_are_flushed_seldom);
	tcase_add_test(asked, blocks_that_complete_in_time_are_never_flushed);
	tcase_add_test(asked, only_the_oldest_blocks_are_flushed);
	suite_add_tcase(suite, asked);
	tcase_add_checked_fixture(exact, NULL, close_rig);
	tcase_add_test(exact, every_operation_on_every_data_type_gives_the_reference);
	tcase_add_test(exact, averages_are_divided_once);
	tcase_add_loop_test(exact, any_order_of_any_sums_gives_exact_results, 0, 32);
	suite_add_tcase(suite, exact);
	return suite;
}
