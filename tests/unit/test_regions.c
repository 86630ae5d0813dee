/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast regions in one process and in virtual time: real engines around real switches. After a fence all buffers are alike, whatever was lost, doubled or reordered on any
 * link; nothing that belongs to an earlier fence changes them later.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/region/region_internal.h"
#include "reference/random.h"
#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 16
#define WINDOW 16
#define GUARD 64u
#define GUARD_BYTE 0xa5
#define BASE UINT64_C(0x7f0000001000)
#define MIB (1u << 20)
#define TIMEOUT (5 * SECOND)

struct trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint64_t bytes;
	double faults;
	uint32_t queue_bytes; /* of each port of a switch; 0: as many as there are */
	uint16_t window;      /* 0: WINDOW */
};

/* What a test does with a frame that has come to a rank. Returns true if it is lost. */
typedef bool (*loses_fn)(uint16_t rank, const struct fanin_frame *frame);

/* A host's transport, of which some frames are lost, and to which a test adds others. */
struct lossy {
	struct fanin_transport transport;
	struct fanin_transport *inner;
	uint16_t rank;
};

struct member {
	struct fanin_endpoint *engine;
	struct lossy lossy;
	uint8_t *memory; /* with a guard before and behind it */
	struct fanin_request fence;
	bool is_away; /* does not poll */
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	struct member members[MOST_RANKS];
	uint8_t *expected; /* the region after the next fence */
	loses_fn loses;
	uint64_t n_lost;
	uint16_t payload_bytes;
	struct random random;
	/* A frame that a test keeps, and gives to a rank. */
	uint8_t kept[2048] __attribute__((aligned(8)));
	uint32_t kept_len;
	uint16_t kept_for;
	bool gives_kept;
} world;

static const struct fanin_protocol *
protocol(void)
{
	char reason[256];

	return fanin_protocol_of("region", reason, sizeof(reason));
}

/* ------------------------------------------------------------------ world */

static unsigned int
lossy_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct lossy *lossy = (struct lossy *)transport;
	unsigned int n;
	unsigned int kept = 0;

	if (world.gives_kept && world.kept_for == lossy->rank) {
		world.gives_kept = false;
		frames[0] = (struct fanin_frame){ .data = world.kept, .len = world.kept_len };
		return 1;
	}
	n = lossy->inner->ops->rx_burst(lossy->inner, frames, max);
	for (unsigned int i = 0; i < n; i++) {
		if (world.loses != NULL && world.loses(lossy->rank, &frames[i])) {
			world.n_lost++;
			lossy->inner->ops->rx_release(lossy->inner, &frames[i], 1);
		} else {
			frames[kept++] = frames[i];
		}
	}
	return kept;
}

static void
lossy_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct lossy *lossy = (struct lossy *)transport;

	if (n == 1 && frames[0].data == world.kept)
		return;
	lossy->inner->ops->rx_release(lossy->inner, frames, n);
}

static void *
lossy_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct lossy *lossy = (struct lossy *)transport;

	return lossy->inner->ops->tx_reserve(lossy->inner, len);
}

static void
lossy_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct lossy *lossy = (struct lossy *)transport;

	lossy->inner->ops->tx_commit(lossy->inner, len);
}

static int
lossy_tx_flush(struct fanin_transport *transport)
{
	struct lossy *lossy = (struct lossy *)transport;

	return lossy->inner->ops->tx_flush(lossy->inner);
}

static const struct fanin_transport_ops lossy_ops = {
	.name = "lossy",
	.tx_reserve = lossy_tx_reserve,
	.tx_commit = lossy_tx_commit,
	.tx_flush = lossy_tx_flush,
	.rx_burst = lossy_rx_burst,
	.rx_release = lossy_rx_release,
};

static uint8_t *
memory_of(uint16_t rank)
{
	return world.members[rank].memory + GUARD;
}

static const struct fanin_region_stats *
stats_of(uint16_t rank)
{
	return fanin_region_stats(world.members[rank].engine);
}

static const char *
error_of(uint16_t rank)
{
	return fanin_engine_error(world.members[rank].engine)->text;
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = &world.members[(uintptr_t)user];
	uint64_t idle_ns;

	if (member->is_away)
		return;
	protocol()->poll(member->engine);
	idle_ns = protocol()->idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

static void
wake(uint16_t rank)
{
	rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
}

static void
engine_open(uint16_t rank)
{
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT, .recover = true };
	struct member *member = &world.members[rank];
	struct fanin_error error = { 0 };
	struct fanin_endpoint *engine;

	rig_protocol_config(&world.job, rank, &config);
	world.payload_bytes = config.payload_bytes;
	member->lossy = (struct lossy){
		.transport = { .ops = &lossy_ops },
		.inner = rig_host_transport(world.network.hosts[rank]),
		.rank = rank,
	};
	config.transport = &member->lossy.transport;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_region, &config, &engine, &error),
			 FANIN_OK);
	member->engine = engine;
	member->memory = malloc(world.trial.bytes + 2u * GUARD);
	memset(member->memory, GUARD_BYTE, world.trial.bytes + 2u * GUARD);
	memset(memory_of(rank), 0, world.trial.bytes);
	ck_assert_int_eq(protocol()->region->attach(engine, memory_of(rank), BASE,
						    world.trial.bytes, &error),
			 FANIN_OK);
	rig_host_set_poll(world.network.hosts[rank], member_poll, (void *)(uintptr_t)rank);
}

static void
open_world(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end end = {
		.egress = { .rate_mbit = 10000, .queue_bytes = trial->queue_bytes },
		.delay_ns = 2000,
	};
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks / trial->n_leaves,
		.n_spines = trial->n_leaves == 1 ? 0 : 1,
		.host_end = end,
		.up_end = end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 1,
		.slots = 2u * (trial->window == 0 ? WINDOW : trial->window),
	};
	const struct job_spec spec = {
		.handler = "region",
		.slots = 2u * (trial->window == 0 ? WINDOW : trial->window),
		.n_parameters = 2,
		.parameters = { { "base", BASE }, { "bytes", trial->bytes } },
	};
	static bool eal_is_there;
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.random = random_seed(trial->seed);
	world.expected = calloc(1, trial->bytes);
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	ret = rig_job_create(&world.network, &spec, trial->n_ranks, 0, &world.job, error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 600 * SECOND), 0);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		protocol()->close(world.members[rank].engine);
		free(world.members[rank].memory);
	}
	free(world.expected);
	rig_job_destroy(&world.job);
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* ------------------------------------------------------------------ writes and fences */

/* A rank writes random bytes, which all are to have after the next fence. */
static void
store(uint16_t rank, uint64_t offset, uint64_t bytes)
{
	uint8_t *data = malloc(bytes + 1);

	for (uint64_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)random_u32(&world.random);
	ck_assert_int_eq(protocol()->region->store(world.members[rank].engine, offset, data, bytes),
			 FANIN_OK);
	memcpy(world.expected + offset, data, bytes);
	/* The library has copied it. */
	memset(data, 0xee, bytes + 1);
	free(data);
	wake(rank);
}

static void
fence(uint16_t rank)
{
	struct member *member = &world.members[rank];

	member->fence = (struct fanin_request){ 0 };
	ck_assert_int_eq(protocol()->region->fence(member->engine, &member->fence), FANIN_OK);
	wake(rank);
}

static bool
all_fenced(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (world.members[rank].fence.status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

static void
expect_alike(void)
{
	const uint64_t bytes = world.trial.bytes;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const uint8_t *memory = memory_of(rank);

		ck_assert_msg(world.members[rank].fence.status == FANIN_OK, "seed %lu, rank %u: %s",
			      (unsigned long)world.trial.seed, rank, error_of(rank));
		for (uint64_t i = 0; i < bytes; i++)
			ck_assert_msg(memory[i] == world.expected[i],
				      "seed %lu, rank %u: byte %lu is %u, expected %u",
				      (unsigned long)world.trial.seed, rank, (unsigned long)i,
				      memory[i], world.expected[i]);
		for (uint32_t i = 0; i < GUARD; i++) {
			ck_assert_uint_eq(world.members[rank].memory[i], GUARD_BYTE);
			ck_assert_uint_eq(memory[bytes + i], GUARD_BYTE);
		}
	}
}

static void
run_fences(void)
{
	rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND, all_fenced, NULL);
}

static struct fanin_region_stats
totals(void)
{
	struct fanin_region_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const struct fanin_region_stats *stats = stats_of(rank);

		sum.packets_sent += stats->packets_sent;
		sum.packets += stats->packets;
		sum.fetched += stats->fetched;
		sum.late += stats->late;
		sum.duplicates += stats->duplicates;
		sum.old += stats->old;
		sum.early += stats->early;
		sum.out_of_range += stats->out_of_range;
		sum.fetches += stats->fetches;
		sum.rounds += stats->rounds;
		sum.slowed += stats->slowed;
		sum.asks += stats->asks;
	}
	return sum;
}

/* All ranks come to a fence, and all buffers are as expected after it. */
static void
fence_all(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		fence(rank);
	run_fences();
	expect_alike();
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

/* Lengths around a packet's, at places that are aligned to nothing, by all ranks at once; one rank writes a long one as well. */
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
START_TEST(whatever_ranks_write_between_fences_is_exact)
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
				rig_run(world.rig,
					rig_now_ns(world.rig) + random_below(&world.random, 20 * MS),
					NULL, NULL);
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

static const struct fanin_hdr *
header_of(const struct fanin_frame *frame)
{
	return &((const struct fanin_headers *)frame->data)->fanin;
}

static bool
loses_writes(uint16_t rank, const struct fanin_frame *frame)
{
	(void)rank;
	return header_of(frame)->type == FANIN_TYPE_WRITE_DELIVERY;
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
		rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
		ck_assert_int_eq(memcmp(memory_of(5) + 777, world.expected + 777, 5000), 0);
	}
	begin_ns = rig_now_ns(world.rig);
	fence_all();
	ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 100 * MS);
	ck_assert_uint_eq(totals().packets, totals().packets_sent * 7);
	ck_assert_uint_eq(totals().fetched, totals().packets);
	ck_assert_uint_eq(totals().duplicates, 0);
	close_world();
}
END_TEST

static bool
loses_all_but_writes(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = header_of(frame);

	(void)rank;
	return hdr->type == FANIN_TYPE_UNICAST_DELIVERY && world.n_lost < 40;
}

START_TEST(lost_questions_and_confirmations_come_again)
{
	open_world(&eight);
	world.loses = loses_all_but_writes;
	store(2, 0, 90000);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	ck_assert_uint_eq(world.n_lost, 40);
	fence_all();
	ck_assert_uint_gt(totals().asks, 0);
	close_world();
}
END_TEST

/* Keeps a WRITE of rank 3 that comes to rank 5. */
static bool
keeps_write(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = header_of(frame);

	if (rank != 5 || hdr->type != FANIN_TYPE_WRITE_DELIVERY || hdr->count != 3 ||
	    world.kept_len != 0)
		return false;
	memcpy(world.kept, frame->data, frame->len);
	world.kept_len = frame->len;
	world.kept_for = 5;
	return false;
}

static void
give_kept(void)
{
	world.gives_kept = true;
	wake(5);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert(!world.gives_kept);
}

START_TEST(a_duplicate_from_before_a_fence_changes_nothing_after_it)
{
	open_world(&eight);
	world.loses = keeps_write;
	store(3, 500, 300);
	fence_all();
	ck_assert_uint_ne(world.kept_len, 0);
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
	expect_alike();
	close_world();
}
END_TEST

START_TEST(a_duplicate_before_the_fence_is_stored_once)
{
	open_world(&eight);
	world.loses = keeps_write;
	store(3, 500, 300);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	memset(memory_of(5) + 500, 0x11, 300);
	give_kept();
	ck_assert_uint_eq(stats_of(5)->duplicates, 1);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_uint_eq(memory_of(5)[500 + i], 0x11);
	memcpy(memory_of(5) + 500, world.expected + 500, 300);
	fence_all();
	close_world();
}
END_TEST

/* What a switch would have to be forged for: a host looks, too. By _i: what is changed. */
START_TEST(what_does_not_belong_into_the_region_is_not_stored)
{
	struct fanin_headers *kept = (struct fanin_headers *)world.kept;

	open_world(&eight);
	world.loses = keeps_write;
	store(3, 500, 300);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	kept->fanin.block = 1;
	switch (_i) {
	case 0:
		kept->fanin.members = BASE + eight.bytes - 299;
		break;
	case 1:
		kept->fanin.members = BASE - 1;
		break;
	case 2:
		kept->fanin.members = 0;
		break;
	case 3: /* further ahead than any writer may be */
		kept->fanin.block = FANIN_REGION_SPAN + 1;
		break;
	default:
		kept->fanin.count = MOST_RANKS;
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
loses_result_of_round(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = header_of(frame);

	return rank == 6 && hdr->type == FANIN_TYPE_RESULT && hdr->block == 1 && world.n_lost == 0;
}

START_TEST(a_write_to_a_rank_that_is_still_in_the_fence_before_is_not_lost)
{
	open_world(&eight);
	world.loses = loses_result_of_round;
	store(0, 0, 10000);
	for (uint16_t rank = 0; rank < 8; rank++)
		fence(rank);
	while (world.members[0].fence.status == FANIN_IN_PROGRESS)
		rig_run(world.rig, rig_now_ns(world.rig) + MS / 100, NULL, NULL);
	ck_assert_int_eq(world.members[6].fence.status, FANIN_IN_PROGRESS);
	store(0, 5000, 10000);
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 10, NULL, NULL);
	ck_assert_uint_gt(stats_of(6)->early, 0);
	run_fences();
	fence_all();
	close_world();
}
END_TEST

START_TEST(a_rank_that_is_late_is_waited_for)
{
	open_world(&eight);
	for (uint16_t rank = 0; rank < 8; rank++)
		store(rank, rank * 1000u, 1000);
	for (uint16_t rank = 0; rank < 8; rank++) {
		if (rank != 4)
			fence(rank);
	}
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	ck_assert_int_eq(world.members[0].fence.status, FANIN_IN_PROGRESS);
	fence(4);
	run_fences();
	expect_alike();
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
	for (uint16_t rank = 0; rank < 8; rank++)
		fence(rank);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert_uint_gt(stats_of(1)->packets, 10);
	world.members[2].is_away = true;
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	ck_assert_int_eq(world.members[0].fence.status, FANIN_IN_PROGRESS);
	world.members[2].is_away = false;
	wake(2);
	run_fences();
	expect_alike();
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ failures */

/* The rank's library tells its switch that it goes. */
static void
leave(uint16_t rank)
{
	struct fanin_protocol_config config = { 0 };
	struct fanin_headers headers;

	rig_protocol_config(&world.job, rank, &config);
	config.flow.src_port = FANIN_WIRE_DEFAULT_UDP_PORT;
	fanin_wire_encode_l4(&headers, &config.flow, 0);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_LEAVE, world.job.id, config.epoch,
				 config.keys.up);
	headers.fanin.rank = rank;
	headers.fanin.contributions = 1;
	world.members[rank].is_away = true;
	ck_assert(rig_host_send(world.network.hosts[rank], &headers, FANIN_PAYLOAD_OFFSET));
}

/* By _i: before the fence, or within it. */
START_TEST(a_rank_that_has_ended_is_named)
{
	uint64_t begin_ns;

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
		rig_run(world.rig, rig_now_ns(world.rig) + MS / 5, NULL, NULL);
		leave(3);
	}
	world.members[3].fence.status = FANIN_OK;
	begin_ns = rig_now_ns(world.rig);
	rig_run(world.rig, begin_ns + 60 * SECOND, all_fenced, NULL);
	ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 2 * TIMEOUT);
	for (uint16_t rank = 0; rank < 8; rank++) {
		struct fanin_ranks missing;

		if (rank == 3)
			continue;
		ck_assert_int_eq(world.members[rank].fence.status, FANIN_ERR_TIMEOUT);
		protocol()->missing(world.members[rank].engine, &missing);
		ck_assert_msg(missing.words[0] == 1 << 3, "rank %u misses %lx: %s", rank,
			      (unsigned long)missing.words[0], error_of(rank));
		ck_assert_ptr_nonnull(strstr(error_of(rank), "rank 3"));
	}
	close_world();
}
END_TEST

/*
 * A rank tells ahead, in all blocks that switches take, that it has written nothing and lacks nothing, and ends. Another one may send nothing more, as that rank
 * confirms nothing: it is not the one to be named.
 */
START_TEST(a_rank_that_has_ended_is_named_though_it_has_contributed_ahead)
{
	/* More rounds than there are in two timeouts. */
	const struct trial trial = {
		.seed = 1, .n_ranks = 8, .n_leaves = 2, .bytes = 100000, .window = 128
	};
	struct fanin_endpoint *engine;
	struct fanin_protocol_config config;
	struct {
		struct fanin_headers headers;
		uint64_t values[FANIN_REGION_RANKS_MAX];
	} __attribute__((packed)) frame = { 0 };
	uint64_t begin_ns;

	open_world(&trial);
	engine = world.members[3].engine;
	config = fanin_engine_of(engine)->config;
	fanin_wire_encode_l4(&frame.headers, &config.flow, sizeof(frame.values));
	for (uint32_t i = 0; i < 2u * config.window; i++) {
		/* The counts of all ranks, and then one of packets that lack. */
		const uint16_t n = i == 0 ? FANIN_REGION_RANKS_MAX : 1;

		fanin_wire_set_payload_len(&frame.headers, n * (uint32_t)sizeof(uint64_t));
		fanin_wire_encode_header(&frame.headers.fanin, FANIN_TYPE_CONTRIBUTION, config.job,
					 config.epoch, config.keys.up);
		frame.headers.fanin.rank = 3;
		frame.headers.fanin.contributions = 1;
		frame.headers.fanin.dtype = FANIN_U64;
		frame.headers.fanin.op = FANIN_MAX;
		frame.headers.fanin.count = n;
		frame.headers.fanin.block = i;
		frame.headers.udp.src_be = fanin_wire_source_port_be(i);
		ck_assert(rig_host_send(world.network.hosts[3], &frame,
					FANIN_PAYLOAD_OFFSET + n * (uint32_t)sizeof(uint64_t)));
		rig_run(world.rig, rig_now_ns(world.rig) + MS / 100, NULL, NULL);
	}
	world.members[3].is_away = true;
	rig_host_kill(world.network.hosts[3]);
	store(5, 0, trial.bytes);
	for (uint16_t rank = 0; rank < 8; rank++) {
		if (rank != 3)
			fence(rank);
	}
	begin_ns = rig_now_ns(world.rig);
	rig_run(world.rig, begin_ns + 60 * SECOND, all_fenced, NULL);
	ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 2 * TIMEOUT);
	for (uint16_t rank = 0; rank < 8; rank++) {
		struct fanin_ranks missing;

		if (rank == 3)
			continue;
		ck_assert_int_eq(world.members[rank].fence.status, FANIN_ERR_TIMEOUT);
		protocol()->missing(world.members[rank].engine, &missing);
		ck_assert_msg(missing.words[0] == 1 << 3, "rank %u misses %lx: %s", rank,
			      (unsigned long)missing.words[0], error_of(rank));
	}
	close_world();
}
END_TEST

static bool
loses_data_of_one(uint16_t rank, const struct fanin_frame *frame)
{
	const struct fanin_hdr *hdr = header_of(frame);

	return rank == 6 && hdr->count == 1 &&
	       (hdr->type == FANIN_TYPE_WRITE_DELIVERY || hdr->type == FANIN_TYPE_REWRITE_DELIVERY);
}

START_TEST(packets_that_never_come_are_an_error_that_names_their_writer)
{
	open_world(&eight);
	world.loses = loses_data_of_one;
	store(1, 0, 3000);
	for (uint16_t rank = 0; rank < 8; rank++)
		fence(rank);
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * TIMEOUT, NULL, NULL);
	ck_assert_int_eq(world.members[6].fence.status, FANIN_ERR_TIMEOUT);
	ck_assert_msg(strstr(error_of(6),
			     "fence 0 lacks 3 packets, packet 0 of rank 1 among them") != NULL,
		      "%s", error_of(6));
	/* Its library leaves, as it does for every failed communicator, and the others learn that. */
	leave(6);
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * TIMEOUT, all_fenced, NULL);
	ck_assert_int_eq(world.members[0].fence.status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(error_of(0), "rank 6"));
	close_world();
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
	const struct fanin_region_ops *region = protocol()->region;
	struct fanin_request again = { 0 };
	struct fanin_error error = { 0 };
	uint8_t byte = 1;
	struct fanin_endpoint *engine;

	open_world(&eight);
	engine = world.members[0].engine;
	ck_assert_int_eq(region->store(engine, eight.bytes, &byte, 1), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, eight.bytes + 1, &byte, 0), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, UINT64_MAX, &byte, 1), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 1, &byte, UINT64_MAX), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 1, &byte, eight.bytes), FANIN_ERR_INVALID);
	/* The switches' range is another one. */
	ck_assert_int_eq(region->attach(engine, memory_of(0), BASE, eight.bytes - 1, &error),
			 FANIN_ERR_REFUSED);
	ck_assert_ptr_nonnull(
		strstr(error.text, "the switches have the region as 100000 bytes from address 0x7f"));
	fence(0);
	ck_assert_int_eq(region->fence(engine, &again), FANIN_ERR_INVALID);
	ck_assert_int_eq(region->store(engine, 0, &byte, 1), FANIN_ERR_INVALID);
	for (uint16_t rank = 1; rank < 8; rank++)
		fence(rank);
	run_fences();
	expect_alike();
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
	begin_ns = rig_now_ns(world.rig);
	for (uint16_t rank = 0; rank < 8; rank++)
		store(rank, (uint64_t)rank * MIB, MIB);
	fence_all();
	/* Each rank takes 7 MiB at 10 Gbit/s, some 6 ms; what a queue has dropped costs patience. */
	ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 25 * MS);
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
	tcase_add_loop_test(tcase, whatever_ranks_write_between_fences_is_exact, 0, 16);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("lost");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_write_that_all_have_lost_is_there_after_the_fence, 0, 2);
	tcase_add_test(tcase, lost_questions_and_confirmations_come_again);
	tcase_add_test(tcase, a_duplicate_from_before_a_fence_changes_nothing_after_it);
	tcase_add_test(tcase, a_duplicate_before_the_fence_is_stored_once);
	tcase_add_loop_test(tcase, what_does_not_belong_into_the_region_is_not_stored, 0, 5);
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
	tcase_add_test(tcase, what_does_not_fit_is_refused);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("pacing");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, writers_that_share_short_queues_slow_down_and_finish);
	suite_add_tcase(suite, tcase);
	return suite;
}
