/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces without a switch (protocols/ring/host/ring_doubling.c): results are the union
 * of all indices, with the same bits at all ranks in the documented order; what is sent is what the
 * published algorithm sends; ranks that are late, gone or wrong are told as in the ring.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostlib/src/comm/comm.h"
#include "protocols/ring/host/ring_internal.h"
#include "lab/reference/kernel_reference.h"
#include "protocols/ring/tests/ring_rig.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"

static const uint16_t rank_counts[] = { 1, 2, 3, 5, 8, 16 };
static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.2, 1 };

#define N(array) (sizeof(array) / sizeof((array)[0]))

static struct sparse_vectors_options
options_of(const struct rig *rig, uint64_t n, double density, enum sparse_pattern pattern)
{
	return (struct sparse_vectors_options){
		.n = n,
		.seed = 1,
		.density = density,
		.pattern = pattern,
		.n_ranks = rig->n_ranks,
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.index_bytes = 4,
	};
}

static void
post(struct sparse_vectors *vectors, const struct rig *rig, uint16_t rank)
{
	sparse_vectors_request(vectors, rank);
	/* Nobody needs to know it. */
	vectors->requests[rank].sparse->is_known = false;
	vectors->requests[rank].sparse->most = 0;
	ck_assert_int_eq(fanin_ring_post(rig->rings[rank], &vectors->requests[rank],
					 vectors->options.n),
			 FANIN_OK);
}

static void
post_all(struct sparse_vectors *vectors, const struct rig *rig)
{
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++)
		post(vectors, rig, rank);
}

/* Steps until no rank that is polled has it in progress; returns the time by the rig's clock. */
static uint64_t
run(const struct sparse_vectors *vectors, struct rig *rig)
{
	const uint64_t started_ns = rig->now_ns;

	for (uint16_t rank = 0; rank < rig->n_ranks; rank++) {
		while (rig->rings[rank] != NULL && !rig->paused[rank] &&
		       vectors->requests[rank].status == FANIN_IN_PROGRESS) {
			ck_assert_uint_lt(rig->now_ns - started_ns, 50 * TIMEOUT_NS);
			rig_step(rig);
		}
	}
	return rig->now_ns - started_ns;
}

static void
expect_ok(const struct sparse_vectors *vectors, const struct rig *rig)
{
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++)
		ck_assert_msg(vectors->requests[rank].status == FANIN_OK, "rank %u of %u: %s %s",
			      rank, rig->n_ranks, vectors->requests[rank].sparse->error.text,
			      fanin_ring_error(rig->rings[rank])->text);
	sparse_vectors_expect(vectors);
}

/* All ranks have the same bits, also of NaNs. */
static void
expect_same_bits(const struct sparse_vectors *vectors)
{
	const struct fanin_sparse_result *first = &vectors->results[0];

	for (uint16_t rank = 1; rank < vectors->options.n_ranks; rank++) {
		const struct fanin_sparse_result *result = &vectors->results[rank];

		if (first->dense != NULL) {
			ck_assert_mem_eq(result->dense, first->dense,
					 vectors->options.n * vectors->element_bytes);
		} else if (first->count != 0) {
			ck_assert_mem_eq(result->values, first->values,
					 first->count * vectors->element_bytes);
			ck_assert_mem_eq(result->indices, first->indices,
					 first->count * vectors->options.index_bytes);
		}
	}
}

static void
allreduce(struct rig *rig, const struct sparse_vectors_options *options)
{
	struct sparse_vectors *vectors = sparse_vectors_make(options);

	post_all(vectors, rig);
	run(vectors, rig);
	expect_ok(vectors, rig);
	expect_same_bits(vectors);
	sparse_vectors_free(vectors);
}

/* ---------------------------------------------------------------- results */

START_TEST(every_type_and_operator_gives_the_union)
{
	struct rig rig;
	unsigned int n_pairs = 0;

	rig_create(&rig, rank_counts[_i], false);
	for (uint8_t dtype = FANIN_WIRE_I8; dtype <= FANIN_WIRE_F64; dtype++) {
		for (uint8_t op = FANIN_WIRE_SUM; op < FANIN_WIRE_AVG; op++) {
			if (fanin_kernel(fanin_isa_detect(), dtype, op) == NULL)
				continue;
			for (size_t i = 0; i < N(densities) * SPARSE_PATTERNS; i++) {
				struct sparse_vectors_options options =
					options_of(&rig, 1000 + 37 * i, densities[i % N(densities)],
						   (enum sparse_pattern)(i / N(densities)));

				options.dtype = dtype;
				options.op = op;
				options.seed = i + 1;
				options.index_bytes = i % 5 == 0 ? 8 : 4;
				options.dense = (i + n_pairs) % 3 == 0;
				options.in_place = (i + n_pairs) % 3 == 1;
				allreduce(&rig, &options);
			}
			n_pairs++;
		}
	}
	/* 10 on each of 8 integers, 4 on each of 4 floats. */
	ck_assert_uint_eq(n_pairs, 8 * 10 + 4 * 4);
	rig_destroy(&rig);
}
END_TEST

START_TEST(any_number_of_ranks_gives_the_union)
{
	const uint16_t n_ranks = (uint16_t)(_i + 1);
	struct sparse_vectors_options options;
	struct rig rig;

	rig_create(&rig, n_ranks, false);
	for (size_t i = 0; i < N(densities); i++) {
		options = options_of(&rig, 3000, densities[i], (enum sparse_pattern)(i % 4));
		options.dense = i % 2 == 0;
		allreduce(&rig, &options);
	}
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		ck_assert_uint_le(fanin_ring_of(rig.rings[rank])->n_links, FANIN_RING_LINKS);
	rig_destroy(&rig);
}
END_TEST

/* A rank's value at an index. Returns false if it has none. */
static bool
value_of(const struct sparse_vectors *vectors, uint16_t rank, uint64_t index, uint64_t *bits)
{
	for (uint64_t i = 0; i < vectors->nnz[rank]; i++) {
		if (fanin_vector_index(vectors->indices[rank], vectors->options.index_bytes, i) !=
		    index)
			continue;
		*bits = 0;
		memcpy(bits, vectors->values[rank] + i * vectors->element_bytes,
		       vectors->element_bytes);
		return true;
	}
	return false;
}

/* Combines what two ranges have, the lower one first, into the lower one. */
static void
ranges_combine(const struct sparse_vectors *vectors, bool *lower_has, uint64_t *lower,
	       bool upper_has, uint64_t upper)
{
	if (*lower_has && upper_has)
		*lower = reference_combine(vectors->options.dtype, vectors->options.op, *lower,
					   upper);
	else if (upper_has)
		*lower = upper;
	*lower_has = *lower_has || upper_has;
}

/*
 * Returns the expected result at an index: first the pairs of surplus ranks are combined, then
 * ranges of twice as many places each time.
 */
static void
order_expect(struct sparse_vectors *vectors, uint64_t index)
{
	const uint16_t n_ranks = vectors->options.n_ranks;
	uint64_t bits[SPARSE_MAX_RANKS] = { 0 };
	bool has[SPARSE_MAX_RANKS];
	uint16_t n_places = 1;
	uint16_t n_pairs;

	while (2 * n_places <= n_ranks)
		n_places *= 2;
	n_pairs = n_ranks - n_places;
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		has[rank] = value_of(vectors, rank, index, &bits[rank]);
	for (uint16_t place = 0; place < n_places; place++) {
		const uint16_t rank = place < n_pairs ? 2 * place : place + n_pairs;

		if (place < n_pairs)
			ranges_combine(vectors, &has[rank], &bits[rank], has[rank + 1],
				       bits[rank + 1]);
		has[place] = has[rank];
		bits[place] = bits[rank];
	}
	for (uint16_t range = 1; range < n_places; range *= 2) {
		for (uint16_t place = 0; place < n_places; place += 2 * range)
			ranges_combine(vectors, &has[place], &bits[place], has[place + range],
				       bits[place + range]);
	}
	ck_assert(has[0] == vectors->expected_is_there[index]);
	vectors->expected[index] = bits[0];
}

/* Values whose result shows the order: sums are rounded, NaNs have payloads, zeros a sign. */
START_TEST(values_are_combined_in_the_order_of_ranks)
{
	static const uint8_t dtypes[] = { FANIN_WIRE_F16, FANIN_WIRE_BF16, FANIN_WIRE_F32,
					  FANIN_WIRE_F64 };
	struct random random = random_seed((uint64_t)_i + 1);
	struct rig rig;

	rig_create(&rig, rank_counts[_i], false);
	for (size_t i = 0; i < N(dtypes) * 4 * 3; i++) {
		static const double some[] = { 0.05, 0.4, 1 };
		struct sparse_vectors_options options = options_of(&rig, 500, some[i % 3],
								   SPARSE_UNIFORM);
		struct sparse_vectors *vectors;

		options.dtype = dtypes[i / 3 % N(dtypes)];
		options.op = (uint8_t)(FANIN_WIRE_SUM + i / 12);
		options.dense = i % 2 == 0;
		vectors = sparse_vectors_make(&options);
		for (uint16_t rank = 0; rank < rig.n_ranks; rank++) {
			for (uint64_t k = 0; k < vectors->nnz[rank]; k++) {
				const uint64_t bits = reference_random(&random, options.dtype);

				memcpy(vectors->values[rank] + k * vectors->element_bytes, &bits,
				       vectors->element_bytes);
			}
		}
		for (uint64_t index = 0; index < options.n; index++)
			order_expect(vectors, index);
		post_all(vectors, &rig);
		run(vectors, &rig);
		expect_ok(vectors, &rig);
		expect_same_bits(vectors);
		sparse_vectors_free(vectors);
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(vectors_of_any_length)
{
	static const uint64_t lengths[] = {
		0, 1, 2, 63, 64, 65, 127, 128, 129, 4095, 4096, 100003
	};
	struct rig rig;

	rig_create(&rig, 5, false);
	for (size_t i = 0; i < N(lengths) * N(densities); i++) {
		struct sparse_vectors_options options =
			options_of(&rig, lengths[i / N(densities)], densities[i % N(densities)],
				   (enum sparse_pattern)(i % SPARSE_PATTERNS));

		options.dense = i % 2 == 0;
		options.dtype = i % 3 == 0 ? FANIN_WIRE_U8 : FANIN_WIRE_F64;
		allreduce(&rig, &options);
	}
	rig_destroy(&rig);
}
END_TEST

/* More bytes than sockets take at once, in both forms. */
START_TEST(long_vectors_are_streamed)
{
	struct rig rig;

	rig_create(&rig, (uint16_t)(3 + _i), false);
	for (int i = 0; i < 3; i++) {
		struct sparse_vectors_options options =
			options_of(&rig, 3000000, i == 0 ? 0.05 : 0.3,
				   i == 2 ? SPARSE_SAME : SPARSE_UNIFORM);

		options.dense = i == 1;
		allreduce(&rig, &options);
	}
	rig_destroy(&rig);
}
END_TEST

/* Posts a vector of so many indices, of which every rank has these. */
static void
few_post(struct fanin_request *request, const struct rig *rig, uint16_t rank, uint64_t n,
	 const uint64_t *indices, const uint32_t *values, uint64_t nnz,
	 struct fanin_sparse_result *result)
{
	struct fanin_vector *sparse = malloc(sizeof(*sparse));
	struct fanin_error error;

	*sparse = (struct fanin_vector){
		.n = n,
		.nnz = nnz,
		.indices = (const uint8_t *)indices,
		.values = (const uint8_t *)values,
		.result = result,
		.index_bytes = 8,
		.dtype = FANIN_WIRE_U32,
		.op = FANIN_WIRE_SUM,
		.element_bytes = 4,
	};
	ck_assert_int_eq(fanin_vector_check(sparse, false, &error), FANIN_OK);
	*request = (struct fanin_request){
		.collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
		.sparse = sparse,
		.dtype = FANIN_WIRE_U32,
		.op = FANIN_WIRE_SUM,
	};
	ck_assert_int_eq(fanin_ring_post(rig->rings[rank], request, n), FANIN_OK);
}

START_TEST(indices_have_8_bytes_where_4_do_not_reach)
{
	static const uint64_t lengths[] = { UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1,
					    UINT64_C(1) << 40 };

	for (size_t i = 0; i < N(lengths); i++) {
		const uint64_t indices[2] = { 3, lengths[i] - 1 };
		const uint32_t values[2] = { 5, 7 };
		struct fanin_sparse_result results[3] = { 0 };
		struct fanin_request requests[3];
		struct rig rig;

		rig_create(&rig, 3, false);
		for (uint16_t rank = 0; rank < 3; rank++)
			few_post(&requests[rank], &rig, rank, lengths[i], indices + rank % 2,
				 values, 2 - rank % 2, &results[rank]);
		for (int step = 0; step < 1000; step++)
			rig_step(&rig);
		for (uint16_t rank = 0; rank < 3; rank++) {
			ck_assert_int_eq(requests[rank].status, FANIN_OK);
			ck_assert_uint_eq(results[rank].count, 2);
			ck_assert_uint_eq(((const uint64_t *)results[rank].indices)[1],
					  lengths[i] - 1);
			ck_assert_uint_eq(((const uint32_t *)results[rank].values)[0], 10);
			ck_assert_uint_eq(((const uint32_t *)results[rank].values)[1], 7 + 5 + 7);
			fanin_sparse_result_free(&results[rank]);
			fanin_vector_free(requests[rank].sparse);
		}
		/* Rank 2 has a partner: it sends its 2 values once. */
		ck_assert_uint_eq(fanin_ring_stats(rig.rings[2])->sparse_bytes_sent,
				  2u * (4 + (i == 0 ? 4 : 8)));
		rig_destroy(&rig);
	}
}
END_TEST

/* ---------------------------------------------------------------- bytes */

/* How many indices some ranks have together. */
static uint64_t
union_count(const struct sparse_vectors *vectors, uint16_t first, uint16_t n_ranks)
{
	bool *has = calloc(vectors->options.n, 1);
	uint64_t count = 0;

	for (uint16_t rank = first; rank < first + n_ranks; rank++) {
		for (uint64_t i = 0; i < vectors->nnz[rank]; i++) {
			bool *at = &has[fanin_vector_index(vectors->indices[rank], 4, i)];

			count += !*at;
			*at = true;
		}
	}
	free(has);
	return count;
}

/*
 * The shorter one of both forms, as it is published, but with a bit for each index where some have
 * no value.
 */
static uint64_t
form_bytes(const struct sparse_vectors *vectors, uint64_t count)
{
	const uint64_t n = vectors->options.n;
	const uint64_t list = count * (4 + vectors->element_bytes);
	const uint64_t bits = (n + 63) / 64 * 8 + n * vectors->element_bytes;

	return list <= bits ? list : count == n ? n * vectors->element_bytes : bits;
}

START_TEST(as_many_bytes_are_sent_as_published)
{
	static const double parts[] = { 0.002, 0.01, 0.15, 0.4, 1 };
	const uint64_t n = 50000;

	for (size_t i = 0; i < N(parts) * 2; i++) {
		uint64_t dense_bytes = 0;
		struct sparse_vectors_options options;
		struct sparse_vectors *vectors;
		struct rig rig;

		rig_create(&rig, 8, false);
		options = options_of(&rig, n, parts[i / 2],
				     i % 2 == 0 ? SPARSE_UNIFORM : SPARSE_DISJOINT);
		vectors = sparse_vectors_make(&options);
		post_all(vectors, &rig);
		run(vectors, &rig);
		expect_ok(vectors, &rig);
		for (uint16_t rank = 0; rank < 8; rank++) {
			const struct fanin_ring_stats *stats = fanin_ring_stats(rig.rings[rank]);
			uint64_t expected = 0;

			for (uint16_t range = 1; range < 8; range *= 2)
				expected += form_bytes(vectors,
						       union_count(vectors, rank / range * range,
								   range));
			ck_assert_uint_eq(stats->sparse_bytes_sent, expected);
			ck_assert_uint_eq(stats->bytes_sent, expected);
			ck_assert_uint_eq(stats->vectors_sent, 3);
			ck_assert_uint_eq(stats->vectors_received, 3);
			ck_assert_uint_eq(stats->sparse_collectives, 1);
			ck_assert_uint_eq(stats->sparse_elements, n);
			ck_assert_uint_eq(stats->sparse_values_sent, vectors->nnz[rank]);
			ck_assert_uint_eq(stats->sparse_values_received,
					  union_count(vectors, 0, 8));
			/*
			 * 0.2 % of the indices, none at two ranks: 1, 2 and 4 times that, 8 bytes
			 * each.
			 */
			if (i == 1)
				ck_assert_uint_eq(expected, 7 * n / 500 * 8);
			dense_bytes += stats->sparse_dense_bytes;
		}
		/* All segments go round twice but for one step each. */
		ck_assert_uint_eq(dense_bytes, 2 * 7 * n * 4);
		sparse_vectors_free(vectors);
		rig_destroy(&rig);
	}
}
END_TEST

/* And the same number of bytes is what a dense allreduce of the ring sends, rank by rank. */
START_TEST(the_ring_would_send_as_many_bytes_as_is_told)
{
	static const uint64_t lengths[] = { 64, 1000, 1001, 1003, 1006 };

	for (size_t i = 0; i < N(lengths); i++) {
		struct collective collective;
		struct sparse_vectors_options options;
		struct sparse_vectors *vectors;
		uint64_t before[7];
		struct rig rig;

		rig_create(&rig, 7, false);
		options = options_of(&rig, lengths[i], 0.1, SPARSE_UNIFORM);
		vectors = sparse_vectors_make(&options);
		post_all(vectors, &rig);
		run(vectors, &rig);
		for (uint16_t rank = 0; rank < 7; rank++)
			before[rank] = fanin_ring_stats(rig.rings[rank])->bytes_sent;
		collective_make(&collective, &rig, lengths[i], FANIN_WIRE_F32, FANIN_WIRE_SUM,
				false);
		collective_post_all(&collective, &rig);
		collective_run(&collective, &rig);
		for (uint16_t rank = 0; rank < 7; rank++) {
			const struct fanin_ring_stats *stats = fanin_ring_stats(rig.rings[rank]);

			ck_assert_uint_eq(stats->bytes_sent - before[rank],
					  stats->sparse_dense_bytes);
		}
		sparse_vectors_free(vectors);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

/* ---------------------------------------------------------------- requests */

START_TEST(requests_are_worked_on_in_the_order_of_posting)
{
	struct sparse_vectors *vectors[4];
	struct collective collectives[3];
	struct rig rig;

	rig_create(&rig, 5, false);
	for (size_t i = 0; i < 4; i++) {
		struct sparse_vectors_options options = options_of(&rig, 20000, densities[i + 2],
								   SPARSE_CLUSTERED);

		vectors[i] = sparse_vectors_make(&options);
	}
	for (int i = 0; i < 3; i++) {
		collective_make(&collectives[i], &rig, i == 1 ? 0 : 10000, FANIN_WIRE_U32,
				FANIN_WIRE_SUM, false);
		for (uint16_t rank = 0; rank < 5 && i != 1; rank++)
			memset(collectives[i].send[rank], rank + 1 + i, 40000);
	}
	/* Each rank posts at another time. */
	for (uint16_t rank = 0; rank < 5; rank++) {
		post(vectors[0], &rig, rank);
		collective_post(&collectives[0], &rig, rank);
		post(vectors[1], &rig, rank);
		post(vectors[2], &rig, rank);
		collective_post(&collectives[1], &rig, rank);
		rig_step(&rig);
		collective_post(&collectives[2], &rig, rank);
		post(vectors[3], &rig, rank);
		for (int i = 0; i < 10; i++)
			rig_step(&rig);
	}
	while (vectors[3]->requests[0].status == FANIN_IN_PROGRESS) {
		rig_step(&rig);
		for (uint16_t rank = 0; rank < 5; rank++) {
			if (collectives[0].requests[rank].status == FANIN_OK)
				ck_assert_int_eq(vectors[0]->requests[rank].status, FANIN_OK);
			if (collectives[2].requests[rank].status == FANIN_OK)
				ck_assert_int_eq(vectors[2]->requests[rank].status, FANIN_OK);
		}
	}
	run(vectors[3], &rig);
	for (int i = 0; i < 4; i++) {
		expect_ok(vectors[i], &rig);
		sparse_vectors_free(vectors[i]);
	}
	for (int i = 0; i < 3; i++) {
		collective_expect_ok(&collectives[i], &rig);
		for (uint16_t rank = 0; rank < 5 && i != 1; rank++) {
			for (int k = 0; k < 40000; k++)
				ck_assert_uint_eq(collectives[i].recv[rank][k],
						  1 + 2 + 3 + 4 + 5 + 5 * i);
		}
		collective_free(&collectives[i], &rig);
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(another_length_fails_the_request_only)
{
	const uint16_t n_ranks = rank_counts[_i];
	struct rig rig;

	rig_create(&rig, n_ranks, false);
	for (uint16_t other = 0; other < n_ranks && n_ranks > 1; other += 2) {
		struct sparse_vectors_options options =
			options_of(&rig, 5000, other % 4 == 0 ? 0.01 : 0.9, SPARSE_UNIFORM);
		struct sparse_vectors *vectors = sparse_vectors_make(&options);
		struct sparse_vectors *longer;

		options.n = 6000;
		options.density = 0.3;
		longer = sparse_vectors_make(&options);
		for (uint16_t rank = 0; rank < n_ranks; rank++)
			post(rank == other ? longer : vectors, &rig, rank);
		run(vectors, &rig);
		run(longer, &rig);
		for (uint16_t rank = 0; rank < n_ranks; rank++) {
			const struct sparse_vectors *of = rank == other ? longer : vectors;
			char text[128];

			snprintf(
				text, sizeof(text),
				"n is %u here, and 5000 to 6000 at all ranks, expected the same at all",
				rank == other ? 6000 : 5000);
			ck_assert_int_eq(of->requests[rank].status, FANIN_ERR_INVALID);
			ck_assert_str_eq(of->requests[rank].sparse->error.text, text);
			ck_assert_int_eq(fanin_ring_of(rig.rings[rank])->status, FANIN_OK);
			/* Nothing was written. */
			ck_assert_ptr_null(of->results[rank].values);
			ck_assert_uint_eq(of->results[rank].count, 0);
		}
		sparse_vectors_free(vectors);
		sparse_vectors_free(longer);
		options = options_of(&rig, 5000, 0.1, SPARSE_UNIFORM);
		allreduce(&rig, &options);
	}
	rig_destroy(&rig);
}
END_TEST

START_TEST(too_little_room_fails_the_request_of_that_rank_only)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, 4, false);
	options = options_of(&rig, 1000, 0.1, SPARSE_DISJOINT);
	options.in_place = true;
	vectors = sparse_vectors_make(&options);
	vectors->results[2].capacity = 399;
	post_all(vectors, &rig);
	run(vectors, &rig);
	ck_assert_int_eq(vectors->requests[2].status, FANIN_ERR_CAPACITY);
	ck_assert_str_eq(vectors->requests[2].sparse->error.text,
			 "the result has 400 values, capacity is 399");
	ck_assert_uint_eq(vectors->results[2].count, 400);
	for (uint16_t rank = 0; rank < 4; rank++) {
		if (rank == 2)
			continue;
		ck_assert_int_eq(vectors->requests[rank].status, FANIN_OK);
		sparse_vectors_expect_result(vectors, &vectors->results[rank]);
	}
	sparse_vectors_free(vectors);
	options.density = 0.2;
	allreduce(&rig, &options);
	rig_destroy(&rig);
}
END_TEST

START_TEST(different_collectives_are_told_apart)
{
	for (int other = 0; other < 3; other++) {
		struct sparse_vectors_options options;
		struct sparse_vectors *vectors;
		struct sparse_vectors *others;
		struct collective collective;
		const char *text;
		struct rig rig;

		rig_create(&rig, 3, false);
		options = options_of(&rig, 100, 0.1, SPARSE_UNIFORM);
		vectors = sparse_vectors_make(&options);
		options.dtype = other == 1 ? FANIN_WIRE_I32 : FANIN_WIRE_F32;
		options.op = other == 2 ? FANIN_WIRE_MAX : FANIN_WIRE_SUM;
		others = sparse_vectors_make(&options);
		collective_make(&collective, &rig, 100, FANIN_WIRE_F32, FANIN_WIRE_SUM, false);
		post(vectors, &rig, 0);
		post(vectors, &rig, 2);
		if (other == 0)
			collective_post(&collective, &rig, 1);
		else
			post(others, &rig, 1);
		for (uint64_t i = 0; i < TIMEOUT_NS / STEP_NS; i++)
			rig_step(&rig);
		ck_assert_int_lt(vectors->requests[0].status, 0);
		ck_assert_int_lt(vectors->requests[2].status, 0);
		ck_assert_int_lt(other == 0 ? collective.requests[1].status
					    : others->requests[1].status,
				 0);
		text = fanin_ring_error(rig.rings[1])->text;
		if (other == 0)
			ck_assert_str_eq(
				text,
				"collective 0: rank 0 posted an allreduce_sparse of 100 f32 (sum, "
				"root 0), rank 1 an allreduce of 100 f32 (sum, root 0)");
		sparse_vectors_free(vectors);
		sparse_vectors_free(others);
		collective_free(&collective, &rig);
		rig_destroy(&rig);
	}
}
END_TEST

START_TEST(polled_descriptors_wake_a_sleeping_rank)
{
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	unsigned int n;
	struct rig rig;

	rig_create(&rig, 2, false);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	post(vectors, &rig, 0);
	for (int i = 0; i < 20; i++)
		fanin_ring_poll(rig.rings[0]);
	/* The header of the next rank has come, but not its vector. */
	post(vectors, &rig, 1);
	n = fanin_ring_poll_fds(rig.rings[0], fds);
	ck_assert_int_eq(poll(fds, n, 0), 0);
	fanin_ring_poll(rig.rings[1]);
	ck_assert_int_ge(poll(fds, n, 1000), 1);
	fanin_ring_poll(rig.rings[0]);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_OK);
	ck_assert_uint_eq(fanin_ring_idle_ns(rig.rings[0]), UINT64_MAX);
	/* Nothing is left that would wake it. */
	n = fanin_ring_poll_fds(rig.rings[0], fds);
	ck_assert_int_eq(poll(fds, n, 0), 0);
	run(vectors, &rig);
	expect_ok(vectors, &rig);
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

/* ---------------------------------------------------------------- failures */

#define LARGE 4000000

/* Everyone but that rank fails and names it, with these words. */
static void
expect_blamed(const struct rig *rig, const struct sparse_vectors *vectors, uint16_t blamed,
	      const char *words)
{
	char name[32];

	snprintf(name, sizeof(name), "rank %u ", blamed);
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		const struct fanin_error *error;

		if (rig->rings[i] == NULL || i == blamed)
			continue;
		error = fanin_ring_error(rig->rings[i]);
		ck_assert_msg(vectors->requests[i].status == FANIN_ERR_TIMEOUT, "rank %u: %d, %s",
			      i, vectors->requests[i].status, error->text);
		ck_assert_msg(fanin_ring_missing(rig->rings[i]) == 1ull << blamed,
			      "rank %u says: %s", i, error->text);
		ck_assert_msg(strncmp(error->text, name, strlen(name)) == 0 &&
				      strstr(error->text, words) != NULL,
			      "%u is blamed, rank %u says: %s", blamed, i, error->text);
	}
}

/* Limits the sockets of links to a little data, so that vectors take many steps. */
static void
links_narrow(const struct rig *rig)
{
	const int bytes = 262144;

	for (uint16_t rank = 0; rank < rig->n_ranks; rank++) {
		for (unsigned int i = 0; i < fanin_ring_of(rig->rings[rank])->n_links; i++) {
			const int fd = fanin_ring_of(rig->rings[rank])->links[i].call.fd;

			ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes,
						    sizeof(bytes)),
					 0);
			ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes,
						    sizeof(bytes)),
					 0);
		}
	}
}

/* Large vectors whose results go where what is sent is, and what is there. */
struct large {
	struct sparse_vectors *vectors;
	uint8_t *indices[8];
	uint8_t *values[8];
};

static uint8_t *
copy_of(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len);

	ck_assert_ptr_nonnull(copy);
	return memcpy(copy, bytes, len);
}

static struct large
large_make(const struct rig *rig)
{
	struct sparse_vectors_options options = options_of(rig, LARGE, 0.1, SPARSE_UNIFORM);
	struct large large = { 0 };

	links_narrow(rig);
	options.in_place = true;
	large.vectors = sparse_vectors_make(&options);
	for (uint16_t rank = 0; rank < rig->n_ranks; rank++) {
		const size_t len = large.vectors->nnz[rank] * 4;

		large.indices[rank] = copy_of(large.vectors->indices[rank], len);
		large.values[rank] = copy_of(large.vectors->values[rank], len);
	}
	return large;
}

/* What failed ranks have brought is as it was. */
static void
large_expect_kept(const struct large *large)
{
	const struct sparse_vectors *vectors = large->vectors;

	for (uint16_t rank = 0; rank < vectors->options.n_ranks; rank++) {
		const size_t len = vectors->nnz[rank] * 4;

		if (vectors->requests[rank].status == FANIN_OK)
			continue;
		ck_assert_mem_eq(vectors->indices[rank], large->indices[rank], len);
		ck_assert_mem_eq(vectors->values[rank], large->values[rank], len);
	}
}

static void
large_free(const struct large *large)
{
	for (uint16_t rank = 0; rank < large->vectors->options.n_ranks; rank++) {
		free(large->indices[rank]);
		free(large->values[rank]);
	}
	sparse_vectors_free(large->vectors);
}

/*
 * Ranks in their various roles: of 5 two share a place, and of 8 none. Number i is a rank of the
 * first or the second.
 */
#define N_ROLES (5 + 8)

static uint16_t
role_ranks(int i)
{
	return i < 5 ? 5 : 8;
}

static uint16_t
role_rank(int i)
{
	return (uint16_t)(i < 5 ? i : i - 5);
}

START_TEST(a_killed_rank_is_named_by_all_at_once)
{
	const uint16_t dead = role_rank(_i);
	struct large large;
	struct rig rig;

	rig_create(&rig, role_ranks(_i), false);
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	for (int i = 0; i < 1 + _i % 2; i++)
		rig_step(&rig);
	ck_assert_uint_eq(fanin_ring_of(rig.rings[dead])->doubling.stage, 0);
	fanin_ring_destroy(rig.rings[dead]);
	rig.rings[dead] = NULL;
	ck_assert_uint_lt(run(large.vectors, &rig), TIMEOUT_NS / 2);
	expect_blamed(&rig, large.vectors, dead, "its process has ended");
	large_expect_kept(&large);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

/* In its last round: there may be ranks that have all that they need. */
START_TEST(a_rank_with_its_result_needs_no_killed_rank)
{
	const uint16_t dead = (uint16_t)_i;
	unsigned int n_failed = 0;
	struct large large;
	struct rig rig;

	rig_create(&rig, 5, false);
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	while (fanin_ring_of(rig.rings[dead])->doubling.stage + 1 <
	       fanin_ring_of(rig.rings[dead])->n_stages)
		rig_step(&rig);
	ck_assert_int_eq(large.vectors->requests[dead].status, FANIN_IN_PROGRESS);
	fanin_ring_destroy(rig.rings[dead]);
	rig.rings[dead] = NULL;
	ck_assert_uint_lt(run(large.vectors, &rig), TIMEOUT_NS / 2);
	for (uint16_t rank = 0; rank < 5; rank++) {
		if (rank == dead)
			continue;
		if (large.vectors->requests[rank].status == FANIN_OK) {
			sparse_vectors_expect_result(large.vectors, &large.vectors->results[rank]);
			continue;
		}
		n_failed++;
		ck_assert_int_eq(large.vectors->requests[rank].status, FANIN_ERR_TIMEOUT);
		ck_assert_uint_eq(fanin_ring_missing(rig.rings[rank]), 1ull << dead);
	}
	ck_assert_uint_ne(n_failed, 0);
	large_expect_kept(&large);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

/* Returns true if all ranks that are polled know that they wait for that rank. */
static bool
all_know(const struct rig *rig, uint16_t late)
{
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (i != late && !rig->paused[i] &&
		    fanin_ring_missing(rig->rings[i]) != 1ull << late)
			return false;
	}
	return true;
}

/*
 * Steps for so long; all that are polled still wait at the end, and know for whom. The kernel may
 * take some more bytes at any time, also for a rank that reads nothing: it takes half a timeout
 * then until the rank is missed again.
 */
static void
expect_waiting(const struct sparse_vectors *vectors, struct rig *rig, uint16_t late,
	       uint64_t for_ns)
{
	rig_wait(rig, for_ns);
	for (uint64_t i = 0; !all_know(rig, late) && i < TIMEOUT_NS / STEP_NS; i++)
		rig_step(rig);
	for (uint16_t i = 0; i < rig->n_ranks; i++) {
		if (i == late || rig->paused[i])
			continue;
		ck_assert_msg(vectors->requests[i].status == FANIN_IN_PROGRESS, "rank %u: %s", i,
			      fanin_ring_error(rig->rings[i])->text);
		ck_assert_msg(fanin_ring_missing(rig->rings[i]) == 1ull << late,
			      "rank %u waits for %llx, expected rank %u", i,
			      (unsigned long long)fanin_ring_missing(rig->rings[i]), late);
		ck_assert_uint_eq(fanin_ring_late(rig->rings[i]), 1ull << late);
	}
}

START_TEST(a_rank_that_hangs_is_waited_for)
{
	const uint16_t hung = role_rank(_i);
	struct large large;
	struct rig rig;

	rig_create(&rig, role_ranks(_i), false);
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	rig_step(&rig);
	rig.paused[hung] = true;
	expect_waiting(large.vectors, &rig, hung, 3 * TIMEOUT_NS);
	rig.paused[hung] = false;
	run(large.vectors, &rig);
	expect_ok(large.vectors, &rig);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_rank_that_has_not_posted_is_waited_for)
{
	const uint16_t late = role_rank(_i);
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, role_ranks(_i), false);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	for (uint16_t i = 0; i < rig.n_ranks; i++) {
		if (i != late)
			post(vectors, &rig, i);
	}
	expect_waiting(vectors, &rig, late, TIMEOUT_NS / 2);
	expect_waiting(vectors, &rig, late, 3 * TIMEOUT_NS);
	post(vectors, &rig, late);
	run(vectors, &rig);
	expect_ok(vectors, &rig);
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

/*
 * A rank that is done computes, and passes on no notices. A partner that still waits nevertheless
 * knows for whom.
 */
START_TEST(a_rank_that_is_done_is_not_taken_for_late)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, 4, false);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	for (uint16_t i = 0; i < 4; i++)
		post(vectors, &rig, i);
	/* Rank 3 sends its own vector, and what comes of the first round to nobody. */
	for (int i = 0; i < 3; i++)
		fanin_ring_poll(rig.rings[3]);
	rig.paused[3] = true;
	for (int i = 0; i < 20; i++)
		rig_step(&rig);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_OK);
	ck_assert_int_eq(vectors->requests[2].status, FANIN_OK);
	rig.paused[0] = true;
	rig.paused[2] = true;
	expect_waiting(vectors, &rig, 3, 3 * TIMEOUT_NS);
	rig.paused[3] = false;
	run(vectors, &rig);
	expect_ok(vectors, &rig);
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

static void
steps_do(struct rig *rig, int n)
{
	for (int i = 0; i < n; i++)
		rig_step(rig);
}

/*
 * A rank hangs after `_i` polls of a preceding dense collective. Ranks that are done with it wait
 * for a partner that may not be: only the rank that hangs is taken for late.
 */
START_TEST(a_rank_that_hangs_in_the_collective_before_is_waited_for)
{
	struct collective before;
	struct large large;
	struct rig rig;

	rig_create(&rig, 4, false);
	large = large_make(&rig);
	collective_make(&before, &rig, 4, FANIN_WIRE_U32, FANIN_WIRE_SUM, false);
	for (uint16_t i = 0; i < 4; i++) {
		collective_post(&before, &rig, i);
		post(large.vectors, &rig, i);
	}
	for (int i = 0; i < _i; i++) {
		rig.paused[2] = true;
		steps_do(&rig, 10);
		rig.paused[2] = false;
		fanin_ring_poll(rig.rings[2]);
	}
	rig.paused[2] = true;
	steps_do(&rig, 10);
	/* Nobody, rank 1 only, or all are done with it. */
	ck_assert_int_eq(before.requests[1].status == FANIN_OK, _i >= 1);
	ck_assert_int_eq(before.requests[0].status == FANIN_OK, _i >= 2);
	ck_assert_int_eq(before.requests[3].status == FANIN_OK, _i >= 2);
	expect_waiting(large.vectors, &rig, 2, 3 * TIMEOUT_NS);
	rig.paused[2] = false;
	run(large.vectors, &rig);
	expect_ok(large.vectors, &rig);
	collective_expect_ok(&before, &rig);
	collective_free(&before, &rig);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

/*
 * Rank 1 has given its vector away, and waits for what the others exchange for longer than the
 * timeout.
 */
START_TEST(rounds_of_others_may_take_longer_than_the_timeout)
{
	const uint64_t timeout_ns = TIMEOUT_NS / 8;
	const uint64_t step_ns = TIMEOUT_NS / 25;
	uint64_t waited_ns = 0;
	struct large large;
	struct rig rig;

	rig_create(&rig, 5, false);
	for (uint16_t rank = 0; rank < 5; rank++)
		fanin_ring_of(rig.rings[rank])->config.timeout_ns = timeout_ns;
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	while (large.vectors->requests[1].status == FANIN_IN_PROGRESS) {
		/* Less is moved in it than an absence is. */
		rig.now_ns += step_ns;
		rig_step(&rig);
		if (fanin_ring_of(rig.rings[1])->doubling.stage == 1 &&
		    !fanin_ring_of(rig.rings[1])->doubling.rx_begun)
			waited_ns += step_ns;
	}
	ck_assert_uint_gt(waited_ns, 2 * timeout_ns);
	run(large.vectors, &rig);
	expect_ok(large.vectors, &rig);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

START_TEST(the_wait_for_a_late_rank_may_have_a_limit)
{
	for (int posted = 0; posted < 2; posted++) {
		struct large large;
		uint64_t elapsed_ns;
		struct rig rig;

		rig_listen(&rig, 6);
		rig.wait_limit_ns = 3 * TIMEOUT_NS;
		for (uint16_t i = 0; i < 6; i++)
			rig_create_rank(&rig, i, KEY);
		rig_wire(&rig);
		large = large_make(&rig);
		for (uint16_t i = 0; i < 6; i++) {
			if (i != 3 || posted != 0)
				post(large.vectors, &rig, i);
		}
		large.vectors->requests[3].status = FANIN_ERR_TIMEOUT;
		rig.paused[3] = posted != 0;
		elapsed_ns = run(large.vectors, &rig);
		ck_assert_uint_ge(elapsed_ns, 3 * TIMEOUT_NS);
		ck_assert_uint_lt(elapsed_ns, 4 * TIMEOUT_NS);
		expect_blamed(&rig, large.vectors, 3, "has been late for 6.0 s");
		large_expect_kept(&large);
		large_free(&large);
		rig_destroy(&rig);
	}
}
END_TEST

/* A listener whose queue is full: the kernel does not answer connection attempts. */
struct hole {
	struct sockaddr_in address;
	int fds[8];
};

static void
hole_make(struct hole *hole)
{
	socklen_t len = sizeof(hole->address);

	hole->address = (struct sockaddr_in){ .sin_family = AF_INET,
					      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	hole->fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(hole->fds[0], (struct sockaddr *)&hole->address, len), 0);
	ck_assert_int_eq(listen(hole->fds[0], 0), 0);
	ck_assert_int_eq(getsockname(hole->fds[0], (struct sockaddr *)&hole->address, &len), 0);
	for (int i = 1; i < 8; i++) {
		hole->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(hole->fds[i], (struct sockaddr *)&hole->address, len);
	}
}

/* _i: is its partner the one that finds it, while its neighbours compute? */
START_TEST(a_machine_that_does_not_answer_is_named)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct hole hole;
	struct rig rig;

	hole_make(&hole);
	rig_create(&rig, 4, false);
	for (uint64_t i = 0; i < TIMEOUT_NS / STEP_NS; i++)
		rig_step(&rig);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	post_all(vectors, &rig);
	for (int i = 0; i < 3 && _i != 0; i++)
		fanin_ring_poll(rig.rings[3]);
	rig.paused[3] = true;
	if (_i != 0) {
		for (int i = 0; i < 20; i++)
			rig_step(&rig);
		ck_assert_int_eq(vectors->requests[0].status, FANIN_OK);
		ck_assert_int_eq(vectors->requests[2].status, FANIN_OK);
		rig.paused[0] = true;
		rig.paused[2] = true;
		for (unsigned int i = 0; i < fanin_ring_of(rig.rings[1])->n_links; i++) {
			if (fanin_ring_of(rig.rings[1])->links[i].call.rank == 3)
				fanin_ring_of(rig.rings[1])->links[i].watch.address = hole.address;
		}
	} else {
		fanin_ring_of(rig.rings[2])->next_watch.address = hole.address;
	}
	ck_assert_uint_lt(run(vectors, &rig), 2 * TIMEOUT_NS);
	if (_i != 0) {
		ck_assert_int_eq(vectors->requests[1].status, FANIN_ERR_TIMEOUT);
		ck_assert_uint_eq(fanin_ring_missing(rig.rings[1]), 1 << 3);
		ck_assert_ptr_nonnull(
			strstr(fanin_ring_error(rig.rings[1])->text, "has not answered for "));
	} else {
		expect_blamed(&rig, vectors, 3, "has not answered for ");
	}
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
	for (int i = 0; i < 8; i++)
		close(hole.fds[i]);
}
END_TEST

/*
 * A rank fails by itself, and its application goes on with something else. The ring does not pass
 * the failure on, as the rank before it computes.
 */
START_TEST(a_partner_hears_of_a_failure_on_its_link)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, 4, false);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	post_all(vectors, &rig);
	for (int i = 0; i < 3; i++)
		fanin_ring_poll(rig.rings[3]);
	rig.paused[3] = true;
	for (int i = 0; i < 20; i++)
		rig_step(&rig);
	rig.paused[0] = true;
	rig.paused[2] = true;
	fanin_ring_fail(fanin_ring_of(rig.rings[3]), FANIN_ERR_NO_MEMORY);
	ck_assert_uint_lt(run(vectors, &rig), TIMEOUT_NS / 2);
	ck_assert_int_eq(vectors->requests[1].status, FANIN_ERR_TIMEOUT);
	ck_assert_str_eq(fanin_ring_error(rig.rings[1])->text, "rank 3 (of 4) has given up");
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

START_TEST(a_stopped_rank_blames_nobody_when_it_resumes)
{
	struct large large;
	struct rig rig;

	rig_create(&rig, 4, false);
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	rig.paused[2] = true;
	expect_waiting(large.vectors, &rig, 2, 2 * TIMEOUT_NS);
	for (int stops = 0; stops < 3; stops++) {
		rig.paused[0] = true;
		for (uint64_t ms = 0; ms < 5000; ms += 50) {
			rig.now_ns += 50 * 1000000;
			rig_step(&rig);
		}
		rig.paused[0] = false;
		fanin_ring_poll(rig.rings[0]);
		ck_assert_int_eq(large.vectors->requests[0].status, FANIN_IN_PROGRESS);
		expect_waiting(large.vectors, &rig, 2, TIMEOUT_NS / 10);
	}
	rig.paused[2] = false;
	run(large.vectors, &rig);
	expect_ok(large.vectors, &rig);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

START_TEST(leaving_after_the_last_collective_harms_nobody)
{
	const uint16_t n_ranks = (uint16_t)(2 + _i);
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, n_ranks, false);
	options = options_of(&rig, LARGE / 20, 0.3, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	post_all(vectors, &rig);
	for (unsigned int done = 0; done < n_ranks;) {
		rig_step(&rig);
		for (uint16_t i = 0; i < n_ranks; i++) {
			if (rig.rings[i] == NULL ||
			    vectors->requests[i].status == FANIN_IN_PROGRESS)
				continue;
			ck_assert_msg(vectors->requests[i].status == FANIN_OK, "rank %u: %s", i,
				      fanin_ring_error(rig.rings[i])->text);
			fanin_ring_leave(rig.rings[i]);
			fanin_ring_destroy(rig.rings[i]);
			rig.rings[i] = NULL;
			done++;
		}
	}
	sparse_vectors_expect(vectors);
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

/* Its neighbours have not posted: a partner notices. */
START_TEST(a_rank_that_has_left_is_named_by_who_still_wants_it)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct rig rig;

	rig_create(&rig, 4, false);
	options = options_of(&rig, 1000, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	fanin_ring_leave(rig.rings[1]);
	fanin_ring_destroy(rig.rings[1]);
	rig.rings[1] = NULL;
	rig.paused[0] = true;
	for (int i = 0; i < 10; i++)
		rig_step(&rig);
	post(vectors, &rig, 2);
	post(vectors, &rig, 3);
	ck_assert_uint_lt(run(vectors, &rig), TIMEOUT_NS / 2);
	for (uint16_t rank = 2; rank < 4; rank++) {
		ck_assert_int_eq(vectors->requests[rank].status, FANIN_ERR_TIMEOUT);
		ck_assert_str_eq(fanin_ring_error(rig.rings[rank])->text,
				 "rank 1 (of 4) has left the job");
	}
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

START_TEST(leaving_in_the_middle_is_told_to_all)
{
	struct large large;
	struct rig rig;

	rig_create(&rig, 8, false);
	large = large_make(&rig);
	post_all(large.vectors, &rig);
	rig_step(&rig);
	fanin_ring_leave(rig.rings[5]);
	fanin_ring_destroy(rig.rings[5]);
	rig.rings[5] = NULL;
	ck_assert_uint_lt(run(large.vectors, &rig), TIMEOUT_NS / 2);
	expect_blamed(&rig, large.vectors, 5, "has left the job");
	large_expect_kept(&large);
	large_free(&large);
	rig_destroy(&rig);
}
END_TEST

/* What rank 1 of 2 may send in place of its vector of 100 f32, and why rank 0 refuses it. */
static const struct {
	struct fanin_ring_vector head;
	uint32_t indices[3];
	const char *words;
} wrong[] = {
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = FANIN_VECTOR_INDICES },
	  { 1, 2, 2 },
	  "its indices do not ascend" },
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = FANIN_VECTOR_INDICES },
	  { 1, 2, 100 },
	  "its indices do not ascend" },
	{ { .n_min = 100, .n_max = 100, .nnz = 101, .form = FANIN_VECTOR_INDICES },
	  { 0 },
	  "it has too many values" },
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = FANIN_VECTOR_BITS },
	  { 0 },
	  "its form is not the shortest one" },
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = 7 }, { 0 }, "its form is unknown" },
	{ { .n_min = 100, .n_max = 101, .nnz = 3, .form = FANIN_VECTOR_INDICES },
	  { 0 },
	  "it has more than one length" },
	{ { .n_min = UINT64_MAX,
	    .n_max = UINT64_MAX,
	    .nnz = UINT64_MAX,
	    .form = FANIN_VECTOR_FULL },
	  { 0 },
	  "it has too many values" },
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = FANIN_VECTOR_INDICES, .seq = 1 },
	  { 0 },
	  "it is of another collective" },
	{ { .n_min = 100, .n_max = 100, .nnz = 3, .form = FANIN_VECTOR_INDICES, .type = 9 },
	  { 0 },
	  "sent a message of type 14 on its link" },
};

START_TEST(a_vector_that_is_none_is_refused)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	struct fanin_ring_vector head = wrong[_i].head;
	const float values[3] = { 1, 2, 3 };
	const struct fanin_ring_header header = {
		.type = FANIN_RING_COLLECTIVE,
		.count = 100,
		.collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
	};
	struct rig rig;

	rig_create(&rig, 2, false);
	rig.paused[1] = true;
	options = options_of(&rig, 100, 0.1, SPARSE_UNIFORM);
	vectors = sparse_vectors_make(&options);
	post(vectors, &rig, 0);
	head.type += FANIN_RING_VECTOR;
	head.dtype = FANIN_WIRE_F32;
	head.op = FANIN_WIRE_SUM;
	ck_assert_int_gt(send(fanin_ring_of(rig.rings[1])->next.fd, &header, sizeof(header), 0), 0);
	ck_assert_int_gt(send(fanin_ring_of(rig.rings[1])->links[0].call.fd, &head, sizeof(head),
			      0),
			 0);
	ck_assert_int_gt(send(fanin_ring_of(rig.rings[1])->links[0].call.fd, wrong[_i].indices,
			      sizeof(wrong[_i].indices), 0),
			 0);
	ck_assert_int_gt(send(fanin_ring_of(rig.rings[1])->links[0].call.fd, values, sizeof(values),
			      0),
			 0);
	run(vectors, &rig);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_REFUSED);
	ck_assert_msg(strstr(fanin_ring_error(rig.rings[0])->text, wrong[_i].words) != NULL, "%s",
		      fanin_ring_error(rig.rings[0])->text);
	sparse_vectors_free(vectors);
	rig_destroy(&rig);
}
END_TEST

/* ---------------------------------------------------------------- wiring */

START_TEST(a_partner_that_is_not_reached_is_named)
{
	struct sockaddr_in right;
	struct fanin_error problem;
	struct rig rig;

	rig_listen(&rig, 4);
	/* Rank 0 has another address of rank 2, which is no neighbour. */
	right = rig.addresses[2];
	rig.addresses[2].sin_port = htons(9);
	rig_create_rank(&rig, 0, KEY);
	rig.addresses[2] = right;
	for (uint16_t rank = 1; rank < 4; rank++)
		rig_create_rank(&rig, rank, KEY);
	for (int i = 0; i < 100; i++)
		rig_step(&rig);
	ck_assert(!fanin_ring_ready(rig.rings[0], &problem));
	ck_assert(fanin_ring_ready(rig.rings[1], &problem));
	ck_assert(!fanin_ring_ready(rig.rings[2], &problem));
	ck_assert(fanin_ring_ready(rig.rings[3], &problem));
	ck_assert(!fanin_ring_ready(rig.rings[0], &problem));
	ck_assert_str_eq(problem.text,
			 "rank 2 at 127.0.0.1:9 has not been reached: Connection refused");
	ck_assert_uint_eq(problem.missing.words[0], 1 << 2);
	ck_assert(!fanin_ring_ready(rig.rings[2], &problem));
	ck_assert_str_eq(problem.text, "rank 0 has not called");
	ck_assert_uint_eq(problem.missing.words[0], 1 << 0);
	rig_destroy(&rig);
}
END_TEST

/* A caller that is no partner of rank 5 of 8, may not call it, or calls a second time. */
START_TEST(only_lower_partners_may_call_and_each_once)
{
	static const uint16_t from[] = { 3, 0, 7, 64, UINT16_MAX, 4, 1, 4 };
	int fds[N(from)];
	struct rig rig;

	rig_listen(&rig, 8);
	rig_create_rank(&rig, 5, KEY);
	for (size_t i = 0; i < N(from); i++) {
		const struct fanin_ring_hello hello = {
			.magic = FANIN_RING_MAGIC,
			.key = KEY,
			.version = FANIN_RING_VERSION,
			.from = from[i],
			.to = 5,
			.size = 8,
			.purpose = FANIN_RING_LINK,
		};
		struct fanin_ring_hello answer;

		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		ck_assert_int_eq(connect(fds[i], (const struct sockaddr *)&rig.addresses[5],
					 sizeof(rig.addresses[5])),
				 0);
		ck_assert_int_eq(send(fds[i], &hello, sizeof(hello), 0), sizeof(hello));
		for (int step = 0; step < 10; step++)
			rig_step(&rig);
		/* The first call of each partner is answered, others are closed. */
		ck_assert_int_eq(recv(fds[i], &answer, sizeof(answer), 0),
				 i == 5 || i == 6 ? (ssize_t)sizeof(answer) : 0);
	}
	ck_assert_uint_eq(fanin_ring_stats(rig.rings[5])->rejected, N(from) - 2);
	for (size_t i = 0; i < N(from); i++)
		close(fds[i]);
	for (uint16_t rank = 0; rank < 8; rank++) {
		if (rank != 5)
			close(rig.listeners[rank]);
	}
	rig_destroy(&rig);
}
END_TEST

/* ---------------------------------------------------------------- public calls */

/* No density is agreed on: nothing waits for that, and the report says what ran. */
START_TEST(the_public_call_needs_no_agreement_and_is_reported)
{
	static const uint32_t indices[2][2] = { { 1, 500 }, { 500, 999 } };
	static const float values[2][2] = { { 1, 2 }, { 3, 4 } };
	struct fanin_sparse_result results[2] = { { .sz = sizeof(results[0]) },
						  { .sz = sizeof(results[0]) } };
	struct fanin_report report = { .sz = sizeof(report) };
	struct fanin_ctx contexts[2] = { 0 };
	struct fanin_comm comms[2];
	fanin_request *requests[2];
	struct rig rig;

	rig_create(&rig, 2, false);
	for (uint16_t rank = 0; rank < 2; rank++) {
		comms[rank] = (struct fanin_comm){
			.ops = &fanin_comm_single_ops,
			.protocol = &fanin_protocol_ring,
			.ctx = &contexts[rank],
			.endpoint = rig.rings[rank],
			.member.config = { .rank = rank, .size = 2 },
		};
		contexts[rank].comms = &comms[rank];
		ck_assert_int_eq(fanin_iallreduce_sparse(1000, 2, indices[rank], values[rank],
							 &results[rank], FANIN_F32, FANIN_SUM, NULL,
							 &comms[rank], &requests[rank]),
				 FANIN_OK);
		ck_assert(!comms[rank].agreement.is_open);
	}
	for (uint16_t rank = 0; rank < 2; rank++) {
		while (fanin_test(requests[rank]) == FANIN_IN_PROGRESS)
			rig_step(&rig);
		ck_assert_int_eq(fanin_wait(&requests[rank]), FANIN_OK);
		ck_assert_uint_eq(results[rank].count, 3);
		ck_assert_uint_eq(((const uint32_t *)results[rank].indices)[1], 500);
		ck_assert_float_eq(((const float *)results[rank].values)[1], 5);
		fanin_sparse_result_free(&results[rank]);
		ck_assert_int_eq(fanin_comm_report(&comms[rank], &report), FANIN_OK);
		ck_assert_str_eq(report.sparse_algorithm, "recursive-doubling");
		ck_assert_uint_eq(report.blocks, 1);
		ck_assert_uint_eq(report.bytes_reduced, 8);
		ck_assert_uint_eq(report.sparse_blocks, 1);
		ck_assert_uint_eq(report.sparse_elements, 1000);
		ck_assert_uint_eq(report.sparse_values_sent, 2);
		ck_assert_uint_eq(report.sparse_values_received, 3);
		ck_assert_uint_eq(report.shards_sent, 1);
		ck_assert_uint_eq(report.shards_received, 1);
		ck_assert_uint_eq(report.shard_bytes_sent, 16);
		ck_assert_uint_eq(report.tcp_bytes_sent, 16);
		ck_assert_uint_eq(report.tcp_bytes_received, 16);
		ck_assert_uint_eq(report.sparse_dense_bytes, 4000);
	}
	rig_destroy(&rig);
}
END_TEST

/*
 * The second request needs no agreement, whether it is posted while the first one's is going on
 * (rank 0) or after it (rank 1).
 */
START_TEST(whether_ranks_agree_does_not_depend_on_when_they_post)
{
	static float sums[2][1000];
	const uint32_t index = 7;
	const float value = 2;
	struct fanin_sparse_result results[2] = { { .sz = sizeof(results[0]) },
						  { .sz = sizeof(results[0]) } };
	struct fanin_ctx contexts[2] = { 0 };
	struct fanin_comm comms[2];
	fanin_request *hinted[2], *sparse[2] = { NULL, NULL };
	struct rig rig;

	rig_create(&rig, 2, false);
	for (uint16_t rank = 0; rank < 2; rank++) {
		comms[rank] = (struct fanin_comm){
			.ops = &fanin_comm_single_ops,
			.protocol = &fanin_protocol_ring,
			.ctx = &contexts[rank],
			.endpoint = rig.rings[rank],
			.member.config = { .rank = rank, .size = 2 },
		};
		contexts[rank].comms = &comms[rank];
		memset(sums[rank], 0, sizeof(sums[rank]));
		sums[rank][3] = 1;
		ck_assert_int_eq(fanin_iallreduce_hinted(sums[rank], sums[rank], 1000, FANIN_F32,
							 FANIN_SUM, FANIN_MAYBE_SPARSE,
							 &comms[rank], &hinted[rank]),
				 FANIN_OK);
		ck_assert(comms[rank].agreement.is_open);
		if (rank == 0)
			ck_assert_int_eq(fanin_iallreduce_sparse(1000, 1, &index, &value,
								 &results[0], FANIN_F32, FANIN_SUM,
								 NULL, &comms[0], &sparse[0]),
					 FANIN_OK);
	}
	for (uint32_t step = 0; comms[1].agreement.is_open; step++) {
		ck_assert_uint_lt(step, 200000);
		rig_step(&rig);
		fanin_progress(&contexts[0]);
		fanin_progress(&contexts[1]);
	}
	ck_assert_int_eq(fanin_iallreduce_sparse(1000, 1, &index, &value, &results[1], FANIN_F32,
						 FANIN_SUM, NULL, &comms[1], &sparse[1]),
			 FANIN_OK);
	for (uint16_t rank = 0; rank < 2; rank++) {
		for (uint32_t step = 0; fanin_test(sparse[rank]) == FANIN_IN_PROGRESS; step++) {
			ck_assert_uint_lt(step, 200000);
			rig_step(&rig);
			fanin_progress(&contexts[1 - rank]);
		}
		ck_assert_int_eq(fanin_wait(&hinted[rank]), FANIN_OK);
		ck_assert_float_eq(sums[rank][3], 2);
		ck_assert_int_eq(fanin_wait(&sparse[rank]), FANIN_OK);
		ck_assert_uint_eq(results[rank].count, 1);
		ck_assert_float_eq(((const float *)results[rank].values)[0], 4);
		fanin_sparse_result_free(&results[rank]);
	}
	rig_destroy(&rig);
}
END_TEST

Suite *
suite_sparse_ring(void)
{
	Suite *suite = suite_create("sparse_ring");
	TCase *results = tcase_create("results");
	TCase *requests = tcase_create("requests");
	TCase *failures = tcase_create("failures");
	TCase *wiring = tcase_create("wiring");

	tcase_set_timeout(results, 300);
	tcase_add_loop_test(results, every_type_and_operator_gives_the_union, 0, N(rank_counts));
	tcase_add_loop_test(results, any_number_of_ranks_gives_the_union, 0, 64);
	tcase_add_loop_test(results, values_are_combined_in_the_order_of_ranks, 0, N(rank_counts));
	tcase_add_test(results, vectors_of_any_length);
	tcase_add_loop_test(results, long_vectors_are_streamed, 0, 2);
	tcase_add_test(results, indices_have_8_bytes_where_4_do_not_reach);
	tcase_add_test(results, as_many_bytes_are_sent_as_published);
	tcase_add_test(results, the_ring_would_send_as_many_bytes_as_is_told);
	suite_add_tcase(suite, results);
	tcase_set_timeout(requests, 300);
	tcase_add_test(requests, requests_are_worked_on_in_the_order_of_posting);
	tcase_add_loop_test(requests, another_length_fails_the_request_only, 0, N(rank_counts));
	tcase_add_test(requests, too_little_room_fails_the_request_of_that_rank_only);
	tcase_add_test(requests, different_collectives_are_told_apart);
	tcase_add_test(requests, polled_descriptors_wake_a_sleeping_rank);
	tcase_add_test(requests, the_public_call_needs_no_agreement_and_is_reported);
	tcase_add_test(requests, whether_ranks_agree_does_not_depend_on_when_they_post);
	suite_add_tcase(suite, requests);
	tcase_set_timeout(failures, 300);
	tcase_add_loop_test(failures, a_killed_rank_is_named_by_all_at_once, 0, N_ROLES);
	tcase_add_loop_test(failures, a_rank_with_its_result_needs_no_killed_rank, 0, 5);
	tcase_add_loop_test(failures, a_rank_that_hangs_is_waited_for, 0, N_ROLES);
	tcase_add_loop_test(failures, a_rank_that_has_not_posted_is_waited_for, 0, N_ROLES);
	tcase_add_test(failures, a_rank_that_is_done_is_not_taken_for_late);
	tcase_add_loop_test(failures, a_rank_that_hangs_in_the_collective_before_is_waited_for, 0,
			    3);
	tcase_add_test(failures, rounds_of_others_may_take_longer_than_the_timeout);
	tcase_add_test(failures, the_wait_for_a_late_rank_may_have_a_limit);
	tcase_add_loop_test(failures, a_machine_that_does_not_answer_is_named, 0, 2);
	tcase_add_test(failures, a_partner_hears_of_a_failure_on_its_link);
	tcase_add_test(failures, a_stopped_rank_blames_nobody_when_it_resumes);
	tcase_add_loop_test(failures, leaving_after_the_last_collective_harms_nobody, 0, 7);
	tcase_add_test(failures, a_rank_that_has_left_is_named_by_who_still_wants_it);
	tcase_add_test(failures, leaving_in_the_middle_is_told_to_all);
	tcase_add_loop_test(failures, a_vector_that_is_none_is_refused, 0, N(wrong));
	suite_add_tcase(suite, failures);
	tcase_set_timeout(wiring, 60);
	tcase_add_test(wiring, a_partner_that_is_not_reached_is_named);
	tcase_add_test(wiring, only_lower_partners_may_call_and_each_once);
	suite_add_tcase(suite, wiring);
	return suite;
}
