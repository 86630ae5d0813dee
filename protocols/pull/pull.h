/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Definitions that the handler `pull` of switches shares with the host protocol: the job's
 * parameters, by their positions in struct fanin_job_params, and the place of a packet
 * (protocols/pull/README.md).
 */
#ifndef FANIN_PROTOCOLS_PULL_PULL_H
#define FANIN_PROTOCOLS_PULL_PULL_H

#include <stdint.h>

/* Limit of a job's ranks: a set of ranks is one word. */
#define FANIN_PULL_RANKS_MAX 64u

/* X(ENUMERATOR, name, least, most, usual, text). The first parameter is that of `broadcast`. */
#define FANIN_PULL_PARAMETERS(X)                                                                   \
	X(CHAINS, chains, 0, 64, 0, "roots of an allgather that send at once; 0: as many as suit") \
	X(ENTRIES, entries, 1, 65536, 4096,                                                        \
	  "sums that a switch keeps at once for the job; its slots if these are fewer")            \
	X(TIMEOUT, timeout_us, 10, 10000000, 2000,                                                 \
	  "us that a sum waits for more at least; where answers take longer, longer")              \
	X(WAVES, waves, 0, 4096, 0, "outstanding waves of pulls of a host; 0: as many as suit")    \
	X(WAVE_BLOCKS, wave_blocks, 0, 65536, 0, "pulls of a wave; 0: as many as suit")

enum fanin_pull_parameter {
#define FANIN_PULL_PARAMETER(name, ...) FANIN_PULL_##name,
	FANIN_PULL_PARAMETERS(FANIN_PULL_PARAMETER)
#undef FANIN_PULL_PARAMETER
};

/*
 * `count` of a PULL_DELIVERY that goes back to its owner: the first switch has no room for the sum.
 */
#define FANIN_PULL_BUSY 1u

/*
 * `number` of PULL and PULL_DELIVERY: how many switches the packet has passed, and how long its
 * owner expects the answers to take, so that switches keep the sum at least that long.
 */
#define FANIN_PULL_HOPS 0xffu
#define FANIN_PULL_PATIENCE_SHIFT 8
/* Switches wait no longer than this, whatever the PULL says. */
#define FANIN_PULL_PATIENCE_MAX_NS UINT64_C(1000000000)

/* Returns the `number` of a PULL that has passed no switch. */
static inline uint32_t
fanin_pull_number(uint64_t patience_ns)
{
	if (patience_ns > FANIN_PULL_PATIENCE_MAX_NS)
		patience_ns = FANIN_PULL_PATIENCE_MAX_NS;
	return (uint32_t)(patience_ns / 1000) << FANIN_PULL_PATIENCE_SHIFT;
}

static inline uint64_t
fanin_pull_patience_ns(uint32_t number)
{
	const uint64_t patience_ns = (number >> FANIN_PULL_PATIENCE_SHIFT) * UINT64_C(1000);

	return patience_ns < FANIN_PULL_PATIENCE_MAX_NS ? patience_ns : FANIN_PULL_PATIENCE_MAX_NS;
}

/*
 * Returns the place of an owner's index-th packet in a job of n_ranks. The place is less than 2^32.
 */
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
