/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of members to other members along a job's tree, for handlers whose jobs have such: to all
 * others, or to one (protocols/multicast/README.md, protocols/broadcast/README.md). Such a handler
 * has `makes_packets`, and its own counters begin with FANIN_PASS_COUNTERS.
 */
#ifndef FANIN_HANDLERS_PASS_H
#define FANIN_HANDLERS_PASS_H

#include "handlers/frame.h"

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
 * The reason to drop a packet of the job: it is too long, or names another rank in `members` than
 * one behind its child. NONE: there is none.
 */
enum fanin_reason fanin_pass_problem(const struct fanin_job_params *job,
				     const struct fanin_packet *packet);

/* Sends the packet itself to these children, as one of this type. Returns the verdict on it. */
enum fanin_verdict fanin_pass_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
				   enum fanin_type type, uint64_t children);

/*
 * A packet without a problem, from the rank in `members`: goes to all other children as one of type
 * `down`, and from a child to the parent as one of type `up`. One from the parent that a rank below
 * has sent is dropped: it was delivered here already.
 */
enum fanin_verdict fanin_pass_to_others(struct fanin_handler_ctx *ctx,
					const struct fanin_packet *packet, enum fanin_type up,
					enum fanin_type down);

/* The origin and the types of a packet, which different types have in different fields. */
struct fanin_pass {
	uint64_t origin;      /* the rank that it is from */
	enum fanin_type up;   /* its type on the way to a parent */
	enum fanin_type down; /* and on the way to children */
};

/*
 * A packet for all other ranks: goes to all other children, and from a child to the parent.
 *
 * reason: set on FANIN_VERDICT_DROP, which is the return value for a packet that is too long or
 * names an origin that is not behind its child.
 */
enum fanin_verdict fanin_pass_to_all(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet,
				     const struct fanin_pass *pass, enum fanin_reason *reason);

/*
 * A packet for one rank: goes to the child that has it behind it, else to the parent. The rest as
 * above.
 */
enum fanin_verdict fanin_pass_to_rank(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet,
				      const struct fanin_pass *pass, uint32_t rank,
				      enum fanin_reason *reason);

/*
 * A MULTICAST or DELIVERY: goes to all other children, and from a child to the parent.
 *
 * reason: set on FANIN_VERDICT_DROP, which is the return value for a packet that is too long or
 * names a rank that is not behind its child.
 */
enum fanin_verdict fanin_pass_multicast(struct fanin_handler_ctx *ctx,
					const struct fanin_packet *packet,
					enum fanin_reason *reason);

/*
 * A UNICAST or UNICAST_DELIVERY: goes to the child that has the rank in `count` behind it, else to
 * the parent. The rest as above.
 */
enum fanin_verdict fanin_pass_unicast(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet, enum fanin_reason *reason);

#endif
