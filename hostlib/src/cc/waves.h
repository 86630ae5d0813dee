/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wave controller (Klenk et al., section IV.F.1): bounds the blocks that are being reduced by
 * what the tables of switches hold. Blocks form waves of the same size. Some waves are outstanding
 * at a time; once all blocks of the oldest one are complete, the next one may begin. Several waves
 * overlap so that nobody waits while the last blocks of one come in. Pure functions on a state;
 * one thread at a time. Block numbers are serial numbers.
 */
#ifndef FANIN_HOSTLIB_WAVES_H
#define FANIN_HOSTLIB_WAVES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Outstanding: as many as the largest window has blocks. Waves of one block, as many as the window
 * has, are no waves.
 */
#define FANIN_WAVES_MAX 4096u

/* 0 takes the default. */
struct fanin_waves_config {
	uint32_t capacity; /* blocks that the tables hold at once for this rank; default: limit */
	uint32_t limit;    /* most blocks in flight for other reasons, such as the window, 4096 at
			      most; required */
	uint32_t wave_blocks; /* blocks of a wave; default: so that the waves fill the capacity */
	uint32_t n_waves; /* outstanding waves, FANIN_WAVES_MAX at most; default: 16, or as many as
			     fit */
};

struct fanin_waves {
	uint32_t first; /* block that the oldest outstanding wave begins with */
	uint32_t wave_blocks;
	uint32_t n_waves;
	uint32_t oldest;                    /* index of the oldest wave in `complete` */
	uint16_t complete[FANIN_WAVES_MAX]; /* complete blocks of each outstanding wave */
};

/*
 * Begins with an empty state.
 *
 * config: the waves hold `limit` blocks at most in all, whatever else it says. More than the
 * capacity only if it gives both sizes. first: the first block of the first wave.
 */
void fanin_waves_open(struct fanin_waves *waves, const struct fanin_waves_config *config,
		      uint32_t first);

/* True if the block belongs to an outstanding wave, or to one that is complete. */
static inline bool
fanin_waves_may_start(const struct fanin_waves *waves, uint32_t block)
{
	return (int32_t)(block - waves->first) < (int32_t)(waves->wave_blocks * waves->n_waves);
}

/*
 * The block is complete: called once for each block, in any order. Returns how many further blocks
 * may start for it, 0 unless it completes the oldest wave.
 */
uint32_t fanin_waves_completed(struct fanin_waves *waves, uint32_t block);

/* Returns the blocks that may be in flight. */
static inline uint32_t
fanin_waves_span(const struct fanin_waves *waves)
{
	return waves->wave_blocks * waves->n_waves;
}

#endif
