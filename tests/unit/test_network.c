/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaves and spines in one process and in virtual time: jobs on trees of real pipelines with real engines are exact, use each link
 * once, take the time that their links take, and the same seed is the same run.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define MOST_RANKS 64

struct member {
	struct fanin_engine *engine;
	struct fanin_request request;
	int32_t *send;
	int32_t *recv;
};

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct member members[MOST_RANKS];
	uint32_t count;
} world;

static bool eal_is_there; /* a test may open several worlds, one after the other */

static const struct rig_leaf_spine_options usual = {
	.n_leaves = 4,
	.hosts_per_leaf = 4,
	.n_spines = 2,
	.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
	.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
	.max_jobs = 2,
	.slots = 512,
};

static void
poll_member(struct rig_host *host, void *user)
{
	struct member *member = user;

	fanin_engine_poll(member->engine);
	if (member->request.status == FANIN_IN_PROGRESS)
		rig_host_wake(host, rig_now_ns(world.rig) +
					    RTE_MAX(fanin_engine_idle_ns(member->engine), 1u));
}

static void
open_world(const struct rig_leaf_spine_options *options, uint64_t seed, uint16_t n_ranks,
	   const char *handler)
{
	const struct rig_options rig_options = { .seed = seed, .n_packets = 16383, .mtu = 1500 };
	const struct job_spec spec = { .handler = handler };
	char error[PIPELINE_ERROR_LEN] = "";

	if (!eal_is_there)
		ring_switch_eal();
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ck_assert_msg(rig_leaf_spine_build(world.rig, options, &world.network, error) == 0, "%s",
		      error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	ck_assert_msg(rig_job_create(&world.network, &spec, n_ranks, 0, &world.job, error) == 0,
		      "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 60 * SECOND_NS), 0);
	for (uint16_t rank = 0; rank < n_ranks; rank++) {
		struct fanin_engine_config config = { .timeout_ns = 5 * SECOND_NS };
		struct member *member = &world.members[rank];

		rig_engine_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_create(&config,
						     rig_host_transport(world.network.hosts[rank]),
						     &member->engine),
				 FANIN_OK);
		rig_host_set_poll(world.network.hosts[rank], poll_member, member);
	}
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		fanin_engine_destroy(world.members[rank].engine);
		free(world.members[rank].send);
		free(world.members[rank].recv);
	}
	rig_leaf_spine_free(&world.network);
	free(world.job.joining);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		if (world.members[rank].request.status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Sums vectors of so many elements, and checks each one at each rank. Returns the virtual time that it took. */
static uint64_t
allreduce(uint32_t count)
{
	const uint64_t began_ns = rig_now_ns(world.rig);
	const uint16_t n = world.job.n_ranks;

	for (uint16_t rank = 0; rank < n; rank++) {
		struct member *member = &world.members[rank];

		member->send = realloc(member->send, count * sizeof(int32_t));
		member->recv = realloc(member->recv, count * sizeof(int32_t));
		for (uint32_t i = 0; i < count; i++)
			member->send[i] = (int32_t)((rank + 1) * i);
		memset(member->recv, 0, count * sizeof(int32_t));
		member->request = (struct fanin_request){ .send = (const uint8_t *)member->send,
							  .recv = (uint8_t *)member->recv,
							  .dtype = FANIN_WIRE_I32,
							  .op = FANIN_WIRE_SUM };
		fanin_engine_post(member->engine, &member->request, count);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
	ck_assert(rig_run(world.rig, began_ns + 60 * SECOND_NS, all_done, NULL));
	for (uint16_t rank = 0; rank < n; rank++) {
		uint32_t right = 0;

		ck_assert_int_eq(world.members[rank].request.status, FANIN_OK);
		while (right < count &&
		       world.members[rank].recv[right] == (int32_t)(n * (n + 1u) / 2 * right))
			right++;
		ck_assert_uint_eq(right, count);
	}
	return rig_now_ns(world.rig) - began_ns;
}

START_TEST(sums_over_leaves_and_spines_are_exact)
{
	static const char *const handlers[] = { "single", "multi", "tree" };

	open_world(&usual, 1, 16, handlers[_i]);
	for (uint32_t count = 1; count < 200000; count = count * 7 + 3)
		allreduce(count);
	close_world();
}
END_TEST

START_TEST(ranks_behind_one_leaf_need_no_spine)
{
	open_world(&usual, 1, 3, "single");
	allreduce(10000);
	for (uint16_t spine = 0; spine < 2; spine++)
		ck_assert_ptr_null(job_lookup(rig_switch_pipeline(world.network.spines[spine])->jobs,
					      world.job.id));
	close_world();
}
END_TEST

/* Of the bytes that a host's vector takes in packets, each link carries all, once each way, and the other spine's links nothing. */
START_TEST(every_link_carries_the_vector_once_each_way)
{
	const uint32_t count = 100000;
	const uint64_t packets = (count * 4 + 1407) / 1408;
	uint64_t before_up[4], before_down[4], before_other[4];

	open_world(&usual, 1, 16, "single");
	for (uint16_t leaf = 0; leaf < 4; leaf++) {
		before_up[leaf] = rig_switch_traffic(world.network.leaves[leaf], 4).frames;
		before_down[leaf] = rig_switch_traffic(world.network.spines[0], leaf).frames;
		before_other[leaf] = rig_switch_traffic(world.network.leaves[leaf], 5).frames;
	}
	allreduce(count);
	for (uint16_t leaf = 0; leaf < 4; leaf++) {
		ck_assert_uint_eq(rig_switch_traffic(world.network.leaves[leaf], 4).frames -
					  before_up[leaf],
				  packets);
		ck_assert_uint_eq(rig_switch_traffic(world.network.spines[0], leaf).frames -
					  before_down[leaf],
				  packets);
		ck_assert_uint_eq(rig_switch_traffic(world.network.leaves[leaf], 5).frames,
				  before_other[leaf]);
	}
	for (uint16_t rank = 0; rank < 16; rank++)
		ck_assert_uint_eq(fanin_engine_stats(world.members[rank].engine)->retransmits, 0);
	close_world();
}
END_TEST

/* A long vector takes as long as its bytes take on a link, and little more. */
START_TEST(time_is_that_of_the_links)
{
	const uint32_t count = 1000000;
	const uint64_t link_ns = count * 4 * UINT64_C(1504) / 1408 * 8 / 10;
	uint64_t elapsed_ns;

	open_world(&usual, 1, 16, "single");
	elapsed_ns = allreduce(count);
	ck_assert_uint_ge(elapsed_ns, link_ns);
	ck_assert_uint_le(elapsed_ns, link_ns + link_ns / 20);
	close_world();
}
END_TEST

static uint64_t
hash_of_run(uint64_t seed)
{
	struct rig_leaf_spine_options options = usual;
	uint64_t hash = seed;

	options.faults = (struct pipeline_faults){ .drop = 0.02, .duplicate = 0.02, .reorder = 0.02 };
	open_world(&options, seed, 16, "single");
	hash = allreduce(20000);
	for (uint16_t rank = 0; rank < 16; rank++) {
		const struct fanin_engine_stats *stats =
			fanin_engine_stats(world.members[rank].engine);

		ck_assert_uint_gt(stats->queries, 0);
		hash = hash * 31 + stats->frames_sent;
		hash = hash * 31 + stats->retransmits;
		hash = hash * 31 + rig_host_traffic(world.network.hosts[rank]).bytes;
	}
	close_world();
	return hash;
}

START_TEST(the_same_seed_is_the_same_run_whatever_is_lost)
{
	const uint64_t first = hash_of_run(7);

	ck_assert_uint_eq(hash_of_run(7), first);
	ck_assert_uint_ne(hash_of_run(8), first);
}
END_TEST

START_TEST(sixteen_leaves_are_exact)
{
	struct rig_leaf_spine_options options = usual;

	options.n_leaves = 16;
	options.n_spines = 4;
	open_world(&options, 1, 64, "single");
	allreduce(50000);
	close_world();
}
END_TEST

/* Over a link of a fifth of the others' speed: what waits is bounded by windows, and nothing is lost. */
START_TEST(a_slow_link_delays_and_loses_nothing)
{
	struct rig_leaf_spine_options options = usual;
	uint64_t elapsed_ns;

	options.up_end.egress = (struct pipeline_egress){ .rate_mbit = 2000,
							  .bucket_bytes = 10000,
							  .queue_bytes = 1 << 20 };
	open_world(&options, 1, 16, "single");
	elapsed_ns = allreduce(200000);
	ck_assert_uint_ge(elapsed_ns + 10000 * 8 / 2, 200000 * 4 * UINT64_C(8) / 2);
	for (uint16_t leaf = 0; leaf < 4; leaf++) {
		struct counters sum;

		pipeline_counters(rig_switch_pipeline(world.network.leaves[leaf]), &sum);
		ck_assert_uint_eq(sum.drops[FANIN_REASON_TX_FULL], 0);
	}
	close_world();
}
END_TEST

Suite *
suite_network(void)
{
	Suite *suite = suite_create("network");
	TCase *tests = tcase_create("network");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 300);
	tcase_add_loop_test(tests, sums_over_leaves_and_spines_are_exact, 0, 3);
	tcase_add_test(tests, ranks_behind_one_leaf_need_no_spine);
	tcase_add_test(tests, every_link_carries_the_vector_once_each_way);
	tcase_add_test(tests, time_is_that_of_the_links);
	tcase_add_test(tests, the_same_seed_is_the_same_run_whatever_is_lost);
	tcase_add_test(tests, sixteen_leaves_are_exact);
	tcase_add_test(tests, a_slow_link_delays_and_loses_nothing);
	return suite;
}
