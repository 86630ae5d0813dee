/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_vectors.h. */
#include "tests/unit/sparse_vectors.h"

#include <check.h>
#include <stdlib.h>

#include "lab/reference/kernel_reference.h"

#define MAX_RUN 200

/*
 * Returns the bits of a small number, so that sums of floats are exact in any order; sometimes of
 * -0.0. For bitwise operators returns any bits.
 */
static uint64_t
value_random(struct random *random, const struct sparse_vectors_options *options)
{
	const struct float_format *format = reference_format(options->dtype);
	const uint32_t small = 1 + random_below(random, options->op == FANIN_WIRE_PROD ? 2 : 4);
	const uint32_t bytes = fanin_dtype_size(options->dtype);
	uint64_t bits;

	if (format != NULL)
		return reference_encode(format, random_chance(random, 0.05) ? -0.0 : small);
	bits = (uint64_t)random_u32(random) << 32 | random_u32(random);
	return bits & (UINT64_MAX >> (64 - 8 * bytes));
}

/* Marks the indices at which a rank has values. */
static void
mark(const struct sparse_vectors_options *options, uint16_t rank, struct random *random, bool *has)
{
	const uint64_t n = options->n;
	const bool disjoint = options->pattern == SPARSE_DISJOINT;
	uint64_t left = (uint64_t)(options->density * (double)n);

	if (options->density > 0 && left == 0 && n != 0)
		left = 1;
	memset(has, 0, n * sizeof(*has));
	if (options->has != NULL) {
		for (uint64_t i = 0; i < n; i++)
			has[i] = options->has(rank, i);
		return;
	}
	if (options->density >= 1 && !disjoint) {
		memset(has, 1, n * sizeof(*has));
		return;
	}
	if (disjoint && left > n / options->n_ranks)
		left = n / options->n_ranks;
	while (left > 0) {
		uint64_t at = random_below(random, (uint32_t)n);
		uint64_t run = options->pattern == SPARSE_CLUSTERED
				       ? 1 + random_below(random, MAX_RUN)
				       : 1;

		/* Each rank has residues of its own. */
		if (disjoint)
			at = at / options->n_ranks * options->n_ranks + rank;
		for (; run > 0 && left > 0 && at < n; run--, at++) {
			left -= !has[at];
			has[at] = true;
		}
	}
}

/* Makes a rank's vector from its marks, and adds it to the expected result. */
static void
vector_make(struct sparse_vectors *vectors, uint16_t rank, struct random *random, const bool *has)
{
	const struct sparse_vectors_options *options = &vectors->options;
	uint64_t nnz = 0;

	for (uint64_t i = 0; i < options->n; i++)
		nnz += has[i];
	/* In place there must be room for the result. */
	vectors->indices[rank] = malloc((options->n + 1) * options->index_bytes);
	vectors->values[rank] = malloc((options->n + 1) * vectors->element_bytes);
	ck_assert(vectors->indices[rank] != NULL && vectors->values[rank] != NULL);
	vectors->nnz[rank] = nnz;
	vectors->most = nnz > vectors->most ? nnz : vectors->most;
	nnz = 0;
	for (uint64_t i = 0; i < options->n; i++) {
		uint64_t bits;

		if (!has[i])
			continue;
		bits = options->value != NULL ? options->value(rank, i)
					      : value_random(random, options);
		fanin_vector_index_set(vectors->indices[rank], options->index_bytes, nnz, i);
		memcpy(vectors->values[rank] + nnz * vectors->element_bytes, &bits,
		       vectors->element_bytes);
		nnz++;
		vectors->expected[i] = vectors->expected_is_there[i]
					       ? reference_combine(options->dtype, options->op,
								   vectors->expected[i], bits)
					       : bits;
		vectors->n_expected += !vectors->expected_is_there[i];
		vectors->expected_is_there[i] = true;
	}
}

static void
result_make(struct sparse_vectors *vectors, uint16_t rank)
{
	const struct sparse_vectors_options *options = &vectors->options;
	struct fanin_sparse_result *result = &vectors->results[rank];

	*result = (struct fanin_sparse_result){ .sz = sizeof(*result) };
	if (options->dense) {
		result->dense = malloc(options->n * vectors->element_bytes + 1);
		memset(result->dense, 0xee, options->n * vectors->element_bytes + 1);
	} else if (options->in_place) {
		result->indices = vectors->indices[rank];
		result->values = vectors->values[rank];
		result->capacity = options->n + 1;
	}
}

struct sparse_vectors *
sparse_vectors_make(const struct sparse_vectors_options *options)
{
	struct sparse_vectors *vectors = calloc(1, sizeof(*vectors));
	bool *has = malloc(options->n + 1);

	ck_assert(vectors != NULL && has != NULL);
	vectors->options = *options;
	vectors->element_bytes = fanin_dtype_size(options->dtype);
	vectors->expected = calloc(options->n + 1, sizeof(*vectors->expected));
	vectors->expected_is_there = calloc(options->n + 1, sizeof(bool));
	for (uint16_t rank = 0; rank < options->n_ranks; rank++) {
		const bool same = options->pattern == SPARSE_SAME;
		struct random places = random_seed(options->seed * 100 + (same ? 0 : rank));
		struct random data = random_seed(options->seed * 100 + 50 + rank);

		mark(options, rank, &places, has);
		vector_make(vectors, rank, &data, has);
		result_make(vectors, rank);
	}
	free(has);
	if (options->hint != 0)
		vectors->most = 1 + (uint64_t)(options->hint * (double)options->n);
	return vectors;
}

void
sparse_vectors_request(struct sparse_vectors *vectors, uint16_t rank)
{
	const struct sparse_vectors_options *options = &vectors->options;
	struct fanin_vector *sparse = malloc(sizeof(*sparse));
	struct fanin_error error = { 0 };

	ck_assert_ptr_nonnull(sparse);
	*sparse = (struct fanin_vector){
		.n = options->n,
		.nnz = vectors->nnz[rank],
		.indices = vectors->indices[rank],
		.values = vectors->values[rank],
		.result = &vectors->results[rank],
		.index_bytes = options->index_bytes,
		.dtype = options->dtype,
		.op = options->op,
		.element_bytes = (uint8_t)vectors->element_bytes,
		.is_known = true,
		.most = vectors->most,
	};
	ck_assert_msg(fanin_vector_check(sparse, false, &error) == FANIN_OK, "%s", error.text);
	vectors->requests[rank] = (struct fanin_request){
		.collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
		.sparse = sparse,
		.dtype = options->dtype,
		.op = options->op,
	};
}

/* Checks one element of a result. */
static void
expect_element(const struct sparse_vectors *vectors, uint64_t index, const uint8_t *element)
{
	const struct sparse_vectors_options *options = &vectors->options;
	uint64_t bits = 0;

	memcpy(&bits, element, vectors->element_bytes);
	ck_assert_msg(reference_same(options->dtype, options->op, bits, vectors->expected[index]),
		      "index %llu: found %llx, expected %llx", (unsigned long long)index,
		      (unsigned long long)bits, (unsigned long long)vectors->expected[index]);
}

void
sparse_vectors_expect_result(const struct sparse_vectors *vectors,
			     const struct fanin_sparse_result *result)
{
	const struct sparse_vectors_options *options = &vectors->options;
	uint64_t at = 0;

	ck_assert_uint_eq(result->count, vectors->n_expected);
	for (uint64_t i = 0; i < options->n; i++) {
		if (result->dense != NULL) {
			expect_element(vectors, i,
				       (const uint8_t *)result->dense + i * vectors->element_bytes);
			continue;
		}
		if (!vectors->expected_is_there[i])
			continue;
		ck_assert_uint_eq(fanin_vector_index(result->indices, options->index_bytes, at), i);
		expect_element(vectors, i,
			       (const uint8_t *)result->values + at * vectors->element_bytes);
		at++;
	}
	if (result->dense != NULL)
		ck_assert_uint_eq(
			((const uint8_t *)result->dense)[options->n * vectors->element_bytes],
			0xee);
}

void
sparse_vectors_expect(const struct sparse_vectors *vectors)
{
	for (uint16_t rank = 0; rank < vectors->options.n_ranks; rank++) {
		ck_assert_int_eq(vectors->requests[rank].status, FANIN_OK);
		ck_assert_uint_eq(vectors->requests[rank].done_bytes,
				  vectors->options.n * vectors->element_bytes);
		sparse_vectors_expect_result(vectors, &vectors->results[rank]);
	}
}

void
sparse_vectors_free(struct sparse_vectors *vectors)
{
	for (uint16_t rank = 0; rank < vectors->options.n_ranks; rank++) {
		fanin_vector_free(vectors->requests[rank].sparse);
		fanin_sparse_result_free(&vectors->results[rank]);
		free(vectors->results[rank].dense);
		free(vectors->indices[rank]);
		free(vectors->values[rank]);
	}
	free(vectors->expected);
	free(vectors->expected_is_there);
	free(vectors);
}
