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
	return true;
}

bool
fanin_canary_send_to(struct fanin_canary *engine, struct fanin_headers *headers, unsigned int rank,
		     const struct canary_packet *packet)
{
	const struct canary_peer *peer = &engine->peers[rank];
	uint32_t attempt = packet->attempt;
	unsigned int way = engine->way;
	unsigned int address = peer->address;

	if (engine->n_ways == 2) {
		way ^= attempt & 1;
		attempt >>= 1;
	}
	if (peer->ips_be[1] != 0)
		address ^= attempt & 1;
	return fanin_canary_send_by(engine, headers, way, peer->ips_be[address], packet);
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
}

void
fanin_canary_hear_from(struct fanin_canary *engine, unsigned int rank,
		       const struct fanin_headers *headers)
{
	struct canary_peer *peer = &engine->peers[rank];

	canary_hear(engine, rank);
	if (headers->ip.src_be == peer->ips_be[0])
		peer->address = 0;
	else if (peer->ips_be[1] != 0 && headers->ip.src_be == peer->ips_be[1])
		peer->address = 1;
}
