/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense reduction with one buffer per block (Flare section 6.1), under the window protocol of window.h. The first packet of
 * a block is its buffer: later ones are combined into it, and it leaves as the result without a copy. The calling worker
 * must own the slot, so that no lock is needed.
 */
#include <assert.h>

#include <rte_common.h>

#include "handlers/handler.h"
#include "handlers/window.h"

struct single_slot {
	struct fanin_window window;
	fanin_kernel_fn kernel;
	void *payload;         /* in mbuf */
	struct rte_mbuf *mbuf; /* the current block's sum, then its result; NULL before the first block */
	uint32_t payload_len; /* bytes */
} __rte_cache_aligned;

static_assert(sizeof(struct single_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

static size_t
single_slot_size(const struct fanin_job_params *job)
{
	(void)job;
	return sizeof(struct single_slot);
}

static unsigned int
single_slot_mbufs(const struct fanin_job_params *job)
{
	(void)job;
	return 1;
}

static void
single_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct single_slot *slot = memory;

	if (slot->mbuf != NULL)
		fanin_release(ctx, slot->mbuf);
	slot->mbuf = NULL;
}

static void
single_slot_reset(struct fanin_handler_ctx *ctx, void *memory, uint32_t index)
{
	struct single_slot *slot = memory;

	single_slot_release(ctx, slot);
	fanin_window_reset(&slot->window, ctx->job, index);
}

static enum fanin_verdict
drop(enum fanin_reason *reason, enum fanin_reason why)
{
	*reason = why;
	return FANIN_VERDICT_DROP;
}

/* Makes the sum the result, and sends it to all children. */
static void
finish_block(struct fanin_handler_ctx *ctx, struct single_slot *slot)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr = RTE_PTR_SUB(slot->payload, FANIN_HDR_LEN);

	fanin_wire_encode_header(hdr, FANIN_TYPE_RESULT, job->id, ctx->epoch, job->key);
	hdr->contributions = job->n_children;
	hdr->block = slot->window.block;
	hdr->dtype = slot->window.dtype;
	hdr->op = slot->window.op;
	hdr->count = slot->window.count;

	/* One reference for each child; the one that the mbuf came with stays with the slot, for repeats. */
	rte_mbuf_refcnt_update(slot->mbuf, (int16_t)job->n_children);
	fanin_emit(ctx, FANIN_EMIT_RESULT, slot->mbuf, job->children, slot->payload_len);
	ctx->stats->results++;
}

static enum fanin_verdict
begin_block(struct fanin_handler_ctx *ctx, struct single_slot *slot,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	fanin_kernel_fn kernel = fanin_kernel(ctx->job->isa, hdr->dtype, hdr->op);

	if (kernel == NULL)
		return drop(reason, FANIN_REASON_OPERATION);

	single_slot_release(ctx, slot);
	fanin_window_begin(&slot->window, hdr);
	slot->kernel = kernel;
	slot->payload = packet->payload;
	slot->mbuf = packet->mbuf;
	slot->payload_len = packet->payload_len;

	ctx->stats->contributions++;
	if (fanin_window_add(&slot->window, ctx->job, packet->child))
		finish_block(ctx, slot);
	return FANIN_VERDICT_HELD;
}

static enum fanin_verdict
merge(struct fanin_handler_ctx *ctx, struct single_slot *slot, const struct fanin_packet *packet)
{
	slot->kernel(slot->payload, packet->payload, slot->window.count);
	ctx->stats->contributions++;
	if (fanin_window_add(&slot->window, ctx->job, packet->child))
		finish_block(ctx, slot);
	return FANIN_VERDICT_FREE;
}

/*
 * The child is in already and the block is incomplete. If the child asks, it learns who is missing, by its own packet
 * turned into the answer. The network's duplicates get none: they would double the traffic.
 */
static enum fanin_verdict
answer_pending(struct fanin_handler_ctx *ctx, const struct single_slot *slot,
	       const struct fanin_packet *packet)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;

	ctx->stats->duplicates++;
	if ((hdr->flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;

	fanin_wire_encode_header(hdr, FANIN_TYPE_PENDING, ctx->job->id, ctx->epoch, ctx->job->key);
	hdr->rank = packet->child;
	hdr->block = slot->window.block;
	hdr->members = slot->window.present;
	fanin_emit(ctx, FANIN_EMIT_REPLY, packet->mbuf, UINT64_C(1) << packet->child, 0);
	ctx->stats->pendings++;
	return FANIN_VERDICT_HELD;
}

/* The block is finished: its result goes to the child that asks again, unmodified, as a NIC may still be reading it. */
static enum fanin_verdict
repeat_result(struct fanin_handler_ctx *ctx, struct single_slot *slot,
	      const struct fanin_packet *packet)
{
	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;

	rte_mbuf_refcnt_update(slot->mbuf, 1);
	fanin_emit(ctx, FANIN_EMIT_REPEAT, slot->mbuf, UINT64_C(1) << packet->child,
		   slot->payload_len);
	ctx->stats->repeats++;
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
single_contribution(struct fanin_handler_ctx *ctx, void *memory, struct fanin_packet *packet,
		    enum fanin_reason *reason)
{
	struct single_slot *slot = memory;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	enum fanin_window_class class;

	if (packet->payload_len > ctx->job->payload_bytes)
		return drop(reason, FANIN_REASON_PAYLOAD);

	class = fanin_window_classify(&slot->window, ctx->job, hdr->block, packet->child);
	switch (class) {
	case FANIN_WINDOW_NEW:
		return begin_block(ctx, slot, packet, reason);
	case FANIN_WINDOW_STALE:
		return drop(reason, FANIN_REASON_BLOCK_STALE);
	case FANIN_WINDOW_AHEAD:
		return drop(reason, FANIN_REASON_BLOCK_WINDOW);
	case FANIN_WINDOW_CURRENT:
	case FANIN_WINDOW_DUPLICATE:
	case FANIN_WINDOW_FINISHED:
		break;
	}

	if (!fanin_window_matches(&slot->window, hdr))
		return drop(reason, FANIN_REASON_MISMATCH);
	if (class == FANIN_WINDOW_CURRENT)
		return merge(ctx, slot, packet);
	if (class == FANIN_WINDOW_DUPLICATE)
		return answer_pending(ctx, slot, packet);
	return repeat_result(ctx, slot, packet);
}

static struct fanin_handler single = {
	.name = "single",
	.description = "dense reduction, one buffer per block",
	.slot_size = single_slot_size,
	.slot_mbufs = single_slot_mbufs,
	.slot_reset = single_slot_reset,
	.contribution = single_contribution,
	.slot_release = single_slot_release,
};

FANIN_HANDLER_REGISTER(single)
