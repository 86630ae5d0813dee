/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data that a rank sends: checks its indices, and coalesces equal ones if asked to. See
 * vector.h.
 */
#include "vector.h"

#include <stdlib.h>

/* Reports an invalid index. previous: the index before it. */
static int
index_problem(const struct fanin_vector *sparse, uint64_t position, uint64_t index,
	      uint64_t previous, bool coalesce, struct fanin_error *error)
{
	if (index >= sparse->n)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "indices[%llu] is %llu, expected less than n, which is %llu",
				       (unsigned long long)position, (unsigned long long)index,
				       (unsigned long long)sparse->n);
	if (index == previous && !coalesce)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"indices[%llu] is %llu, as is the one before it, expected each index once: "
			"`coalesce` combines the values of equal ones",
			(unsigned long long)position, (unsigned long long)index);
	return fanin_error_set(
		error, FANIN_ERR_INVALID,
		"indices[%llu] is %llu, expected more than the one before it, which is %llu",
		(unsigned long long)position, (unsigned long long)index,
		(unsigned long long)previous);
}

/* Copies the caller's vector, and combines the values of equal indices in their order. */
static int
input_coalesce(struct fanin_vector *sparse, uint64_t n_distinct, struct fanin_error *error)
{
	const uint8_t index_bytes = sparse->index_bytes;
	const uint8_t element_bytes = sparse->element_bytes;
	/* The values come first, as they may need the larger alignment. */
	uint8_t *values = malloc(n_distinct * (index_bytes + element_bytes));
	uint8_t *indices = values + n_distinct * element_bytes;
	uint64_t last = 0;
	uint64_t n = 0;

	if (values == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for %llu indices without duplicates",
				       (unsigned long long)n_distinct);
	for (uint64_t i = 0; i < sparse->nnz; i++) {
		const uint64_t index = fanin_vector_index(sparse->indices, index_bytes, i);
		const uint8_t *value = sparse->values + i * element_bytes;

		if (n != 0 && index == last) {
			sparse->combine(values + (n - 1) * element_bytes, value, 1);
			continue;
		}
		fanin_vector_index_set(indices, index_bytes, n, index);
		memcpy(values + n * element_bytes, value, element_bytes);
		last = index;
		n++;
	}
	sparse->coalesced = values;
	sparse->values = values;
	sparse->indices = indices;
	sparse->nnz = n;
	return FANIN_OK;
}

int
fanin_vector_check(struct fanin_vector *sparse, bool coalesce, struct fanin_error *error)
{
	uint64_t n_equal = 0;
	uint64_t previous = 0;

	sparse->combine = fanin_kernel(fanin_isa_detect(), sparse->dtype, sparse->op);
	for (uint64_t i = 0; i < sparse->nnz; i++) {
		const uint64_t index = fanin_vector_index(sparse->indices, sparse->index_bytes, i);
		const bool equal = i != 0 && index == previous;

		if (index >= sparse->n || (i != 0 && index < previous) || (equal && !coalesce))
			return index_problem(sparse, i, index, previous, coalesce, error);
		n_equal += equal;
		previous = index;
	}
	return n_equal == 0 ? FANIN_OK : input_coalesce(sparse, sparse->nnz - n_equal, error);
}
