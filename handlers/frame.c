/* SPDX-License-Identifier: BSD-3-Clause */
/* See frame.h. */
#include "handlers/frame.h"

#include <string.h>

struct fanin_hdr *
fanin_frame_make(const struct fanin_handler_ctx *ctx, enum fanin_type type, uint32_t block,
		 uint32_t payload_len, struct rte_mbuf *mbuf)
{
	return fanin_frame_make_to(ctx, fanin_type_direction((uint8_t)type) == FANIN_DOWN, type,
				   block, payload_len, mbuf);
}

void
fanin_frame_mark(struct rte_mbuf *mbuf, uint8_t tos)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	if (headers->ip.tos == tos)
		return;
	headers->ip.tos = tos;
	fanin_wire_set_payload_len(headers, mbuf->data_len - FANIN_PAYLOAD_OFFSET);
}

void
fanin_frame_send_down(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t children)
{
	fanin_seal(ctx, FANIN_TAG_DOWN, mbuf);
	rte_mbuf_refcnt_set(mbuf, (uint16_t)__builtin_popcountll(children));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, children, mbuf->data_len - FANIN_PAYLOAD_OFFSET);
}

void
fanin_frame_send_up(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf)
{
	fanin_seal(ctx, FANIN_TAG_UP, mbuf);
	fanin_emit(ctx, FANIN_EMIT_PARENT, mbuf, 0, 0);
}

uint64_t
fanin_child_with(const struct fanin_job_params *job, uint64_t rank)
{
	for (uint16_t child = 0; child < job->n_children; child++) {
		if (fanin_ranks_has(&job->child_ranks[child], rank))
			return UINT64_C(1) << child;
	}
	return 0;
}

uint64_t
fanin_ranks_below(const struct fanin_job_params *job)
{
	uint64_t ranks = 0;

	for (uint16_t child = 0; child < job->n_children; child++)
		ranks |= fanin_child_ranks(job, child);
	return ranks;
}

uint64_t
fanin_children_with(const struct fanin_job_params *job, uint64_t ranks)
{
	uint64_t children = 0;

	for (unsigned int child = 0; child < job->n_children; child++) {
		if ((fanin_child_ranks(job, child) & ranks) != 0)
			children |= UINT64_C(1) << child;
	}
	return children;
}

void
fanin_answer_tell_presence(struct fanin_handler_ctx *ctx, struct fanin_answer_ranks *ranks)
{
	const uint64_t missing = ranks->missing.words[0];

	if (ctx->ended != NULL)
		ranks->ended.words[0] |= missing &
					 __atomic_load_n(&ctx->ended->words[0], __ATOMIC_RELAXED);
	if (ctx->silent != NULL)
		ranks->silent.words[0] |= missing &
					  __atomic_load_n(&ctx->silent->words[0], __ATOMIC_RELAXED);
	ctx->missing |= fanin_children_with(ctx->job, missing);
}

bool
fanin_answer_asker(const struct fanin_job_params *job, const struct fanin_hdr *hdr, uint64_t *way,
		   unsigned int *child)
{
	*way = hdr->members;
	return (job->parent_is_server || hdr->rank == job->parent_rank) &&
	       fanin_way_pop(way, child) && (job->children >> *child & 1) != 0;
}

enum fanin_verdict
fanin_answer_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, uint64_t way,
		  unsigned int child)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr said = packet->headers->fanin;
	struct fanin_answer_body body;
	struct fanin_hdr *hdr;

	memcpy(&body, packet->payload, sizeof(body));
	memset(body.states, 0, sizeof(body.states));
	body.n_blocks = 0;
	body.level++;
	memcpy(packet->payload, &body, sizeof(body));
	hdr = fanin_frame_make(ctx, FANIN_TYPE_ANSWER, said.block, fanin_answer_len(job->n_ranks),
			       packet->mbuf);
	hdr->rank = (uint16_t)fanin_ranks_lowest(&job->child_ranks[child]);
	hdr->count = said.count;
	hdr->number = said.number;
	hdr->members = way;
	fanin_frame_send_down(ctx, packet->mbuf, UINT64_C(1) << child);
	return FANIN_VERDICT_HELD;
}

enum fanin_verdict
fanin_answer_pass(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const uint16_t n_ranks = ctx->job->n_ranks;
	uint8_t *sets = (uint8_t *)packet->payload + sizeof(struct fanin_answer_body);
	struct fanin_answer_ranks ranks;
	unsigned int child;
	uint64_t way;

	/* The payload is too short for a job of this size, so the packet is not from the parent. */
	if (packet->payload_len < fanin_answer_len(n_ranks) ||
	    !fanin_answer_asker(ctx->job, &packet->headers->fanin, &way, &child))
		return FANIN_VERDICT_FREE;
	fanin_answer_read_ranks(sets, n_ranks, &ranks);
	fanin_answer_tell_presence(ctx, &ranks);
	fanin_answer_write_ranks(sets, n_ranks, &ranks);
	return fanin_answer_down(ctx, packet, way, child);
}
