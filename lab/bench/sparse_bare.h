/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bare loops that the sparse handlers are compared with: scalar code that reads the same
 * packets, adds the values of f32 in an array or in a hash table with linear probing, and writes
 * the result's packets; no checks, no windows, no duplicates, no switch. One thread.
 */
#ifndef FANIN_LAB_BENCH_SPARSE_BARE_H
#define FANIN_LAB_BENCH_SPARSE_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "wire/wire.h"

/* Maximum of a block's packets that are kept. */
#define BARE_READ 256

struct bare_entry {
	uint32_t key; /* index + 1; 0: empty */
	float value;
};

struct bare_block {
	float *values;            /* array: span elements, zeros when a block begins */
	uint64_t *there;          /* array: the indices that have a value */
	struct bare_entry *table; /* hash: empty when a block begins */
	uint32_t n_values;        /* hash: number of values in the table */
	uint16_t left;            /* hosts whose last shard has not come */
	uint16_t n_read;
	struct rte_mbuf *read[BARE_READ]; /* packets that were read: results are written into them,
					     beginning with the last one */
};

struct bare {
	struct bare_block *blocks;
	uint32_t n_blocks;
	uint32_t first_block; /* number of blocks[0] */
	uint32_t span;
	uint32_t payload_bytes;
	uint32_t n_lanes; /* lanes of a table, more than a block has values; 0: arrays */
	uint16_t n_hosts;
	struct fanin_headers headers; /* of a result */
	struct rte_mbuf **stock; /* empty packets, for results that find no packet of their block */
	uint32_t n_stock;
	struct rte_mbuf **results; /* written packets; room for BARE_READ of each block */
	uint32_t n_results;
};

/*
 * Allocates blocks and results. The caller has set the other fields. Exits with an explanation if
 * it can't.
 */
void bare_make(struct bare *bare);

void bare_free(struct bare *bare);

/*
 * Runs the loop over the packets, which are whole blocks, in their order. The caller keeps the
 * packets.
 */
void bare_run(struct bare *bare, struct rte_mbuf *const *mbufs, uint32_t n);

#endif
