/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries about sparse blocks, and the parent's answers to those that were passed on
 * (protocols/sparse/README.md, "Asking about sparse blocks"). dense_query.c handles those about
 * dense blocks. A query never moves a slot on.
 */
#include <string.h>

#include "protocols/sparse/switch/sparse.h"

enum fanin_dense_class
fanin_sparse_visit(struct fanin_sparse *slot, const struct fanin_handler_ctx *ctx, uint32_t block)
{
	struct fanin_dense_state *state = &slot->single.dense.state;
	const enum fanin_dense_class class = fanin_dense_state_visit(state, ctx, block);

	if (class != FANIN_DENSE_CURRENT && class != FANIN_DENSE_SENT &&
	    class != FANIN_DENSE_FINISHED)
		return class;
	/*
	 * While this worker is in, no other can enter alone. A worker that was in before is still
	 * there if it is counted, too.
	 */
	if ((__atomic_load_n(&state->word, __ATOMIC_ACQUIRE) & FANIN_STATE_USERS) == 1)
		return class;
	fanin_dense_state_leave(state, ctx->job->shared);
	return FANIN_DENSE_BUSY;
}

/* A bitmap of shards in a packet's payload, from a byte on; 0 if it has none. */
static uint64_t
read_shards(const struct fanin_packet *packet, uint32_t at)
{
	uint64_t shards = 0;

	if (packet->payload_len >= at + sizeof(shards))
		memcpy(&shards, (const uint8_t *)packet->payload + at, sizeof(shards));
	return shards;
}

/* Sends a child the shards of the result that it lacks. */
static void
repeat_result(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint64_t has,
	      unsigned int child)
{
	const uint64_t bit = UINT64_C(1) << child;

	ctx->stats->repeats++;
	if (!ctx->job->has_parent && !slot->is_known) {
		fanin_sparse_send_again(ctx, slot, ~has, bit);
		return;
	}
	for (uint64_t left = slot->results.in & ~has; left != 0; left &= left - 1) {
		struct rte_mbuf *mbuf = slot->kept[__builtin_ctzll(left)];

		/* Unmodified, as a NIC may still be reading it. */
		fanin_frame_hold(mbuf);
		fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, bit,
			   mbuf->data_len - FANIN_PAYLOAD_OFFSET);
		ctx->stats->own[FANIN_SPARSE_REPEATED]++;
	}
}

void
fanin_sparse_answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot,
			      const struct fanin_packet *packet, enum fanin_block_state state)
{
	const uint64_t present = slot->single.dense.state.present;
	const bool open = state == FANIN_BLOCK_OPEN || state == FANIN_BLOCK_ABSENT;
	struct fanin_answer_body body = { 0 };

	fanin_dense_make_answer(ctx, packet, state, open ? ctx->job->children & ~present : 0, &body,
				&slot->child[packet->child].in);
	ctx->stats->pendings += state == FANIN_BLOCK_OPEN;
}

/* Result of a query. */
struct finding {
	enum fanin_block_state state;
	uint64_t missing; /* children */
	uint64_t shards;  /* of the child that asks */
	bool pass_up;
};

/* Looks at a slot that is at the block. The caller is in the slot, and leaves it. */
static struct finding
look(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const struct fanin_packet *packet,
     enum fanin_dense_class class)
{
	const bool overdue = (packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) != 0;
	struct fanin_dense *dense = &slot->single.dense;
	struct finding found = { .shards = slot->child[packet->child].in };

	switch (class) {
	case FANIN_DENSE_CURRENT:
		found.missing = ctx->job->children & ~dense->state.present;
		found.state = (found.missing >> packet->child & 1) == 0 ? FANIN_BLOCK_OPEN
									: FANIN_BLOCK_ABSENT;
		break;
	case FANIN_DENSE_SENT:
		found.state = FANIN_BLOCK_SENT;
		found.pass_up = overdue && fanin_dense_may_pass_up(ctx, dense, packet->child);
		break;
	default:
		found.state = FANIN_BLOCK_DONE;
		if (overdue)
			repeat_result(ctx, slot, read_shards(packet, 0), packet->child);
		break;
	}
	return found;
}

enum fanin_verdict
fanin_sparse_query(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool overdue = (hdr->flags & FANIN_FLAG_RETRANSMIT) != 0;
	const enum fanin_dense_class class = fanin_sparse_visit(slot, ctx, hdr->block);
	struct fanin_answer_body body = { 0 };
	struct finding found = { .state = FANIN_BLOCK_ABSENT, .missing = ctx->job->children };
	uint64_t results;

	switch (class) {
	case FANIN_DENSE_BUSY:
		return FANIN_VERDICT_RETRY;
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
	case FANIN_DENSE_FINISHED:
		if (!fanin_sparse_is(slot)) {
			fanin_dense_state_leave(&slot->single.dense.state, ctx->job->shared);
			return fanin_dense_query(ctx, slot, packet, reason);
		}
		found = look(ctx, slot, packet, class);
		results = slot->results.in;
		fanin_dense_state_leave(&slot->single.dense.state, ctx->job->shared);
		break;
	case FANIN_DENSE_AHEAD: /* nothing of this block has come yet, of either kind */
		break;
	default:
		return fanin_dense_query(ctx, slot, packet, reason);
	}
	ctx->stats->queries++;
	if (found.pass_up)
		return fanin_dense_pass_up(ctx, packet, &results);
	ctx->stats->pendings += found.state == FANIN_BLOCK_OPEN;
	if (overdue)
		ctx->missing |= found.missing & ~(UINT64_C(1) << packet->child);
	fanin_dense_fill_states(ctx, packet, found.state, &body);
	fanin_dense_make_answer(ctx, packet, found.state, found.missing, &body, &found.shards);
	return FANIN_VERDICT_HELD;
}

/*
 * Sends shards that went up and that the parent lacks again, unless they were sent again since the
 * child asked whose query the parent answers.
 */
static enum fanin_verdict
send_again(struct fanin_handler_ctx *ctx, void *memory, const struct fanin_packet *packet,
	   unsigned int child)
{
	struct fanin_sparse *slot = memory;
	struct fanin_dense_state *state = &slot->single.dense.state;
	const enum fanin_dense_class class = fanin_sparse_visit(slot, ctx,
								packet->headers->fanin.block);
	uint64_t lacks;

	switch (class) {
	case FANIN_DENSE_BUSY:
		return FANIN_VERDICT_RETRY;
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
	case FANIN_DENSE_FINISHED:
		break;
	default:
		return FANIN_VERDICT_FREE;
	}
	if (!fanin_sparse_is(slot)) {
		fanin_dense_state_leave(state, ctx->job->shared);
		return fanin_dense_send_again(ctx, slot, packet, child);
	}
	if (class == FANIN_DENSE_SENT && (state->present >> child & 1) == 0) {
		__atomic_fetch_or(&state->present, ctx->job->children, __ATOMIC_RELAXED);
		ctx->stats->upward_repeats++;
		lacks = ~read_shards(packet, fanin_answer_len(ctx->job->n_ranks));
		if (slot->is_known)
			fanin_sparse_send_known_again(ctx, slot, lacks);
		else
			fanin_sparse_send_again(ctx, slot, lacks, 0);
	}
	fanin_dense_state_leave(state, ctx->job->shared);
	return FANIN_VERDICT_FREE;
}

enum fanin_verdict
fanin_sparse_answer(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)reason;
	return fanin_dense_answer_or(ctx, slot, packet, send_again);
}
