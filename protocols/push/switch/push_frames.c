/* SPDX-License-Identifier: BSD-3-Clause */
/* Push: frames that a switch makes of sums or passes on. See push.h. */
#include "protocols/push/switch/push.h"

#include <string.h>

/*
 * Turns a packet with elements into a frame to the parent or to children. Block, shape and payload
 * stay. contributions: number of ranks in the sum.
 */
static struct fanin_hdr *
make_frame(const struct fanin_handler_ctx *ctx, enum fanin_type type, uint32_t block,
	   unsigned int contributions, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr said = rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	const uint32_t payload_len = fanin_wire_is_empty(&said)
					     ? 0
					     : said.count * fanin_dtype_size(said.dtype);
	struct fanin_hdr *hdr = fanin_frame_make(ctx, type, block, payload_len, mbuf);

	hdr->flags = said.flags & FANIN_FLAG_EMPTY;
	hdr->contributions = (uint16_t)contributions;
	fanin_wire_set_shape(hdr, fanin_wire_shape(&said));
	return hdr;
}

static void
send_to_all(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf)
{
	(void)make_frame(ctx, FANIN_TYPE_RESULT, block, ctx->job->n_ranks, mbuf);
	fanin_frame_send_down(ctx, mbuf, ctx->job->children);
	ctx->stats->results++;
}

void
push_send_up(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum)
{
	const unsigned int n = (unsigned int)__builtin_popcountll(sum.members);

	make_frame(ctx, FANIN_TYPE_PARTIAL, block, n, sum.mbuf)->members = sum.members;
	fanin_frame_send_up(ctx, sum.mbuf);
	ctx->stats->upward++;
}

static void
send_to_home(struct fanin_handler_ctx *ctx, uint32_t block, uint16_t home, uint64_t child,
	     struct push_sum sum)
{
	const unsigned int n = (unsigned int)__builtin_popcountll(sum.members);
	struct fanin_hdr *hdr = make_frame(ctx, FANIN_TYPE_EVICTED, block, n, sum.mbuf);

	hdr->members = sum.members;
	hdr->number = home;
	fanin_frame_send_down(ctx, sum.mbuf, child);
	ctx->stats->own[PUSH_HOMED]++;
}

void
push_send_home(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum)
{
	const uint16_t home = fanin_push_home(block, ctx->job->n_ranks);

	/* The root has all ranks below it, so one child leads to the home host. */
	send_to_home(ctx, block, home, fanin_child_with(ctx->job, home), sum);
}

void
push_send_result(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	if (hdr->op == FANIN_WIRE_AVG && !fanin_wire_is_empty(hdr))
		fanin_kernel_finish(job->isa, hdr->dtype, hdr->op)(hdr + 1, job->n_ranks,
								   hdr->count);
	send_to_all(ctx, block, mbuf);
}

enum fanin_verdict
push_pass_result(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	send_to_all(ctx, packet->headers->fanin.block, packet->mbuf);
	return FANIN_VERDICT_HELD;
}

enum fanin_verdict
push_pass_home(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint64_t child = fanin_child_with(ctx->job, hdr->number);
	const struct push_sum sum = { .mbuf = packet->mbuf, .members = hdr->members };

	/* The frame is for another switch behind the same port of the parent. */
	if (child == 0)
		return FANIN_VERDICT_FREE;
	send_to_home(ctx, hdr->block, (uint16_t)hdr->number, child, sum);
	return FANIN_VERDICT_HELD;
}

void
push_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	    enum fanin_block_state state, uint64_t seen)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_answer_body body = { 0 };
	struct fanin_answer_ranks ranks = { 0 };
	struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_hdr asked = *hdr;
	uint8_t *payload = (uint8_t *)(packet->headers + 1);

	if (state != FANIN_BLOCK_DONE)
		ranks.missing.words[0] = fanin_ranks_all_word(job->n_ranks, 0) & ~seen;
	fanin_answer_tell_presence(ctx, &ranks);
	fanin_frame_answer_to(packet->headers);
	fanin_wire_encode_header(hdr, FANIN_TYPE_ANSWER, job->id, ctx->epoch, job->keys.down);
	hdr->rank = asked.rank;
	hdr->block = asked.block;
	hdr->count = (uint16_t)state;
	hdr->members = asked.members;
	hdr->number = asked.number;
	memcpy(payload, &body, sizeof(body));
	fanin_answer_write_ranks(payload + sizeof(body), job->n_ranks, &ranks);
	fanin_emit(ctx, FANIN_EMIT_REPLY, packet->mbuf, UINT64_C(1) << packet->child,
		   fanin_answer_len(job->n_ranks));
}
