/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse vectors of several ranks, the requests for their allreduce, and the expected result,
 * computed separately for each index.
 */
#ifndef FANIN_TESTS_UNIT_SPARSE_VECTORS_H
#define FANIN_TESTS_UNIT_SPARSE_VECTORS_H

#include "hostlib/src/request/request.h"
#include "hostlib/src/vector/vector.h"
#include "lab/reference/random.h"

#define SPARSE_MAX_RANKS 64

enum sparse_pattern {
	SPARSE_UNIFORM,   /* any index, with the same probability */
	SPARSE_CLUSTERED, /* runs of up to 200 indices in a row */
	SPARSE_SAME,      /* all ranks have the same indices */
	SPARSE_DISJOINT,  /* no two ranks have one in common */
	SPARSE_PATTERNS
};

struct sparse_vectors_options {
	uint64_t n;
	uint64_t seed;
	double hint;    /* for cutting blocks, the same at all ranks; 0: the largest of all ranks */
	double density; /* 0 to 1; above 0 there is at least one value */
	enum sparse_pattern pattern;
	uint16_t n_ranks;
	uint8_t dtype;
	uint8_t op;
	uint8_t index_bytes;
	bool dense;    /* the result is dense */
	bool in_place; /* the result is sparse and overwrites the vector that is sent */

	/*
	 * NULL, or the indices at which a rank has values, whatever pattern and density say, and
	 * the values' bits.
	 */
	bool (*has)(uint16_t rank, uint64_t index);
	uint64_t (*value)(uint16_t rank, uint64_t index);
};

struct sparse_vectors {
	struct sparse_vectors_options options;
	uint32_t element_bytes;
	uint64_t most; /* maximum of values at any rank */
	uint64_t nnz[SPARSE_MAX_RANKS];
	uint8_t *indices[SPARSE_MAX_RANKS];
	uint8_t *values[SPARSE_MAX_RANKS];
	struct fanin_sparse_result results[SPARSE_MAX_RANKS];
	struct fanin_request requests[SPARSE_MAX_RANKS]; /* with their sparse part */
	bool *expected_is_there;
	uint64_t *expected; /* bits of elements */
	uint64_t n_expected;
};

/* Makes the vectors. The library allocates results unless they are dense or in place. */
struct sparse_vectors *sparse_vectors_make(const struct sparse_vectors_options *options);

/* Makes the request of a rank like the public call, with the density known. */
void sparse_vectors_request(struct sparse_vectors *vectors, uint16_t rank);

/* Checks that all requests are done, with the expected results. */
void sparse_vectors_expect(const struct sparse_vectors *vectors);

/* Checks the result at one rank. */
void sparse_vectors_expect_result(const struct sparse_vectors *vectors,
				  const struct fanin_sparse_result *result);

void sparse_vectors_free(struct sparse_vectors *vectors);

#endif
