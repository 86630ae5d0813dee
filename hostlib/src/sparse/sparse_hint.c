/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense vectors that may be sparse: their elements that are not 0 are the values of a sparse vector, if that is worth it. See sparse.h.
 */
#include "sparse.h"

#include <stdlib.h>

/* 1, of parts: their products fit into a word. */
#define WHOLE_BITS 31
#define WHOLE (UINT64_C(1) << WHOLE_BITS)

/* The part of indices at which no rank has a value, if each has some at `part` of them, regardless of what others have. */
static uint64_t
part_without(uint64_t part, uint16_t n_ranks)
{
	uint64_t without = WHOLE;

	for (uint16_t i = 0; i < n_ranks && without != 0; i++)
		without = without * (WHOLE - part) >> WHOLE_BITS;
	return without;
}

bool
fanin_sparse_vector_pays(uint64_t n, uint64_t most, uint16_t n_ranks, uint32_t element_bytes)
{
	const uint64_t dense_bytes = element_bytes * WHOLE;
	uint64_t values, list_bytes, bitmap_bytes, bytes;

	/* Products fit into a word. */
	while (n >> 32 != 0) {
		n >>= 1;
		most >>= 1;
	}
	if (n == 0 || most >= n)
		return false;
	/* Integers, so that all ranks find the same. Per index of the vector, in bytes times WHOLE. */
	values = WHOLE - part_without(most * WHOLE / n, n_ranks);
	list_bytes = values * (element_bytes + sizeof(uint16_t));
	bitmap_bytes = values * element_bytes + WHOLE / 8;
	bytes = list_bytes < bitmap_bytes ? list_bytes : bitmap_bytes;
	return bytes < dense_bytes / 4 * 3;
}

void
fanin_sparse_vector_of_dense(struct fanin_sparse_vector *sparse, const void *dense, uint16_t n_ranks)
{
	struct fanin_compact_opts options = { .sz = sizeof(options) };
	uint8_t *values;

	sparse->index_bytes = sparse->n >> 32 == 0 ? 4 : 8;
	options.index_bytes = sparse->index_bytes;
	/* Without room it only counts, which is FANIN_ERR_CAPACITY. */
	fanin_sparse_vector_compact(dense, sparse->n, sparse->dtype, &options, NULL, NULL, 0,
				    &sparse->nnz);
	if (!fanin_sparse_vector_pays(sparse->n, sparse->nnz, n_ranks, sparse->element_bytes))
		return;
	values = malloc(sparse->nnz * (sparse->element_bytes + sparse->index_bytes) + 1);
	/* The others can't tell that from a vector that is full. */
	if (values == NULL) {
		sparse->nnz = sparse->n;
		return;
	}
	sparse->coalesced = values;
	sparse->values = values;
	sparse->indices = values + sparse->nnz * sparse->element_bytes;
	fanin_sparse_vector_compact(dense, sparse->n, sparse->dtype, &options,
				    values + sparse->nnz * sparse->element_bytes, values,
				    sparse->nnz, &sparse->nnz);
}
