/* SPDX-License-Identifier: BSD-3-Clause */
/* Tags on frames that handlers make: see fanin_seal. */
#include "handlers/handler.h"

void
fanin_seal_tagged(struct fanin_handler_ctx *ctx, enum fanin_tag_direction direction,
		  struct rte_mbuf *mbuf)
{
	/* If libcrypto fails, the tag is invalid, and receivers drop the packet. */
	if (!fanin_tagger_seal_frame(ctx->tagger, direction,
				     direction == FANIN_TAG_UP ? ctx->parent_instance
							       : ctx->instance,
				     rte_pktmbuf_mtod(mbuf, struct fanin_headers *)))
		return;
	mbuf->data_len += FANIN_TAG_LEN;
	mbuf->pkt_len = mbuf->data_len;
}
