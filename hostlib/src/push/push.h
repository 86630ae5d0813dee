/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol of push reductions (docs/protocol.md, "Push"): the window protocol's engine, with other rules for when blocks are sent and asked for. Every rank is
 * home to some blocks: it merges what switches could not complete, asks ranks for what is lost, and tells all the result.
 */
#ifndef FANIN_HOSTLIB_PUSH_H
#define FANIN_HOSTLIB_PUSH_H

#include "hostlib/src/engine/engine.h"

/* For the rules' `open`. 0 takes the default. */
struct fanin_push_config {
	uint32_t entries; /* of the job's tables */
	uint32_t waves;
	uint32_t wave_blocks;
};

struct fanin_push_stats {
	uint64_t made;     /* blocks whose result this rank has made as their home host */
	uint64_t merged;   /* sums and data of other ranks that were combined there */
	uint64_t replaced; /* sums that contained all that was there */
	uint64_t overlaps; /* sums that were dropped, as some of their data was there */
	uint64_t asks;     /* questions to ranks for their data */
	uint64_t repeats;  /* results sent to a rank that asked */
	uint64_t answered; /* data sent to home hosts that asked */
	uint64_t ignored;  /* results of switches not taken, as the home host makes the block's */
};

extern const struct fanin_engine_rules fanin_push_rules;

/* As fanin_engine_poll. Of an engine that has failed others are told why, for a timeout. */
int fanin_push_poll(struct fanin_engine *engine);

/* As struct fanin_protocol has them. */
uint64_t fanin_push_idle_ns(const struct fanin_engine *engine);
unsigned int fanin_push_poll_fds(struct fanin_engine *engine, struct pollfd *fds);

/*
 * All requests are done, the last one a block without elements: tells that block's home host, or as its home host waits until all others have told. Returns false as
 * long as it has to be called again.
 */
bool fanin_push_say_bye(struct fanin_engine *engine);

const struct fanin_push_stats *fanin_push_stats(const struct fanin_engine *engine);

#endif
