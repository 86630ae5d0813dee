/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse vectors at a host: their cut into blocks and shards, and the public calls, whose ranks
 * agree on a density around the switch of sparse_world.h.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/dense/host/window.h"
#include "protocols/ring/host/ring.h"
#include "protocols/sparse/tests/sparse_comms.h"
#include "tests/unit/sparse_vectors.h"
#include "tests/unit/suites.h"

#define MAX_PAYLOAD 8192

/* ---------------------------------------------------------------- cutting */

static struct fanin_sparse_result nowhere = { .sz = sizeof(nowhere) };

/* Returns the vector of one rank, laid out for packets of this size. */
static struct fanin_vector *
vector_lay_out(struct sparse_vectors *vectors, uint32_t payload_bytes)
{
	struct fanin_vector *sparse;

	sparse_vectors_request(vectors, 0);
	sparse = vectors->requests[0].sparse;
	ck_assert_int_eq(fanin_vector_layout(sparse, payload_bytes), FANIN_OK);
	return sparse;
}

/*
 * Cuts a block, and checks that its shards have each of its values once. Returns the number of
 * shards.
 */
static unsigned int
block_expect(const struct fanin_vector *sparse, uint32_t block, uint32_t payload_bytes,
	     uint64_t *bytes)
{
	const uint64_t begin = (uint64_t)block * sparse->span;
	uint8_t payload[MAX_PAYLOAD], again[MAX_PAYLOAD];
	struct fanin_vector_cut cut;
	uint64_t position;

	fanin_vector_cut(sparse, block, payload_bytes, &cut);
	ck_assert_uint_ge(cut.n_shards, 1);
	ck_assert_uint_le(cut.n_shards, FANIN_SHARDS_MAX);
	position = cut.first;
	for (unsigned int number = 0; number < cut.n_shards; number++) {
		struct fanin_hdr hdr = { .dtype = sparse->dtype, .op = sparse->op };
		const uint32_t len = fanin_vector_make(sparse, block, &cut, number, &hdr, payload);
		const struct fanin_shard shard = fanin_shard_decode(hdr.members);
		const uint8_t *behind = payload + hdr.count * sparse->element_bytes;
		uint32_t word = 0;

		ck_assert_uint_le(len, payload_bytes);
		ck_assert_uint_eq(shard.span, cut.span);
		ck_assert_uint_eq(shard.number, number);
		ck_assert_uint_eq(shard.total, number + 1u == cut.n_shards ? cut.n_shards : 0);
		ck_assert(fanin_shard_fits(&hdr, len));
		ck_assert(fanin_shard_check(&hdr, payload, len));
		ck_assert(hdr.count != 0 || cut.n_shards == 1);
		ck_assert_uint_eq(fanin_vector_make(sparse, block, &cut, number, &hdr, again), len);
		ck_assert_int_eq(memcmp(payload, again, len), 0);
		if (hdr.count != 0)
			ck_assert_int_eq(memcmp(payload,
						sparse->values + position * sparse->element_bytes,
						hdr.count * sparse->element_bytes),
					 0);
		for (uint32_t i = 0; i < hdr.count; i++) {
			const uint64_t expected = fanin_vector_index(sparse->indices,
								     sparse->index_bytes,
								     position++) -
						  begin;

			if (shard.form == FANIN_SHARD_LIST) {
				const uint8_t index_bytes =
					(uint8_t)fanin_shard_index_bytes(shard.span);

				ck_assert_uint_eq(fanin_vector_index(behind, index_bytes, i),
						  expected);
				continue;
			}
			word = (uint32_t)(expected - fanin_shard_first(payload, len));
			ck_assert_uint_ne(behind[word / 8] >> word % 8 & 1, 0);
		}
		*bytes += len + FANIN_PAYLOAD_OFFSET;
	}
	ck_assert_uint_eq(position, cut.first + cut.count);
	return cut.n_shards;
}

static const uint8_t dtypes[] = { FANIN_WIRE_I8, FANIN_WIRE_BF16, FANIN_WIRE_F32, FANIN_WIRE_F64 };
static const uint32_t payloads[] = { 640, 1408, 8192 };
static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 0.5, 1 };

#define N(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(each_value_is_in_one_shard)
{
	for (size_t i = 0; i < N(densities) * SPARSE_PATTERNS * N(payloads); i++) {
		const uint32_t payload_bytes = payloads[i % N(payloads)];
		const struct sparse_vectors_options options = {
			.n = 100000,
			.seed = i,
			.density = densities[i / N(payloads) % N(densities)],
			.pattern = (enum sparse_pattern)(i / N(payloads) / N(densities)),
			.n_ranks = 1,
			.dtype = dtypes[_i],
			.op = FANIN_WIRE_SUM,
			.index_bytes = i % 2 == 0 ? 4 : 8,
		};
		struct sparse_vectors *vectors = sparse_vectors_make(&options);
		struct fanin_vector *sparse = vector_lay_out(vectors, payload_bytes);
		const uint64_t list_bytes = sparse->nnz * (sparse->element_bytes + 4u);
		const uint64_t headers = (uint64_t)FANIN_PAYLOAD_OFFSET *
					 (sparse->n_blocks + 1 + list_bytes / payload_bytes);
		uint64_t bytes = 0;

		for (uint32_t block = 0; block < sparse->n_blocks; block++)
			block_expect(sparse, block, payload_bytes, &bytes);
		/*
		 * A bitmap is never longer than a list, as far as the number of a list's packets
		 * can be predicted.
		 */
		ck_assert_uint_le(bytes, list_bytes + 2 * headers);
		sparse_vectors_free(vectors);
	}
}
END_TEST

/*
 * Makes a vector of one block, which has values at every `step`-th index. Returns the number of its
 * shards.
 */
static unsigned int
shards_of(uint32_t span, uint32_t count, uint32_t step, uint32_t payload_bytes)
{
	struct fanin_vector sparse = {
		.n = span,
		.nnz = count,
		.result = &nowhere,
		.index_bytes = 4,
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.element_bytes = 4,
		.span = span,
		.n_blocks = 1,
	};
	uint32_t *indices = malloc((count + 1) * sizeof(*indices));
	float *values = calloc(count + 1, sizeof(*values));
	unsigned int n_shards;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++)
		indices[i] = i * step;
	sparse.indices = (const uint8_t *)indices;
	sparse.values = (const uint8_t *)values;
	n_shards = block_expect(&sparse, 0, payload_bytes, &bytes);
	free(indices);
	free(values);
	return n_shards;
}

START_TEST(packets_may_be_exactly_full)
{
	const uint32_t most = fanin_shard_list_max(17920, 4, 1408);

	/* The values are so far apart that a bitmap would be longer. */
	ck_assert_uint_eq(shards_of(17920, most - 1, 70, 1408), 1);
	ck_assert_uint_eq(shards_of(17920, most, 70, 1408), 1);
	ck_assert_uint_eq(shards_of(17920, most + 1, 70, 1408), 2);
	ck_assert_uint_eq(shards_of(60000, 3 * most, 80, 1408), 3);
	ck_assert_uint_eq(shards_of(60000, 3 * most + 1, 80, 1408), 4);
}
END_TEST

START_TEST(an_empty_block_has_one_shard)
{
	ck_assert_uint_eq(shards_of(1, 0, 1, 1408), 1);
	ck_assert_uint_eq(shards_of(17920, 0, 1, 1408), 1);
}
END_TEST

START_TEST(a_full_block_has_56_shards)
{
	for (size_t i = 0; i < N(payloads); i++) {
		const uint32_t most = fanin_shard_span_max(4, payloads[i]);

		ck_assert_uint_eq(shards_of(most, most, 1, payloads[i]), FANIN_SHARDS_FULL);
		ck_assert_uint_le(shards_of(most, most / 2, 2, payloads[i]), FANIN_SHARDS_FULL);
		ck_assert_uint_le(shards_of(most, most / 3, 3, payloads[i]), FANIN_SHARDS_FULL);
	}
}
END_TEST

START_TEST(a_span_fills_a_packet_on_average)
{
	for (size_t i = 0; i < N(payloads) * N(dtypes); i++) {
		const uint32_t payload = payloads[i % N(payloads)];
		const uint32_t bytes = fanin_dtype_size(dtypes[i / N(payloads)]);
		const uint32_t limit = fanin_shard_span_max(bytes, payload);
		const uint64_t n = 1000000000;
		uint32_t before = limit;

		ck_assert_uint_eq(fanin_vector_span(n, 0, bytes, payload), limit / 64 * 64);
		ck_assert_uint_eq(fanin_vector_span(n, n, bytes, payload),
				  fanin_shard_bitmap_full(bytes, payload));
		for (uint64_t most = 1000; most <= n; most *= 10) {
			const uint32_t span = fanin_vector_span(n, most, bytes, payload);
			const double values = (double)span * (double)most / (double)n;
			const double room = fmax(payload / (bytes + 4.0),
						 (payload - 4.0 - span / 8.0) / bytes);

			ck_assert_uint_eq(span % 64, 0);
			ck_assert_uint_le(span, before);
			if (span != 64)
				ck_assert(values <= fmax(room, payload / (bytes + 2.0)));
			/* The packet is not much shorter either, unless the span is the maximum. */
			if (span < limit - 64 && span > 640 && span != FANIN_SHARD_SHORT_SPAN)
				ck_assert(values > 0.5 * payload / (bytes + 4.0));
			/*
			 * Otherwise the indices of a larger span would take more bytes than the
			 * headers that it saves.
			 */
			if (span == FANIN_SHARD_SHORT_SPAN &&
			    values < 0.5 * payload / (bytes + 4.0))
				ck_assert(2 * values >= FANIN_PAYLOAD_OFFSET);
			before = span;
		}
	}
	/* Short vectors, and long ones, for which products would not fit into a word. */
	ck_assert_uint_eq(fanin_vector_span(0, 0, 4, 1408), 64);
	ck_assert_uint_eq(fanin_vector_span(1, 1, 4, 1408), 64);
	ck_assert_uint_eq(fanin_vector_span(100, 1, 4, 1408), 128);
	ck_assert_uint_eq(fanin_vector_span(UINT64_MAX / 4, UINT64_MAX / 40, 4, 1408),
			  fanin_vector_span(10000000, 1000000, 4, 1408));
	ck_assert_uint_eq(fanin_vector_span(1000, 10, 8, 500), 0);
}
END_TEST

START_TEST(packets_that_are_too_short_are_refused)
{
	struct fanin_vector sparse = {
		.n = 1000, .dtype = FANIN_WIRE_F64, .element_bytes = 8, .result = &nowhere
	};

	ck_assert_int_eq(fanin_vector_layout(&sparse, 512), FANIN_ERR_UNSUPPORTED);
	ck_assert_str_eq(
		sparse.error.text,
		"packets of 512 bytes are too short for sparse blocks of f64, expected 524 at least");
}
END_TEST

/* ---------------------------------------------------------------- public calls */

static int
post_vector(struct sparse_vectors *vectors, uint16_t rank, const struct fanin_sparse_opts *options,
	    fanin_request **request)
{
	return fanin_iallreduce_sparse(vectors->options.n, vectors->nnz[rank],
				       vectors->indices[rank], vectors->values[rank],
				       &vectors->results[rank],
				       (enum fanin_dtype)vectors->options.dtype,
				       (enum fanin_op)vectors->options.op, options,
				       &sparse_comms[rank], request);
}

static struct sparse_vectors_options
options_of(uint64_t n, double density)
{
	return (struct sparse_vectors_options){
		.n = n,
		.density = density,
		.n_ranks = sparse_world.n_ranks,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
		.index_bytes = 4,
	};
}

/*
 * Ranks post at different times: sparse, dense, sparse, sparse, dense. All results are as expected,
 * so block numbers agree with the others'.
 */
START_TEST(posted_requests_wait_for_the_agreement)
{
	struct sparse_vectors *vectors[3];
	fanin_request *sparse[3][SPARSE_WORLD_RANKS], *dense[2][SPARSE_WORLD_RANKS];
	uint64_t data[2][SPARSE_WORLD_RANKS][300];
	const double shares[3] = { 0.2, 0.001, 0 };

	sparse_comms_open(3);
	sparse_world.loss = _i == 0 ? 0 : 0.05;
	sparse_world.duplication = sparse_world.loss;
	for (int i = 0; i < 3; i++) {
		struct sparse_vectors_options options = options_of(20000, shares[i]);

		options.seed = (uint64_t)i;
		options.pattern = SPARSE_CLUSTERED;
		vectors[i] = sparse_vectors_make(&options);
	}
	/* One rank has fewer values than the others: its own density does not count. */
	for (uint16_t rank = 0; rank < 3; rank++) {
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(post_vector(vectors[i], rank, NULL, &sparse[i][rank]),
					 FANIN_OK);
		for (int i = 0; i < 2; i++) {
			for (int k = 0; k < 300; k++)
				data[i][rank][k] = (uint64_t)(rank + 1) * (uint64_t)(k + i);
			ck_assert_int_eq(fanin_iallreduce(data[i][rank], data[i][rank], 300,
							  FANIN_U64, FANIN_SUM, &sparse_comms[rank],
							  &dense[i][rank]),
					 FANIN_OK);
		}
		ck_assert_int_eq(fanin_test(dense[1][rank]), FANIN_IN_PROGRESS);
		for (int i = 0; i < 20; i++)
			sparse_world_step();
	}
	ck_assert_int_eq(sparse_comms_finish(dense[1]), FANIN_OK);
	ck_assert_int_eq(sparse_comms_finish(dense[0]), FANIN_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(sparse_comms_finish(sparse[i]), FANIN_OK);
		for (uint16_t rank = 0; rank < 3; rank++)
			sparse_vectors_expect_result(vectors[i], &vectors[i]->results[rank]);
		sparse_vectors_free(vectors[i]);
	}
	for (uint16_t rank = 0; rank < 3; rank++) {
		for (int k = 0; k < 600; k++)
			ck_assert_uint_eq(data[k / 300][rank][k % 300],
					  6u * (uint64_t)(k % 300 + k / 300));
		ck_assert(!sparse_comms[rank].agreement.is_open);
	}
	sparse_world_close();
}
END_TEST

START_TEST(a_density_needs_no_agreement)
{
	const struct fanin_sparse_opts given = { .sz = sizeof(given), .density = 0.01 };
	struct sparse_vectors_options options;
	fanin_request *requests[SPARSE_WORLD_RANKS];
	struct sparse_vectors *vectors;
	struct fanin_report report = { .sz = sizeof(report) };

	sparse_comms_open(2);
	options = options_of(30000, 0.02);
	vectors = sparse_vectors_make(&options);
	for (uint16_t rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(post_vector(vectors, rank, &given, &requests[rank]), FANIN_OK);
		ck_assert(!sparse_comms[rank].agreement.is_open);
	}
	ck_assert_int_eq(sparse_comms_finish(requests), FANIN_OK);
	for (uint16_t rank = 0; rank < 2; rank++)
		sparse_vectors_expect_result(vectors, &vectors->results[rank]);
	fanin_comm_report(&sparse_comms[0], &report);
	ck_assert_uint_eq(report.blocks, report.sparse_blocks);
	ck_assert_uint_eq(report.sparse_elements, 30000);
	ck_assert_uint_eq(report.sparse_values_sent, 600);
	ck_assert_uint_eq(report.sparse_values_received, vectors->n_expected);
	ck_assert_uint_eq(report.sparse_dense_bytes, 120000);
	ck_assert_uint_gt(report.shards_sent, 1);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

START_TEST(ranks_with_another_n_fail_and_go_on)
{
	struct sparse_vectors_options options;
	fanin_request *requests[SPARSE_WORLD_RANKS];
	struct sparse_vectors *vectors;

	sparse_comms_open(2);
	for (int round = 0; round < 2; round++) {
		options = options_of(1000, 0.1);
		vectors = sparse_vectors_make(&options);
		for (uint16_t rank = 0; rank < 2; rank++) {
			vectors->options.n = round == 0 && rank == 1 ? 1001 : 1000;
			ck_assert_int_eq(post_vector(vectors, rank, NULL, &requests[rank]),
					 FANIN_OK);
		}
		ck_assert_int_eq(sparse_comms_finish(requests),
				 round == 0 ? FANIN_ERR_INVALID : FANIN_OK);
		ck_assert_str_eq(
			fanin_ctx_error(&sparse_contexts[1]),
			round == 0 ? "n is 1001 here, and 1000 to 1001 at all ranks, expected "
				     "the same at all"
				   : "");
		if (round == 1)
			sparse_vectors_expect_result(vectors, &vectors->results[1]);
		sparse_vectors_free(vectors);
	}
	sparse_world_close();
}
END_TEST

START_TEST(waiting_requests_fail_with_the_communicator)
{
	const struct fanin_error error = { .text = "gone" };
	struct sparse_vectors_options options;
	fanin_request *requests[3];
	struct sparse_vectors *vectors;

	sparse_comms_open(2);
	options = options_of(1000, 0.1);
	vectors = sparse_vectors_make(&options);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(post_vector(vectors, 0, NULL, &requests[i]), FANIN_OK);
	ck_assert_int_eq(fanin_ibarrier(&sparse_comms[0], &requests[2]), FANIN_OK);
	fanin_engine_abort(sparse_world.engines[0], FANIN_ERR_TIMEOUT, &error);
	sparse_comms[0].gave_up = true;
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fanin_wait(&requests[i]), FANIN_ERR_TIMEOUT);
		ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[0]), "gone");
	}
	ck_assert_int_eq(post_vector(vectors, 0, NULL, &requests[0]), FANIN_ERR_TIMEOUT);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

START_TEST(no_room_is_told_with_what_is_needed)
{
	struct sparse_vectors_options options;
	fanin_request *requests[SPARSE_WORLD_RANKS];
	struct sparse_vectors *vectors;
	char expected[128];

	sparse_comms_open(2);
	options = options_of(5000, 0.1);
	options.in_place = true;
	vectors = sparse_vectors_make(&options);
	for (uint16_t rank = 0; rank < 2; rank++) {
		vectors->results[rank].capacity = vectors->n_expected - rank;
		ck_assert_int_eq(post_vector(vectors, rank, NULL, &requests[rank]), FANIN_OK);
	}
	ck_assert_int_eq(sparse_comms_finish(requests), FANIN_ERR_CAPACITY);
	snprintf(expected, sizeof(expected), "the result has %llu values, capacity is %llu",
		 (unsigned long long)vectors->n_expected,
		 (unsigned long long)vectors->n_expected - 1);
	ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[1]), expected);
	ck_assert_uint_eq(vectors->results[1].count, vectors->n_expected);
	sparse_vectors_expect_result(vectors, &vectors->results[0]);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

static uint32_t some_indices[] = { 3, 5, 5, 9 };
static int32_t some_values[] = { 1, 2, 3, 4 };

/* Checks that the call is refused with this text. */
static void
refused(int status, const char *text, uint64_t n, uint64_t nnz, const void *indices,
	struct fanin_sparse_result *result, enum fanin_dtype dtype, enum fanin_op op,
	const struct fanin_sparse_opts *options)
{
	fanin_request *request = NULL;

	ck_assert_int_eq(fanin_iallreduce_sparse(n, nnz, indices, some_values, result, dtype, op,
						 options, &sparse_comms[0], &request),
			 status);
	ck_assert_ptr_null(request);
	ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[0]), text);
	ck_assert_ptr_null(sparse_comms[0].requests);
}

START_TEST(arguments_are_checked)
{
	static const uint32_t descending[] = { 5, 3 };
	struct fanin_sparse_result result = { .sz = sizeof(result) };
	struct fanin_sparse_opts options = { .sz = sizeof(options) };
	int32_t dense[16];

	sparse_comms_open(2);
	refused(FANIN_ERR_INVALID,
		"indices[1] is 3, expected more than the one before it, which is 5", 10, 2,
		descending, &result, FANIN_I32, FANIN_SUM, NULL);
	refused(FANIN_ERR_INVALID,
		"indices[2] is 5, as is the one before it, expected each index once: `coalesce` combines "
		"the values of equal ones",
		10, 4, some_indices, &result, FANIN_I32, FANIN_SUM, NULL);
	refused(FANIN_ERR_INVALID, "indices[3] is 9, expected less than n, which is 9", 9, 4,
		(const uint32_t[]){ 3, 5, 6, 9 }, &result, FANIN_I32, FANIN_SUM, NULL);
	refused(FANIN_ERR_INVALID, "indices is NULL, but nnz is 1", 9, 1, NULL, &result, FANIN_I32,
		FANIN_SUM, NULL);
	refused(FANIN_ERR_INVALID, "n is 4294967297, expected at most 2^32 with indices of 4 bytes",
		(UINT64_C(1) << 32) + 1, 1, some_indices, &result, FANIN_I32, FANIN_SUM, NULL);
	refused(FANIN_ERR_INVALID, "result is NULL", 9, 1, some_indices, NULL, FANIN_I32, FANIN_SUM,
		NULL);
	result.values = dense;
	refused(FANIN_ERR_INVALID,
		"of the result's indices and values one is NULL, expected both or none", 9, 1,
		some_indices, &result, FANIN_I32, FANIN_SUM, NULL);
	result.indices = dense;
	result.dense = dense;
	refused(FANIN_ERR_INVALID, "the result has dense and indices, expected one of them", 9, 1,
		some_indices, &result, FANIN_I32, FANIN_SUM, NULL);
	result = (struct fanin_sparse_result){ .sz = sizeof(result), .dense = some_values };
	refused(FANIN_ERR_INVALID, "a dense result overlaps what is sent", 9, 1, some_indices,
		&result, FANIN_I32, FANIN_SUM, NULL);
	result = (struct fanin_sparse_result){ .sz = 8 };
	refused(FANIN_ERR_INVALID, "the result's sz is 8, expected 56", 9, 1, some_indices, &result,
		FANIN_I32, FANIN_SUM, NULL);
	result = (struct fanin_sparse_result){ .sz = sizeof(result) };
	options.index_bytes = 2;
	refused(FANIN_ERR_INVALID, "index_bytes is 2, expected 4 or 8", 9, 1, some_indices, &result,
		FANIN_I32, FANIN_SUM, &options);
	options.index_bytes = 0;
	options.density = 1.5;
	refused(FANIN_ERR_INVALID, "density is 1.5, expected 0 to 1", 9, 1, some_indices, &result,
		FANIN_I32, FANIN_SUM, &options);
	sparse_world_close();
}
END_TEST

START_TEST(undefined_operations_are_refused_by_name)
{
	struct fanin_protocol without = fanin_protocol_ring;
	struct fanin_sparse_result result = { .sz = sizeof(result) };

	sparse_comms_open(2);
	refused(FANIN_ERR_UNSUPPORTED,
		"avg is not defined on sparse vectors, of which a rank may have no value at an index: take "
		"sum",
		10, 1, some_indices, &result, FANIN_F32, FANIN_AVG, NULL);
	refused(FANIN_ERR_UNSUPPORTED, "custom operator 130 is not defined on sparse vectors", 10,
		1, some_indices, &result, FANIN_F32, FANIN_CUSTOM(130), NULL);
	refused(FANIN_ERR_INVALID, "132 is not a data type of sparse vectors", 10, 1, some_indices,
		&result, FANIN_OPAQUE(4), FANIN_SUM, NULL);
	refused(FANIN_ERR_UNSUPPORTED, "bxor is not defined on f32", 10, 1, some_indices, &result,
		FANIN_F32, FANIN_BXOR, NULL);
	sparse_comms[0].member.wide = true;
	refused(FANIN_ERR_UNSUPPORTED,
		"the job accumulates sums of bf16 in f32, which are not defined on sparse vectors: take f32, "
		"or a job that does not accumulate in f32",
		10, 1, some_indices, &result, FANIN_BF16, FANIN_SUM, NULL);
	sparse_comms[0].protocol = &fanin_protocol_window;
	strcpy(sparse_comms[0].member.handler, "single");
	refused(FANIN_ERR_UNSUPPORTED,
		"the job's handler single has no allreduce_sparse: make the job with the handler sparse, "
		"sparse-array or sparse-hash, or use allreduce",
		10, 1, some_indices, &result, FANIN_F32, FANIN_SUM, NULL);
	without.collectives = 1 << FANIN_COLLECTIVE_ALLREDUCE;
	sparse_comms[0].protocol = &without;
	strcpy(sparse_comms[0].mode_reason, "there is no tree");
	refused(FANIN_ERR_UNSUPPORTED,
		"the job runs without a switch (there is no tree), and its protocol ring has no "
		"allreduce_sparse: use allreduce",
		10, 1, some_indices, &result, FANIN_F32, FANIN_SUM, NULL);
	sparse_world_close();
}
END_TEST

/* This holds for any handler of the job. */
START_TEST(a_rank_alone_gets_what_it_brings)
{
	const struct fanin_sparse_opts coalescing = { .sz = sizeof(coalescing), .coalesce = true };
	int32_t dense[10];
	struct fanin_sparse_result result = { .sz = sizeof(result), .dense = dense };
	static const int32_t expected[10] = { 0, 0, 0, 1, 0, 5, 0, 0, 0, 4 };

	sparse_comms_open(1);
	sparse_comms[0].protocol = &fanin_protocol_window;
	ck_assert_int_eq(fanin_allreduce_sparse(10, 4, some_indices, some_values, &result,
						FANIN_I32, FANIN_SUM, &coalescing,
						&sparse_comms[0]),
			 FANIN_OK);
	ck_assert_int_eq(memcmp(dense, expected, sizeof(dense)), 0);
	ck_assert_uint_eq(result.count, 3);
	result = (struct fanin_sparse_result){ .sz = sizeof(result) };
	ck_assert_int_eq(fanin_allreduce_sparse(10, 4, some_indices, some_values, &result,
						FANIN_I32, FANIN_MAX, &coalescing,
						&sparse_comms[0]),
			 FANIN_OK);
	ck_assert_uint_eq(result.count, 3);
	ck_assert_uint_eq(((const uint32_t *)result.indices)[2], 9);
	ck_assert_int_eq(((const int32_t *)result.values)[1], 3);
	ck_assert(result.allocated);
	fanin_sparse_result_free(&result);
	ck_assert_ptr_null(result.indices);
	/* In place, without room. */
	result.indices = some_indices;
	result.values = some_values;
	result.capacity = 1;
	ck_assert_int_eq(fanin_allreduce_sparse(10, 2, some_indices, some_values, &result,
						FANIN_I32, FANIN_MAX, NULL, &sparse_comms[0]),
			 FANIN_ERR_CAPACITY);
	ck_assert_str_eq(fanin_ctx_error(&sparse_contexts[0]),
			 "the result has 2 values, capacity is 1");
	fanin_sparse_result_free(&result);
	ck_assert_ptr_eq(result.indices, some_indices);
	/* A vector without indices and values. */
	ck_assert_int_eq(fanin_allreduce_sparse(0, 0, NULL, NULL, &result, FANIN_I32, FANIN_MAX,
						NULL, &sparse_comms[0]),
			 FANIN_OK);
	ck_assert_uint_eq(result.count, 0);
	sparse_world_close();
}
END_TEST

START_TEST(duplicates_are_combined_before_they_are_sent)
{
	const struct fanin_sparse_opts coalescing = { .sz = sizeof(coalescing), .coalesce = true };
	struct fanin_sparse_result results[2] = { { .sz = sizeof(results[0]) },
						  { .sz = sizeof(results[0]) } };
	fanin_request *requests[2];

	sparse_comms_open(2);
	for (uint16_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(fanin_iallreduce_sparse(10, 4, some_indices, some_values,
							 &results[rank], FANIN_I32, FANIN_SUM,
							 &coalescing, &sparse_comms[rank],
							 &requests[rank]),
				 FANIN_OK);
	ck_assert_int_eq(sparse_comms_finish(requests), FANIN_OK);
	for (uint16_t rank = 0; rank < 2; rank++) {
		ck_assert_uint_eq(results[rank].count, 3);
		ck_assert_int_eq(((const int32_t *)results[rank].values)[0], 2);
		ck_assert_int_eq(((const int32_t *)results[rank].values)[1], 10);
		ck_assert_int_eq(((const int32_t *)results[rank].values)[2], 8);
		fanin_sparse_result_free(&results[rank]);
	}
	ck_assert_int_eq(some_values[1], 2);
	sparse_world_close();
}
END_TEST

/*
 * Both blocks have one index, so the switch takes them; the rank whose vector has none must not
 * write the other rank's value anywhere.
 */
START_TEST(a_rank_without_indices_takes_no_value)
{
	const struct fanin_sparse_opts given = { .sz = sizeof(given), .density = 1 };
	const uint32_t index = 0;
	const float value = 1;
	float dense[2] = { 7, 7 };
	struct fanin_sparse_result results[2];
	fanin_request *requests[SPARSE_WORLD_RANKS];

	sparse_comms_open(2);
	for (uint16_t rank = 0; rank < 2; rank++) {
		results[rank] = (struct fanin_sparse_result){ .sz = sizeof(results[0]),
							      .dense = &dense[rank] };
		ck_assert_int_eq(fanin_iallreduce_sparse(rank, rank, &index, &value, &results[rank],
							 FANIN_F32, FANIN_SUM, &given,
							 &sparse_comms[rank], &requests[rank]),
				 FANIN_OK);
	}
	for (uint32_t step = 0; fanin_test(requests[0]) == FANIN_IN_PROGRESS; step++) {
		ck_assert_uint_lt(step, 200000);
		sparse_world_step();
		fanin_progress(&sparse_contexts[0]);
		fanin_progress(&sparse_contexts[1]);
	}
	ck_assert_int_eq(fanin_wait(&requests[0]), FANIN_ERR_REFUSED);
	ck_assert_float_eq(dense[0], 7);
	sparse_world_close();
}
END_TEST

Suite *
suite_sparse_host(void)
{
	Suite *suite = suite_create("sparse_host");
	TCase *cutting = tcase_create("cutting");
	TCase *calls = tcase_create("calls");

	tcase_set_timeout(cutting, 60);
	tcase_add_loop_test(cutting, each_value_is_in_one_shard, 0, (int)N(dtypes));
	tcase_add_test(cutting, packets_may_be_exactly_full);
	tcase_add_test(cutting, an_empty_block_has_one_shard);
	tcase_add_test(cutting, a_full_block_has_56_shards);
	tcase_add_test(cutting, a_span_fills_a_packet_on_average);
	tcase_add_test(cutting, packets_that_are_too_short_are_refused);
	suite_add_tcase(suite, cutting);
	tcase_set_timeout(calls, 60);
	tcase_add_loop_test(calls, posted_requests_wait_for_the_agreement, 0, 2);
	tcase_add_test(calls, a_density_needs_no_agreement);
	tcase_add_test(calls, ranks_with_another_n_fail_and_go_on);
	tcase_add_test(calls, waiting_requests_fail_with_the_communicator);
	tcase_add_test(calls, no_room_is_told_with_what_is_needed);
	tcase_add_test(calls, arguments_are_checked);
	tcase_add_test(calls, undefined_operations_are_refused_by_name);
	tcase_add_test(calls, a_rank_alone_gets_what_it_brings);
	tcase_add_test(calls, duplicates_are_combined_before_they_are_sent);
	tcase_add_test(calls, a_rank_without_indices_takes_no_value);
	suite_add_tcase(suite, calls);
	return suite;
}
