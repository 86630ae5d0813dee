/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slot of the handler `single`, and how it takes a contribution. Sparse handlers use it for the
 * dense blocks and barriers of their jobs. The handler's own functions are declared here for
 * handlers that extend it.
 */
#ifndef FANIN_PROTOCOLS_DENSE_SWITCH_SINGLE_H
#define FANIN_PROTOCOLS_DENSE_SWITCH_SINGLE_H

#include <assert.h>

#include <rte_common.h>

#include "protocols/dense/switch/dense.h"

struct single_slot {
	struct fanin_dense dense;
	struct rte_mbuf *sum; /* sum of the open block; NULL: none yet */
} __rte_cache_aligned;

/* Functions of struct fanin_handler. */
void fanin_single_slot_release(struct fanin_handler_ctx *ctx, void *memory);
enum fanin_verdict fanin_single_contribution(struct fanin_handler_ctx *ctx, void *memory,
					     uint32_t index, struct fanin_packet *packet,
					     enum fanin_reason *reason);
enum fanin_verdict fanin_single_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
				      struct fanin_packet *packet, enum fanin_reason *reason);

static_assert(sizeof(struct single_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

/* Releases the sum. */
static inline void
single_drop_sum(struct fanin_handler_ctx *ctx, struct single_slot *slot)
{
	if (slot->sum != NULL)
		fanin_release(ctx, slot->sum);
	slot->sum = NULL;
}

/* Takes an empty contribution. It is needed only if all are empty, as the result. */
static __rte_noinline enum fanin_verdict
single_take_empty(const struct fanin_handler_ctx *ctx, struct single_slot *slot,
		  const struct fanin_packet *packet)
{
	if (slot->sum != NULL || slot->dense.state.present != ctx->job->children)
		return FANIN_VERDICT_FREE;
	slot->sum = packet->mbuf;
	return FANIN_VERDICT_HELD;
}

/*
 * Combines a contribution that fanin_dense_admit has admitted exclusively, and leaves the slot.
 * Returns the verdict on the packet.
 */
static inline enum fanin_verdict
single_combine(struct fanin_handler_ctx *ctx, struct single_slot *slot, struct fanin_packet *packet)
{
	enum fanin_verdict verdict;

	ctx->stats->contributions++;
	if (fanin_dense_is_empty(packet)) {
		verdict = single_take_empty(ctx, slot, packet);
	} else if (slot->sum == NULL) {
		fanin_dense_begin(&slot->dense, packet->mbuf);
		slot->sum = packet->mbuf;
		verdict = FANIN_VERDICT_HELD;
	} else {
		fanin_dense_add(&slot->dense, slot->sum, packet->mbuf);
		verdict = FANIN_VERDICT_FREE;
	}
	/* No other worker is in the slot, so all present contributions have been combined. */
	if (slot->dense.state.present == ctx->job->children) {
		fanin_dense_finish(ctx, &slot->dense, slot->sum);
		slot->sum = NULL;
	}
	fanin_dense_state_leave(&slot->dense.state, ctx->job->shared);
	return verdict;
}

#endif
