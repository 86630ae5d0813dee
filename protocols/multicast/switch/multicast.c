/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast along a job's tree: a packet of any member goes to all others (pass.h). Several trees
 * of a job are several groups; the sender chooses a group by the tree that it sends into.
 */
#include "handlers/pass.h"

static enum fanin_verdict
multicast_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)slot;
	(void)index;
	return fanin_pass_multicast(ctx, packet, reason);
}

/* Nothing is reduced here. */
static enum fanin_verdict
multicast_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		       struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)ctx;
	(void)slot;
	(void)index;
	(void)packet;
	return fanin_drop(reason, FANIN_REASON_TYPE);
}

static const struct fanin_counter multicast_counters[] = { FANIN_PASS_COUNTERS, { 0 } };

static const uint8_t multicast_types[] = { FANIN_TYPE_MULTICAST, FANIN_TYPE_DELIVERY, 0 };

static struct fanin_handler multicast = {
	.name = "multicast",
	.description = "packets of each member to all others",
	.shape = FANIN_SHAPE_MULTICAST,
	.makes_packets = true,
	.slots_of = FANIN_SLOTS_NONE,
	.counters = multicast_counters,
	.contribution = multicast_contribution,
	.types = multicast_types,
	.other = multicast_other,
};

FANIN_HANDLER_REGISTER(multicast)
