/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets from members to other members along a job's tree: see pass.h. A switch sends a packet
 * from a child to all its other children and to its parent, and a packet from the parent to all
 * children. So each link carries the packet once, and each member gets it once, as long as links
 * neither lose nor duplicate packets. Switches keep and repeat nothing; hosts do (Khalilov et al.
 * section III).
 */
#include "handlers/pass.h"

#include <string.h>

/*
 * Makes a frame for this switch's children, or for its parent, from a received one. All headers are
 * new, except for the ECN marks and the sender's fields.
 */
static void
make_frame(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	   enum fanin_type type, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr said = packet->headers->fanin;
	const uint8_t tos = packet->headers->ip.tos;
	struct fanin_hdr *hdr = fanin_frame_make(ctx, type, said.block, packet->payload_len, mbuf);

	fanin_frame_mark(mbuf, tos);
	if (fanin_type_direction((uint8_t)type) == FANIN_UP)
		hdr->contributions = ctx->job->n_below;
	hdr->count = said.count;
	hdr->progress = said.progress;
	hdr->members = said.members;
	hdr->number = said.number;
}

static void
send_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, enum fanin_type type)
{
	struct rte_mbuf *copy = fanin_take(ctx);

	if (copy == NULL) {
		ctx->stats->own[FANIN_PASS_NO_PACKET]++;
		return;
	}
	memcpy(rte_pktmbuf_mtod_offset(copy, void *, FANIN_PAYLOAD_OFFSET), packet->payload,
	       packet->payload_len);
	make_frame(ctx, packet, type, copy);
	fanin_frame_send_up(ctx, copy);
	ctx->stats->own[FANIN_PASS_UP]++;
}

enum fanin_verdict
fanin_pass_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		enum fanin_type type, uint64_t children)
{
	if (children == 0)
		return FANIN_VERDICT_FREE;
	make_frame(ctx, packet, type, packet->mbuf);
	fanin_frame_send_down(ctx, packet->mbuf, children);
	ctx->stats->own[FANIN_PASS_DOWN]++;
	return FANIN_VERDICT_HELD;
}

/* Returns true if the origin that the packet names is a rank behind the child that sent it. */
static bool
names_its_origin(const struct fanin_job_params *job, const struct fanin_packet *packet,
		 uint64_t origin)
{
	return fanin_ranks_has(&job->child_ranks[packet->child], origin);
}

/* As fanin_pass_problem, for a packet from the rank `origin`. */
static enum fanin_reason
problem_of(const struct fanin_job_params *job, const struct fanin_packet *packet, uint64_t origin)
{
	if (packet->payload_len > job->payload_bytes)
		return FANIN_REASON_PAYLOAD;
	if (fanin_type_direction(packet->headers->fanin.type) == FANIN_UP &&
	    !names_its_origin(job, packet, origin))
		return FANIN_REASON_RANK;
	return FANIN_REASON_NONE;
}

enum fanin_reason
fanin_pass_problem(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	return problem_of(job, packet, packet->headers->fanin.members);
}

/* Sends a packet without a problem to all ranks except those behind the link that it came from. */
static enum fanin_verdict
to_others(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	  const struct fanin_pass *pass)
{
	const struct fanin_job_params *job = ctx->job;

	/*
	 * The origin is below this switch: this copy is for another switch behind the same port of
	 * the parent.
	 */
	if (fanin_type_direction(packet->headers->fanin.type) == FANIN_DOWN)
		return fanin_child_with(job, pass->origin) != 0
			       ? FANIN_VERDICT_FREE
			       : fanin_pass_down(ctx, packet, pass->down, job->children);
	if (job->has_parent)
		send_up(ctx, packet, pass->up);
	return fanin_pass_down(ctx, packet, pass->down,
			       job->children & ~(UINT64_C(1) << packet->child));
}

enum fanin_verdict
fanin_pass_to_others(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		     enum fanin_type up, enum fanin_type down)
{
	const struct fanin_pass pass = {
		.origin = packet->headers->fanin.members,
		.up = up,
		.down = down,
	};

	return to_others(ctx, packet, &pass);
}

enum fanin_verdict
fanin_pass_to_all(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		  const struct fanin_pass *pass, enum fanin_reason *reason)
{
	*reason = problem_of(ctx->job, packet, pass->origin);
	if (*reason != FANIN_REASON_NONE)
		return FANIN_VERDICT_DROP;
	return to_others(ctx, packet, pass);
}

enum fanin_verdict
fanin_pass_multicast(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		     enum fanin_reason *reason)
{
	const struct fanin_pass pass = {
		.origin = packet->headers->fanin.members,
		.up = FANIN_TYPE_MULTICAST,
		.down = FANIN_TYPE_DELIVERY,
	};

	return fanin_pass_to_all(ctx, packet, &pass, reason);
}

/* Sends the packet itself to the parent. */
static enum fanin_verdict
pass_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, enum fanin_type type)
{
	make_frame(ctx, packet, type, packet->mbuf);
	fanin_frame_send_up(ctx, packet->mbuf);
	ctx->stats->own[FANIN_PASS_UP]++;
	return FANIN_VERDICT_HELD;
}

enum fanin_verdict
fanin_pass_to_rank(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		   const struct fanin_pass *pass, uint32_t rank, enum fanin_reason *reason)
{
	const struct fanin_job_params *job = ctx->job;
	const bool is_down = fanin_type_direction(packet->headers->fanin.type) == FANIN_DOWN;
	uint64_t child;

	*reason = problem_of(job, packet, pass->origin);
	if (*reason == FANIN_REASON_NONE && rank >= job->n_ranks)
		*reason = FANIN_REASON_RANK;
	if (*reason != FANIN_REASON_NONE)
		return FANIN_VERDICT_DROP;
	child = fanin_child_with(job, rank);
	/* This packet is for another switch behind the same port of the parent. */
	if (child == 0 && (is_down || !job->has_parent))
		return FANIN_VERDICT_FREE;
	return child != 0 ? fanin_pass_down(ctx, packet, pass->down, child)
			  : pass_up(ctx, packet, pass->up);
}

enum fanin_verdict
fanin_pass_unicast(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		   enum fanin_reason *reason)
{
	const struct fanin_pass pass = {
		.origin = packet->headers->fanin.members,
		.up = FANIN_TYPE_UNICAST,
		.down = FANIN_TYPE_UNICAST_DELIVERY,
	};

	return fanin_pass_to_rank(ctx, packet, &pass, packet->headers->fanin.count, reason);
}
