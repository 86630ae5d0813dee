/* SPDX-License-Identifier: BSD-3-Clause */
/* The wave controller: see waves.h. */
#include "waves.h"

#include <string.h>

/*
 * Enough to hide the synchronization in figure 10 of the paper, for pulls, and for pushes on one
 * switch.
 */
#define WAVES_USUAL 16u

static uint32_t
at_most(uint32_t value, uint32_t most)
{
	return value < most ? value : most;
}

static uint32_t
at_least_one(uint32_t value)
{
	return value == 0 ? 1 : value;
}

void
fanin_waves_open(struct fanin_waves *waves, const struct fanin_waves_config *config, uint32_t first)
{
	const uint32_t limit = at_least_one(config->limit);
	const uint32_t capacity = config->capacity == 0 ? limit : at_most(config->capacity, limit);
	uint32_t n_waves = config->n_waves;
	uint32_t wave_blocks = config->wave_blocks;

	if (n_waves == 0 && wave_blocks == 0)
		n_waves = WAVES_USUAL;
	if (n_waves == 0)
		n_waves = capacity / wave_blocks;
	n_waves = at_most(at_least_one(n_waves), FANIN_WAVES_MAX);
	if (wave_blocks == 0) {
		n_waves = at_most(n_waves, capacity);
		wave_blocks = capacity / n_waves;
	}
	wave_blocks = at_most(wave_blocks, limit);
	n_waves = at_most(n_waves, limit / wave_blocks);
	memset(waves, 0, sizeof(*waves));
	waves->first = first;
	waves->wave_blocks = wave_blocks;
	waves->n_waves = n_waves;
}

uint32_t
fanin_waves_completed(struct fanin_waves *waves, uint32_t block)
{
	const uint32_t ahead = block - waves->first;
	uint32_t credits = 0;

	if (ahead >= fanin_waves_span(waves))
		return 0;
	waves->complete[(waves->oldest + ahead / waves->wave_blocks) % waves->n_waves]++;
	while (waves->complete[waves->oldest] == waves->wave_blocks) {
		waves->complete[waves->oldest] = 0;
		waves->oldest = (waves->oldest + 1) % waves->n_waves;
		waves->first += waves->wave_blocks;
		credits += waves->wave_blocks;
	}
	return credits;
}
