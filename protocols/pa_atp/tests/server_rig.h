/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter server's core under test: the test plays its aggregating switch, and checks the
 * packets that come back.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_TESTS_SERVER_RIG_H
#define FANIN_PROTOCOLS_PA_ATP_TESTS_SERVER_RIG_H

#include "protocols/pa_atp/host/server.h"
#include "protocols/pa_atp/host/server_internal.h"

#define SERVER_RIG_JOB 7u
#define SERVER_RIG_KEY UINT64_C(0x1122334455667788)
#define SERVER_RIG_SWITCH 0xfe004d0au /* 10.77.0.254, network order */
#define SERVER_RIG_PORT 21930
#define SERVER_RIG_PAYLOAD 256u
#define SERVER_RIG_SLOTS 16u
#define SERVER_RIG_SENT 4096u
#define SERVER_RIG_MAX 1024u
#define SERVER_RIG_ROUND_TRIP UINT64_C(1000000)

struct server_rig_sent {
	struct fanin_hdr hdr;
	uint8_t payload[SERVER_RIG_MAX] __attribute__((aligned(8)));
	uint32_t payload_len;
	uint32_t dst_ip_be;
	uint16_t dst_port;
};

struct server_rig {
	struct fanin_server_core *core;
	struct fanin_keys keys;
	uint16_t n_ranks;
	uint32_t payload_bytes;
	uint32_t epoch; /* of packets that the rig makes */
	uint64_t now_ns;
	uint64_t last_random;
	struct server_rig_sent *sent; /* since server_rig_clear */
	size_t n_sent;
};

/* What to send; the rest is 0. */
struct server_rig_packet {
	uint8_t type;
	uint16_t flags;
	uint32_t block;
	uint64_t members; /* of a PARTIAL the ranks, of a QUERY the way back */
	uint8_t dtype;    /* 0: i32 */
	uint8_t op;       /* 0: sum */
	uint16_t count;   /* 0: as many as `data` has, which is data_len long */
	uint16_t root;
	const void *data;
	uint32_t data_len;
	uint32_t number; /* of a QUERY */
	uint8_t tos;
};

/* A server without a job; options: may be NULL. */
void server_rig_open(struct server_rig *rig, uint64_t memory_bytes, uint64_t round_trip_ns);

/* A server with the job, which the switch has joined. */
void server_rig_start(struct server_rig *rig, uint16_t n_ranks);

/* Adds the job. */
void server_rig_add(struct server_rig *rig, uint16_t n_ranks, uint32_t slots,
		    uint32_t payload_bytes);

void server_rig_close(struct server_rig *rig);

void server_rig_clear(struct server_rig *rig);

/*
 * A JOIN of the switch. Returns the answer's body, of which the header is rig->sent[0]; what was
 * sent before is cleared.
 */
struct fanin_join_ack_body server_rig_join(struct server_rig *rig, uint64_t nonce, uint64_t cookie,
					   uint32_t progress);

/* Joins with a nonce of its own, and takes the run's number over. */
void server_rig_begin(struct server_rig *rig, uint64_t nonce);

/* All headers of such a packet, as the switch sends it. */
void server_rig_headers(const struct server_rig *rig, const struct server_rig_packet *packet,
			struct fanin_headers *headers);

/* Gives a packet to the server. */
void server_rig_give(struct server_rig *rig, const struct fanin_headers *headers, const void *data);
void server_rig_put(struct server_rig *rig, const struct server_rig_packet *packet);

/* A PARTIAL of i32, all elements of which are `value`; one rank's or several'. */
void server_rig_partial(struct server_rig *rig, uint32_t block, uint64_t members, int32_t value);

/* The number of packets of a type that were sent, and the last one. */
size_t server_rig_count(const struct server_rig *rig, uint8_t type);
const struct server_rig_sent *server_rig_last(const struct server_rig *rig, uint8_t type);

/* The counters. */
struct fanin_server_job_stats server_rig_stats(const struct server_rig *rig);

#endif
