/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push reductions in one process and in virtual time: real engines around real switches. Results are exact and the same bits on all ranks whatever is lost, doubled
 * or reordered on any link, however small the tables are; where nothing is lost or evicted, nobody asks.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/push.h"
#include "hostlib/src/push/push_internal.h"
#include "reference/perf_collective.h"
#include "reference/random.h"
#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 32
#define MOST_JOBS 2
#define MOST_BYTES (1u << 20)
#define MOST_REQUESTS 3
#define TIMEOUT_NS (5 * SECOND)

struct trial {
	uint64_t seed;
	uint16_t n_ranks; /* of each job */
	uint16_t n_leaves;
	uint16_t n_jobs; /* 0: one */
	uint16_t window;
	uint32_t entries;
	uint32_t timeout_us; /* of tables; 0: as usual */
	uint32_t waves;
	uint32_t wave_blocks;
	double faults;
};

/* A rank's transport: the rig's, but for what the test does with it. */
struct ear {
	struct fanin_transport transport; /* first */
	struct fanin_transport *inner;
	uint16_t rank;
	void *reserved;
};

struct member {
	struct fanin_endpoint *engine;
	struct ear ear;
	struct rig_host *host;
	struct fanin_request requests[MOST_REQUESTS];
	struct perf_collective collectives[MOST_REQUESTS];
	uint8_t *send[MOST_REQUESTS];
	uint8_t *recv[MOST_REQUESTS]; /* the same where it is in place */
	bool taken[MOST_REQUESTS];    /* result and memory were looked at, and used again */
	uint64_t digest[MOST_REQUESTS];
	bool is_dead;
	bool is_deaf; /* does not poll, and is there */
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job jobs[MOST_JOBS];
	uint32_t hosts[MOST_JOBS][MOST_RANKS];
	uint32_t n_requests;
	struct member members[MOST_JOBS * MOST_RANKS];
	bool (*is_lost)(uint16_t rank,
			const struct fanin_headers *headers); /* of what comes to a rank; NULL: nothing is */
	void (*hear)(struct member *member, const void *frame, uint32_t len); /* what ranks send; NULL */
	uint64_t n_lost;
	uint64_t n_forged; /* packets in a rank's name that it has not sent */
} world;

/* Results for rank 1 that are held back until it has given its data to the block's home host. */
static struct held {
	uint8_t frame[2048];
	uint32_t len;
	bool is_ready;
} held[64];

/* ------------------------------------------------------------------ world */

static uint16_t
n_members(void)
{
	return (uint16_t)(world.trial.n_ranks * world.trial.n_jobs);
}

static uint64_t
digest_of(const uint8_t *bytes, size_t n)
{
	uint64_t digest = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	return digest;
}

/* The result is what it has to be. All memory is used again at once. */
static void
request_take(struct member *member, uint32_t r)
{
	static uint8_t expected[MOST_BYTES];
	const struct perf_collective *collective = &member->collectives[r];
	const struct perf_range range = perf_collective_receives(collective);
	const size_t size = fanin_dtype_size_of(collective->data.dtype);
	const uint8_t *got = member->recv[r] + range.first * size;

	member->digest[r] = digest_of(got, range.n * size);
	if (!collective->data.random) {
		perf_collective_expect(collective, r, range.first, range.n, expected);
		ck_assert_msg(memcmp(got, expected, range.n * size) == 0, "seed %lu, rank %u: wrong",
			      (unsigned long)world.trial.seed, collective->rank);
	}
	memset(member->send[r], 0x55, collective->count * size);
	memset(member->recv[r], 0x55, collective->count * size);
	member->taken[r] = true;
}

static void *
ear_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct ear *ear = (struct ear *)transport;

	ear->reserved = ear->inner->ops->tx_reserve(ear->inner, len);
	return ear->reserved;
}

static void
ear_commit(struct fanin_transport *transport, uint32_t len)
{
	struct ear *ear = (struct ear *)transport;

	if (world.hear != NULL)
		world.hear(container_of(ear, struct member, ear), ear->reserved, len);
	ear->inner->ops->tx_commit(ear->inner, len);
}

static int
ear_flush(struct fanin_transport *transport)
{
	struct ear *ear = (struct ear *)transport;

	return ear->inner->ops->tx_flush(ear->inner);
}

static void
ear_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct ear *ear = (struct ear *)transport;

	for (unsigned int i = 0; i < n; i++) {
		const uint8_t *data = frames[i].data;

		if (data < held[0].frame || data >= (const uint8_t *)(held + RTE_DIM(held)))
			ear->inner->ops->rx_release(ear->inner, &frames[i], 1);
	}
}

/* Puts what was held back, and may come now, before all else. Returns how many frames there are. */
static unsigned int
take_held(const struct ear *ear, struct fanin_frame *frames)
{
	unsigned int n = 0;

	for (unsigned int i = 0; ear->rank == 1 && i < RTE_DIM(held) && n < 4; i++) {
		if (!held[i].is_ready)
			continue;
		held[i].is_ready = false;
		frames[n++] = (struct fanin_frame){ .data = held[i].frame, .len = held[i].len };
	}
	return n;
}

static unsigned int
ear_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct ear *ear = (struct ear *)transport;
	unsigned int n, kept = take_held(ear, frames);

	do {
		n = ear->inner->ops->rx_burst(ear->inner, frames + kept, max - kept);
		for (unsigned int i = 0, first = kept; i < n; i++) {
			const struct fanin_frame frame = frames[first + i];

			if (world.is_lost != NULL && world.is_lost(ear->rank, frame.data)) {
				world.n_lost++;
				ear_release(transport, &frame, 1);
			} else {
				frames[kept++] = frame;
			}
		}
	} while (n != 0 && kept == 0);
	return kept;
}

static const struct fanin_transport_ops ear_ops = {
	.name = "ear",
	.tx_reserve = ear_reserve,
	.tx_commit = ear_commit,
	.tx_flush = ear_flush,
	.rx_burst = ear_burst,
	.rx_release = ear_release,
};

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;
	uint64_t idle_ns;

	if (member->is_dead || member->is_deaf)
		return;
	(void)fanin_push_poll(member->engine);
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = fanin_push_idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

static void
engine_open(uint16_t job, uint16_t rank)
{
	struct fanin_protocol_config config = {
		.timeout_ns = TIMEOUT_NS,
		.recover = true,
	};
	struct member *member = &world.members[job * world.trial.n_ranks + rank];

	struct fanin_error error = { 0 };

	rig_protocol_config(&world.jobs[job], rank, &config);
	member->host = rig_job_host(&world.jobs[job], rank);
	member->ear = (struct ear){
		.transport = { .ops = &ear_ops },
		.inner = rig_host_transport(member->host),
		.rank = rank,
	};
	config.transport = &member->ear.transport;
	config.parameters[FANIN_PUSH_WAVES] = world.trial.waves;
	config.parameters[FANIN_PUSH_WAVE_BLOCKS] = world.trial.wave_blocks;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_push, &config, &member->engine, &error),
			 FANIN_OK);
	rig_host_set_poll(member->host, member_poll, member);
}

static void
job_open(uint16_t number)
{
	const struct trial *trial = &world.trial;
	const uint16_t per_leaf = trial->n_ranks / trial->n_leaves;
	struct job_spec spec = {
		.handler = "push",
		.slots = 2u * trial->window,
		.n_parameters = trial->timeout_us != 0 ? 2 : 1,
		.parameters = { { .name = "entries", .value = trial->entries },
				{ .name = "timeout_us", .value = trial->timeout_us } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	/* Each leaf has hosts of each job. */
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		world.hosts[number][rank] = rank / per_leaf * per_leaf * trial->n_jobs +
					    number * per_leaf + rank % per_leaf;
	ret = rig_job_create_on(&world.network, &spec, world.hosts[number], trial->n_ranks, 0,
				&world.jobs[number], error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.jobs[number], 600 * SECOND), 0);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(number, rank);
}

static void
open_world(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end end = { .egress = { .rate_mbit = 1000 }, .delay_ns = 2000 };
	const uint16_t n_jobs = trial->n_jobs == 0 ? 1 : trial->n_jobs;
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = (uint16_t)(trial->n_ranks / trial->n_leaves * n_jobs),
		.n_spines = trial->n_leaves == 1 ? 0 : 1,
		.host_end = end,
		.up_end = end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = MOST_JOBS,
		.slots = 2u * trial->window * MOST_JOBS,
	};
	static bool eal_is_there;
	char error[RIG_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	memset(held, 0, sizeof(held));
	world.trial = *trial;
	world.trial.n_jobs = n_jobs;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	for (uint16_t job = 0; job < n_jobs; job++)
		job_open(job);
}

static void
requests_free(void)
{
	for (uint16_t i = 0; i < n_members(); i++) {
		struct member *member = &world.members[i];

		for (uint32_t r = 0; r < world.n_requests; r++) {
			if (member->recv[r] != member->send[r])
				free(member->recv[r]);
			free(member->send[r]);
			member->send[r] = NULL;
			member->recv[r] = NULL;
			member->taken[r] = false;
		}
	}
	world.n_requests = 0;
}

static uint64_t
drops_of(struct rig_switch *sw, enum fanin_reason reason)
{
	struct counters sum;

	if (sw == NULL)
		return 0;
	pipeline_counters(rig_switch_pipeline(sw), &sum);
	return sum.drops[reason];
}

/* Packets of blocks that no rank can have sent, as the switches found them. */
static uint64_t
n_ahead(void)
{
	uint64_t n = drops_of(world.network.spines[0], FANIN_REASON_BLOCK_WINDOW);

	for (uint16_t leaf = 0; leaf < world.trial.n_leaves; leaf++)
		n += drops_of(world.network.leaves[leaf], FANIN_REASON_BLOCK_WINDOW);
	return n;
}

static void
close_world(void)
{
	/* Nobody who is true is ever refused so. */
	ck_assert_uint_eq(world.n_forged == 0 ? n_ahead() : 0, 0);
	for (uint16_t i = 0; i < n_members(); i++)
		fanin_engine_close(world.members[i].engine);
	requests_free();
	for (uint16_t job = 0; job < world.trial.n_jobs; job++)
		rig_job_destroy(&world.jobs[job]);
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* ------------------------------------------------------------------ forgers */

/* Sends an EMPTY contribution, or a question of the home host, in a rank's name. */
static void
forge(uint16_t rank, enum fanin_type type, uint32_t block)
{
	const struct fanin_protocol_config *config =
		&fanin_engine_of(world.members[rank].engine)->config;
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &config->flow, 0);
	fanin_wire_encode_header(&headers.fanin, type, config->job, config->epoch, config->keys.up);
	headers.udp.src_be = fanin_wire_source_port_be(block);
	headers.fanin.rank = rank;
	headers.fanin.contributions = 1;
	headers.fanin.block = block;
	if (type == FANIN_TYPE_QUERY) {
		headers.fanin.flags = FANIN_FLAG_RETRANSMIT | FANIN_FLAG_DIRECT;
		headers.fanin.number = block | 1;
	} else {
		headers.fanin.flags = FANIN_FLAG_EMPTY;
		headers.fanin.dtype = FANIN_WIRE_I32;
		headers.fanin.op = FANIN_WIRE_SUM;
		headers.fanin.count = 1;
	}
	ck_assert(rig_host_send(world.members[rank].host, &headers, FANIN_PAYLOAD_OFFSET));
	world.n_forged++;
}

/* One packet for each slot of the root, in the name of rank 1, from this block on. */
static void
forge_all(enum fanin_type type, uint32_t first)
{
	const uint16_t n_ranks = world.trial.n_ranks;

	for (uint32_t i = 0; i < 2u * world.trial.window; i++) {
		const uint32_t block = first + i;

		if (type != FANIN_TYPE_QUERY || block % n_ranks == 1)
			forge(1, type, block);
	}
}

/* ------------------------------------------------------------------ requests */

static void
post(uint16_t i, uint32_t r, const struct perf_collective *like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	const uint16_t rank = i % world.trial.n_ranks;
	struct member *member = &world.members[i];
	struct perf_collective *collective = &member->collectives[r];
	const size_t size = fanin_dtype_size_of(like->data.dtype);
	struct perf_range sends, receives;
	uint64_t count = like->count;

	*collective = *like;
	collective->rank = rank;
	collective->data.size = world.trial.n_ranks;
	sends = perf_collective_sends(collective);
	receives = perf_collective_receives(collective);
	ck_assert_uint_le(count * size, MOST_BYTES);
	member->send[r] = calloc(1, count * size + 1);
	member->recv[r] = (rank + r) % 2 == 0 ? member->send[r] : calloc(1, count * size + 1);
	member->taken[r] = false;
	perf_data_fill(&collective->data, rank, r, sends.first, sends.n,
		       member->send[r] + sends.first * size);
	if (like->kind == PERF_REDUCE_SCATTER || like->kind == PERF_ALLGATHER)
		count /= world.trial.n_ranks;
	member->requests[r] = (struct fanin_request){
		.send = member->send[r] + sends.first * size,
		.recv = member->recv[r] + receives.first * size,
		.collective = collectives[like->kind],
		.dtype = (uint8_t)like->data.dtype,
		.op = (uint8_t)like->data.op,
		.root = like->root,
	};
	ck_assert_int_eq(fanin_engine_post(member->engine, &member->requests[r], count), FANIN_OK);
	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	rig_host_wake(member->host, rig_now_ns(world.rig));
}

static void
post_all(uint32_t r, const struct perf_collective *like)
{
	for (uint16_t i = 0; i < n_members(); i++)
		post(i, r, like);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t i = 0; i < n_members(); i++) {
		const struct member *member = &world.members[i];

		for (uint32_t r = 0; r < world.n_requests && !member->is_dead; r++) {
			if (!member->taken[r] && member->requests[r].status >= 0)
				return false;
		}
	}
	return true;
}

/* Until all are done, and rightly so. Returns how long that took. */
static uint64_t
run_all(void)
{
	const uint64_t begin_ns = rig_now_ns(world.rig);

	rig_run(world.rig, begin_ns + 600 * SECOND, all_done, NULL);
	for (uint16_t i = 0; i < n_members(); i++) {
		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_msg(world.members[i].taken[r],
				      "seed %lu, member %u, request %u: %s, block %u",
				      (unsigned long)world.trial.seed, i, r,
				      fanin_engine_error(world.members[i].engine)->text,
				      fanin_engine_of(world.members[i].engine)->oldest);
	}
	return rig_now_ns(world.rig) - begin_ns;
}

static struct perf_collective
sum_of(uint64_t count)
{
	return (struct perf_collective){
		.kind = PERF_ALLREDUCE,
		.count = count,
		.data = { .dtype = FANIN_I32, .op = FANIN_SUM, .seed = 1 },
	};
}

struct found {
	struct fanin_push_stats own;
	uint64_t blocks;
	uint64_t queries;
	uint64_t invalid;
	uint64_t duplicates;
};

static struct found
totals(void)
{
	struct found sum = { 0 };

	for (uint16_t i = 0; i < n_members(); i++) {
		const struct fanin_push_stats *own = fanin_push_stats(world.members[i].engine);
		const struct fanin_engine_stats *stats = fanin_engine_stats(world.members[i].engine);

		sum.own.made += own->made;
		sum.own.merged += own->merged;
		sum.own.replaced += own->replaced;
		sum.own.overlaps += own->overlaps;
		sum.own.asks += own->asks;
		sum.own.repeats += own->repeats;
		sum.own.answered += own->answered;
		sum.own.ignored += own->ignored;
		sum.blocks += stats->blocks;
		sum.queries += stats->queries;
		sum.invalid += stats->invalid;
		sum.duplicates += stats->duplicates;
	}
	return sum;
}

/* All ranks of a job have the same bits. */
static void
expect_equal_bits(void)
{
	for (uint16_t i = 0; i < n_members(); i++) {
		const uint16_t first = i / world.trial.n_ranks * world.trial.n_ranks;

		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_uint_eq(world.members[i].digest[r], world.members[first].digest[r]);
	}
}

/* ------------------------------------------------------------------ without loss */

static const uint16_t sizes_of_jobs[] = { 2, 3, 8, 16 };

static uint16_t
leaves_of(uint16_t n_ranks, bool wants_tree)
{
	return !wants_tree || n_ranks == 3 ? 1 : n_ranks == 16 ? 4 : 2;
}

START_TEST(without_loss_and_eviction_nobody_asks)
{
	const struct perf_collective sum = sum_of(100000);
	const uint16_t n_ranks = sizes_of_jobs[_i % 4];
	const struct trial trial = { .seed = 1,
				     .n_ranks = n_ranks,
				     .n_leaves = leaves_of(n_ranks, _i >= 4),
				     .window = 64,
				     .entries = 4096 };
	struct found found;

	open_world(&trial);
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_eq(found.blocks, n_ranks * ((100000u * 4 + 1407) / 1408));
	ck_assert_uint_eq(found.queries, 0);
	ck_assert_uint_eq(found.invalid, 0);
	ck_assert_uint_eq(found.duplicates, 0);
	ck_assert_uint_eq(found.own.made, 0);
	ck_assert_uint_eq(found.own.asks, 0);
	ck_assert_uint_eq(found.own.repeats, 0);
	close_world();
}
END_TEST

START_TEST(without_loss_what_is_evicted_comes_to_home_hosts_and_nobody_asks)
{
	const struct perf_collective sum = sum_of(100000);
	const struct trial trial = { .seed = 1,
				     .n_ranks = 8,
				     .n_leaves = 2,
				     .window = 64,
				     .entries = 4,
				     .waves = 16,
				     .wave_blocks = 4 };
	struct found found;

	open_world(&trial);
	post_all(0, &sum);
	/* Ranks that are apart keep many blocks open. */
	for (uint16_t rank = 0; rank < 8; rank++)
		rig_host_pause(world.members[rank].host, rank * MS / 4);
	run_all();
	found = totals();
	ck_assert_uint_ge(found.own.made, 50);
	ck_assert_uint_ge(found.own.merged, found.own.made);
	ck_assert_uint_eq(found.own.answered, 0);
	ck_assert_uint_eq(found.invalid, 0);
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ loss */

static struct trial
trial_of(unsigned int i)
{
	static const uint32_t entries[] = { 4, 64, 4096 };
	static const double faults[] = { 0.02, 0.1, 0 };
	static const uint16_t windows[] = { 64, 16, 4, 256 };
	static const uint32_t waves[] = { 0, 1, 4, 16, 64 };
	static const uint32_t wave_blocks[] = { 0, 0, 1, 4 };
	const uint16_t n_ranks = sizes_of_jobs[i % 4];

	return (struct trial){
		.seed = i + 100,
		.n_ranks = n_ranks,
		.n_leaves = leaves_of(n_ranks, i / 4 % 2 != 0),
		.window = windows[i / 3 % 4],
		.entries = entries[i / 2 % 3],
		.timeout_us = i % 7 == 0 ? 20 : 0,
		.waves = waves[i % 5],
		.wave_blocks = wave_blocks[i / 5 % 4],
		.faults = faults[i % 3],
	};
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = sum_of(30000);

	open_world(&trial);
	for (uint32_t r = 0; r < 2; r++) {
		post_all(r, &like);
		like.count = 5000;
	}
	run_all();
	expect_equal_bits();
	close_world();
}
END_TEST

/* By _i: the data type. All operators, and all collectives, in a network that loses, with tables of all sizes. */
START_TEST(all_collectives_and_operators_are_exact)
{
	static const uint32_t entries[] = { 4, 64, 4096 };
	struct trial trial = { .seed = (uint64_t)_i, .n_ranks = 4, .n_leaves = 2, .window = 32 };
	struct perf_collective like = { .root = 2,
					.data = { .dtype = (enum fanin_dtype)_i, .seed = 3 } };

	for (enum perf_collective_kind kind = PERF_ALLREDUCE; kind < PERF_COLLECTIVES; kind++) {
		like.kind = kind;
		for (like.data.op = FANIN_SUM; like.data.op <= FANIN_AVG; like.data.op++) {
			if (!fanin_supports(like.data.dtype, like.data.op) ||
			    (like.data.op != FANIN_SUM && kind != PERF_ALLREDUCE))
				continue;
			like.count = kind == PERF_BARRIER ? 0 : 4000;
			trial.seed++;
			trial.entries = entries[(unsigned int)(trial.seed + like.data.op) % 3];
			trial.faults = trial.seed % 2 == 0 ? 0.02 : 0.1;
			trial.timeout_us = trial.seed % 3 == 0 ? 10 : 0;
			open_world(&trial);
			post_all(0, &like);
			run_all();
			close_world();
		}
	}
}
END_TEST

/* Their order is another one for each block, in the table and at home hosts. */
START_TEST(float_sums_have_the_same_bits_on_all_ranks)
{
	struct trial trial = trial_of((unsigned int)_i * 3 + 1);
	struct perf_collective like = sum_of(30000);

	trial.entries = _i % 2 == 0 ? 4 : 64;
	like.data.dtype = FANIN_F32;
	like.data.random = true;
	open_world(&trial);
	post_all(0, &like);
	run_all();
	expect_equal_bits();
	close_world();
}
END_TEST

/* ------------------------------------------------------------------ what may happen to a block */

static struct trial
usual_trial(void)
{
	return (struct trial){ .seed = 5, .n_ranks = 4, .n_leaves = 2, .window = 16, .entries = 64 };
}

static bool
loses_results(uint16_t rank, const struct fanin_headers *headers)
{
	return rank == 2 && headers->fanin.type == FANIN_TYPE_RESULT;
}

static bool
loses_all_results(uint16_t rank, const struct fanin_headers *headers)
{
	(void)rank;
	return headers->fanin.type == FANIN_TYPE_RESULT;
}

START_TEST(who_has_lost_a_result_gets_it_from_the_home_host)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(10000);
	struct found found;

	/* Nothing leaves the table while a rank asks. */
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.is_lost = loses_results;
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_ge(found.own.repeats, 1);
	ck_assert_uint_eq(found.own.made, 0);
	expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_all_at_first(uint16_t rank, const struct fanin_headers *headers)
{
	return rank == 2 && headers->fanin.type == FANIN_TYPE_RESULT &&
	       headers->fanin.block >= 16 && headers->fanin.block < 80;
}

/* Once the window has gone beyond them, which is after the first ones, they are overtaken, and asked for together. */
START_TEST(many_blocks_lost_in_a_row_are_asked_for_together)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(40000);
	uint64_t begin_ns, us;

	trial.window = 64;
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.is_lost = loses_all_at_first;
	begin_ns = rig_now_ns(world.rig);
	post_all(0, &sum);
	run_all();
	us = (rig_now_ns(world.rig) - begin_ns) / 1000;
	ck_assert_msg(us < 160000, "found %lu us", (unsigned long)us);
	expect_equal_bits();
	close_world();
}
END_TEST

START_TEST(a_result_that_all_have_lost_is_made_again_by_the_home_host_and_taken_by_all)
{
	const struct trial trial = usual_trial();
	struct perf_collective sum = sum_of(10000);
	struct found found;

	sum.data.dtype = FANIN_F32;
	sum.data.random = true;
	open_world(&trial);
	world.is_lost = loses_all_results;
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_eq(found.own.made, found.blocks / trial.n_ranks);
	expect_equal_bits();
	close_world();
}
END_TEST

static bool
holds_results(uint16_t rank, const struct fanin_headers *headers)
{
	struct held *one = &held[headers->fanin.block % RTE_DIM(held)];

	if (headers->fanin.type != FANIN_TYPE_RESULT)
		return false;
	if (rank == 1) {
		one->len = FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers);
		memcpy(one->frame, headers, one->len);
	}
	return true;
}

static void
frees_results(struct member *member, const void *frame, uint32_t len)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame)->fanin;
	struct held *one = &held[hdr->block % RTE_DIM(held)];

	(void)len;
	if (member == &world.members[1] && hdr->type == FANIN_TYPE_UNICAST &&
	    (hdr->number & 0xff) == FANIN_PUSH_DATA)
		one->is_ready = one->len != 0 &&
				((const struct fanin_headers *)one->frame)->fanin.block == hdr->block;
}

START_TEST(a_rank_that_has_given_its_data_away_takes_no_result_of_the_table)
{
	const struct trial trial = usual_trial();
	struct perf_collective sum = sum_of(10000);

	sum.data.dtype = FANIN_F32;
	sum.data.random = true;
	open_world(&trial);
	world.is_lost = holds_results;
	world.hear = frees_results;
	post_all(0, &sum);
	run_all();
	ck_assert_uint_ge(fanin_push_stats(world.members[1].engine)->ignored, 10);
	expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_to_homes(uint16_t rank, const struct fanin_headers *headers)
{
	return headers->fanin.type == FANIN_TYPE_RESULT &&
	       rank == fanin_push_home(headers->fanin.block, 4);
}

START_TEST(a_home_host_that_has_lost_a_result_gets_it_from_ranks)
{
	struct trial trial = usual_trial();
	struct perf_collective sum = sum_of(10000);
	struct found found;

	sum.data.dtype = FANIN_F32;
	sum.data.random = true;
	/* Nothing leaves the table while a rank asks. */
	trial.timeout_us = 10000000;
	open_world(&trial);
	world.is_lost = loses_to_homes;
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_eq(found.own.made, 0);
	ck_assert_uint_ge(found.own.asks, 1);
	ck_assert_uint_ge(found.own.repeats, 1);
	expect_equal_bits();
	close_world();
}
END_TEST

/* Rank 1 is later than the others with every second block, and in time with the next one. */
static void
hold_even_blocks(struct member *member, const void *frame, uint32_t len)
{
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)frame)->fanin;

	(void)len;
	if (member == &world.members[1] && hdr->type == FANIN_TYPE_CONTRIBUTION && hdr->block % 2 == 0)
		rig_host_pause(member->host, MS / 5);
}

START_TEST(every_second_block_is_evicted_and_made_by_its_home_host)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(50000);
	struct found found;

	trial.n_leaves = 1;
	trial.entries = 1;
	trial.waves = 2;
	trial.wave_blocks = 1;
	open_world(&trial);
	world.hear = hold_even_blocks;
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_ge(found.own.made, found.blocks / trial.n_ranks / 3);
	ck_assert_uint_le(found.own.made, found.blocks / trial.n_ranks * 2 / 3);
	ck_assert_uint_eq(found.own.answered, 0);
	close_world();
}
END_TEST

/* A contribution of rank 1, which the test sends once more. */
static struct {
	uint8_t frame[2048];
	uint32_t len;
	uint32_t block;
} record;

static void
record_block(struct member *member, const void *frame, uint32_t len)
{
	const struct fanin_headers *headers = frame;

	if (member == &world.members[1] && headers->fanin.type == FANIN_TYPE_CONTRIBUTION &&
	    headers->fanin.block == record.block) {
		memcpy(record.frame, frame, len);
		record.len = len;
	}
}

static bool
is_at_next_use(void *user)
{
	(void)user;
	return fanin_engine_of(world.members[0].engine)->oldest >=
	       record.block + 2 * world.trial.window - 1;
}

START_TEST(a_late_duplicate_of_the_last_use_of_a_slot_changes_nothing)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(50000);

	for (record.block = 0; record.block < 40; record.block += 13) {
		trial.entries = record.block % 2 == 0 ? 4 : 64;
		record.len = 0;
		open_world(&trial);
		world.hear = record_block;
		post_all(0, &sum);
		ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 10 * SECOND, is_at_next_use,
				  NULL));
		ck_assert_uint_ne(record.len, 0);
		for (unsigned int i = 0; i < 3; i++)
			ck_assert(rig_host_send(world.members[1].host, record.frame, record.len));
		run_all();
		close_world();
	}
}
END_TEST

/*
 * Whoever has the key and is behind a rank's port: one packet for each slot, which would be lost to the table for long. By _i: 0 to 2 data 2^20 blocks ahead, past the half of
 * all numbers, and step by step; 3 and 4 questions of the home host. Odd: over two levels.
 */
START_TEST(blocks_far_ahead_take_nothing_from_others)
{
	static const uint32_t firsts[] = { 1u << 20, (1u << 31) + 64, 256, 1u << 20, (1u << 31) + 64 };
	const enum fanin_type type = _i % 5 < 3 ? FANIN_TYPE_CONTRIBUTION : FANIN_TYPE_QUERY;
	const uint32_t first = firsts[_i % 5];
	const struct perf_collective sum = sum_of(200000);
	struct trial trial = usual_trial();
	uint64_t usual_ns, ns;
	struct found found;

	trial.window = 64;
	trial.entries = 64;
	trial.n_leaves = (uint16_t)(1 + _i / 5);
	open_world(&trial);
	post_all(0, &sum);
	usual_ns = run_all();
	close_world();

	open_world(&trial);
	post_all(0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	forge_all(type, first);
	ns = MS + run_all();
	found = totals();
	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
	ck_assert_uint_ge(n_ahead() + drops_of(world.network.leaves[0], FANIN_REASON_BLOCK_STALE) +
				  drops_of(world.network.spines[0], FANIN_REASON_BLOCK_STALE),
			  world.n_forged / 2);
	/* Who is spoken for is told, and goes on. */
	if (first < 1u << 31)
		ck_assert_uint_gt(found.invalid, 0);
	close_world();
}
END_TEST

START_TEST(a_home_host_that_is_deaf_for_a_while_is_waited_for)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(20000);

	trial.entries = 4;
	trial.faults = 0.05;
	open_world(&trial);
	post_all(0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * MS, NULL, NULL);
	world.members[3].is_deaf = true;
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * SECOND, NULL, NULL);
	world.members[3].is_deaf = false;
	rig_host_wake(world.members[3].host, rig_now_ns(world.rig));
	run_all();
	close_world();
}
END_TEST

/* Away is for 50 ms, after each about 10 ms there, and each rank at its own times. */
static void
ranks_come_and_go(struct random *random)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];

		if (random_below(random, member->is_deaf ? 50 : 10) != 0)
			continue;
		member->is_deaf = !member->is_deaf;
		if (!member->is_deaf)
			rig_host_wake(member->host, rig_now_ns(world.rig));
	}
}

/* Tables' entries time out meanwhile, and home hosts are away. What is not lost is hardly asked for. */
START_TEST(ranks_that_come_and_go_are_waited_for_and_hardly_asked)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(250000);
	struct random random = random_seed(40 + (uint64_t)_i);
	uint64_t begin_ns, ms;
	struct found found;

	trial.window = 128;
	trial.entries = 16;
	trial.faults = _i % 2 == 0 ? 0 : 0.005;
	open_world(&trial);
	begin_ns = rig_now_ns(world.rig);
	post_all(0, &sum);
	while (!all_done(NULL)) {
		ranks_come_and_go(&random);
		rig_run(world.rig, rig_now_ns(world.rig) + MS, all_done, NULL);
		ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 60 * SECOND);
	}
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		world.members[rank].is_deaf = false;
	ms = (rig_now_ns(world.rig) - begin_ns) / MS;
	found = totals();
	ck_assert_msg(ms < (trial.faults == 0 ? 8000 : 40000), "found %lu ms", (unsigned long)ms);
	ck_assert_uint_lt(found.queries, found.blocks / 2);
	ck_assert_uint_lt(found.own.asks, found.blocks / 10);
	expect_equal_bits();
	close_world();
}
END_TEST

/* Its application computes, and its library answers. */
START_TEST(a_rank_that_is_late_is_waited_for)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(20000);

	trial.faults = _i == 0 ? 0 : 0.02;
	open_world(&trial);
	for (uint16_t rank = 0; rank < 3; rank++)
		post(rank, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	for (uint16_t rank = 0; rank < 3; rank++) {
		struct fanin_ranks late;

		ck_assert_msg(world.members[rank].requests[0].status == FANIN_IN_PROGRESS, "%s",
			      fanin_engine_error(world.members[rank].engine)->text);
		fanin_engine_late(world.members[rank].engine, &late);
		ck_assert_uint_eq(late.words[0], 8);
	}
	/* Each second some questions about the oldest block, and no more. */
	ck_assert_uint_le(totals().queries, 1500);
	ck_assert_uint_eq(totals().own.answered, 0);
	post(3, 0, &sum);
	run_all();
	close_world();
}
END_TEST

static void
expect_named(uint16_t dead, const char *words)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const struct member *member = &world.members[rank];
		const struct fanin_error *error = fanin_engine_error(member->engine);

		if (rank == dead)
			continue;
		ck_assert_int_eq(member->requests[0].status, FANIN_ERR_TIMEOUT);
		ck_assert_msg(error->missing.words[0] == UINT64_C(1) << dead &&
				      strstr(error->text, words) != NULL,
			      "rank %u: %s", rank, error->text);
	}
}

/* By _i: the rank. It is home to blocks, too. */
START_TEST(a_rank_that_dies_is_named_by_all_within_the_timeout)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(200000);
	uint64_t begin_ns;

	trial.faults = 0.02;
	trial.entries = 4;
	open_world(&trial);
	post_all(0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * MS, NULL, NULL);
	world.members[_i].is_dead = true;
	begin_ns = rig_now_ns(world.rig);
	ck_assert(rig_run(world.rig, begin_ns + 8 * SECOND, all_done, NULL));
	expect_named((uint16_t)_i, "not answer");
	close_world();
}
END_TEST

/* All have sent the block, and what has left the table is lost with the data of the rank that dies. */
static bool
loses_data_of_3(uint16_t rank, const struct fanin_headers *headers)
{
	(void)rank;
	return headers->fanin.type == FANIN_TYPE_EVICTED ||
	       (headers->fanin.type == FANIN_TYPE_UNICAST_DELIVERY && headers->fanin.members == 3);
}

START_TEST(a_rank_that_dies_after_it_has_sent_a_block_is_named)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(100);

	trial.timeout_us = 10;
	open_world(&trial);
	world.is_lost = loses_data_of_3;
	post_all(0, &sum);
	rig_host_pause(world.members[0].host, 10 * MS);
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * MS, NULL, NULL);
	world.members[3].is_dead = true;
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 8 * SECOND, all_done, NULL));
	expect_named(3, "not answer");
	close_world();
}
END_TEST

/* By _i: of which rank the collective is another one. */
START_TEST(ranks_that_disagree_fail_all_and_none_hangs)
{
	struct trial trial = usual_trial();
	const struct perf_collective sum = sum_of(10000);
	struct perf_collective other = sum;

	trial.entries = 1;
	trial.timeout_us = 10;
	other.data.op = FANIN_MAX;
	open_world(&trial);
	for (uint16_t rank = 0; rank < 4; rank++)
		post(rank, 0, rank == _i ? &other : &sum);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, all_done, NULL));
	for (uint16_t rank = 0; rank < 4; rank++)
		ck_assert_int_lt(world.members[rank].requests[0].status, 0);
	close_world();
}
END_TEST

START_TEST(jobs_that_share_switches_keep_apart)
{
	struct trial trial = usual_trial();
	struct perf_collective like = sum_of(30000);

	trial.n_jobs = 2;
	trial.entries = 8;
	trial.faults = 0.03;
	open_world(&trial);
	post_all(0, &like);
	run_all();
	expect_equal_bits();
	close_world();
}
END_TEST

/* A rank that has its last result tells the home host, which goes once all have. */
static bool
all_gone(void *user)
{
	bool all = true;

	(void)user;
	for (uint16_t i = 0; i < n_members(); i++)
		all &= fanin_push_say_bye(world.members[i].engine);
	return all;
}

START_TEST(a_run_ends_when_all_have_its_last_result)
{
	struct trial trial = usual_trial();
	struct perf_collective barrier = { .kind = PERF_BARRIER,
					   .data = { .dtype = FANIN_U8, .op = FANIN_BOR } };

	trial.faults = 0.1;
	for (trial.seed = 1; trial.seed <= 10; trial.seed++) {
		open_world(&trial);
		post_all(0, &barrier);
		/* Nobody goes before it has the result. */
		run_all();
		ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_gone, NULL));
		close_world();
	}
}
END_TEST

/* The switches have forgotten all. The ranks join again, and go on from the first block that one of them lacks. */
static void
begin_next_run(void)
{
	struct job_spec spec = {
		.handler = "push",
		.slots = 2u * world.trial.window,
		.n_parameters = 1,
		.parameters = { { .name = "entries", .value = world.trial.entries } },
		.id = world.jobs[0].id,
	};
	char error[PIPELINE_ERROR_LEN] = "";
	uint32_t first = UINT32_MAX;
	int ret;

	rig_job_destroy(&world.jobs[0]);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		first = RTE_MIN(first, fanin_engine_progress(world.members[rank].engine));
	ret = rig_job_create_on(&world.network, &spec, world.hosts[0], world.trial.n_ranks, 0,
				&world.jobs[0], error);
	ck_assert_msg(ret == 0, "%s", error);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world.members[rank].is_deaf = true;
	ck_assert_int_eq(rig_job_join(&world.jobs[0], 600 * SECOND), 0);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];
		struct fanin_protocol_config config = { 0 };

		rig_protocol_config(&world.jobs[0], rank, &config);
		fanin_engine_redirect(member->engine, &config.flow);
		fanin_engine_of(member->engine)->config.keys = config.keys;
		fanin_engine_of(member->engine)->headers.fanin.key = config.keys.up;
		ck_assert_int_eq(fanin_engine_resume(member->engine, config.epoch,
						     config.instance + 1, first),
				 FANIN_OK);
		member->is_deaf = false;
		rig_host_set_poll(member->host, member_poll, member);
		rig_host_wake(member->host, rig_now_ns(world.rig));
	}
}

START_TEST(a_job_that_accumulates_in_a_longer_type_is_refused_by_name)
{
	const struct trial trial = {
		.seed = 1, .n_ranks = 2, .n_leaves = 1, .window = 16, .entries = 4
	};
	const struct job_spec spec = { .handler = "push", .slots = 32, .wide = true };
	char error[PIPELINE_ERROR_LEN] = "";
	struct rig_job refused;

	open_world(&trial);
	ck_assert_int_eq(rig_job_create_on(&world.network, &spec, world.hosts[0], 2, 0, &refused,
					   error),
			 -EINVAL);
	ck_assert_str_eq(error,
			 "found accumulate \"f32\" for a job of \"push\", expected \"native\"");
	close_world();
}
END_TEST

START_TEST(a_job_of_more_than_64_ranks_is_refused_by_hosts)
{
	const struct fanin_protocol_config config = { .size = 65, .rank = 0, .window = 16 };
	struct fanin_error error = { 0 };
	struct fanin_endpoint *engine = NULL;
	char reason[256];
	const struct fanin_protocol *push = fanin_protocol_of("push", reason, sizeof(reason));

	ck_assert_ptr_nonnull(push);
	ck_assert_int_eq(push->open(push, &config, &engine, &error), FANIN_ERR_UNSUPPORTED);
	ck_assert_str_eq(error.text,
			 "the job has 65 ranks, jobs of the handler push have 64 at most");
	ck_assert_ptr_null(engine);
}
END_TEST

/* Some ranks have results that others lack. */
START_TEST(what_is_left_of_a_run_completes_in_the_next_one)
{
	struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = sum_of(30000);

	trial.window = 64;
	trial.entries = _i % 2 == 0 ? 4 : 64;
	like.data.dtype = FANIN_F32;
	like.data.random = true;
	open_world(&trial);
	post_all(0, &like);
	rig_run(world.rig, rig_now_ns(world.rig) + (uint64_t)(1 + _i) * MS / 2, NULL, NULL);
	begin_next_run();
	run_all();
	expect_equal_bits();
	close_world();
}
END_TEST

static bool
loses_results_but_of_1(uint16_t rank, const struct fanin_headers *headers)
{
	return rank != 1 && headers->fanin.type == FANIN_TYPE_RESULT;
}

static bool
has_part_at_home(void *user)
{
	(void)user;
	return fanin_push_stats(world.members[0].engine)->merged == 1;
}

/*
 * Rank 0 has the data of rank 1 from a run that is lost. In the next one the table makes the result, which rank 1 alone gets: rank 0 has to ask
 * it, too, and would make another one of what it had.
 */
START_TEST(a_home_host_makes_nothing_of_sums_of_an_earlier_run)
{
	struct trial trial = usual_trial();
	struct perf_collective sum = sum_of(300);

	sum.data.dtype = FANIN_F32;
	sum.data.random = true;
	trial.n_leaves = 1;
	trial.timeout_us = 10;
	open_world(&trial);
	post(0, 0, &sum);
	post(1, 0, &sum);
	rig_host_pause(world.members[0].host, SECOND / 100);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 5 * MS, has_part_at_home, NULL));
	post(2, 0, &sum);
	post(3, 0, &sum);
	begin_next_run();
	world.is_lost = loses_results_but_of_1;
	run_all();
	ck_assert_uint_eq(totals().own.made, 0);
	expect_equal_bits();
	close_world();
}
END_TEST

Suite *
suite_push_hosts(void)
{
	Suite *suite = suite_create("push_hosts");
	TCase *exact = tcase_create("exact"), *tcase = tcase_create("blocks");

	tcase_set_timeout(exact, 240);
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, without_loss_and_eviction_nobody_asks, 0, 8);
	tcase_add_test(tcase, without_loss_what_is_evicted_comes_to_home_hosts_and_nobody_asks);
	tcase_add_loop_test(exact, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 60);
	tcase_add_loop_test(exact, all_collectives_and_operators_are_exact, FANIN_I8, FANIN_F64 + 1);
	tcase_add_loop_test(exact, float_sums_have_the_same_bits_on_all_ranks, 0, 12);
	tcase_add_test(tcase, who_has_lost_a_result_gets_it_from_the_home_host);
	tcase_add_test(tcase, many_blocks_lost_in_a_row_are_asked_for_together);
	tcase_add_test(tcase,
		       a_result_that_all_have_lost_is_made_again_by_the_home_host_and_taken_by_all);
	tcase_add_test(tcase, a_rank_that_has_given_its_data_away_takes_no_result_of_the_table);
	tcase_add_test(tcase, a_home_host_that_has_lost_a_result_gets_it_from_ranks);
	tcase_add_test(tcase, every_second_block_is_evicted_and_made_by_its_home_host);
	tcase_add_test(tcase, a_late_duplicate_of_the_last_use_of_a_slot_changes_nothing);
	tcase_add_loop_test(tcase, blocks_far_ahead_take_nothing_from_others, 0, 10);
	tcase_add_test(tcase, a_home_host_that_is_deaf_for_a_while_is_waited_for);
	tcase_add_loop_test(tcase, ranks_that_come_and_go_are_waited_for_and_hardly_asked, 0, 4);
	tcase_add_loop_test(tcase, a_rank_that_is_late_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_rank_that_dies_is_named_by_all_within_the_timeout, 0, 4);
	tcase_add_test(tcase, a_rank_that_dies_after_it_has_sent_a_block_is_named);
	tcase_add_loop_test(tcase, ranks_that_disagree_fail_all_and_none_hangs, 0, 4);
	tcase_add_test(tcase, jobs_that_share_switches_keep_apart);
	tcase_add_test(tcase, a_run_ends_when_all_have_its_last_result);
	tcase_add_test(tcase, a_job_that_accumulates_in_a_longer_type_is_refused_by_name);
	tcase_add_test(tcase, a_job_of_more_than_64_ranks_is_refused_by_hosts);
	tcase_add_loop_test(tcase, what_is_left_of_a_run_completes_in_the_next_one, 0, 12);
	tcase_add_test(tcase, a_home_host_makes_nothing_of_sums_of_an_earlier_run);
	suite_add_tcase(suite, exact);
	suite_add_tcase(suite, tcase);
	return suite;
}
