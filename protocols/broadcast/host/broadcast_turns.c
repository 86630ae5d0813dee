/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which ranks send their parts of an Allgather: rack by rack. So each chain stays in
 * as few racks as possible, and chains of different racks share no link between switches (Khalilov
 * et al., section IV; protocols/broadcast/README.md).
 */
#include <stdlib.h>

#include "broadcast_internal.h"

int
fanin_broadcast_order(struct fanin_broadcast_engine *mc)
{
	const struct fanin_peer *hosts = mc->engine.config.hosts;
	const uint16_t size = mc->engine.config.size;
	uint16_t n = 0;

	if (hosts == NULL)
		return FANIN_OK;
	mc->order = calloc(size, sizeof(*mc->order));
	if (mc->order == NULL)
		return FANIN_ERR_NO_MEMORY;
	/* Racks are ordered by their first ranks. */
	for (uint16_t first = 0; first < size; first++) {
		uint16_t before = 0;

		while (hosts[before].switch_ip_be != hosts[first].switch_ip_be)
			before++;
		for (uint16_t rank = first; before == first && rank < size; rank++) {
			if (hosts[rank].switch_ip_be == hosts[first].switch_ip_be)
				mc->order[n++] = rank;
		}
	}
	for (n = 0; n < size && mc->order[n] == n; n++)
		continue;
	if (n == size) {
		free(mc->order);
		mc->order = NULL;
	}
	return FANIN_OK;
}

int
fanin_broadcast_turns_make(const struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op)
{
	const uint16_t size = mc->engine.config.size;
	uint32_t first = 0;

	if (mc->order == NULL || op->request->collective != FANIN_COLLECTIVE_ALLGATHER)
		return FANIN_OK;
	op->turns = calloc(size, sizeof(*op->turns));
	if (op->turns == NULL)
		return FANIN_ERR_NO_MEMORY;
	for (uint16_t t = 0; t < size; t++) {
		uint32_t place, end;

		fanin_broadcast_part(mc, op, mc->order[t], &place, &end);
		op->turns[t] = (struct fanin_broadcast_turn){
			.rank = mc->order[t],
			.first = first,
			.place = place,
		};
		first += end - place;
	}
	return FANIN_OK;
}

/*
 * Returns the turn that a packet belongs to: the last turn that begins at or before the packet.
 * Only such a turn has packets.
 */
static const struct fanin_broadcast_turn *
turn_of(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
	uint32_t packet)
{
	uint16_t from = 0, to = mc->engine.config.size;

	while (to - from > 1) {
		const uint16_t middle = (uint16_t)((from + to) / 2);

		if (op->turns[middle].first <= packet)
			from = middle;
		else
			to = middle;
	}
	return &op->turns[from];
}

struct fanin_extent
fanin_broadcast_extent(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
		       uint32_t packet)
{
	if (op->turns != NULL) {
		const struct fanin_broadcast_turn *turn = turn_of(mc, op, packet);

		packet = turn->place + (packet - turn->first);
	}
	return fanin_request_extent(op->request, packet);
}

uint16_t
fanin_broadcast_rank_of_turn(const struct fanin_broadcast_op *op, uint16_t turn)
{
	return op->turns == NULL ? turn : op->turns[turn].rank;
}

uint16_t
fanin_broadcast_turn_of_rank(const struct fanin_broadcast_op *op, uint16_t rank)
{
	uint16_t turn = 0;

	if (op->turns == NULL)
		return rank;
	while (op->turns[turn].rank != rank)
		turn++;
	return turn;
}

void
fanin_broadcast_root_range(const struct fanin_broadcast_engine *mc,
			   const struct fanin_broadcast_op *op, uint16_t rank, uint32_t *first,
			   uint32_t *end)
{
	uint32_t place;

	fanin_broadcast_part(mc, op, rank, first, end);
	if (op->turns == NULL)
		return;
	place = *first;
	*first = op->turns[fanin_broadcast_turn_of_rank(op, rank)].first;
	*end = *first + (*end - place);
}
