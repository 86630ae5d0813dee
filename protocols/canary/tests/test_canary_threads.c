/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary descriptors that several workers share, each worker on its own thread. With fewer slots
 * than the window, duplicates and expiring timers, every sum is exact, every rank's port is noted
 * or told, and every mbuf returns. Run under ThreadSanitizer, too.
 */
#include <stdlib.h>

#include "protocols/canary/switch/canary.h"
#include "tests/unit/suites.h"
#include "tests/unit/thread_world.h"

static unsigned int
leader_of(uint32_t block)
{
	return fanin_canary_leader(block, RANKS);
}

static uint64_t
others_of(uint32_t block)
{
	return ALL & ~(UINT64_C(1) << leader_of(block));
}

/* Under the lock. */
static void
publish_if_complete(uint32_t block)
{
	const struct thread_part *part = &thread_world.parts[block - FIRST];

	if (part->own && !part->published && part->members == others_of(block))
		thread_world_publish(block);
}

/* Under the lock. */
static void
leader_takes(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	struct thread_part *part = thread_world_part(headers, hdr->members, others_of(hdr->block));

	if (hdr->epoch != thread_world.rules->epoch)
		thread_world.wrong = "a part of another run";
	if (part == NULL)
		return;
	if (hdr->number != 0)
		part->told |= UINT64_C(1) << hdr->rank;
	else if ((hdr->flags & FANIN_FLAG_DIRECT) != 0)
		part->told |= hdr->members; /* each rank is at the port of its number */
	part->members |= hdr->members;
	publish_if_complete(hdr->block);
}

static unsigned int
leaves(struct thread_worker *worker, const struct fanin_emission *emission)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(emission->mbuf,
							       const struct fanin_headers *);

	(void)worker;
	if (emission->kind != FANIN_EMIT_ROUTE) {
		thread_world_done(headers->fanin.block, emission->ports);
		return (unsigned int)__builtin_popcountll(emission->ports);
	}
	pthread_mutex_lock(&thread_world.lock);
	leader_takes(headers);
	pthread_mutex_unlock(&thread_world.lock);
	return 1;
}

/* A block's leader keeps its data back. */
static void
send_data(struct thread_worker *worker, unsigned int rank, uint32_t number, uint16_t flags)
{
	struct rte_mbuf *mbuf;
	struct fanin_hdr *hdr;

	if (leader_of(FIRST + number) == rank) {
		pthread_mutex_lock(&thread_world.lock);
		thread_world.parts[number].own = true;
		publish_if_complete(FIRST + number);
		pthread_mutex_unlock(&thread_world.lock);
		return;
	}
	mbuf = thread_world_vector(FANIN_TYPE_REDUCE, rank, number);
	hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	hdr->flags = flags;
	hdr->members = UINT64_C(1) << rank;
	thread_world_call(worker, mbuf);
}

/*
 * A leader sends its result to the switch, which it reaches by this worker. It has it itself, and
 * so have those that it answers.
 */
static void
pass_result(struct thread_worker *worker, uint32_t block)
{
	const uint64_t told = thread_world.parts[block - FIRST].told;

	thread_world_done(block, told | UINT64_C(1) << leader_of(block));
	thread_world_call(worker,
			  thread_world_vector(FANIN_TYPE_RESULT, leader_of(block), block - FIRST));
}

static bool
is_sound(const struct fanin_peek *peek)
{
	const struct canary_state *state = thread_world.state;

	(void)peek;
	return __atomic_load_n(&state->used, __ATOMIC_RELAXED) <= thread_world.job.slots.mask + 1;
}

static void
job_open(void)
{
	struct fanin_job_params *job = &thread_world.job;

	for (unsigned int rank = 0; rank < RANKS; rank++) {
		job->ports |= UINT64_C(1) << rank;
		job->port_ranks[rank] = UINT64_C(1) << rank;
		job->ranks_here |= UINT64_C(1) << rank;
	}
	for (size_t i = 0; thread_world.handler->parameters[i].name != NULL; i++)
		job->parameters[i] = thread_world.handler->parameters[i].usual;
	/* As long as it takes: time goes by leaps. */
	job->parameters[FANIN_CANARY_HOLD] = 60000000;
}

START_TEST(workers_that_share_descriptors_make_exact_sums)
{
	static const struct thread_rules rules = {
		.handler = "canary",
		.slot_size = sizeof(struct canary_slot),
		.epoch = 12,
		.open = job_open,
		.send = send_data,
		.pass_result = pass_result,
		.leaves = leaves,
		.is_sound = is_sound,
	};

	thread_world_run(&rules, slots_of_variant[_i]);
	ck_assert_uint_gt(thread_world_counter(CANARY_MERGED), 0);
	ck_assert_uint_gt(thread_world_counter(CANARY_SUMS), 0);
	if (slots_of_variant[_i] < WINDOW)
		ck_assert_uint_gt(thread_world_counter(CANARY_COLLISIONS), 0);
	thread_world_close();
	ck_assert_uint_eq(((struct canary_state *)thread_world.state)->used, 0);
	free(thread_world.state);
}
END_TEST

Suite *
suite_canary_threads(void)
{
	Suite *suite = suite_create("canary_threads");
	TCase *tcase = tcase_create("threads");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, workers_that_share_descriptors_make_exact_sums, 0,
			    RTE_DIM(slots_of_variant));
	suite_add_tcase(suite, tcase);
	return suite;
}
