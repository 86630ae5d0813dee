/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer target for a parameter server. The input is a list of records, each behind a byte of
 * length: a shorter one than a Fanin header lets time pass, any other is a header and a payload. A
 * key, a run or a cookie of 1 stands for the right one, which an input can't know. What the server
 * sends has to be valid, and a block has one result in a run. server_seeds.py makes the seeds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/host/server.h"
#include "wire/keys.h"
#include "wire/version.h"

#define JOB 1u
#define N_RANKS 5
#define SLOTS 8u
#define PAYLOAD 64u
#define SECRET UINT64_C(7)
#define SWITCH_IP 0xfe004d0au
#define RECORD_MAX 255u
#define TIME_STEP UINT64_C(100000)
#define ANY 1u /* in an input: what is right */

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
	uint32_t block;
	uint32_t payload_len;
	uint8_t payload[PAYLOAD];
};

static struct fanin_keys keys;
static uint32_t epoch;  /* of the run, as JOIN_ACK has told */
static uint64_t cookie; /* of the last challenge */
static struct result results[SLOTS];
static uint32_t n_results; /* of the run; blocks of a slot come one after the other */
static uint64_t numbers;

static void
check_result(const struct fanin_server_emission *emission)
{
	const struct fanin_hdr *hdr = emission->hdr;
	struct result *result = &results[hdr->block % SLOTS];

	REQUIRE(hdr->contributions == N_RANKS && emission->payload_len <= PAYLOAD &&
		emission->lasting);
	if (hdr->type == FANIN_TYPE_REPEAT) {
		REQUIRE(result->block == hdr->block &&
			result->payload_len == emission->payload_len);
		REQUIRE(memcmp(result->payload, emission->payload, emission->payload_len) == 0);
		return;
	}
	/* The first one of a slot, or the block after the one that it had. */
	REQUIRE(hdr->block == result->block + SLOTS);
	result->block = hdr->block;
	result->payload_len = emission->payload_len;
	memcpy(result->payload, emission->payload, emission->payload_len);
	n_results++;
}

static void
begin_run(uint32_t number)
{
	if (number == epoch)
		return;
	epoch = number;
	n_results = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		results[i].block = i - SLOTS;
}

static void
take(void *arg, const struct fanin_server_emission *emission)
{
	const struct fanin_flow flow = { .dst_ip_be = emission->dst_ip_be,
					 .dst_port = emission->dst_port };
	const struct fanin_hdr *hdr = emission->hdr;
	struct fanin_headers headers;
	struct fanin_join_ack_body ack;

	(void)arg;
	REQUIRE(emission->payload_len == 0 || emission->payload != NULL);
	fanin_wire_encode_l4(&headers, &flow, emission->payload_len);
	headers.fanin = *hdr;
	REQUIRE((hdr->version == FANIN_WIRE_VERSION
			 ? fanin_wire_validate(&headers,
					       FANIN_PAYLOAD_OFFSET + emission->payload_len)
			 : fanin_version_validate(&headers, FANIN_PAYLOAD_OFFSET)) ==
		FANIN_REASON_NONE);
	REQUIRE(fanin_type_direction(hdr->type) == FANIN_DOWN);
	REQUIRE(hdr->key == keys.down || hdr->type == FANIN_TYPE_REFUSED);
	switch (hdr->type) {
	case FANIN_TYPE_JOIN_ACK:
		memcpy(&ack, emission->payload, sizeof(ack));
		if (ack.state == FANIN_JOIN_CHALLENGE)
			cookie = ack.cookie;
		else
			begin_run(hdr->epoch);
		break;
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_REPEAT:
		REQUIRE(hdr->epoch == epoch);
		check_result(emission);
		break;
	case FANIN_TYPE_ASK:
		REQUIRE(hdr->epoch == epoch && hdr->members != 0 && hdr->members >> N_RANKS == 0);
		break;
	case FANIN_TYPE_FLUSH:
		REQUIRE(hdr->epoch == epoch);
		break;
	default:
		break;
	}
}

static uint64_t
number(void *arg)
{
	(void)arg;
	return numbers += UINT64_C(0x9e3779b97f4a7c15);
}

static struct fanin_server_core *
make_server(void)
{
	const struct fanin_server_core_options options = {
		.send = take,
		.random = number,
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.isa = FANIN_ISA_PORTABLE,
		.max_jobs = 1,
		.memory_bytes = 1 << 20,
	};
	const struct fanin_server_spec spec = {
		.id = JOB,
		.key = SECRET,
		.member_ip_be = SWITCH_IP,
		.n_ranks = N_RANKS,
		.payload_bytes = PAYLOAD,
		.slots = SLOTS,
	};
	struct fanin_server_core *core;
	struct fanin_error error;

	numbers = 0;
	cookie = 0;
	epoch = 0;
	REQUIRE(fanin_keys_derive(SECRET, &keys) == 0);
	REQUIRE(fanin_server_core_create(&options, &core) == FANIN_OK);
	REQUIRE(fanin_server_core_add(core, &spec, &error) == FANIN_OK);
	return core;
}

static void
give(struct fanin_server_core *core, const uint8_t *record, size_t len, uint64_t now_ns)
{
	const struct fanin_flow flow = {
		.src_ip_be = SWITCH_IP,
		.src_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};
	const size_t payload_len = len - FANIN_HDR_LEN;
	struct fanin_headers headers;
	struct fanin_join_body join;
	uint8_t payload[RECORD_MAX];

	memcpy(payload, record + FANIN_HDR_LEN, payload_len);
	fanin_wire_encode_l4(&headers, &flow, (uint32_t)payload_len);
	memcpy(&headers.fanin, record, FANIN_HDR_LEN);
	if (headers.fanin.key == ANY)
		headers.fanin.key = keys.up;
	if (headers.fanin.epoch == ANY)
		headers.fanin.epoch = epoch;
	if (headers.fanin.type == FANIN_TYPE_JOIN && payload_len >= sizeof(join)) {
		memcpy(&join, payload, sizeof(join));
		if (join.cookie == ANY)
			join.cookie = cookie;
		memcpy(payload, &join, sizeof(join));
	}
	fanin_server_core_receive(core, &headers, FANIN_PAYLOAD_OFFSET + payload_len, payload,
				  now_ns);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fanin_server_core *core = make_server();
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	struct fanin_server_wait waits[SLOTS];
	uint64_t now_ns = 1;

	while (size > 1) {
		const size_t len = data[0] < size - 1 ? data[0] : size - 1;

		if (len < FANIN_HDR_LEN) {
			now_ns += len * TIME_STEP;
			REQUIRE(fanin_server_core_timers(core, now_ns) > now_ns);
		} else {
			give(core, data + 1, len, now_ns);
		}
		fanin_server_job_describe(fanin_server_core_job(core, JOB), &stats);
		REQUIRE(stats.epoch == 0 || stats.epoch == epoch);
		REQUIRE(stats.waiting <= SLOTS && (stats.epoch != 0 || stats.waiting == 0));
		REQUIRE(fanin_server_job_waits(fanin_server_core_job(core, JOB), now_ns, waits,
					       SLOTS) == stats.waiting);
		REQUIRE(stats.waiting != 0 || fanin_server_core_due(core) == UINT64_MAX);
		data += len + 1;
		size -= len + 1;
	}
	fanin_server_core_free(core);
	return 0;
}
