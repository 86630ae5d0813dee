/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions (Klenk et al., section IV.B): a rank asks all others for their data of a packet
 * that it owns, and switches combine the answers on their way back to the owner. All other packets
 * are handled as by the handler `broadcast`. protocols/pull/README.md explains why this is exact
 * and how losses are handled.
 */
#include "protocols/pull/switch/pull.h"

#include "protocols/dense/switch/members.h"
#include "handlers/sums.h"

static bool
is_down(const struct fanin_packet *packet)
{
	return fanin_type_direction(packet->headers->fanin.type) == FANIN_DOWN;
}

/* Returns the ranks whose answers to a PULL pass this switch on their way to the owner. */
static uint64_t
expected_of(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	return is_down(packet) ? fanin_ranks_below(job)
			       : fanin_ranks_all_word(job->n_ranks, 0) &
					 ~job->child_ranks[packet->child].words[0];
}

/* Sends the PULL back to its host, which sends it again later. */
static enum fanin_verdict
send_busy(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	packet->headers->fanin.count = FANIN_PULL_BUSY;
	ctx->stats->own[PULL_BUSY]++;
	return fanin_pass_down(ctx, packet, FANIN_TYPE_PULL_DELIVERY, UINT64_C(1) << packet->child);
}

static enum fanin_verdict
take_pull(struct fanin_handler_ctx *ctx, struct pull_slot *slot, uint32_t index,
	  const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint64_t expected = expected_of(job, packet);
	const bool is_first = !is_down(packet) && (hdr->number & FANIN_PULL_HOPS) == 0;
	enum pull_made made = PULL_MADE;

	*reason = fanin_pass_problem(job, packet);
	if (*reason == FANIN_REASON_NONE &&
	    hdr->members != fanin_pull_owner(hdr->block, job->n_ranks))
		*reason = FANIN_REASON_RANK;
	if (*reason != FANIN_REASON_NONE)
		return FANIN_VERDICT_DROP;
	/* This PULL is for another switch behind the same port of the parent. */
	if (is_down(packet) && (fanin_child_with(job, hdr->members) != 0 || hdr->count != 0))
		return FANIN_VERDICT_FREE;
	/* The data of a single rank needs no combining. */
	if ((expected & (expected - 1)) != 0)
		made = pull_entry_make(ctx, slot, index, hdr, expected);
	if (made == PULL_RETRY)
		return FANIN_VERDICT_RETRY;
	ctx->stats->own[PULL_PULLS]++;
	if (made == PULL_FULL && is_first)
		return send_busy(ctx, packet);
	hdr->number++;
	return fanin_pass_to_others(ctx, packet, FANIN_TYPE_PULL, FANIN_TYPE_PULL_DELIVERY);
}

static enum fanin_verdict
take_response(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
	      const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint16_t owner = fanin_pull_owner(hdr->block, job->n_ranks);
	uint64_t may_have;
	fanin_kernel_fn add;

	/* This RESPONSE is for another switch behind the same port of the parent. */
	if (is_down(packet) && fanin_child_with(job, owner) == 0)
		return FANIN_VERDICT_FREE;
	may_have = is_down(packet) ? fanin_ranks_all_word(job->n_ranks, 0) & ~fanin_ranks_below(job)
				   : job->child_ranks[packet->child].words[0];
	if (hdr->members == 0 || (hdr->members & ~(may_have & ~(UINT64_C(1) << owner))) != 0)
		return fanin_drop(reason, FANIN_REASON_RANK);
	if (fanin_wire_is_empty(hdr))
		return fanin_drop(reason, FANIN_REASON_FLAGS);
	add = fanin_sums_kernel(job, packet, reason);
	if (add == NULL)
		return FANIN_VERDICT_DROP;
	return pull_response_take(ctx, slot, packet, add);
}

static enum fanin_verdict
pull_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
	   enum fanin_reason *reason)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_PULL:
	case FANIN_TYPE_PULL_DELIVERY:
		return take_pull(ctx, slot, index, packet, reason);
	case FANIN_TYPE_RESPONSE:
	case FANIN_TYPE_RESPONSE_DELIVERY:
		return take_response(ctx, slot, packet, reason);
	default:
		return fanin_members_other(ctx, slot, index, packet, reason);
	}
}

static uint64_t
pull_timeout_ns(const struct fanin_job_params *job)
{
	return job->parameters[FANIN_PULL_TIMEOUT] * 1000;
}

static bool
pull_expired(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, uint32_t block)
{
	(void)block;
	return pull_entry_expire(ctx, slot, index);
}

static void
pull_slot_release(struct fanin_handler_ctx *ctx, void *slot)
{
	pull_entry_release(ctx, slot);
	fanin_single_slot_release(ctx, slot);
}

static const struct fanin_counter pull_counters[] = {
	FANIN_PASS_COUNTERS,
	[PULL_PULLS] = { "pulls", "requests of owners for all ranks' data of a packet" },
	[PULL_ENTRIES] = { "entries", "those of them that a sum was begun for" },
	[PULL_HITS] = { "hits", "responses that were combined, or begun with" },
	[PULL_BYPASSED] = { "bypassed", "responses passed on unmerged, for there was no sum" },
	[PULL_OVERLAPS] = { "overlaps",
			    "responses passed on unmerged, for some of their data was there already" },
	[PULL_BUSY] = { "busy", "requests sent back, for there was no room for a sum" },
	[PULL_TIMED_OUT] = { "timed_out", "sums sent on, or given up, before all were in" },
	[PULL_COMPLETED] = { "completed", "sums sent on with all ranks in that were expected" },
	{ 0 },
};

static const struct fanin_parameter pull_parameters[] = {
#define PULL_PARAMETER(enumerator, name, least, most, usual, text)                                 \
	[FANIN_PULL_##enumerator] = { #name, text, least, most, usual },
	FANIN_PULL_PARAMETERS(PULL_PARAMETER)
#undef PULL_PARAMETER
		{ 0 },
};

static const uint8_t pull_types[] = { FANIN_MEMBERS_TYPES FANIN_TYPE_PULL, FANIN_TYPE_PULL_DELIVERY,
				      FANIN_TYPE_RESPONSE, FANIN_TYPE_RESPONSE_DELIVERY, 0 };

static struct fanin_handler pull = {
	.name = "pull",
	.description =
		"pull reduction: owners of packets ask all ranks, whose answers are combined",
	.makes_packets = true,
	.ranks_max = FANIN_PULL_RANKS_MAX,
	.slot_mbufs = { .fixed = 2 },
	.counters = pull_counters,
	.parameters = pull_parameters,
	.state_bytes = sizeof(struct pull_state),
	.slot_bytes = sizeof(struct pull_slot),
	.contribution = fanin_single_contribution,
	.types = pull_types,
	.other = pull_other,
	.timeout_ns = pull_timeout_ns,
	.expired = pull_expired,
	.peek = fanin_dense_peek,
	.slot_release = pull_slot_release,
};

FANIN_HANDLER_REGISTER(pull)
