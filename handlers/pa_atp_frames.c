/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP: the frames that a switch makes of those that come, upwards for its parent and downwards for its children. Every switch of a job's tree passes
 * packets on in this way; which of them it acts on itself is in pa_atp.c.
 */
#include <string.h>

#include "handlers/pa_atp.h"

/* The mbuf is a frame with so much payload, and nobody has looked at it yet. */
static void
set_length(struct rte_mbuf *mbuf, uint32_t payload_len)
{
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

void
pa_atp_make_upward(const struct fanin_handler_ctx *ctx, const struct pa_atp_upward *upward,
		   struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_job_params *job = ctx->job;
	const uint32_t payload_len = fanin_wire_payload_len(headers);
	const uint64_t shape = fanin_wire_shape(&headers->fanin);
	const uint32_t block = headers->fanin.block;
	const uint8_t tos = headers->ip.tos;

	*headers = job->parent_headers;
	headers->ip.tos = tos;
	fanin_wire_set_payload_len(headers, payload_len);
	fanin_wire_encode_header(&headers->fanin, upward->type, job->id, ctx->parent_epoch,
				 job->keys.up);
	headers->udp.src_be = fanin_wire_source_port_be(block);
	headers->fanin.flags = upward->flags;
	headers->fanin.rank = job->parent_rank;
	headers->fanin.contributions = upward->contributions;
	headers->fanin.block = block;
	headers->fanin.progress = upward->progress;
	headers->fanin.members = upward->members;
	fanin_wire_set_shape(&headers->fanin, shape);
	set_length(mbuf, payload_len);
}

enum fanin_verdict
pa_atp_pass_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	       enum fanin_type type, uint64_t members)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct pa_atp_upward upward = {
		.type = type,
		.flags = hdr->flags,
		.contributions = type == FANIN_TYPE_KNOWN ? ctx->job->n_ranks
							  : (uint16_t)__builtin_popcountll(members),
		.progress = hdr->progress,
		.members = members,
	};

	pa_atp_make_upward(ctx, &upward, packet->mbuf);
	fanin_emit(ctx, FANIN_EMIT_PARENT, packet->mbuf, 0, 0);
	ctx->stats->upward++;
	return FANIN_VERDICT_HELD;
}

void
pa_atp_send_gack(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		 unsigned int rank, bool turn)
{
	const struct pa_atp_state *state = ctx->state;
	const uint32_t block = packet->headers->fanin.block;
	const uint16_t sender = packet->headers->fanin.rank;
	const bool ce = pa_atp_has_ce(packet->headers);
	struct rte_mbuf *mbuf = turn ? packet->mbuf : fanin_take(ctx);
	struct fanin_headers *headers;

	if (mbuf == NULL) {
		ctx->stats->own[PA_ATP_NO_PACKET]++;
		return;
	}
	headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	if (!turn) {
		/* A reply goes to the addresses, and through the port, that the packet came from. */
		*headers = *packet->headers;
		mbuf->port = packet->mbuf->port;
		set_length(mbuf, 0);
	}
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_GACK, ctx->job->id, ctx->epoch,
				 ctx->job->keys.down);
	headers->fanin.flags = ce ? FANIN_FLAG_CE : 0;
	headers->fanin.rank = sender;
	headers->fanin.block = block;
	headers->fanin.count = (uint16_t)rank;
	headers->fanin.members = __atomic_load_n(&state->sum, __ATOMIC_RELAXED);
	fanin_emit(ctx, FANIN_EMIT_REPLY, mbuf, UINT64_C(1) << packet->child, 0);
	ctx->stats->own[PA_ATP_GACKS]++;
}

/*
 * Makes the packet a frame of another type to these children, of which there is one at least, and emits it: what its header says stays, but for what
 * is told here. rank: of the header.
 */
static enum fanin_verdict
send_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, uint64_t children,
	  uint16_t rank, uint64_t members)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_headers *headers = packet->headers;
	const struct fanin_hdr said = headers->fanin;

	*headers = job->result_headers;
	fanin_wire_set_payload_len(headers, packet->payload_len);
	fanin_wire_encode_header(&headers->fanin, said.type, job->id, ctx->epoch, job->keys.down);
	headers->fanin.flags = said.flags;
	headers->fanin.rank = rank;
	headers->fanin.contributions = said.contributions;
	headers->fanin.block = said.block;
	headers->fanin.members = members;
	headers->fanin.number = said.number;
	/* Of packets without elements this is `count` alone. */
	fanin_wire_set_shape(&headers->fanin, fanin_wire_shape(&said));
	set_length(packet->mbuf, packet->payload_len);
	rte_mbuf_refcnt_set(packet->mbuf, (uint16_t)__builtin_popcountll(children));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, packet->mbuf, children, packet->payload_len);
	return FANIN_VERDICT_HELD;
}

static uint16_t
rank_of_child(const struct fanin_job_params *job, unsigned int child)
{
	return (uint16_t)__builtin_ctzll(pa_atp_child_ranks(job, child));
}

/*
 * The child that asked for what the parent answers. Returns false if the packet is not for this switch: another rank is that of a switch at the same port
 * of the parent, since answers that are passed on go to the group's address.
 */
static bool
pop_way(const struct fanin_job_params *job, const struct fanin_hdr *hdr, uint64_t *way,
	unsigned int *child)
{
	*way = hdr->members;
	return (job->parent_is_server || hdr->rank == job->parent_rank) &&
	       fanin_way_pop(way, child) && (job->children >> *child & 1) != 0;
}

enum fanin_verdict
pa_atp_result_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, bool aecn)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;

	hdr->flags |= aecn ? FANIN_FLAG_AECN : 0;
	hdr->contributions = ctx->job->n_ranks;
	return send_down(ctx, packet, ctx->job->children, 0, 0);
}

enum fanin_verdict
pa_atp_repeat_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, bool aecn)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;
	unsigned int child;
	uint64_t way;

	if (!pop_way(ctx->job, hdr, &way, &child))
		return FANIN_VERDICT_FREE;
	hdr->flags |= aecn ? FANIN_FLAG_AECN : 0;
	hdr->contributions = ctx->job->n_ranks;
	ctx->stats->own[PA_ATP_REPEATS]++;
	return send_down(ctx, packet, UINT64_C(1) << child, rank_of_child(ctx->job, child), way);
}

enum fanin_verdict
pa_atp_gack_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	for (unsigned int child = 0; child < job->n_children && hdr->count < job->n_ranks; child++) {
		if ((pa_atp_child_ranks(job, child) >> hdr->count & 1) == 0)
			continue;
		ctx->stats->own[PA_ATP_GACKS]++;
		return send_down(ctx, packet, UINT64_C(1) << child, rank_of_child(job, child),
				 hdr->members);
	}
	return FANIN_VERDICT_FREE;
}

enum fanin_verdict
pa_atp_ask_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	uint64_t children = 0, ranks = 0;

	for (unsigned int child = 0; child < job->n_children; child++) {
		const uint64_t asked = hdr->members & pa_atp_child_ranks(job, child);

		ranks |= asked;
		children |= asked == 0 ? 0 : UINT64_C(1) << child;
	}
	if (children == 0)
		return FANIN_VERDICT_FREE;
	ctx->stats->own[PA_ATP_ASKS]++;
	return send_down(ctx, packet, children, 0, ranks);
}

/* Adds what is known here of the ranks that are missing, and has their children probed. */
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
		if ((pa_atp_child_ranks(job, child) & missing) != 0)
			ctx->missing |= UINT64_C(1) << child;
	}
}

enum fanin_verdict
pa_atp_answer_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;
	uint8_t *sets = (uint8_t *)packet->payload + sizeof(struct fanin_answer_body);
	struct fanin_answer_ranks ranks;
	struct fanin_answer_body body;
	struct fanin_packet answer = *packet;
	unsigned int child;
	uint64_t way;

	/* One of another job's size, which is none of the parent's. */
	if (packet->payload_len < fanin_answer_len(job->n_ranks) ||
	    !pop_way(job, &packet->headers->fanin, &way, &child))
		return FANIN_VERDICT_FREE;
	memcpy(&body, packet->payload, sizeof(body));
	memset(body.states, 0, sizeof(body.states));
	body.n_blocks = 0;
	body.level++;
	memcpy(packet->payload, &body, sizeof(body));
	fanin_answer_read_ranks(sets, job->n_ranks, &ranks);
	tell_presence(ctx, &ranks);
	fanin_answer_write_ranks(sets, job->n_ranks, &ranks);
	answer.payload_len = fanin_answer_len(job->n_ranks);
	return send_down(ctx, &answer, UINT64_C(1) << child, rank_of_child(job, child), way);
}
