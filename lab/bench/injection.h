/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Background traffic without congestion control, over leaves and spines: hosts inject datagrams at
 * a constant rate, whatever is lost, and ignore all that they receive. One thread.
 */
#ifndef FANIN_LAB_BENCH_INJECTION_H
#define FANIN_LAB_BENCH_INJECTION_H

#include "lab/reference/random.h"
#include "lab/rig/leaf_spine.h"

#define INJECTION_MAX_HOSTS 64

struct injection_options {
	uint64_t seed;
	uint32_t rate_mbit;     /* of each host's frames */
	uint32_t message_bytes; /* bytes of frames, after which a host changes its destination; the
				   packets of a message take one path */
};

struct injection;

/* One host that injects. */
struct injection_source {
	struct injection *injection;
	struct rig_host *host;
	uint32_t number;   /* of the host */
	uint32_t to;       /* likewise, the destination of its message */
	uint64_t next_ns;  /* of its next datagram */
	uint32_t left;     /* datagrams left of this message; UINT32_MAX: its stream does not end */
	uint16_t src_port; /* chooses its path */
};

struct injection {
	struct injection_options options;
	const struct rig_leaf_spine *network;
	struct random random;
	struct injection_source sources[INJECTION_MAX_HOSTS];
	uint16_t n;
	uint64_t sent;                        /* bytes of frames */
	uint16_t spines[INJECTION_MAX_HOSTS]; /* for a permutation: the spine that leads to a host,
						 by its number */
};

/*
 * From now on each host sends messages to random other ones of these hosts. hosts: numbers; copied.
 */
void injection_uniform(struct injection *injection, const struct rig_leaf_spine *network,
		       const struct injection_options *options, const uint32_t *hosts, uint16_t n);

/*
 * From now on the first of these hosts behind each leaf sends to the first one of the next leaf,
 * with ports by which all packets take this spine. Each leaf has one of the hosts.
 */
void injection_over_spine(struct injection *injection, const struct rig_leaf_spine *network,
			  const struct injection_options *options, const uint32_t *hosts,
			  uint16_t n, uint16_t spine);

/*
 * From now on each host sends an endless stream to another of these hosts, and each receives one: a
 * random permutation without fixed points. Each host of the network has a random spine, over which
 * all packets from other leaves reach it: the seed and the destination alone determine it. Fewer
 * than two hosts send nothing.
 */
void injection_permutation(struct injection *injection, const struct rig_leaf_spine *network,
			   const struct injection_options *options, const uint32_t *hosts,
			   uint16_t n);

/* Ends the traffic; the rig keeps the hosts. */
void injection_end(struct injection *injection);

/* Returns how many bytes of frames have arrived so far. */
uint64_t injection_delivered(const struct injection *injection);

#endif
