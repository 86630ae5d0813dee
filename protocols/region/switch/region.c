/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A multicast region (Klenk et al. section IV.A; protocols/region/README.md): the switch sends
 * bytes that a member writes to an address of the region to all other members, along the job's
 * tree. The job is the region's entry in this switch: its parameters are the address range, its
 * children the targets. The dense reduction of `single` serves the hosts' fences.
 */
#include "protocols/dense/switch/members.h"
#include "protocols/region/region.h"

enum {
	REGION_WRITTEN = FANIN_PASS_END,
	REGION_REWRITTEN,
	REGION_OUT_OF_RANGE,
};

static const struct fanin_counter region_counters[] = {
	FANIN_PASS_COUNTERS,
	[REGION_WRITTEN] = { "writes", "packets that a member behind this switch has written" },
	[REGION_REWRITTEN] = { "rewrites",
			       "packets that a member behind this switch has sent once more" },
	[REGION_OUT_OF_RANGE] = { "out_of_range",
				  "packets dropped because their bytes do not lie in the region" },
	{ 0 },
};

static const struct fanin_parameter region_parameters[] = {
	[FANIN_REGION_BASE] = { "base", "first address of the region", 0, INT64_MAX, 0 },
	[FANIN_REGION_BYTES] = { "bytes", "bytes of the region; 0: nothing can be written", 0,
				 INT64_MAX, 0 },
	{ 0 },
};

/* True if all bytes of the packet belong to the region. */
static bool
is_in_region(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	     enum fanin_reason *reason)
{
	const uint64_t *parameters = ctx->job->parameters;

	if (fanin_region_holds(parameters[FANIN_REGION_BASE], parameters[FANIN_REGION_BYTES],
			       fanin_region_address(&packet->headers->fanin), packet->payload_len))
		return true;
	ctx->stats->own[REGION_OUT_OF_RANGE]++;
	*reason = FANIN_REASON_REGION;
	return false;
}

static enum fanin_verdict
region_write(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	     enum fanin_reason *reason)
{
	const struct fanin_pass pass = {
		.origin = fanin_region_origin(&packet->headers->fanin),
		.up = FANIN_TYPE_WRITE,
		.down = FANIN_TYPE_WRITE_DELIVERY,
	};
	const bool is_up = packet->headers->fanin.type == FANIN_TYPE_WRITE;
	enum fanin_verdict verdict;

	if (!is_in_region(ctx, packet, reason))
		return FANIN_VERDICT_DROP;
	verdict = fanin_pass_to_all(ctx, packet, &pass, reason);
	if (is_up && verdict != FANIN_VERDICT_DROP)
		ctx->stats->own[REGION_WRITTEN]++;
	return verdict;
}

static enum fanin_verdict
region_rewrite(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
	       enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_pass pass = {
		.origin = fanin_region_origin(hdr),
		.up = FANIN_TYPE_REWRITE,
		.down = FANIN_TYPE_REWRITE_DELIVERY,
	};
	const bool is_up = hdr->type == FANIN_TYPE_REWRITE;
	enum fanin_verdict verdict;

	if (!is_in_region(ctx, packet, reason))
		return FANIN_VERDICT_DROP;
	verdict = fanin_pass_to_rank(ctx, packet, &pass, hdr->number, reason);
	if (is_up && verdict != FANIN_VERDICT_DROP)
		ctx->stats->own[REGION_REWRITTEN]++;
	return verdict;
}

static enum fanin_verdict
region_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
	     enum fanin_reason *reason)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_WRITE:
	case FANIN_TYPE_WRITE_DELIVERY:
		return region_write(ctx, packet, reason);
	case FANIN_TYPE_REWRITE:
	case FANIN_TYPE_REWRITE_DELIVERY:
		return region_rewrite(ctx, packet, reason);
	default:
		return fanin_members_other(ctx, slot, index, packet, reason);
	}
}

static const uint8_t region_types[] = {
	FANIN_TYPE_RESULT,
	FANIN_TYPE_KNOWN,
	FANIN_TYPE_QUERY,
	FANIN_TYPE_ANSWER,
	FANIN_TYPE_UNICAST,
	FANIN_TYPE_UNICAST_DELIVERY,
	FANIN_TYPE_WRITE,
	FANIN_TYPE_WRITE_DELIVERY,
	FANIN_TYPE_REWRITE,
	FANIN_TYPE_REWRITE_DELIVERY,
	0,
};

static struct fanin_handler region = {
	.name = "region",
	.description = "a multicast region: what a member writes goes to all others",
	.makes_packets = true,
	.slot_mbufs = { .fixed = 1 },
	.counters = region_counters,
	.parameters = region_parameters,
	.slot_bytes = sizeof(struct single_slot),
	.contribution = fanin_single_contribution,
	.types = region_types,
	.other = region_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_single_slot_release,
};

FANIN_HANDLER_REGISTER(region)
