/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of reliable multicast (Khalilov et al.; protocols/broadcast/README.md): it
 * forwards members' packets to all others or to one, and reduces the dense blocks that keep members
 * together. Both are in members.h.
 */
#include "protocols/broadcast/broadcast.h"
#include "protocols/dense/switch/members.h"

static const struct fanin_counter broadcast_counters[] = { FANIN_PASS_COUNTERS, { 0 } };

/* Read by hosts only. */
static const struct fanin_parameter broadcast_parameters[] = {
	[FANIN_BROADCAST_CHAINS] = { "chains",
				     "roots of an allgather that send at once; 0: as many as suit",
				     0, 64, 0 },
	{ 0 },
};

static const uint8_t broadcast_types[] = { FANIN_MEMBERS_TYPES 0 };

static struct fanin_handler broadcast = {
	.name = "broadcast",
	.description = "packets of each member to all others or one, and dense reduction",
	.makes_packets = true,
	.slot_mbufs = { .fixed = 1 },
	.counters = broadcast_counters,
	.parameters = broadcast_parameters,
	.slot_bytes = sizeof(struct single_slot),
	.contribution = fanin_single_contribution,
	.types = broadcast_types,
	.other = fanin_members_other,
	.peek = fanin_dense_peek,
	.slot_release = fanin_single_slot_release,
};

FANIN_HANDLER_REGISTER(broadcast)
