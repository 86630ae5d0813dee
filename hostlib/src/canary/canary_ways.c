/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary: packets and the ways that they take. A host may be linked to two switches, with an address at each, and so may others. Whatever is sent again takes
 * another way; where answers come from is where the next packets go.
 */
#include "canary_internal.h"

/* The way that answers come by is taken if the other one has been silent for so long, in usual times of a block. */
#define SILENT_USUAL_TIMES 2

void
fanin_canary_begin(const struct fanin_canary *engine, enum fanin_type type, uint32_t block,
		   struct fanin_headers *headers)
{
	const struct fanin_keys *keys = &engine->config.keys;

	fanin_wire_encode_header(&headers->fanin, type, engine->config.job, engine->run,
				 fanin_type_direction(type) == FANIN_UP ? keys->up : keys->down);
	headers->fanin.rank = engine->config.rank;
	headers->fanin.block = block;
	headers->fanin.progress = engine->oldest;
}

bool
fanin_canary_send_by(struct fanin_canary *engine, struct fanin_headers *headers, unsigned int way,
		     uint32_t dst_ip_be, const struct canary_packet *packet)
{
	struct fanin_flow flow = engine->ways[way].flow;

	flow.dst_ip_be = dst_ip_be;
	fanin_wire_encode_l4(headers, &flow, packet->len);
	headers->udp.src_be = fanin_wire_source_port_be(packet->flow);
	if (!fanin_transport_send(engine->loop.transport, headers, packet->payload, packet->len)) {
		engine->was_full = true;
		return false;
	}
	engine->stats.frames_sent++;
	engine->n_ahead++;
	return true;
}

bool
fanin_canary_send_to(struct fanin_canary *engine, struct fanin_headers *headers, unsigned int rank,
		     const struct canary_packet *packet)
{
	/* A leaf that is gone was the way of both, often: the second attempt takes none of what the first one took. */
	static const struct {
		uint8_t way, address;
	} turns[] = { { 0, 0 }, { 1, 1 }, { 1, 0 }, { 0, 1 } };
	const struct canary_peer *peer = &engine->peers[rank];
	const unsigned int turn = packet->attempt % 4;
	unsigned int way = engine->way;
	unsigned int address = packet->is_reply ? peer->reply : peer->address;

	if (engine->n_ways == 2)
		way ^= turns[turn].way;
	if (peer->ips_be[1] != 0)
		address ^= turns[turn].address;
	/* What comes by a detour says nothing of the way to take in future. */
	if (way != engine->way)
		headers->fanin.flags |= FANIN_FLAG_DIRECT;
	return fanin_canary_send_by(engine, headers, way, peer->ips_be[address], packet);
}

/* All others learn that packets to this rank shall take its other link, and by which address, of the two that they may have. */
static void
announce_way(struct fanin_canary *engine)
{
	for (unsigned int rank = 0; rank < engine->config.size; rank++) {
		uint32_t block = engine->oldest;

		if (rank == engine->config.rank)
			continue;
		/* Leaders of a block are told something of it. */
		while (canary_leader_of(engine, block) != rank)
			block++;
		for (uint32_t turn = 0; turn <= 3; turn += 3) {
			const struct canary_packet packet = { .flow = block + turn, .attempt = turn };
			struct fanin_headers headers;

			fanin_canary_begin(engine, FANIN_TYPE_HERE, block, &headers);
			(void)fanin_canary_send_to(engine, &headers, rank, &packet);
		}
	}
}

/* Asks for all blocks, or those that a rank leads: what was sent may have gone where nothing comes from any more. */
static void
ask_again(struct fanin_canary *engine, uint64_t leaders)
{
	for (uint32_t block = engine->oldest; block != engine->next; block++) {
		struct canary_lane *lane = canary_lane(engine, block);

		if (lane->state != CANARY_LANE_SENT ||
		    (leaders >> canary_leader_of(engine, block) & 1) == 0)
			continue;
		lane->n_asked = 0;
		lane->ask_wait_ns = 0;
		fanin_canary_lane_ask(engine, lane);
	}
}

unsigned int
fanin_canary_way_of(const struct fanin_canary *engine, const struct fanin_headers *headers)
{
	return engine->n_ways == 2 &&
	       memcmp(headers->eth.src, engine->ways[1].flow.dst_mac, sizeof(headers->eth.src)) == 0;
}

void
fanin_canary_hear_way(struct fanin_canary *engine, const struct fanin_headers *headers)
{
	const unsigned int way = fanin_canary_way_of(engine, headers);
	const uint64_t now_ns = engine->loop.now_ns;

	engine->ways[way].heard_ns = now_ns;
	if (way == engine->way || now_ns - engine->ways[engine->way].heard_ns <
					  SILENT_USUAL_TIMES * fanin_canary_usual_ns(engine))
		return;
	engine->way = way;
	engine->stats.ways_changed++;
	if (!engine->started)
		return;
	announce_way(engine);
	ask_again(engine, engine->all);
}

void
fanin_canary_hear_from(struct fanin_canary *engine, unsigned int rank,
		       const struct fanin_headers *headers)
{
	struct canary_peer *peer = &engine->peers[rank];
	const unsigned int before = peer->address;

	canary_hear(engine, rank);
	if (headers->ip.src_be == peer->ips_be[0])
		peer->reply = 0;
	else if (peer->ips_be[1] != 0 && headers->ip.src_be == peer->ips_be[1])
		peer->reply = 1;
	else
		return;
	/* Data has this flag for another reason. */
	if ((headers->fanin.flags & FANIN_FLAG_DIRECT) == 0)
		peer->address = peer->reply;
	if (peer->address != before && engine->started)
		ask_again(engine, UINT64_C(1) << rank);
}
