/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pull reductions on hosts (Klenk et al., section IV.B; protocols/pull/README.md): reliable
 * multicast in which each root, the owner, first makes its packets from the data of all ranks.
 * Owners send requests that switches multicast, and receive sums that switches have made of the
 * answers.
 */
#ifndef FANIN_PROTOCOLS_PULL_HOST_PULL_H
#define FANIN_PROTOCOLS_PULL_HOST_PULL_H

#include "hostlib/src/protocol/protocol.h"

struct fanin_pull_stats {
	uint64_t pulls;        /* packets whose result this rank has made */
	uint64_t requests;     /* requests (PULL) sent, by multicast */
	uint64_t busy;         /* requests that came back, as the first switch had no room */
	uint64_t merged;       /* sums of other ranks that were combined */
	uint64_t ranks_merged; /* ranks in these sums */
	uint64_t replaced;     /* sums that replaced what was there, with data of more ranks */
	uint64_t overlaps;     /* sums that were dropped, as some of their ranks were already in */
	uint64_t duplicates;   /* sums that brought no new rank, and late ones */
	uint64_t asks;         /* ASKs sent to single ranks */
	uint64_t given;        /* data that arrived in answer to ASKs */
	uint64_t answers;      /* data sent to owners, as RESPONSE or GIVE */
	uint64_t forgotten;    /* requests that were not answered, as too many were waiting */
	uint64_t again;        /* requests that repeated a very recent one */
	uint64_t closed; /* requests for operations that are done, or for packets whose result is
			    here */
};

extern struct fanin_protocol fanin_protocol_pull;

const struct fanin_pull_stats *fanin_pull_stats(struct fanin_endpoint *endpoint);

#endif
