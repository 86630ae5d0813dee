/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of `./dev bench congestion`: placements, background traffic over leaves and spines, the
 * played ring, and jobs whose engines share a host.
 */
#include <check.h>
#include <string.h>

#include "lab/bench/congestion_canary.h"
#include "lab/bench/congestion_trees.h"
#include "lab/bench/injection.h"
#include "lab/bench/ring_player.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)
#define RATE_MBIT 1000u
#define RANKS 8
#define BYTES (UINT64_C(256) << 10)
#define MAX_VECTOR_BYTES (UINT64_C(4) << 20)
#define WINDOW 64

static struct {
	struct congestion_network network;
	struct congestion_job job;
	struct congestion_trees trees;
	struct rig_leaders leaders;
	struct injection injection;
	struct congestion_links before;
	struct congestion_links after;
} world;

static void
start(void)
{
	ring_switch_eal();
}

static void
open_network(uint64_t seed, bool mixed)
{
	const struct congestion_options options = { .seed = seed,
						    .n_leaves = 4,
						    .hosts_per_leaf = 4,
						    .n_spines = 4,
						    .n_ranks = RANKS,
						    .mixed = mixed,
						    .rate_mbit = RATE_MBIT,
						    .delay_ns = 1000,
						    .queue_bytes = 256000,
						    .ecn_bytes = 30000,
						    .max_jobs = 4,
						    .slots = 512,
						    .shared_slots = 1024,
						    .detour_bytes = 3000,
						    .n_packets = 16383 };
	char error[RIG_ERROR_LEN] = "";

	ck_assert_msg(congestion_network_open(&world.network, &options, error) == 0, "%s", error);
}

static void
close_network(void)
{
	ck_assert_uint_eq(congestion_network_close(&world.network), 0);
}

/* Returns the share of its rate that a link has used between two readings. */
static double
used(uint16_t link, uint64_t elapsed_ns)
{
	return (double)(world.after.links[link].bytes - world.before.links[link].bytes) * 8000 /
	       ((double)elapsed_ns * RATE_MBIT);
}

START_TEST(ranks_and_other_hosts_are_all_hosts_and_each_leaf_has_both)
{
	uint64_t ranks = 0, others = 0, leaves_of_ranks = 0, leaves_of_others = 0;

	open_network((uint64_t)_i, true);
	ck_assert_uint_eq(world.network.n_others, 16 - RANKS);
	for (unsigned int i = 0; i < RANKS; i++) {
		ranks |= UINT64_C(1) << world.network.ranks[i];
		leaves_of_ranks |= UINT64_C(1) << world.network.ranks[i] / 4;
		ck_assert(i == 0 || world.network.ranks[i] > world.network.ranks[i - 1]);
	}
	for (unsigned int i = 0; i < world.network.n_others; i++) {
		others |= UINT64_C(1) << world.network.others[i];
		leaves_of_others |= UINT64_C(1) << world.network.others[i] / 4;
	}
	ck_assert_uint_eq(ranks ^ others, 0xffff);
	ck_assert_uint_eq(leaves_of_ranks, 0xf);
	ck_assert_uint_eq(leaves_of_others, 0xf);
	close_network();
}
END_TEST

START_TEST(traffic_over_a_spine_takes_its_links_and_no_others)
{
	const struct injection_options options = { .seed = 1,
						   .rate_mbit = 900,
						   .message_bytes = 65536 };

	open_network(1, true);
	injection_over_spine(&world.injection, &world.network.leaf_spine, &options,
			     world.network.others, world.network.n_others, 2);
	rig_run(world.network.rig, rig_now_ns(world.network.rig) + 5 * MS_NS, NULL, NULL);
	congestion_links_read(&world.network, &world.before);
	rig_run(world.network.rig, rig_now_ns(world.network.rig) + 10 * MS_NS, NULL, NULL);
	congestion_links_read(&world.network, &world.after);
	for (uint16_t i = 0; i < world.after.n; i++) {
		const struct congestion_link *link = &world.after.links[i];

		if (link->tier == CONGESTION_LEAF_UP || link->tier == CONGESTION_LEAF_DOWN)
			ck_assert_double_eq_tol(used(i, 10 * MS_NS), link->other == 2 ? 0.9 : 0,
						0.005);
		ck_assert_uint_eq(link->dropped, 0);
	}
	injection_end(&world.injection);
	close_network();
}
END_TEST

START_TEST(uniform_traffic_has_its_rate_and_goes_to_other_hosts_only)
{
	const struct injection_options options = { .seed = 1,
						   .rate_mbit = 500,
						   .message_bytes = 16384 };
	uint64_t begin_ns;

	open_network(1, false);
	begin_ns = rig_now_ns(world.network.rig);
	congestion_links_read(&world.network, &world.before);
	injection_uniform(&world.injection, &world.network.leaf_spine, &options,
			  world.network.others, world.network.n_others);
	rig_run(world.network.rig, begin_ns + 50 * MS_NS, NULL, NULL);
	congestion_links_read(&world.network, &world.after);
	ck_assert_double_eq_tol((double)world.injection.sent / (62500.0 * 50 * 8), 1, 0.02);
	ck_assert_uint_le(injection_delivered(&world.injection), world.injection.sent);
	ck_assert_uint_ge(injection_delivered(&world.injection), world.injection.sent * 8 / 10);
	for (uint16_t i = 0; i < world.after.n; i++) {
		const struct congestion_link *link = &world.after.links[i];
		bool is_rank = false;

		for (unsigned int r = 0; r < RANKS; r++)
			is_rank = is_rank || world.network.ranks[r] == link->other;
		if (link->tier == CONGESTION_HOST_DOWN)
			ck_assert((used(i, 50 * MS_NS) < 0.001) == is_rank);
	}
	injection_end(&world.injection);
	close_network();
}
END_TEST

static void
permutation_begin(uint64_t seed, const uint32_t *hosts, uint16_t n)
{
	/* Each link can carry the streams of all hosts behind a leaf. */
	const struct injection_options options = { .seed = seed,
						   .rate_mbit = 200,
						   .message_bytes = 16384 };

	injection_permutation(&world.injection, &world.network.leaf_spine, &options, hosts, n);
}

START_TEST(each_host_of_a_permutation_receives_from_one_other)
{
	uint64_t hosts = 0, receivers = 0;
	uint32_t to[16 - RANKS];

	open_network((uint64_t)_i, false);
	permutation_begin((uint64_t)_i, world.network.others, world.network.n_others);
	ck_assert_uint_eq(world.injection.n, 16 - RANKS);
	for (uint16_t i = 0; i < world.injection.n; i++) {
		to[i] = world.injection.sources[i].to;
		hosts |= UINT64_C(1) << world.network.others[i];
		receivers |= UINT64_C(1) << to[i];
		ck_assert_uint_eq(world.injection.sources[i].number, world.network.others[i]);
		ck_assert_uint_ne(to[i], world.network.others[i]);
	}
	ck_assert_uint_eq(receivers, hosts);
	/* The permutation stays, and the same seed gives it again. */
	rig_run(world.network.rig, rig_now_ns(world.network.rig) + 5 * MS_NS, NULL, NULL);
	for (unsigned int round = 0; round < 2; round++) {
		ck_assert_uint_eq(world.injection.n, 16 - RANKS);
		for (uint16_t i = 0; i < world.injection.n; i++)
			ck_assert_uint_eq(world.injection.sources[i].to, to[i]);
		injection_end(&world.injection);
		permutation_begin((uint64_t)_i, world.network.others, world.network.n_others);
	}
	injection_end(&world.injection);
	close_network();
}
END_TEST

START_TEST(permutations_of_other_seeds_differ)
{
	uint64_t seen[2] = { 0, 0 };

	open_network(1, false);
	for (uint64_t seed = 1; seed <= 2; seed++) {
		permutation_begin(seed, world.network.others, world.network.n_others);
		for (uint16_t i = 0; i < world.injection.n; i++)
			seen[seed - 1] = seen[seed - 1] << 4 | world.injection.sources[i].to;
		injection_end(&world.injection);
	}
	ck_assert_uint_ne(seen[0], seen[1]);
	close_network();
}
END_TEST

START_TEST(two_hosts_of_a_permutation_send_to_each_other_and_one_to_nobody)
{
	open_network(1, false);
	permutation_begin(1, world.network.others, 2);
	ck_assert_uint_eq(world.injection.n, 2);
	ck_assert_uint_eq(world.injection.sources[0].to, world.network.others[1]);
	ck_assert_uint_eq(world.injection.sources[1].to, world.network.others[0]);
	injection_end(&world.injection);
	for (uint16_t n = 0; n < 2; n++) {
		permutation_begin(1, world.network.others, n);
		ck_assert_uint_eq(world.injection.n, 0);
		rig_run(world.network.rig, rig_now_ns(world.network.rig) + MS_NS, NULL, NULL);
		ck_assert_uint_eq(world.injection.sent, 0);
		injection_end(&world.injection);
	}
	close_network();
}
END_TEST

/* Returns how many streams of the permutation use a link. */
static unsigned int
streams_on(const struct congestion_link *link)
{
	unsigned int n = 0;

	for (uint16_t i = 0; i < world.injection.n; i++) {
		const uint32_t from = world.injection.sources[i].number;
		const uint32_t to = world.injection.sources[i].to;
		const bool is_over = from / 4 != to / 4 &&
				     world.injection.spines[to] == link->other;

		n += (link->tier == CONGESTION_HOST_UP && from == link->other) ||
		     (link->tier == CONGESTION_HOST_DOWN && to == link->other) ||
		     (link->tier == CONGESTION_LEAF_UP && is_over && from / 4 == link->leaf) ||
		     (link->tier == CONGESTION_LEAF_DOWN && is_over && to / 4 == link->leaf);
	}
	return n;
}

START_TEST(a_permutation_has_its_rate_and_goes_to_a_destination_over_one_spine)
{
	const uint64_t seed = (uint64_t)_i;

	open_network(seed, false);
	permutation_begin(seed, world.network.others, world.network.n_others);
	rig_run(world.network.rig, rig_now_ns(world.network.rig) + 5 * MS_NS, NULL, NULL);
	congestion_links_read(&world.network, &world.before);
	rig_run(world.network.rig, rig_now_ns(world.network.rig) + 20 * MS_NS, NULL, NULL);
	congestion_links_read(&world.network, &world.after);
	for (uint16_t i = 0; i < world.after.n; i++) {
		const struct congestion_link *link = &world.after.links[i];

		ck_assert_double_eq_tol(used(i, 20 * MS_NS), 0.2 * streams_on(link), 0.005);
		ck_assert_uint_eq(link->dropped, 0);
	}
	injection_end(&world.injection);
	close_network();
}
END_TEST

START_TEST(the_spine_to_a_destination_depends_on_no_source)
{
	uint16_t spines[INJECTION_MAX_HOSTS];
	unsigned int n_used = 0;

	open_network(1, false);
	permutation_begin((uint64_t)_i, world.network.others, world.network.n_others);
	memcpy(spines, world.injection.spines, sizeof(spines));
	injection_end(&world.injection);
	/* With other hosts, the remaining ones have other sources. */
	permutation_begin((uint64_t)_i, world.network.others + 1, 5);
	ck_assert_mem_eq(world.injection.spines, spines, sizeof(spines));
	injection_end(&world.injection);
	for (uint16_t spine = 0; spine < 4; spine++) {
		bool is_used = false;

		for (uint32_t host = 0; host < 16; host++)
			is_used = is_used || spines[host] == spine;
		n_used += is_used;
	}
	ck_assert_uint_ge(n_used, 2);
	close_network();
}
END_TEST

/*
 * If one generator gave both, all placements of a seed would have their background on a part of the
 * spines.
 */
START_TEST(all_spines_lead_to_as_many_hosts_whatever_the_placement)
{
	unsigned int n[4] = { 0 };

	for (uint64_t seed = 1; seed <= 16; seed++) {
		open_network(seed, false);
		permutation_begin(seed, world.network.others, world.network.n_others);
		for (uint16_t i = 0; i < world.network.n_others; i++)
			n[world.injection.spines[world.network.others[i]]]++;
		injection_end(&world.injection);
		close_network();
	}
	/* The expectation is 32 of 128 each, and the standard deviation is 5. */
	for (unsigned int spine = 0; spine < 4; spine++) {
		ck_assert_uint_ge(n[spine], 17);
		ck_assert_uint_le(n[spine], 47);
	}
}
END_TEST

static bool
ring_is_done(void *player)
{
	return ring_player_is_done(player);
}

START_TEST(a_ring_takes_its_steps_and_repeats_what_is_lost)
{
	const struct injection_options options = { .seed = 1,
						   .rate_mbit = 950,
						   .message_bytes = 65536 };
	struct ring_player_stats stats;
	struct ring_player *player;
	uint64_t begin_ns;
	double steps;

	open_network(1, true);
	player = ring_player_create(&world.network.leaf_spine, world.network.ranks, RANKS, 1);
	ck_assert_ptr_nonnull(player);
	if (_i == 1)
		injection_uniform(&world.injection, &world.network.leaf_spine, &options,
				  world.network.others, world.network.n_others);
	begin_ns = rig_now_ns(world.network.rig);
	ck_assert_int_eq(ring_player_begin(player, BYTES), 0);
	ck_assert(rig_run(world.network.rig, begin_ns + 10 * SECOND_NS, ring_is_done, player));
	ring_player_stats(player, &stats);
	/* A rank sends 2(n - 1)/n of the vector, 1024 of 1082 bytes of a frame. */
	steps = 2.0 * (RANKS - 1) / RANKS * (double)BYTES * 1082 / 1024 * 8;
	ck_assert_uint_eq(stats.packets, 2 * (RANKS - 1) * (BYTES / 1024));
	ck_assert_uint_ge(stats.sent, stats.packets);
	ck_assert_uint_ge(rig_now_ns(world.network.rig) - begin_ns, (uint64_t)steps);
	if (_i == 0)
		ck_assert_uint_le(rig_now_ns(world.network.rig) - begin_ns,
				  (uint64_t)(1.3 * steps));
	ring_player_destroy(player);
	if (_i == 1)
		injection_end(&world.injection);
	close_network();
}
END_TEST

static bool
job_is_done(void *user)
{
	(void)user;
	return congestion_job_is_done(&world.job);
}

static bool
job_is_ready(void *user)
{
	(void)user;
	return congestion_job_is_ready(&world.job);
}

/* n_trees: 0 means Canary. */
static void
open_job(uint16_t n_trees, uint16_t window)
{
	const struct congestion_trees_options trees = {
		.n = n_trees, .first_spine = 1, .window = window, .payload_bytes = 1024
	};
	const struct congestion_canary_options canary = { .window = window, .payload_bytes = 1024 };
	char error[PIPELINE_ERROR_LEN] = "", reason[128];
	const struct fanin_protocol *protocol =
		fanin_protocol_of(n_trees == 0 ? "canary" : "single", reason, sizeof(reason));
	int ret;

	ck_assert_int_eq(congestion_job_init(&world.job, &world.network, protocol,
					     MAX_VECTOR_BYTES),
			 0);
	if (n_trees == 0)
		ret = congestion_canary_open(&world.leaders, &world.job, &canary, error);
	else
		ret = congestion_trees_open(&world.trees, &world.job, &trees, error);
	ck_assert_msg(ret == 0, "%s", error);
	congestion_job_attach(&world.job);
	ck_assert(rig_run(world.network.rig, rig_now_ns(world.network.rig) + 10 * SECOND_NS,
			  job_is_ready, NULL));
}

static void
close_job(uint16_t n_trees)
{
	congestion_job_close(&world.job);
	if (n_trees == 0)
		rig_leaders_destroy(&world.leaders);
	else
		congestion_trees_close(&world.trees);
}

/*
 * Runs two allreduces over trees, with background traffic at the first one's spine. Returns how
 * long they take.
 */
static uint64_t
two_allreduces(uint16_t n_trees, bool background)
{
	const struct injection_options options = { .seed = 1,
						   .rate_mbit = 900,
						   .message_bytes = 65536 };
	uint64_t begin_ns, took_ns;

	open_network(1, true);
	open_job(n_trees, WINDOW);
	if (background)
		injection_over_spine(&world.injection, &world.network.leaf_spine, &options,
				     world.network.others, world.network.n_others, 1);
	begin_ns = rig_now_ns(world.network.rig);
	for (unsigned int i = 0; i < 2; i++) {
		congestion_job_begin(&world.job, BYTES >> i);
		ck_assert(rig_run(world.network.rig, begin_ns + 10 * SECOND_NS, job_is_done, NULL));
		ck_assert_str_eq(world.job.error, "");
		ck_assert(!world.job.wrong);
	}
	took_ns = rig_now_ns(world.network.rig) - begin_ns;
	close_job(n_trees);
	if (background)
		injection_end(&world.injection);
	close_network();
	return took_ns;
}

START_TEST(a_congested_spine_slows_one_tree_more_than_four)
{
	const uint64_t free_ns = two_allreduces(1, false);
	const uint64_t one_ns = two_allreduces(1, true);
	const uint64_t four_ns = two_allreduces(4, true);

	ck_assert_uint_ge(one_ns, 4 * free_ns);
	ck_assert_uint_ge(one_ns, 2 * four_ns);
	ck_assert_uint_ge(four_ns, free_ns);
}
END_TEST

START_TEST(canary_goes_around_a_congested_spine)
{
	const uint64_t free_ns = two_allreduces(0, false);
	const uint64_t canary_ns = two_allreduces(0, true);

	ck_assert_uint_le(canary_ns, 2 * free_ns);
	ck_assert_uint_ge(two_allreduces(1, true), 2 * canary_ns);
}
END_TEST

/*
 * Switches hold sums for different times, and packets take different paths: late packets are not
 * lost.
 */
START_TEST(hardly_anything_is_asked_for_in_vain)
{
	const struct injection_options options = { .seed = 1,
						   .rate_mbit = 900,
						   .message_bytes = 65536 };
	struct fanin_report report;

	open_network(4, true);
	open_job(0, 128);
	injection_over_spine(&world.injection, &world.network.leaf_spine, &options,
			     world.network.others, world.network.n_others, 1);
	congestion_job_begin(&world.job, MAX_VECTOR_BYTES);
	ck_assert(rig_run(world.network.rig, rig_now_ns(world.network.rig) + 10 * SECOND_NS,
			  job_is_done, NULL));
	ck_assert(!world.job.wrong);
	congestion_job_report(&world.job, &report);
	ck_assert_msg(report.duplicates * 100 < report.frames_sent, "%lu of %lu frames",
		      (unsigned long)report.duplicates, (unsigned long)report.frames_sent);
	close_job(0);
	injection_end(&world.injection);
	close_network();
}
END_TEST

Suite *
suite_congestion(void)
{
	Suite *suite = suite_create("congestion");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 120);
	tcase_add_checked_fixture(all, start, NULL);
	tcase_add_loop_test(all, ranks_and_other_hosts_are_all_hosts_and_each_leaf_has_both, 0, 4);
	tcase_add_test(all, traffic_over_a_spine_takes_its_links_and_no_others);
	tcase_add_test(all, uniform_traffic_has_its_rate_and_goes_to_other_hosts_only);
	tcase_add_loop_test(all, each_host_of_a_permutation_receives_from_one_other, 0, 8);
	tcase_add_test(all, permutations_of_other_seeds_differ);
	tcase_add_test(all, two_hosts_of_a_permutation_send_to_each_other_and_one_to_nobody);
	tcase_add_loop_test(all,
			    a_permutation_has_its_rate_and_goes_to_a_destination_over_one_spine, 1,
			    4);
	tcase_add_loop_test(all, the_spine_to_a_destination_depends_on_no_source, 0, 4);
	tcase_add_test(all, all_spines_lead_to_as_many_hosts_whatever_the_placement);
	tcase_add_loop_test(all, a_ring_takes_its_steps_and_repeats_what_is_lost, 0, 2);
	tcase_add_test(all, a_congested_spine_slows_one_tree_more_than_four);
	tcase_add_test(all, canary_goes_around_a_congested_spine);
	tcase_add_test(all, hardly_anything_is_asked_for_in_vain);
	suite_add_tcase(suite, all);
	return suite;
}
