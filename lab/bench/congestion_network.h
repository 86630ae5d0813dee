/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network of `./dev bench congestion`, in virtual time: leaves and spines with links of one
 * rate; hosts, of which some are ranks of a job and the others are free for background traffic; and
 * counters of each link. One thread.
 */
#ifndef FANIN_LAB_BENCH_CONGESTION_NETWORK_H
#define FANIN_LAB_BENCH_CONGESTION_NETWORK_H

#include "lab/rig/leaf_spine.h"

#define CONGESTION_MAX_HOSTS 64
/*
 * Maximum of links, counted by direction: each host of a leaf has two, each pair of leaf and spine
 * has two.
 */
#define CONGESTION_MAX_LINKS 512

struct congestion_options {
	uint64_t seed; /* of the placement */
	uint16_t n_leaves;
	uint16_t hosts_per_leaf;
	uint16_t n_spines;
	uint16_t n_ranks;
	bool mixed; /* each leaf has at least one rank and one other host */
	uint32_t rate_mbit;
	uint64_t delay_ns;
	uint32_t queue_bytes;
	uint32_t ecn_bytes;
	uint32_t detour_bytes; /* 0: the default of ports */
	double loss;           /* share of the frames that each switch drops */
	uint16_t max_jobs;
	uint32_t slots;        /* of each switch, for all jobs */
	uint32_t shared_slots; /* for the jobs that share them */
	uint32_t n_packets;
};

enum congestion_tier {
	CONGESTION_HOST_UP,
	CONGESTION_HOST_DOWN,
	CONGESTION_LEAF_UP,
	CONGESTION_LEAF_DOWN,
	CONGESTION_TIERS,
};

/* A link in one direction. */
struct congestion_link {
	enum congestion_tier tier;
	uint16_t leaf;
	uint16_t other; /* host behind the leaf, or spine */
	uint64_t bytes; /* so far, like the next two; the fields from here on are the sending
			   port's, and a host has none */
	uint64_t dropped;
	uint64_t marked;
	uint64_t waiting; /* bytes, now */
};

struct congestion_links {
	struct congestion_link links[CONGESTION_MAX_LINKS];
	uint16_t n;
};

struct congestion_network {
	struct congestion_options options;
	struct rig *rig;
	struct rig_leaf_spine leaf_spine;
	uint32_t ranks[CONGESTION_MAX_HOSTS];  /* hosts of the job, in ascending order */
	uint32_t others[CONGESTION_MAX_HOSTS]; /* the other hosts, in ascending order */
	uint16_t n_others;
};

/* The names of tiers. */
extern const char *const congestion_tiers[CONGESTION_TIERS];

/*
 * Builds the network, places the ranks at random, and lets a second pass, in which switches learn
 * all addresses. error: RIG_ERROR_LEN bytes. Returns 0, or -errno with error filled;
 * congestion_network_close frees all that was built.
 */
int congestion_network_open(struct congestion_network *network,
			    const struct congestion_options *options, char *error);

/* Frees the network. Returns how many packets have leaked: 0. */
unsigned int congestion_network_close(struct congestion_network *network);

/* Reads the bytes that each link has carried so far, always in the same order. */
void congestion_links_read(const struct congestion_network *network,
			   struct congestion_links *links);

#endif
