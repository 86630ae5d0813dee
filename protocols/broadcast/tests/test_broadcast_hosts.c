/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reliable multicast in one process and in virtual time: real engines around real switches.
 * Broadcasts and Allgathers are exact even if any link loses, duplicates or reorders packets.
 * Without loss nothing is fetched, however late a rank is.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/broadcast/host/broadcast_internal.h"
#include "tests/unit/host_world.h"
#include "tests/unit/suites.h"

static const struct trial eight = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
static const struct trial two = { .seed = 1, .n_ranks = 2, .n_leaves = 1 };

static void
open_world(const struct trial *trial)
{
	struct trial opened = *trial;

	opened.handler = "broadcast";
	world_open(&opened);
}

/* bytes: of a broadcast, or of each rank's part of an Allgather. */
static struct perf_collective
vector_of(enum perf_collective_kind kind, uint64_t bytes, uint16_t root)
{
	return (struct perf_collective){
		.kind = kind,
		.root = root,
		.count = kind == PERF_BROADCAST ? bytes : bytes * world.trial.n_ranks,
		.data = { .dtype = FANIN_U8, .op = FANIN_SUM, .seed = 1 },
	};
}

static struct fanin_broadcast_engine *
multicast_of(uint16_t rank)
{
	return fanin_broadcast_of(fanin_engine_of(world_engine(rank)));
}

static struct fanin_broadcast_op *
op_of(uint16_t rank)
{
	return multicast_of(rank)->ops;
}

static struct fanin_broadcast_stats
totals(void)
{
	struct fanin_broadcast_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world_add(&sum, fanin_broadcast_stats(world_engine(rank)), sizeof(sum));
	return sum;
}

/* ------------------------------------------------------------------ tests */

static const uint16_t sizes_of_jobs[] = { 2, 3, 8, 16 };

/* The total sizes that are tried: by the packets' payload. */
static uint64_t
bytes_of(unsigned int i)
{
	const uint64_t payload = world.payload_bytes;
	const uint64_t bytes[] = { 0, 1, payload - 1, payload + 1, (1 << 20) + 3 };

	return bytes[i];
}
#define N_BYTES 5

static struct trial
trial_of(int i, double faults)
{
	return (struct trial){
		.seed = (uint64_t)i + 1,
		.n_ranks = sizes_of_jobs[i % 4],
		.n_leaves = sizes_of_jobs[i % 4] == 3 || i / 4 % 2 == 0 ? 1 : 2,
		.chains = (uint32_t)i / 8,
		.faults = faults,
		.scattered = i / 8 % 2 == 1,
	};
}

/* Runs Broadcasts and Allgathers of all sizes, several at once. */
static void
run_sizes(void)
{
	const uint16_t last = world.trial.n_ranks - 1;

	for (unsigned int i = 0; i < N_BYTES; i++)
		world_post_all(i, vector_of(i % 2 == 0 ? PERF_BROADCAST : PERF_ALLGATHER,
					    i % 2 == 0 ? bytes_of(i)
						       : bytes_of(i) / world.trial.n_ranks + 1,
					    0));
	world_run();
	world_forget();
	for (unsigned int i = 0; i < N_BYTES; i++)
		world_post_all(i, vector_of(i % 2 == 1 ? PERF_BROADCAST : PERF_ALLGATHER,
					    i % 2 == 1 ? bytes_of(i)
						       : bytes_of(i) / world.trial.n_ranks,
					    last));
	world_run();
}

START_TEST(all_sizes_are_exact_and_nothing_is_fetched_without_loss)
{
	struct trial trial = trial_of(_i, 0);
	struct fanin_broadcast_stats stats;

	/* More senders at once than the links take fill queues until marks slow them down. */
	trial.chains %= 3;
	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_eq(stats.fetched, 0);
	ck_assert_uint_eq(stats.fetches, 0);
	ck_assert_uint_eq(stats.duplicates, 0);
	ck_assert_uint_eq(stats.closed, 0);
	/* Each packet was sent once, and came to all others. */
	ck_assert_uint_eq(stats.packets, stats.packets_sent * (trial.n_ranks - 1u));
	world_close();
}
END_TEST

/* Returns how long an Allgather of 8 MiB takes. */
static uint64_t
time_of_allgather(const struct trial *trial)
{
	uint64_t ns;

	open_world(trial);
	world_post_all(0, vector_of(PERF_ALLGATHER, (8 << 20) / trial->n_ranks, 0));
	ns = world_run();
	world_close();
	return ns;
}

/*
 * Between leaves links have half the rate of hosts', and ranks are at the leaves in turn: two
 * chains by rank would always be behind the same leaf.
 */
START_TEST(chains_stay_in_their_racks)
{
	struct trial trial = { .seed = 1,
			       .n_ranks = 8,
			       .n_leaves = 2,
			       .chains = 2,
			       .scattered = true,
			       .up_mbit = 5000,
			       .queue_bytes = 1 << 22,
			       .bucket_bytes = 3000 };
	const uint64_t by_rack = time_of_allgather(&trial);
	uint64_t by_rank, unscattered;

	trial.places_unknown = true;
	by_rank = time_of_allgather(&trial);
	trial.scattered = false;
	unscattered = time_of_allgather(&trial);
	ck_assert_msg(by_rack * 3 < by_rank * 2 && by_rack < unscattered + unscattered / 10,
		      "found %lu us by rack, %lu by rank, %lu with neighboring ranks",
		      (unsigned long)by_rack / 1000, (unsigned long)by_rank / 1000,
		      (unsigned long)unscattered / 1000);
}
END_TEST

START_TEST(all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered)
{
	const struct trial trial = trial_of(_i, 0.05);
	struct fanin_broadcast_stats stats;

	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_gt(stats.fetched, 0);
	ck_assert_uint_gt(stats.duplicates, 0);
	world_close();
}
END_TEST

/*
 * By _i: the payload. Vectors of more packets than a FETCH that is as long as they are has bits,
 * and losses in several chains.
 */
START_TEST(packets_that_ask_are_no_longer_than_the_jobs_packets)
{
	static const uint16_t payloads[] = { 64, 128, 192, 256, 320, 0 };
	const struct trial trial = { .seed = (uint64_t)_i + 1,
				     .n_ranks = 4,
				     .n_leaves = 2,
				     .chains = 4,
				     .faults = 0.02,
				     .payload_bytes = payloads[_i] };
	uint64_t bytes;

	open_world(&trial);
	if (payloads[_i] != 0)
		ck_assert_uint_eq(world.payload_bytes, payloads[_i]);
	bytes = 2400u * (payloads[_i] == 0 ? 256u : payloads[_i]);
	world_post_all(0, vector_of(PERF_ALLGATHER, bytes / trial.n_ranks + 1, 0));
	world_post_all(1, vector_of(PERF_BROADCAST, bytes, 1));
	world_run();
	ck_assert_uint_gt(totals().fetched, 0);
	world_close();
}
END_TEST

static bool
loses_all_data(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 3 && hdr->type == FANIN_TYPE_DELIVERY && hdr->block % 300 == 7;
}

/*
 * One rank lacks packets that are far apart: where the bitmap of a packet's length does not reach
 * the next one, each needs its own FETCH.
 */
START_TEST(several_fetches_ask_for_more_than_one_bitmap_covers)
{
	const struct trial trial = {
		.seed = 1, .n_ranks = 4, .n_leaves = 2, .chains = 4, .payload_bytes = 64
	};

	open_world(&trial);
	world.loses = loses_all_data;
	world_post_all(0, vector_of(PERF_ALLGATHER, 64u * 2400u / trial.n_ranks, 0));
	world_run();
	ck_assert_uint_eq(world.n_lost, 6);
	ck_assert_uint_eq(totals().fetched, 6);
	ck_assert_uint_eq(totals().duplicates, 0);
	world_close();
}
END_TEST

/* The packet that the tests below lose, whenever it comes by multicast. */
static uint32_t lost_packet;

static bool
loses_at_all(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_DELIVERY && hdr->block == lost_packet;
}

static bool
loses_at_neighbors(uint16_t rank, const struct fanin_hdr *hdr)
{
	return (rank == 3 || rank == 4) && loses_at_all(rank, hdr);
}

/* By _i: a middle packet of a message with a partial last one, or the last one. */
START_TEST(packets_that_neighbors_lack_go_around_the_ring_once)
{
	struct fanin_broadcast_stats stats;

	open_world(&eight);
	lost_packet = _i == 0 ? 5 : 10;
	world.loses = loses_at_neighbors;
	world_post_all(0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes + 17, 0));
	world_run();
	stats = totals();
	ck_assert_uint_eq(world.n_lost, 2);
	ck_assert_uint_eq(stats.fetched, 2);
	ck_assert_uint_eq(stats.duplicates, 0);
	world_close();
}
END_TEST

START_TEST(packets_that_all_lack_come_from_their_root)
{
	struct fanin_broadcast_stats stats;

	open_world(&eight);
	lost_packet = 7;
	world.loses = loses_at_all;
	world_post_all(0, vector_of(PERF_BROADCAST, 40u * world.payload_bytes, 3));
	ck_assert_uint_lt(world_run(), 50 * MS);
	stats = totals();
	ck_assert_uint_eq(world.n_lost, 7);
	ck_assert_uint_eq(stats.fetched, 7);
	ck_assert_uint_eq(stats.duplicates, 0);
	world_close();
}
END_TEST

static bool
loses_activation(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_UNICAST_DELIVERY && hdr->number == FANIN_BROADCAST_ACTIVATE;
}

START_TEST(a_lost_activation_costs_nothing)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1, .chains = 1 };

	open_world(&trial);
	world.loses = loses_activation;
	world_post_all(0, vector_of(PERF_ALLGATHER, 20000, 0));
	world_run();
	ck_assert_uint_eq(world.n_lost, 7);
	ck_assert_uint_eq(totals().fetched, 0);
	world_close();
}
END_TEST

/* By _i: the root, or another rank. */
START_TEST(a_rank_that_posts_late_is_waited_for)
{
	const uint16_t late = _i == 0 ? 0 : 5;

	open_world(&eight);
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++) {
		if (rank != late)
			world_post(rank, 0, vector_of(PERF_BROADCAST, 1 << 20, 0));
	}
	world_pass(20 * SECOND);
	world_post(late, 0, vector_of(PERF_BROADCAST, 1 << 20, 0));
	world_run();
	ck_assert_uint_eq(totals().fetched, 0);
	ck_assert_uint_eq(totals().packets_sent * 7, totals().packets);
	world_close();
}
END_TEST

static bool
has_begun(void *user)
{
	(void)user;
	return totals().packets_sent > 100;
}

/* By _i: for how long. Late ranks are waited for, however long it takes. */
START_TEST(a_root_without_a_core_is_waited_for_and_nothing_is_fetched)
{
	static const uint64_t away_ns[] = { 1 * SECOND, 20 * SECOND };

	open_world(&eight);
	world_post_all(0, vector_of(PERF_BROADCAST, 4 << 20, 2));
	ck_assert(world_wait(SECOND, has_begun, NULL));
	world_leave(2);
	world_pass(away_ns[_i]);
	ck_assert(!world_done(NULL));
	world_return(2);
	world_run();
	ck_assert_uint_eq(totals().fetched, 0);
	/* The measured rate leaves out the pause: 4 MiB in 200 ms and the time that they take. */
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++) {
		if (rank != 2)
			ck_assert_double_gt(multicast_of(rank)->bytes_per_ns, 0.007);
	}
	world_close();
}
END_TEST

/* Some ranks' memory is used for something else already when others still lack packets. */
START_TEST(a_tree_may_be_lost_at_any_moment)
{
	struct trial trial = trial_of(_i, _i % 3 == 0 ? 0 : 0.03);
	struct random random = random_seed((uint64_t)_i + 1);

	open_world(&trial);
	for (uint32_t r = 0; r < 4; r++)
		world_post_all(r, vector_of(r % 2 == 0 ? PERF_ALLGATHER : PERF_BROADCAST,
					    (r % 2 == 0 ? 100000 : 1000000) /
						    (trial.n_ranks * (r + 1)),
					    1));
	for (int losses = 1 + _i % 3; losses > 0; losses--) {
		world_wait(random_below(&random, 1000000), world_done, NULL);
		world_lose_run(random_below(&random, 20000));
	}
	world_run();
	world_close();
}
END_TEST

/* The rank that loses data of packet 5, by whichever way. */
static uint16_t told_rank;

static bool
loses_data_of_told(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == told_rank && hdr->block == 5 && hdr->number == FANIN_BROADCAST_DATA &&
	       (hdr->type == FANIN_TYPE_DELIVERY || hdr->type == FANIN_TYPE_UNICAST_DELIVERY);
}

static bool
lacks_packet_5_only(void *user)
{
	const struct fanin_broadcast_op *op = op_of(told_rank);

	(void)user;
	return op != NULL && op->n_lacking == 1;
}

/*
 * A rank that could not ask has asked for nothing: what comes by multicast after all is not late.
 */
START_TEST(packets_not_asked_for_count_as_neither_lost_nor_late)
{
	const struct fanin_broadcast_op *op;

	open_world(&two);
	told_rank = 1;
	world.loses = loses_data_of_told;
	world_post_all(0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	ck_assert(world_wait(SECOND, lacks_packet_5_only, NULL));
	world.members[1].is_full = true;
	world_pass(100 * MS);
	op = op_of(1);
	ck_assert_uint_eq(op->n_lacking, 1);
	ck_assert(!fanin_bit(op->asked, 5));
	ck_assert_uint_eq(op->n_lost, 0);
	ck_assert_uint_eq(totals().fetches, 0);
	world.members[1].is_full = false;
	world.loses = NULL;
	world_wake(1);
	world_run();
	ck_assert_uint_eq(totals().fetched, 1);
	ck_assert_uint_eq(totals().late, 0);
	world_close();
}
END_TEST

static bool
is_told(void *user)
{
	const struct fanin_broadcast_op *op = op_of(told_rank);

	(void)user;
	return op != NULL && op->has_ns != 0;
}

/*
 * All that comes to rank 1 of packet 5 is lost, and then its only neighbor is late: it tells
 * nothing more, and has sent a packet that never came.
 */
START_TEST(a_rank_that_is_late_after_a_loss_is_waited_for)
{
	open_world(&two);
	told_rank = 1;
	world.loses = loses_data_of_told;
	world_post_all(0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	ck_assert(world_wait(SECOND, is_told, NULL));
	world.loses = NULL;
	world_leave(0);
	world_pass(20 * SECOND);
	ck_assert_msg(world.members[1].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      world_error(1));
	world_return(0);
	world_run();
	world_close();
}
END_TEST

/* Small packets pass, and data of packet 5 does not. */
START_TEST(data_that_never_passes_ends_the_run_in_time)
{
	uint64_t begin_ns;

	open_world(&two);
	told_rank = 1;
	world.loses = loses_data_of_told;
	begin_ns = world_now();
	world_post_all(0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	while (world.members[1].requests[0].status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(world_now() - begin_ns, 6 * SECOND);
		world_pass(10 * MS);
	}
	ck_assert_msg(strstr(world_error(1),
			     "rank 0 has sent packet 5 of operation 0, and it never came") != NULL,
		      "%s", world_error(1));
	world_close();
}
END_TEST

START_TEST(answers_of_a_lost_run_fail_nobody_in_the_next_one)
{
	open_world(&eight);
	told_rank = 3;
	world.loses = loses_data_of_told;
	world_post_all(0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	ck_assert(world_wait(SECOND, is_told, NULL));
	world_lose_run(SECOND);
	world.loses = NULL;
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++)
		world.members[rank].is_away = rank != 3;
	world_pass(20 * SECOND);
	ck_assert_msg(world.members[3].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      world_error(3));
	for (uint16_t rank = 0; rank < eight.n_ranks; rank++) {
		world_return(rank);
	}
	world_run();
	world_close();
}
END_TEST

static void
forge(uint16_t from, uint16_t to, enum fanin_broadcast_kind kind, uint32_t packet,
      const void *payload, uint32_t len)
{
	struct fanin_broadcast_engine *mc = multicast_of(from);

	ck_assert(fanin_broadcast_send_to(mc, op_of(from), to, kind, packet, payload, len));
	world.members[from].transport.ops->tx_flush(&world.members[from].transport);
	world_wake(to);
}

/* All that would come to one rank. */
static bool
loses_deliveries(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 3 && (hdr->type == FANIN_TYPE_DELIVERY || hdr->members != 5) &&
	       hdr->type != FANIN_TYPE_RESULT && hdr->type != FANIN_TYPE_ANSWER;
}

/* A member's packets that it was not asked for, and that are not its own. */
START_TEST(unrequested_packets_are_taken_from_their_root_only)
{
	uint8_t *junk;

	open_world(&eight);
	junk = calloc(1, world.payload_bytes);
	for (uint16_t rank = 1; rank < eight.n_ranks; rank++)
		world_post(rank, 0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	forge(5, 3, FANIN_BROADCAST_DATA, 5, junk, world.payload_bytes);
	world_pass(MS);
	ck_assert_uint_eq(fanin_engine_stats(world_engine(3))->invalid, 1);
	world_post(0, 0, vector_of(PERF_BROADCAST, 10u * world.payload_bytes, 0));
	world_run();
	free(junk);
	world_close();
}
END_TEST

static bool
has_asked_for_60(void *user)
{
	const struct fanin_broadcast_op *op = op_of(3);

	(void)user;
	return op != NULL && fanin_bit(op->asked, 60);
}

/*
 * In silence a rank asks for what its root has not sent yet, and gets it from another: what is
 * missing before it is late, and no gap.
 */
START_TEST(packets_from_a_neighbor_overtake_nothing)
{
	uint8_t *elements;

	open_world(&eight);
	elements = malloc(world.payload_bytes);
	world_post_all(0, vector_of(PERF_BROADCAST, 100u * world.payload_bytes, 0));
	perf_data_fill(&world.members[0].collectives[0].data, 0, 0, 60u * world.payload_bytes,
		       world.payload_bytes, elements);
	world.loses = loses_deliveries;
	ck_assert(world_wait(SECOND, has_asked_for_60, NULL));
	forge(5, 3, FANIN_BROADCAST_DATA, 60, elements, world.payload_bytes);
	world_pass(50 * MS);
	ck_assert(fanin_bit(op_of(3)->have, 60));
	ck_assert_uint_eq(op_of(3)->chains[0].gaps.checked, 0);
	world.loses = NULL;
	world_run();
	free(elements);
	world_close();
}
END_TEST

/*
 * While a root is late, a member says again and again that it has sent a packet, and sends FETCHes
 * and others that make no sense.
 */
START_TEST(invalid_packets_of_a_member_fail_nobody)
{
	const struct fanin_broadcast_tell tell = { .has = 1, .packet = 5 };
	struct random random = random_seed(1);
	uint64_t words[40];

	open_world(&eight);
	world_post_all(0, vector_of(PERF_BROADCAST, 100u * world.payload_bytes, 0));
	world_leave(0);
	world_pass(MS);
	for (unsigned int i = 0; i < 2000; i++) {
		for (size_t w = 0; w < RTE_DIM(words); w++)
			words[w] = (uint64_t)random_u32(&random) << 32 | random_u32(&random);
		forge(5, 3, FANIN_BROADCAST_TELL, 0, &tell, sizeof(tell));
		forge(5, 3, FANIN_BROADCAST_FETCH, random_below(&random, 200), words,
		      random_below(&random, sizeof(words) / 8 + 1) * 8);
		/* Neither requested data, which the member may have, nor ACTIVATE. */
		forge(5, 3, random_below(&random, 2) == 0 ? 0 : 5 + random_below(&random, 250),
		      random_u32(&random), words, random_below(&random, 100));
		world_pass(10 * MS);
	}
	ck_assert_msg(world.members[3].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      world_error(3));
	world_return(0);
	world_run();
	world_close();
}
END_TEST

START_TEST(a_turn_comes_from_the_root_before_only)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1, .chains = 1 };

	open_world(&trial);
	world_leave(0);
	world_post_all(0, vector_of(PERF_ALLGATHER, 20000, 0));
	for (uint16_t from = 4; from < 6; from++)
		forge(from, 3, FANIN_BROADCAST_ACTIVATE, op_of(3)->own_first, NULL, 0);
	world_pass(MS);
	ck_assert(!op_of(3)->is_active);
	forge(2, 3, FANIN_BROADCAST_ACTIVATE, op_of(3)->own_first, NULL, 0);
	world_pass(MS);
	ck_assert(op_of(3)->is_active);
	world_return(0);
	world_run();
	world_close();
}
END_TEST

static bool
has_packet_0(void *user)
{
	(void)user;
	return fanin_bit(op_of(1)->have, 0);
}

/* Duplicates made by the network say nothing about present congestion. */
START_TEST(a_mark_on_a_duplicate_is_no_loss)
{
	const struct trial trial = { .seed = 1, .n_ranks = 3, .n_leaves = 1 };
	const struct fanin_broadcast_stats *stats;
	struct fanin_endpoint *engine;
	struct fanin_headers headers;
	const struct fanin_frame frame = { .data = &headers, .len = sizeof(headers) };
	uint64_t n_lost;

	open_world(&trial);
	engine = world_engine(1);
	stats = fanin_broadcast_stats(engine);
	world_post_all(0, vector_of(PERF_BROADCAST, 4 << 20, 0));
	ck_assert(world_wait(SECOND, has_packet_0, NULL));
	n_lost = op_of(1)->n_lost;
	fanin_wire_encode_l4(&headers, &fanin_engine_of(engine)->config.flow, world.payload_bytes);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_DELIVERY,
				 fanin_engine_of(engine)->config.job,
				 fanin_engine_of(engine)->config.epoch,
				 fanin_engine_of(engine)->config.keys.down);
	headers.ip.tos = 3; /* CE */
	headers.fanin.number = FANIN_BROADCAST_DATA;
	fanin_broadcast_receive(fanin_engine_of(engine), &frame, 0);
	ck_assert_uint_eq(stats->duplicates, 1);
	ck_assert_uint_eq(stats->marks, 0);
	ck_assert_uint_eq(op_of(1)->n_lost, n_lost);
	world_run();
	world_close();
}
END_TEST

/* By _i: ranks 2 and 5 are silent, both have ended, or rank 2 has. */
START_TEST(only_ranks_that_have_ended_are_said_to_have_ended)
{
	static const char *const texts[] = {
		"waits for ranks 2, 5 (of 8), which do not answer",
		"waits for ranks 2, 5 (of 8), which have ended",
		"waits for ranks 2, 5 (of 8), of which rank 2 has ended, and nobody else answers",
	};
	struct fanin_answer_ranks ranks = { 0 };
	struct fanin_endpoint *engine;

	open_world(&eight);
	engine = world_engine(0);
	world_post(0, 0, vector_of(PERF_BROADCAST, 5000, 0));
	world_pass(MS);
	fanin_ranks_add(_i == 0 ? &ranks.silent : &ranks.ended, 2);
	fanin_ranks_add(_i == 1 ? &ranks.ended : &ranks.silent, 5);
	fanin_broadcast_on_answer(fanin_engine_of(engine),
				  fanin_broadcast_of(fanin_engine_of(engine))->live.block, &ranks);
	ck_assert(fanin_broadcast_time_out(fanin_engine_of(engine)));
	ck_assert_msg(strstr(fanin_engine_error(engine)->text, texts[_i]) != NULL, "%s",
		      fanin_engine_error(engine)->text);
	world_close();
}
END_TEST

START_TEST(ranks_that_disagree_are_refused)
{
	const struct trial trial = { .seed = 1, .n_ranks = 3, .n_leaves = 1 };

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		world_post(rank, 0, vector_of(PERF_BROADCAST, 5000, rank == 2));
	world_wait(SECOND, world_done, NULL);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(world_error(rank), "disagree"));
	}
	world_close();
}
END_TEST

/*
 * These ranks would have different numbers of control blocks, and take one rank's end for another
 * one's credit.
 */
START_TEST(ranks_that_count_credits_otherwise_are_refused)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1 };

	open_world(&trial);
	multicast_of(5)->credit /= 2;
	world_post_all(0, vector_of(PERF_BROADCAST, 1 << 20, 0));
	world_wait(SECOND, world_done, NULL);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(world_error(rank), "disagree"));
	}
	world_close();
}
END_TEST

Suite *
suite_broadcast_hosts(void)
{
	Suite *suite = suite_create("broadcast_hosts");
	TCase *tcase = tcase_create("exact");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, all_sizes_are_exact_and_nothing_is_fetched_without_loss, 0, 48);
	tcase_add_loop_test(tcase, all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered,
			    0, 48);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("lost");
	tcase_add_test(tcase, chains_stay_in_their_racks);
	tcase_add_loop_test(tcase, packets_that_ask_are_no_longer_than_the_jobs_packets, 0, 6);
	tcase_add_test(tcase, several_fetches_ask_for_more_than_one_bitmap_covers);
	tcase_add_loop_test(tcase, packets_that_neighbors_lack_go_around_the_ring_once, 0, 2);
	tcase_add_test(tcase, packets_that_all_lack_come_from_their_root);
	tcase_add_test(tcase, a_lost_activation_costs_nothing);
	tcase_add_test(tcase, a_mark_on_a_duplicate_is_no_loss);
	tcase_add_test(tcase, packets_not_asked_for_count_as_neither_lost_nor_late);
	tcase_add_test(tcase, unrequested_packets_are_taken_from_their_root_only);
	tcase_add_test(tcase, packets_from_a_neighbor_overtake_nothing);
	tcase_add_test(tcase, invalid_packets_of_a_member_fail_nobody);
	tcase_add_test(tcase, a_turn_comes_from_the_root_before_only);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("runs");
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_tree_may_be_lost_at_any_moment, 0, 48);
	tcase_add_test(tcase, a_rank_that_is_late_after_a_loss_is_waited_for);
	tcase_add_test(tcase, data_that_never_passes_ends_the_run_in_time);
	tcase_add_test(tcase, answers_of_a_lost_run_fail_nobody_in_the_next_one);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("late");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_rank_that_posts_late_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_root_without_a_core_is_waited_for_and_nothing_is_fetched, 0,
			    2);
	tcase_add_loop_test(tcase, only_ranks_that_have_ended_are_said_to_have_ended, 0, 3);
	tcase_add_test(tcase, ranks_that_disagree_are_refused);
	tcase_add_test(tcase, ranks_that_count_credits_otherwise_are_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
