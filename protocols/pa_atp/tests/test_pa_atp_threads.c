/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP aggregators that several workers share, each worker on its own thread. With fewer slots
 * than the window, duplicates, retransmissions, questions, flushes and expiring timers, every sum
 * is exact, every gradient is acknowledged, and every mbuf returns. Run under ThreadSanitizer, too.
 */
#include <stdlib.h>

#include "protocols/pa_atp/switch/pa_atp.h"
#include "tests/unit/suites.h"
#include "tests/unit/thread_world.h"

static struct pa_atp_common common;

/* Under the lock. */
static void
server_takes(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const uint64_t members = hdr->type == FANIN_TYPE_CONTRIBUTION ? ALL : hdr->members;
	struct thread_part *part = thread_world_part(headers, members, ALL);

	if (hdr->contributions != __builtin_popcountll(members))
		thread_world.wrong = "a part of another number of ranks";
	if (part == NULL)
		return;
	part->members |= members;
	if (part->members == ALL)
		thread_world_publish(hdr->block);
}

static unsigned int
leaves(struct thread_worker *worker, const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       const struct fanin_headers *);
	const bool is_up = emission->kind == FANIN_EMIT_PARENT;

	if (is_up && headers->fanin.type != FANIN_TYPE_QUERY) {
		pthread_mutex_lock(&thread_world.lock);
		server_takes(headers);
		pthread_mutex_unlock(&thread_world.lock);
	} else if (headers->fanin.type == FANIN_TYPE_RESULT) {
		thread_world_done(headers->fanin.block, ALL);
	} else if (headers->fanin.type == FANIN_TYPE_GACK) {
		worker->gacks++;
	}
	return (unsigned int)__builtin_popcountll(emission->children) + is_up;
}

static void
send_gradient(struct thread_worker *worker, unsigned int rank, uint32_t number, uint16_t flags)
{
	struct rte_mbuf *mbuf = thread_world_vector(FANIN_TYPE_CONTRIBUTION, rank, number);
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;

	hdr->flags = flags;
	hdr->progress = FIRST + RTE_MIN(worker->oldest, number);
	thread_world_call(worker, mbuf);
}

/* The server has a result for its children. */
static void
pass_result(struct thread_worker *worker, uint32_t block)
{
	thread_world_call(worker, thread_world_vector(FANIN_TYPE_RESULT, 0, block - FIRST));
}

/* Somebody asks for the oldest block now and then: its host, or the server. */
static void
ask(struct thread_worker *worker)
{
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;
	bool is_query;

	if (!random_chance(&worker->random, 0.2))
		return;
	is_query = random_chance(&worker->random, 0.5);
	mbuf = thread_world_make(is_query ? FANIN_TYPE_QUERY : FANIN_TYPE_FLUSH,
				 FIRST + worker->oldest, 0);
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->rank = is_query ? (uint16_t)(worker->index * 2) : 0;
	hdr->flags = is_query ? FANIN_FLAG_RETRANSMIT : 0;
	hdr->number = is_query ? 1 : 0;
	thread_world_call(worker, mbuf);
}

static bool
is_sound(const struct fanin_peek *peek)
{
	struct fanin_rank_progress progress;

	return peek->sent != (peek->missing != 0) &&
	       (!thread_world.handler->rank_progress(&thread_world.job, thread_world.state, EPOCH,
						     &progress) ||
		progress.slots_used <= thread_world.job.slots.mask + 1);
}

static void
job_open(void)
{
	common = (struct pa_atp_common){ 0 };
	thread_world.job.has_parent = true;
	thread_world.job.parent_is_server = true;
	thread_world.job.slots.common = &common;
	thread_world.job.parameters[FANIN_PA_ATP_ETA] = 50;
}

static void
run_begin(void)
{
	struct pa_atp_state *state = thread_world.state;

	pa_atp_begin_run(&thread_world.job, state, FIRST);
	state->epoch = EPOCH;
}

START_TEST(workers_that_share_aggregators_make_exact_sums)
{
	static const struct thread_rules rules = {
		.handler = "pa-atp",
		.slot_size = sizeof(struct pa_atp_slot),
		.epoch = EPOCH,
		.timers_idle = TIMERS / 2,
		.sends_again = true,
		.open = job_open,
		.begin = run_begin,
		.send = send_gradient,
		.pass_result = pass_result,
		.leaves = leaves,
		.wait = ask,
		.is_sound = is_sound,
	};
	const struct pa_atp_state *state;
	uint64_t gradients, results = 0;

	thread_world_run(&rules, slots_of_variant[_i]);
	state = thread_world.state;
	for (unsigned int w = 0; w < WORKERS; w++) {
		const struct thread_worker *worker = &thread_world.workers[w];

		ck_assert_uint_eq(worker->stats.own[PA_ATP_GACKS], worker->gacks);
		results += worker->stats.results;
	}
	gradients = thread_world_counter(PA_ATP_GRADIENTS);
	ck_assert_uint_ge(gradients, (uint64_t)RANKS * BLOCKS);
	ck_assert_uint_eq(thread_world_counter(PA_ATP_GACKS), gradients);
	ck_assert_uint_eq(results, BLOCKS);
	ck_assert_uint_gt(thread_world_counter(PA_ATP_FLUSHES), 0);
	/*
	 * With as many slots as a window has places a block never meets another one of its job that
	 * is not finished.
	 */
	ck_assert_int_eq(thread_world_counter(PA_ATP_OVERFLOWS) != 0,
			 slots_of_variant[_i] < WINDOW);
	/* Every rank has sent all blocks, and the deltas have met none twice. */
	ck_assert_uint_eq(state->sum, RANKS * ((uint64_t)FIRST + BLOCKS));
	thread_world_close();
	thread_world.handler->state_release(&thread_world.job, thread_world.state);
	ck_assert_uint_eq(common.used, 0);
	ck_assert_uint_eq(common.overflowed, 0);
	free(thread_world.state);
}
END_TEST

Suite *
suite_pa_atp_threads(void)
{
	Suite *suite = suite_create("pa_atp_threads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, workers_that_share_aggregators_make_exact_sums, 0,
			    RTE_DIM(slots_of_variant));
	suite_add_tcase(suite, tcase);
	return suite;
}
