/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast along a job's tree: a packet of any member goes to every other one. A switch sends what comes from a child to all its other
 * children and to its parent, and what comes from the parent to all children: so each link carries it once, and each member has it once,
 * as long as links neither lose nor double. Nothing is kept, nothing repeated: that is for hosts (Khalilov et al. section III).
 *
 * Several trees of a job are several groups: a sender chooses one by the tree that it sends into.
 */
#include <string.h>

#include "handlers/handler.h"

enum {
	MULTICAST_DOWN,
	MULTICAST_UP,
	MULTICAST_NO_PACKET,
};

/*
 * Makes a frame to this switch's children, or to its parent, of one that has come: headers are new, but for what its sender says about
 * it. The mbuf's only reference is the caller's.
 */
static void
make_frame(const struct fanin_handler_ctx *ctx, const struct fanin_hdr *from, uint32_t payload_len,
	   enum fanin_type type, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_job_params *job = ctx->job;
	const bool down = type == FANIN_TYPE_DELIVERY;
	const struct fanin_hdr said = *from;

	*headers = down ? job->result_headers : job->parent_headers;
	fanin_wire_set_payload_len(headers, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, job->id,
				 down ? ctx->epoch : ctx->parent_epoch,
				 down ? job->keys.down : job->keys.up);
	if (!down) {
		headers->udp.src_be = fanin_wire_source_port_be(said.block);
		headers->fanin.rank = job->parent_rank;
		headers->fanin.contributions = job->n_below;
	}
	headers->fanin.block = said.block;
	headers->fanin.count = said.count;
	headers->fanin.progress = said.progress;
	headers->fanin.members = said.members;
	headers->fanin.number = said.number;
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

static void
send_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	struct rte_mbuf *copy = fanin_take(ctx);

	if (copy == NULL) {
		ctx->stats->own[MULTICAST_NO_PACKET]++;
		return;
	}
	memcpy(rte_pktmbuf_mtod_offset(copy, void *, FANIN_PAYLOAD_OFFSET), packet->payload,
	       packet->payload_len);
	make_frame(ctx, &packet->headers->fanin, packet->payload_len, FANIN_TYPE_MULTICAST, copy);
	fanin_seal(ctx, FANIN_TAG_UP, copy);
	fanin_emit(ctx, FANIN_EMIT_PARENT, copy, 0, 0);
	ctx->stats->own[MULTICAST_UP]++;
}

/* Sends the packet itself to these children. Returns the verdict on it. */
static enum fanin_verdict
send_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, uint64_t children)
{
	if (children == 0)
		return FANIN_VERDICT_FREE;
	make_frame(ctx, &packet->headers->fanin, packet->payload_len, FANIN_TYPE_DELIVERY,
		   packet->mbuf);
	fanin_seal(ctx, FANIN_TAG_DOWN, packet->mbuf);
	rte_mbuf_refcnt_set(packet->mbuf, (uint16_t)__builtin_popcountll(children));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, packet->mbuf, children, packet->payload_len);
	ctx->stats->own[MULTICAST_DOWN]++;
	return FANIN_VERDICT_HELD;
}

/*
 * True if the origin is a rank behind this switch: then the packet was delivered here already, and this is another switch's copy, which
 * shares the parent's port.
 */
static bool
is_from_below(const struct fanin_job_params *job, uint64_t origin)
{
	bool below = false;

	for (uint16_t child = 0; child < job->n_children; child++)
		below |= fanin_ranks_has(&job->child_ranks[child], origin);
	return below;
}

/* True if the origin that the packet names is a rank behind the child that sent it. */
static bool
names_its_origin(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	return fanin_ranks_has(&job->child_ranks[packet->child], packet->headers->fanin.members);
}

static enum fanin_verdict
multicast_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_job_params *job = ctx->job;

	(void)slot;
	(void)index;
	if (packet->payload_len > job->payload_bytes) {
		*reason = FANIN_REASON_PAYLOAD;
		return FANIN_VERDICT_DROP;
	}
	if (packet->headers->fanin.type == FANIN_TYPE_DELIVERY)
		return is_from_below(job, packet->headers->fanin.members)
			       ? FANIN_VERDICT_FREE
			       : send_down(ctx, packet, job->children);
	if (!names_its_origin(job, packet)) {
		*reason = FANIN_REASON_RANK;
		return FANIN_VERDICT_DROP;
	}
	if (job->has_parent)
		send_up(ctx, packet);
	return send_down(ctx, packet, job->children & ~(UINT64_C(1) << packet->child));
}

/* Nothing is reduced here. */
static enum fanin_verdict
multicast_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		       struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)ctx;
	(void)slot;
	(void)index;
	(void)packet;
	*reason = FANIN_REASON_TYPE;
	return FANIN_VERDICT_DROP;
}

static const struct fanin_counter multicast_counters[] = {
	[MULTICAST_DOWN] = { "delivered", "packets sent to other children, each counted once" },
	[MULTICAST_UP] = { "passed_up", "packets sent to the parent" },
	[MULTICAST_NO_PACKET] = { "no_packet", "packets not sent to the parent for want of a buffer" },
	{ 0 },
};

static const uint8_t multicast_types[] = { FANIN_TYPE_MULTICAST, FANIN_TYPE_DELIVERY, 0 };

static struct fanin_handler multicast = {
	.name = "multicast",
	.description = "packets of each member to all others",
	.shape = FANIN_SHAPE_MULTICAST,
	.makes_packets = true,
	.slots_of = FANIN_SLOTS_NONE,
	.counters = multicast_counters,
	.contribution = multicast_contribution,
	.types = multicast_types,
	.other = multicast_other,
};

FANIN_HANDLER_REGISTER(multicast)
