/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast regions on hosts (Klenk et al., section IV.A; protocols/region/README.md): the block
 * engine for the blocks of fences, and beside it packets that any rank writes into the memory of
 * all others, numbered by their writer, confirmed, and fetched from it where they are lost.
 */
#ifndef FANIN_PROTOCOLS_REGION_HOST_REGION_H
#define FANIN_PROTOCOLS_REGION_HOST_REGION_H

#include "hostlib/src/protocol/protocol.h"

/*
 * Packets of one writer that may be on their way, and those of all writers together to one rank,
 * with their bytes.
 */
#define FANIN_REGION_WINDOW_LEAST 8u
#define FANIN_REGION_WINDOW_MOST 256u
#define FANIN_REGION_IN_FLIGHT 1024u
#define FANIN_REGION_IN_FLIGHT_BYTES (4u << 20)

struct fanin_region_stats {
	uint64_t fences;       /* that are done */
	uint64_t rounds;       /* of all fences, beyond each one's first */
	uint64_t packets_sent; /* by WRITE, each once */
	uint64_t packets;      /* that have come and are stored */
	uint64_t fetched;      /* of these, those that their writer has sent once more */
	uint64_t late;         /* asked for, and then come by WRITE */
	uint64_t duplicates;
	uint64_t old;            /* of a fence that is done */
	uint64_t early;          /* of the next fence */
	uint64_t out_of_range;   /* not of the region, or not of the writer's window */
	uint64_t fetches;        /* sent to writers */
	uint64_t fetches_served; /* packets sent once more */
	uint64_t asks;           /* sent to ranks that have not confirmed */
	uint64_t haves;          /* sent to writers */
	uint64_t slowed;         /* how often the window was halved */
};

extern struct fanin_protocol fanin_protocol_region;

/* Returns the most packets of one writer that may be on their way. */
static inline uint32_t
fanin_region_window(uint16_t size, uint16_t payload_bytes)
{
	const uint32_t by_bytes = FANIN_REGION_IN_FLIGHT_BYTES / payload_bytes;
	const uint32_t all = by_bytes < FANIN_REGION_IN_FLIGHT ? by_bytes : FANIN_REGION_IN_FLIGHT;
	const uint32_t each = all / (size > 1 ? size - 1u : 1u);

	if (each < FANIN_REGION_WINDOW_LEAST)
		return FANIN_REGION_WINDOW_LEAST;
	return each < FANIN_REGION_WINDOW_MOST ? each : FANIN_REGION_WINDOW_MOST;
}

const struct fanin_region_stats *fanin_region_stats(struct fanin_endpoint *endpoint);

#endif
