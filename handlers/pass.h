/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of members to other members along a job's tree, for handlers whose jobs have such: to all others, or to one (docs/protocol.md, "Multicast" and
 * "Reliable multicast"). Such a handler has `makes_packets`, and its own counters begin with FANIN_PASS_COUNTERS.
 */
#ifndef FANIN_HANDLERS_PASS_H
#define FANIN_HANDLERS_PASS_H

#include "handlers/handler.h"

enum {
	FANIN_PASS_DOWN,
	FANIN_PASS_UP,
	FANIN_PASS_NO_PACKET,
	FANIN_PASS_END, /* the first counter of the handler itself */
};

#define FANIN_PASS_COUNTERS                                                                        \
	[FANIN_PASS_DOWN] = { "delivered", "packets sent to other children, each counted once" },  \
	[FANIN_PASS_UP] = { "passed_up", "packets sent to the parent" },                           \
	[FANIN_PASS_NO_PACKET] = { "no_packet",                                                    \
				   "packets not sent to the parent for want of a buffer" }

/*
 * A MULTICAST or DELIVERY: goes to all other children, and from a child to the parent.
 *
 * reason: set on FANIN_VERDICT_DROP, which is the return value for a packet that is too long or names a rank that is not behind its child.
 */
enum fanin_verdict fanin_pass_multicast(struct fanin_handler_ctx *ctx,
					const struct fanin_packet *packet, enum fanin_reason *reason);

/* A UNICAST or UNICAST_DELIVERY: goes to the child that has the rank in `count` behind it, else to the parent. The rest as above. */
enum fanin_verdict fanin_pass_unicast(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet, enum fanin_reason *reason);

#endif
