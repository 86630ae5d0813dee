/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Background traffic that yields to nobody, over leaves and spines: hosts that inject datagrams at
 * a constant rate, whatever is lost, and ignore what they receive. One thread.
 */
#ifndef FANIN_LAB_BENCH_INJECTION_H
#define FANIN_LAB_BENCH_INJECTION_H

#include "lab/reference/random.h"
#include "lab/rig/leaf_spine.h"

#define INJECTION_MAX_HOSTS 64

struct injection_options {
	uint64_t seed;
	uint32_t rate_mbit;     /* of each host, of frames */
	uint32_t message_bytes; /* of frames, after which a host takes another destination; its
				   packets go one way */
};

struct injection;

/* One host that injects. */
struct injection_source {
	struct injection *injection;
	struct rig_host *host;
	uint32_t number;   /* of the host */
	uint32_t to;       /* likewise, where its message goes */
	uint64_t next_ns;  /* of its next datagram */
	uint32_t left;     /* datagrams of this message; of a stream that does not end UINT32_MAX */
	uint16_t src_port; /* decides about its way */
};

struct injection {
	struct injection_options options;
	const struct rig_leaf_spine *network;
	struct random random;
	struct injection_source sources[INJECTION_MAX_HOSTS];
	uint16_t n;
	uint64_t sent;                        /* bytes of frames */
	uint16_t spines[INJECTION_MAX_HOSTS]; /* of a permutation: the one that leads to a host, by
						  its number */
};

/*
 * From now on each host sends messages to others of these hosts, random ones. hosts: numbers;
 * copied.
 */
void injection_uniform(struct injection *injection, const struct rig_leaf_spine *network,
		       const struct injection_options *options, const uint32_t *hosts, uint16_t n);

/*
 * From now on the first of these hosts behind each leaf sends to that of the next leaf, with ports
 * by which all of it goes over the spine. Each leaf has one of the hosts.
 */
void injection_over_spine(struct injection *injection, const struct rig_leaf_spine *network,
			  const struct injection_options *options, const uint32_t *hosts,
			  uint16_t n, uint16_t spine);

/*
 * From now on each host sends a stream that does not end to another of these hosts, and each
 * receives one: a random permutation without fixed points. Each host of the network has a random
 * spine, over which all packets to it go from other leaves: it follows from the seed and the
 * destination alone. Fewer than two hosts send nothing.
 */
void injection_permutation(struct injection *injection, const struct rig_leaf_spine *network,
			   const struct injection_options *options, const uint32_t *hosts,
			   uint16_t n);

/* Ends it; the hosts stay the rig's. */
void injection_end(struct injection *injection);

/* Returns how many bytes of frames have arrived so far. */
uint64_t injection_delivered(const struct injection *injection);

#endif
