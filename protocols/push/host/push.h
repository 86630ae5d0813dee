/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of push reductions (protocols/push/README.md): the block engine, with rules of
 * its own for when blocks are sent and asked for. Every rank is home to some blocks: it merges what
 * switches could not complete, asks ranks for what is lost, and tells all the result.
 */
#ifndef FANIN_PROTOCOLS_PUSH_HOST_PUSH_H
#define FANIN_PROTOCOLS_PUSH_HOST_PUSH_H

#include "hostlib/src/protocol/protocol.h"

struct fanin_push_stats {
	uint64_t made;     /* blocks whose result this rank has made as their home host */
	uint64_t merged;   /* sums and data of other ranks that were combined there */
	uint64_t replaced; /* sums that contained all that was there */
	uint64_t overlaps; /* sums that were dropped, as some of their data was there */
	uint64_t asks;     /* questions to ranks for their data */
	uint64_t repeats;  /* results sent to a rank that asked */
	uint64_t answered; /* data sent to home hosts that asked */
	uint64_t ignored;  /* results of switches not taken, as the home host makes the block's */
};

extern struct fanin_protocol fanin_protocol_push;

const struct fanin_push_stats *fanin_push_stats(struct fanin_endpoint *endpoint);

#endif
