/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of jobs with the handler `canary` (Canary, section 3;
 * protocols/canary/README.md): the block engine, with rules of its own for what is sent and what
 * comes in. Each rank leads every n-th block: it merges what comes of it, keeps its own data back
 * until the end, and sends the result. No switch is joined: the ranks agree on a run by rank 0's
 * roll.
 */
#ifndef FANIN_PROTOCOLS_CANARY_HOST_CANARY_H
#define FANIN_PROTOCOLS_CANARY_HOST_CANARY_H

#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_canary;

/* Beside those of the engine; retransmits there are data sent once more, for a leader asked. */
struct fanin_canary_stats {
	uint64_t ways_changed; /* of the host's links, the one that packets take */
	/* As a leader. */
	uint64_t led;      /* blocks with a result */
	uint64_t merged;   /* packets with data that was combined */
	uint64_t direct;   /* of them those that no switch had combined, as a table was full or this
			      rank had asked */
	uint64_t replaced; /* sums that contained all that was there */
	uint64_t overlaps; /* sums that were dropped, as some of their data was there */
	uint64_t asks;
	uint64_t restores;
	uint64_t repeats;
};

const struct fanin_canary_stats *fanin_canary_stats(struct fanin_endpoint *endpoint);

#endif
