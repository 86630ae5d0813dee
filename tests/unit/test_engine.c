/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host library's window protocol (hostlib/src/engine/engine.h) on the small world of
 * engine_world.h: exact results under faults, which packets are sent again and which are not, and
 * errors that name the missing ranks.
 */
#include <errno.h>
#include <stdio.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/engine/engine_internal.h"
#include "protocols/dense/host/window.h"
#include "tests/unit/engine_world.h"
#include "tests/unit/suites.h"

static const uint16_t sizes[] = { 1, 2, 3, 8, 11, 16 };
static const uint32_t counts[] = {
	0, 1, ELEMENTS - 1, ELEMENTS, ELEMENTS + 1, 1000, 5 * WINDOW *ELEMENTS
};

#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))

START_TEST(every_rank_gets_the_sum_of_all)
{
	struct world *world = world_create(sizes[_i]);

	for (uint32_t i = 0; i < N_COUNTS; i++)
		allreduce_expect(world, counts[i], i, false);
	ck_assert_uint_eq(retransmits(world), 0);
	world_destroy(world);
}
END_TEST

START_TEST(results_are_exact_under_loss_duplication_and_reordering)
{
	struct world *world = world_create(sizes[_i % N_SIZES]);

	world->random = random_seed((uint64_t)_i);
	world->loss = 0.1;
	world->duplication = 0.1;
	world->reordering = 0.2;
	for (uint32_t i = 0; i < N_COUNTS; i++)
		allreduce_expect(world, counts[i], i, (i & 1) != 0);
	world_destroy(world);
}
END_TEST

START_TEST(send_and_receive_buffer_may_be_the_same)
{
	struct world *world = world_create(3);

	world->loss = 0.2;
	allreduce_expect(world, 1003, 5, true);
	world_destroy(world);
}
END_TEST

START_TEST(block_numbers_wrap_around)
{
	struct world *world = world_create_at(3, WINDOW, UINT32_MAX - 20);

	world->loss = 0.1;
	world->duplication = 0.1;
	for (uint32_t i = 0; i < N_COUNTS; i++)
		allreduce_expect(world, counts[i], i, false);
	world_destroy(world);
}
END_TEST

START_TEST(several_requests_may_be_outstanding)
{
	struct world *world = world_create(3);
	struct collective collectives[20];

	world->loss = 0.05;
	for (uint32_t i = 0; i < 20; i++) {
		collective_prepare(&collectives[i], i % 7 * 100 + i, i);
		/* Ranks post at different times, but all in the same order. */
		for (uint16_t rank = 0; rank < 3; rank++) {
			collective_post(&collectives[i], world, rank, false);
			world_step(world);
		}
	}
	for (uint32_t i = 20; i-- > 0;)
		collective_run(&collectives[i], world);
	for (uint32_t i = 0; i < 20; i++)
		collective_expect(&collectives[i], world);
	world_destroy(world);
}
END_TEST

START_TEST(a_host_may_have_fewer_lanes_than_the_switch)
{
	struct world *world = world_create_at(4, WINDOW / 8, 0);

	world->loss = 0.1;
	allreduce_expect(world, 1000, 1, false);
	world_destroy(world);
}
END_TEST

START_TEST(an_empty_allreduce_waits_for_every_rank)
{
	struct world *world = world_create(2);
	struct collective collective;

	collective_prepare(&collective, 0, 0);
	collective_post(&collective, world, 0, false);
	for (int i = 0; i < 1000; i++)
		world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(ranks_begin_at_their_share_of_an_eighth_of_the_window)
{
	struct world *world = world_create(4);

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	for (uint16_t rank = 0; rank < 4; rank++)
		ck_assert_uint_eq(world->links[rank].first_sent, rank * (WINDOW / 8) / 4u);
	world_destroy(world);
}
END_TEST

START_TEST(no_more_than_a_window_is_in_flight)
{
	struct world *world = world_create(2);
	struct collective collective;

	collective_prepare(&collective, 100 * ELEMENTS, 0);
	collective_post(&collective, world, 0, false);
	world_step(world);
	ck_assert_uint_eq(world->links[0].sent, WINDOW);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(only_lost_contributions_are_sent_again)
{
	struct world *world = world_create(1);

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	world->drop_next = 3;
	allreduce_expect(world, 100 * ELEMENTS, 1, false);
	ck_assert_uint_eq(retransmits(world), 3);
	world_destroy(world);
}
END_TEST

START_TEST(a_whole_lost_window_is_recovered)
{
	struct world *world = world_create(2);

	world->drop_next = 2 * WINDOW;
	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	world_destroy(world);
}
END_TEST

static uint64_t
queries(const struct world *world)
{
	uint64_t sum = 0;

	for (uint16_t i = 0; i < world->n_ranks; i++)
		sum += fanin_engine_stats(world->engines[i])->queries;
	return sum;
}

START_TEST(a_slow_peer_costs_queries_and_no_payload)
{
	struct world *world = world_create(2);
	struct collective collective;
	uint64_t before;

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	before = queries(world);
	collective_prepare(&collective, 100 * ELEMENTS, 1);
	collective_post(&collective, world, 0, false);
	/* A second passes before the peer comes. */
	for (int i = 0; i < 20000; i++)
		world_step(world);
	ck_assert_uint_lt(queries(world) - before, 15);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	ck_assert_uint_eq(retransmits(world), 0);
	world_destroy(world);
}
END_TEST

/* Rank r of P has this window; if `changes`, each result changes the window. */
static uint32_t odd_windows;
static bool odd_changes;

static void
odd_init(struct fanin_cc *cc)
{
	static const uint32_t windows[] = { 1, 3, WINDOW, 17, 2, 48 };

	cc->window = windows[odd_windows++ % (sizeof(windows) / sizeof(windows[0]))];
}

static void
odd_on_delay(struct fanin_cc *cc, const struct fanin_cc_sample *sample)
{
	static struct random random = { 99 };

	(void)sample;
	if (!odd_changes || !random_chance(&random, 0.1))
		return;
	cc->window = 1 + random_below(&random, random_chance(&random, 0.5) ? cc->limit : 4);
	cc->generation++;
}

static void
odd_on_loss(struct fanin_cc *cc, uint64_t now_ns)
{
	(void)now_ns;
	cc->window = 1 + cc->window / 2;
	if (cc->window > cc->limit)
		cc->window = cc->limit;
	cc->generation++;
}

static const struct fanin_cc_type odd = {
	.name = "odd",
	.init = odd_init,
	.on_delay = odd_on_delay,
	.on_loss = odd_on_loss,
};

START_TEST(hosts_with_different_windows_never_wait_for_each_other)
{
	struct world *world;

	world_cc = &odd;
	odd_changes = _i % 2 != 0;
	world = world_create_of(sizes[_i / 4], WINDOW, UINT32_MAX - 500, _i / 2 % 2 != 0);
	world_cc = NULL;
	world->random = random_seed((uint64_t)_i);
	allreduce_expect(world, 1000 * ELEMENTS, 1, false);
	ck_assert_uint_eq(retransmits(world), 0);
	world->loss = 0.05;
	world->duplication = 0.05;
	world->reordering = 0.1;
	allreduce_expect(world, 1000 * ELEMENTS, 2, false);
	world_destroy(world);
}
END_TEST

START_TEST(a_host_keeps_to_its_window)
{
	struct world *world;
	struct collective collective;

	world_cc = &odd;
	odd_changes = false;
	odd_windows = 3; /* 17 */
	world = world_create(2);
	world_cc = NULL;
	collective_prepare(&collective, 100 * ELEMENTS, 0);
	collective_post(&collective, world, 0, false);
	world_step(world);
	ck_assert_uint_eq(world->links[0].sent, 17);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(results_in_the_ring_are_read_before_anything_is_sent_again)
{
	struct world *world = world_create(2);
	struct collective collective;

	for (uint32_t i = 0; i < 10; i++)
		allreduce_expect(world, WINDOW * ELEMENTS, i, false);
	collective_prepare(&collective, WINDOW * ELEMENTS, 10);
	collective_post_all(&collective, world, false);
	fanin_engine_poll(world->engines[0]);
	fanin_engine_poll(world->engines[1]);
	/* Rank 0 loses its core for longer than any timeout that it has learned. */
	world->now_ns += 30 * 1000000;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	ck_assert_uint_eq(retransmits(world), 0);
	world_destroy(world);
}
END_TEST

START_TEST(results_that_are_late_bring_queries_and_no_payload)
{
	struct world *world = world_create(2);
	struct link *link = &world->links[0];
	struct collective collective;
	uint64_t before;

	for (uint32_t i = 0; i < 10; i++)
		allreduce_expect(world, WINDOW * ELEMENTS, i, false);
	before = queries(world);
	collective_prepare(&collective, WINDOW * ELEMENTS, 10);
	collective_post_all(&collective, world, false);
	link->holds = true;
	for (int i = 0; i < 1000; i++)
		world_step(world);
	/* Nothing comes for 50 ms, after a round trip of less than a millisecond was measured. */
	ck_assert_uint_ge(queries(world), before + 3);
	ck_assert_uint_le(queries(world), before + 10);
	link->holds = false;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	ck_assert_uint_eq(retransmits(world), 0);
	world_destroy(world);
}
END_TEST

START_TEST(timeouts_do_not_grow_with_the_peers_timeouts)
{
	struct world *world = world_create(8);
	uint64_t start_ns = world->now_ns;

	world->loss = 0.01;
	allreduce_expect(world, 200 * WINDOW * ELEMENTS, 0, false);
	/* 0.2 s if they don't, three times as long if they do. */
	ck_assert_uint_lt(world->now_ns - start_ns, 400 * 1000000ull);
	world_destroy(world);
}
END_TEST

START_TEST(a_result_that_is_lost_is_asked_for_soon_whatever_others_were_told)
{
	struct world *world = world_create(2);
	struct collective collective;
	struct fanin_headers pending;
	uint64_t start_ns;

	collective_prepare(&collective, ELEMENTS, 1);
	collective_post(&collective, world, 0, false);
	for (int i = 0; i < 500; i++)
		world_step(world);
	/* Other ranks query the block, too, and their answers also come here. */
	for (int i = 0; i < 20; i++) {
		const struct answer_words said = answer_words_make(1 << 1, 0, 0);

		answer_make(world, &pending, FANIN_TYPE_ANSWER, 0, sizeof(said));
		link_deliver(&world->links[0], &pending, &said, sizeof(said));
	}
	world_step(world);
	collective_post(&collective, world, 1, false);
	fanin_engine_poll(world->engines[1]);
	world->links[0].head = world->links[0].tail;
	start_ns = world->now_ns;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	/* This takes 80 ms; it would take half a second if each such answer doubled the timeout. */
	ck_assert_uint_lt(world->now_ns - start_ns, 150 * 1000000ull);
	world_destroy(world);
}
END_TEST

START_TEST(repeated_losses_do_not_back_off_while_others_pass)
{
	struct world *world = world_create(8);
	uint64_t start_ns = world->now_ns;

	world->loss = 0.1;
	allreduce_expect(world, 50 * WINDOW * ELEMENTS, 0, false);
	/* This takes 0.4 s; it would take 1.9 s if each repetition doubled the timeout. */
	ck_assert_uint_lt(world->now_ns - start_ns, 900 * 1000000ull);
	world_destroy(world);
}
END_TEST

/* Returns the virtual milliseconds that allreduces take under loss, with several seeds. */
static double
ms_under_loss(double loss)
{
	uint64_t sum_ns = 0;

	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct world *world = world_create(4);
		const uint64_t start_ns = world->now_ns;

		world->random = random_seed(seed);
		world->loss = loss;
		allreduce_expect(world, 100 * WINDOW * ELEMENTS, 0, false);
		sum_ns += world->now_ns - start_ns;
		world_destroy(world);
	}
	return (double)sum_ns / 1e6;
}

/*
 * _i: 0 two percent, 1 ten. The times to compare with were measured with an engine that always
 * sends a lost block again at once.
 */
START_TEST(random_loss_is_repaired_as_fast_as_without_back_off)
{
	static const double losses[] = { 0.02, 0.1 };
	static const double ms_without[] = { 583.5, 2039.6 };

	ck_assert_double_le(ms_under_loss(losses[_i]), 1.03 * ms_without[_i]);
}
END_TEST

/*
 * No contribution of rank 0 arrives for three seconds, although queries do; then all arrive. _i:
 * number of blocks, of which a window is sent at once; from 4 on the switch has several workers and
 * is queried for each block separately.
 */
START_TEST(contributions_that_are_always_lost_are_sent_less_and_less_often)
{
	static const uint32_t blocks[] = { 1, 8, WINDOW, 4 * WINDOW };
	const uint32_t n_blocks = blocks[_i % 4];
	const uint32_t n_sent = n_blocks < WINDOW ? n_blocks : WINDOW;
	const uint32_t n_asked = _i < 4 ? 0 : n_sent;
	const struct fanin_engine_stats *stats;
	struct collective collective;
	uint64_t start_ns, n_queries;
	struct world *world;

	world_spread = _i >= 4;
	world = world_create(3);
	stats = fanin_engine_stats(world->engines[0]);
	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	n_queries = stats->queries;
	world->cut = 1;
	collective_prepare(&collective, n_blocks * ELEMENTS, 1);
	collective_post_all(&collective, world, false);
	for (start_ns = world->now_ns; world->now_ns - start_ns < 3000 * 1000000ull;)
		world_step(world);
	/* Four at once, eleven at intervals from 2 ms to 1 s. */
	ck_assert_uint_ge(stats->retransmits, 8 * n_sent);
	ck_assert_uint_le(stats->retransmits, 16 * n_sent);
	ck_assert_uint_le(stats->queries - n_queries, 60 + 16 * n_asked);
	if (n_sent <= 8 && n_asked == 0)
		ck_assert_uint_le(stats->queries - n_queries + stats->retransmits, 200);

	world->cut = 0;
	start_ns = world->now_ns;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	/* The longest interval. */
	ck_assert_uint_le(world->now_ns - start_ns, 1010 * 1000000ull);
	world_destroy(world);
	world_spread = false;
}
END_TEST

/* Steps until rank 0's engine fails; returns how many seconds this took. */
static double
seconds_to_failure(struct world *world)
{
	uint64_t start_ns = world->now_ns;
	int status = 0;

	while (status >= 0) {
		ck_assert_uint_lt(world->now_ns - start_ns, 2 * TIMEOUT_NS);
		world->now_ns += STEP_NS;
		for (uint16_t i = world->n_ranks; i-- > 0;)
			status = fanin_engine_poll(world->engines[i]);
	}
	return (double)(world->now_ns - start_ns) / 1e9;
}

/* _i: 0 the rank has ended, 1 it does not answer. */
START_TEST(a_timeout_names_the_missing_rank)
{
	struct world *world = world_create(4);
	struct collective collective;
	double seconds;

	*(_i == 0 ? &world->ended : &world->mute) = 1 << 2;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	collective_post(&collective, world, 1, false);
	collective_post(&collective, world, 3, false);
	seconds = seconds_to_failure(world);
	ck_assert_double_ge(seconds, 4.9);
	ck_assert_double_le(seconds, 5.1);
	for (uint16_t rank = 0; rank < 4; rank += rank == 1 ? 2 : 1) {
		ck_assert_int_eq(collective.requests[rank].status, FANIN_ERR_TIMEOUT);
		ck_assert_str_eq(
			fanin_engine_error(world->engines[rank])->text,
			_i == 0 ? "no result for 5.0 s: block 0 waits for rank 2 (of 4), which has ended"
				: "no result for 5.0 s: block 0 waits for rank 2 (of 4), which does not answer");
		ck_assert_uint_eq(world_missing(world->engines[rank]), 1 << 2);
	}
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* Rank 2 is late. _i: rank 3 has ended, or does not answer. */
START_TEST(a_timeout_says_of_late_ranks_only_that_they_are_missing)
{
	struct world *world = world_create(4);
	struct collective collective;

	*(_i == 0 ? &world->ended : &world->mute) = 1 << 3;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	collective_post(&collective, world, 1, false);
	seconds_to_failure(world);
	ck_assert_str_eq(
		fanin_engine_error(world->engines[0])->text,
		_i == 0 ? "no result for 5.0 s: block 0 waits for ranks 2, 3 (of 4), of which rank 3 has ended"
			: "no result for 5.0 s: block 0 waits for ranks 2, 3 (of 4), of which rank 3 does not answer");
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* Lets this many seconds pass for all ranks but the last one, which is busy. */
static void
pass_without_last(struct world *world, double seconds)
{
	for (uint64_t end_ns = world->now_ns + (uint64_t)(seconds * 1e9); world->now_ns < end_ns;) {
		world->now_ns += 1000000;
		for (uint16_t i = 0; i + 1 < world->n_ranks; i++)
			fanin_engine_poll(world->engines[i]);
	}
}

/* Posts a collective on all ranks but the last one, after one that all take part in. */
static struct world *
world_without_last(struct collective *collective)
{
	struct world *world = world_create(4);

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	collective_prepare(collective, 100 * ELEMENTS, 1);
	for (uint16_t rank = 0; rank < 3; rank++)
		collective_post(collective, world, rank, false);
	return world;
}

START_TEST(late_ranks_are_waited_for)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);
	uint64_t before = fanin_engine_stats(world->engines[0])->frames_sent +
			  fanin_engine_stats(world->engines[0])->frames_received;
	uint64_t after;

	pass_without_last(world, 60);
	ck_assert_uint_eq(world_missing(world->engines[0]), 1 << 3);
	after = fanin_engine_stats(world->engines[0])->frames_sent +
		fanin_engine_stats(world->engines[0])->frames_received;
	/* The limit is a window of contributions, and two packets for each query. */
	ck_assert_uint_lt(after - before, WINDOW + 100);
	collective_post(&collective, world, 3, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	ck_assert_uint_eq(retransmits(world), 0);
	world_destroy(world);
}
END_TEST

START_TEST(answers_from_far_away_are_waited_for_during_long_waits)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);
	struct link *link = &world->links[0];
	uint32_t before = link->queries;

	world->far = true;
	link->holds = true;
	/*
	 * The answers come every 30 ms, which is far longer than the measured round trip to the
	 * nearest switch.
	 */
	for (int i = 0; i < 60000 / 30; i++) {
		pass_without_last(world, 0.03);
		link->passing = link->tail - link->head;
	}
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	/*
	 * 28 queries at intervals of 2 s, 10 until the interval is that long, and some that were
	 * repeated while it was short.
	 */
	ck_assert_uint_lt(link->queries - before, 50);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_late_rank_that_goes_is_named_in_time)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);

	pass_without_last(world, 33.3);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	world->ended = 1 << 3;
	pass_without_last(world, 4.9);
	for (uint16_t rank = 0; rank < 3; rank++)
		ck_assert_int_eq(collective.requests[rank].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "rank 3 (of 4), which has ended"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * _i / 2: how late in the timeout the switch finds it. _i % 2: 0 the rank has ended, 1 it does not
 * answer, which counts after a second.
 */
START_TEST(a_rank_found_gone_late_is_named_within_the_timeout)
{
	const double found_s = (_i % 2 == 0 ? 2.9 : 1.9) + 0.1 * (_i / 2);
	struct collective collective;
	struct world *world = world_without_last(&collective);

	pass_without_last(world, found_s);
	*(_i % 2 == 0 ? &world->ended : &world->mute) = 1 << 3;
	pass_without_last(world, 5.1 - found_s);
	for (uint16_t rank = 0; rank < 3; rank++)
		ck_assert_int_eq(collective.requests[rank].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(
		fanin_engine_error(world->engines[0])->text,
		_i % 2 == 0
			? "no result for 5.0 s: block 100 waits for rank 3 (of 4), which has ended"
			: "waits for rank 3 (of 4), which does not answer"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * Time that switches need to find a rank gone, from the first query about an overdue block on: four
 * probes at the leaf, half a second apart, and another one by which the spine learns of it.
 */
#define FINDING_NS (2000 * UINT64_C(1000000))

/*
 * _i: round trips measured before, in tens of milliseconds. On a busy machine a round trip takes
 * long, and varies.
 */
START_TEST(a_gone_rank_is_named_in_time_after_long_round_trips)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);
	const uint64_t start_ns = world->now_ns;
	bool all_know = false;

	world->watch_ns = 0;
	world->far = true;
	for (uint16_t rank = 0; rank < 3; rank++)
		fanin_rtt_sample(&fanin_engine_of(world->engines[rank])->rtt,
				 (uint64_t)_i * 10000000);
	while (!all_know && world->now_ns - start_ns < 2 * TIMEOUT_NS) {
		pass_without_last(world, 0.001);
		if (world->watch_ns != 0 && world->now_ns - world->watch_ns >= FINDING_NS)
			world->mute = 1 << 3;
		all_know = true;
		for (uint16_t rank = 0; rank < 3; rank++)
			all_know = all_know &&
				   collective.requests[rank].status == FANIN_ERR_TIMEOUT;
	}
	ck_assert_double_le((double)(world->now_ns - start_ns) / 1e9, 5.1);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "waits for rank 3 (of 4), which does not answer"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_switch_that_goes_while_somebody_is_late_is_named_in_time)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);

	pass_without_last(world, 33.3);
	world->silent = true;
	pass_without_last(world, 5.1);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "does not answer any more; block"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(results_that_are_lost_after_a_long_wait_are_asked_for)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);

	pass_without_last(world, 33.3);
	collective_post(&collective, world, 3, false);
	fanin_engine_poll(world->engines[3]);
	world->links[0].head = world->links[0].tail;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

static bool
next_is_result(const struct link *link)
{
	const struct fanin_headers *headers =
		(const void *)link->queue[link->head % QUEUE_LEN].data;

	return link->head != link->tail && headers->fanin.type == FANIN_TYPE_RESULT;
}

/*
 * Returns the milliseconds until rank 0 has its result, if `losses` packets are lost, each after a
 * query for the result.
 */
static unsigned int
time_with_losses(struct world *world, const struct collective *collective, unsigned int losses)
{
	struct link *link = &world->links[0];
	unsigned int ms = 0;

	for (; collective->requests[0].status == FANIN_IN_PROGRESS; ms++) {
		ck_assert_uint_lt(ms, 10000);
		for (; losses > 0 && next_is_result(link); losses--)
			link->head++;
		world->now_ns += 1000000;
		for (uint16_t i = 0; i < world->n_ranks; i++)
			fanin_engine_poll(world->engines[i]);
	}
	return ms;
}

START_TEST(a_loss_after_a_long_wait_is_asked_for_soon)
{
	struct collective collective;
	struct world *world = world_create(4);

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	collective_prepare(&collective, ELEMENTS, 1);
	for (uint16_t rank = 0; rank < 3; rank++)
		collective_post(&collective, world, rank, false);
	pass_without_last(world, 33.3);
	collective_post(&collective, world, 3, false);
	/*
	 * The next query shows the first loss, after 2 s at most; the others show after a few ms
	 * each.
	 */
	ck_assert_uint_le(time_with_losses(world, &collective, 5), 2000 + 200);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(contributions_that_never_arrive_cost_few_queries)
{
	struct world *world = world_create(1);
	struct collective collective;

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	world->drop_next = UINT32_MAX;
	collective_prepare(&collective, ELEMENTS, 1);
	collective_post(&collective, world, 0, false);
	ck_assert_double_le(seconds_to_failure(world), 5.1);
	ck_assert_uint_lt(world->links[0].queries, 40);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_run_that_is_lost_after_a_long_wait_has_its_time)
{
	struct collective collective;
	struct world *world = world_create_of(4, WINDOW, 0, true);

	collective_prepare(&collective, 10, 1);
	for (uint16_t rank = 0; rank < 3; rank++)
		collective_post(&collective, world, rank, false);
	pass_without_last(world, 20.3);
	fanin_engine_suspect_run(world->engines[0]);
	pass_without_last(world, 2.5);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	pass_without_last(world, 3);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_link_that_is_away_for_a_moment_ends_no_long_wait)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);

	pass_without_last(world, 20.3);
	world->mute = 1 << 3;
	pass_without_last(world, 2.1);
	world->mute = 0;
	pass_without_last(world, 20);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	world->mute = 1 << 3;
	pass_without_last(world, 4.5);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(waits_for_late_ranks_survive_losses)
{
	struct collective collective;
	struct world *world = world_without_last(&collective);

	world->random = random_seed((uint64_t)_i);
	world->loss = 0.05;
	pass_without_last(world, 600);
	collective_post(&collective, world, 3, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/* A caller that computes between two tests of a request. */
START_TEST(losses_are_repaired_however_seldom_the_caller_looks)
{
	struct world *world = world_create(1);
	struct collective collective;

	allreduce_expect(world, 100 * ELEMENTS, 0, false);
	world->drop_next = 1;
	collective_prepare(&collective, ELEMENTS, 1);
	collective_post(&collective, world, 0, false);
	for (int i = 0; i < 20; i++) {
		world->now_ns += 400 * 1000000ull;
		fanin_engine_poll(world->engines[0]);
	}
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * _i % 3: 0 the switch does not answer, 1 a rank has ended, 2 a rank does not answer. _i / 3: how
 * seldom the caller polls.
 */
START_TEST(a_caller_that_looks_seldom_learns_in_so_many_looks)
{
	static const uint64_t away_ms[] = { 110, 400, 3000 };
	const uint64_t away_ns = away_ms[_i / 3] * 1000000;
	struct world *world = world_create(2);
	struct collective collective;
	unsigned int looks;
	int status = 0;

	if (_i % 3 != 0)
		*(_i % 3 == 1 ? &world->ended : &world->mute) = 1 << 1;
	world->silent = _i % 3 == 0;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	for (looks = 0; status >= 0; looks++) {
		ck_assert_uint_lt(looks, 25 + 4 * TIMEOUT_NS / away_ns);
		world->now_ns += away_ns;
		status = fanin_engine_poll(world->engines[0]);
	}
	/* Each poll may bring lost packets, so there must be several. */
	ck_assert_uint_ge(looks, 20);
	ck_assert_uint_ge(looks * away_ns, TIMEOUT_NS);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     _i % 3 == 0 ? "the switch does not answer"
				     : _i % 3 == 1
					     ? "waits for rank 1 (of 2), which has ended"
					     : "waits for rank 1 (of 2), which does not answer"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_caller_that_looks_seldom_waits_for_late_ranks)
{
	struct world *world = world_create(2);
	struct collective collective;

	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	for (unsigned int looks = 0; looks < 500; looks++) {
		world->now_ns += (_i == 0 ? 110 : 3000) * 1000000ull;
		ck_assert_int_ge(fanin_engine_poll(world->engines[0]), 0);
	}
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_limit_to_waiting_holds)
{
	struct collective collective;
	struct world *world;

	world_wait_limit_ns = 8000000000;
	world = world_without_last(&collective);
	world_wait_limit_ns = 0;
	pass_without_last(world, 7.9);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	pass_without_last(world, 0.2);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "waits for rank 3 (of 4), which is late"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(contributions_that_never_arrive_are_told_apart_from_a_silent_switch)
{
	struct world *world = world_create(1);
	struct collective collective;
	double seconds;

	world->drop_next = UINT32_MAX;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	seconds = seconds_to_failure(world);
	ck_assert_double_le(seconds, 5.1);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "never arrived at the switch, which answers"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* As after the MTU of its switch's port was lowered. */
START_TEST(a_rank_whose_packets_never_arrive_is_not_told_that_it_is_late)
{
	struct world *world = world_create(2);
	struct collective collective;
	const char *text;

	world->cut = 1;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	collective_post(&collective, world, 1, false);
	for (int i = 0; i < 1000; i++)
		world_step(world);
	ck_assert_uint_eq(world_missing(world->engines[0]), 0);
	ck_assert_uint_eq(world_missing(world->engines[1]), 1);
	seconds_to_failure(world);
	text = fanin_engine_error(world->engines[0])->text;
	ck_assert_msg(strstr(text, "never arrived at the switch, which answers") != NULL, "%s",
		      text);
	/* 82 bytes of headers, and 16 elements. */
	ck_assert_msg(strstr(text, "do packets of 146 bytes pass") != NULL, "%s", text);
	ck_assert_ptr_null(strstr(text, "rank 0"));
	ck_assert_uint_eq(world_missing(world->engines[0]), 0);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_timeout_tells_that_the_switch_is_silent)
{
	struct world *world = world_create(1);
	struct collective collective;

	world->silent = true;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	seconds_to_failure(world);
	ck_assert_ptr_nonnull(
		strstr(fanin_engine_error(world->engines[0])->text, "the switch does not answer"));
	ck_assert_uint_eq(world_missing(world->engines[0]), 0);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_timeout_tells_that_nothing_could_be_sent)
{
	struct world *world = world_create(1);
	struct collective collective;

	world->links[0].memory.full = true;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	seconds_to_failure(world);
	ck_assert_ptr_nonnull(
		strstr(fanin_engine_error(world->engines[0])->text, "could not be sent"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(a_timeout_tells_why_sending_fails)
{
	struct world *world = world_create(1);
	struct collective collective;
	const char *text;

	world->links[0].memory.refuses = EMSGSIZE;
	collective_prepare(&collective, 100, 0);
	collective_post(&collective, world, 0, false);
	seconds_to_failure(world);
	text = fanin_engine_error(world->engines[0])->text;
	ck_assert_msg(strstr(text, strerror(EMSGSIZE)) != NULL && strstr(text, "MTU") != NULL, "%s",
		      text);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(an_error_of_sending_that_is_over_is_not_told)
{
	struct world *world = world_create(1);
	struct collective collectives[2];
	const char *text;

	collective_prepare(&collectives[0], 100, 0);
	collective_post(&collectives[0], world, 0, false);
	world->links[0].memory.refuses = ENETDOWN;
	for (int i = 0; i < 10; i++)
		world_step(world);
	world->links[0].memory.refuses = 0;
	collective_run(&collectives[0], world);
	world->silent = true;
	collective_prepare(&collectives[1], 100, 1);
	collective_post(&collectives[1], world, 0, false);
	seconds_to_failure(world);
	text = fanin_engine_error(world->engines[0])->text;
	ck_assert_msg(strstr(text, "the switch does not answer") != NULL &&
			      strstr(text, "sending fails") == NULL,
		      "%s", text);
	collective_free(&collectives[0], world);
	collective_free(&collectives[1], world);
	world_destroy(world);
}
END_TEST

START_TEST(a_failed_engine_takes_no_more_requests)
{
	struct fanin_request request = { .dtype = FANIN_WIRE_I32, .op = FANIN_WIRE_SUM };
	struct world *world = world_create(1);
	struct collective collectives[2];

	world->silent = true;
	for (uint32_t i = 0; i < 2; i++) {
		collective_prepare(&collectives[i], 10, 0);
		collective_post(&collectives[i], world, 0, false);
	}
	seconds_to_failure(world);
	ck_assert_int_eq(collectives[0].requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_int_eq(collectives[1].requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_int_eq(fanin_engine_post(world->engines[0], &request, 0), FANIN_ERR_TIMEOUT);
	collective_free(&collectives[0], world);
	collective_free(&collectives[1], world);
	world_destroy(world);
}
END_TEST

/*
 * A failed engine does not wake a sleeping caller: neither by its descriptors nor for a lost run
 * that it no longer handles.
 */
START_TEST(a_failed_engine_waits_for_nothing)
{
	struct world *world = world_create_of(1, WINDOW, 0, true);
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
	struct collective collective;

	world->silent = true;
	collective_prepare(&collective, 10, 0);
	collective_post(&collective, world, 0, false);
	if (_i == 1)
		notify(world, 0);
	seconds_to_failure(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(fanin_engine_idle_ns(world->engines[0]), UINT64_MAX);
	ck_assert_uint_eq(fanin_engine_poll_fds(world->engines[0], fds), 0);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

static uint64_t max_ns;

static uint64_t
idle_max_ns(struct fanin_engine *engine)
{
	(void)engine;
	return max_ns;
}

/*
 * A protocol that waits for room, or has timers of its own, wakes the caller earlier; never later.
 */
START_TEST(protocols_bound_how_long_the_caller_sleeps)
{
	struct world *world = world_create(1);
	struct fanin_engine *engine = fanin_engine_of(world->engines[0]);
	struct fanin_engine_rules rules = *engine->rules;
	struct collective collective;

	rules.idle_max_ns = idle_max_ns;
	engine->rules = &rules;
	max_ns = 100000;
	ck_assert_uint_eq(fanin_engine_idle_ns(world->engines[0]), max_ns);
	world->silent = true;
	collective_prepare(&collective, 10, 0);
	collective_post(&collective, world, 0, false);
	world_step(world);
	engine->loop.next_timer_ns = world->now_ns + 30000;
	ck_assert_uint_eq(fanin_engine_idle_ns(world->engines[0]), 30000);
	max_ns = 20000;
	ck_assert_uint_eq(fanin_engine_idle_ns(world->engines[0]), 20000);
	max_ns = 0;
	ck_assert_uint_eq(fanin_engine_idle_ns(world->engines[0]), 0);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(the_callers_absence_is_no_timeout)
{
	struct world *world = world_create(2);
	struct collective collective;

	collective_prepare(&collective, 1000, 0);
	collective_post(&collective, world, 0, false);
	world_step(world);
	world->now_ns += 12 * TIMEOUT_NS;
	world_step(world);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(ranks_that_disagree_are_told_so)
{
	struct world *world = world_create(2);
	struct collective collectives[2];

	collective_prepare(&collectives[0], 10, 0);
	collective_prepare(&collectives[1], 11, 0);
	collective_post(&collectives[0], world, 0, false);
	world_step(world);
	collective_post(&collectives[1], world, 1, false);
	world_step(world);
	world_step(world);
	ck_assert_int_eq(collectives[1].requests[1].status, FANIN_ERR_REFUSED);
	ck_assert_str_eq(
		fanin_engine_error(world->engines[1])->text,
		"the switch refused block 0 (11 elements i32 sum): type, operator or count differ from the "
		"block's");
	collective_free(&collectives[0], world);
	collective_free(&collectives[1], world);
	world_destroy(world);
}
END_TEST

START_TEST(refusals_of_late_duplicates_do_no_harm)
{
	const struct fanin_hdr late = { .block = 0, .epoch = EPOCH };
	struct world *world = world_create(1);

	allreduce_expect(world, 10, 0, false);
	refuse(&world->links[0], &late, FANIN_REASON_BLOCK_STALE);
	refuse(&world->links[0], &late, FANIN_REASON_EPOCH);
	allreduce_expect(world, 10, 1, false);
	ck_assert_uint_eq(fanin_engine_stats(world->engines[0])->stale, 2);
	world_destroy(world);
}
END_TEST

/* A result for block 0 that is valid except for the field that `_i` selects. */
START_TEST(results_that_are_not_ours_change_nothing)
{
	struct world *world = world_create(2);
	struct collective collective;
	struct slot slot = { .op = FANIN_WIRE_SUM, .count = 10 };
	struct fanin_headers headers;

	collective_prepare(&collective, 10, 0);
	collective_post(&collective, world, 0, false);
	world_step(world);
	result_make(world, &slot, &headers);
	headers.fanin.job += _i == 0;
	headers.fanin.epoch += _i == 1;
	headers.fanin.key ^= _i == 2;
	headers.fanin.contributions -= _i == 3;
	headers.fanin.block += _i == 4;
	if (_i == 6)
		headers.fanin.type = FANIN_TYPE_CONTRIBUTION;
	if (_i == 7)
		headers.fanin.key = UP_KEY;
	if (_i == 8)
		headers.eth.src[5]++;
	if (_i == 9)
		headers.ip.src_be++;
	headers.ip.checksum_be = 0;
	headers.ip.checksum_be = fanin_ip_checksum(&headers.ip);
	headers.ip.ttl += _i == 5;
	link_deliver(&world->links[0], &headers, slot.acc, 40);
	world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_uint_eq(fanin_engine_stats(world->engines[0])->invalid, 1);
	collective_post(&collective, world, 1, false);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(repeated_results_are_counted_as_duplicates)
{
	struct world *world = world_create(1);

	world->duplication = 1;
	allreduce_expect(world, 10 * ELEMENTS, 0, false);
	world_step(world);
	ck_assert_uint_ge(fanin_engine_stats(world->engines[0])->duplicates, 10);
	ck_assert_uint_eq(fanin_engine_stats(world->engines[0])->blocks, 10);
	world_destroy(world);
}
END_TEST

START_TEST(without_a_clock_of_its_own_an_engine_has_the_monotonic_one)
{
	struct world *world = world_create(1);
	struct fanin_request request = { .dtype = FANIN_WIRE_I32, .op = FANIN_WIRE_SUM };
	const struct fanin_protocol_config config = {
		.timeout_ns = 50 * 1000000ull,
		.size = 2,
		.window = WINDOW,
		.payload_bytes = PAYLOAD,
		.transport = &world->links[0].memory.transport,
	};
	struct fanin_endpoint *engine;
	struct fanin_error error;
	const uint64_t started_ns = fanin_now_ns(NULL);

	world->silent = true;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config, &engine, &error),
			 FANIN_OK);
	ck_assert_int_eq(fanin_engine_post(engine, &request, 0), FANIN_OK);
	while (request.status == FANIN_IN_PROGRESS)
		fanin_engine_poll(engine);
	ck_assert_int_eq(request.status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_ge(fanin_now_ns(NULL) - started_ns, config.timeout_ns);
	fanin_engine_close(engine);
	world_destroy(world);
}
END_TEST

Suite *
suite_engine(void)
{
	Suite *suite = suite_create("engine");
	TCase *exact = tcase_create("exact");
	TCase *sending = tcase_create("sending");
	TCase *errors = tcase_create("errors");

	tcase_add_loop_test(exact, every_rank_gets_the_sum_of_all, 0, N_SIZES);
	tcase_add_loop_test(exact, results_are_exact_under_loss_duplication_and_reordering, 0,
			    10 * N_SIZES);
	tcase_add_test(exact, send_and_receive_buffer_may_be_the_same);
	tcase_add_test(exact, block_numbers_wrap_around);
	tcase_add_test(exact, several_requests_may_be_outstanding);
	tcase_add_test(exact, a_host_may_have_fewer_lanes_than_the_switch);
	tcase_add_test(exact, an_empty_allreduce_waits_for_every_rank);
	suite_add_tcase(suite, exact);

	tcase_set_timeout(exact, 300);
	tcase_set_timeout(sending, 300);
	tcase_set_timeout(errors, 300);
	tcase_add_test(sending, ranks_begin_at_their_share_of_an_eighth_of_the_window);
	tcase_add_test(sending, no_more_than_a_window_is_in_flight);
	tcase_add_test(sending, only_lost_contributions_are_sent_again);
	tcase_add_test(sending, a_whole_lost_window_is_recovered);
	tcase_add_test(sending, a_slow_peer_costs_queries_and_no_payload);
	tcase_add_loop_test(sending, hosts_with_different_windows_never_wait_for_each_other, 0,
			    4 * N_SIZES);
	tcase_add_test(sending, a_host_keeps_to_its_window);
	tcase_add_test(sending, results_in_the_ring_are_read_before_anything_is_sent_again);
	tcase_add_test(sending, results_that_are_late_bring_queries_and_no_payload);
	tcase_add_test(sending, timeouts_do_not_grow_with_the_peers_timeouts);
	tcase_add_test(sending, a_result_that_is_lost_is_asked_for_soon_whatever_others_were_told);
	tcase_add_test(sending, repeated_losses_do_not_back_off_while_others_pass);
	tcase_add_loop_test(sending, random_loss_is_repaired_as_fast_as_without_back_off, 0, 2);
	tcase_add_loop_test(sending,
			    contributions_that_are_always_lost_are_sent_less_and_less_often, 0, 8);
	suite_add_tcase(suite, sending);

	tcase_add_loop_test(errors, a_timeout_names_the_missing_rank, 0, 2);
	tcase_add_loop_test(errors, a_timeout_says_of_late_ranks_only_that_they_are_missing, 0, 2);
	tcase_add_test(errors, late_ranks_are_waited_for);
	tcase_add_test(errors, answers_from_far_away_are_waited_for_during_long_waits);
	tcase_add_test(errors, a_late_rank_that_goes_is_named_in_time);
	tcase_add_loop_test(errors, a_rank_found_gone_late_is_named_within_the_timeout, 0, 32);
	tcase_add_loop_test(errors, a_gone_rank_is_named_in_time_after_long_round_trips, 0, 100);
	tcase_add_test(errors, a_switch_that_goes_while_somebody_is_late_is_named_in_time);
	tcase_add_test(errors, results_that_are_lost_after_a_long_wait_are_asked_for);
	tcase_add_test(errors, a_loss_after_a_long_wait_is_asked_for_soon);
	tcase_add_test(errors, contributions_that_never_arrive_cost_few_queries);
	tcase_add_test(errors, a_run_that_is_lost_after_a_long_wait_has_its_time);
	tcase_add_test(errors, a_link_that_is_away_for_a_moment_ends_no_long_wait);
	tcase_add_loop_test(errors, waits_for_late_ranks_survive_losses, 0, 5);
	tcase_add_test(errors, losses_are_repaired_however_seldom_the_caller_looks);
	tcase_add_loop_test(errors, a_caller_that_looks_seldom_learns_in_so_many_looks, 0, 9);
	tcase_add_loop_test(errors, a_caller_that_looks_seldom_waits_for_late_ranks, 0, 2);
	tcase_add_test(errors, a_limit_to_waiting_holds);
	tcase_add_test(errors, contributions_that_never_arrive_are_told_apart_from_a_silent_switch);
	tcase_add_test(errors, a_rank_whose_packets_never_arrive_is_not_told_that_it_is_late);
	tcase_add_test(errors, a_timeout_tells_that_the_switch_is_silent);
	tcase_add_test(errors, a_timeout_tells_that_nothing_could_be_sent);
	tcase_add_test(errors, a_timeout_tells_why_sending_fails);
	tcase_add_test(errors, an_error_of_sending_that_is_over_is_not_told);
	tcase_add_test(errors, a_failed_engine_takes_no_more_requests);
	tcase_add_loop_test(errors, a_failed_engine_waits_for_nothing, 0, 2);
	tcase_add_test(errors, protocols_bound_how_long_the_caller_sleeps);
	tcase_add_test(errors, the_callers_absence_is_no_timeout);
	tcase_add_test(errors, ranks_that_disagree_are_told_so);
	tcase_add_test(errors, refusals_of_late_duplicates_do_no_harm);
	tcase_add_loop_test(errors, results_that_are_not_ours_change_nothing, 0, 10);
	tcase_add_test(errors, repeated_results_are_counted_as_duplicates);
	tcase_add_test(errors, without_a_clock_of_its_own_an_engine_has_the_monotonic_one);
	suite_add_tcase(suite, errors);
	return suite;
}
