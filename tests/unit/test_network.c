/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaves and spines in one process and in virtual time: jobs on trees of real pipelines with real
 * engines are exact, use each link once, take the time of their links, and the same seed gives the
 * same run.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"
#include "lab/rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define SECOND_NS UINT64_C(1000000000)
#define MAX_NETWORK_RANKS FANIN_WIRE_MAX_RANKS
#define MANY 1024 /* packets in flight need memory, too */

struct member {
	struct fanin_endpoint *engine;
	struct fanin_request request;
	int32_t *send;
	int32_t *recv;
};

static struct {
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct member members[MAX_NETWORK_RANKS];
} world;

static uint64_t wait_limit_ns;              /* of hosts, from the next open_world on; 0: none */
static const struct fanin_cc_type *with_cc; /* also from then on; NULL: windows do not change */

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
	const struct rig_options rig_options = { .seed = seed,
						 .n_packets = n_ranks == MANY ? 32767 : 16383,
						 .mtu = 1500 };
	const struct job_spec spec = { .handler = handler };
	char error[PIPELINE_ERROR_LEN] = "";

	ring_switch_eal();
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
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS,
							.wait_limit_ns = wait_limit_ns,
							.cc = with_cc != NULL ? with_cc
									      : &fanin_cc_fixed };
		struct member *member = &world.members[rank];
		struct fanin_error why = { 0 };

		rig_protocol_config(&world.job, rank, &config);
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config, &member->engine,
						   &why),
				 FANIN_OK);
		rig_host_set_poll(world.network.hosts[rank], poll_member, member);
	}
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		fanin_engine_close(world.members[rank].engine);
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

/*
 * Posts a collective at a rank. count: elements, as for fanin_request_layout; n: elements of its
 * vectors, which both have room for.
 */
static void
post(uint16_t rank, const struct fanin_request *request, uint32_t count, uint32_t n)
{
	struct member *member = &world.members[rank];

	member->send = realloc(member->send, n * sizeof(int32_t));
	member->recv = realloc(member->recv, n * sizeof(int32_t));
	for (uint32_t i = 0; i < n; i++)
		member->send[i] = (int32_t)((rank + 1) * i);
	memset(member->recv, 0, n * sizeof(int32_t));
	member->request = *request;
	member->request.send = (const uint8_t *)member->send;
	member->request.recv = (uint8_t *)member->recv;
	member->request.dtype = FANIN_WIRE_I32;
	member->request.op = FANIN_WIRE_SUM;
	ck_assert_int_eq(fanin_engine_post(member->engine, &member->request, count), FANIN_OK);
	rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
}

/* Checks that all ranks that keep a result have its element i as factor(i) * i. */
static void
expect_at_all(uint32_t n, uint32_t (*factor)(uint32_t i))
{
	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++) {
		uint32_t right = 0;

		ck_assert_int_eq(world.members[rank].request.status, FANIN_OK);
		if (world.members[rank].request.recv_bytes == 0)
			continue;
		while (right < n &&
		       world.members[rank].recv[right] == (int32_t)(factor(right) * right))
			right++;
		ck_assert_uint_eq(right, n);
	}
}

static uint32_t
factor_of_sum(uint32_t i)
{
	(void)i;
	return world.job.n_ranks * (world.job.n_ranks + 1u) / 2;
}

/*
 * Sums vectors of `count` elements, and checks each element at each rank. Returns the virtual time
 * that it took.
 */
static uint64_t
allreduce(uint32_t count)
{
	static const struct fanin_request request = { .collective = FANIN_COLLECTIVE_ALLREDUCE };
	const uint64_t began_ns = rig_now_ns(world.rig);

	for (uint16_t rank = 0; rank < world.job.n_ranks; rank++)
		post(rank, &request, count, count);
	ck_assert(rig_run(world.rig, began_ns + 60 * SECOND_NS, all_done, NULL));
	expect_at_all(count, factor_of_sum);
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
		ck_assert_ptr_null(
			job_lookup(rig_switch_pipeline(world.network.spines[spine])->jobs,
				   world.job.id));
	close_world();
}
END_TEST

/*
 * Each link carries all packets of a host's vector, once each way, and the other spine's links
 * carry nothing.
 */
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

/* A long vector takes little longer than its bytes take on a link. */
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

/*
 * Results of the first blocks come while the last ones go out, even if the window allows all at
 * once: both directions are used at the same time.
 */
START_TEST(a_vector_that_fits_the_window_takes_little_longer_than_one_way)
{
	struct rig_leaf_spine_options options = usual;
	const uint32_t count = 128 * 352;
	const uint64_t link_ns = count * 4 * UINT64_C(1504) / 1408 * 8 / 10;

	options.max_jobs = 1;
	/* No burst leaves faster than the link's rate. */
	options.host_end.egress.bucket_bytes = 3000;
	options.up_end.egress.bucket_bytes = 3000;
	options.slots = 2048;
	open_world(&options, 1, 16, "single");
	for (unsigned int i = 0; i < 5; i++) {
		const uint64_t elapsed_ns = allreduce(count);

		ck_assert_uint_ge(world.job.jobs[0]->params.window, 128);
		ck_assert_msg(elapsed_ns < link_ns + link_ns / 3, "%u: %lu ns, one way takes %lu",
			      i, (unsigned long)elapsed_ns, (unsigned long)link_ns);
	}
	close_world();
}
END_TEST

static uint64_t
hash_of_run(uint64_t seed)
{
	struct rig_leaf_spine_options options = usual;
	uint64_t hash = seed;

	options.faults =
		(struct pipeline_faults){ .drop = 0.02, .duplicate = 0.02, .reorder = 0.02 };
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

/* One link has a fifth of the others' speed: windows bound the backlog, and nothing is lost. */
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

/*
 * Links between switches have a tenth to a hundredth of the hosts' speed, with queues that hold a
 * window. The round trip to the leaf says nothing of them: each link still carries each packet
 * about once, and the vector takes as long as its bytes take.
 */
START_TEST(packets_queued_above_the_leaf_are_not_asked_for)
{
	static const uint32_t rates_mbit[] = { 1000, 400, 100 };
	const uint32_t count = 352 * 2000;
	const uint64_t link_ns = count * 4 * UINT64_C(1504) / 1408 * 8 * 1000 / rates_mbit[_i];
	struct rig_leaf_spine_options options = usual;
	uint64_t before[4], elapsed_ns;

	options.up_end.egress = (struct pipeline_egress){ .rate_mbit = rates_mbit[_i],
							  .bucket_bytes = 10000,
							  .queue_bytes = 1 << 20 };
	open_world(&options, 1, 16, "single");
	ck_assert_uint_ge(world.job.joining[0].ack.window, 64);
	for (uint16_t leaf = 0; leaf < 4; leaf++)
		before[leaf] = rig_switch_traffic(world.network.spines[0], leaf).bytes;
	elapsed_ns = allreduce(count);
	for (uint16_t leaf = 0; leaf < 4; leaf++) {
		const uint64_t bytes = rig_switch_traffic(world.network.spines[0], leaf).bytes -
				       before[leaf];

		ck_assert_uint_le(bytes, count * 4 * UINT64_C(1504) / 1408 * 21 / 20);
	}
	ck_assert_uint_le(elapsed_ns, link_ns + link_ns / 10);
	close_world();
}
END_TEST

/*
 * The same with queues that hold an eighth of the window: lost packets are sent again, but only in
 * the first rounds.
 */
START_TEST(windows_shrink_to_what_queues_above_the_leaf_hold)
{
	const uint32_t count = 352 * 4000;
	const uint64_t link_ns = count * 4 * UINT64_C(1504) / 1408 * 8;
	struct rig_leaf_spine_options options = usual;
	uint64_t elapsed_ns;

	options.slots = 2048;
	options.up_end.egress = (struct pipeline_egress){ .rate_mbit = 1000,
							  .bucket_bytes = 10000,
							  .queue_bytes = 64 * 1504 };
	with_cc = &fanin_cc_delay;
	open_world(&options, 1, 16, "single");
	with_cc = NULL;
	ck_assert_uint_ge(world.job.joining[0].ack.window, 512);
	elapsed_ns = allreduce(count);
	ck_assert_uint_le(elapsed_ns, link_ns + link_ns / 5);
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ a thousand ranks */

#define PER_LEAF 64
#define LATE_ONE 70   /* behind the second leaf, */
#define LATE_TWO 1000 /* and behind the last one */
#define MANY_ROOT 1001

/* Leaves have the maximum of children, two to a port, as one port leads to the spine. */
static const struct rig_leaf_spine_options many = {
	.n_leaves = MANY / PER_LEAF,
	.hosts_per_leaf = PER_LEAF,
	.hosts_per_port = 2,
	.n_spines = 1,
	.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
	.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
	.max_jobs = 1,
	.slots = 8,
};

START_TEST(sums_of_a_thousand_ranks_are_exact)
{
	open_world(&many, 1, MANY, "single");
	ck_assert_uint_eq(world.job.jobs[0]->params.n_children, FANIN_WIRE_MAX_CHILDREN);
	allreduce(1);
	allreduce(4000);
	close_world();
}
END_TEST

START_TEST(sums_of_a_thousand_ranks_are_exact_whatever_is_lost)
{
	struct rig_leaf_spine_options options = many;

	options.faults =
		(struct pipeline_faults){ .drop = 0.01, .duplicate = 0.01, .reorder = 0.01 };
	open_world(&options, 3, MANY, "single");
	allreduce(3000);
	close_world();
}
END_TEST

/* The maximum of ranks, whose root has the maximum of children, too. */
START_TEST(sums_of_as_many_ranks_as_there_can_be_are_exact)
{
	struct rig_leaf_spine_options options = many;

	options.n_leaves = FANIN_WIRE_MAX_RANKS / PER_LEAF;
	open_world(&options, 1, FANIN_WIRE_MAX_RANKS, "single");
	ck_assert_uint_eq(world.job.jobs[options.n_leaves]->params.n_children,
			  FANIN_WIRE_MAX_CHILDREN);
	allreduce(100);
	close_world();
}
END_TEST

static uint32_t
factor_of_root(uint32_t i)
{
	(void)i;
	return MANY_ROOT + 1;
}

START_TEST(a_broadcast_comes_from_any_of_a_thousand_ranks)
{
	const struct fanin_request request = { .collective = FANIN_COLLECTIVE_BROADCAST,
					       .root = MANY_ROOT };

	open_world(&many, 1, MANY, "single");
	for (uint16_t rank = 0; rank < MANY; rank++)
		post(rank, &request, 4000, 4000);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 60 * SECOND_NS, all_done, NULL));
	expect_at_all(4000, factor_of_root);
	close_world();
}
END_TEST

/*
 * Ranks that name roots with the same lowest bits must not share a block, and all learn of the
 * mismatch.
 */
START_TEST(ranks_of_a_thousand_that_name_another_root_are_told_so)
{
	const struct fanin_request mine = { .collective = FANIN_COLLECTIVE_BROADCAST,
					    .root = MANY_ROOT };
	const struct fanin_request theirs = { .collective = FANIN_COLLECTIVE_BROADCAST,
					      .root = MANY_ROOT % 64 };
	const char *text;

	open_world(&many, 1, MANY, "single");
	for (uint16_t rank = 0; rank < MANY; rank++)
		post(rank, rank < MANY - 1 ? &mine : &theirs, 10, 10);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND_NS, NULL, NULL);
	for (uint16_t rank = 0; rank < MANY; rank++)
		ck_assert_int_eq(world.members[rank].request.status, FANIN_ERR_REFUSED);
	text = fanin_engine_error(world.members[MANY - 1].engine)->text;
	ck_assert_msg(strstr(text, "of rank 41") != NULL, "%s", text);
	text = fanin_engine_error(world.members[0].engine)->text;
	ck_assert_msg(strstr(text, "of rank 1023 (10 elements i32 of rank 41)") != NULL, "%s",
		      text);
	close_world();
}
END_TEST

static uint32_t
factor_of_part(uint32_t i)
{
	return i / 2 + 1;
}

/* Each rank contributes two elements, so that each block has another root. */
START_TEST(an_allgather_has_the_parts_of_a_thousand_ranks)
{
	const struct fanin_request request = { .collective = FANIN_COLLECTIVE_ALLGATHER };

	open_world(&many, 1, MANY, "single");
	for (uint16_t rank = 0; rank < MANY; rank++) {
		post(rank, &request, 2, 2 * MANY);
		/* The elements are those of the whole vector at the rank's place. */
		for (uint32_t i = 0; i < 2; i++)
			world.members[rank].send[i] = (int32_t)((rank + 1) * (2u * rank + i));
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 60 * SECOND_NS, all_done, NULL));
	expect_at_all(2 * MANY, factor_of_part);
	close_world();
}
END_TEST

/* Returns the ranks that a waiting rank knows to be missing. */
static struct fanin_ranks
missing_at(uint16_t rank)
{
	struct fanin_ranks ranks;

	fanin_engine_missing(world.members[rank].engine, &ranks);
	return ranks;
}

static void
post_all_but_two(void)
{
	static const struct fanin_request request = { .collective = FANIN_COLLECTIVE_ALLREDUCE };

	for (uint16_t rank = 0; rank < MANY; rank++) {
		if (rank != LATE_ONE && rank != LATE_TWO)
			post(rank, &request, 1000, 1000);
	}
}

/* Ranks at the same leaf learn which rank is missing; others learn which leaves' ranks are. */
START_TEST(late_ones_of_a_thousand_are_named_and_waited_for)
{
	static const struct fanin_request request = { .collective = FANIN_COLLECTIVE_ALLREDUCE };
	const struct fanin_ranks one = fanin_ranks_one(LATE_ONE);
	const struct fanin_ranks two = fanin_ranks_one(LATE_TWO);
	struct fanin_ranks leaves = { 0 };
	struct fanin_ranks found;

	for (unsigned int i = 0; i < PER_LEAF; i++) {
		fanin_ranks_add(&leaves, LATE_ONE / PER_LEAF * PER_LEAF + i);
		fanin_ranks_add(&leaves, LATE_TWO / PER_LEAF * PER_LEAF + i);
	}
	open_world(&many, 1, MANY, "single");
	post_all_but_two();
	/* This is longer than the timeout: the ranks are late, and no rank fails. */
	rig_run(world.rig, rig_now_ns(world.rig) + 12 * SECOND_NS, NULL, NULL);
	for (uint16_t rank = 0; rank < MANY; rank++) {
		if (rank == LATE_ONE || rank == LATE_TWO)
			continue;
		ck_assert_int_eq(world.members[rank].request.status, FANIN_IN_PROGRESS);
		found = missing_at(rank);
		ck_assert(fanin_ranks_equal(&found, rank / PER_LEAF == LATE_ONE / PER_LEAF ? &one
						    : rank / PER_LEAF == LATE_TWO / PER_LEAF
							    ? &two
							    : &leaves));
		fanin_engine_late(world.members[rank].engine, &found);
		ck_assert(!fanin_ranks_is_empty(&found));
	}
	post(LATE_ONE, &request, 1000, 1000);
	post(LATE_TWO, &request, 1000, 1000);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 60 * SECOND_NS, all_done, NULL));
	expect_at_all(1000, factor_of_sum);
	close_world();
}
END_TEST

START_TEST(errors_name_the_missing_ones_of_a_thousand)
{
	struct fanin_ranks found;
	const char *text;

	wait_limit_ns = 7 * SECOND_NS;
	open_world(&many, 1, MANY, "single");
	wait_limit_ns = 0;
	post_all_but_two();
	/* A caller that polls as seldom as these hosts counts only a part of the time. */
	rig_run(world.rig, rig_now_ns(world.rig) + 100 * SECOND_NS, NULL, NULL);
	ck_assert_int_eq(world.members[LATE_ONE + 1].request.status, FANIN_ERR_TIMEOUT);
	text = fanin_engine_error(world.members[LATE_ONE + 1].engine)->text;
	ck_assert_msg(strstr(text, "waits for rank 70 (of 1024)") != NULL, "%s", text);
	found = missing_at(LATE_ONE + 1);
	ck_assert_uint_eq(fanin_ranks_count(&found), 1);
	ck_assert(fanin_ranks_has(&found, LATE_ONE));
	text = fanin_engine_error(world.members[0].engine)->text;
	ck_assert_msg(strstr(text, "waits for ranks 64-127, 960-1023 (of 1024)") != NULL, "%s",
		      text);
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
	tcase_add_test(tests, a_vector_that_fits_the_window_takes_little_longer_than_one_way);
	tcase_add_test(tests, the_same_seed_is_the_same_run_whatever_is_lost);
	tcase_add_test(tests, sixteen_leaves_are_exact);
	tcase_add_test(tests, a_slow_link_delays_and_loses_nothing);
	tcase_add_loop_test(tests, packets_queued_above_the_leaf_are_not_asked_for, 0, 3);
	tcase_add_test(tests, windows_shrink_to_what_queues_above_the_leaf_hold);
	tcase_add_test(tests, sums_of_a_thousand_ranks_are_exact);
	tcase_add_test(tests, sums_of_a_thousand_ranks_are_exact_whatever_is_lost);
	tcase_add_test(tests, sums_of_as_many_ranks_as_there_can_be_are_exact);
	tcase_add_test(tests, a_broadcast_comes_from_any_of_a_thousand_ranks);
	tcase_add_test(tests, ranks_of_a_thousand_that_name_another_root_are_told_so);
	tcase_add_test(tests, an_allgather_has_the_parts_of_a_thousand_ranks);
	tcase_add_test(tests, late_ones_of_a_thousand_are_named_and_waited_for);
	tcase_add_test(tests, errors_name_the_missing_ones_of_a_thousand);
	return suite;
}
