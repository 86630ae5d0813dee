/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of a job of the handler `pull` in one process and in virtual time: real engines around real switches, with links that lose, double and reorder, and what
 * comes of their collectives compared with what it has to be. One world at a time.
 */
#ifndef FANIN_TESTS_UNIT_PULL_WORLD_H
#define FANIN_TESTS_UNIT_PULL_WORLD_H

#include "hostlib/src/pull/pull_internal.h"
#include "reference/perf_collective.h"
#include "rig/leaf_spine.h"

#define PULL_WORLD_RANKS 16
#define PULL_WORLD_REQUESTS 8
#define PULL_WORLD_BYTES (1u << 20) /* of a vector, at most */
#define PULL_WORLD_TIMEOUT_NS UINT64_C(5000000000)
#define PULL_WORLD_KEPT 256

/* What is 0 is as usual. */
struct pull_trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t window; /* 64 */
	uint32_t entries;
	uint32_t waves;
	uint32_t wave_blocks;
	double faults;
	bool wide;
	bool no_recovery;       /* a lost run is an error */
	uint16_t payload_bytes; /* as much as fits */
};

/* A frame that a rank has sent. */
struct pull_frame {
	uint32_t len;
	uint8_t bytes[1600];
};

struct pull_member {
	struct fanin_transport transport; /* first: the rig's, but for what is lost on it */
	struct fanin_transport *inner;
	void *reserved; /* the frame that is being made */
	uint16_t rank;
	struct fanin_endpoint *engine;
	struct fanin_request requests[PULL_WORLD_REQUESTS];
	struct perf_collective collectives[PULL_WORLD_REQUESTS];
	uint8_t *send[PULL_WORLD_REQUESTS];
	uint8_t *recv[PULL_WORLD_REQUESTS]; /* the same where it is in place */
	bool taken[PULL_WORLD_REQUESTS]; /* the result was looked at, and all memory used again */
	uint64_t digest[PULL_WORLD_REQUESTS];
	bool is_away; /* does not poll */
	struct pull_frame *kept;
	unsigned int n_kept;
};

struct pull_world {
	struct pull_trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	uint32_t n_requests;
	uint16_t payload_bytes;
	struct pull_member members[PULL_WORLD_RANKS];
	bool (*loses)(uint16_t rank,
		      const struct fanin_hdr *hdr); /* of what comes to ranks; NULL: nothing */
	bool (*keeps)(uint16_t rank,
		      const struct fanin_hdr *hdr); /* of what ranks send; NULL: nothing */
	uint64_t n_lost;
};

extern struct pull_world pull_world;

void pull_world_open(const struct pull_trial *trial);

/* Checks that no packet has leaked. */
void pull_world_close(void);

/* Posts a collective like this one for a rank; by their sum, every second one in place. Iteration r of its data. */
void pull_world_post(uint16_t rank, uint32_t r, const struct perf_collective *like);
void pull_world_post_all(uint32_t r, const struct perf_collective *like);

/* An allreduce of i32. */
struct perf_collective pull_world_sum(uint64_t count);

/* Until all are done, and rightly so. */
void pull_world_run(void);

/* Frees all requests, so that others can be posted. */
void pull_world_forget(void);

bool pull_world_done(void *user);

/* Of all ranks together. */
struct fanin_pull_stats pull_world_stats(void);
struct fanin_multicast_stats pull_world_multicast(void);

/* The handler's own counter, of all switches together. */
uint64_t pull_world_counter(unsigned int counter);

/* Sends what a rank has kept once more. */
void pull_world_repeat(uint16_t rank);

#endif
