/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs that the switch loses at any moment: the ranks begin another one at the position of the
 * slowest rank, and all sums are as without a loss, including those of collectives that some ranks
 * had finished and whose memory they reuse.
 */
#include "tests/unit/engine_world.h"
#include "tests/unit/suites.h"

#define SMALL_WINDOW 8
#define COLLECTIVES 12

/*
 * Chooses another kind and another root for each one. In a reduce_scatter whose blocks have owners,
 * parts are at least as long as packets.
 */
static void
kind_choose(struct collective *collective, struct random *random, uint16_t n_ranks)
{
	static const enum fanin_collective kinds[] = { FANIN_COLLECTIVE_ALLREDUCE,
						       FANIN_COLLECTIVE_REDUCE,
						       FANIN_COLLECTIVE_REDUCE_SCATTER,
						       FANIN_COLLECTIVE_REDUCE_SCATTER };

	collective->kind = kinds[random_below(random, 4)];
	collective->root = collective->kind == FANIN_COLLECTIVE_REDUCE
				   ? (uint16_t)random_below(random, n_ranks)
				   : 0;
	if (collective->kind == FANIN_COLLECTIVE_REDUCE_SCATTER)
		collective->count = n_ranks * (uint32_t)random_below(random, 8 * ELEMENTS);
}

/*
 * Ranks post their collectives in order, each at its own pace; a finished one's memory is
 * overwritten at once.
 *
 * owners: not only allreduces, but also collectives whose results one rank keeps.
 */
static void
run_with_losses(struct world *world, uint16_t n_ranks, bool owners, bool in_place,
		unsigned int breaks)
{
	static struct collective collectives[COLLECTIVES];
	unsigned int posted[MAX_RANKS] = { 0 };
	unsigned int checked[MAX_RANKS] = { 0 };
	unsigned int left = n_ranks * COLLECTIVES;

	for (unsigned int c = 0; c < COLLECTIVES; c++) {
		collective_prepare(&collectives[c],
				   (uint32_t)random_below(&world->random, 30 * ELEMENTS), c * 1000);
		if (owners)
			kind_choose(&collectives[c], &world->random, n_ranks);
	}
	for (uint64_t step = 0; left > 0; step++) {
		ck_assert_uint_lt(step, 200000);
		for (uint16_t r = 0; r < n_ranks; r++) {
			struct collective *done = &collectives[checked[r]];

			if (posted[r] < COLLECTIVES && random_chance(&world->random, 0.1))
				collective_post(&collectives[posted[r]++], world, r, in_place);
			if (checked[r] == posted[r] ||
			    done->requests[r].status == FANIN_IN_PROGRESS)
				continue;
			ck_assert_msg(done->requests[r].status == FANIN_OK, "rank %u: %s", r,
				      fanin_engine_error(world->engines[r])->text);
			collective_check(done, r, n_ranks);
			memset(done->recv[r], 0x55, done->count * 4);
			memset(done->send[r], 0x55, done->count * 4);
			checked[r]++;
			left--;
		}
		if (breaks > 0 && random_chance(&world->random, 0.004)) {
			lose_run(world);
			breaks--;
		}
		world_step(world);
		resume_if_all_know(world);
	}
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_free(&collectives[c], world);
}

START_TEST(sums_are_exact_across_lost_runs)
{
	static const uint16_t sizes[] = { 1, 2, 3, 8 };
	uint16_t n_ranks = sizes[_i % 4];
	struct world *world;

	world_tagged = _i >= 60;
	world = world_create_of(n_ranks, SMALL_WINDOW, _i % 3 == 0 ? UINT32_MAX - 20 : 0, true);
	world_tagged = false;

	world->random = random_seed((uint64_t)_i + 1);
	if (_i % 2 == 0) {
		world->loss = 0.05;
		world->duplication = 0.05;
		world->reordering = 0.1;
	}
	run_with_losses(world, n_ranks, false, _i % 5 < 2, 6);
	world_destroy(world);
}
END_TEST

START_TEST(parts_are_exact_across_lost_runs_though_others_have_no_result_to_tell)
{
	static const uint16_t sizes[] = { 2, 3, 8, 16 };
	const uint16_t n_ranks = sizes[_i % 4];
	uint32_t told = 0;

	for (uint64_t seed = 0; seed < 6; seed++) {
		struct world *world;

		world_tagged = _i >= 32;
		world = world_create_of(n_ranks, SMALL_WINDOW, _i % 3 == 0 ? UINT32_MAX - 20 : 0,
					true);
		world_tagged = false;
		world->random = random_seed(1000 + 6 * (uint64_t)_i + seed);
		world->shared_port = _i / 4 % 2 != 0;
		if (_i / 8 % 2 == 0) {
			world->loss = 0.05;
			world->duplication = 0.05;
			world->reordering = 0.1;
		}
		run_with_losses(world, n_ranks, true, _i / 16 % 2 != 0, 12);
		told += world->told_by_owners;
		world_destroy(world);
	}
	/* Without losses on links no rank is ahead of others when a run is lost. */
	ck_assert(_i / 8 % 2 != 0 || told > 0);
}
END_TEST

START_TEST(refusals_of_a_run_that_is_there_change_nothing)
{
	struct world *world = world_create_of(2, SMALL_WINDOW, 0, true);

	allreduce_expect(world, 100, 1, true);
	notify(world, 0);
	world_step(world);
	ck_assert(fanin_engine_run_lost(world->engines[0]));
	ck_assert_int_eq(fanin_engine_resume(world->engines[0], world->epoch, world->instance, 0),
			 FANIN_OK);
	ck_assert_uint_eq(fanin_engine_stats(world->engines[0])->resumed, 0);
	allreduce_expect(world, 100, 7, false);
	world_destroy(world);
}
END_TEST

/* The place of the frames of another switch. */
static uint32_t sent_to_be;

static void
note_destination(struct memory_link *link, const void *frame, uint32_t len)
{
	const struct fanin_headers *headers = frame;

	(void)link;
	ck_assert_uint_ge(len, sizeof(*headers));
	sent_to_be = headers->ip.dst_be;
}

static size_t
take_nothing(struct memory_link *link, void *frame)
{
	(void)link;
	(void)frame;
	return 0;
}

START_TEST(another_switch_has_runs_of_its_own_whatever_their_numbers)
{
	static struct memory_link elsewhere;
	struct world *world = world_create_of(1, SMALL_WINDOW, 0, true);
	struct fanin_endpoint *engine = world->engines[0];
	const struct fanin_flow flow = { .dst_ip_be = 0x01020304, .dst_port = 4711 };
	const struct fanin_flow back = { .dst_mac = SWITCH_MAC, .dst_ip_be = SWITCH_IP_BE };
	struct collective collective;

	allreduce_expect(world, 100, 1, true);
	memory_link_init(&elsewhere, note_destination, take_nothing);
	fanin_engine_move(engine, &elsewhere.transport);
	ck_assert(fanin_engine_run_lost(engine));
	collective_prepare(&collective, 3 * ELEMENTS, 5);
	collective_post(&collective, world, 0, false);
	ck_assert_int_ge(fanin_engine_poll(engine), 0);
	ck_assert_uint_eq(sent_to_be, 0);
	fanin_engine_redirect(engine, &flow);
	ck_assert_int_eq(fanin_engine_resume(engine, world->epoch, world->instance,
					     fanin_engine_progress(engine)),
			 FANIN_OK);
	ck_assert_uint_eq(fanin_engine_stats(engine)->resumed, 1);
	ck_assert_int_ge(fanin_engine_poll(engine), 0);
	ck_assert_uint_eq(sent_to_be, 0x01020304);
	/*
	 * It moves back; the switch has forgotten everything, and uses the same number once more.
	 */
	lose_run(world);
	world->epoch--;
	fanin_engine_move(engine, &world->links[0].memory.transport);
	fanin_engine_redirect(engine, &back);
	ck_assert_int_eq(fanin_engine_resume(engine, world->epoch, world->instance,
					     fanin_engine_progress(engine)),
			 FANIN_OK);
	ck_assert_uint_eq(fanin_engine_stats(engine)->resumed, 2);
	for (unsigned int i = 0; i < 1000 && collective.requests[0].status == FANIN_IN_PROGRESS;
	     i++)
		world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_OK);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* Begins to leave, once, if this rank has the result of its last collective. */
static void
leave_when_done(struct world *world, uint16_t rank, const struct collective *last,
		struct collective *closing)
{
	if (last->requests[rank].status == FANIN_IN_PROGRESS || closing->send[rank] != NULL)
		return;
	ck_assert_int_eq(last->requests[rank].status, FANIN_OK);
	ck_assert(fanin_engine_peers_may_need_results(world->engines[rank]));
	collective_post(closing, world, rank, false);
	ck_assert(!fanin_engine_peers_may_need_results(world->engines[rank]));
}

/*
 * Runs one collective, after which all ranks leave by a block without elements, while runs are
 * lost. Ranks that have left don't come back, so after that no run is resumed: the remaining ranks
 * must have all results. Returns the number of runs that were lost before.
 */
static unsigned int
run_and_leave(struct world *world, uint16_t n_ranks, enum fanin_collective kind)
{
	struct collective last, closing;
	unsigned int losses = 0;
	uint32_t checked = 0;
	uint16_t gone = 0;

	collective_prepare(&last,
			   (kind == FANIN_COLLECTIVE_ALLREDUCE ? 1u : n_ranks) * 3 * ELEMENTS, 7);
	last.kind = kind;
	collective_prepare(&closing, 0, 0);
	collective_post_all(&last, world, false);
	for (uint64_t step = 0; gone == 0; step++) {
		ck_assert_uint_lt(step, 200000);
		if (losses < 5 && random_chance(&world->random, world->loss > 0 ? 0.03 : 0.3)) {
			lose_run(world);
			losses++;
		}
		world_step(world);
		for (uint16_t r = 0; r < n_ranks; r++) {
			leave_when_done(world, r, &last, &closing);
			/* The caller may reuse its memory. */
			if (closing.send[r] != NULL && last.kind != FANIN_COLLECTIVE_ALLREDUCE &&
			    (checked >> r & 1) == 0) {
				collective_check(&last, r, n_ranks);
				memset(last.send[r], 0x55, last.count * 4);
				checked |= 1u << r;
			}
			if (closing.send[r] == NULL ||
			    closing.requests[r].status == FANIN_IN_PROGRESS)
				continue;
			ck_assert_msg(closing.requests[r].status == FANIN_OK, "rank %u: %s", r,
				      fanin_engine_error(world->engines[r])->text);
			gone++;
		}
		resume_if_all_know(world);
	}
	for (uint16_t r = 0; r < n_ranks; r++)
		ck_assert_int_eq(last.requests[r].status, FANIN_OK);
	collective_free(&last, world);
	collective_free(&closing, world);
	return losses;
}

START_TEST(nobody_leaves_while_another_lacks_a_result)
{
	const uint16_t n_ranks = _i % 2 == 0 ? 2 : 5;
	const enum fanin_collective kind = _i < 8 ? FANIN_COLLECTIVE_ALLREDUCE
						  : FANIN_COLLECTIVE_REDUCE_SCATTER;
	unsigned int losses = 0;

	for (uint64_t seed = 0; seed < 40; seed++) {
		struct world *world;

		world_tagged = _i % 8 >= 4;
		world = world_create_of(n_ranks, SMALL_WINDOW, 0, true);
		world_tagged = false;
		world->random = random_seed(seed + 100 * (uint64_t)_i);
		world->loss = _i % 4 < 2 ? 0.1 : 0;
		ck_assert(!fanin_engine_peers_may_need_results(world->engines[0]));
		losses += run_and_leave(world, n_ranks, kind);
		world_destroy(world);
	}
	ck_assert_uint_gt(losses, 10);
}
END_TEST

START_TEST(doubted_runs_are_joined_again)
{
	struct world *world = world_create_of(2, SMALL_WINDOW, 0, true);
	struct world *other = world_create_of(2, SMALL_WINDOW, 0, false);

	allreduce_expect(world, 100, 1, true);
	fanin_engine_suspect_run(world->engines[0]);
	ck_assert(fanin_engine_run_lost(world->engines[0]));
	ck_assert_int_eq(fanin_engine_resume(world->engines[0], world->epoch, world->instance, 0),
			 FANIN_OK);
	ck_assert_uint_eq(fanin_engine_stats(world->engines[0])->resumed, 0);
	allreduce_expect(world, 100, 7, false);
	/* If runs can't be resumed, there is nothing to join, and no rank needs results. */
	fanin_engine_suspect_run(other->engines[0]);
	ck_assert(!fanin_engine_run_lost(other->engines[0]));
	allreduce_expect(other, 100, 1, true);
	ck_assert(!fanin_engine_peers_may_need_results(other->engines[0]));
	world_destroy(world);
	world_destroy(other);
}
END_TEST

START_TEST(rank_that_began_anew_is_an_error_of_the_others)
{
	struct world *world = world_create_of(2, SMALL_WINDOW, 0, true);

	for (uint32_t i = 0; i < 3; i++)
		allreduce_expect(world, 20 * ELEMENTS, i, true);
	lose_run(world);
	ck_assert_int_eq(fanin_engine_resume(world->engines[0], world->epoch, world->instance, 0),
			 FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(fanin_engine_error(world->engines[0])->text, "a rank was started anew"));
	world_destroy(world);
}
END_TEST

START_TEST(run_that_nobody_takes_up_again_is_given_up_in_time)
{
	struct world *world = world_create_of(2, SMALL_WINDOW, 0, true);
	struct collective collective;

	collective_prepare(&collective, 1000, 1);
	world->silent = true;
	collective_post_all(&collective, world, false);
	lose_run(world);
	notify(world, 0);
	for (uint64_t t = 0; t <= TIMEOUT_NS + STEP_NS; t += STEP_NS)
		world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(
		strstr(fanin_engine_error(world->engines[0])->text, "the switch has lost the run"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* Makes a world of two ranks whose run is lost, in the middle of a collective. */
static struct world *
world_that_lost(struct collective *collective)
{
	struct world *world = world_create_of(2, SMALL_WINDOW, 0, true);

	allreduce_expect(world, 100, 1, true);
	collective_prepare(collective, 1000, 1);
	world->silent = true;
	collective_post(collective, world, 0, false);
	lose_run(world);
	fanin_engine_suspect_run(world->engines[0]);
	return world;
}

/* For this time the joined switch gives the answer `rejoin` twenty times a second. */
static void
pass_rejoining(struct world *world, const struct fanin_rejoin *rejoin, double seconds)
{
	for (uint64_t end_ns = world->now_ns + (uint64_t)(seconds * 1e9); world->now_ns < end_ns;) {
		struct fanin_rejoin now = *rejoin;

		world->now_ns += 50 * 1000000ull;
		now.told_ns = world->now_ns;
		fanin_engine_note_rejoin(world->engines[0], &now);
		fanin_engine_poll(world->engines[0]);
	}
}

START_TEST(ranks_late_for_a_new_run_are_waited_for)
{
	const struct fanin_rejoin late = { .missing = { { 1 << 1 } }, .late = { { 1 << 1 } } };
	struct collective collective;
	struct world *world = world_that_lost(&collective);

	pass_rejoining(world, &late, 60);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_uint_eq(world_missing(world->engines[0]), 1 << 1);
	ck_assert_uint_eq(world_late(world->engines[0]), 1 << 1);
	/* The late rank comes. */
	world->silent = false;
	collective_post(&collective, world, 1, false);
	for (uint16_t i = 0; i < 2; i++)
		fanin_engine_suspect_run(world->engines[i]);
	resume_if_all_know(world);
	ck_assert_uint_eq(world_late(world->engines[0]), 0);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/* _i: gone from the start, or after a long wait. */
START_TEST(a_rank_gone_before_a_new_run_is_named_in_time)
{
	const struct fanin_rejoin late = { .missing = { { 1 << 1 } }, .late = { { 1 << 1 } } };
	const struct fanin_rejoin gone = { .missing = { { 1 << 1 } }, .gone = { { 1 << 1 } } };
	struct collective collective;
	struct world *world = world_that_lost(&collective);

	if (_i == 1)
		pass_rejoining(world, &late, 33.3);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	pass_rejoining(world, &gone, _i == 1 ? 0.3 : 5.1);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_eq(world_missing(world->engines[0]), 1 << 1);
	ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
				     "a new one waits for rank 1 (of 2), which has ended"));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * _i: it is unknown whether the rank is late; only one of two is known to be late; the switch does
 * not answer any more; the limit is over.
 */
START_TEST(a_new_run_is_not_waited_for_without_a_reason)
{
	static const struct fanin_rejoin rejoins[] = {
		{ .missing = { { 1 << 1 } } },
		{ .missing = { { 3 << 1 } }, .late = { { 1 << 1 } } },
		{ .missing = { { 1 << 1 } }, .late = { { 1 << 1 } } },
		{ .missing = { { 1 << 1 } }, .late = { { 1 << 1 } } },
	};
	struct collective collective;
	struct world *world;

	world_wait_limit_ns = _i == 3 ? 8000000000 : 0;
	world = world_that_lost(&collective);
	world_wait_limit_ns = 0;
	pass_rejoining(world, &rejoins[_i], _i == 3 ? 7.7 : 4.7);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	for (int i = 0; _i == 2 && i < 51; i++) {
		ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
		world->now_ns += 99 * 1000000ull;
		fanin_engine_poll(world->engines[0]);
	}
	pass_rejoining(world,
		       &(struct fanin_rejoin){ .missing = { { 1 << 1 } },
					       .late = { { _i == 3 ? 1 << 1 : 0 } } },
		       0.5);
	ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_TIMEOUT);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

Suite *
suite_recovery(void)
{
	Suite *suite = suite_create("recovery");
	TCase *tcase = tcase_create("lost runs");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, sums_are_exact_across_lost_runs, 0, 120);
	tcase_add_loop_test(tcase,
			    parts_are_exact_across_lost_runs_though_others_have_no_result_to_tell,
			    0, 48);
	tcase_add_test(tcase, refusals_of_a_run_that_is_there_change_nothing);
	tcase_add_test(tcase, another_switch_has_runs_of_its_own_whatever_their_numbers);
	tcase_add_loop_test(tcase, nobody_leaves_while_another_lacks_a_result, 0, 16);
	tcase_add_test(tcase, doubted_runs_are_joined_again);
	tcase_add_test(tcase, rank_that_began_anew_is_an_error_of_the_others);
	tcase_add_test(tcase, run_that_nobody_takes_up_again_is_given_up_in_time);
	tcase_add_test(tcase, ranks_late_for_a_new_run_are_waited_for);
	tcase_add_loop_test(tcase, a_rank_gone_before_a_new_run_is_named_in_time, 0, 2);
	tcase_add_loop_test(tcase, a_new_run_is_not_waited_for_without_a_reason, 0, 4);
	suite_add_tcase(suite, tcase);
	return suite;
}
