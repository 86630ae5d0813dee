/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense vectors that may be sparse: sends their elements other than 0 as a sparse vector, if that
 * pays. See vector.h.
 */
#include "vector.h"

#include <stdlib.h>

/* 1 in fixed point, for fractions: products of two fit into a word. */
#define WHOLE_BITS 31
#define WHOLE (UINT64_C(1) << WHOLE_BITS)

/*
 * Returns the fraction of indices at which any of n_ranks ranks has a value, if each has values at
 * a fraction `part` of the indices, independently of the others.
 */
static uint64_t
part_with(uint64_t part, uint32_t n_ranks)
{
	uint64_t without = WHOLE;

	for (uint32_t i = 0; i < n_ranks && without != 0; i++)
		without = without * (WHOLE - part) >> WHOLE_BITS;
	return WHOLE - without;
}

/*
 * Returns the bytes that a dense allreduce sends to a rank per index of the vector, times WHOLE:
 * from a switch, or by a ring.
 */
static uint64_t
bytes_of_dense(uint32_t element_bytes, uint16_t n_ranks, bool on_switch)
{
	const uint64_t bytes = element_bytes * WHOLE;

	return on_switch ? bytes : 2 * bytes / n_ranks * (n_ranks - 1u);
}

/* Returns the same for a sparse result from a switch, with indices of 2 bytes or with a bitmap. */
static uint64_t
bytes_of_result(uint64_t part, uint32_t element_bytes, uint16_t n_ranks)
{
	const uint64_t values = part_with(part, n_ranks);
	const uint64_t list_bytes = values * (element_bytes + sizeof(uint16_t));
	const uint64_t bitmap_bytes = values * element_bytes + WHOLE / 8;

	return list_bytes < bitmap_bytes ? list_bytes : bitmap_bytes;
}

/*
 * Returns the same for all rounds of recursive doubling, which double the ranks in each vector,
 * with indices of 4 bytes.
 */
static uint64_t
bytes_of_doubling(uint64_t part, uint32_t element_bytes, uint16_t n_ranks)
{
	uint64_t bytes = 0;

	for (uint32_t ranks = 1; ranks < n_ranks; ranks *= 2)
		bytes += part_with(part, ranks) * (element_bytes + sizeof(uint32_t));
	return bytes;
}

bool
fanin_vector_pays(const struct fanin_vector *sparse, uint64_t most, uint16_t n_ranks,
		  bool on_switch)
{
	const uint32_t element_bytes = sparse->element_bytes;
	uint64_t n = sparse->n;
	uint64_t part, bytes;

	/* Products must fit into a word. */
	while (n >> 32 != 0) {
		n >>= 1;
		most >>= 1;
	}
	if (n == 0 || most >= n)
		return false;
	/* With integers all ranks find the same. */
	part = most * WHOLE / n;
	bytes = on_switch ? bytes_of_result(part, element_bytes, n_ranks)
			  : bytes_of_doubling(part, element_bytes, n_ranks);
	return bytes < bytes_of_dense(element_bytes, n_ranks, on_switch) / 4 * 3;
}

/* Returns the smallest number of values that does not pay. */
static uint64_t
min_too_many(const struct fanin_vector *sparse, uint16_t n_ranks, bool on_switch)
{
	uint64_t low = 0;
	uint64_t high = sparse->n;

	while (low < high) {
		const uint64_t middle = low + (high - low) / 2;

		if (fanin_vector_pays(sparse, middle, n_ranks, on_switch))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void
fanin_vector_of_dense(struct fanin_vector *sparse, const void *dense, uint16_t n_ranks,
		      bool on_switch)
{
	const uint64_t room = min_too_many(sparse, n_ranks, on_switch);
	struct fanin_compact_opts options = { .sz = sizeof(options) };
	uint8_t *values;
	uint8_t *indices;

	sparse->index_bytes = sparse->n >> 32 == 0 ? 4 : 8;
	options.index_bytes = sparse->index_bytes;
	/*
	 * Large memory is only reserved until it is used: one pass finds the values, or finds that
	 * there are too many.
	 */
	values = malloc(room * (sparse->element_bytes + sparse->index_bytes) + 1);
	/* Other ranks can't tell this vector from one that is full. */
	if (values == NULL) {
		sparse->nnz = sparse->n;
		return;
	}
	indices = values + room * sparse->element_bytes;
	fanin_vector_compact(dense, sparse->n, sparse->dtype, &options, indices, values, room,
			     &sparse->nnz);
	if (!fanin_vector_pays(sparse, sparse->nnz, n_ranks, on_switch)) {
		free(values);
		return;
	}
	sparse->coalesced = values;
	sparse->values = values;
	sparse->indices = indices;
}
