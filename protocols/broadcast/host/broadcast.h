/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reliable multicast on hosts (Khalilov et al., sections III and IV;
 * protocols/broadcast/README.md). In a Broadcast or Allgather each root sends its packets to all
 * other ranks. The block engine runs the control blocks that keep the ranks together. Ranks fetch
 * lost packets from their neighbors in a ring. All other collectives run as in the window protocol.
 */
#ifndef FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_H
#define FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_H

#include "hostlib/src/engine/engine.h"

/*
 * Bounds of the number of packets between two credits, in all chains together; within them there
 * are 24 for each rank.
 */
#define FANIN_BROADCAST_CREDIT_MIN 64u
#define FANIN_BROADCAST_CREDIT_MAX 192u
#define FANIN_BROADCAST_CREDIT_BYTES                                                               \
	(2u << 20) /* at most, of packets that are longer than usual                               \
		    */
#define FANIN_BROADCAST_DEPTH_MAX                                                                  \
	4u /* credits' worth of packets that may be on their way to a rank */

struct fanin_broadcast_stats {
	uint64_t operations;   /* completed operations */
	uint64_t packets_sent; /* packets that this rank has sent by multicast, each counted once */
	uint64_t packets;      /* packets received, by multicast or from a neighbor */
	uint64_t fetched;      /* of these, packets that a neighbor sent in answer to a FETCH */
	uint64_t late;         /* packets that came by multicast after a FETCH for them */
	uint64_t duplicates;
	uint64_t closed;         /* packets of operations that are done or not posted */
	uint64_t fetches;        /* FETCHes sent to neighbors */
	uint64_t fetches_served; /* packets sent in answer to neighbors' FETCHes */
	uint64_t marks;          /* packets with an ECN mark */
};

extern struct fanin_protocol fanin_protocol_broadcast;

/* Returns the number of a job's packets between two credits, in all chains together. */
static inline uint32_t
fanin_broadcast_credit(uint16_t size, uint16_t payload_bytes)
{
	const uint32_t most = FANIN_BROADCAST_CREDIT_BYTES / payload_bytes;
	uint32_t credit = 24u * size;

	if (credit < FANIN_BROADCAST_CREDIT_MIN)
		credit = FANIN_BROADCAST_CREDIT_MIN;
	if (credit > FANIN_BROADCAST_CREDIT_MAX)
		credit = FANIN_BROADCAST_CREDIT_MAX;
	return credit < most ? credit : most;
}

/* Returns the maximum number of packets that may be on their way to a rank of a job. */
static inline uint32_t
fanin_broadcast_in_flight(uint16_t size, uint16_t payload_bytes)
{
	return fanin_broadcast_credit(size, payload_bytes) * FANIN_BROADCAST_DEPTH_MAX;
}

const struct fanin_broadcast_stats *fanin_broadcast_stats(struct fanin_endpoint *endpoint);

#endif
