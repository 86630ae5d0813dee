/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP (sections III and IV, based on ATP). The aggregating switch acknowledges each gradient,
 * and combines it if its block has an aggregator. The job's parameter server gets the sums, and all
 * gradients that found no aggregator. The server's result passes the switch on its way back.
 * Switches below the aggregating one only forward packets. protocols/pa_atp/README.md explains what
 * follows from a loss.
 */
#include "protocols/pa_atp/switch/pa_atp.h"

#include "protocols/dense/switch/dense.h"
#include "handlers/sums.h"

/*
 * True unless the block is a window or more ahead of the rank's oldest block without a result; no
 * rank sends such a block.
 */
static bool
is_in_window(const struct fanin_job_params *job, const struct fanin_hdr *hdr)
{
	return fanin_block_before(hdr->block, hdr->progress) ||
	       hdr->block - hdr->progress < job->window;
}

/* A gradient reaches the aggregating switch. */
static enum fanin_verdict
aggregate(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	  const struct pa_atp_gradient *gradient, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &gradient->packet->headers->fanin;
	const bool ce = pa_atp_has_ce(gradient->packet->headers);
	enum fanin_verdict verdict;

	if (!is_in_window(ctx->job, hdr))
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	verdict = pa_atp_enter_run(ctx, reason);
	if (verdict != FANIN_VERDICT_HELD)
		return verdict;
	if (!pa_atp_note_progress(ctx, hdr->progress))
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	pa_atp_note_gradient(ctx, gradient->rank, hdr->block);
	verdict = pa_atp_take_gradient(ctx, slot, gradient, reason);
	fanin_slot_leave(&slot->tag);
	ctx->stats->own[PA_ATP_GRADIENTS]++;
	ctx->stats->own[PA_ATP_CE] += ce;
	return verdict;
}

/* Handles a gradient: a host's CONTRIBUTION or a PARTIAL. */
static enum fanin_verdict
gradient_up(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t index,
	    const struct fanin_packet *packet, uint64_t members, enum fanin_reason *reason)
{
	const uint64_t below = fanin_child_ranks(ctx->job, packet->child);
	const struct pa_atp_gradient gradient = {
		.packet = packet,
		.add = fanin_sums_kernel(ctx->job, packet, reason),
		.members = members,
		.rank = (unsigned int)__builtin_ctzll(members | UINT64_C(1) << 63),
		.index = index,
	};

	if (gradient.add == NULL)
		return FANIN_VERDICT_DROP;
	if (members == 0 || (members & ~below) != 0)
		return fanin_drop(reason, FANIN_REASON_RANK);
	if (ctx->job->parent_is_server)
		return aggregate(ctx, slot, &gradient, reason);
	ctx->stats->contributions++;
	ctx->stats->own[PA_ATP_GRADIENTS]++;
	ctx->stats->own[PA_ATP_CE] += pa_atp_has_ce(packet->headers);
	return pa_atp_pass_up(ctx, packet, FANIN_TYPE_PARTIAL, members);
}

static enum fanin_verdict
pa_atp_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint64_t below = fanin_child_ranks(ctx->job, packet->child);

	/*
	 * Only a host sends a CONTRIBUTION: switches further down turn what they forward into
	 * PARTIALs.
	 */
	if (!ctx->job->has_parent || (below & (below - 1)) != 0)
		return fanin_drop(reason, FANIN_REASON_TYPE);
	return gradient_up(ctx, slot, index, packet, below, reason);
}

/*
 * The server asks for all data of a block, or a host lacks its result. Returns false if another
 * worker is in the way.
 */
static bool
flush_block(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block)
{
	if (!pa_atp_is_run(ctx))
		return true;
	if (!fanin_slot_enter(&slot->tag))
		return false;
	pa_atp_flush_block(ctx, slot, block);
	fanin_slot_leave(&slot->tag);
	return true;
}

static enum fanin_verdict
take_query(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	   const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint32_t block = packet->headers->fanin.block;

	/* Nothing is known here before the run's first gradient; the server checks, too. */
	if (ctx->job->parent_is_server && pa_atp_is_run(ctx) && !pa_atp_may_ask(ctx, block))
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	if (ctx->job->parent_is_server && !flush_block(ctx, slot, block))
		return FANIN_VERDICT_RETRY;
	ctx->stats->queries++;
	return fanin_dense_pass_up(ctx, packet, NULL);
}

/*
 * Handles a passing result, for all ranks or for one, after which its block's slot is empty. aecn:
 * set if hosts are to hold back. Returns false if another worker is in the way.
 */
static bool
finish(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, const struct fanin_hdr *hdr,
       bool *aecn)
{
	if (!pa_atp_is_run(ctx))
		return true;
	if (!fanin_slot_enter(&slot->tag))
		return false;
	/*
	 * Checked before the slot is freed: the last result reported no usage after its own time.
	 */
	*aecn = pa_atp_is_short(ctx);
	if (hdr->type == FANIN_TYPE_RESULT)
		*aecn |= pa_atp_take_pressure(ctx);
	if (slot->phase == PA_ATP_SENT && fanin_slot_holds(&slot->tag, ctx, hdr->block) &&
	    !slot->is_repeated && ctx->now_ns > slot->sent_ns)
		pa_atp_note_round_trip(ctx, ctx->now_ns - slot->sent_ns);
	pa_atp_finish_slot(ctx, slot, hdr->block);
	fanin_slot_leave(&slot->tag);
	return true;
}

static enum fanin_verdict
take_result(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool is_repeat = hdr->type == FANIN_TYPE_REPEAT;
	bool aecn = false;

	if (packet->payload_len > ctx->job->payload_bytes)
		return fanin_drop(reason, FANIN_REASON_PAYLOAD);
	if (ctx->job->parent_is_server) {
		if (!finish(ctx, slot, hdr, &aecn))
			return FANIN_VERDICT_RETRY;
		ctx->stats->own[PA_ATP_AACKS] += !is_repeat;
		ctx->stats->own[PA_ATP_AECN] += aecn;
	}
	return is_repeat ? pa_atp_repeat_down(ctx, packet, aecn)
			 : pa_atp_result_down(ctx, packet, aecn);
}

static enum fanin_verdict
take_flush(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	   const struct fanin_packet *packet)
{
	if (ctx->job->parent_is_server && !flush_block(ctx, slot, packet->headers->fanin.block))
		return FANIN_VERDICT_RETRY;
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
take_known(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	   enum fanin_reason *reason)
{
	enum fanin_verdict verdict;

	if (packet->payload_len > ctx->job->payload_bytes)
		return fanin_drop(reason, FANIN_REASON_PAYLOAD);
	if (ctx->job->parent_is_server) {
		/*
		 * KNOWN counts as a result that passes here, so the state must be that of the run.
		 */
		verdict = pa_atp_enter_run(ctx, reason);
		if (verdict != FANIN_VERDICT_HELD)
			return verdict;
		if (!pa_atp_may_know(ctx, packet->headers->fanin.block))
			return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	}
	ctx->stats->known++;
	return pa_atp_pass_up(ctx, packet, FANIN_TYPE_KNOWN, 0);
}

static enum fanin_verdict
pa_atp_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
	     struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct pa_atp_slot *slot = memory;

	if (!ctx->job->has_parent)
		return fanin_drop(reason, FANIN_REASON_TYPE);
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_PARTIAL:
		return gradient_up(ctx, slot, index, packet, packet->headers->fanin.members,
				   reason);
	case FANIN_TYPE_QUERY:
		return take_query(ctx, slot, packet, reason);
	case FANIN_TYPE_KNOWN:
		return take_known(ctx, packet, reason);
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_REPEAT:
		return take_result(ctx, slot, packet, reason);
	case FANIN_TYPE_FLUSH:
		return take_flush(ctx, slot, packet);
	case FANIN_TYPE_GACK:
		return pa_atp_gack_down(ctx, packet);
	case FANIN_TYPE_ASK:
		return pa_atp_ask_down(ctx, packet);
	default:
		return fanin_answer_pass(ctx, packet);
	}
}

static uint64_t
pa_atp_timeout_ns(const struct fanin_job_params *job)
{
	return job->parameters[FANIN_PA_ATP_EXPIRE] * 1000;
}

static bool
pa_atp_expired(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, uint32_t block)
{
	struct pa_atp_slot *slot = memory;

	if (!fanin_slot_enter(&slot->tag))
		return false;
	pa_atp_expire(ctx, slot, index, block);
	fanin_slot_leave(&slot->tag);
	return true;
}

static void
pa_atp_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	pa_atp_give_up(ctx, memory);
}

static bool
pa_atp_peek(const struct fanin_job_params *job, uint32_t epoch, const void *memory,
	    struct fanin_peek *peek)
{
	struct pa_atp_slot *slot = (void *)(uintptr_t)memory;

	if (!fanin_slot_look(&slot->tag, job, epoch))
		return false;
	*peek = (struct fanin_peek){
		.block = slot->tag.block,
		.sent = slot->phase == PA_ATP_SENT,
		.missing = fanin_children_with(job, ~slot->members),
		.begun_ns = slot->begun_ns,
	};
	fanin_slot_leave(&slot->tag);
	return true;
}

static const struct fanin_counter pa_atp_counters[] = {
	[PA_ATP_GRADIENTS] = { "gradients", "contributions that came, copies too" },
	[PA_ATP_GACKS] = { "gacks",
			   "acknowledgements sent, or passed on, to those that contributed" },
	[PA_ATP_CE] = { "ce", "contributions that came with the mark of congestion" },
	[PA_ATP_OVERFLOWS] = { "overflows",
			       "contributions passed on unmerged, for another block had their slot" },
	[PA_ATP_PASSED] = { "passed",
			    "contributions passed on unmerged, for their block is split or a server asked" },
	[PA_ATP_FLUSHES] = { "flushes", "sums of some ranks sent to the server" },
	[PA_ATP_EXPIRED] = { "expired",
			     "slots given up or flushed because contributions or the result were missing for too long" },
	[PA_ATP_AACKS] = { "aacks", "results of the server passed on to all" },
	[PA_ATP_AECN] = { "aecn", "results that tell hosts to hold back, as slots run short" },
	[PA_ATP_REPEATS] = { "repeats", "results passed on once more, to the child that asked" },
	[PA_ATP_ASKS] = { "asks", "requests of the server for missing contributions, passed on" },
	[PA_ATP_NO_PACKET] = { "no_packet", "acknowledgements not sent for want of a buffer" },
	{ 0 },
};

static const struct fanin_parameter pa_atp_parameters[] = {
#define PA_ATP_PARAMETER(enumerator, name, least, most, usual, text)                               \
	[FANIN_PA_ATP_##enumerator] = { #name, text, least, most, usual },
	FANIN_PA_ATP_PARAMETERS(PA_ATP_PARAMETER)
#undef PA_ATP_PARAMETER
		{ 0 },
};

static const uint8_t pa_atp_types[] = { FANIN_TYPE_PARTIAL, FANIN_TYPE_QUERY,
					FANIN_TYPE_KNOWN,   FANIN_TYPE_RESULT,
					FANIN_TYPE_REPEAT,  FANIN_TYPE_FLUSH,
					FANIN_TYPE_GACK,    FANIN_TYPE_ASK,
					FANIN_TYPE_ANSWER,  0 };

static struct fanin_handler pa_atp = {
	.name = "pa-atp",
	.description = "dense reduction at the hosts' own pace, with a parameter server",
	.shape = FANIN_SHAPE_SERVER,
	.makes_packets = true,
	.slots_of = FANIN_SLOTS_SHARED,
	.slot_mbufs = { .fixed = 1 },
	.counters = pa_atp_counters,
	.parameters = pa_atp_parameters,
	.state_size = pa_atp_state_size,
	.state_release = pa_atp_state_release,
	.rank_progress = pa_atp_rank_progress,
	.slot_bytes = sizeof(struct pa_atp_slot),
	.contribution = pa_atp_contribution,
	.types = pa_atp_types,
	.other = pa_atp_other,
	.timeout_ns = pa_atp_timeout_ns,
	.expired = pa_atp_expired,
	.peek = pa_atp_peek,
	.slot_release = pa_atp_slot_release,
};

FANIN_HANDLER_REGISTER(pa_atp)
