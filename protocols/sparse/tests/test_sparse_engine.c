/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's side of sparse blocks (hostlib/src/engine/shards.c) around a small model of a switch.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/sparse_vectors.h"
#include "protocols/sparse/tests/sparse_world.h"
#include "tests/unit/suites.h"

static void
post(struct sparse_vectors *vectors, uint16_t rank)
{
	sparse_vectors_request(vectors, rank);
	ck_assert_int_eq(fanin_engine_post(sparse_world.engines[rank], &vectors->requests[rank],
					   vectors->options.n),
			 FANIN_OK);
}

static void
run(struct sparse_vectors *vectors)
{
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		for (uint32_t step = 0; vectors->requests[rank].status == FANIN_IN_PROGRESS;
		     step++) {
			ck_assert_uint_lt(step, 1000000);
			sparse_world_step();
		}
		ck_assert_msg(vectors->requests[rank].status == FANIN_OK, "rank %u: %s", rank,
			      fanin_engine_error(sparse_world.engines[rank])->text);
	}
}

static void
allreduce(const struct sparse_vectors_options *options)
{
	struct sparse_vectors *vectors = sparse_vectors_make(options);

	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++)
		post(vectors, rank);
	run(vectors);
	sparse_vectors_expect(vectors);
	sparse_vectors_free(vectors);
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

static const double densities[] = { 0, 1e-9, 0.001, 0.01, 0.1, 0.2, 1 };
#define N_DENSITIES ((int)(sizeof(densities) / sizeof(densities[0])))

START_TEST(every_rank_gets_the_sum_of_all)
{
	struct sparse_vectors_options options;

	sparse_world_open((uint16_t)(1 + _i % SPARSE_WORLD_RANKS));
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(10000, densities[density]);
		options.pattern = (enum sparse_pattern)(density % SPARSE_PATTERNS);
		options.dense = (_i + density) % 2 != 0;
		options.index_bytes = _i % 3 == 0 ? 8 : 4;
		options.seed = (uint64_t)_i;
		allreduce(&options);
	}
	for (uint16_t rank = 0; rank < sparse_world.n_ranks; rank++) {
		ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[rank])->retransmits, 0);
		ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[rank])->duplicates, 0);
		ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[rank])->invalid, 0);
	}
	sparse_world_close();
}
END_TEST

START_TEST(results_are_exact_under_loss_duplication_and_reordering)
{
	struct sparse_vectors_options options;

	sparse_world_open((uint16_t)(2 + _i % 3));
	sparse_world.random = random_seed((uint64_t)_i);
	sparse_world.loss = 0.1;
	sparse_world.duplication = 0.1;
	sparse_world.reordering = 0.2;
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(20000, densities[density]);
		options.pattern = (enum sparse_pattern)(_i % SPARSE_PATTERNS);
		options.dense = (_i + density) % 3 == 0;
		options.in_place = (_i + density) % 3 == 1;
		/* This includes blocks of many shards. */
		options.hint = _i % 2 == 0 ? 0 : densities[density] / 20;
		options.seed = (uint64_t)_i;
		allreduce(&options);
	}
	sparse_world_close();
}
END_TEST

/*
 * Shards come before the rank has sent its own, and all ranks combine their values in the order of
 * their numbers.
 */
START_TEST(spills_are_combined)
{
	struct sparse_vectors_options options;

	sparse_world_open(3);
	sparse_world.spills = true;
	if (_i != 0)
		sparse_world.loss = sparse_world.duplication = 0.1;
	sparse_world.reordering = 0.3;
	for (int density = 0; density < N_DENSITIES; density++) {
		options = options_of(3000, densities[density] < 0.3 ? densities[density] : 0.3);
		options.pattern = SPARSE_SAME;
		options.dtype = FANIN_WIRE_F32;
		options.op = density % 2 == 0 ? FANIN_WIRE_SUM : FANIN_WIRE_MAX;
		options.dense = density % 3 == 0;
		allreduce(&options);
	}
	sparse_world_close();
}
END_TEST

START_TEST(vectors_of_any_length)
{
	static const uint64_t lengths[] = { 0, 1, 63, 64, 65, 1000, 1024, 17919, 17920, 40001 };
	struct sparse_vectors_options options;

	sparse_world_open(2);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		options = options_of(lengths[i], _i == 0 ? 0.05 : 1);
		options.dense = _i == 0;
		allreduce(&options);
	}
	sparse_world_close();
}
END_TEST

START_TEST(block_numbers_wrap_around)
{
	struct sparse_vectors_options options;

	sparse_world_open_at(3, UINT32_MAX - 20, false);
	sparse_world.loss = 0.05;
	options = options_of(60000, 0.2);
	for (int i = 0; i < 3; i++)
		allreduce(&options);
	sparse_world_close();
}
END_TEST

/* A lane keeps its place when there is room for only some of its shards. */
START_TEST(a_transport_without_room_is_waited_for)
{
	struct sparse_vectors_options options;

	sparse_world_open(2);
	sparse_world.links[0].is_short = true;
	sparse_world.links[1].is_short = true;
	options = options_of(20000, 0.3);
	options.hint = 0.01;
	allreduce(&options);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->retransmits, 0);
	sparse_world.loss = 0.1;
	allreduce(&options);
	sparse_world_close();
}
END_TEST

START_TEST(several_requests_may_be_outstanding)
{
	struct sparse_vectors *vectors[8];

	sparse_world_open(3);
	sparse_world.loss = 0.02;
	for (uint32_t i = 0; i < 8; i++) {
		struct sparse_vectors_options options = options_of(5000 * i, 0.02 * i);

		options.seed = i;
		vectors[i] = sparse_vectors_make(&options);
		/*
		 * Ranks post at different times, but all in the same order: spills and results may
		 * come before.
		 */
		for (uint16_t rank = 0; rank < 3; rank++) {
			post(vectors[i], rank);
			sparse_world_step();
		}
	}
	for (uint32_t i = 8; i-- > 0;)
		run(vectors[i]);
	for (uint32_t i = 0; i < 8; i++) {
		sparse_vectors_expect(vectors[i]);
		sparse_vectors_free(vectors[i]);
	}
	sparse_world_close();
}
END_TEST

/* One shard of a block of many is lost: only it is sent again, and the same holds for a result. */
START_TEST(only_lost_shards_are_sent_again)
{
	struct sparse_vectors_options options;
	uint64_t sent, received;

	sparse_world_open(2);
	/* One block with the maximum of indices, and many shards. */
	options = options_of(fanin_shard_span_max(4, SPARSE_WORLD_PAYLOAD), 0.3);
	options.hint = 1e-9;
	allreduce(&options);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->sparse_blocks, 1);
	sent = fanin_engine_stats(sparse_world.engines[0])->shards_sent;
	received = fanin_engine_stats(sparse_world.engines[0])->shards_received;
	ck_assert_uint_gt(sent, 15);
	sparse_world.drop_results = 2;
	allreduce(&options);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->shards_sent, 2 * sent);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->shards_received,
			  2 * received);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->duplicates, 0);
	ck_assert_uint_ge(sparse_world.links[0].bodies, 1);
	/* Some shards are lost on the way to the switch. */
	sparse_world.random = random_seed(5);
	sparse_world.loss = 0.1;
	allreduce(&options);
	ck_assert_uint_gt(sparse_world.links[0].again, 0);
	ck_assert_uint_lt(sparse_world.links[0].again, sent / 2);
	sparse_world_close();
}
END_TEST

/*
 * Shards of many blocks are lost: an answer tells which shards only for one block, so the others
 * are queried, too.
 */
START_TEST(of_each_block_what_is_lost_is_sent_again)
{
	struct sparse_vectors_options options;

	sparse_world_open(2);
	options = options_of(12 * fanin_shard_span_max(4, SPARSE_WORLD_PAYLOAD), 0.3);
	options.hint = 1e-9;
	sparse_world.lost = 3;
	allreduce(&options);
	for (uint16_t rank = 0; rank < 2; rank++) {
		ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[rank])->sparse_blocks,
				  12);
		ck_assert_uint_eq(sparse_world.links[rank].again, 12);
	}
	sparse_world_close();
}
END_TEST

START_TEST(the_request_that_has_no_room_fails_alone)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	sparse_world_open(2);
	options = options_of(10000, 0.1);
	options.in_place = true;
	vectors = sparse_vectors_make(&options);
	vectors->results[0].capacity = vectors->n_expected - 1;
	for (uint16_t rank = 0; rank < 2; rank++)
		post(vectors, rank);
	for (uint32_t step = 0; step < 1000; step++)
		sparse_world_step();
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_CAPACITY);
	ck_assert_uint_eq(vectors->results[0].count, vectors->n_expected);
	ck_assert_ptr_nonnull(strstr(vectors->requests[0].sparse->error.text, "capacity is"));
	ck_assert_int_eq(vectors->requests[1].status, FANIN_OK);
	sparse_vectors_expect_result(vectors, &vectors->results[1]);
	sparse_vectors_free(vectors);
	allreduce(&options);
	sparse_world_close();
}
END_TEST

/* Plays a shard of a result, whose only value is at this index. */
static void
shard_play(uint16_t rank, uint32_t block, struct fanin_shard shard, uint32_t index, uint8_t dtype,
	   uint32_t value)
{
	struct sparse_frame frame;
	struct fanin_hdr *hdr = sparse_world_frame(&frame, FANIN_TYPE_SPARSE_RESULT, block,
						   fanin_shard_list_len(shard.span, 4, 1));

	hdr->contributions = sparse_world.n_ranks;
	hdr->dtype = dtype;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = 1;
	hdr->members = fanin_shard_encode(&shard);
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET, &value, sizeof(value));
	memcpy(frame.data + FANIN_PAYLOAD_OFFSET + sizeof(value), &index,
	       fanin_shard_index_bytes(shard.span));
	sparse_world_deliver(&sparse_world.links[rank], &frame);
}

/* A shard that the network has damaged past its checks, or that is forged. */
START_TEST(shards_that_do_not_fit_are_not_taken)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	uint32_t span;

	sparse_world_open(2);
	options = options_of(1000, 0.01);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	span = vectors->requests[0].sparse->span;
	ck_assert_uint_gt(span, 999);
	/*
	 * An index beyond the block; then the only shard, before this rank has sent its own; then a
	 * shard after the last one.
	 */
	shard_play(0, 0, (struct fanin_shard){ .span = 1000, .number = 1 }, 1000, FANIN_WIRE_I32,
		   1);
	shard_play(0, 0, (struct fanin_shard){ .span = 1000, .number = 0, .total = 1 }, 3,
		   FANIN_WIRE_I32, 1);
	fanin_engine_poll(sparse_world.engines[0]);
	ck_assert_uint_eq(fanin_engine_stats(sparse_world.engines[0])->invalid, 2);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_IN_PROGRESS);
	post(vectors, 1);
	run(vectors);
	sparse_vectors_expect(vectors);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

/* 1 + 1e8 - 1e8 is 0 in f32, but not in any other order. */
START_TEST(shards_are_combined_in_the_order_of_their_numbers)
{
	static const float values[3] = { 1, 1e8f, -1e8f };
	static const uint8_t orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 }, { 2, 0, 1 } };
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;
	uint32_t bits;
	float sum;

	sparse_world_open(2);
	options = options_of(1000, 0);
	options.dtype = FANIN_WIRE_F32;
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	fanin_engine_poll(sparse_world.engines[0]);
	for (int i = 0; i < 3; i++) {
		const uint8_t number = orders[_i][i];

		memcpy(&bits, &values[number], sizeof(bits));
		shard_play(0, 0,
			   (struct fanin_shard){
				   .span = 1000, .number = number, .total = number == 2 ? 3 : 0 },
			   7, FANIN_WIRE_F32, bits);
		ck_assert_int_eq(vectors->requests[0].status, FANIN_IN_PROGRESS);
		fanin_engine_poll(sparse_world.engines[0]);
	}
	ck_assert_int_eq(vectors->requests[0].status, FANIN_OK);
	ck_assert_uint_eq(vectors->results[0].count, 1);
	memcpy(&sum, vectors->results[0].values, sizeof(sum));
	ck_assert(sum == 0);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

START_TEST(a_result_of_another_span_is_an_error)
{
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	sparse_world_open(2);
	options = options_of(1000, 0.01);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	fanin_engine_poll(sparse_world.engines[0]);
	shard_play(0, 0, (struct fanin_shard){ .span = 999, .number = 0 }, 3, FANIN_WIRE_I32, 1);
	fanin_engine_poll(sparse_world.engines[0]);
	ck_assert_int_eq(vectors->requests[0].status, FANIN_ERR_REFUSED);
	ck_assert_str_eq(
		fanin_engine_error(sparse_world.engines[0])->text,
		"the result of block 0 holds 999 indices i32 sum, but this rank posted 1000 "
		"indices i32 sum");
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

/* Results of finished requests are kept for the last window, and for no longer. */
START_TEST(results_of_one_window_are_told_in_another_run)
{
	struct sparse_link *link = &sparse_world.links[1];
	struct fanin_endpoint *engine;
	struct sparse_vectors_options options;
	uint32_t progress;

	sparse_world_open_at(2, 0, true);
	engine = sparse_world.engines[1];
	options = options_of(40000, 0.1);
	allreduce(&options);
	progress = fanin_engine_progress(engine);
	ck_assert_uint_gt(progress, SPARSE_WORLD_WINDOW);
	ck_assert_uint_eq(link->whole, 0);
	/* The switch has lost the run. */
	memset(sparse_world.slots, 0, sizeof(sparse_world.slots));
	fanin_engine_suspect_run(engine);
	ck_assert_int_eq(fanin_engine_resume(engine, SPARSE_WORLD_EPOCH + 1, 0,
					     progress - SPARSE_WORLD_WINDOW),
			 FANIN_OK);
	sparse_world_step();
	ck_assert_uint_ge(link->known, SPARSE_WORLD_WINDOW);
	ck_assert_uint_eq(link->known, link->whole);
	fanin_engine_suspect_run(engine);
	ck_assert_int_eq(fanin_engine_resume(engine, SPARSE_WORLD_EPOCH + 2, 0,
					     progress - SPARSE_WORLD_WINDOW - 1),
			 FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(engine)->text, "has no result any more"));
	sparse_world_close();
}
END_TEST

/* Blocks in progress are sent again, marked as possibly known to others. */
START_TEST(blocks_in_progress_are_contributed_to_another_run)
{
	struct sparse_link *link = &sparse_world.links[0];
	struct sparse_vectors_options options;
	struct sparse_vectors *vectors;

	sparse_world_open_at(2, 0, true);
	options = options_of(40000, 0.1);
	vectors = sparse_vectors_make(&options);
	post(vectors, 0);
	sparse_world_step();
	ck_assert_uint_eq(link->whole, 0);
	memset(sparse_world.slots, 0, sizeof(sparse_world.slots));
	fanin_engine_suspect_run(sparse_world.engines[0]);
	ck_assert_int_eq(fanin_engine_resume(sparse_world.engines[0], SPARSE_WORLD_EPOCH + 1, 0, 0),
			 FANIN_OK);
	sparse_world_step();
	ck_assert_int_eq(vectors->requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_uint_ge(link->whole, SPARSE_WORLD_WINDOW);
	ck_assert_uint_eq(link->known, 0);
	sparse_world_close();
	sparse_vectors_free(vectors);
}
END_TEST

/* Once all ranks have all results, a lost run can be resumed. */
START_TEST(a_run_that_is_lost_after_sparse_requests_is_taken_up_again)
{
	struct sparse_vectors_options options;

	sparse_world_open_at(2, 0, true);
	options = options_of(40000, 0.1);
	allreduce(&options);
	for (uint16_t rank = 0; rank < 2; rank++) {
		fanin_engine_suspect_run(sparse_world.engines[rank]);
		ck_assert_int_eq(
			fanin_engine_resume(sparse_world.engines[rank], SPARSE_WORLD_EPOCH + 1, 0,
					    fanin_engine_progress(sparse_world.engines[rank])),
			FANIN_OK);
	}
	sparse_world_close();
}
END_TEST

START_TEST(the_numbers_are_right)
{
	struct sparse_vectors_options options;
	const struct fanin_engine_stats *stats;
	struct sparse_vectors *vectors;

	sparse_world_open(2);
	options = options_of(30000, 0.05);
	options.pattern = SPARSE_DISJOINT;
	vectors = sparse_vectors_make(&options);
	for (uint16_t rank = 0; rank < 2; rank++)
		post(vectors, rank);
	run(vectors);
	stats = fanin_engine_stats(sparse_world.engines[0]);
	ck_assert_uint_eq(stats->sparse_blocks, vectors->requests[0].sparse->n_blocks);
	ck_assert_uint_eq(stats->sparse_elements, 30000);
	ck_assert_uint_eq(stats->sparse_values_sent, 1500);
	ck_assert_uint_eq(stats->sparse_values_received, 3000);
	ck_assert_uint_eq(stats->sparse_dense_bytes, 120000);
	ck_assert_uint_ge(stats->shard_bytes_sent, 1500 * 4);
	ck_assert_uint_le(stats->shard_bytes_sent, 1500 * 6);
	ck_assert_uint_eq(stats->bytes_reduced, 1500 * 4);
	sparse_vectors_free(vectors);
	sparse_world_close();
}
END_TEST

Suite *
suite_sparse_engine(void)
{
	Suite *suite = suite_create("sparse_engine");
	TCase *tcase = tcase_create("sparse_engine");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, every_rank_gets_the_sum_of_all, 0, 8);
	tcase_add_loop_test(tcase, results_are_exact_under_loss_duplication_and_reordering, 0, 24);
	tcase_add_loop_test(tcase, spills_are_combined, 0, 2);
	tcase_add_loop_test(tcase, vectors_of_any_length, 0, 2);
	tcase_add_test(tcase, block_numbers_wrap_around);
	tcase_add_test(tcase, a_transport_without_room_is_waited_for);
	tcase_add_test(tcase, several_requests_may_be_outstanding);
	tcase_add_test(tcase, only_lost_shards_are_sent_again);
	tcase_add_test(tcase, of_each_block_what_is_lost_is_sent_again);
	tcase_add_test(tcase, the_request_that_has_no_room_fails_alone);
	tcase_add_test(tcase, shards_that_do_not_fit_are_not_taken);
	tcase_add_loop_test(tcase, shards_are_combined_in_the_order_of_their_numbers, 0, 4);
	tcase_add_test(tcase, a_result_of_another_span_is_an_error);
	tcase_add_test(tcase, results_of_one_window_are_told_in_another_run);
	tcase_add_test(tcase, blocks_in_progress_are_contributed_to_another_run);
	tcase_add_test(tcase, a_run_that_is_lost_after_sparse_requests_is_taken_up_again);
	tcase_add_test(tcase, the_numbers_are_right);
	suite_add_tcase(suite, tcase);
	return suite;
}
