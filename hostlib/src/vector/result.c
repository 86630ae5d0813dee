/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The result of a sparse allreduce: merges blocks from their shards as these are complete, in any
 * order, and passes them to the caller once all are there. A sparse result may be written over the
 * data that this rank sends, so nothing is written to it before. See vector.h.
 */
#include "vector.h"

#include <stdlib.h>

/* Serial arithmetic on block numbers needs them all to lie within half of the number space. */
#define MAX_RESULT_BLOCKS (UINT32_MAX / 2)

struct fanin_vector_part {
	uint32_t count;
	uint8_t values[]; /* followed by the indices within the block, 4 bytes each */
};

int
fanin_vector_layout(struct fanin_vector *sparse, uint32_t payload_bytes)
{
	const uint32_t span = fanin_vector_span(sparse->n, sparse->most, sparse->element_bytes,
						payload_bytes);
	uint64_t n_blocks;

	if (span == 0)
		return fanin_error_set(
			&sparse->error, FANIN_ERR_UNSUPPORTED,
			"packets of %u bytes are too short for sparse blocks of %s, expected %u at least",
			payload_bytes, fanin_dtype_name(sparse->dtype),
			fanin_shard_bitmap_len(sparse->element_bytes, 64, 1));
	n_blocks = sparse->n == 0 ? 1 : (sparse->n - 1) / span + 1;
	if (n_blocks > MAX_RESULT_BLOCKS)
		return fanin_error_set(&sparse->error, FANIN_ERR_INVALID,
				       "%llu indices of %u per block exceed 2^31 blocks",
				       (unsigned long long)sparse->n, span);
	sparse->bits = calloc((span + 63) / 64, sizeof(*sparse->bits));
	if (sparse->result->dense == NULL) {
		sparse->scratch = malloc((size_t)span * sparse->element_bytes);
		sparse->parts = calloc(n_blocks, sizeof(*sparse->parts));
	}
	if (sparse->bits == NULL ||
	    (sparse->result->dense == NULL && (sparse->scratch == NULL || sparse->parts == NULL)))
		return fanin_error_set(&sparse->error, FANIN_ERR_NO_MEMORY,
				       "out of memory for %llu sparse blocks",
				       (unsigned long long)n_blocks);
	sparse->span = span;
	sparse->n_blocks = (uint32_t)n_blocks;
	return FANIN_OK;
}

/* Combines a value of a shard with the block's. to: the block's values. */
static void
value_take(struct fanin_vector *sparse, uint8_t *to, uint32_t index, const uint8_t *value)
{
	const uint64_t bit = UINT64_C(1) << index % 64;
	uint8_t *at = to + (size_t)index * sparse->element_bytes;

	if ((sparse->bits[index / 64] & bit) != 0) {
		sparse->combine(at, value, 1);
		return;
	}
	sparse->bits[index / 64] |= bit;
	memcpy(at, value, sparse->element_bytes);
}

static void
list_take(struct fanin_vector *sparse, uint8_t *to, const struct fanin_vector_shard *shard)
{
	const uint8_t *indices = shard->payload + shard->count * sparse->element_bytes;
	const uint32_t index_bytes = fanin_shard_index_bytes(shard->head.span);

	for (uint32_t i = 0; i < shard->count; i++) {
		uint32_t index = 0;

		memcpy(&index, indices + i * index_bytes, index_bytes);
		value_take(sparse, to, index, shard->payload + i * sparse->element_bytes);
	}
}

static void
bitmap_take(struct fanin_vector *sparse, uint8_t *to, const struct fanin_vector_shard *shard)
{
	const uint8_t *words = shard->payload + shard->count * sparse->element_bytes;
	const uint32_t first = fanin_shard_first(shard->payload, shard->payload_len);
	const uint32_t n_words = fanin_shard_words(sparse->element_bytes, shard->count,
						   shard->payload_len);
	const uint8_t *value = shard->payload;

	for (uint32_t i = 0; i < n_words; i++) {
		uint64_t word;

		memcpy(&word, words + i * sizeof(word), sizeof(word));
		for (; word != 0; word &= word - 1) {
			value_take(sparse, to, first + i * 64 + (uint32_t)__builtin_ctzll(word),
				   value);
			value += sparse->element_bytes;
		}
	}
}

static size_t
part_bytes(const struct fanin_vector *sparse, uint32_t count)
{
	return sizeof(struct fanin_vector_part) +
	       (size_t)count * (sparse->element_bytes + sizeof(uint32_t));
}

/*
 * Makes a list of a block's values at indices that have one. from: values of all indices. Returns
 * NULL without memory.
 */
static struct fanin_vector_part *
part_make(const struct fanin_vector *sparse, uint32_t block, const uint8_t *from, uint32_t count)
{
	const uint32_t element_bytes = sparse->element_bytes;
	struct fanin_vector_part *part = malloc(part_bytes(sparse, count));
	const uint32_t n_words = (fanin_vector_block_span(sparse, block) + 63) / 64;
	uint8_t *indices;
	uint32_t n = 0;

	if (part == NULL)
		return NULL;
	part->count = count;
	indices = part->values + (size_t)count * element_bytes;
	for (uint32_t i = 0; i < n_words; i++) {
		for (uint64_t word = sparse->bits[i]; word != 0; word &= word - 1) {
			const uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(word);

			memcpy(part->values + (size_t)n * element_bytes,
			       from + (size_t)index * element_bytes, element_bytes);
			fanin_vector_index_set(indices, sizeof(index), n, index);
			n++;
		}
	}
	return part;
}

/*
 * Keeps a block's values until all blocks are there, and in `known` if it is not NULL. from: as for
 * part_make.
 */
static int
part_keep(const struct fanin_vector *sparse, uint32_t block, const uint8_t *from, uint32_t count,
	  struct fanin_vector_part **known)
{
	struct fanin_vector_part *part = part_make(sparse, block, from, count);

	if (part == NULL)
		return FANIN_ERR_NO_MEMORY;
	if (sparse->parts == NULL) {
		*known = part;
		return FANIN_OK;
	}
	sparse->parts[block] = part;
	if (known == NULL)
		return FANIN_OK;
	*known = malloc(part_bytes(sparse, count));
	if (*known == NULL)
		return FANIN_ERR_NO_MEMORY;
	memcpy(*known, part, part_bytes(sparse, count));
	return FANIN_OK;
}

struct fanin_vector
fanin_vector_part_vector(const struct fanin_vector_part *part, const struct fanin_vector *sparse,
			 uint32_t block)
{
	const uint32_t span = fanin_vector_block_span(sparse, block);

	return (struct fanin_vector){
		.n = span,
		.nnz = part->count,
		.indices = part->values + (size_t)part->count * sparse->element_bytes,
		.values = part->values,
		.index_bytes = sizeof(uint32_t),
		.dtype = sparse->dtype,
		.op = sparse->op,
		.element_bytes = sparse->element_bytes,
		.span = span,
		.n_blocks = 1,
	};
}

int
fanin_vector_merge(struct fanin_vector *sparse, uint32_t block,
		   struct fanin_vector_shard *const *shards, unsigned int n, uint32_t *n_values,
		   struct fanin_vector_part **known)
{
	const uint32_t span = fanin_vector_block_span(sparse, block);
	const uint32_t n_words = (span + 63) / 64;
	const uint64_t begin = (uint64_t)block * sparse->span;
	uint8_t *to = sparse->scratch;
	uint32_t count = 0;
	int status = FANIN_OK;

	if (sparse->parts == NULL && sparse->n != 0) {
		to = (uint8_t *)sparse->result->dense + begin * sparse->element_bytes;
		memset(to, 0, (size_t)span * sparse->element_bytes);
	}
	for (unsigned int i = 0; i < n; i++) {
		if (shards[i]->head.form == FANIN_SHARD_BITMAP)
			bitmap_take(sparse, to, shards[i]);
		else
			list_take(sparse, to, shards[i]);
	}
	for (uint32_t i = 0; i < n_words; i++)
		count += (uint32_t)__builtin_popcountll(sparse->bits[i]);
	if (sparse->parts != NULL || known != NULL)
		status = part_keep(sparse, block, to, count, known);
	memset(sparse->bits, 0, n_words * sizeof(*sparse->bits));
	sparse->n_out += count;
	*n_values = count;
	return status;
}

int
fanin_vector_room(struct fanin_vector *sparse)
{
	struct fanin_sparse_result *result = sparse->result;
	const uint64_t count = sparse->n_out;

	result->count = count;
	if (result->indices != NULL) {
		if (count <= result->capacity)
			return FANIN_OK;
		return fanin_error_set(&sparse->error, FANIN_ERR_CAPACITY,
				       "the result has %llu values, capacity is %llu",
				       (unsigned long long)count,
				       (unsigned long long)result->capacity);
	}
	result->indices = malloc(count == 0 ? 1 : count * sparse->index_bytes);
	result->values = malloc(count == 0 ? 1 : count * sparse->element_bytes);
	result->allocated = true;
	if (result->indices != NULL && result->values != NULL)
		return FANIN_OK;
	fanin_sparse_result_free(result);
	return fanin_error_set(&sparse->error, FANIN_ERR_NO_MEMORY,
			       "out of memory for a result of %llu values",
			       (unsigned long long)count);
}

int
fanin_vector_finish(struct fanin_vector *sparse)
{
	struct fanin_sparse_result *result = sparse->result;
	const uint32_t element_bytes = sparse->element_bytes;
	uint64_t n = 0;
	int status;

	result->count = sparse->n_out;
	if (sparse->parts == NULL)
		return FANIN_OK;
	status = fanin_vector_room(sparse);
	for (uint32_t block = 0; block < sparse->n_blocks && status == FANIN_OK; block++) {
		const struct fanin_vector_part *part = sparse->parts[block];
		const uint8_t *indices = part->values + (size_t)part->count * element_bytes;

		memcpy((uint8_t *)result->values + n * element_bytes, part->values,
		       (size_t)part->count * element_bytes);
		for (uint32_t i = 0; i < part->count; i++)
			fanin_vector_index_set(result->indices, sparse->index_bytes, n + i,
					       (uint64_t)block * sparse->span +
						       fanin_vector_index(indices, 4, i));
		n += part->count;
	}
	return status;
}

int
fanin_vector_finish_alone(struct fanin_vector *sparse)
{
	struct fanin_sparse_result *result = sparse->result;
	const uint32_t element_bytes = sparse->element_bytes;
	int status;

	sparse->n_out = sparse->nnz;
	result->count = sparse->nnz;
	if (result->dense != NULL) {
		memset(result->dense, 0, sparse->n * element_bytes);
		for (uint64_t i = 0; i < sparse->nnz; i++)
			memcpy((uint8_t *)result->dense +
				       fanin_vector_index(sparse->indices, sparse->index_bytes, i) *
					       element_bytes,
			       sparse->values + i * element_bytes, element_bytes);
		return FANIN_OK;
	}
	status = fanin_vector_room(sparse);
	if (status != FANIN_OK || sparse->nnz == 0)
		return status;
	/* Both may be the same arrays. */
	memmove(result->indices, sparse->indices, sparse->nnz * sparse->index_bytes);
	memmove(result->values, sparse->values, sparse->nnz * element_bytes);
	return FANIN_OK;
}

void
fanin_vector_free(struct fanin_vector *sparse)
{
	if (sparse == NULL)
		return;
	for (uint32_t i = 0; sparse->parts != NULL && i < sparse->n_blocks; i++)
		free(sparse->parts[i]);
	free(sparse->parts);
	free(sparse->scratch);
	free(sparse->bits);
	free(sparse->coalesced);
	free(sparse);
}

void
fanin_sparse_result_free(struct fanin_sparse_result *result)
{
	if (result == NULL || !result->allocated)
		return;
	free(result->indices);
	free(result->values);
	result->indices = NULL;
	result->values = NULL;
	result->allocated = false;
}
