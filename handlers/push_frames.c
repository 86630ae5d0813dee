/* SPDX-License-Identifier: BSD-3-Clause */
/* Push: the frames that a switch makes of sums, and passes on. See push.h. */
#include "handlers/push.h"

#include <string.h>

static void
set_length(struct rte_mbuf *mbuf, uint32_t payload_len)
{
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

/* Makes a packet with elements a frame to the parent or to children. Block, shape and payload stay. contributions: ranks in it. */
static struct fanin_hdr *
make_frame(const struct fanin_handler_ctx *ctx, enum fanin_type type, uint32_t block,
	   unsigned int contributions, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const bool down = fanin_type_direction((uint8_t)type) == FANIN_DOWN;
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr said = headers->fanin;
	const uint32_t payload_len = fanin_wire_is_empty(&said)
					     ? 0
					     : said.count * fanin_dtype_size(said.dtype);

	*headers = down ? job->result_headers : job->parent_headers;
	if (fanin_wire_payload_len(headers) != payload_len)
		fanin_wire_set_payload_len(headers, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, job->id,
				 down ? ctx->epoch : ctx->parent_epoch,
				 down ? job->keys.down : job->keys.up);
	headers->fanin.flags = said.flags & FANIN_FLAG_EMPTY;
	headers->fanin.contributions = (uint16_t)contributions;
	headers->fanin.block = block;
	fanin_wire_set_shape(&headers->fanin, fanin_wire_shape(&said));
	if (!down) {
		headers->udp.src_be = fanin_wire_source_port_be(block);
		headers->fanin.rank = job->parent_rank;
	}
	set_length(mbuf, payload_len);
	return &headers->fanin;
}

/* The frame is complete but for its tag. The mbuf has one reference. */
static void
send_down(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t children)
{
	fanin_seal(ctx, FANIN_TAG_DOWN, mbuf);
	rte_mbuf_refcnt_set(mbuf, (uint16_t)__builtin_popcountll(children));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, children, mbuf->data_len - FANIN_PAYLOAD_OFFSET);
}

static void
send_to_all(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf)
{
	(void)make_frame(ctx, FANIN_TYPE_RESULT, block, ctx->job->n_ranks, mbuf);
	send_down(ctx, mbuf, ctx->job->children);
	ctx->stats->results++;
}

void
push_send_up(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum)
{
	const unsigned int n = (unsigned int)__builtin_popcountll(sum.members);

	make_frame(ctx, FANIN_TYPE_PARTIAL, block, n, sum.mbuf)->members = sum.members;
	fanin_seal(ctx, FANIN_TAG_UP, sum.mbuf);
	fanin_emit(ctx, FANIN_EMIT_PARENT, sum.mbuf, 0, 0);
	ctx->stats->upward++;
}

/* The child that a rank is behind, as a bit; 0: none. */
static uint64_t
child_with(const struct fanin_job_params *job, uint64_t rank)
{
	for (uint16_t child = 0; child < job->n_children; child++) {
		if (fanin_ranks_has(&job->child_ranks[child], rank))
			return UINT64_C(1) << child;
	}
	return 0;
}

static void
send_to_home(struct fanin_handler_ctx *ctx, uint32_t block, uint16_t home, uint64_t child,
	     struct push_sum sum)
{
	const unsigned int n = (unsigned int)__builtin_popcountll(sum.members);
	struct fanin_hdr *hdr = make_frame(ctx, FANIN_TYPE_EVICTED, block, n, sum.mbuf);

	hdr->members = sum.members;
	hdr->number = home;
	send_down(ctx, sum.mbuf, child);
	ctx->stats->own[PUSH_HOMED]++;
}

void
push_send_home(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum)
{
	const uint16_t home = fanin_push_home(block, ctx->job->n_ranks);

	/* All ranks are behind the root. */
	send_to_home(ctx, block, home, child_with(ctx->job, home), sum);
}

void
push_send_result(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	if (hdr->op == FANIN_WIRE_AVG && !fanin_wire_is_empty(hdr))
		fanin_kernel_finish(job->isa, hdr->dtype, hdr->op)(hdr + 1, job->n_ranks, hdr->count);
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
	const uint64_t child = child_with(ctx->job, hdr->number);
	const struct push_sum sum = { .mbuf = packet->mbuf, .members = hdr->members };

	/* Another switch's, which shares the parent's port. */
	if (child == 0)
		return FANIN_VERDICT_FREE;
	send_to_home(ctx, hdr->block, (uint16_t)hdr->number, child, sum);
	return FANIN_VERDICT_HELD;
}

/* ------------------------------------------------------------------ answers */

/* Adds what is known here of ranks that have not come, and has their children probed. */
static void
tell_presence(struct fanin_handler_ctx *ctx, struct fanin_answer_ranks *ranks)
{
	const struct fanin_job_params *job = ctx->job;
	const uint64_t missing = ranks->missing.words[0];

	if (ctx->ended != NULL)
		ranks->ended.words[0] |= missing &
					 __atomic_load_n(&ctx->ended->words[0], __ATOMIC_RELAXED);
	if (ctx->silent != NULL)
		ranks->silent.words[0] |= missing &
					  __atomic_load_n(&ctx->silent->words[0], __ATOMIC_RELAXED);
	for (unsigned int child = 0; child < job->n_children; child++) {
		if ((push_child_ranks(job, child) & missing) != 0)
			ctx->missing |= UINT64_C(1) << child;
	}
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
	tell_presence(ctx, &ranks);
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

enum fanin_verdict
push_pass_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;
	const uint32_t len = fanin_answer_len(job->n_ranks);
	struct fanin_headers *headers = packet->headers;
	const struct fanin_hdr answered = headers->fanin;
	uint8_t *sets = (uint8_t *)packet->payload + sizeof(struct fanin_answer_body);
	struct fanin_answer_ranks ranks;
	struct fanin_answer_body body;
	uint64_t way = answered.members;
	unsigned int child;

	/*
	 * One of another job's size, which is none of the parent's; or for another switch at the same port of the parent, since answers that are
	 * passed on go to the group's address.
	 */
	if (packet->payload_len < len || answered.rank != job->parent_rank ||
	    !fanin_way_pop(&way, &child) || (job->children >> child & 1) == 0)
		return FANIN_VERDICT_FREE;
	memcpy(&body, packet->payload, sizeof(body));
	body.level++;
	memcpy(packet->payload, &body, sizeof(body));
	fanin_answer_read_ranks(sets, job->n_ranks, &ranks);
	tell_presence(ctx, &ranks);
	fanin_answer_write_ranks(sets, job->n_ranks, &ranks);
	*headers = job->result_headers;
	fanin_wire_set_payload_len(headers, len);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_ANSWER, job->id, ctx->epoch,
				 job->keys.down);
	headers->fanin.rank = (uint16_t)fanin_ranks_lowest(&job->child_ranks[child]);
	headers->fanin.block = answered.block;
	headers->fanin.count = answered.count;
	headers->fanin.number = answered.number;
	headers->fanin.members = way;
	set_length(packet->mbuf, len);
	send_down(ctx, packet->mbuf, UINT64_C(1) << child);
	return FANIN_VERDICT_HELD;
}
