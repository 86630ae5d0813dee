/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reliable multicast on hosts (Khalilov et al., sections III and IV;
 * protocols/broadcast/README.md): Broadcast and Allgather by packets that their roots send to all
 * others, the block engine for the blocks that keep the ranks together, and a ring of neighbors
 * from which lost packets are fetched. All other collectives run as in the window protocol.
 */
#ifndef FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_H
#define FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_H

#include "hostlib/src/engine/engine.h"

/*
 * Packets between two credits are at least and at most so many, in all chains together, and in
 * between 24 for each rank.
 */
#define FANIN_BROADCAST_CREDIT_LEAST 64u
#define FANIN_BROADCAST_CREDIT_MOST 192u
#define FANIN_BROADCAST_CREDIT_BYTES                                                               \
	(2u << 20) /* at most, of packets that are longer than usual                               \
		    */
#define FANIN_BROADCAST_DEPTH_MOST                                                                 \
	4u /* credits' worth of packets that may be on their way to a rank */

struct fanin_broadcast_stats {
	uint64_t operations;   /* that are done */
	uint64_t packets_sent; /* by multicast, each once */
	uint64_t packets;      /* that have come, by either way */
	uint64_t fetched; /* of these, those that a neighbor has sent because they were asked for */
	uint64_t late;    /* asked for, and then come by multicast */
	uint64_t duplicates;
	uint64_t closed;         /* of operations that are done or not posted */
	uint64_t fetches;        /* asked of neighbors, packets with bitmaps */
	uint64_t fetches_served; /* packets sent to neighbors that asked */
	uint64_t marks;          /* packets with a mark of ECN */
};

extern struct fanin_protocol fanin_protocol_broadcast;

/* Returns how many packets of a job are between two credits, of all chains together. */
static inline uint32_t
fanin_broadcast_credit(uint16_t size, uint16_t payload_bytes)
{
	const uint32_t most = FANIN_BROADCAST_CREDIT_BYTES / payload_bytes;
	uint32_t credit = 24u * size;

	if (credit < FANIN_BROADCAST_CREDIT_LEAST)
		credit = FANIN_BROADCAST_CREDIT_LEAST;
	if (credit > FANIN_BROADCAST_CREDIT_MOST)
		credit = FANIN_BROADCAST_CREDIT_MOST;
	return credit < most ? credit : most;
}

/* Returns the most packets that may be on their way to a rank of a job. */
static inline uint32_t
fanin_broadcast_in_flight(uint16_t size, uint16_t payload_bytes)
{
	return fanin_broadcast_credit(size, payload_bytes) * FANIN_BROADCAST_DEPTH_MOST;
}

const struct fanin_broadcast_stats *fanin_broadcast_stats(struct fanin_endpoint *endpoint);

#endif
