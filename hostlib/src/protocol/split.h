/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests over several engines of one protocol, one for each tree of a job (PANAMA's static trees;
 * Canary section 2). The blocks of all requests, one after the other, go round robin over the
 * trees. So all engines have equally many blocks, and none knows of the others. One thread at a
 * time.
 *
 * All ranks have the same trees in the same order and cut their requests alike, so a block is in
 * the same tree everywhere.
 */
#ifndef FANIN_HOSTLIB_SPLIT_H
#define FANIN_HOSTLIB_SPLIT_H

#include <stdint.h>

#include "protocol.h"

struct fanin_split {
	const struct fanin_protocol *protocol;             /* runs on switches */
	struct fanin_endpoint *endpoints[FANIN_MAX_TREES]; /* of the protocol, owned by the caller;
							      with the same rank, size and payload
							    */
	uint16_t n_endpoints;
	uint16_t next; /* engine of the next block to be posted */
	int status;    /* FANIN_OK, or the error that it failed with */
	struct fanin_error error;
};

/*
 * Takes a request that its owner has filled in, and posts a part of it to each engine. The request
 * is done when all parts are. fanin_split_free frees what is allocated for them.
 *
 * Returns what the protocol's post returns, or FANIN_ERR_NO_MEMORY; then nothing is posted. If
 * posting fails after some parts are posted, all engines and requests fail.
 */
int fanin_split_post(struct fanin_split *split, struct fanin_request *request, uint64_t count);

/*
 * Fails all engines and every request, unless they have failed already. status: negative. error:
 * the reason; copied.
 */
void fanin_split_abort(struct fanin_split *split, int status, const struct fanin_error *error);

/*
 * To be called after polling the engines: if one has failed, fails all of them and every request.
 * Returns FANIN_OK or the status.
 */
int fanin_split_settle(struct fanin_split *split);

/* Returns how many bytes of a request are done, whether it has parts or not. */
uint64_t fanin_split_done_bytes(const struct fanin_request *request);

/* Frees the parts of a request that is no longer posted, if it has any. */
void fanin_split_free(struct fanin_request *request);

#endif
