/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions on hosts (Klenk et al., section IV.B; protocols/pull/README.md): reliable
 * multicast whose packets their roots, the owners, make before they send them, of what all ranks
 * have. Owners ask by requests that switches multicast, and get sums that switches have made of the
 * answers.
 */
#ifndef FANIN_PROTOCOLS_PULL_HOST_PULL_H
#define FANIN_PROTOCOLS_PULL_HOST_PULL_H

#include "hostlib/src/protocol/protocol.h"

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

extern struct fanin_protocol fanin_protocol_pull;

const struct fanin_pull_stats *fanin_pull_stats(struct fanin_endpoint *endpoint);

#endif
