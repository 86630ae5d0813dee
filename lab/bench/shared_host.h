/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of rig/ that several engines share, each by a transport of its own: what comes for a job
 * goes to that job's engine. Before it sends a packet the host may be busy for a while, by chance,
 * and its queue may be bounded as a NIC's ring is. It may also be away now and then: it then reads
 * nothing, too. One thread.
 */
#ifndef FANIN_LAB_BENCH_SHARED_HOST_H
#define FANIN_LAB_BENCH_SHARED_HOST_H

#include "lab/reference/random.h"
#include "lab/rig/network.h"

#define SHARED_HOST_MAX 8
#define SHARED_HOST_BURST 32

struct shared_host;

struct shared_host_lane {
	struct fanin_transport transport; /* the first: a pointer to it is one to the lane */
	struct shared_host *shared;
	uint32_t job;
	struct fanin_frame frames[SHARED_HOST_BURST];
	unsigned int first;
	unsigned int n;
};

struct shared_host {
	struct rig_host *host;
	struct random random;
	double busy_share; /* of packets, before which it is busy */
	uint64_t busy_ns;
	uint64_t away_every_ns; /* mean time from one absence to the next; 0: it is never away */
	uint64_t away_ns;
	uint64_t away_since_ns; /* of the last absence, or the next one */
	uint64_t queue_ns; /* most that may wait for its link; then engines have no room. 0: any */
	struct shared_host_lane lanes[SHARED_HOST_MAX];
	unsigned int n_lanes;
};

/* A host that is never busy and has no lanes. */
void shared_host_init(struct shared_host *shared, struct rig_host *host);

/* Adds a transport, the shared host's, for the engine of a job. At most SHARED_HOST_MAX. */
struct fanin_transport *shared_host_add(struct shared_host *shared, uint32_t job);

/*
 * Gives frames that have come to their lanes, whose engines must then be polled until they have
 * none. Returns how many.
 */
unsigned int shared_host_receive(struct shared_host *shared);

/*
 * True if the host is away now, or goes: its engines must not be polled before *until_ns.
 */
bool shared_host_is_away(struct shared_host *shared, uint64_t now_ns, uint64_t *until_ns);

/* True if a transport has frames. */
bool shared_host_has_frames(const struct fanin_transport *transport);

#endif
