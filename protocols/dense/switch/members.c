/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See members.h. A rank may hold back its contribution for long, and the switch then sends nothing
 * up. So queries about gone ranks go to the root, which knows all ranks.
 */
#include "protocols/dense/switch/members.h"

/* True if no contribution to the block, or of its run, has come here yet. */
static bool
is_ahead(const struct fanin_handler_ctx *ctx, struct single_slot *slot, uint32_t block)
{
	struct fanin_dense_state *state = &slot->dense.state;
	const enum fanin_dense_class class = fanin_dense_state_visit(state, ctx, block);

	if (class == FANIN_DENSE_CURRENT || class == FANIN_DENSE_SENT ||
	    class == FANIN_DENSE_FINISHED)
		fanin_dense_state_leave(state, ctx->job->shared);
	return class == FANIN_DENSE_AHEAD;
}

/*
 * Returns the children that lead to other ranks than the one that asks. Any of these ranks may be
 * missing, whatever they have contributed.
 */
static uint64_t
others_than(const struct fanin_job_params *job, uint16_t child)
{
	const bool is_one = fanin_ranks_count(&job->child_ranks[child]) == 1;

	return job->children & ~((uint64_t)is_one << child);
}

/*
 * For a query that goes to the root, each switch on the way probes its children. The parent's PROBE
 * asks for the findings.
 */
static enum fanin_verdict
query(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
      enum fanin_reason *reason)
{
	if ((packet->headers->fanin.flags & FANIN_FLAG_DIRECT) == 0)
		return fanin_single_other(ctx, slot, index, packet, reason);
	ctx->missing |= others_than(ctx->job, packet->child);
	if (!ctx->job->has_parent)
		return fanin_single_other(ctx, slot, index, packet, reason);
	ctx->stats->queries++;
	return fanin_dense_pass_up(ctx, packet, NULL);
}

/*
 * The parent's ANSWER to such a query: the block is absent there, because nobody here has
 * contributed.
 */
static enum fanin_verdict
answer(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
       enum fanin_reason *reason)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;

	if (hdr->count == FANIN_BLOCK_ABSENT && is_ahead(ctx, slot, hdr->block))
		hdr->count = FANIN_BLOCK_OPEN;
	return fanin_single_other(ctx, slot, index, packet, reason);
}

enum fanin_verdict
fanin_members_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_MULTICAST:
	case FANIN_TYPE_DELIVERY:
		return fanin_pass_multicast(ctx, packet, reason);
	case FANIN_TYPE_UNICAST:
	case FANIN_TYPE_UNICAST_DELIVERY:
		return fanin_pass_unicast(ctx, packet, reason);
	case FANIN_TYPE_QUERY:
		return query(ctx, slot, index, packet, reason);
	case FANIN_TYPE_ANSWER:
		return answer(ctx, slot, index, packet, reason);
	default:
		return fanin_single_other(ctx, slot, index, packet, reason);
	}
}
