/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense reduction over a tree of buffers (Flare section 6.3). Each child has its own leaf. At each
 * node the worker that comes second combines the two buffers, the right one into the left one. So
 * no worker waits, and the order of combination depends only on the ranks behind the children.
 * Floating-point sums therefore have the same bits every time; docs/operators.md gives the order.
 *
 * The tree is that of params.order (wire/order.h): it halves the ranks as the order does, but
 * leaves out halves without a child. If one half of a node has brought no data, the node passes on
 * the other half.
 */
#include <rte_branch_prediction.h>
#include <rte_common.h>

#include "protocols/dense/switch/dense.h"

/* A half whose children have all contributed, without data. No mbuf has this address. */
#define HALF_EMPTY ((struct rte_mbuf *)1)

enum {
	TREE_WAITED
};

struct tree_slot {
	struct fanin_dense dense;
	struct rte_mbuf *waiting[]; /* by inner node: the half that came first; atomic if shared */
};

/* Inner nodes are numbered from 1. */
static size_t
tree_slot_size(const struct fanin_job_params *job)
{
	return sizeof(struct tree_slot) + job->n_children * sizeof(struct rte_mbuf *);
}

/* For small messages, whose contributions all arrive at the same time (Flare section 6.4). */
static bool
tree_suits(const struct fanin_choice *choice, uint32_t *buffers)
{
	(void)buffers;
	return choice->message_bytes != 0 && choice->message_bytes <= choice->tree_up_to;
}

static __rte_noinline void
release_waiting(struct fanin_handler_ctx *ctx, struct tree_slot *slot)
{
	for (uint32_t node = 1; node < ctx->job->n_children; node++) {
		if (slot->waiting[node] != NULL && slot->waiting[node] != HALF_EMPTY)
			fanin_release(ctx, slot->waiting[node]);
		slot->waiting[node] = NULL;
	}
}

/* If the block is done, no half is waiting. */
static void
tree_reset(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	struct tree_slot *slot = (struct tree_slot *)dense;
	const uint32_t end = ctx->job->n_children;

	for (uint32_t node = 1; node < end; node++) {
		if (slot->waiting[node] != NULL) {
			release_waiting(ctx, slot);
			return;
		}
	}
}

static void
tree_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct tree_slot *slot = memory;

	fanin_dense_release(ctx, &slot->dense);
	tree_reset(ctx, &slot->dense);
}

/* Leaves a half at its node. Returns the other half if it is already there. */
static struct rte_mbuf *
meet(struct rte_mbuf **waiting, struct rte_mbuf *half, bool shared)
{
	struct rte_mbuf *other;

	if (shared)
		other = __atomic_exchange_n(waiting, half, __ATOMIC_ACQ_REL);
	else
		other = *waiting;
	/* The second half to arrive is the last one: no other worker accesses this node now. */
	if (shared && other != NULL)
		__atomic_store_n(waiting, NULL, __ATOMIC_RELAXED);
	else if (!shared)
		*waiting = other == NULL ? half : NULL;
	return other;
}

/*
 * Carries a child's half up the tree, as far as the other halves have come. At the root the block
 * is done.
 *
 * sum: the packet's mbuf, or HALF_EMPTY if is_empty. is_empty: a constant. Returns the packet's
 * verdict.
 */
static __rte_always_inline enum fanin_verdict
climb(struct fanin_handler_ctx *ctx, struct tree_slot *slot, const struct fanin_packet *packet,
      struct rte_mbuf *sum, const bool is_empty)
{
	const struct fanin_job_params *job = ctx->job;
	const enum fanin_verdict verdict = is_empty ? FANIN_VERDICT_FREE : FANIN_VERDICT_HELD;
	uint8_t up = job->order.up_of_child[packet->child];

	for (uint8_t next; up != 0; up = next) {
		struct rte_mbuf *other = meet(&slot->waiting[fanin_order_node(up)], sum,
					      job->shared);

		next = job->order.up_of_node[fanin_order_node(up)];
		if (other == NULL) {
			ctx->stats->own[TREE_WAITED]++;
			return verdict;
		}
		if (unlikely(other == HALF_EMPTY))
			continue;
		if (is_empty && sum == HALF_EMPTY) {
			sum = other;
			continue;
		}
		if (fanin_order_is_right(up))
			RTE_SWAP(sum, other);
		fanin_dense_combine_ordered(&slot->dense, sum, other);
		fanin_release(ctx, other);
	}
	if (is_empty && sum == HALF_EMPTY) {
		fanin_dense_finish(ctx, &slot->dense, packet->mbuf);
		return FANIN_VERDICT_HELD;
	}
	fanin_dense_finish(ctx, &slot->dense, sum);
	return verdict;
}

static __rte_noinline enum fanin_verdict
climb_empty(struct fanin_handler_ctx *ctx, struct tree_slot *slot,
	    const struct fanin_packet *packet)
{
	return climb(ctx, slot, packet, HALF_EMPTY, true);
}

static enum fanin_verdict
tree_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		  struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct tree_slot *slot = memory;
	enum fanin_verdict verdict;

	if (!fanin_dense_admit(ctx, &slot->dense, index, packet, false, tree_reset, &verdict,
			       reason))
		return verdict;
	ctx->stats->contributions++;
	if (fanin_dense_is_empty(packet)) {
		verdict = climb_empty(ctx, slot, packet);
	} else {
		fanin_dense_begin(&slot->dense, packet->mbuf);
		verdict = climb(ctx, slot, packet, packet->mbuf, false);
	}
	fanin_dense_state_leave(&slot->dense.state, ctx->job->shared);
	return verdict;
}

static enum fanin_verdict
tree_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, struct fanin_packet *packet,
	   enum fanin_reason *reason)
{
	return fanin_dense_other(ctx, memory, index, packet, tree_reset, reason);
}

static const struct fanin_counter tree_counters[] = {
	[TREE_WAITED] = { "waited",
			  "contributions, or sums of several, that waited for those beside them" },
	{ 0 },
};

static struct fanin_handler tree = {
	.name = "tree",
	.description = "dense reduction in the order of ranks, one leaf per child",
	.in_order = true,
	.makes_packets = true,
	.makes_headers_only = true,
	.slot_mbufs = { .per_pair = 1 },
	.suits = tree_suits,
	.counters = tree_counters,
	.slot_size = tree_slot_size,
	.contribution = tree_contribution,
	.types = fanin_dense_types,
	.other = tree_other,
	.peek = fanin_dense_peek,
	.slot_release = tree_slot_release,
};

FANIN_HANDLER_REGISTER(tree)
