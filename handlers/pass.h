/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets from members to other members along a job's tree, to all others or to one
 * (protocols/multicast/README.md, protocols/broadcast/README.md). A handler that uses these
 * functions sets `makes_packets`, and its own counters begin with FANIN_PASS_COUNTERS.
 */
#ifndef FANIN_HANDLERS_PASS_H
#define FANIN_HANDLERS_PASS_H

#include "handlers/frame.h"

enum {
	FANIN_PASS_DOWN,
	FANIN_PASS_UP,
	FANIN_PASS_NO_PACKET,
	FANIN_PASS_END, /* index of the handler's first further counter */
};

#define FANIN_PASS_COUNTERS                                                                        \
	[FANIN_PASS_DOWN] = { "delivered", "packets sent to other children, each counted once" },  \
	[FANIN_PASS_UP] = { "passed_up", "packets sent to the parent" },                           \
	[FANIN_PASS_NO_PACKET] = { "no_packet",                                                    \
				   "packets not sent to the parent for want of a buffer" }

/*
 * Returns the reason to drop a packet of the job: it is too long, or `members` names a rank that is
 * not behind its child. FANIN_REASON_NONE: the packet has no problem.
 */
enum fanin_reason fanin_pass_problem(const struct fanin_job_params *job,
				     const struct fanin_packet *packet);

/* Sends the packet itself to these children, with this type. Returns the verdict on it. */
enum fanin_verdict fanin_pass_down(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
				   enum fanin_type type, uint64_t children);

/*
 * Sends a packet without a problem, from the rank in `members`, to all other children with the type
 * `down`, and a packet from a child to the parent with the type `up`. A packet from the parent that
 * originates at a rank below is dropped: it was delivered here already.
 */
enum fanin_verdict fanin_pass_to_others(struct fanin_handler_ctx *ctx,
					const struct fanin_packet *packet, enum fanin_type up,
					enum fanin_type down);

/* The origin and the types of a packet; the field with the origin depends on the type. */
struct fanin_pass {
	uint64_t origin;      /* the rank that sent it */
	enum fanin_type up;   /* its type on the way to a parent */
	enum fanin_type down; /* its type on the way to children */
};

/*
 * Passes on a packet for all other ranks: to all other children, and from a child to the parent.
 *
 * reason: set on FANIN_VERDICT_DROP, which is the return value for a packet that is too long or
 * names an origin that is not behind its child.
 */
enum fanin_verdict fanin_pass_to_all(struct fanin_handler_ctx *ctx,
				     const struct fanin_packet *packet,
				     const struct fanin_pass *pass, enum fanin_reason *reason);

/*
 * Passes on a packet for one rank: to the child that leads to the rank, otherwise to the parent.
 * reason and return value are as for fanin_pass_to_all.
 */
enum fanin_verdict fanin_pass_to_rank(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet,
				      const struct fanin_pass *pass, uint32_t rank,
				      enum fanin_reason *reason);

/*
 * Passes on a MULTICAST or DELIVERY: to all other children, and from a child to the parent.
 *
 * reason: set on FANIN_VERDICT_DROP, which is the return value for a packet that is too long or
 * names a rank that is not behind its child.
 */
enum fanin_verdict fanin_pass_multicast(struct fanin_handler_ctx *ctx,
					const struct fanin_packet *packet,
					enum fanin_reason *reason);

/*
 * Passes on a UNICAST or UNICAST_DELIVERY: to the child that leads to the rank in `count`,
 * otherwise to the parent. reason and return value are as for fanin_pass_to_all.
 */
enum fanin_verdict fanin_pass_unicast(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet, enum fanin_reason *reason);

#endif
