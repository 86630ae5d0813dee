/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense reduction with one buffer per block (Flare section 6.1). The first packet of a block is its
 * buffer: later ones are combined into it, and it leaves as the result without a copy. Where
 * several workers share a block, combining is a critical section: who finds it taken comes again.
 */
#include <assert.h>

#include <rte_common.h>

#include "handlers/dense.h"

struct single_slot {
	struct fanin_dense dense;
	struct rte_mbuf *sum; /* of the open block; NULL: none yet */
} __rte_cache_aligned;

static_assert(sizeof(struct single_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

static size_t
single_slot_size(const struct fanin_job_params *job)
{
	(void)job;
	return sizeof(struct single_slot);
}

/* For large messages: their blocks hardly meet in time (Flare section 6.4). */
static bool
single_suits(const struct fanin_choice *choice, uint32_t *buffers)
{
	(void)buffers;
	return choice->message_bytes == 0 || (choice->message_bytes > choice->tree_up_to &&
					      choice->message_bytes > choice->multi4_up_to);
}

static void
single_reset(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	struct single_slot *slot = (struct single_slot *)dense;

	if (slot->sum != NULL)
		fanin_release(ctx, slot->sum);
	slot->sum = NULL;
}

static void
single_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct single_slot *slot = memory;

	fanin_dense_release(ctx, &slot->dense);
	single_reset(ctx, &slot->dense);
}

/* One without data: only if all are, it is needed, to be the result. */
static __rte_noinline enum fanin_verdict
take_empty(const struct fanin_handler_ctx *ctx, struct single_slot *slot,
	   const struct fanin_packet *packet)
{
	if (slot->sum != NULL || slot->dense.window.present != ctx->job->children)
		return FANIN_VERDICT_FREE;
	slot->sum = packet->mbuf;
	return FANIN_VERDICT_HELD;
}

static enum fanin_verdict
single_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct single_slot *slot = memory;
	enum fanin_verdict verdict;

	if (!fanin_dense_admit(ctx, &slot->dense, index, packet, true, single_reset, &verdict, reason))
		return verdict;
	ctx->stats->contributions++;
	if (fanin_dense_is_empty(packet)) {
		verdict = take_empty(ctx, slot, packet);
	} else if (slot->sum == NULL) {
		fanin_dense_begin(&slot->dense, packet->mbuf);
		slot->sum = packet->mbuf;
		verdict = FANIN_VERDICT_HELD;
	} else {
		fanin_dense_add(&slot->dense, slot->sum, packet->mbuf);
		verdict = FANIN_VERDICT_FREE;
	}
	/* Nobody else is in: all that are present have been combined. */
	if (slot->dense.window.present == ctx->job->children) {
		fanin_dense_finish(ctx, &slot->dense, slot->sum);
		slot->sum = NULL;
	}
	fanin_window_leave(&slot->dense.window, ctx->job->shared);
	return verdict;
}

static enum fanin_verdict
single_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
	     struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_dense_other(ctx, memory, index, packet, single_reset, reason);
}

static struct fanin_handler single = {
	.name = "single",
	.description = "dense reduction, one buffer per block",
	.slot_mbufs = { .fixed = 1 },
	.suits = single_suits,
	.slot_size = single_slot_size,
	.contribution = single_contribution,
	.types = fanin_dense_types,
	.other = single_other,
	.peek = fanin_dense_peek,
	.slot_release = single_slot_release,
};

FANIN_HANDLER_REGISTER(single)
