/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests over several trees (hostlib/src/protocol/split.h), each tree a world of its own: every
 * block is in one tree, in turn; sums are exact whatever each tree loses, including a run; and one
 * tree's error fails all.
 */
#include "hostlib/src/engine/engine_internal.h"
#include "tests/unit/engine_world.h"
#include "tests/unit/suites.h"

#define SMALL_WINDOW 8
#define COLLECTIVES 12

/* All trees of a job, and each rank's split of its requests over them. */
struct grove {
	uint16_t n_trees;
	uint16_t n_ranks;
	struct world *worlds[FANIN_MAX_TREES];
	struct fanin_split splits[MAX_RANKS];
	struct random random;
};

static void
grove_make(struct grove *grove, uint16_t n_trees, uint16_t n_ranks, uint64_t seed)
{
	*grove = (struct grove){ .n_trees = n_trees,
				 .n_ranks = n_ranks,
				 .random = random_seed(seed) };
	for (uint16_t k = 0; k < n_trees; k++) {
		/* Block numbers may wrap around, too. */
		grove->worlds[k] = world_create_of(n_ranks, SMALL_WINDOW,
						   k % 2 == 1 ? UINT32_MAX - 20 : 0, true);
		grove->worlds[k]->random = random_seed(seed + 100u * k);
		for (uint16_t r = 0; r < n_ranks; r++) {
			grove->splits[r].protocol = &fanin_protocol_window;
			grove->splits[r].endpoints[k] = grove->worlds[k]->engines[r];
			grove->splits[r].n_endpoints = n_trees;
		}
	}
}

static void
grove_destroy(struct grove *grove)
{
	for (uint16_t k = 0; k < grove->n_trees; k++)
		world_destroy(grove->worlds[k]);
}

static void
grove_step(struct grove *grove)
{
	for (uint16_t k = 0; k < grove->n_trees; k++) {
		world_step(grove->worlds[k]);
		resume_if_all_know(grove->worlds[k]);
	}
	for (uint16_t r = 0; r < grove->n_ranks; r++)
		fanin_split_settle(&grove->splits[r]);
}

static void
grove_disturb(struct grove *grove, double chance)
{
	for (uint16_t k = 0; k < grove->n_trees; k++) {
		grove->worlds[k]->loss = chance;
		grove->worlds[k]->duplication = chance;
		grove->worlds[k]->reordering = 2 * chance;
	}
}

static int
grove_post(struct grove *grove, struct collective *collective, uint16_t rank, bool in_place)
{
	return fanin_split_post(&grove->splits[rank], collective_fill(collective, rank, in_place),
				collective->count);
}

/*
 * Every rank posts the collectives in order, at its own pace, and has several outstanding.
 *
 * breaks: how often a tree's run is lost.
 */
static void
grove_run(struct grove *grove, struct collective *collectives, unsigned int n, unsigned int breaks)
{
	unsigned int posted[MAX_RANKS] = { 0 };
	unsigned int left = n * grove->n_ranks;

	while (left > 0) {
		left = 0;
		for (uint16_t r = 0; r < grove->n_ranks; r++) {
			if (posted[r] < n && random_chance(&grove->random, 0.2)) {
				ck_assert_int_eq(grove_post(grove, &collectives[posted[r]], r,
							    posted[r] % 2 == 0),
						 FANIN_OK);
				posted[r]++;
			}
			left += n - posted[r];
			for (unsigned int c = 0; c < posted[r]; c++)
				left += collectives[c].requests[r].status == FANIN_IN_PROGRESS;
			ck_assert_msg(grove->splits[r].status == FANIN_OK, "rank %u: %s", r,
				      grove->splits[r].error.text);
		}
		if (breaks > 0 && random_chance(&grove->random, 0.01)) {
			lose_run(grove->worlds[random_below(&grove->random, grove->n_trees)]);
			breaks--;
		}
		grove_step(grove);
		ck_assert_uint_lt(grove->worlds[0]->now_ns, 100 * TIMEOUT_NS);
	}
}

START_TEST(sums_over_several_trees_are_exact)
{
	static const uint16_t sizes[] = { 1, 2, 3, 8 };
	struct collective collectives[COLLECTIVES];
	struct grove grove;

	grove_make(&grove, (uint16_t)(1 + _i % FANIN_MAX_TREES), sizes[_i % 4], (uint64_t)_i + 1);
	grove_disturb(&grove, _i % 3 == 0 ? 0 : 0.05);
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_prepare(&collectives[c],
				   c == 0 ? 0 : random_below(&grove.random, 60 * ELEMENTS),
				   c * 1000);
	grove_run(&grove, collectives, COLLECTIVES, _i % 2 == 0 ? 4 : 0);
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_expect(&collectives[c], grove.worlds[0]);
	grove_destroy(&grove);
}
END_TEST

START_TEST(blocks_of_all_requests_go_round_robin)
{
	struct collective collectives[COLLECTIVES];
	struct grove grove;
	uint64_t blocks = 0;

	grove_make(&grove, (uint16_t)(2 + _i), 3, (uint64_t)_i + 1);
	for (unsigned int c = 0; c < COLLECTIVES; c++) {
		/* Most of them have fewer blocks than there are trees. */
		collective_prepare(&collectives[c],
				   random_below(&grove.random, c < 9 ? 3 * ELEMENTS : 1000), 1);
		blocks += collectives[c].count == 0 ? 1 : (collectives[c].count - 1) / ELEMENTS + 1;
	}
	grove_run(&grove, collectives, COLLECTIVES, 0);
	for (uint16_t r = 0; r < 3; r++) {
		for (uint16_t k = 0; k < grove.n_trees; k++)
			ck_assert_uint_eq(fanin_engine_stats(grove.worlds[k]->engines[r])->blocks,
					  (blocks + grove.n_trees - 1 - k) / grove.n_trees);
	}
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_expect(&collectives[c], grove.worlds[0]);
	grove_destroy(&grove);
}
END_TEST

/* Checks that all parts of a request have the same blocks as the request has without trees. */
static void
expect_same_blocks(const struct grove *grove, const struct fanin_request *undivided,
		   const struct fanin_request *split)
{
	uint64_t bytes = 0;

	for (uint32_t block = 0; block < undivided->n_blocks; block++) {
		const struct fanin_request *part = &split->parts[block % grove->n_trees];
		struct fanin_extent expected = fanin_request_extent(undivided,
								    undivided->first_block + block);
		struct fanin_extent found;

		ck_assert_uint_lt(block / grove->n_trees, part->n_blocks);
		found = fanin_request_extent(part, part->first_block + block / grove->n_trees);
		ck_assert_uint_eq(found.offset, expected.offset);
		ck_assert_uint_eq(found.len, expected.len);
		ck_assert_uint_eq(found.op, expected.op);
		bytes += found.len;
	}
	ck_assert_uint_eq(bytes, undivided->total_bytes);
	for (uint16_t i = 0; i < split->n_parts; i++)
		bytes -= split->parts[i].n_blocks;
	ck_assert_uint_eq(bytes, undivided->total_bytes - undivided->n_blocks);
}

START_TEST(parts_of_every_collective_have_each_block_once)
{
	static const uint8_t dtypes[] = { FANIN_WIRE_I8, FANIN_WIRE_I32, FANIN_WIRE_F64 };
	struct grove grove;
	struct world *alone;

	grove_make(&grove, (uint16_t)(1 + _i % FANIN_MAX_TREES), 3, (uint64_t)_i + 1);
	alone = world_create(3);
	for (unsigned int i = 0; i < 40; i++) {
		struct fanin_request request = {
			.collective = (uint8_t)(i % 5),
			.dtype = dtypes[random_below(&grove.random, 3)],
			.op = FANIN_WIRE_SUM,
			.root = (uint16_t)random_below(&grove.random, 3),
		};
		struct fanin_request undivided = request;
		uint64_t count = random_below(&grove.random, i < 20 ? 20 : 2000);

		ck_assert_int_eq(fanin_split_post(&grove.splits[1], &request, count), FANIN_OK);
		ck_assert_int_eq(fanin_engine_post(alone->engines[1], &undivided, count), FANIN_OK);
		expect_same_blocks(&grove, &undivided, &request);
		/* The test's memory must not be read any more. */
		for (uint16_t k = 0; k < grove.n_trees; k++)
			fanin_engine_fail(fanin_engine_of(grove.worlds[k]->engines[1]),
					  FANIN_ERR_REFUSED);
		for (uint16_t k = 0; k < grove.n_trees; k++)
			fanin_engine_of(grove.worlds[k]->engines[1])->loop.status = FANIN_OK;
		fanin_engine_fail(fanin_engine_of(alone->engines[1]), FANIN_ERR_REFUSED);
		fanin_engine_of(alone->engines[1])->loop.status = FANIN_OK;
		fanin_split_free(&request);
	}
	world_destroy(alone);
	grove_destroy(&grove);
}
END_TEST

START_TEST(error_of_one_tree_is_that_of_all)
{
	struct collective collectives[3];
	struct grove grove;

	grove_make(&grove, 3, 2, 1);
	for (unsigned int c = 0; c < 3; c++)
		collective_prepare(&collectives[c], 50 * ELEMENTS, c);
	grove.worlds[1]->silent = true;
	for (uint16_t r = 0; r < 2; r++) {
		ck_assert_int_eq(grove_post(&grove, &collectives[0], r, false), FANIN_OK);
		ck_assert_int_eq(grove_post(&grove, &collectives[1], r, true), FANIN_OK);
	}
	for (uint64_t t = 0; t <= TIMEOUT_NS + STEP_NS; t += STEP_NS)
		grove_step(&grove);
	for (uint16_t r = 0; r < 2; r++) {
		ck_assert_int_eq(collectives[0].requests[r].status, FANIN_ERR_TIMEOUT);
		ck_assert_int_eq(collectives[1].requests[r].status, FANIN_ERR_TIMEOUT);
		ck_assert_ptr_nonnull(
			strstr(grove.splits[r].error.text, "the switch does not answer"));
		/* The other ranks had all results of their parts, but keep nothing. */
		for (uint16_t k = 0; k < 3; k++)
			ck_assert_ptr_null(
				fanin_engine_of(grove.worlds[k]->engines[r])->loop.requests.first);
		ck_assert_int_eq(grove_post(&grove, &collectives[2], r, false), FANIN_ERR_TIMEOUT);
		ck_assert_int_eq(fanin_engine_poll(grove.worlds[0]->engines[r]), FANIN_ERR_TIMEOUT);
	}
	for (unsigned int c = 0; c < 3; c++)
		collective_free(&collectives[c], grove.worlds[0]);
	grove_destroy(&grove);
}
END_TEST

START_TEST(request_that_one_tree_cannot_number_is_posted_nowhere)
{
	struct fanin_request request = { .dtype = FANIN_WIRE_I32, .op = FANIN_WIRE_SUM };
	struct grove grove;

	grove_make(&grove, 3, 2, 1);
	fanin_engine_of(grove.worlds[2]->engines[0])->end =
		fanin_engine_of(grove.worlds[2]->engines[0])->oldest + UINT32_MAX / 2 - 9;
	ck_assert_int_eq(fanin_split_post(&grove.splits[0], &request, 10 * ELEMENTS),
			 FANIN_ERR_INVALID);
	for (uint16_t k = 0; k < 3; k++)
		ck_assert_ptr_null(
			fanin_engine_of(grove.worlds[k]->engines[0])->loop.requests.first);
	ck_assert_uint_eq(request.n_parts, 0);
	ck_assert_uint_eq(grove.splits[0].next, 0);
	grove_destroy(&grove);
}
END_TEST

Suite *
suite_split(void)
{
	Suite *suite = suite_create("split");
	TCase *tcase = tcase_create("trees");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, sums_over_several_trees_are_exact, 0, 48);
	tcase_add_loop_test(tcase, blocks_of_all_requests_go_round_robin, 0, FANIN_MAX_TREES - 1);
	tcase_add_loop_test(tcase, parts_of_every_collective_have_each_block_once, 0, 16);
	tcase_add_test(tcase, error_of_one_tree_is_that_of_all);
	tcase_add_test(tcase, request_that_one_tree_cannot_number_is_posted_nowhere);
	suite_add_tcase(suite, tcase);
	return suite;
}
