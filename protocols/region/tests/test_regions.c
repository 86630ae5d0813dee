/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast regions in one process and in virtual time: real engines around real switches. After a
 * fence all buffers are alike, whatever was lost, doubled or reordered on any link; nothing that
 * belongs to an earlier fence changes them later.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/region/host/region_internal.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"

#define GUARD 64u
#define GUARD_BYTE 0xa5
#define BASE UINT64_C(0x7f0000001000)
#define MIB (1u << 20)

static uint8_t *memories[WORLD_RANKS]; /* with a guard before and behind each */
static uint8_t *expected;              /* the region after the next fence */

/* ------------------------------------------------------------------ world */

static uint8_t *
memory_of(uint16_t rank)
{
	return memories[rank] + GUARD;
}

static struct fanin_request *
fence_of(uint16_t rank)
{
	return &world.members[rank].requests[0];
}

static const struct fanin_region_stats *
stats_of(uint16_t rank)
{
	return fanin_region_stats(world_engine(rank));
}

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;
	struct fanin_error error = { 0 };

	opened.handler = "region";
	opened.base = BASE;
	opened.window = trial->window != 0 ? trial->window : 16;
	world_open(&opened);
	expected = calloc(1, trial->bytes);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++) {
		memories[rank] = malloc(trial->bytes + 2u * GUARD);
		memset(memories[rank], GUARD_BYTE, trial->bytes + 2u * GUARD);
		memset(memory_of(rank), 0, trial->bytes);
		ck_assert_int_eq(world.protocol->region->attach(world_engine(rank), memory_of(rank),
								BASE, trial->bytes, &error),
				 FANIN_OK);
	}
}

static void
close_world(void)
{
	const uint16_t n_ranks = world.trial.n_ranks;

	world_close();
	for (uint16_t rank = 0; rank < n_ranks; rank++)
		free(memories[rank]);
	free(expected);
}

/* ------------------------------------------------------------------ writes and fences */

/* A rank writes random bytes, which all are to have after the next fence. */
static void
store(uint16_t rank, uint64_t offset, uint64_t bytes)
{
	uint8_t *data = malloc(bytes + 1);

	for (uint64_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)random_u32(&world.random);
	ck_assert_int_eq(world.protocol->region->store(world_engine(rank), offset, data, bytes),
			 FANIN_OK);
	memcpy(expected + offset, data, bytes);
	/* The library has copied it. */
	memset(data, 0xee, bytes + 1);
	free(data);
	world_wake(rank);
}

static void
fence(uint16_t rank)
{
	*fence_of(rank) = (struct fanin_request){ 0 };
	ck_assert_int_eq(world.protocol->region->fence(world_engine(rank), fence_of(rank)),
			 FANIN_OK);
	world_wake(rank);
}

/* All ranks but one, if there is that one, come to a fence. */
static void
fences_but(uint16_t late)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (rank != late)
			fence(rank);
	}
}

static bool
all_fenced(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (fence_of(rank)->status == FANIN_IN_PROGRESS && !world.members[rank].is_gone)
			return false;
	}
	return true;
}

/* Until all have fenced: then all buffers are as expected. */
static void
run_fences(void)
{
	const uint64_t bytes = world.trial.bytes;

	world_wait(600 * SECOND, all_fenced, NULL);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const uint8_t *memory = memory_of(rank);

		ck_assert_msg(fence_of(rank)->status == FANIN_OK, "seed %lu, rank %u: %s",
			      (unsigned long)world.trial.seed, rank, world_error(rank));
		for (uint64_t i = 0; i < bytes; i++)
			ck_assert_msg(memory[i] == expected[i],
				      "seed %lu, rank %u: byte %lu is %u, expected %u",
				      (unsigned long)world.trial.seed, rank, (unsigned long)i,
				      memory[i], expected[i]);
		for (uint32_t i = 0; i < GUARD; i++) {
			ck_assert_uint_eq(memories[rank][i], GUARD_BYTE);
			ck_assert_uint_eq(memory[bytes + i], GUARD_BYTE);
		}
	}
}

static struct fanin_region_stats
totals(void)
{
	struct fanin_region_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world_add(&sum, stats_of(rank), sizeof(sum));
	return sum;
}

static void
fence_all(void)
{
	fences_but(UINT16_MAX);
	run_fences();
}

/* ------------------------------------------------------------------ exact */

static const uint16_t sizes_of_jobs[] = { 2, 3, 8, 16 };

static struct trial
trial_of(int i, double faults)
{
	return (struct trial){
		.seed = (uint64_t)i + 1,
		.n_ranks = sizes_of_jobs[i % 4],
		.n_leaves = sizes_of_jobs[i % 4] == 3 || i / 4 % 2 == 0 ? 1 : 2,
		.bytes = 2 * MIB + 17,
		.faults = faults,
	};
}

/*
 * Lengths around a packet's, at places that are aligned to nothing, by all ranks at once; one rank
 * writes a long one as well.
 */
static void
store_sizes(uint16_t longest)
{
	const uint64_t payload = world.payload_bytes;
	const uint64_t lengths[] = { 0, 1, payload - 1, payload, payload + 1, 3 * payload + 7 };
	uint64_t offset = 1;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (size_t i = 0; i < RTE_DIM(lengths); i++) {
			store(rank, offset, lengths[i]);
			offset += lengths[i] + i % 2;
		}
	}
	store(longest, world.trial.bytes - (MIB + 3), MIB + 3);
	/* Up to the end, at which nothing is to be written. */
	store(0, world.trial.bytes, 0);
}

static void
run_sizes(void)
{
	const uint16_t last = world.trial.n_ranks - 1;

	store_sizes(0);
	fence_all();
	/* The same places, once more, and then nothing. */
	store_sizes(last);
	fence_all();
	fence_all();
	for (uint16_t rank = 0; rank <= last; rank++)
		store(rank, rank * 3u, 3);
	fence_all();
}

START_TEST(all_sizes_are_exact_and_nothing_is_fetched_without_loss)
{
	const struct trial trial = trial_of(_i, 0);
	struct fanin_region_stats stats;

	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_eq(stats.fetched, 0);
	ck_assert_uint_eq(stats.fetches, 0);
	ck_assert_uint_eq(stats.duplicates, 0);
	ck_assert_uint_eq(stats.slowed, 0);
	ck_assert_uint_eq(stats.early + stats.old + stats.out_of_range, 0);
	/* Each packet was sent once, and came to all others. */
	ck_assert_uint_eq(stats.packets, stats.packets_sent * (trial.n_ranks - 1u));
	close_world();
}
END_TEST

/* Faults by _i: two of a hundred packets, and every tenth one. */
START_TEST(all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered)
{
	const struct trial trial = trial_of(_i / 2, _i % 2 == 0 ? 0.02 : 0.1);
	struct fanin_region_stats stats;

	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_gt(stats.fetched, 0);
	ck_assert_uint_gt(stats.duplicates, 0);
	ck_assert_uint_gt(stats.slowed, 0);
	ck_assert_uint_eq(stats.out_of_range, 0);
	close_world();
}
END_TEST

/* Writes, fences and pauses by chance. */
START_TEST(random_writes_between_fences_are_exact)
{
	struct trial trial = trial_of(_i, 0.03);

	trial.bytes = 64 * 1024;
	open_world(&trial);
	for (unsigned int f = 0; f < 20; f++) {
		uint64_t offset = 0;

		for (unsigned int i = 0; i < 30; i++) {
			const uint64_t bytes = random_below(&world.random, 4000);
			const uint16_t rank = (uint16_t)random_below(&world.random, trial.n_ranks);

			if (offset + bytes > trial.bytes)
				break;
			store(rank, offset, bytes);
			offset += bytes;
			if (random_chance(&world.random, 0.25))
				world_pass(random_below(&world.random, 20 * MS));
		}
		fence_all();
	}
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		ck_assert_uint_eq(stats_of(rank)->fences, 20);
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ lost, doubled, late */

static const struct trial eight = { .seed = 1, .n_ranks = 8, .n_leaves = 2, .bytes = 100000 };

static bool
loses_writes(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_WRITE_DELIVERY;
}

/* By _i: all come to the fence at once, or long after the write. */
START_TEST(a_write_that_all_have_lost_is_there_after_the_fence)
{
	uint64_t begin_ns;

	open_world(&eight);
	world.loses = loses_writes;
	store(3, 777, 5000);
	if (_i == 1) {
		/* The writer has asked, and the others have fetched it before the fence. */
		world_pass(SECOND);
		ck_assert_int_eq(memcmp(memory_of(5) + 777, expected + 777, 5000), 0);
	}
	begin_ns = world_now();
	fence_all();
	ck_assert_uint_lt(world_now() - begin_ns, 100 * MS);
	ck_assert_uint_eq(totals().packets, totals().packets_sent * 7);
	ck_assert_uint_eq(totals().fetched, totals().packets);
	ck_assert_uint_eq(totals().duplicates, 0);
	close_world();
}
END_TEST

static bool
loses_all_but_writes(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_UNICAST_DELIVERY && world.n_lost < 40;
}

START_TEST(lost_questions_and_confirmations_come_again)
{
	open_world(&eight);
	world.loses = loses_all_but_writes;
	store(2, 0, 90000);
	world_pass(SECOND);
	ck_assert_uint_eq(world.n_lost, 40);
	fence_all();
	ck_assert_uint_gt(totals().asks, 0);
	close_world();
}
END_TEST

static struct world_frame kept;

/* Keeps a WRITE of rank 3 that comes to rank 5. */
static bool
keeps_write(uint16_t rank, const struct fanin_hdr *hdr)
{
	if (rank == 5 && hdr->type == FANIN_TYPE_WRITE_DELIVERY && hdr->count == 3 && kept.len == 0)
		kept = world_frame_of(hdr);
	return false;
}

static void
give_kept(void)
{
	world_give(5, &kept);
	world_pass(MS);
}

START_TEST(a_duplicate_from_before_a_fence_changes_nothing_after_it)
{
	open_world(&eight);
	kept.len = 0;
	world.loses = keeps_write;
	store(3, 500, 300);
	fence_all();
	ck_assert_uint_ne(kept.len, 0);
	/* The region is the application's again. */
	memset(memory_of(5) + 500, 0x11, 300);
	give_kept();
	ck_assert_uint_eq(stats_of(5)->old, 1);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_uint_eq(memory_of(5)[500 + i], 0x11);
	/* Also after another write there, which the old packet would undo. */
	store(3, 500, 300);
	fence_all();
	give_kept();
	ck_assert_uint_eq(stats_of(5)->old, 2);
	run_fences();
	close_world();
}
END_TEST

START_TEST(a_duplicate_before_the_fence_is_stored_once)
{
	open_world(&eight);
	kept.len = 0;
	world.loses = keeps_write;
	store(3, 500, 300);
	world_pass(MS);
	memset(memory_of(5) + 500, 0x11, 300);
	give_kept();
	ck_assert_uint_eq(stats_of(5)->duplicates, 1);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_uint_eq(memory_of(5)[500 + i], 0x11);
	memcpy(memory_of(5) + 500, expected + 500, 300);
	fence_all();
	close_world();
}
END_TEST

/* What a switch would have to be forged for: a host looks, too. By _i: what is changed. */
START_TEST(packets_with_forged_fields_are_not_stored)
{
	struct fanin_hdr *hdr = &((struct fanin_headers *)kept.bytes)->fanin;

	open_world(&eight);
	kept.len = 0;
	world.loses = keeps_write;
	store(3, 500, 300);
	world_pass(MS);
	hdr->block = 1;
	switch (_i) {
	case 0:
		hdr->members = BASE + eight.bytes - 299;
		break;
	case 1:
		hdr->members = BASE - 1;
		break;
	case 2:
		hdr->members = 0;
		break;
	case 3: /* further ahead than any writer may be */
		hdr->block = FANIN_REGION_SPAN + 1;
		break;
	default:
		hdr->count = 16;
		break;
	}
	give_kept();
	ck_assert_uint_eq(stats_of(5)->out_of_range, _i < 4);
	ck_assert_uint_eq(stats_of(5)->packets, 1);
	fence_all();
	close_world();
}
END_TEST

static bool
loses_result_of_round(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 6 && hdr->type == FANIN_TYPE_RESULT && hdr->block == 1 && world.n_lost == 0;
}

START_TEST(a_write_to_a_rank_that_is_still_in_the_fence_before_is_not_lost)
{
	open_world(&eight);
	world.loses = loses_result_of_round;
	store(0, 0, 10000);
	fences_but(UINT16_MAX);
	while (fence_of(0)->status == FANIN_IN_PROGRESS)
		world_pass(MS / 100);
	ck_assert_int_eq(fence_of(6)->status, FANIN_IN_PROGRESS);
	store(0, 5000, 10000);
	world_pass(MS / 10);
	ck_assert_uint_gt(stats_of(6)->early, 0);
	world_wait(600 * SECOND, all_fenced, NULL);
	fence_all();
	close_world();
}
END_TEST

START_TEST(a_rank_that_is_late_is_waited_for)
{
	open_world(&eight);
	for (uint16_t rank = 0; rank < 8; rank++)
		store(rank, rank * 1000u, 1000);
	fences_but(4);
	world_pass(20 * SECOND);
	ck_assert_int_eq(fence_of(0)->status, FANIN_IN_PROGRESS);
	fence(4);
	run_fences();
	ck_assert_uint_eq(totals().fetched, 0);
	close_world();
}
END_TEST

/* A writer that has lost its core in the midst of its packets, at the fence. */
START_TEST(a_writer_without_a_core_is_waited_for)
{
	struct trial trial = eight;

	trial.bytes = 4 * MIB;
	open_world(&trial);
	store(2, 0, trial.bytes);
	fences_but(UINT16_MAX);
	world_pass(MS);
	ck_assert_uint_gt(stats_of(1)->packets, 10);
	world_leave(2);
	world_pass(20 * SECOND);
	ck_assert_int_eq(fence_of(0)->status, FANIN_IN_PROGRESS);
	world_return(2);
	run_fences();
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ failures */

/* The rank's library tells its switch that it goes. */
static void
leave(uint16_t rank)
{
	struct fanin_headers headers = world_forge(rank, FANIN_TYPE_LEAVE, 0, 0);

	headers.udp.src_be = rte_cpu_to_be_16(FANIN_WIRE_DEFAULT_UDP_PORT);
	world.members[rank].is_gone = true;
	world_send(rank, &headers);
}

/* All others have failed in time, and name rank 3. */
static void
expect_3_named(const char *words)
{
	const uint64_t begin_ns = world_now();

	world_wait(60 * SECOND, all_fenced, NULL);
	ck_assert_uint_lt(world_now() - begin_ns, 2 * WORLD_TIMEOUT);
	world_expect_named(3, words);
}

/* By _i: before the fence, or within it. */
START_TEST(a_rank_that_has_ended_is_named)
{
	open_world(&eight);
	store(3, 0, 50000);
	if (_i == 0)
		leave(3);
	for (uint16_t rank = 0; rank < 8; rank++) {
		if (rank != 3 || _i == 1)
			fence(rank);
	}
	/* It has told how much it has written, and has not sent all. */
	if (_i == 1) {
		world.loses = loses_writes;
		world_pass(MS / 5);
		leave(3);
	}
	expect_3_named("rank 3");
	close_world();
}
END_TEST

/*
 * A rank tells ahead, in all blocks that switches take, that it has written nothing and lacks
 * nothing, and ends. Another one may send nothing more, as that rank confirms nothing: it is not
 * the one to be named.
 */
START_TEST(a_rank_that_has_ended_is_named_though_it_has_contributed_ahead)
{
	/* More rounds than there are in two timeouts. */
	const struct trial trial = {
		.seed = 1, .n_ranks = 8, .n_leaves = 2, .bytes = 100000, .window = 128
	};

	open_world(&trial);
	/* The counts of all ranks, and then one of packets that lack. */
	for (uint32_t block = 0; block < 2 * trial.window; block++)
		world_contribute(3, block, block == 0 ? FANIN_REGION_RANKS_MAX : 1);
	world_kill(3);
	store(5, 0, trial.bytes);
	fences_but(3);
	expect_3_named("");
	close_world();
}
END_TEST

static bool
loses_data_of_one(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 6 && hdr->count == 1 &&
	       (hdr->type == FANIN_TYPE_WRITE_DELIVERY || hdr->type == FANIN_TYPE_REWRITE_DELIVERY);
}

START_TEST(packets_that_never_come_are_an_error_that_names_their_writer)
{
	open_world(&eight);
	world.loses = loses_data_of_one;
	store(1, 0, 3000);
	fences_but(UINT16_MAX);
	world_pass(2 * WORLD_TIMEOUT);
	ck_assert_int_eq(fence_of(6)->status, FANIN_ERR_TIMEOUT);
	ck_assert_msg(strstr(world_error(6),
			     "fence 0 lacks 3 packets, packet 0 of rank 1 among them") != NULL,
		      "%s", world_error(6));
	/*
	 * Its library leaves, as it does for every failed communicator, and the others learn that.
	 */
	leave(6);
	world_wait(2 * WORLD_TIMEOUT, all_fenced, NULL);
	ck_assert_int_eq(fence_of(0)->status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(world_error(0), "rank 6"));
	close_world();
}
END_TEST

START_TEST(calls_with_bad_arguments_are_refused)
{
	const struct fanin_protocol_region_ops *region;
	struct fanin_request again = { 0 };
	struct fanin_error error = { 0 };
	uint8_t byte = 1;
	struct fanin_endpoint *engine;

	open_world(&eight);
	region = world.protocol->region;
	engine = world_engine(0);
	ck_assert_int_eq(region->store(engine, eight.bytes, &byte, 1), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, eight.bytes + 1, &byte, 0), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, UINT64_MAX, &byte, 1), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 1, &byte, UINT64_MAX), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 1, &byte, eight.bytes), FANIN_ERR_INVALID);
	/* The switches' range is another one. */
	ck_assert_int_eq(region->attach(engine, memory_of(0), BASE, eight.bytes - 1, &error),
			 FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(error.text,
		       "the switches have the region as 100000 bytes from address 0x7f"));
	fence(0);
	ck_assert_int_eq(region->fence(engine, &again), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 0, &byte, 1), FANIN_ERR_INVALID);
	for (uint16_t rank = 1; rank < 8; rank++)
		fence(rank);
	run_fences();
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ pacing */

/* All write a megabyte at the same time through queues that hold a fraction of that. */
START_TEST(writers_that_share_short_queues_slow_down_and_finish)
{
	struct trial trial = eight;
	uint64_t begin_ns;

	trial.bytes = 8 * MIB;
	trial.queue_bytes = 256 * 1024;
	open_world(&trial);
	begin_ns = world_now();
	for (uint16_t rank = 0; rank < 8; rank++)
		store(rank, (uint64_t)rank * MIB, MIB);
	fence_all();
	/*
	 * Each rank takes 7 MiB at 10 Gbit/s, some 6 ms; what a queue has dropped costs patience.
	 */
	ck_assert_uint_lt(world_now() - begin_ns, 25 * MS);
	ck_assert_uint_gt(totals().slowed, 0);
	ck_assert_uint_eq(totals().packets, totals().packets_sent * 7);
	close_world();
}
END_TEST

Suite *
suite_regions(void)
{
	Suite *suite = suite_create("regions");
	TCase *tcase = tcase_create("exact");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, all_sizes_are_exact_and_nothing_is_fetched_without_loss, 0, 8);
	tcase_add_loop_test(tcase, all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered,
			    0, 16);
	tcase_add_loop_test(tcase, random_writes_between_fences_are_exact, 0, 16);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("lost");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_write_that_all_have_lost_is_there_after_the_fence, 0, 2);
	tcase_add_test(tcase, lost_questions_and_confirmations_come_again);
	tcase_add_test(tcase, a_duplicate_from_before_a_fence_changes_nothing_after_it);
	tcase_add_test(tcase, a_duplicate_before_the_fence_is_stored_once);
	tcase_add_loop_test(tcase, packets_with_forged_fields_are_not_stored, 0, 5);
	tcase_add_test(tcase, a_write_to_a_rank_that_is_still_in_the_fence_before_is_not_lost);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("late");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_rank_that_is_late_is_waited_for);
	tcase_add_test(tcase, a_writer_without_a_core_is_waited_for);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("failures");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_rank_that_has_ended_is_named, 0, 2);
	tcase_add_test(tcase, a_rank_that_has_ended_is_named_though_it_has_contributed_ahead);
	tcase_add_test(tcase, packets_that_never_come_are_an_error_that_names_their_writer);
	tcase_add_test(tcase, calls_with_bad_arguments_are_refused);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("pacing");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, writers_that_share_short_queues_slow_down_and_finish);
	suite_add_tcase(suite, tcase);
	return suite;
}
