/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense reduction with one buffer per block (Flare section 6.1). The first packet of a block is its
 * buffer: later packets are combined into it, and it leaves as the result without a copy. If
 * several workers share a block, combining is a critical section: a worker that finds it taken
 * retries.
 */
#include "protocols/dense/switch/single.h"

/*
 * For large messages, whose contributions to a block seldom arrive at the same time (Flare section
 * 6.4).
 */
static bool
single_suits(const struct fanin_choice *choice, uint32_t *buffers)
{
	(void)buffers;
	return choice->message_bytes == 0 || (choice->message_bytes > choice->tree_up_to &&
					      choice->message_bytes > choice->multi4_up_to);
}

static void
single_reset(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	single_drop_sum(ctx, (struct single_slot *)dense);
}

void
fanin_single_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct single_slot *slot = memory;

	fanin_dense_release(ctx, &slot->dense);
	single_reset(ctx, &slot->dense);
}

enum fanin_verdict
fanin_single_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
			  struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct single_slot *slot = memory;
	enum fanin_verdict verdict;

	if (!fanin_dense_admit(ctx, &slot->dense, index, packet, true, single_reset, &verdict,
			       reason))
		return verdict;
	return single_combine(ctx, slot, packet);
}

enum fanin_verdict
fanin_single_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_dense_other(ctx, memory, index, packet, single_reset, reason);
}

static struct fanin_handler single = {
	.name = "single",
	.description = "dense reduction, one buffer per block",
	.makes_packets = true,
	.makes_headers_only = true,
	.slot_mbufs = { .fixed = 1 },
	.suits = single_suits,
	.slot_bytes = sizeof(struct single_slot),
	.contribution = fanin_single_contribution,
	.types = fanin_dense_types,
	.other = fanin_single_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_single_slot_release,
};

FANIN_HANDLER_REGISTER(single)
