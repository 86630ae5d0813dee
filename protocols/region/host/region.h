/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast regions on hosts (Klenk et al., section IV.A; protocols/region/README.md): the block
 * engine runs the blocks of fences. Beside it, any rank writes packets into the memory of all
 * others. Writers number their packets, receivers confirm them, and fetch lost ones from the
 * writer.
 */
#ifndef FANIN_PROTOCOLS_REGION_HOST_REGION_H
#define FANIN_PROTOCOLS_REGION_HOST_REGION_H

#include "hostlib/src/protocol/protocol.h"

/*
 * Bounds of one writer's window in packets; and of the packets and bytes in flight from all writers
 * to one rank.
 */
#define FANIN_REGION_WINDOW_MIN 8u
#define FANIN_REGION_WINDOW_MAX 256u
#define FANIN_REGION_IN_FLIGHT 1024u
#define FANIN_REGION_IN_FLIGHT_BYTES (4u << 20)

struct fanin_region_stats {
	uint64_t fences;       /* fences that are done */
	uint64_t rounds;       /* rounds of all fences, without the first of each */
	uint64_t packets_sent; /* packets sent by WRITE, without REWRITEs */
	uint64_t packets;      /* packets that were received and stored */
	uint64_t fetched;      /* packets of these that came by REWRITE */
	uint64_t late;         /* packets that came by WRITE after they were asked for */
	uint64_t duplicates;
	uint64_t old;            /* packets of earlier fences */
	uint64_t early;          /* packets of the next fence */
	uint64_t out_of_range;   /* packets outside the region or outside the writer's window */
	uint64_t fetches;        /* FETCHes sent to writers */
	uint64_t fetches_served; /* packets sent by REWRITE */
	uint64_t asks;           /* ASKs sent to ranks that have not confirmed */
	uint64_t haves;          /* HAVEs sent to writers */
	uint64_t slowed;         /* how often the window was halved */
};

extern struct fanin_protocol fanin_protocol_region;

/* Returns the largest window of one writer, in packets. */
static inline uint32_t
fanin_region_window(uint16_t size, uint16_t payload_bytes)
{
	const uint32_t by_bytes = FANIN_REGION_IN_FLIGHT_BYTES / payload_bytes;
	const uint32_t all = by_bytes < FANIN_REGION_IN_FLIGHT ? by_bytes : FANIN_REGION_IN_FLIGHT;
	const uint32_t each = all / (size > 1 ? size - 1u : 1u);

	if (each < FANIN_REGION_WINDOW_MIN)
		return FANIN_REGION_WINDOW_MIN;
	return each < FANIN_REGION_WINDOW_MAX ? each : FANIN_REGION_WINDOW_MAX;
}

const struct fanin_region_stats *fanin_region_stats(struct fanin_endpoint *endpoint);

#endif
