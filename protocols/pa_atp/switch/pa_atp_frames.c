/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frames that PA-ATP's switches make: upwards for the parent, and downwards for the children.
 * All switches of a job's tree forward packets in this way; pa_atp.c decides which packets a switch
 * acts on itself.
 */
#include "protocols/pa_atp/switch/pa_atp.h"

void
pa_atp_make_upward(const struct fanin_handler_ctx *ctx, const struct pa_atp_upward *upward,
		   struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint32_t payload_len = fanin_wire_payload_len(headers);
	const struct fanin_hdr said = headers->fanin;
	const uint8_t tos = headers->ip.tos;
	struct fanin_hdr *hdr = fanin_frame_make(ctx, upward->type, said.block, payload_len, mbuf);

	fanin_frame_mark(mbuf, tos);
	hdr->flags = upward->flags;
	hdr->contributions = upward->contributions;
	hdr->progress = upward->progress;
	hdr->members = upward->members;
	fanin_wire_set_shape(hdr, fanin_wire_shape(&said));
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
		/*
		 * A reply goes to the addresses, and through the port, that the packet came from.
		 */
		*headers = *packet->headers;
		mbuf->port = packet->mbuf->port;
		fanin_frame_set_length(mbuf, 0);
	}
	fanin_frame_answer_to(headers);
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
 * Turns the packet into a frame of another type to these children, at least one, and emits it. The
 * header keeps what the arguments don't replace. rank: of the header.
 */
static enum fanin_verdict
send_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, uint64_t children,
	  uint16_t rank, uint64_t members)
{
	const struct fanin_hdr said = packet->headers->fanin;
	struct fanin_hdr *hdr = fanin_frame_make(ctx, (enum fanin_type)said.type, said.block,
						 packet->payload_len, packet->mbuf);

	hdr->flags = said.flags;
	hdr->rank = rank;
	hdr->contributions = said.contributions;
	hdr->members = members;
	hdr->number = said.number;
	/* In packets without elements this is only `count`. */
	fanin_wire_set_shape(hdr, fanin_wire_shape(&said));
	fanin_frame_send_down(ctx, packet->mbuf, children);
	return FANIN_VERDICT_HELD;
}

static uint16_t
rank_of_child(const struct fanin_job_params *job, unsigned int child)
{
	return (uint16_t)__builtin_ctzll(fanin_child_ranks(job, child));
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

	if (!fanin_answer_asker(ctx->job, hdr, &way, &child))
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
	const uint64_t child = fanin_child_with(job, hdr->count);

	if (child == 0)
		return FANIN_VERDICT_FREE;
	ctx->stats->own[PA_ATP_GACKS]++;
	return send_down(ctx, packet, child,
			 rank_of_child(job, (unsigned int)__builtin_ctzll(child)), hdr->members);
}

enum fanin_verdict
pa_atp_ask_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint64_t ranks = hdr->members & fanin_ranks_below(job);
	const uint64_t children = fanin_children_with(job, ranks);

	if (children == 0)
		return FANIN_VERDICT_FREE;
	ctx->stats->own[PA_ATP_ASKS]++;
	return send_down(ctx, packet, children, 0, ranks);
}
