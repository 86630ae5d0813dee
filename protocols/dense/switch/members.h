/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs that have dense blocks like `single`, and packets of members to others (handlers/pass.h).
 * Slots of such handlers begin with a struct single_slot, and their counters with
 * FANIN_PASS_COUNTERS.
 */
#ifndef FANIN_PROTOCOLS_DENSE_SWITCH_MEMBERS_H
#define FANIN_PROTOCOLS_DENSE_SWITCH_MEMBERS_H

#include "handlers/pass.h"
#include "protocols/dense/switch/single.h"

/* The packet types that fanin_members_other takes, with a trailing comma. */
#define FANIN_MEMBERS_TYPES                                                                        \
	FANIN_TYPE_RESULT, FANIN_TYPE_KNOWN, FANIN_TYPE_QUERY, FANIN_TYPE_ANSWER,                  \
		FANIN_TYPE_MULTICAST, FANIN_TYPE_DELIVERY, FANIN_TYPE_UNICAST,                     \
		FANIN_TYPE_UNICAST_DELIVERY,

/* The handler's `other`. */
enum fanin_verdict fanin_members_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
				       struct fanin_packet *packet, enum fanin_reason *reason);

#endif
