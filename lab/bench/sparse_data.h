/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions of the hosts of a sparse job, and the expected results: f32 values at uniformly
 * random indices, each rank's by itself, cut into shards by the host library. Sums are whole
 * numbers that f32 holds, so they are exact in any order.
 */
#ifndef FANIN_LAB_BENCH_SPARSE_DATA_H
#define FANIN_LAB_BENCH_SPARSE_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/shard.h"

/* Blocks that differ, and take turns. */
#define SPARSE_PATTERNS 7

/* A shard of a contribution. */
struct sparse_shard {
	uint64_t members; /* of its header */
	uint8_t *payload; /* owned */
	uint32_t len;
	uint16_t count;
};

struct sparse_data {
	uint32_t span;
	uint32_t payload_bytes; /* of a full packet */
	uint16_t n_hosts;
	uint32_t n_shards[SPARSE_PATTERNS];           /* of all hosts */
	struct sparse_shard *shards[SPARSE_PATTERNS]; /* host by host; owned */
	uint16_t *hosts[SPARSE_PATTERNS];             /* that the shards are of; owned */
	uint64_t n_values[SPARSE_PATTERNS];           /* of all contributions */
	uint32_t n_distinct[SPARSE_PATTERNS];         /* values of the result */
	float *sums[SPARSE_PATTERNS];                 /* span of them; owned */
	uint64_t *there[SPARSE_PATTERNS]; /* which indices have one, a bit each; owned */
};

/*
 * Makes the data for vectors of a density (0 to 1, of each rank) and packets of so many bytes.
 *
 * Exits with an explanation if it can't. Undone by sparse_data_free.
 */
void sparse_data_make(struct sparse_data *data, double density, uint32_t payload_bytes,
		      uint16_t n_hosts);

void sparse_data_free(struct sparse_data *data);

/* The shards of a block's result, put together as they come. */
struct sparse_seen {
	float *sums;       /* span of them; owned */
	uint64_t *there;   /* likewise, in bits */
	uint64_t in;       /* shards, a bitmap */
	uint8_t total;     /* what the last shard says; 0: it is missing */
	uint32_t n_values; /* in all shards: indices may come twice */
	uint64_t n_bytes;  /* of payload */
};

/* Without memory it exits. */
void sparse_seen_make(struct sparse_seen *seen, const struct sparse_data *data);
void sparse_seen_free(struct sparse_seen *seen);

/* Begins anew. */
void sparse_seen_clear(struct sparse_seen *seen, const struct sparse_data *data);

/* Adds a shard. Returns false if it is none of such a block, or has come before. */
bool sparse_seen_add(struct sparse_seen *seen, const struct sparse_data *data,
		     const struct fanin_hdr *hdr, const uint8_t *payload, uint32_t len);

/* Is it the whole result of a pattern, and right? */
bool sparse_seen_is(const struct sparse_seen *seen, const struct sparse_data *data,
		    uint32_t pattern);

#endif
