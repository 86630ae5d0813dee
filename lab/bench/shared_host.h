/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of rig/ that several engines share, each by a transport of its own: packets of a job go to
 * that job's engine. The host may be busy for a while, at random, before it sends a packet, and its
 * queue may be bounded as a NIC's ring is. It may also be away now and then: it then reads nothing
 * either. One thread.
 */
#ifndef FANIN_LAB_BENCH_SHARED_HOST_H
#define FANIN_LAB_BENCH_SHARED_HOST_H

#include "lab/reference/random.h"
#include "lab/rig/network.h"

#define SHARED_HOST_MAX 8
#define SHARED_HOST_BURST 32

struct shared_host;

struct shared_host_lane {
	struct fanin_transport transport; /* first: a pointer to it is one to the lane */
	struct shared_host *shared;
	uint32_t job;
	struct fanin_frame frames[SHARED_HOST_BURST];
	unsigned int first;
	unsigned int n;
};

struct shared_host {
	struct rig_host *host;
	struct random random;
	double busy_share; /* share of packets before which the host is busy */
	uint64_t busy_ns;
	uint64_t away_every_ns; /* mean time from one absence to the next; 0: it is never away */
	uint64_t away_ns;
	uint64_t away_since_ns; /* of the last absence, or the next one */
	uint64_t queue_ns; /* maximum that may wait for its link; engines then have no room. 0: any
			    */
	struct shared_host_lane lanes[SHARED_HOST_MAX];
	unsigned int n_lanes;
};

/* Initialises a host that is never busy and has no lanes. */
void shared_host_init(struct shared_host *shared, struct rig_host *host);

/*
 * Adds a transport, which the shared host owns, for the engine of a job. At most SHARED_HOST_MAX.
 */
struct fanin_transport *shared_host_add(struct shared_host *shared, uint32_t job);

/*
 * Passes received frames to their lanes, whose engines must then be polled until they have none.
 * Returns the number of frames.
 */
unsigned int shared_host_receive(struct shared_host *shared);

/* True if the host is away now, or goes away: its engines must not be polled before *until_ns. */
bool shared_host_is_away(struct shared_host *shared, uint64_t now_ns, uint64_t *until_ns);

/* True if a transport has frames. */
bool shared_host_has_frames(const struct fanin_transport *transport);

#endif
