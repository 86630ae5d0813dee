/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce and reduce_scatter whose results go to their owners only, in one process and in virtual time: real engines around real switches, one or leaves and a
 * spine. Every element is right whatever is lost, doubled or reordered on any link, where hosts share ports, and where the job is taken away in the middle of it and
 * the ranks go on in another run, though the caller of what is done uses its memory for something else at once.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/engine/engine.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/window/window.h"
#include "reference/random.h"
#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "wire/shard.h"

#define SECOND UINT64_C(1000000000)
#define MOST_RANKS 16
#define N_REQUESTS 6
#define OVERWRITTEN 0x55
#define WINDOW 16
#define N_POINTS 8

struct trial {
	uint64_t seed;
	const char *handler;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t per_port; /* hosts */
	bool in_place;     /* every rank; else none */
	double faults;
};

struct member {
	struct fanin_endpoint *engine;
	struct fanin_request requests[N_REQUESTS];
	int32_t *send[N_REQUESTS]; /* vectors */
	int32_t *recv[N_REQUESTS]; /* the same in place */
	bool taken[N_REQUESTS];
};

static struct {
	struct trial trial;
	struct random random;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct member members[MOST_RANKS];
	uint16_t spine;
	uint32_t n_left; /* requests of ranks that are not taken */
} world;

/* What is reduced: another kind or another length each time; the last one is too short for owners. */
static const struct {
	enum fanin_collective kind;
	uint32_t each; /* elements of a part, or of the vector */
	uint16_t root;
} requests[N_REQUESTS] = {
	{ FANIN_COLLECTIVE_REDUCE_SCATTER, 3000, 0 }, { FANIN_COLLECTIVE_REDUCE, 9000, 1 },
	{ FANIN_COLLECTIVE_ALLREDUCE, 2000, 0 },      { FANIN_COLLECTIVE_REDUCE_SCATTER, 5003, 0 },
	{ FANIN_COLLECTIVE_REDUCE, 352, 0 },          { FANIN_COLLECTIVE_REDUCE_SCATTER, 11, 0 },
};

/* ------------------------------------------------------------------ world */

static uint32_t
elements_of_request(unsigned int r)
{
	return requests[r].kind == FANIN_COLLECTIVE_REDUCE_SCATTER
		       ? requests[r].each * world.trial.n_ranks
		       : requests[r].each;
}

static int32_t
value_of(unsigned int r, uint16_t rank, uint32_t i)
{
	return (int32_t)((rank + 1u) * (i * 3u + r * 1000u + 1u));
}

/* Has the rank what it keeps, and is the rest as it was? Then its memory is used for something else. */
static void
take(struct member *member, uint16_t rank, unsigned int r)
{
	const struct fanin_request *request = &member->requests[r];
	const uint32_t n = elements_of_request(r);
	const uint32_t factor = world.trial.n_ranks * (world.trial.n_ranks + 1u) / 2;
	uint32_t first = 0, kept = n;

	ck_assert_msg(request->status == FANIN_OK, "rank %u: %s", rank,
		      fanin_engine_error(member->engine)->text);
	if (request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER) {
		first = rank * requests[r].each;
		kept = requests[r].each;
	} else if (request->collective == FANIN_COLLECTIVE_REDUCE && request->root != rank) {
		kept = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		int32_t expected = (int32_t)(factor * (i * 3u + r * 1000u + 1u));

		if (i - first >= kept)
			expected = world.trial.in_place ? value_of(r, rank, i) : -1;
		ck_assert_msg(member->recv[r][i] == expected,
			      "seed %lu, %s, rank %u of %u, request %u: element %u is %d, expected %d",
			      (unsigned long)world.trial.seed, world.trial.handler, rank,
			      world.trial.n_ranks, r, i, member->recv[r][i], expected);
	}
	memset(member->recv[r], OVERWRITTEN, n * sizeof(int32_t));
	memset(member->send[r], OVERWRITTEN, n * sizeof(int32_t));
	member->taken[r] = true;
	world.n_left--;
}

static void
member_poll(struct rig_host *host, void *user)
{
	const uint16_t rank = (uint16_t)(uintptr_t)user;
	struct member *member = &world.members[rank];
	uint64_t idle_ns;

	fanin_engine_poll(member->engine);
	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		if (!member->taken[r] && member->requests[r].status != FANIN_IN_PROGRESS)
			take(member, rank, r);
	}
	idle_ns = fanin_engine_idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MAX(idle_ns, 1u));
}

static void
join(void)
{
	const struct job_spec spec = { .handler = world.trial.handler,
				       .slots = 2 * WINDOW,
				       .id = world.job.id };
	char error[PIPELINE_ERROR_LEN] = "";
	int ret = rig_job_create(&world.network, &spec, world.trial.n_ranks, world.spine,
				 &world.job, error);

	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 600 * SECOND), 0);
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		rig_host_set_poll(world.network.hosts[rank], member_poll, (void *)(uintptr_t)rank);
}

static void
post(struct member *member, uint16_t rank, unsigned int r)
{
	const uint32_t n = elements_of_request(r);
	const bool has_parts = requests[r].kind == FANIN_COLLECTIVE_REDUCE_SCATTER;

	member->send[r] = malloc(n * sizeof(int32_t));
	member->recv[r] = world.trial.in_place ? member->send[r] : malloc(n * sizeof(int32_t));
	ck_assert(member->send[r] != NULL && member->recv[r] != NULL);
	memset(member->recv[r], 0xff, n * sizeof(int32_t));
	for (uint32_t i = 0; i < n; i++)
		member->send[r][i] = value_of(r, rank, i);
	member->requests[r] = (struct fanin_request){
		.send = (const uint8_t *)member->send[r],
		.recv = (uint8_t *)(member->recv[r] + (has_parts ? rank * requests[r].each : 0)),
		.collective = (uint8_t)requests[r].kind,
		.root = requests[r].root,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
	};
	ck_assert_int_eq(fanin_engine_post(member->engine, &member->requests[r], requests[r].each),
			 FANIN_OK);
}

static void
open_world(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks / trial->n_leaves,
		.hosts_per_port = trial->per_port,
		.n_spines = trial->n_leaves == 1 ? 0 : 2,
		.host_end = end,
		.up_end = end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 1,
		.slots = 2 * WINDOW * (FANIN_SHARDS_MAX + 1),
	};
	static bool eal_is_there;
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.random = random_seed(trial->seed);
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	join();
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++) {
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND,
							.cc = &fanin_cc_fixed,
							.recover = true };
		struct fanin_error why = { 0 };

		rig_protocol_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config,
						   &world.members[rank].engine, &why),
				 FANIN_OK);
	}
}

static void
post_all(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (unsigned int r = 0; r < N_REQUESTS; r++)
			post(&world.members[rank], rank, r);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
	world.n_left = N_REQUESTS * world.trial.n_ranks;
}

static bool
all_done(void *user)
{
	(void)user;
	return world.n_left == 0;
}

static void
finish(void)
{
	ck_assert_msg(rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND, all_done, NULL),
		      "seed %lu, %s: %u requests of %u ranks are not done",
		      (unsigned long)world.trial.seed, world.trial.handler, world.n_left,
		      world.trial.n_ranks);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];

		fanin_engine_close(member->engine);
		for (unsigned int r = 0; r < N_REQUESTS; r++) {
			if (member->recv[r] != member->send[r])
				free(member->recv[r]);
			free(member->send[r]);
		}
	}
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* The job is taken off its switches. What is on its way reaches hosts, until they join it again, over another spine if there is one. */
static void
lose_job(void)
{
	const uint64_t late_ns = random_below(&world.random, 20000);
	uint32_t first_block;

	rig_job_destroy(&world.job);
	rig_run(world.rig, rig_now_ns(world.rig) + late_ns, NULL, NULL);
	first_block = fanin_engine_progress(world.members[0].engine);
	for (uint16_t rank = 1; rank < world.trial.n_ranks; rank++)
		first_block = RTE_MIN(first_block, fanin_engine_progress(world.members[rank].engine));
	world.spine = world.network.options.n_spines < 2 ? 0 : 1 - world.spine;
	join();
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct fanin_endpoint *engine = world.members[rank].engine;
		const struct rig_joining *joining = &world.job.joining[rank];

		fanin_engine_move(engine, rig_host_transport(world.network.hosts[rank]));
		ck_assert_msg(fanin_engine_resume(engine, joining->headers.fanin.epoch,
						  joining->ack.instance, first_block) == FANIN_OK,
			      "rank %u: %s", rank, fanin_engine_error(engine)->text);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
}

/* ------------------------------------------------------------------ exact */

static const char *const handlers[] = { "single", "multi", "tree", "sparse" };

#define N_HANDLERS (int)(sizeof(handlers) / sizeof(handlers[0]))

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
		.handler = handlers[number / N_SHAPES % N_HANDLERS],
		.n_ranks = shapes[number % N_SHAPES].n_ranks,
		.n_leaves = shapes[number % N_SHAPES].n_leaves,
		.per_port = shapes[number % N_SHAPES].per_port,
		.in_place = number % 3 == 1,
	};
}

START_TEST(owners_get_exact_results_whatever_is_lost)
{
	struct trial trial = trial_of(_i);

	for (int faults = 0; faults < 2; faults++) {
		trial.faults = faults * 0.03;
		open_world(&trial);
		post_all();
		finish();
		for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
			ck_assert_uint_eq(fanin_engine_stats(world.members[rank].engine)->invalid, 0);
		close_world();
	}
}
END_TEST

START_TEST(a_job_may_be_taken_away_at_any_moment)
{
	struct trial trial = trial_of(_i);
	uint64_t duration_ns;

	open_world(&trial);
	post_all();
	duration_ns = rig_now_ns(world.rig);
	finish();
	duration_ns = rig_now_ns(world.rig) - duration_ns;
	close_world();
	for (unsigned int point = 0; point < N_POINTS; point++) {
		trial.seed = (uint64_t)_i * N_POINTS + point + 100;
		trial.in_place = point % 2 != 0;
		trial.faults = point % 4 >= 2 ? 0.03 : 0;
		open_world(&trial);
		post_all();
		for (unsigned int loss = 0; loss <= point % 3; loss++) {
			const uint64_t after_ns = random_below(&world.random, (uint32_t)duration_ns) *
						  (point + 1) / N_POINTS;

			rig_run(world.rig, rig_now_ns(world.rig) + after_ns, all_done, NULL);
			lose_job();
		}
		finish();
		close_world();
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

START_TEST(who_is_done_contributes_again_though_its_memory_was_overwritten)
{
	struct trial trial = trial_of(_i);
	unsigned int met = 0;

	for (unsigned int r = 0; r < N_REQUESTS; r++) {
		/* Losses, so that ranks are done at different times. */
		trial.faults = 0.03;
		trial.seed = (uint64_t)_i + 5000 + r;
		open_world(&trial);
		post_all();
		if (rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND, some_done, &r)) {
			met++;
			lose_job();
		}
		finish();
		close_world();
	}
	ck_assert_uint_gt(met, 0);
}
END_TEST

/* ------------------------------------------------------------------ traffic */

/* By _i: the shape. Only the reduce_scatter of the longest parts is posted. */
START_TEST(a_link_down_carries_the_owners_part_and_headers)
{
	struct trial trial = trial_of(_i);
	struct rig_traffic before[MOST_RANKS];
	const unsigned int r = 3;
	const uint64_t part = requests[r].each * sizeof(int32_t);
	const uint64_t blocks = (part + 1407) / 1408 * trial.n_ranks;

	trial.in_place = false;
	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		before[rank] = rig_switch_traffic(rig_leaf_of(&world.network, rank),
						  rig_host_port(&world.network, rank));
		for (unsigned int other = 0; other < N_REQUESTS; other++)
			world.members[rank].taken[other] = other != r;
		post(&world.members[rank], rank, r);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
	world.n_left = trial.n_ranks;
	finish();
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
	close_world();
}
END_TEST

Suite *
suite_owners_network(void)
{
	Suite *suite = suite_create("owners_network");
	TCase *tests = tcase_create("all");

	tcase_set_timeout(tests, 300);
	tcase_add_loop_test(tests, owners_get_exact_results_whatever_is_lost, 0,
			    N_SHAPES * N_HANDLERS);
	tcase_add_loop_test(tests, a_job_may_be_taken_away_at_any_moment, 0, N_SHAPES * N_HANDLERS);
	tcase_add_loop_test(tests, who_is_done_contributes_again_though_its_memory_was_overwritten,
			    0, N_SHAPES * N_HANDLERS);
	/* Those whose hosts have ports of their own. */
	tcase_add_loop_test(tests, a_link_down_carries_the_owners_part_and_headers, 0, 6);
	suite_add_tcase(suite, tests);
	return suite;
}
