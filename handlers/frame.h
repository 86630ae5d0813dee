/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that a switch makes from sums, or from packets that it passes on, for its parent and its
 * children; and the choice of children.
 */
#ifndef FANIN_HANDLERS_FRAME_H
#define FANIN_HANDLERS_FRAME_H

#include "handlers/handler.h"

/* Sets the length of a frame that no other worker uses yet. payload_len: bytes. */
static inline void
fanin_frame_set_length(struct rte_mbuf *mbuf, uint32_t payload_len)
{
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

/*
 * Sets the UDP port of a packet that is returned to its sender to the port at which the sender
 * takes answers. Call it before the Fanin header is overwritten.
 */
static inline void
fanin_frame_answer_to(struct fanin_headers *headers)
{
	headers->udp.src_be = __builtin_bswap16(headers->fanin.port);
}

/* As fanin_frame_make, for callers that know the type's direction. */
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
 * Writes all headers before a payload, for a frame to the children or to the parent according to
 * the type's direction. No previous header field is kept.
 *
 * payload_len: bytes. Returns the Fanin header, in which the caller fills in the other fields: they
 * are 0, except for the rank towards a parent. The tag is added when the frame is sent.
 */
struct fanin_hdr *fanin_frame_make(const struct fanin_handler_ctx *ctx, enum fanin_type type,
				   uint32_t block, uint32_t payload_len, struct rte_mbuf *mbuf);

/* Sets the IPv4 field `tos`, which has the ECN marks, in a frame that was made. */
void fanin_frame_mark(struct rte_mbuf *mbuf, uint8_t tos);

/*
 * Put the tag on a frame and emit it. Take the only reference. children: bitmap, one child at
 * least.
 */
void fanin_frame_send_down(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t children);
void fanin_frame_send_up(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf);

/*
 * Adds a reference to an mbuf. rte_mbuf_refcnt_update is not safe here: it is not atomic if there
 * is only one reference, but all workers in a slot may add to the slot's reference at the same
 * time.
 */
static inline void
fanin_frame_hold(struct rte_mbuf *mbuf)
{
	__atomic_fetch_add(&mbuf->refcnt, 1, __ATOMIC_RELAXED);
}

/* Returns the child that leads to a rank, as a bit; 0 if none does. */
uint64_t fanin_child_with(const struct fanin_job_params *job, uint64_t rank);

/*
 * Returns the ranks behind a child. This function and those below are for jobs of at most 64 ranks.
 */
static inline uint64_t
fanin_child_ranks(const struct fanin_job_params *job, unsigned int child)
{
	return job->child_ranks[child].words[0];
}

/* Returns the ranks behind all children. */
uint64_t fanin_ranks_below(const struct fanin_job_params *job);

/* Returns the children that lead to any of these ranks, as a bitmap. */
uint64_t fanin_children_with(const struct fanin_job_params *job, uint64_t ranks);

/*
 * Marks missing ranks that this switch knows as ended or silent, and has the children that lead to
 * missing ranks probed.
 */
void fanin_answer_tell_presence(struct fanin_handler_ctx *ctx, struct fanin_answer_ranks *ranks);

/*
 * Finds the child that asked for an answer of the parent, and the rest of the path to the asker.
 *
 * way: set to the rest of the path. child: set to the child's index. Returns false if the packet is
 * for another switch at the same port of the parent, which another rank names: answers that are
 * passed on go to the group's address.
 */
bool fanin_answer_asker(const struct fanin_job_params *job, const struct fanin_hdr *hdr,
			uint64_t *way, unsigned int *child);

/*
 * Passes the parent's ANSWER on to the child that asked, one level further and without states of
 * other blocks. The payload must have fanin_answer_len bytes at least.
 */
enum fanin_verdict fanin_answer_down(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet, uint64_t way,
				     unsigned int child);

/*
 * Passes an ANSWER of the parent on to the child that asked, after fanin_answer_tell_presence.
 * Returns the verdict on the packet.
 */
enum fanin_verdict fanin_answer_pass(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet);

#endif
