/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of push reductions (protocols/push/README.md): the block engine, with its own
 * rules for when to send blocks and when to ask for them. Every rank is the home host of some
 * blocks: it merges the sums that switches could not complete, asks ranks for lost data, and sends
 * the result to all.
 */
#ifndef FANIN_PROTOCOLS_PUSH_HOST_PUSH_H
#define FANIN_PROTOCOLS_PUSH_HOST_PUSH_H

#include "hostlib/src/protocol/protocol.h"

struct fanin_push_stats {
	uint64_t made;     /* results that this rank has made as the block's home host */
	uint64_t merged;   /* sums and data of other ranks that were combined here */
	uint64_t replaced; /* sums that replaced this one's, as they contained all its ranks */
	uint64_t overlaps; /* sums that were dropped, as some of their ranks were already in */
	uint64_t asks;     /* questions (ASK) to ranks for their data */
	uint64_t repeats;  /* results sent to a rank that asked */
	uint64_t answered; /* data sent to home hosts that asked */
	uint64_t ignored;  /* results of switches that were ignored, as the home host makes the
			      result */
};

extern struct fanin_protocol fanin_protocol_push;

const struct fanin_push_stats *fanin_push_stats(struct fanin_endpoint *endpoint);

#endif
