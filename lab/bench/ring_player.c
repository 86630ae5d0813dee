/* SPDX-License-Identifier: BSD-3-Clause */
/* See ring_player.h. */
#include "lab/bench/ring_player.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench/datagram.h"
#include "lab/bench/dctcp.h"
#include "lab/bench/flow_sizes.h"
#include "lab/reference/random.h"

#define PORT 5001
#define FIRST_SOURCE_PORT 20000u
#define SOURCE_PORTS 20000u
/* Interval of checks for timeouts. */
#define TICK_NS UINT64_C(2000000)

enum kind {
	KIND_DATA,
	KIND_ACK,
};

/* FLOW_OVERHEAD bytes, as for any flow's packets. */
struct headers {
	struct datagram_headers datagram;
	uint32_t run;
	uint32_t packet;
	uint16_t kind;
	uint16_t ce; /* of an acknowledgment */
	uint32_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct headers) == FLOW_OVERHEAD, "the ring's packets are as long as others");

struct rank {
	struct ring_player *player;
	struct rig_host *host;
	const uint8_t *first_hop_mac;
	uint32_t ip_be;
	struct rank *next;
	struct rank *previous;
	uint16_t src_port;
	struct dctcp sender; /* to the next rank; its n is the number of packets that may be sent so
				far */
	uint8_t *received;   /* from the previous rank: a flag for each packet */
	uint32_t in_order;   /* packets received before the first missing one */
	uint64_t tick_ns;
};

struct ring_player {
	const struct rig_leaf_spine *network;
	uint32_t run;
	uint32_t step_packets;
	uint32_t n_packets; /* of each connection */
	uint64_t segment_bytes;
	uint64_t sent;
	uint64_t timeouts;
	uint16_t n_ranks;
	uint16_t n_done;
	struct rank ranks[];
};

static uint32_t
data_len(const struct ring_player *player, uint32_t packet)
{
	const uint64_t before = (uint64_t)(packet % player->step_packets) * FLOW_SEGMENT;

	return (uint32_t)RTE_MIN(player->segment_bytes - before, (uint64_t)FLOW_SEGMENT);
}

static void
packet_send(const struct rank *from, const struct rank *to, enum kind kind, uint32_t packet,
	    bool ce)
{
	const struct ring_player *player = from->player;
	const uint32_t data = kind == KIND_DATA ? data_len(player, packet) : 0;
	const uint32_t len = (uint32_t)sizeof(struct headers) + data;
	const struct datagram_way way = {
		.src_mac = rig_host_mac(from->host),
		.dst_mac = from->first_hop_mac,
		.src_ip_be = from->ip_be,
		.dst_ip_be = to->ip_be,
		.src_port = from->src_port,
		.dst_port = PORT,
	};
	struct {
		struct headers headers;
		uint8_t data[FLOW_SEGMENT];
	} __attribute__((packed)) frame = { 0 };

	datagram_fill(&frame.headers.datagram, &way, kind == KIND_DATA ? DATAGRAM_ECT_0 : 0, len);
	frame.headers.run = player->run;
	frame.headers.packet = packet;
	frame.headers.kind = (uint16_t)kind;
	frame.headers.ce = ce;
	rig_host_send(from->host, &frame, RTE_MAX(len, DATAGRAM_SHORTEST_FRAME));
}

/*
 * Sends packets that may go: those of the first step at once, others after the same packet of the
 * step before has come.
 */
static void
rank_send(struct rank *rank)
{
	struct ring_player *player = rank->player;
	uint32_t packet;

	rank->sender.n = RTE_MIN(rank->in_order + player->step_packets, player->n_packets);
	while (dctcp_send(&rank->sender, rig_now_ns(player->network->rig), &packet)) {
		packet_send(rank, rank->next, KIND_DATA, packet, false);
		player->sent++;
	}
}

static void
rank_poll(struct rig_host *host, void *user)
{
	struct rank *rank = user;
	struct ring_player *player = rank->player;
	const uint64_t now_ns = rig_now_ns(player->network->rig);
	const uint64_t before = rank->sender.timeouts;

	if (now_ns < rank->tick_ns) {
		rig_host_wake(host, rank->tick_ns);
		return;
	}
	dctcp_on_time(&rank->sender, now_ns);
	player->timeouts += rank->sender.timeouts - before;
	rank_send(rank);
	rank->tick_ns = now_ns + TICK_NS;
	if (rank->sender.first != player->n_packets)
		rig_host_wake(host, rank->tick_ns);
}

static void
data_arrives(struct rank *rank, const struct headers *headers)
{
	struct ring_player *player = rank->player;
	const uint32_t before = rank->in_order;

	packet_send(rank, rank->previous, KIND_ACK, headers->packet,
		    (headers->datagram.ip.tos & DATAGRAM_CE) == DATAGRAM_CE);
	rank->received[headers->packet] = 1;
	while (rank->in_order < player->n_packets && rank->received[rank->in_order])
		rank->in_order++;
	if (before != player->n_packets && rank->in_order == player->n_packets)
		player->n_done++;
	rank_send(rank);
}

static void
rank_take(struct rig_host *host, const void *frame, uint32_t len, void *user)
{
	struct rank *rank = user;
	const struct ring_player *player = rank->player;
	const struct headers *headers = frame;

	(void)host;
	if (len < sizeof(*headers) || headers->datagram.udp.dst_be != htons(PORT) ||
	    headers->run != player->run || headers->packet >= player->n_packets)
		return;
	if (headers->kind == KIND_DATA) {
		data_arrives(rank, headers);
		return;
	}
	dctcp_on_ack(&rank->sender, headers->packet, headers->ce != 0,
		     rig_now_ns(player->network->rig));
	rank_send(rank);
}

struct ring_player *
ring_player_create(const struct rig_leaf_spine *network, const uint32_t *hosts, uint16_t n_ranks,
		   uint64_t seed)
{
	struct ring_player *player = calloc(1,
					    sizeof(*player) + n_ranks * sizeof(player->ranks[0]));
	struct random random = random_seed(seed);

	if (player == NULL)
		return NULL;
	player->network = network;
	player->n_ranks = n_ranks;
	for (uint16_t r = 0; r < n_ranks; r++) {
		struct rank *rank = &player->ranks[r];

		rank->player = player;
		rank->host = network->hosts[hosts[r]];
		rank->first_hop_mac = rig_switch_pipeline(rig_leaf_of(network, hosts[r]))->mac;
		rank->ip_be = rig_host_ip_be(network, hosts[r]);
		rank->next = &player->ranks[(r + 1) % n_ranks];
		rank->previous = &player->ranks[(r + n_ranks - 1) % n_ranks];
		rank->src_port =
			(uint16_t)(FIRST_SOURCE_PORT + random_below(&random, SOURCE_PORTS));
		rig_host_set_poll(rank->host, rank_poll, rank);
		rig_host_set_take(rank->host, rank_take, rank);
	}
	return player;
}

void
ring_player_destroy(struct ring_player *player)
{
	if (player == NULL)
		return;
	for (uint16_t r = 0; r < player->n_ranks; r++) {
		rig_host_set_poll(player->ranks[r].host, NULL, NULL);
		rig_host_set_take(player->ranks[r].host, NULL, NULL);
		free(player->ranks[r].received);
	}
	free(player);
}

int
ring_player_begin(struct ring_player *player, uint64_t bytes)
{
	const uint16_t n = player->n_ranks;

	player->run++;
	player->n_done = 0;
	player->segment_bytes = (bytes + n - 1) / n;
	player->step_packets =
		(uint32_t)((player->segment_bytes + FLOW_SEGMENT - 1) / FLOW_SEGMENT);
	player->n_packets = 2 * (n - 1u) * player->step_packets;
	for (uint16_t r = 0; r < n; r++) {
		struct rank *rank = &player->ranks[r];

		free(rank->received);
		rank->received = calloc(player->n_packets, sizeof(rank->received[0]));
		if (rank->received == NULL)
			return -ENOMEM;
		rank->in_order = 0;
		rank->tick_ns = 0;
		dctcp_init(&rank->sender, player->n_packets);
	}
	for (uint16_t r = 0; r < n; r++)
		rig_host_wake(player->ranks[r].host, rig_now_ns(player->network->rig));
	return 0;
}

bool
ring_player_is_done(const struct ring_player *player)
{
	return player->n_done == player->n_ranks;
}

void
ring_player_stats(const struct ring_player *player, struct ring_player_stats *stats)
{
	*stats = (struct ring_player_stats){ .sent = player->sent,
					     .packets = (uint64_t)player->n_packets *
							player->n_ranks,
					     .timeouts = player->timeouts };
}
