/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions of the hosts of a sparse job, and the expected results: f32 values at uniformly
 * random indices, independently for each rank, cut into shards by the host library. Sums are whole
 * numbers that f32 represents, so they are exact in any order.
 */
#ifndef FANIN_LAB_BENCH_SPARSE_DATA_H
#define FANIN_LAB_BENCH_SPARSE_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/shard.h"

/* Number of different blocks, which are used in turn. */
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
	uint32_t n_shards[SPARSE_PATTERNS];           /* of all hosts together */
	struct sparse_shard *shards[SPARSE_PATTERNS]; /* host by host; owned */
	uint16_t *hosts[SPARSE_PATTERNS];             /* host of each shard; owned */
	uint64_t n_values[SPARSE_PATTERNS];           /* of all contributions */
	uint32_t n_distinct[SPARSE_PATTERNS];         /* values of the result */
	float *sums[SPARSE_PATTERNS];                 /* span elements each; owned */
	uint64_t *there[SPARSE_PATTERNS]; /* bits of the indices that have a value; owned */
};

/*
 * Makes the data for vectors of a density (0 to 1, for each rank) and packets of this many bytes.
 *
 * Exits with an explanation if it can't. sparse_data_free undoes it.
 */
void sparse_data_make(struct sparse_data *data, double density, uint32_t payload_bytes,
		      uint16_t n_hosts);

void sparse_data_free(struct sparse_data *data);

/* The shards of a block's result, merged as they come. */
struct sparse_seen {
	float *sums;       /* span elements; owned */
	uint64_t *there;   /* bits of the indices that have a value; owned */
	uint64_t in;       /* shards, a bitmap */
	uint8_t total;     /* number of shards as told by the last one; 0: it is missing */
	uint32_t n_values; /* in all shards: indices may come twice */
	uint64_t n_bytes;  /* of payload */
};

/* Allocates the memory. Exits if there is none. */
void sparse_seen_make(struct sparse_seen *seen, const struct sparse_data *data);
void sparse_seen_free(struct sparse_seen *seen);

/* Empties it. */
void sparse_seen_clear(struct sparse_seen *seen, const struct sparse_data *data);

/* Adds a shard. Returns false if it does not belong to such a block, or has come before. */
bool sparse_seen_add(struct sparse_seen *seen, const struct sparse_data *data,
		     const struct fanin_hdr *hdr, const uint8_t *payload, uint32_t len);

/* Returns true if it is the whole result of a pattern, with the expected values. */
bool sparse_seen_is(const struct sparse_seen *seen, const struct sparse_data *data,
		    uint32_t pattern);

#endif
