/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions on hosts (Klenk et al., section IV.B; docs/protocol.md, "Pull"): reliable multicast whose packets their roots, the owners, make before they send
 * them, of what all ranks have. Owners ask by requests that switches multicast, and get sums that switches have made of the answers.
 */
#ifndef FANIN_HOSTLIB_PULL_H
#define FANIN_HOSTLIB_PULL_H

#include "hostlib/src/multicast/multicast.h"

/* Constant while the engine is being opened; copied. */
struct fanin_pull_config {
	struct fanin_multicast_config multicast; /* first: a pointer to it is one to this */
	uint32_t entries;                        /* sums that a switch keeps for the job */
	uint32_t waves;                          /* outstanding waves; 0: as many as suit */
	uint32_t wave_blocks;                    /* pulls of a wave; 0: likewise */
	uint64_t timeout_ns;                     /* of sums in switches */
};

struct fanin_pull_stats {
	uint64_t pulls;        /* packets that this rank has made */
	uint64_t requests;     /* sent for them, by multicast */
	uint64_t busy;         /* of these, those that came back */
	uint64_t merged;       /* sums that were combined */
	uint64_t ranks_merged; /* the ranks in them */
	uint64_t replaced;     /* those of them that took the place of what was there */
	uint64_t overlaps;   /* sums that were dropped, for some of their data was there already */
	uint64_t duplicates; /* those with nothing new */
	uint64_t asks;       /* packets that asked a rank directly */
	uint64_t given;      /* data that came in answer to them */
	uint64_t answers;    /* sent to owners, by either way */
	uint64_t forgotten;  /* requests without an answer, as too many waited for one */
	uint64_t again;      /* requests for what was asked for just before */
	uint64_t closed; /* requests of operations that are done, or for packets that are there */
};

extern const struct fanin_engine_rules fanin_pull_rules;

/*
 * Posts an allreduce, reduce or reduce_scatter of at least one byte, among 2 to 64 ranks, to an engine with these rules. The rest is as for fanin_multicast_post;
 * FANIN_ERR_INVALID, too, if packets and ranks exceed 2^32.
 */
int fanin_pull_post(struct fanin_engine *engine, struct fanin_request *request, uint32_t n_packets);

/* As struct fanin_protocol has them. */
int fanin_pull_post_any(void *memory, struct fanin_request *request, uint64_t count);
uint64_t fanin_pull_idle_ns(const struct fanin_engine *engine);

const struct fanin_pull_stats *fanin_pull_stats(const struct fanin_engine *engine);

#endif
