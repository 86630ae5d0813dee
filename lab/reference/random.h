/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small random generator with a visible seed, so that every run of a test does the same.
 */
#ifndef FANIN_LAB_REFERENCE_RANDOM_H
#define FANIN_LAB_REFERENCE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random {
	uint64_t state;
};

/* 32 random bits: the upper half of a linear congruential generator, whose low bits are poor. */
static inline uint32_t
random_u32(struct random *random)
{
	random->state = random->state * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
	return (uint32_t)(random->state >> 32);
}

static inline struct random
random_seed(uint64_t seed)
{
	struct random random = { seed };

	/* Seeds that differ by one give unrelated numbers only after a few steps. */
	for (int i = 0; i < 4; i++)
		random_u32(&random);
	return random;
}

/* 0 to limit - 1. */
static inline uint32_t
random_below(struct random *random, uint32_t limit)
{
	return (uint32_t)((uint64_t)random_u32(random) * limit >> 32);
}

/* True in this share of calls. */
static inline bool
random_chance(struct random *random, double share)
{
	return random_u32(random) < share * 4294967296.0;
}

#endif
