/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the handler `canary` of switches and the host protocol of its jobs share: the positions of
 * the job's parameters in struct fanin_job_params, and the rule that names a block's leader
 * (protocols/canary/README.md).
 */
#ifndef FANIN_PROTOCOLS_CANARY_CANARY_H
#define FANIN_PROTOCOLS_CANARY_CANARY_H

#include <stdint.h>

/* X(ENUMERATOR, name, least, most, usual, text) */
#define FANIN_CANARY_PARAMETERS(X)                                                                 \
	X(TIMEOUT, timeout_us, 0, 1000000, 0,                                                      \
	  "us that a descriptor waits for more; 0: as long as is learned from earlier blocks")     \
	X(MIN_TIMEOUT, least_us, 1, 100000, 20, "least timeout that is learned, us")               \
	X(MAX_TIMEOUT, most_us, 1, 1000000, 1000,                                                  \
	  "most timeout that is learned, us; packets that are further apart teach nothing")        \
	X(HOLD, hold_us, 1000, 60000000, 2000000,                                                  \
	  "us that a descriptor waits for the result; longer than hosts wait before they ask")     \
	X(SHARE, share_percent, 1, 100, 100,                                                       \
	  "most of the shared slots that the job may have, percent")

enum fanin_canary_parameter {
#define FANIN_CANARY_PARAMETER(name, ...) FANIN_CANARY_##name,
	FANIN_CANARY_PARAMETERS(FANIN_CANARY_PARAMETER)
#undef FANIN_CANARY_PARAMETER
};

/* Returns the leader of a block in a job of n_ranks (Canary section 3.1.4). */
static inline uint16_t
fanin_canary_leader(uint32_t block, uint16_t n_ranks)
{
	return (uint16_t)(block % n_ranks);
}

#endif
