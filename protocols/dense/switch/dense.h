/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all dense handlers do alike: begin a block, answer retransmissions and queries, finish.
 * Handlers differ in how they combine contributions. Called by the worker that has entered the
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
	 * Combines a contribution into a partial result. For handlers that are in_order it combines
	 * two partial results instead: they turn each contribution into one. NULL before the first
	 * block.
	 */
	fanin_kernel_fn add;
	struct rte_mbuf *result; /* result of the done block, or the packet sent to the parent;
				    NULL: none yet */
	uint64_t begun_ns;       /* when the first contribution came; written in SETUP only */
};

/* Returns the payload of a Fanin frame. */
static inline void *
fanin_dense_payload(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET);
}

/* Returns the kernels of a block whose partial results are f32 (state.wide). */
static inline const struct fanin_wide_kernels *
fanin_dense_wide(const struct fanin_dense *dense)
{
	return fanin_kernel_wide((enum fanin_isa)(dense->state.wide - 1u), dense->state.dtype);
}

/*
 * Returns whether a contribution has no data. Such a contribution claims its child's place, but is
 * not combined, and its mbuf does not become a partial result. Only if all contributions are empty,
 * the last one becomes the result, which then is empty, too.
 */
static inline bool
fanin_dense_is_empty(const struct fanin_packet *packet)
{
	return __builtin_expect(fanin_wire_is_empty(&packet->headers->fanin), 0);
}

/* Turns a contribution into a partial result, in place. Afterwards the packet cannot be retried. */
static inline void
fanin_dense_begin(const struct fanin_dense *dense, struct rte_mbuf *mbuf)
{
	void *payload = fanin_dense_payload(mbuf);

	if (__builtin_expect(dense->state.wide != 0, 0))
		fanin_dense_wide(dense)->widen(payload, payload, dense->state.count);
}

/*
 * For handlers that are in_order: combines the second partial result into the first. The order
 * matters to floating point.
 */
static inline void
fanin_dense_combine_ordered(const struct fanin_dense *dense, struct rte_mbuf *into,
			    const struct rte_mbuf *from)
{
	dense->add(fanin_dense_payload(into), fanin_dense_payload(from), dense->state.count);
}

/* For other handlers: combines the second partial result into the first. */
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
 * Combines a contribution, as received, into a partial result. Equivalent to fanin_dense_begin and
 * fanin_dense_combine, but 2 to 6 times as fast for sums in f32. Not for handlers that are
 * in_order.
 */
static inline void
fanin_dense_add(const struct fanin_dense *dense, struct rte_mbuf *into,
		const struct rte_mbuf *contribution)
{
	dense->add(fanin_dense_payload(into), fanin_dense_payload(contribution),
		   dense->state.count);
}

/* Releases the packets that the handler's own part of a slot holds. */
typedef void (*fanin_dense_reset_fn)(struct fanin_handler_ctx *ctx, struct fanin_dense *dense);

/*
 * The rare cases of fanin_dense_admit: the block is not open in this slot, or the child's place is
 * taken.
 */
bool fanin_dense_admit_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			     uint32_t index, const struct fanin_packet *packet,
			     enum fanin_dense_class class, bool exclusive,
			     fanin_dense_reset_fn reset, enum fanin_verdict *verdict,
			     enum fanin_reason *reason);

/*
 * Enters the slot for a contribution and handles every case except a child's first contribution to
 * the open block.
 *
 * exclusive: only one worker at a time. reset: may be NULL. Returns true if the caller must combine
 * the contribution: the caller has entered, the child's place is claimed, the packet is unchanged,
 * and the caller leaves afterwards. Otherwise *verdict (and on a drop *reason) tell what became of
 * the packet.
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
 * Finishes a block whose contributions are all combined in the mbuf. At the root of the job's tree
 * this makes the result (divides an average, rounds f32 to the block's type), keeps it, and sends
 * it to all children. Elsewhere the sum goes to the parent and is kept until the parent's result
 * comes. Takes over the caller's reference; the caller remains entered. If the mbuf is an empty
 * contribution, the packet sent is empty, too.
 */
void fanin_dense_finish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			struct rte_mbuf *mbuf);

/* A dense handler's `types`: RESULT, KNOWN, QUERY and ANSWER. */
extern const uint8_t fanin_dense_types[];

/*
 * A dense handler's `other`:
 *
 * - RESULT of the parent replaces the sum that went up, and goes to all children.
 * - KNOWN has the result of a block that a child knows from a tree that failed. It becomes the
 *   block's result here, and goes up to the root and down to all.
 * - QUERY of a child is answered or passed on; the slot stays at its block.
 * - ANSWER to a query that was passed on goes to the child that asked.
 *
 * reset: releases the packets that the handler has combined so far. A child may send a KNOWN result
 * even while the slot waits for its parent's result, because the parent may lack the contributions
 * of others.
 */
enum fanin_verdict fanin_dense_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
				     uint32_t index, struct fanin_packet *packet,
				     fanin_dense_reset_fn reset, enum fanin_reason *reason);

/* Repeats the result of a done block to a child. The caller has entered. */
void fanin_dense_repeat_result(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
			       unsigned int child);

/*
 * Repeats the packet that went to the parent. The caller has entered, and the block waits for the
 * parent's result.
 */
void fanin_dense_repeat_upward(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense);

/*
 * dense_query.c: turns a duplicate contribution into the ANSWER that says so. state: OPEN or SENT.
 */
void fanin_dense_answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
				  const struct fanin_packet *packet, enum fanin_block_state state);

/* dense_query.c: take a QUERY and an ANSWER. */
enum fanin_verdict fanin_dense_query(struct fanin_handler_ctx *ctx, void *slot,
				     struct fanin_packet *packet, enum fanin_reason *reason);
enum fanin_verdict fanin_dense_answer(struct fanin_handler_ctx *ctx, void *slot,
				      struct fanin_packet *packet, enum fanin_reason *reason);

/*
 * dense_query.c: parts of these, also for handlers whose jobs have sparse blocks: their queries and
 * answers carry 8 more bytes about shards.
 *
 * Turns a child's packet into the ANSWER to it: header and body, for which the mbuf has room.
 * missing: bitmap of children. shards: appended to the body; NULL: nothing.
 */
void fanin_dense_make_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			     enum fanin_block_state state, uint64_t missing,
			     const struct fanin_answer_body *body, const uint64_t *shards);

/*
 * Fills in the states of the window's blocks from the queried one on. state: that of the queried
 * block.
 */
void fanin_dense_fill_states(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
			     enum fanin_block_state state, struct fanin_answer_body *body);

/*
 * Returns whether a child's overdue query for a block that was sent up may go on to the parent. The
 * caller has entered.
 */
bool fanin_dense_may_pass_up(const struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
			     unsigned int child);

/*
 * Turns the query into one of this switch to its parent, which records the return path. shards: its
 * body; NULL: none.
 */
enum fanin_verdict fanin_dense_pass_up(struct fanin_handler_ctx *ctx,
				       const struct fanin_packet *packet, const uint64_t *shards);

/*
 * Sends again what the parent lacks, according to its ANSWER to a query that was passed on for a
 * child. Returns the verdict on the ANSWER.
 */
typedef enum fanin_verdict (*fanin_dense_again_fn)(struct fanin_handler_ctx *ctx, void *slot,
						   const struct fanin_packet *packet,
						   unsigned int child);

/* fanin_dense_again_fn of dense blocks. */
enum fanin_verdict fanin_dense_send_again(struct fanin_handler_ctx *ctx, void *slot,
					  const struct fanin_packet *packet, unsigned int child);

/*
 * Passes an ANSWER on to the child that asked. If the ANSWER says that the block is absent, calls
 * `again` instead.
 */
enum fanin_verdict fanin_dense_answer_or(struct fanin_handler_ctx *ctx, void *slot,
					 struct fanin_packet *packet, fanin_dense_again_fn again);

/* A dense handler's `peek` (protocols/dense/switch/dense_peek.c). */
bool fanin_dense_peek(const struct fanin_job_params *job, uint32_t epoch, const void *slot,
		      struct fanin_peek *peek);

/* Releases the kept result. */
void fanin_dense_release(struct fanin_handler_ctx *ctx, struct fanin_dense *dense);

#endif
