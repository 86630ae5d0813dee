/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs can't take each other's memory: whatever the hosts of a job do, it holds at most its own
 * share of slots and packets, and another job is admitted and runs.
 */
#include <string.h>

#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

/* ring_switch.c has 64 slots, here for 2 jobs. */
#define SHARE 32
#define BLOCKS 200

static const char *const handlers[] = { "single", "multi", "tree" };
static const uint16_t sizes[] = { 2, 3, 8, 16 };

#define N_HANDLERS (int)(sizeof(handlers) / sizeof(handlers[0]))
#define N_SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

static struct ring_switch sw;
static uint8_t buffer[4096] __attribute__((aligned(8)));

static void
setup(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, RING_SWITCH_MAX_PORTS, 1, NULL);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

/* Returns the number of packets held by jobs; workers have some empty ones in stock. */
static unsigned int
packets_held(void)
{
	unsigned int held = rte_mempool_in_use_count(sw.pool);

	for (uint16_t i = 0; i < sw.pipeline->n_workers; i++)
		held -= sw.pipeline->workers[i]->handler_ctx.n_stock;
	return held;
}

/*
 * Makes a host fill every slot that exists, and try more; takes the answers. Returns the maximum of
 * packets held meanwhile.
 */
static unsigned int
flood(const struct job *job, uint16_t h, uint32_t epoch)
{
	unsigned int most = 0;

	for (uint32_t block = 0; block < 2 * SHARE; block++) {
		unsigned int held;

		host_contribute(&sw, job, h, epoch, block, false);
		while (ring_switch_take(&sw, h, buffer) != 0)
			;
		held = packets_held();
		if (held > most)
			most = held;
	}
	return most;
}

/*
 * Floods from every host but the last. In a tree the sums of hosts at even positions find no
 * partner: this holds the most packets.
 */
static unsigned int
flood_but_last(const struct job *job, uint32_t epoch)
{
	unsigned int most = 0;

	for (uint16_t first = 0; first < 2; first++) {
		for (uint16_t h = first; h < job->params.n_children - 1; h = (uint16_t)(h + 2)) {
			unsigned int held = flood(job, h, epoch);

			if (held > most)
				most = held;
		}
	}
	return most;
}

/* Runs a job whose hosts follow the protocol. */
static void
run_blocks(const struct job *job, uint16_t n, uint32_t epoch)
{
	for (uint32_t block = 0; block < BLOCKS; block++) {
		for (uint16_t h = 0; h < n; h++)
			host_contribute(&sw, job, h, epoch, block, false);
		for (uint16_t h = 0; h < n; h++)
			host_result_check(job, n, block, buffer, ring_switch_take(&sw, h, buffer));
	}
}

START_TEST(a_job_that_waits_for_a_dead_host_holds_no_more_than_its_share)
{
	const uint16_t n = sizes[_i % N_SIZES];
	struct job *waiting = ring_switch_job_of(&sw, handlers[_i / N_SIZES], n, 0);
	uint32_t epoch = host_join_all(&sw, waiting, n, 1);
	unsigned int most = flood_but_last(waiting, epoch);
	unsigned int held = packets_held();
	struct job *other;

	ck_assert_uint_le(most, SHARE);
	ck_assert_uint_gt(held, waiting->params.slots.mask);

	other = ring_switch_job(&sw, 2, 0);
	ck_assert_uint_eq(other->params.slots.mask + 1, SHARE);
	run_blocks(other, 2, host_join_all(&sw, other, 2, 100));
	ck_assert_uint_le(packets_held(), held + SHARE);

	/* The host is alive after all, and nothing was lost. */
	for (uint32_t block = 0; block <= waiting->params.slots.mask; block++) {
		host_contribute(&sw, waiting, n - 1u, epoch, block, false);
		for (uint16_t h = 0; h < n; h++)
			host_result_check(waiting, n, block, buffer,
					  ring_switch_take(&sw, h, buffer));
	}
}
END_TEST

START_TEST(a_job_whose_slots_hold_many_packets_gets_fewer_of_them)
{
	struct job_spec spec = { .key = 1, .handler = "tree", .slots = SHARE, .n_members = 16 };
	char error[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;

	for (uint16_t i = 0; i < spec.n_members; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -ENOSPC);
	ck_assert_str_eq(code, "no_room");
	ck_assert_ptr_nonnull(strstr(error, "asked for 32 slots, 4 are available to each job"));
	ck_assert_ptr_nonnull(strstr(error, "a slot of \"tree\" for 16 members counts 8"));
	spec.slots = 0;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
	ck_assert_uint_eq(job->params.slots.mask + 1, 4);
}
END_TEST

START_TEST(a_job_without_room_for_two_slots_is_refused)
{
	struct job_spec spec = { .key = 1, .handler = "tree", .n_members = 64 };
	char error[PIPELINE_ERROR_LEN];
	const char *code;
	struct job *job;

	for (uint16_t i = 0; i < spec.n_members; i++)
		spec.members[i].ip_be = host_ip_be(i);
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), -ENOSPC);
	ck_assert_str_eq(code, "no_room");
	ck_assert_ptr_nonnull(strstr(error, "asked for 2 slots, 1 are available to each job"));
	spec.n_members = 32;
	ck_assert_int_eq(job_create(sw.pipeline, &spec, &job, &code, error), 0);
}
END_TEST

/* Returns the ranks that are gone, from the answer that host 0 has got. */
static struct fanin_ranks
gone_in_answer(const struct job *job)
{
	const struct fanin_headers *got = (const struct fanin_headers *)buffer;
	struct fanin_answer_ranks ranks;

	do
		ck_assert_uint_ne(ring_switch_take(&sw, 0, buffer), 0);
	while (got->fanin.type != FANIN_TYPE_ANSWER || got->fanin.job != job->params.id);
	fanin_answer_read_ranks((const uint8_t *)(got + 1) + sizeof(struct fanin_answer_body),
				job->params.n_ranks, &ranks);
	fanin_ranks_merge(&ranks.ended, &ranks.silent);
	return ranks.ended;
}

START_TEST(ranks_that_are_gone_from_one_job_are_not_from_another)
{
	struct job *dying = ring_switch_job(&sw, 2, 16), *living = ring_switch_job(&sw, 2, 16);
	const uint32_t dying_epoch = host_join_all(&sw, dying, 2, 1);
	const uint32_t living_epoch = host_join_all(&sw, living, 2, 3);
	const struct fanin_ranks second = fanin_ranks_one(1);
	struct fanin_ranks gone;

	dying->ended = second;
	host_contribute(&sw, dying, 0, dying_epoch, 0, false);
	host_contribute(&sw, living, 0, living_epoch, 0, false);
	host_query(&sw, dying, 0, dying_epoch, 0, 7, true);
	gone = gone_in_answer(dying);
	ck_assert(fanin_ranks_equal(&gone, &second));
	host_contribute(&sw, living, 0, living_epoch, 0, true);
	gone = gone_in_answer(living);
	ck_assert(fanin_ranks_is_empty(&gone));
}
END_TEST

Suite *
suite_isolation(void)
{
	Suite *suite = suite_create("isolation");
	TCase *memory = tcase_create("memory");

	tcase_add_checked_fixture(memory, setup, teardown);
	tcase_set_timeout(memory, 300);
	tcase_add_loop_test(memory, a_job_that_waits_for_a_dead_host_holds_no_more_than_its_share,
			    0, N_HANDLERS * N_SIZES);
	tcase_add_test(memory, a_job_whose_slots_hold_many_packets_gets_fewer_of_them);
	tcase_add_test(memory, a_job_without_room_for_two_slots_is_refused);
	tcase_add_test(memory, ranks_that_are_gone_from_one_job_are_not_from_another);
	suite_add_tcase(suite, memory);
	return suite;
}
