/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that a switch makes of sums and of packets that it passes on, to its parent and to its
 * children; and which children they are for.
 */
#ifndef FANIN_HANDLERS_FRAME_H
#define FANIN_HANDLERS_FRAME_H

#include "handlers/handler.h"

/* Sets the length of a frame that no other worker uses yet. */
static inline void
fanin_frame_set_length(struct rte_mbuf *mbuf, uint32_t payload_len)
{
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

/*
 * A packet that is to be turned around goes to the UDP port where its sender takes answers. To be
 * called before its Fanin header is written anew.
 */
static inline void
fanin_frame_answer_to(struct fanin_headers *headers)
{
	headers->udp.src_be = __builtin_bswap16(headers->fanin.port);
}

/* As fanin_frame_make, where the type's direction is known beforehand. */
static inline struct fanin_hdr *
fanin_frame_make_to(const struct fanin_handler_ctx *ctx, bool down, enum fanin_type type,
		    uint32_t block, uint32_t payload_len, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_job_params *job = ctx->job;

	*headers = down ? job->result_headers : job->parent_headers;
	if (fanin_wire_payload_len(headers) != payload_len)
		fanin_wire_set_payload_len(headers, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, job->id,
				 down ? ctx->epoch : ctx->parent_epoch,
				 down ? job->keys.down : job->keys.up);
	headers->fanin.block = block;
	if (!down) {
		headers->udp.src_be = fanin_wire_source_port_be(block, ctx->parent_port_shift);
		headers->fanin.rank = job->parent_rank;
	}
	fanin_frame_set_length(mbuf, payload_len);
	return &headers->fanin;
}

/*
 * Puts headers before a payload: of a frame to the children or to the parent, as the type goes.
 * Nothing of the headers before is left.
 *
 * Returns the Fanin header, whose other fields are 0 but for the rank towards a parent. The tag is
 * put on when the frame is sent.
 */
struct fanin_hdr *fanin_frame_make(const struct fanin_handler_ctx *ctx, enum fanin_type type,
				   uint32_t block, uint32_t payload_len, struct rte_mbuf *mbuf);

/* Sets IPv4's field `tos`, which has the marks of ECN, in a frame that was made. */
void fanin_frame_mark(struct rte_mbuf *mbuf, uint8_t tos);

/* Puts the tag on a frame and emits it. Takes the only reference. children: one at least. */
void fanin_frame_send_down(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t children);
void fanin_frame_send_up(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf);

/*
 * Adds a reference to an mbuf. rte_mbuf_refcnt_update would not do: it takes a short cut if there
 * is one reference only, but all workers that are in a slot may add to the one that the slot has.
 */
static inline void
fanin_frame_hold(struct rte_mbuf *mbuf)
{
	__atomic_fetch_add(&mbuf->refcnt, 1, __ATOMIC_RELAXED);
}

/* Returns the child that leads to a rank, as a bit; 0 if none does. */
uint64_t fanin_child_with(const struct fanin_job_params *job, uint64_t rank);

/* The ranks behind a child. This and what follows: of jobs of 64 ranks at most. */
static inline uint64_t
fanin_child_ranks(const struct fanin_job_params *job, unsigned int child)
{
	return job->child_ranks[child].words[0];
}

/* Returns the ranks behind all children. */
uint64_t fanin_ranks_below(const struct fanin_job_params *job);

/* Returns the children that lead to any of these ranks, as a bitmap. */
uint64_t fanin_children_with(const struct fanin_job_params *job, uint64_t ranks);

/* Adds what is known here of ranks that are missing, and has their children probed. */
void fanin_answer_tell_presence(struct fanin_handler_ctx *ctx, struct fanin_answer_ranks *ranks);

/*
 * Finds the child that asked for what the parent sends, and what is left of the way to the asker.
 *
 * Returns false if the packet is not for this switch: another rank is that of a switch at the same
 * port of the parent, since answers that are passed on go to the group's address.
 */
bool fanin_answer_asker(const struct fanin_job_params *job, const struct fanin_hdr *hdr,
			uint64_t *way, unsigned int *child);

/*
 * Passes the parent's ANSWER on to the child that asked: one level further, without states of other
 * blocks. It has fanin_answer_len bytes at least.
 */
enum fanin_verdict fanin_answer_down(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet, uint64_t way,
				     unsigned int child);

/*
 * Passes an ANSWER of the parent on to the child that asked, with what is known here of the ranks
 * that are missing. Returns the verdict on it.
 */
enum fanin_verdict fanin_answer_pass(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet);

#endif
