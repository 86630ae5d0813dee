/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of the handler `broadcast`, for handlers that do the same and more. Their slots begin with a struct single_slot, and their counters with FANIN_PASS_COUNTERS. */
#ifndef FANIN_HANDLERS_BROADCAST_H
#define FANIN_HANDLERS_BROADCAST_H

#include "handlers/handler.h"

/* The types that fanin_broadcast_other takes, with a comma behind the last one. */
#define FANIN_BROADCAST_TYPES                                                                      \
	FANIN_TYPE_RESULT, FANIN_TYPE_KNOWN, FANIN_TYPE_QUERY, FANIN_TYPE_ANSWER,                  \
		FANIN_TYPE_MULTICAST, FANIN_TYPE_DELIVERY, FANIN_TYPE_UNICAST,                     \
		FANIN_TYPE_UNICAST_DELIVERY,

/* As struct fanin_handler has it. */
enum fanin_verdict fanin_broadcast_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
					 struct fanin_packet *packet, enum fanin_reason *reason);

#endif
