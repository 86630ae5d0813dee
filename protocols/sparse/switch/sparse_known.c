/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results of sparse blocks that a child knows from an earlier run (protocols/sparse/README.md,
 * "Sparse blocks with another tree"). They come in shards, which are the result's, so a switch
 * makes none of its own: it keeps the packets, and sends them up, or at the root down to all
 * children.
 */
#include "protocols/sparse/switch/sparse.h"

bool
fanin_sparse_may_be_known(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			  const struct fanin_shard *shard)
{
	const struct fanin_shards_in *known = fanin_sparse_known(ctx, slot);

	if (slot->is_known)
		return fanin_shard_agrees(shard, known->in, known->total);
	return slot->n_shards == 0;
}

/* Sends the shard to the parent, with this switch as its sender. */
static void
pass_up(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const struct fanin_packet *packet)
{
	fanin_sparse_keep(ctx, slot, FANIN_TYPE_SPARSE_KNOWN, packet);
	/* One reference stays with the slot. */
	fanin_frame_hold(packet->mbuf);
	fanin_frame_send_up(ctx, packet->mbuf);
}

enum fanin_verdict
fanin_sparse_take_known(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			const struct fanin_packet *packet)
{
	const struct fanin_shard shard = fanin_shard_decode(packet->headers->fanin.members);
	struct fanin_shards_in *known = fanin_sparse_known(ctx, slot);
	const uint64_t bit = UINT64_C(1) << shard.number;

	if (!slot->is_known) {
		/* The contributions combined so far are no longer needed. */
		slot->is_known = true;
		fanin_sparse_drop_empty(ctx, slot);
	}
	/*
	 * Another child knows the result, too; the parent may have sent this shard of it already.
	 */
	if (((known->in | slot->results.in) & bit) != 0) {
		fanin_shards_add(known, &shard);
		return FANIN_VERDICT_FREE;
	}
	if (ctx->job->has_parent)
		pass_up(ctx, slot, packet);
	else
		fanin_sparse_pass_down(ctx, slot, packet);
	fanin_shards_add(known, &shard);
	return FANIN_VERDICT_HELD;
}

void
fanin_sparse_send_known_again(struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot,
			      uint64_t numbers)
{
	/* Shards that came back as results have arrived at the parent. */
	for (uint64_t left = slot->known.in & ~slot->results.in & numbers; left != 0;
	     left &= left - 1) {
		struct rte_mbuf *mbuf = slot->kept[__builtin_ctzll(left)];

		/* Unmodified, as a NIC may still be reading it. */
		fanin_frame_hold(mbuf);
		fanin_emit(ctx, FANIN_EMIT_PARENT, mbuf, 0, 0);
		ctx->stats->own[FANIN_SPARSE_REPEATED]++;
	}
}
