/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all dense handlers do alike: begin a block, answer those who ask again, finish. They differ
 * in how contributions are combined, which is theirs. Called by the worker that has entered the
 * slot, see state.h.
 */
#ifndef FANIN_PROTOCOLS_DENSE_SWITCH_DENSE_H
#define FANIN_PROTOCOLS_DENSE_SWITCH_DENSE_H

#include "handlers/frame.h"
#include "protocols/dense/switch/state.h"

/* The head of a dense handler's slot. */
struct fanin_dense {
	struct fanin_dense_state state;
	/*
	 * Combines contributions into a partial result; of handlers that are in_order, which begin
	 * each one, partial results. NULL before the first block.
	 */
	fanin_kernel_fn add;
	struct rte_mbuf *result; /* of the block that is done, or what went to the parent; NULL
				    before the first */
	uint64_t begun_ns; /* when the block's first contribution came; written in SETUP only */
};

/* The payload of a Fanin frame. */
static inline void *
fanin_dense_payload(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET);
}

/* The kernels of a block with window.wide. */
static inline const struct fanin_wide_kernels *
fanin_dense_wide(const struct fanin_dense *dense)
{
	return fanin_kernel_wide((enum fanin_isa)(dense->state.wide - 1u), dense->state.dtype);
}

/*
 * Does a contribution take part without data? It claims its child's place and is combined with
 * nothing, nor does its mbuf become a partial result. Only if all are like that, the last one's
 * becomes the result, which then is empty, too.
 */
static inline bool
fanin_dense_is_empty(const struct fanin_packet *packet)
{
	return __builtin_expect(fanin_wire_is_empty(&packet->headers->fanin), 0);
}

/* Makes a contribution a partial result, in place. From now on it can't be tried again. */
static inline void
fanin_dense_begin(const struct fanin_dense *dense, struct rte_mbuf *mbuf)
{
	void *payload = fanin_dense_payload(mbuf);

	if (__builtin_expect(dense->state.wide != 0, 0))
		fanin_dense_wide(dense)->widen(payload, payload, dense->state.count);
}

/*
 * Combines the second partial result into the first: order matters to floating point. Of handlers
 * that are in_order.
 */
static inline void
fanin_dense_combine_ordered(const struct fanin_dense *dense, struct rte_mbuf *into,
			    const struct rte_mbuf *from)
{
	dense->add(fanin_dense_payload(into), fanin_dense_payload(from), dense->state.count);
}

/* The same of the other handlers. */
static inline void
fanin_dense_combine(const struct fanin_dense *dense, struct rte_mbuf *into,
		    const struct rte_mbuf *from)
{
	fanin_kernel_fn combine = dense->add;

	if (__builtin_expect(dense->state.wide != 0, 0))
		combine = fanin_kernel((enum fanin_isa)(dense->state.wide - 1u), FANIN_WIRE_F32,
				       dense->state.op);
	combine(fanin_dense_payload(into), fanin_dense_payload(from), dense->state.count);
}

/*
 * Combines a contribution as it came into a partial result. The same as to begin it first, but for
 * sums in f32 2 to 6 times as fast. Not of handlers that are in_order.
 */
static inline void
fanin_dense_add(const struct fanin_dense *dense, struct rte_mbuf *into,
		const struct rte_mbuf *contribution)
{
	dense->add(fanin_dense_payload(into), fanin_dense_payload(contribution),
		   dense->state.count);
}

/* Releases what the handler's own part of a slot holds. */
typedef void (*fanin_dense_reset_fn)(struct fanin_handler_ctx *ctx, struct fanin_dense *dense);

/* See fanin_dense_admit: the contribution did not find its block open, or its place is taken. */
bool fanin_dense_admit_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			     uint32_t index, const struct fanin_packet *packet,
			     enum fanin_dense_class class, bool exclusive,
			     fanin_dense_reset_fn reset, enum fanin_verdict *verdict,
			     enum fanin_reason *reason);

/*
 * Enters the slot for a contribution and deals with everything but a child's first contribution to
 * the open block.
 *
 * exclusive: alone. reset: may be NULL.
 * Returns true if the contribution is to be combined: the caller is in, the child's place is
 * claimed, the packet is unchanged, and the caller leaves. Else *verdict (and on a drop *reason)
 * say what became of it.
 */
static inline bool
fanin_dense_admit(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
		  const struct fanin_packet *packet, bool exclusive, fanin_dense_reset_fn reset,
		  enum fanin_verdict *verdict, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	enum fanin_dense_class class;

	class = fanin_dense_state_enter(&dense->state, ctx, hdr->block, exclusive);
	if (__builtin_expect(class == FANIN_DENSE_CURRENT &&
				     fanin_dense_state_matches(&dense->state, hdr) &&
				     fanin_dense_state_claim(&dense->state, ctx->job->shared,
							     packet->child),
			     1))
		return true;
	return fanin_dense_admit_other(ctx, dense, index, packet, class, exclusive, reset, verdict,
				       reason);
}

/*
 * The mbuf holds what was combined of all contributions, and the block is over for them. At the
 * root of the job's tree it becomes the result (an average is divided and f32 rounded to the
 * block's type here), is kept, and goes to all children. Elsewhere it goes to the parent, kept
 * until the parent's result comes. Takes over the caller's reference; the caller stays in. If the
 * mbuf is an empty contribution, what leaves is empty, too.
 */
void fanin_dense_finish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			struct rte_mbuf *mbuf);

/* A dense handler's `types`: RESULT, KNOWN, QUERY and ANSWER. */
extern const uint8_t fanin_dense_types[];

/*
 * A dense handler's `other`: the parent's RESULT of a block takes the place of what went up, and
 * goes to all children; a KNOWN, with the result of a block that a child has from a tree that
 * failed, is from then on the block's result here as well, and goes up to the root and down to all;
 * a child's QUERY is answered or passed on, and the slot stays at its block; an ANSWER to a query
 * that was passed on is sent to the child that asked.
 *
 * reset: releases what the handler has combined so far. While a slot waits for its parent's result
 * a child may still send one that it knows, since the parent may lack what others would have
 * brought.
 */
enum fanin_verdict fanin_dense_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
				     uint32_t index, struct fanin_packet *packet,
				     fanin_dense_reset_fn reset, enum fanin_reason *reason);

/* Sends the result of a block that is done to a child once more. The caller is in. */
void fanin_dense_repeat_result(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
			       unsigned int child);

/*
 * Sends what went to the parent once more. The caller is in, and the block waits for the parent's
 * result.
 */
void fanin_dense_repeat_upward(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense);

/*
 * dense_query.c: turns a contribution that was there already into the answer that says so. state:
 * OPEN or SENT.
 */
void fanin_dense_answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
				  const struct fanin_packet *packet, enum fanin_block_state state);

/* dense_query.c: a QUERY and an ANSWER. */
enum fanin_verdict fanin_dense_query(struct fanin_handler_ctx *ctx, void *slot,
				     struct fanin_packet *packet, enum fanin_reason *reason);
enum fanin_verdict fanin_dense_answer(struct fanin_handler_ctx *ctx, void *slot,
				      struct fanin_packet *packet, enum fanin_reason *reason);

/*
 * dense_query.c: parts of these, for handlers whose jobs have sparse blocks, too, about which there
 * is more to say: 8 bytes that tell shards.
 *
 * Turns a packet of a child into the answer to it: header and body, which the mbuf has room for.
 * missing: children, a bitmap. shards: what follows the body; NULL: nothing.
 */
void fanin_dense_make_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			     enum fanin_block_state state, uint64_t missing,
			     const struct fanin_answer_body *body, const uint64_t *shards);

/*
 * The states of the window's blocks from the one that a query asks for on, whose state is found
 * already.
 */
void fanin_dense_fill_states(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			     enum fanin_block_state state, struct fanin_answer_body *body);

/*
 * May the overdue query of a child for a block that was sent up go on to the parent? The caller is
 * in.
 */
bool fanin_dense_may_pass_up(const struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			     unsigned int child);

/*
 * The query becomes one of this switch's to its parent, which remembers who asked. shards: its
 * body; NULL: none.
 */
enum fanin_verdict fanin_dense_pass_up(struct fanin_handler_ctx *ctx,
				       const struct fanin_packet *packet, const uint64_t *shards);

/*
 * Sends again what the parent says it lacks, in its answer to a query that was passed on for a
 * child. Returns the verdict on the answer.
 */
typedef enum fanin_verdict (*fanin_dense_again_fn)(struct fanin_handler_ctx *ctx, void *slot,
						   const struct fanin_packet *packet,
						   unsigned int child);

/* Of dense blocks. */
enum fanin_verdict fanin_dense_send_again(struct fanin_handler_ctx *ctx, void *slot,
					  const struct fanin_packet *packet, unsigned int child);

/*
 * An ANSWER: goes on to the child that asked, or, if it says that the block is absent, calls
 * `again`.
 */
enum fanin_verdict fanin_dense_answer_or(struct fanin_handler_ctx *ctx, void *slot,
					 struct fanin_packet *packet, fanin_dense_again_fn again);

/* A dense handler's `peek` (protocols/dense/switch/dense_peek.c). */
bool fanin_dense_peek(const struct fanin_job_params *job, uint32_t epoch, const void *slot,
		      struct fanin_peek *peek);

/* Gives up the kept result. */
void fanin_dense_release(struct fanin_handler_ctx *ctx, struct fanin_dense *dense);

#endif
