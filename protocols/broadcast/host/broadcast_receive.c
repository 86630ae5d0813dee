/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets from other ranks. Each packet is put into its position as it comes, in any order. Packets
 * of closed operations, duplicates and packets that do not fit their operation are dropped and
 * counted (Khalilov et al., section III.B). Called by the poll loop only.
 */
#include "broadcast_internal.h"

/* The ECN mark of a congested queue (RFC 3168). */
#define ECN_MASK 3
#define ECN_CE 3

static struct fanin_engine_stats *
stats_of(struct fanin_broadcast_engine *mc)
{
	return &mc->engine.stats;
}

static void
receive_data(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	     const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	const struct fanin_hdr *hdr = &headers->fanin;
	const bool multicast = hdr->type == FANIN_TYPE_DELIVERY;
	const uint32_t packet = hdr->block;
	struct fanin_extent extent;
	uint16_t root;

	if (packet >= op->n_packets || op->n_chains == 0) {
		stats_of(mc)->invalid++;
		return;
	}
	extent = fanin_broadcast_extent(mc, op, packet);
	root = fanin_request_combines(op->request) ? fanin_broadcast_root(mc, op, packet)
						   : extent.root;
	if (fanin_wire_payload_len(headers) != extent.len || (multicast && hdr->members != root)) {
		stats_of(mc)->invalid++;
		return;
	}
	if (fanin_bit(op->have, packet)) {
		mc->stats.duplicates++;
		return;
	}
	/* A rank that is not the root sends the packet only to ranks that have asked for it. */
	if (!multicast && !fanin_bit(op->asked, packet)) {
		stats_of(mc)->invalid++;
		return;
	}
	if ((headers->ip.tos & ECN_MASK) == ECN_CE) {
		mc->stats.marks++;
		op->n_lost++;
	}
	if (!fanin_frame_copy(mc->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET,
			      fanin_broadcast_place(op, &extent), extent.len)) {
		stats_of(mc)->invalid++;
		return;
	}
	op->n_lacking--;
	op->request->done_bytes += extent.len;
	mc->stats.packets++;
	if (fanin_request_combines(op->request))
		stats_of(mc)->bytes_reduced += extent.len;
	fanin_broadcast_note_packet(mc, op, packet, multicast);
}

static void
receive_fetch(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	      const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	uint64_t words[FANIN_QUESTION_SPAN / 64];
	const uint32_t n = fanin_engine_copy_words(&mc->engine, frame, words,
						   FANIN_QUESTION_SPAN / 64);

	if (n == 0 || headers->fanin.block >= op->n_packets) {
		stats_of(mc)->invalid++;
		return;
	}
	fanin_broadcast_serve(mc, op, (uint16_t)headers->fanin.members, headers->fanin.block, words,
			      n);
}

static void
receive_tell(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
	     const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;
	struct fanin_broadcast_tell tell;

	if (fanin_wire_payload_len(headers) < sizeof(tell) ||
	    !fanin_frame_copy(mc->engine.loop.transport, frame, FANIN_PAYLOAD_OFFSET, &tell,
			      sizeof(tell))) {
		stats_of(mc)->invalid++;
		return;
	}
	fanin_broadcast_note_tell(mc, op, (uint16_t)headers->fanin.members, &tell);
}

/* An ACTIVATE starts this rank's turn if it comes from the previous root of the chain. */
static void
receive_activate(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
		 const struct fanin_hdr *hdr)
{
	const bool has_predecessor = op->n_chains != 0 && op->own_first != op->own_end &&
				     op->own_first != op->chains[op->own_chain].first;

	if (!has_predecessor || hdr->block != op->own_first ||
	    hdr->members != fanin_broadcast_root(mc, op, op->own_first - 1)) {
		stats_of(mc)->invalid++;
		return;
	}
	op->is_active = true;
}

/* A UNICAST packet. */
static void
receive_unicast(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
		const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;

	switch (hdr->number) {
	case FANIN_BROADCAST_DATA:
		receive_data(mc, op, frame);
		break;
	case FANIN_BROADCAST_FETCH:
		receive_fetch(mc, op, frame);
		break;
	case FANIN_BROADCAST_TELL:
		receive_tell(mc, op, frame);
		break;
	case FANIN_BROADCAST_ACTIVATE:
		receive_activate(mc, op, hdr);
		break;
	default:
		stats_of(mc)->invalid++;
		break;
	}
}

void
fanin_broadcast_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
			uint32_t block)
{
	struct fanin_broadcast_engine *mc = fanin_broadcast_of(engine);
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame->data)->fanin;
	const bool multicast = hdr->type == FANIN_TYPE_DELIVERY;
	struct fanin_broadcast_op *op;

	(void)block;
	if ((!multicast && hdr->type != FANIN_TYPE_UNICAST_DELIVERY) ||
	    hdr->members >= engine->config.size ||
	    (multicast && hdr->number != FANIN_BROADCAST_DATA)) {
		engine->stats.invalid++;
		return;
	}
	/* This rank's own packet, or one for another host behind the same port. */
	if (hdr->members == engine->config.rank ||
	    (!multicast && hdr->count != engine->config.rank))
		return;
	op = fanin_broadcast_find(mc, hdr->progress);
	if (op == NULL) {
		mc->stats.closed++;
		return;
	}
	if (multicast)
		receive_data(mc, op, frame);
	else
		receive_unicast(mc, op, frame);
}
