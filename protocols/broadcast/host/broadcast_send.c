/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. A rank contributes to control blocks in order, each once its condition holds. A root
 * sends its packets as far as credits allow (protocols/broadcast/README.md). Called by the poll
 * loop only.
 */
#include "broadcast_internal.h"

/* Number of packets that one poll sends before received packets are read. */
#define SEND_BURST 32u
/* The ECN codepoint of packets that may be marked (RFC 3168). */
#define ECT_0 2

/* Makes a packet's headers except for type and destination. */
static void
headers_make(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
	     enum fanin_broadcast_kind kind, uint32_t packet, uint32_t payload_len,
	     struct fanin_headers *headers)
{
	struct fanin_ip *ip = &headers->ip;

	fanin_engine_begin(&mc->engine, FANIN_TYPE_MULTICAST, packet, payload_len, headers);
	headers->fanin.progress = op->number;
	headers->fanin.members = mc->engine.config.rank;
	headers->fanin.number = kind;
	if (kind != FANIN_BROADCAST_DATA)
		return;
	ip->tos = ECT_0;
	ip->checksum_be = 0;
	ip->checksum_be = fanin_ip_checksum(ip);
}

bool
fanin_broadcast_send_to(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
			uint16_t rank, enum fanin_broadcast_kind kind, uint32_t packet,
			const void *payload, uint32_t payload_len)
{
	struct fanin_headers headers;

	headers_make(mc, op, kind, packet, payload_len, &headers);
	headers.fanin.type = FANIN_TYPE_UNICAST;
	headers.fanin.count = rank;
	if (!fanin_engine_transmit(&mc->engine, &headers, payload, payload_len))
		return false;
	mc->engine.stats.frames_sent++;
	return true;
}

bool
fanin_broadcast_give(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
		     uint16_t rank, uint32_t packet)
{
	const struct fanin_extent extent = fanin_broadcast_extent(mc, op, packet);

	bool is_sent;

	fanin_transport_alone(mc->engine.loop.transport, true, false);
	is_sent = fanin_broadcast_send_to(mc, op, rank, FANIN_BROADCAST_DATA, packet,
					  fanin_broadcast_place(op, &extent), extent.len);
	fanin_transport_alone(mc->engine.loop.transport, false, false);
	mc->stats.fetches_served += is_sent;
	return is_sent;
}

/*
 * Sends one of this rank's own packets to all others. Returns false if the transport has no room.
 */
static bool
own_packet_send(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op, uint32_t packet)
{
	const struct fanin_extent extent = fanin_broadcast_extent(mc, op, packet);
	struct fanin_headers headers;

	headers_make(mc, op, FANIN_BROADCAST_DATA, packet, extent.len, &headers);
	if (!fanin_engine_transmit_held(&mc->engine, &headers, fanin_broadcast_place(op, &extent),
					extent.len))
		return false;
	mc->engine.stats.frames_sent++;
	mc->stats.packets_sent++;
	return true;
}

/* True if it is this rank's turn in its chain. */
static bool
has_turn(struct fanin_broadcast_op *op, const struct fanin_broadcast_chain *chain)
{
	op->is_active = op->is_active || op->own_first == chain->first ||
			fanin_bit(op->have, op->own_first - 1);
	return op->is_active;
}

/* Tells the next root of the chain that this one is done. */
static void
next_activate(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	      const struct fanin_broadcast_chain *chain)
{
	if (op->told_next || op->own_end == chain->end)
		return;
	/* If there is no room, the arrival of the last packet tells the next root as well. */
	fanin_broadcast_send_to(mc, op, fanin_broadcast_root(mc, op, op->own_end),
				FANIN_BROADCAST_ACTIVATE, op->own_end, NULL, 0);
	op->told_next = true;
}

/* Sends own packets. Returns how many more packets this poll may send. */
static uint32_t
op_send(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op, uint32_t room)
{
	struct fanin_broadcast_chain *chain = &op->chains[op->own_chain];
	uint32_t limit;

	if (op->n_chains == 0 || op->begun_ns == 0 || op->own_next == op->own_ready ||
	    !has_turn(op, chain))
		return room;
	limit = fanin_broadcast_limit(mc, op, chain);
	if (limit > op->own_ready)
		limit = op->own_ready;
	for (; room > 0 && op->own_next < limit; room--) {
		if (!own_packet_send(mc, op, op->own_next)) {
			mc->is_full = true;
			break;
		}
		op->own_next++;
	}
	mc->has_more = mc->has_more || op->own_next < limit;
	if (op->own_next > chain->seen)
		chain->seen = op->own_next;
	fanin_gaps_pass(&chain->gaps, op->own_next);
	if (op->own_next == op->own_end)
		next_activate(mc, op, chain);
	return mc->has_more ? 0 : room;
}

uint64_t
fanin_broadcast_idle_max_ns(struct fanin_engine *engine)
{
	const struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);

	if (!mc->has_more)
		return UINT64_MAX;
	return mc->is_full ? FANIN_BROADCAST_NO_ROOM_NS : 0;
}

/*
 * True if this rank has, in each chain, a packet at or after this position, or the chain's last
 * one.
 */
static bool
has_come_to(const struct fanin_broadcast_op *op, uint64_t place)
{
	for (uint16_t c = 0; c < op->n_chains; c++) {
		const struct fanin_broadcast_chain *chain = &op->chains[c];

		if (chain->seen < chain->end && chain->seen - chain->first < place)
			return false;
	}
	return true;
}

/* True if the condition for an operation's control block holds. */
static bool
may_contribute(const struct fanin_broadcast_op *op, uint32_t index)
{
	if (index == 0)
		return true;
	if (index + 1 < op->control.n_blocks)
		return has_come_to(op, (uint64_t)index * op->credit);
	return op->n_lacking == 0 && op->own_next == op->own_end;
}

/*
 * Returns the operation that a control block belongs to, or NULL if it is another request's block.
 */
static struct fanin_broadcast_op *
op_with_block(struct fanin_broadcast_engine *mc, uint32_t block)
{
	struct fanin_broadcast_op *op = mc->ops;

	while (op != NULL && block - op->control.first_block >= op->control.n_blocks)
		op = op->next;
	return op;
}

/* Sets the values of a contribution to a control block. They stay the same in retransmissions. */
static void
values_set(struct fanin_broadcast_op *op, uint32_t index)
{
	if (index < op->n_released)
		return;
	op->n_released = index + 1;
	if (index == 0)
		return;
	op->said[(size_t)index * FANIN_BROADCAST_VALUES] = op->n_lost;
	op->n_lost = 0;
}

/* Decides whether a lane's block may be queued; sets the values that a control block carries. */
static bool
may_send(struct fanin_engine *engine, const struct fanin_lane *lane)
{
	struct fanin_broadcast_op *op = lane->role == FANIN_LANE_KNOWN
						? NULL
						: op_with_block(fanin_broadcast_of(engine),
								lane->block);

	if (op == NULL)
		return true;
	if (!may_contribute(op, lane->block - op->control.first_block))
		return false;
	values_set(op, lane->block - op->control.first_block);
	return true;
}

void
fanin_broadcast_send(struct fanin_engine *engine)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	uint32_t room = SEND_BURST;

	mc->has_more = false;
	mc->is_full = false;
	for (struct fanin_broadcast_op *op = mc->ops; op != NULL && room > 0; op = op->next)
		room = op_send(mc, op, room);
	/*
	 * Contributions follow the packets: a rank that has sent all of its packets may contribute.
	 */
	fanin_engine_queue_in_order(engine, &mc->next, may_send);
	fanin_engine_send_queued(engine);
}
