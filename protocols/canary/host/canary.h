/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of jobs with the handler `canary` (Canary, section 3;
 * protocols/canary/README.md): the block engine with its own rules for sending and receiving. Each
 * rank leads every n-th block: it merges the block's data, adds its own data last, and sends the
 * result. Ranks join no switch; they agree on a run by rank 0's roll call.
 */
#ifndef FANIN_PROTOCOLS_CANARY_HOST_CANARY_H
#define FANIN_PROTOCOLS_CANARY_HOST_CANARY_H

#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_canary;

/*
 * Counters beside the engine's. Here the engine's retransmits count data that was sent again
 * because a leader asked.
 */
struct fanin_canary_stats {
	uint64_t ways_changed; /* how often packets changed to the host's other link */
	/* As a leader: */
	uint64_t led;    /* blocks with a result */
	uint64_t merged; /* packets with data that was combined */
	/*
	 * of them, packets that no switch had combined because a table was full or this rank had
	 * asked
	 */
	uint64_t direct;
	uint64_t replaced; /* sums that contained, and replaced, all data that was there */
	uint64_t overlaps; /* sums that were dropped because some of their data was already there */
	uint64_t asks;
	uint64_t restores;
	uint64_t repeats;
};

const struct fanin_canary_stats *fanin_canary_stats(struct fanin_endpoint *endpoint);

#endif
