/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse vectors of one allreduce (Flare section 7; protocols/sparse/README.md): how many indices a
 * block has, how this rank's data for a block is cut into shards, and how the shards of its result
 * are merged. Pure except for the struct and its memory; one thread at a time.
 */
#ifndef FANIN_HOSTLIB_VECTOR_VECTOR_H
#define FANIN_HOSTLIB_VECTOR_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "fanin/fanin.h"
#include "handlers/kernels/kernels.h"
#include "hostlib/src/base/error.h"
#include "wire/shard.h"

/*
 * The values of a block's result at ascending indices: kept until the whole result is known, and
 * for ranks that may lack it in another run.
 */
struct fanin_vector_part;

struct fanin_vector {
	/* The vector that this rank sends, and the place of its result: filled in by the owner. */
	uint64_t n; /* indices of the vector */
	uint64_t nnz;
	const uint8_t *indices;
	const uint8_t *values;
	struct fanin_sparse_result *result; /* the caller's */
	uint8_t index_bytes;                /* 4 or 8, of both */
	uint8_t dtype;
	uint8_t op;
	uint8_t element_bytes;
	bool is_hinted; /* the vector is a dense one, and is sent as a sparse one only if that pays
			 */
	bool is_known;  /* `most` is valid; if not, the ranks have to agree first */
	uint64_t most; /* the largest number of values that any rank sends, the same at all ranks */

	void *coalesced; /* indices and values, if they are not the caller's; owned */
	struct fanin_sparse_result whole; /* the result, if it is hinted */
	uint32_t span;                    /* indices of each block but the last one */
	uint32_t n_blocks;                /* 0: not laid out yet */
	uint64_t n_out;                   /* values of the result, of the blocks that are done */
	struct fanin_vector_part **parts; /* of each block; owned. NULL: the result is dense */
	uint8_t *scratch;                 /* a block's values; owned. NULL: the result is dense */
	uint64_t *bits;                   /* the indices of a block that have a value; owned */
	fanin_kernel_fn combine;
	struct fanin_error error; /* why the request failed, if the communicator has not */
};

/* This rank's data for a block, cut into shards. */
struct fanin_vector_cut {
	uint64_t first; /* position of the block's first value */
	uint32_t count;
	uint32_t span; /* of this block */
	uint8_t form;  /* enum fanin_shard_form */
	uint8_t n_shards;
	uint32_t starts[FANIN_SHARDS_MAX + 1]; /* for each shard, the number of the block's values
						  before it; then `count` */
};

/* A shard of a result, as received. */
struct fanin_vector_shard {
	struct fanin_vector_shard *next; /* the owner's */
	struct fanin_shard head;
	uint32_t payload_len;
	uint16_t count;
	uint8_t payload[]; /* as checked by fanin_shard_check */
};

/*
 * Checks the vector that this rank sends: its indices must ascend and be below n. Equal indices are
 * an error, unless they are to be coalesced, which is done here.
 *
 * sparse: with the owner's fields. Returns FANIN_OK, FANIN_ERR_INVALID with position, found and
 * expected, or FANIN_ERR_NO_MEMORY.
 */
int fanin_vector_check(struct fanin_vector *sparse, bool coalesce, struct fanin_error *error);

/*
 * True if an allreduce of sparse vectors is expected to take less time than one of dense vectors,
 * because fewer bytes are sent to each rank. Assumes that each rank has values at random indices.
 * If it is true for some number of values, it is true for smaller ones.
 *
 * sparse: its n and element_bytes. most: of n, the largest number of values that any rank sends.
 * on_switch: results come from a switch; else the ranks exchange vectors by recursive doubling, in
 * place of a ring.
 */
bool fanin_vector_pays(const struct fanin_vector *sparse, uint64_t most, uint16_t n_ranks,
		       bool on_switch);

/*
 * Makes a sparse vector of a dense vector's elements other than 0: sets index_bytes, nnz and, if
 * this pays, indices and values in memory of its own. n, dtype and element_bytes are set before.
 * dense: n elements, only read during the call.
 */
void fanin_vector_of_dense(struct fanin_vector *sparse, const void *dense, uint16_t n_ranks,
			   bool on_switch);

/*
 * Returns how many indices a block has such that a block with somewhat more values than the average
 * fills a packet: a multiple of 64; 0 if packets are too short for 64 values. most: of n, the
 * largest number of values that any rank sends.
 */
uint32_t fanin_vector_span(uint64_t n, uint64_t most, uint32_t element_bytes,
			   uint32_t payload_bytes);

/*
 * Cuts the vector into blocks and allocates memory for the result. `is_known` must be set.
 *
 * n_blocks: set on success only. Returns FANIN_OK, FANIN_ERR_NO_MEMORY, FANIN_ERR_INVALID if there
 * are more than 2^31 blocks, or FANIN_ERR_UNSUPPORTED if packets are too short; with the request's
 * error set.
 */
int fanin_vector_layout(struct fanin_vector *sparse, uint32_t payload_bytes);

/* Returns the indices of a block. block: counts from 0, here and below. */
static inline uint32_t
fanin_vector_block_span(const struct fanin_vector *sparse, uint32_t block)
{
	const uint64_t left = sparse->n - (uint64_t)block * sparse->span;

	if (sparse->n == 0)
		return 1;
	return left < sparse->span ? (uint32_t)left : sparse->span;
}

/* Cuts this rank's data for a block: the same every time, in the shorter one of both forms. */
void fanin_vector_cut(const struct fanin_vector *sparse, uint32_t block, uint32_t payload_bytes,
		      struct fanin_vector_cut *cut);

/*
 * Makes a shard of a cut.
 *
 * hdr: gets count and members. payload: room for payload_bytes of the cut. Returns the payload's
 * length.
 */
uint32_t fanin_vector_make(const struct fanin_vector *sparse, uint32_t block,
			   const struct fanin_vector_cut *cut, unsigned int number,
			   struct fanin_hdr *hdr, void *payload);

/*
 * Combines all shards of a block's result in the order of their numbers, and keeps the block's
 * result: in the caller's vector if that is dense, else until fanin_vector_finish.
 *
 * shards: n of them, by number. n_values: receives how many indices have a value. known: NULL, or
 * receives a copy of the block's result, for the caller to keep and to free. Returns FANIN_OK, or
 * FANIN_ERR_NO_MEMORY without anything in `known`.
 */
int fanin_vector_merge(struct fanin_vector *sparse, uint32_t block,
		       struct fanin_vector_shard *const *shards, unsigned int n, uint32_t *n_values,
		       struct fanin_vector_part **known);

/*
 * Returns the result of a block as a vector of a single block, number 0, that this rank can send:
 * cut into the same shards on all ranks.
 *
 * part: of this block of this vector; must stay in place as long as the returned vector is used,
 * which owns nothing.
 */
struct fanin_vector fanin_vector_part_vector(const struct fanin_vector_part *part,
					     const struct fanin_vector *sparse, uint32_t block);

/*
 * Finds room for a sparse result of n_out values in the caller's arrays, or allocates it; sets the
 * result's count in any case. Returns FANIN_OK, or FANIN_ERR_CAPACITY or FANIN_ERR_NO_MEMORY with
 * the request's error set.
 */
int fanin_vector_room(struct fanin_vector *sparse);

/*
 * Passes the result to the caller once all blocks are merged. Returns FANIN_OK, FANIN_ERR_CAPACITY
 * or FANIN_ERR_NO_MEMORY with the request's error set.
 */
int fanin_vector_finish(struct fanin_vector *sparse);

/*
 * Makes the result of the only rank, which is its own data. Returns as fanin_vector_finish does;
 * there is no layout.
 */
int fanin_vector_finish_alone(struct fanin_vector *sparse);

/* Implements fanin_compact for checked arguments. options: with an index_bytes of 4 or 8. */
int fanin_vector_compact(const void *dense, uint64_t n, unsigned int dtype,
			 const struct fanin_compact_opts *options, void *indices, void *values,
			 uint64_t capacity, uint64_t *count);

/* Frees the vector with all memory that it owns; may be NULL. */
void fanin_vector_free(struct fanin_vector *sparse);

/* Returns the index at a position of an array of indices of 4 or 8 bytes, at any address. */
static inline uint64_t
fanin_vector_index(const void *indices, uint8_t index_bytes, uint64_t position)
{
	uint64_t index = 0;

	memcpy(&index, (const uint8_t *)indices + position * index_bytes, index_bytes);
	return index;
}

/* Writes an index to a position of such an array. */
static inline void
fanin_vector_index_set(void *indices, uint8_t index_bytes, uint64_t position, uint64_t index)
{
	memcpy((uint8_t *)indices + position * index_bytes, &index, index_bytes);
}

#endif
