/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all dense handlers do alike: begin a block, answer those who ask again, finish. They differ
 * in how contributions are combined, which is theirs. Called by the worker that has entered the
 * slot, see window.h.
 */
#ifndef FANIN_HANDLERS_DENSE_H
#define FANIN_HANDLERS_DENSE_H

#include "handlers/handler.h"
#include "handlers/window.h"

/* The head of a dense handler's slot. */
struct fanin_dense {
	struct fanin_window window;
	fanin_kernel_fn kernel;
	struct rte_mbuf *result; /* of the block that is done; NULL before the first */
};

/* The payload of a Fanin frame. */
static inline void *
fanin_dense_payload(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET);
}

/* Combines the second packet's elements into the first's: order matters to floating point. */
static inline void
fanin_dense_combine(const struct fanin_dense *dense, struct rte_mbuf *into,
		    const struct rte_mbuf *from)
{
	dense->kernel(fanin_dense_payload(into), fanin_dense_payload(from), dense->window.count);
}

/*
 * Enters the slot for a contribution and deals with everything but a child's first contribution to
 * the open block.
 *
 * exclusive: alone. reset: releases what the handler's own part of the slot holds; may be NULL.
 * Returns true if the contribution is to be combined: the caller is in, the child's place is
 * claimed, and the caller leaves. Else *verdict (and on a drop *reason) say what became of it.
 */
bool fanin_dense_admit(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
		       const struct fanin_packet *packet, bool exclusive,
		       void (*reset)(struct fanin_handler_ctx *ctx, struct fanin_dense *dense),
		       enum fanin_verdict *verdict, enum fanin_reason *reason);

/*
 * The mbuf holds what was combined of all contributions: it becomes the result (an average is divided
 * here), is kept, and goes to all children. Takes over the caller's reference.
 */
void fanin_dense_finish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			struct rte_mbuf *mbuf);

/* Gives up the kept result. */
void fanin_dense_release(struct fanin_handler_ctx *ctx, struct fanin_dense *dense);

#endif
