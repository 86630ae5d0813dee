/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's packets and the links that they take. A host may be linked to two switches, with an
 * address at each; other hosts may, too. Repetitions take another link each time. Packets to a rank
 * go to the address from which its packets come.
 */
#include "canary_internal.h"

/*
 * This host changes to the link by which answers come if the other link has been silent for this
 * long, in usual times of a block.
 */
#define SILENT_USUAL_TIMES 2

void
fanin_canary_begin(const struct fanin_canary *canary, enum fanin_type type, uint32_t block,
		   struct fanin_headers *headers)
{
	const struct fanin_keys *keys = &canary->engine.config.keys;

	fanin_wire_encode_header(&headers->fanin, type, canary->engine.config.job, canary->run,
				 fanin_type_direction(type) == FANIN_UP ? keys->up : keys->down);
	headers->fanin.rank = canary->engine.config.rank;
	headers->fanin.block = block;
	headers->fanin.progress = canary->engine.oldest;
}

bool
fanin_canary_send_by(struct fanin_canary *canary, struct fanin_headers *headers, unsigned int way,
		     uint32_t dst_ip_be, const struct canary_packet *packet)
{
	struct fanin_flow flow = canary->ways[way].flow;

	flow.dst_ip_be = dst_ip_be;
	fanin_wire_encode_l4(headers, &flow, packet->len);
	headers->udp.src_be = fanin_wire_source_port_be(packet->flow, 0);
	if (!fanin_transport_send(canary->engine.loop.transport, headers, packet->payload,
				  packet->len)) {
		canary->was_full = true;
		return false;
	}
	canary->engine.stats.frames_sent++;
	canary->n_ahead++;
	return true;
}

bool
fanin_canary_send_to(struct fanin_canary *canary, struct fanin_headers *headers, unsigned int rank,
		     const struct canary_packet *packet)
{
	/*
	 * Both ranks' usual packets often pass the same leaf. If it fails, the second attempt uses
	 * neither link of the first.
	 */
	static const struct {
		uint8_t way, address;
	} turns[] = { { 0, 0 }, { 1, 1 }, { 1, 0 }, { 0, 1 } };
	const struct canary_peer *peer = &canary->peers[rank];
	const unsigned int turn = packet->attempt % 4;
	unsigned int way = canary->way;
	unsigned int address = packet->is_reply ? peer->reply : peer->address;

	if (canary->n_ways == 2)
		way ^= turns[turn].way;
	if (peer->ips_be[1] != 0)
		address ^= turns[turn].address;
	/* A detour does not show which link to use in future. */
	if (way != canary->way)
		headers->fanin.flags |= FANIN_FLAG_DIRECT;
	return fanin_canary_send_by(canary, headers, way, peer->ips_be[address], packet);
}

/* Tells all other ranks to send packets to this rank's other link and its address. */
static void
announce_way(struct fanin_canary *canary)
{
	for (unsigned int rank = 0; rank < canary->engine.config.size; rank++) {
		uint32_t block = canary->engine.oldest;

		if (rank == canary->engine.config.rank)
			continue;
		/* Each HERE names a block that its receiver leads. */
		while (canary_leader_of(canary, block) != rank)
			block++;
		for (uint32_t turn = 0; turn <= 3; turn += 3) {
			const struct canary_packet packet = { .flow = block + turn,
							      .attempt = turn };
			struct fanin_headers headers;

			fanin_canary_begin(canary, FANIN_TYPE_HERE, block, &headers);
			(void)fanin_canary_send_to(canary, &headers, rank, &packet);
		}
	}
}

/*
 * Asks for all blocks, or for those that a rank leads: earlier packets may have gone to a link from
 * which nothing comes any more.
 */
static void
ask_again(struct fanin_canary *canary, uint64_t leaders)
{
	for (uint32_t block = canary->engine.oldest; block != canary_next(canary); block++) {
		if (!canary_waits(canary, block) ||
		    (leaders >> canary_leader_of(canary, block) & 1) == 0)
			continue;
		canary_lane(canary, block)->n_asked = 0;
		fanin_engine_lane(&canary->engine, block)->ask_wait_ns = 0;
		fanin_canary_block_ask(canary, block);
	}
}

unsigned int
fanin_canary_way_of(const struct fanin_canary *canary, const struct fanin_headers *headers)
{
	return canary->n_ways == 2 && memcmp(headers->eth.src, canary->ways[1].flow.dst_mac,
					     sizeof(headers->eth.src)) == 0;
}

void
fanin_canary_hear_way(struct fanin_canary *canary, const struct fanin_headers *headers)
{
	const unsigned int way = fanin_canary_way_of(canary, headers);
	const uint64_t now_ns = canary->engine.loop.now_ns;

	canary->ways[way].heard_ns = now_ns;
	if (way == canary->way || now_ns - canary->ways[canary->way].heard_ns <
					  SILENT_USUAL_TIMES * fanin_canary_usual_ns(canary))
		return;
	canary->way = way;
	canary->stats.ways_changed++;
	if (!canary->started)
		return;
	announce_way(canary);
	ask_again(canary, canary->all);
}

void
fanin_canary_hear_from(struct fanin_canary *canary, unsigned int rank,
		       const struct fanin_headers *headers)
{
	struct canary_peer *peer = &canary->peers[rank];
	const unsigned int before = peer->address;

	canary_hear(canary, rank);
	if (headers->ip.src_be == peer->ips_be[0])
		peer->reply = 0;
	else if (peer->ips_be[1] != 0 && headers->ip.src_be == peer->ips_be[1])
		peer->reply = 1;
	else
		return;
	/* In data this flag has another meaning. */
	if ((headers->fanin.flags & FANIN_FLAG_DIRECT) == 0)
		peer->address = peer->reply;
	if (peer->address != before && canary->started)
		ask_again(canary, UINT64_C(1) << rank);
}
