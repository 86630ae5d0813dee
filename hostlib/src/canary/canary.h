/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine of jobs with the handler `canary` (Canary, section 3; docs/protocol.md, "Canary"): the state of one rank, which leads every n-th block. A
 * leader merges what comes of its blocks, keeps its own data back until the end, and sends the result. No switch is joined: the ranks agree on a run
 * by rank 0's roll. Packets and time come in by a transport and a clock, random numbers when it is made. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_CANARY_H
#define FANIN_HOSTLIB_CANARY_H

#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_canary;

/* Numbers that tell this start of the rank from all others. */
struct fanin_canary_seed {
	uint64_t nonce; /* random */
	uint64_t roll;  /* random, not 0; rank 0's */
	uint32_t run; /* the least number of a run; rank 0's: larger than those of the job's earlier runs (RFC 1982) */
};

struct fanin_canary_stats {
	uint64_t blocks; /* results, each once */
	uint64_t bytes_reduced;
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t retransmits; /* data that was sent once more, for a leader asked */
	uint64_t duplicates;
	uint64_t invalid;
	uint64_t queries;
	uint64_t ways_changed; /* of the host's links, the one that packets take */
	/* As a leader. */
	uint64_t led;    /* blocks with a result */
	uint64_t merged; /* packets with data that was combined */
	uint64_t direct; /* of them those that no switch had combined, as a table was full or this rank had asked */
	uint64_t replaced; /* sums that contained all that was there */
	uint64_t overlaps; /* sums that were dropped, as some of their data was there */
	uint64_t asks;
	uint64_t restores;
	uint64_t repeats;
};

/*
 * Opens an endpoint, which calls the roll from the first poll on. Arguments and what it returns are those of struct fanin_protocol's `open`. config: `hosts` has the
 * addresses of all ranks.
 */
int fanin_canary_create(const struct fanin_protocol *protocol,
			const struct fanin_protocol_config *config,
			const struct fanin_canary_seed *seed, struct fanin_endpoint **endpoint,
			struct fanin_error *error);

/* Frees an endpoint without a goodbye. endpoint may be NULL. */
void fanin_canary_destroy(struct fanin_endpoint *endpoint);

/*
 * All requests are done, the last one a block without elements: tells that block's leader, or as its leader waits until all others have told. Returns false
 * as long as it has to be called again.
 */
bool fanin_canary_say_bye(struct fanin_endpoint *endpoint);

/* As struct fanin_protocol and struct fanin_switch_ops have them. */
int fanin_canary_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count);
int fanin_canary_poll(struct fanin_endpoint *endpoint);
uint64_t fanin_canary_idle_ns(struct fanin_endpoint *endpoint);
unsigned int fanin_canary_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds);
void fanin_canary_abort(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error);
bool fanin_canary_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem);
const struct fanin_error *fanin_canary_error(struct fanin_endpoint *endpoint);
void fanin_canary_missing(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks);
bool fanin_canary_peers_may_need_results(struct fanin_endpoint *endpoint);

/* Ranks that are merely late; a bitmap. */
uint64_t fanin_canary_late(struct fanin_endpoint *endpoint);

const struct fanin_canary_stats *fanin_canary_stats(struct fanin_endpoint *endpoint);

#endif
