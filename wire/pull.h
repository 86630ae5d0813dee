/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the handler `pull` of switches and the host protocol of its jobs have in common: the job's parameters, by their positions in struct
 * fanin_job_params, and the place of a packet (docs/protocol.md, "Pull").
 */
#ifndef FANIN_WIRE_PULL_H
#define FANIN_WIRE_PULL_H

#include <stdint.h>

/* Ranks of a job: a set of them is a word. */
#define FANIN_PULL_RANKS_MAX 64u

/* X(ENUMERATOR, name, least, most, usual, text). The first one is that of `broadcast`. */
#define FANIN_PULL_PARAMETERS(X)                                                                   \
	X(CHAINS, chains, 0, 64, 0, "roots of an allgather that send at once; 0: as many as suit") \
	X(ENTRIES, entries, 1, 65536, 4096,                                                        \
	  "sums that a switch keeps at once for the job; its slots if these are fewer")            \
	X(TIMEOUT, timeout_us, 10, 10000000, 2000,                                                 \
	  "us that a sum waits for more; hosts ask for what is missing after twice that")          \
	X(WAVES, waves, 0, 64, 0, "outstanding waves of pulls of a host; 0: as many as suit")      \
	X(WAVE_BLOCKS, wave_blocks, 0, 65536, 0, "pulls of a wave; 0: as many as suit")

enum fanin_pull_parameter {
#define FANIN_PULL_PARAMETER(name, ...) FANIN_PULL_##name,
	FANIN_PULL_PARAMETERS(FANIN_PULL_PARAMETER)
#undef FANIN_PULL_PARAMETER
};

/* `count` of a PULL_DELIVERY that goes back to its owner: the first switch has no room for its sum. */
#define FANIN_PULL_BUSY 1u

/* The place of the index-th packet of an owner, in a job of n_ranks. It is less than 2^32. */
static inline uint32_t
fanin_pull_place(uint16_t owner, uint32_t index, uint16_t n_ranks)
{
	return index * n_ranks + owner;
}

static inline uint16_t
fanin_pull_owner(uint32_t place, uint16_t n_ranks)
{
	return (uint16_t)(place % n_ranks);
}

static inline uint32_t
fanin_pull_index(uint32_t place, uint16_t n_ranks)
{
	return place / n_ranks;
}

#endif
