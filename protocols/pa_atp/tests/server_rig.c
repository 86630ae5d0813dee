/* SPDX-License-Identifier: BSD-3-Clause */
/* See server_rig.h. */
#include "protocols/pa_atp/tests/server_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void
take(void *arg, const struct fanin_server_emission *emission)
{
	struct server_rig *rig = arg;
	struct server_rig_sent *sent = &rig->sent[rig->n_sent++];

	ck_assert_uint_le(rig->n_sent, SERVER_RIG_SENT);
	ck_assert_uint_le(emission->payload_len, sizeof(sent->payload));
	if (!emission->lasting)
		ck_assert_uint_le(emission->payload_len, FANIN_SERVER_BODY_MAX);
	sent->hdr = *emission->hdr;
	sent->payload_len = emission->payload_len;
	if (emission->payload_len != 0)
		memcpy(sent->payload, emission->payload, emission->payload_len);
	sent->dst_ip_be = emission->dst_ip_be;
	sent->dst_port = emission->dst_port;
}

static uint64_t
count_up(void *arg)
{
	struct server_rig *rig = arg;

	rig->last_random += UINT64_C(0x9e3779b97f4a7c15);
	return rig->last_random;
}

void
server_rig_open(struct server_rig *rig, uint64_t memory_bytes, uint64_t round_trip_ns)
{
	const struct fanin_server_core_options options = {
		.send = take,
		.random = count_up,
		.arg = rig,
		.udp_port = SERVER_RIG_PORT,
		.isa = fanin_isa_detect(),
		.max_jobs = 4,
		.memory_bytes = memory_bytes,
		.round_trip_ns = round_trip_ns,
	};

	*rig = (struct server_rig){ .now_ns = 1000000000 };
	rig->sent = calloc(SERVER_RIG_SENT, sizeof(*rig->sent));
	ck_assert_ptr_nonnull(rig->sent);
	ck_assert_int_eq(fanin_server_core_create(&options, &rig->core), FANIN_OK);
	ck_assert_int_eq(fanin_keys_derive(SERVER_RIG_KEY, &rig->keys), 0);
}

void
server_rig_add(struct server_rig *rig, uint16_t n_ranks, uint32_t slots, uint32_t payload_bytes)
{
	const struct fanin_server_spec spec = {
		.id = SERVER_RIG_JOB,
		.key = SERVER_RIG_KEY,
		.member_ip_be = SERVER_RIG_SWITCH,
		.n_ranks = n_ranks,
		.payload_bytes = (uint16_t)payload_bytes,
		.slots = slots,
		.parameters = { 5, 80, 64 },
		.handler = "pa-atp",
	};
	struct fanin_error error;

	rig->n_ranks = n_ranks;
	rig->payload_bytes = payload_bytes;
	ck_assert_int_eq(fanin_server_core_add(rig->core, &spec, &error), FANIN_OK);
}

void
server_rig_start(struct server_rig *rig, uint16_t n_ranks)
{
	server_rig_open(rig, 64 << 20, SERVER_RIG_ROUND_TRIP);
	server_rig_add(rig, n_ranks, SERVER_RIG_SLOTS, SERVER_RIG_PAYLOAD);
	server_rig_begin(rig, 99);
}

void
server_rig_close(struct server_rig *rig)
{
	fanin_server_core_free(rig->core);
	free(rig->sent);
}

void
server_rig_clear(struct server_rig *rig)
{
	rig->n_sent = 0;
}

static void
l4(const struct server_rig *rig, uint32_t payload_len, uint8_t tos, struct fanin_headers *headers)
{
	const struct fanin_flow flow = {
		.src_ip_be = SERVER_RIG_SWITCH,
		.dst_ip_be = 0xc8004d0au,
		.src_port = SERVER_RIG_PORT,
		.dst_port = SERVER_RIG_PORT,
	};

	(void)rig;
	fanin_wire_encode_l4(headers, &flow, payload_len);
	headers->ip.tos = tos;
	fanin_wire_set_payload_len(headers, payload_len);
}

struct fanin_join_ack_body
server_rig_join(struct server_rig *rig, uint64_t nonce, uint64_t cookie, uint32_t progress)
{
	const struct fanin_join_body body = {
		.nonce = nonce,
		.size = rig->n_ranks,
		.mtu = rig->payload_bytes + (uint32_t)FANIN_MTU_OVERHEAD,
		.cookie = cookie,
	};
	struct fanin_join_ack_body ack = { 0 };
	struct fanin_headers headers;

	server_rig_clear(rig);
	l4(rig, sizeof(body), 0, &headers);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_JOIN, SERVER_RIG_JOB, 0, rig->keys.up);
	headers.fanin.progress = progress;
	headers.fanin.contributions = rig->n_ranks;
	server_rig_give(rig, &headers, &body);
	ck_assert_uint_eq(rig->n_sent, 1);
	ck_assert_uint_eq(rig->sent[0].hdr.type, FANIN_TYPE_JOIN_ACK);
	memcpy(&ack, rig->sent[0].payload, sizeof(ack));
	return ack;
}

void
server_rig_begin(struct server_rig *rig, uint64_t nonce)
{
	struct fanin_join_ack_body ack = server_rig_join(rig, nonce, 0, 0);

	ck_assert_uint_eq(ack.state, FANIN_JOIN_CHALLENGE);
	ack = server_rig_join(rig, nonce, ack.cookie, 0);
	ck_assert_uint_eq(ack.state, FANIN_JOIN_ACTIVE);
	rig->epoch = rig->sent[0].hdr.epoch;
	server_rig_clear(rig);
}

void
server_rig_headers(const struct server_rig *rig, const struct server_rig_packet *packet,
		   struct fanin_headers *headers)
{
	const bool has_elements = fanin_type_has_elements(packet->type);
	const uint8_t dtype = packet->dtype != 0 ? packet->dtype : FANIN_WIRE_I32;
	const uint8_t op = packet->op != 0 ? packet->op : FANIN_WIRE_SUM;
	struct fanin_hdr *hdr = &headers->fanin;

	l4(rig, packet->data_len, packet->tos, headers);
	fanin_wire_encode_header(hdr, (enum fanin_type)packet->type, SERVER_RIG_JOB, rig->epoch,
				 rig->keys.up);
	hdr->flags = packet->flags;
	hdr->block = packet->block;
	hdr->members = packet->members;
	hdr->number = packet->number;
	hdr->root = packet->root;
	if (!has_elements)
		return;
	hdr->contributions = packet->type == FANIN_TYPE_PARTIAL
				     ? (uint16_t)__builtin_popcountll(packet->members)
				     : rig->n_ranks;
	hdr->dtype = dtype;
	hdr->op = op;
	hdr->count = packet->count != 0 ? packet->count
					: (uint16_t)(packet->data_len / fanin_dtype_size(dtype));
}

void
server_rig_give(struct server_rig *rig, const struct fanin_headers *headers, const void *data)
{
	const size_t len = FANIN_ETH_LEN + (size_t)__builtin_bswap16(headers->ip.total_len_be);

	fanin_server_core_receive(rig->core, headers, len, data, rig->now_ns);
}

void
server_rig_put(struct server_rig *rig, const struct server_rig_packet *packet)
{
	struct fanin_headers headers;

	server_rig_headers(rig, packet, &headers);
	server_rig_give(rig, &headers, packet->data);
}

void
server_rig_partial(struct server_rig *rig, uint32_t block, uint64_t members, int32_t value)
{
	int32_t data[4] = { value, value, value, value };

	server_rig_put(rig, &(struct server_rig_packet){ .type = FANIN_TYPE_PARTIAL,
							 .block = block,
							 .members = members,
							 .data = data,
							 .data_len = sizeof(data) });
}

size_t
server_rig_count(const struct server_rig *rig, uint8_t type)
{
	size_t n = 0;

	for (size_t i = 0; i < rig->n_sent; i++)
		n += rig->sent[i].hdr.type == type;
	return n;
}

const struct server_rig_sent *
server_rig_last(const struct server_rig *rig, uint8_t type)
{
	for (size_t i = rig->n_sent; i > 0; i--) {
		if (rig->sent[i - 1].hdr.type == type)
			return &rig->sent[i - 1];
	}
	ck_abort_msg("no packet of type %u was sent", type);
	return NULL;
}

struct fanin_server_job_stats
server_rig_stats(const struct server_rig *rig)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };

	fanin_server_job_describe(fanin_server_core_job(rig->core, SERVER_RIG_JOB), &stats);
	return stats;
}
