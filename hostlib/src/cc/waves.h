/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wave controller (Klenk et al., section IV.F.1): bounds the blocks that are being reduced by
 * the capacity of the switches' tables. Blocks form waves of the same size. Several waves are
 * outstanding at a time; once all blocks of the oldest one are complete, the next one may begin.
 * Waves overlap so that no rank waits while the last blocks of one come in. Pure functions on a
 * state; one thread at a time. Block numbers are serial numbers.
 */
#ifndef FANIN_HOSTLIB_WAVES_H
#define FANIN_HOSTLIB_WAVES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Maximum of outstanding waves: as many as the largest window has blocks. With one block per wave
 * and as many waves as blocks in the window, the waves change nothing.
 */
#define FANIN_WAVES_MAX 4096u

/* Fields that are 0 get their default. */
struct fanin_waves_config {
	uint32_t capacity; /* blocks of this rank that the tables hold at once; default: limit */
	uint32_t limit; /* bound on blocks in flight for other reasons, such as the window, 4096 at
			   most; required */
	uint32_t wave_blocks; /* blocks of a wave; default: the waves fill the capacity */
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
 * config: all waves together hold `limit` blocks at most, whatever the other fields say. They
 * exceed the capacity only if both sizes are given. first: the first block of the first wave.
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
 * Counts a block that is complete: called once for each block, in any order. Returns how many
 * further blocks may start, 0 unless it completes the oldest wave.
 */
uint32_t fanin_waves_completed(struct fanin_waves *waves, uint32_t block);

/* Returns how many blocks may be in flight. */
static inline uint32_t
fanin_waves_span(const struct fanin_waves *waves)
{
	return waves->wave_blocks * waves->n_waves;
}

#endif
