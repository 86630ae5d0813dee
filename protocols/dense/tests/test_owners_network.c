/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce and reduce_scatter whose results go to their owners only, in one process and in virtual
 * time: real engines around real switches, one or leaves and a spine. Every element is right
 * whatever is lost, doubled or reordered on any link, where hosts share ports, and where the job is
 * taken away in the middle of it and the ranks go on in another run, though the caller of what is
 * done uses its memory for something else at once.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/cc/cc.h"
#include "tests/unit/handlers_here.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"
#include "wire/shard.h"

#define N_REQUESTS 6
#define N_POINTS 8

/*
 * What is reduced: another kind or another length each time; the last one is too short for owners.
 */
static const struct {
	enum perf_collective_kind kind;
	uint32_t each; /* elements of a part, or of the vector */
	uint16_t root;
} requests[N_REQUESTS] = {
	{ PERF_REDUCE_SCATTER, 3000, 0 }, { PERF_REDUCE, 9000, 1 }, { PERF_ALLREDUCE, 2000, 0 },
	{ PERF_REDUCE_SCATTER, 5003, 0 }, { PERF_REDUCE, 352, 0 },  { PERF_REDUCE_SCATTER, 11, 0 },
};

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.window = 16;
	opened.slots = 2 * 16 * (FANIN_SHARDS_MAX + 1) * WORLD_JOBS;
	opened.cc = &fanin_cc_fixed;
	world_open(&opened);
}

static struct perf_collective
collective_of(unsigned int r)
{
	struct perf_collective like = world_sum(requests[r].each);

	like.kind = requests[r].kind;
	like.root = requests[r].root;
	if (perf_collective_has_parts(like.kind))
		like.count *= world.trial.n_ranks;
	return like;
}

static void
post_all(void)
{
	for (unsigned int r = 0; r < N_REQUESTS; r++)
		world_post_all(r, collective_of(r));
}

/* The job is taken off its switches, and comes again. */
static void
lose_job(void)
{
	world_lose_run(random_below(&world.random, 20000));
}

/* ------------------------------------------------------------------ exact */

static const char *handlers[] = { "single", "multi", "tree", "sparse" };
static int n_handlers; /* that this build has */

/* Networks of one switch, and of leaves below a spine; hosts that share ports. */
static const struct {
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t per_port;
} shapes[] = { { 2, 1, 1 }, { 3, 1, 1 },  { 8, 1, 1 }, { 16, 1, 1 },
	       { 2, 2, 1 }, { 16, 4, 1 }, { 8, 1, 4 }, { 8, 2, 2 } };

#define N_SHAPES (int)(sizeof(shapes) / sizeof(shapes[0]))

static struct trial
trial_of(int number)
{
	return (struct trial){
		.seed = (uint64_t)number + 1,
		.handler = handlers[number / N_SHAPES % n_handlers],
		.n_ranks = shapes[number % N_SHAPES].n_ranks,
		.n_leaves = shapes[number % N_SHAPES].n_leaves,
		.per_port = shapes[number % N_SHAPES].per_port,
	};
}

START_TEST(owners_get_exact_results_whatever_is_lost)
{
	struct trial trial = trial_of(_i);

	for (int faults = 0; faults < 2; faults++) {
		trial.faults = faults * 0.03;
		open_world(&trial);
		post_all();
		world_run();
		for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
			ck_assert_uint_eq(fanin_engine_stats(world_engine(rank))->invalid, 0);
		world_close();
	}
}
END_TEST

START_TEST(a_job_may_be_taken_away_at_any_moment)
{
	struct trial trial = trial_of(_i);
	uint64_t duration_ns;

	open_world(&trial);
	post_all();
	duration_ns = world_run();
	world_close();
	for (unsigned int point = 0; point < N_POINTS; point++) {
		trial.seed = (uint64_t)_i * N_POINTS + point + 100;
		trial.faults = point % 4 >= 2 ? 0.03 : 0;
		open_world(&trial);
		post_all();
		for (unsigned int loss = 0; loss <= point % 3; loss++) {
			const uint64_t after_ns = random_below(&world.random,
							       (uint32_t)duration_ns) *
						  (point + 1) / N_POINTS;

			world_wait(after_ns, world_done, NULL);
			lose_job();
		}
		world_run();
		world_close();
	}
}
END_TEST

/* True once a rank, but not all of them, has taken request *user. */
static bool
some_done(void *user)
{
	const unsigned int r = *(const unsigned int *)user;
	unsigned int n = 0;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		n += world.members[rank].taken[r];
	return n != 0 && n < world.trial.n_ranks;
}

START_TEST(done_ranks_contribute_again_though_their_memory_changed)
{
	struct trial trial = trial_of(_i);
	unsigned int met = 0;

	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		/* Losses, so that ranks are done at different times. */
		trial.faults = 0.03;
		trial.seed = (uint64_t)_i + 5000 + r;
		open_world(&trial);
		post_all();
		if (world_wait(600 * SECOND, some_done, &r)) {
			met++;
			lose_job();
		}
		world_run();
		world_close();
	}
	ck_assert_uint_gt(met, 0);
}
END_TEST

/* ------------------------------------------------------------------ traffic */

/* By _i: the shape. Only the reduce_scatter of the longest parts is posted. */
START_TEST(a_link_down_carries_the_owners_part_and_headers)
{
	struct trial trial = trial_of(_i);
	struct rig_traffic before[WORLD_RANKS];
	const unsigned int r = 3;
	const uint64_t part = requests[r].each * sizeof(int32_t);
	const uint64_t blocks = (part + 1407) / 1408 * trial.n_ranks;

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		before[rank] = rig_switch_traffic(rig_leaf_of(&world.network, rank),
						  rig_host_port(&world.network, rank));
	}
	world_post_all(0, collective_of(r));
	world_run();
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		const struct rig_traffic after =
			rig_switch_traffic(rig_leaf_of(&world.network, rank),
					   rig_host_port(&world.network, rank));
		const uint64_t bytes = after.bytes - before[rank].bytes;

		/* Frames have 96 bytes of headers; answers to queries come on top. */
		ck_assert_uint_ge(bytes, part);
		ck_assert_msg(bytes <= part * 105 / 100 + blocks * 100 + 2000,
			      "rank %u of %u: %lu bytes, of a part of %lu in %lu blocks", rank,
			      trial.n_ranks, (unsigned long)bytes, (unsigned long)part,
			      (unsigned long)blocks);
	}
	world_close();
}
END_TEST

Suite *
suite_owners_network(void)
{
	Suite *suite = suite_create("owners_network");
	TCase *tests = tcase_create("all");

	n_handlers = handlers_here(handlers, RTE_DIM(handlers));
	tcase_set_timeout(tests, 300);
	tcase_add_loop_test(tests, owners_get_exact_results_whatever_is_lost, 0,
			    N_SHAPES * n_handlers);
	tcase_add_loop_test(tests, a_job_may_be_taken_away_at_any_moment, 0, N_SHAPES * n_handlers);
	tcase_add_loop_test(tests, done_ranks_contribute_again_though_their_memory_changed, 0,
			    N_SHAPES * n_handlers);
	/* Those whose hosts have ports of their own. */
	tcase_add_loop_test(tests, a_link_down_carries_the_owners_part_and_headers, 0, 6);
	suite_add_tcase(suite, tests);
	return suite;
}
