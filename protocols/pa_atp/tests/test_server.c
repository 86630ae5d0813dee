/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter server's jobs and runs: the switch joins with a cookie and leaves; unknown senders
 * learn nothing and change nothing; memory is bounded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/tests/server_rig.h"
#include "tests/unit/suites.h"

#define MEMORY (UINT64_C(64) << 20)

static struct server_rig rig;

static void
close_rig(void)
{
	server_rig_close(&rig);
}

START_TEST(a_join_is_challenged_and_its_answer_begins_a_run)
{
	struct fanin_join_ack_body ack;
	uint64_t ranks;

	server_rig_open(&rig, MEMORY, 0);
	server_rig_add(&rig, 5, 16, 256);
	ack = server_rig_join(&rig, 42, 0, 1234);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_ne(ack.cookie, 0);
	ck_assert_uint_eq(rig.sent[0].hdr.epoch, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, 0);
	rig.now_ns += 3000000;
	ack = server_rig_join(&rig, 42, ack.cookie, 1234);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_ACTIVE);
	ck_assert_uint_eq(ack.nonce, 42);
	ck_assert_uint_eq(ack.size, 5);
	ck_assert_uint_eq(ack.window, 8);
	ck_assert_uint_eq(ack.payload_bytes, 256);
	ck_assert_uint_eq(ack.group_be, __builtin_bswap32(FANIN_WIRE_GROUPS | SERVER_RIG_JOB));
	ck_assert_uint_eq(ack.flags, 0);
	ck_assert_uint_eq(ack.slots, 16);
	ck_assert_uint_eq(ack.sharing, 1);
	ck_assert_uint_eq(ack.port_blocks, 64);
	ck_assert_uint_eq(ack.parameters[1], 80);
	ck_assert_uint_eq(ack.instance, fanin_server_core_instance(rig.core));
	ck_assert_str_eq(ack.handler, "pa-atp");
	ck_assert_uint_ne(rig.sent[0].hdr.epoch, 0);
	ck_assert_uint_eq(rig.sent[0].hdr.key, rig.keys.down);
	ck_assert_uint_eq(rig.sent[0].hdr.progress, 1234);
	ck_assert_uint_eq(rig.sent[0].payload_len, fanin_join_ack_len(5));
	memcpy(&ranks, rig.sent[0].payload + sizeof(ack), sizeof(ranks));
	ck_assert_uint_eq(ranks, 0x1f);
	ck_assert_uint_eq(rig.sent[0].dst_ip_be, SERVER_RIG_SWITCH);
	ck_assert_uint_eq(rig.sent[0].dst_port, SERVER_RIG_PORT);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.sent[0].hdr.epoch);
	/* Between challenge and answer a round trip has passed. */
	ck_assert_uint_eq(server_rig_stats(&rig).round_trip_us, 3000);
}
END_TEST

START_TEST(a_round_trip_is_measured_once_and_has_a_least)
{
	struct fanin_join_ack_body ack;

	server_rig_open(&rig, MEMORY, 0);
	server_rig_add(&rig, 2, 16, 256);
	ack = server_rig_join(&rig, 42, 0, 0);
	rig.now_ns += 500000000;
	ack = server_rig_join(&rig, 42, 0, 0); /* the challenge was lost */
	rig.now_ns += 1000;
	server_rig_join(&rig, 42, ack.cookie, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).round_trip_us, 1000); /* as before any */
	server_rig_begin(&rig, 43);
	ck_assert_uint_eq(server_rig_stats(&rig).round_trip_us,
			  FANIN_SERVER_MIN_ROUND_TRIP_NS / 1000);
}
END_TEST

/*
 * The switch's answer may be lost; then the switch waits until one of its children repeats its own
 * JOIN.
 */
START_TEST(a_lost_join_does_not_make_the_round_trip_long)
{
	struct fanin_join_ack_body ack;

	server_rig_open(&rig, MEMORY, 0);
	server_rig_add(&rig, 2, 16, 256);
	ack = server_rig_join(&rig, 42, 0, 0);
	rig.now_ns += UINT64_C(60000000000);
	ack = server_rig_join(&rig, 42, ack.cookie, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_ACTIVE);
	ck_assert_uint_eq(server_rig_stats(&rig).round_trip_us,
			  FANIN_SERVER_MAX_ROUND_TRIP_NS / 1000);
	rig.epoch = rig.sent[0].hdr.epoch;
	server_rig_partial(&rig, 0, 1, 1);
	ck_assert_uint_eq(fanin_server_core_due(rig.core),
			  rig.now_ns + FANIN_SERVER_MAX_ROUND_TRIP_NS);
}
END_TEST

START_TEST(a_repeated_join_gets_the_same_answer)
{
	struct fanin_join_ack_body first, second;
	uint32_t epoch;

	server_rig_start(&rig, 3);
	epoch = rig.epoch;
	first = server_rig_join(&rig, 99, 0, 77);
	second = server_rig_join(&rig, 99, first.cookie, 0);
	ck_assert_mem_eq(&first, &second, sizeof(first));
	ck_assert_uint_eq(rig.sent[0].hdr.epoch, epoch);
	ck_assert_uint_eq(rig.sent[0].hdr.progress, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).runs, 1);
}
END_TEST

START_TEST(a_join_without_the_right_cookie_changes_nothing)
{
	struct fanin_join_ack_body ack;
	uint64_t cookie;

	server_rig_start(&rig, 3);
	ack = server_rig_join(&rig, 5, 0, 0);
	cookie = ack.cookie;
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ack = server_rig_join(&rig, 5, cookie + 2, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_eq(ack.cookie, cookie);
	/* Another nonce has another cookie, and the one before is good no more. */
	ack = server_rig_join(&rig, 6, cookie, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_ne(ack.cookie, cookie);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.epoch);
	ck_assert_uint_eq(server_rig_stats(&rig).runs, 1);
}
END_TEST

START_TEST(a_cookie_is_taken_once)
{
	struct fanin_join_ack_body ack;
	uint64_t cookie;

	server_rig_start(&rig, 3);
	cookie = server_rig_join(&rig, 5, 0, 0).cookie;
	server_rig_join(&rig, 5, cookie, 0);
	server_rig_begin(&rig, 6);
	/* The JOIN of 5, late. */
	ack = server_rig_join(&rig, 5, cookie, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.epoch);
}
END_TEST

START_TEST(another_join_begins_another_run_with_empty_slots)
{
	const uint32_t first = (server_rig_start(&rig, 2), rig.epoch);

	server_rig_partial(&rig, 0, 1, 5);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, 1);
	server_rig_begin(&rig, 100);
	ck_assert_uint_eq(rig.epoch, first + 1);
	ck_assert_uint_eq(server_rig_stats(&rig).waiting, 0);
	ck_assert_uint_eq(fanin_server_core_due(rig.core), UINT64_MAX);
	server_rig_partial(&rig, 0, 2, 7);
	ck_assert_uint_eq(server_rig_count(&rig, FANIN_TYPE_RESULT), 0);
	server_rig_partial(&rig, 0, 1, 6);
	ck_assert_int_eq(*(const int32_t *)server_rig_last(&rig, FANIN_TYPE_RESULT)->payload, 13);
}
END_TEST

static void
leave(uint32_t epoch)
{
	const uint32_t own = rig.epoch;

	rig.epoch = epoch;
	server_rig_clear(&rig);
	server_rig_put(&rig, &(struct server_rig_packet){ .type = FANIN_TYPE_LEAVE });
	rig.epoch = own;
	ck_assert_uint_eq(rig.n_sent, 1);
	ck_assert_uint_eq(rig.sent[0].hdr.type, FANIN_TYPE_LEAVE_ACK);
	ck_assert_uint_eq(rig.sent[0].hdr.epoch, epoch);
}

START_TEST(a_leave_ends_its_own_run_only)
{
	server_rig_start(&rig, 2);
	leave(rig.epoch - 1);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.epoch);
	leave(rig.epoch);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, 0);
	leave(rig.epoch);
	server_rig_clear(&rig);
	server_rig_partial(&rig, 0, 1, 5);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_REFUSED)->hdr.count,
			  FANIN_REASON_NOT_ACTIVE);
}
END_TEST

START_TEST(a_copy_of_a_join_that_was_taken_begins_no_run_after_the_leave)
{
	struct fanin_join_ack_body ack;
	uint64_t cookie;

	server_rig_start(&rig, 2);
	cookie = server_rig_join(&rig, 5, 0, 0).cookie;
	server_rig_join(&rig, 5, cookie, 0);
	leave(rig.sent[0].hdr.epoch);
	ack = server_rig_join(&rig, 5, cookie, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ck_assert_uint_ne(ack.cookie, cookie);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, 0);
}
END_TEST

START_TEST(numbers_of_runs_step_over_zero)
{
	server_rig_start(&rig, 2);
	rig.core->next_epoch = UINT32_MAX;
	server_rig_begin(&rig, 100);
	ck_assert_uint_eq(rig.epoch, UINT32_MAX);
	server_rig_begin(&rig, 101);
	ck_assert_uint_eq(rig.epoch, 1);
}
END_TEST

/* A JOIN as `change` makes it. Returns why it was refused. */
static const struct fanin_hdr *
refused_join(void (*change)(struct fanin_headers *headers, struct fanin_join_body *body))
{
	struct fanin_join_body body = { .nonce = 4711, .size = rig.n_ranks, .mtu = 1500 };
	struct server_rig_packet packet = { .type = FANIN_TYPE_JOIN, .data_len = sizeof(body) };
	struct fanin_headers headers;

	server_rig_headers(&rig, &packet, &headers);
	headers.fanin.epoch = 0;
	headers.fanin.contributions = rig.n_ranks;
	headers.udp.src_be = __builtin_bswap16(40000);
	headers.fanin.port = 40000;
	change(&headers, &body);
	fanin_wire_set_payload_len(&headers, sizeof(body));
	server_rig_clear(&rig);
	server_rig_give(&rig, &headers, &body);
	ck_assert_uint_eq(rig.n_sent, 1);
	ck_assert_uint_eq(rig.sent[0].hdr.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(rig.sent[0].hdr.members, 4711);
	ck_assert_uint_eq(rig.sent[0].dst_port, 40000);
	ck_assert_uint_eq(fanin_server_core_drops(rig.core, rig.sent[0].hdr.count), 1);
	return &rig.sent[0].hdr;
}

static void
named_address(struct fanin_headers *headers, struct fanin_join_body *body)
{
	body->address_be = ~headers->ip.src_be;
}

static void
as_before(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->fanin.version = FANIN_WIRE_VERSION_BEFORE;
}

static void
other_job(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->fanin.job = 8;
}

static void
other_key(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->fanin.key = 0xbad;
}

static void
other_rank(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->fanin.rank = 1;
}

static void
other_source(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->ip.src_be ^= 1u << 24;
}

static void
other_size(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)headers;
	body->size++;
}

static void
other_level(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)body;
	headers->fanin.contributions--;
}

static void
small_mtu(struct fanin_headers *headers, struct fanin_join_body *body)
{
	(void)headers;
	body->mtu = FANIN_PAYLOAD_ALIGN + FANIN_MTU_OVERHEAD - 1;
}

START_TEST(joins_that_are_wrong_are_refused_with_the_reason)
{
	const struct fanin_hdr *refused;

	server_rig_start(&rig, 2);
	refused = refused_join(other_job);
	ck_assert_uint_eq(refused->count, FANIN_REASON_JOB);
	ck_assert_uint_eq(refused->key, rig.keys.up); /* what came: nothing is told */
	refused = refused_join(other_key);
	ck_assert_uint_eq(refused->count, FANIN_REASON_KEY);
	ck_assert_uint_eq(refused->key, 0xbad);
	ck_assert_uint_eq(refused_join(other_rank)->count, FANIN_REASON_RANK);
	refused = refused_join(other_source);
	ck_assert_uint_eq(refused->count, FANIN_REASON_SOURCE);
	ck_assert_uint_eq(refused->progress, SERVER_RIG_SWITCH ^ 1u << 24);
	ck_assert_uint_eq(refused->version, FANIN_WIRE_VERSION);
	refused = refused_join(other_size);
	ck_assert_uint_eq(refused->count, FANIN_REASON_SIZE);
	ck_assert_uint_eq(refused->key, rig.keys.down);
	ck_assert_uint_eq(refused_join(small_mtu)->count, FANIN_REASON_MTU);
	refused = refused_join(as_before);
	ck_assert_uint_eq(refused->count, FANIN_REASON_VERSION);
	ck_assert_uint_eq(refused->key, rig.keys.down);
	ck_assert_uint_eq(refused->version, FANIN_WIRE_VERSION_BEFORE);
	ck_assert_uint_eq(refused->contributions, FANIN_WIRE_VERSION);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.epoch);
	ck_assert_uint_eq(server_rig_stats(&rig).runs, 1);
}
END_TEST

START_TEST(a_switch_behind_a_translator_is_told_its_address)
{
	const struct fanin_hdr *refused;

	server_rig_start(&rig, 2);
	refused = refused_join(named_address);
	ck_assert_uint_eq(refused->count, FANIN_REASON_SOURCE);
	ck_assert_uint_eq(refused->progress, SERVER_RIG_SWITCH);
	ck_assert_uint_eq(refused->key, rig.keys.up);
	ck_assert_uint_eq(server_rig_stats(&rig).epoch, rig.epoch);
}
END_TEST

START_TEST(the_switch_has_all_ranks_below_it)
{
	server_rig_start(&rig, 2);
	ck_assert_uint_eq(refused_join(other_level)->count, FANIN_REASON_SIZE);
}
END_TEST

/* A contribution of rank 0, changed. */
static void
give_changed(void (*change)(struct fanin_headers *headers))
{
	static const int32_t data[4];
	struct server_rig_packet packet = {
		.type = FANIN_TYPE_PARTIAL, .members = 1, .data = data, .data_len = sizeof(data)
	};
	struct fanin_headers headers;

	server_rig_headers(&rig, &packet, &headers);
	change(&headers);
	server_rig_clear(&rig);
	server_rig_give(&rig, &headers, data);
}

static void
set_key(struct fanin_headers *headers)
{
	headers->fanin.key = rig.keys.down;
}

static void
set_rank(struct fanin_headers *headers)
{
	headers->fanin.rank = 1;
}

static void
set_source(struct fanin_headers *headers)
{
	headers->ip.src_be ^= 1u << 24;
	fanin_wire_set_payload_len(headers, 16);
}

static void
set_down(struct fanin_headers *headers)
{
	headers->fanin.type = FANIN_TYPE_RESULT;
}

static void
set_flag(struct fanin_headers *headers)
{
	headers->fanin.flags = 1u << 15;
}

static void
set_tag(struct fanin_headers *headers)
{
	headers->fanin.flags = FANIN_FLAG_TAGGED;
}

static void
set_version(struct fanin_headers *headers)
{
	headers->fanin.version++;
}

static void
set_count(struct fanin_headers *headers)
{
	headers->fanin.count++;
}

static void
set_dtype(struct fanin_headers *headers)
{
	headers->fanin.dtype = 77;
}

static void
set_checksum(struct fanin_headers *headers)
{
	headers->ip.checksum_be++;
}

static void
set_ihl(struct fanin_headers *headers)
{
	headers->ip.version_ihl = 0x44;
}

static void
set_probe_ack(struct fanin_headers *headers)
{
	headers->fanin.type = FANIN_TYPE_PROBE_ACK;
	headers->fanin.dtype = 0;
	headers->fanin.op = 0;
	headers->fanin.count = 0;
}

static void
set_huge_job(struct fanin_headers *headers)
{
	headers->fanin.job = UINT32_MAX;
}

START_TEST(strangers_and_damaged_packets_are_dropped_without_a_word)
{
	static const struct {
		void (*change)(struct fanin_headers *headers);
		enum fanin_reason reason;
	} cases[] = {
		{ set_key, FANIN_REASON_KEY },         { set_rank, FANIN_REASON_RANK },
		{ set_source, FANIN_REASON_SOURCE },   { set_down, FANIN_REASON_DIRECTION },
		{ set_flag, FANIN_REASON_FLAGS },      { set_tag, FANIN_REASON_FLAGS },
		{ set_version, FANIN_REASON_VERSION }, { set_count, FANIN_REASON_ELEMENTS },
		{ set_dtype, FANIN_REASON_DTYPE },     { set_checksum, FANIN_REASON_IP_CHECKSUM },
		{ set_ihl, FANIN_REASON_IP_HEADER },   { set_probe_ack, FANIN_REASON_TYPE },
	};

	server_rig_start(&rig, 2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t before = fanin_server_core_drops(rig.core, cases[i].reason);

		give_changed(cases[i].change);
		ck_assert_msg(rig.n_sent == 0, "case %zu was answered", i);
		ck_assert_msg(fanin_server_core_drops(rig.core, cases[i].reason) == before + 1,
			      "case %zu is not counted as %s", i,
			      fanin_reason_name(cases[i].reason));
	}
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 0);
	/* A packet without a fault is taken: the cases differ by their fault only. */
	server_rig_partial(&rig, 0, 1, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 1);
}
END_TEST

START_TEST(truncated_frames_of_any_length_are_dropped)
{
	static const int32_t data[4];
	struct server_rig_packet packet = {
		.type = FANIN_TYPE_PARTIAL, .members = 1, .data = data, .data_len = sizeof(data)
	};
	struct fanin_headers headers;
	size_t len;

	server_rig_start(&rig, 2);
	server_rig_headers(&rig, &packet, &headers);
	for (len = 0; len < FANIN_PAYLOAD_OFFSET + sizeof(data); len++)
		fanin_server_core_receive(rig.core, &headers, len, data, rig.now_ns);
	ck_assert_uint_eq(rig.n_sent, 0);
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 0);
	fanin_server_core_receive(rig.core, &headers, len, data, rig.now_ns);
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 1);
}
END_TEST

START_TEST(packets_of_a_run_that_is_gone_are_refused)
{
	server_rig_start(&rig, 2);
	rig.epoch--;
	server_rig_partial(&rig, 3, 1, 5);
	ck_assert_uint_eq(rig.n_sent, 1);
	ck_assert_uint_eq(rig.sent[0].hdr.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(rig.sent[0].hdr.count, FANIN_REASON_EPOCH);
	ck_assert_uint_eq(rig.sent[0].hdr.epoch, rig.epoch);
	ck_assert_uint_eq(rig.sent[0].hdr.block, 3);
	ck_assert_uint_eq(rig.sent[0].hdr.key, rig.keys.down);
	ck_assert_uint_eq(rig.sent[0].dst_port, SERVER_RIG_PORT);
	ck_assert_uint_eq(server_rig_stats(&rig).blocks, 0);
}
END_TEST

START_TEST(packets_of_a_job_that_is_gone_are_refused)
{
	server_rig_start(&rig, 2);
	ck_assert(fanin_server_core_remove(rig.core, SERVER_RIG_JOB));
	ck_assert(!fanin_server_core_remove(rig.core, SERVER_RIG_JOB));
	ck_assert(!fanin_server_core_remove(rig.core, UINT32_MAX));
	server_rig_partial(&rig, 3, 1, 5);
	ck_assert_uint_eq(rig.n_sent, 1);
	ck_assert_uint_eq(rig.sent[0].hdr.type, FANIN_TYPE_REFUSED);
	ck_assert_uint_eq(rig.sent[0].hdr.count, FANIN_REASON_JOB);
	ck_assert_uint_eq(rig.sent[0].hdr.epoch, rig.epoch);
	ck_assert_uint_eq(rig.sent[0].hdr.key, rig.keys.up);
	give_changed(set_huge_job);
	ck_assert_uint_eq(rig.sent[0].hdr.count, FANIN_REASON_JOB);
}
END_TEST

static int
add(uint32_t id, uint16_t n_ranks, uint32_t slots, uint16_t payload_bytes,
    struct fanin_error *error)
{
	const struct fanin_server_spec spec = {
		.id = id,
		.key = 1,
		.member_ip_be = SERVER_RIG_SWITCH,
		.n_ranks = n_ranks,
		.slots = slots,
		.payload_bytes = payload_bytes,
	};

	fanin_error_clear(error);
	return fanin_server_core_add(rig.core, &spec, error);
}

START_TEST(jobs_out_of_range_are_refused_by_name)
{
	struct fanin_error error;

	server_rig_open(&rig, MEMORY, 0);
	ck_assert_int_eq(add(0, 2, 16, 256, &error), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "job number 0, expected 1 to 65535"));
	ck_assert_int_eq(add(65536, 2, 16, 256, &error), FANIN_ERR_INVALID);
	ck_assert_int_eq(add(1, 0, 16, 256, &error), FANIN_ERR_INVALID);
	ck_assert_int_eq(add(1, 65, 16, 256, &error), FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "found 65 ranks, expected at most 64"));
	ck_assert_int_eq(add(1, 2, 1, 256, &error), FANIN_ERR_INVALID);
	ck_assert_int_eq(add(1, 2, 24, 256, &error), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "found 24 slots, expected a power of two"));
	ck_assert_int_eq(add(1, 2, 16384, 256, &error), FANIN_ERR_INVALID);
	ck_assert_int_eq(add(1, 2, 16, 100, &error), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "found payload_bytes 100"));
	ck_assert_int_eq(add(1, 2, 16, 0, &error), FANIN_ERR_INVALID);
	ck_assert_int_eq(add(1, 64, 16, 256, &error), FANIN_OK);
	ck_assert_int_eq(add(1, 64, 16, 256, &error), FANIN_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "job 1 exists already"));
	ck_assert_uint_eq(fanin_server_core_n_jobs(rig.core), 1);
}
END_TEST

START_TEST(jobs_without_room_are_refused_with_the_amounts)
{
	const uint64_t bytes = fanin_server_job_bytes(64, 1024);
	struct fanin_error error;
	char text[64];

	server_rig_open(&rig, 4 * bytes, 0);
	ck_assert_uint_eq(fanin_server_max_slots(rig.core, 1024), 64);
	ck_assert_int_eq(add(1, 2, 128, 1024, &error), FANIN_ERR_CAPACITY);
	ck_assert_ptr_nonnull(strstr(error.text, "asked for 128 slots of 1024 bytes"));
	snprintf(text, sizeof(text), "%lu are available to each job", (unsigned long)bytes);
	ck_assert_ptr_nonnull(strstr(error.text, text));
	ck_assert_ptr_nonnull(strstr(error.text, "enough for 64 slots"));
	for (uint32_t id = 1; id <= 4; id++)
		ck_assert_int_eq(add(id, 2, 64, 1024, &error), FANIN_OK);
	ck_assert_int_eq(add(5, 2, 64, 1024, &error), FANIN_ERR_CAPACITY);
	ck_assert_ptr_nonnull(strstr(error.text, "there are 4 jobs"));
	ck_assert(fanin_server_core_remove(rig.core, 2));
	ck_assert_int_eq(add(5, 2, 64, 1024, &error), FANIN_OK);
	ck_assert_uint_eq(fanin_server_core_next(rig.core, 0), 1);
	ck_assert_uint_eq(fanin_server_core_next(rig.core, 1), 3);
	ck_assert_uint_eq(fanin_server_core_next(rig.core, 4), 5);
	ck_assert_uint_eq(fanin_server_core_next(rig.core, 5), 0);
	ck_assert_uint_eq(fanin_server_core_next(rig.core, UINT32_MAX), 0);
}
END_TEST

START_TEST(jobs_do_not_mix)
{
	const struct fanin_server_spec other = {
		.id = 9,
		.key = 77,
		.member_ip_be = SERVER_RIG_SWITCH,
		.n_ranks = 2,
		.slots = 16,
		.payload_bytes = 256,
	};
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	struct fanin_error error;

	server_rig_start(&rig, 2);
	ck_assert_int_eq(fanin_server_core_add(rig.core, &other, &error), FANIN_OK);
	server_rig_partial(&rig, 0, 1, 5);
	server_rig_partial(&rig, 0, 2, 5);
	fanin_server_job_describe(fanin_server_core_job(rig.core, 9), &stats);
	ck_assert_uint_eq(stats.epoch, 0);
	ck_assert_uint_eq(stats.blocks, 0);
	ck_assert_uint_eq(stats.job, 9);
	ck_assert_uint_eq(server_rig_stats(&rig).results, 1);
	ck_assert_uint_eq(server_rig_last(&rig, FANIN_TYPE_RESULT)->dst_ip_be,
			  __builtin_bswap32(FANIN_WIRE_GROUPS | SERVER_RIG_JOB));
}
END_TEST

Suite *
suite_server(void)
{
	Suite *suite = suite_create("server");
	TCase *runs = tcase_create("runs");
	TCase *senders = tcase_create("senders");
	TCase *jobs = tcase_create("jobs");

	tcase_add_checked_fixture(runs, NULL, close_rig);
	tcase_add_test(runs, a_join_is_challenged_and_its_answer_begins_a_run);
	tcase_add_test(runs, a_round_trip_is_measured_once_and_has_a_least);
	tcase_add_test(runs, a_lost_join_does_not_make_the_round_trip_long);
	tcase_add_test(runs, a_repeated_join_gets_the_same_answer);
	tcase_add_test(runs, a_join_without_the_right_cookie_changes_nothing);
	tcase_add_test(runs, a_cookie_is_taken_once);
	tcase_add_test(runs, another_join_begins_another_run_with_empty_slots);
	tcase_add_test(runs, a_leave_ends_its_own_run_only);
	tcase_add_test(runs, a_copy_of_a_join_that_was_taken_begins_no_run_after_the_leave);
	tcase_add_test(runs, numbers_of_runs_step_over_zero);
	suite_add_tcase(suite, runs);
	tcase_add_checked_fixture(senders, NULL, close_rig);
	tcase_add_test(senders, joins_that_are_wrong_are_refused_with_the_reason);
	tcase_add_test(senders, a_switch_behind_a_translator_is_told_its_address);
	tcase_add_test(senders, the_switch_has_all_ranks_below_it);
	tcase_add_test(senders, strangers_and_damaged_packets_are_dropped_without_a_word);
	tcase_add_test(senders, truncated_frames_of_any_length_are_dropped);
	tcase_add_test(senders, packets_of_a_run_that_is_gone_are_refused);
	tcase_add_test(senders, packets_of_a_job_that_is_gone_are_refused);
	suite_add_tcase(suite, senders);
	tcase_add_checked_fixture(jobs, NULL, close_rig);
	tcase_add_test(jobs, jobs_out_of_range_are_refused_by_name);
	tcase_add_test(jobs, jobs_without_room_are_refused_with_the_amounts);
	tcase_add_test(jobs, jobs_do_not_mix);
	suite_add_tcase(suite, jobs);
	return suite;
}
