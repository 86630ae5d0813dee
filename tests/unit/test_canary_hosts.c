/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's hosts in one process and in virtual time: real engines around real switches, leaves and spines. Sums are exact and the same bits on all ranks whatever is
 * lost, doubled or reordered on any link, however few descriptors there are; where nothing is lost, nobody asks.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/canary.h"
#include "hostlib/src/canary/canary_internal.h"
#include "reference/perf_collective.h"
#include "reference/random.h"
#include "rig/leaders.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 64
#define MOST_BYTES (1u << 20)
#define MOST_REQUESTS 3
#define TIMEOUT_NS (5 * SECOND)
#define RUN 1000

struct trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint16_t n_spines;
	uint16_t window;
	uint32_t descriptors; /* of each switch */
	uint32_t timeout_us;  /* of descriptors; 0: learned */
	uint64_t delay_ns;    /* of a host's link; 0: 2 us */
	double faults;
	bool has_pairs; /* each rank is linked to two leaves, which n_leaves counts */
};

/* A rank's transport: the rig's, but for what is lost on it. */
struct ear {
	struct fanin_transport transport; /* first */
	struct fanin_transport *inner;
	uint16_t rank;
	unsigned int unflushed; /* frames sent since the last flush */
};

struct member {
	struct fanin_endpoint *engine;
	struct fanin_transport *bundle; /* of a rank with two links */
	struct ear ear;
	struct fanin_request requests[MOST_REQUESTS];
	struct perf_collective collectives[MOST_REQUESTS];
	uint8_t *send[MOST_REQUESTS];
	uint8_t *recv[MOST_REQUESTS]; /* the same where it is in place */
	bool taken[MOST_REQUESTS];    /* result and memory were looked at, and used again */
	uint64_t digest[MOST_REQUESTS];
	bool is_dead;
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct job_spec spec;
	struct rig_leaders job;
	uint32_t n_requests;
	struct member members[MOST_RANKS];
	uint64_t wait_limit_ns; /* of rank: */
	uint16_t impatient;
	uint64_t full;   /* ranks that have no room to send */
	uint64_t queued; /* ranks before whose packets many wait to leave their host */
	bool (*is_lost)(uint16_t rank, const struct fanin_headers *headers); /* NULL: nothing is */
} world;

static unsigned int n_unflushed; /* frames when an engine had failed: its owner may never poll again */
static bool eal_is_there;        /* a test may open several worlds, one after the other */

/* ------------------------------------------------------------------ world */

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

	ck_assert_msg(member->requests[r].status == FANIN_OK, "seed %lu, rank %u: %s",
		      (unsigned long)world.trial.seed, collective->rank,
		      fanin_engine_error(member->engine)->text);
	member->digest[r] = digest_of(got, range.n * size);
	if (collective->data.dtype != FANIN_F32) {
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

	if ((world.full >> ear->rank & 1) != 0)
		return NULL;
	return ear->inner->ops->tx_reserve(ear->inner, len);
}

static void
ear_commit(struct fanin_transport *transport, uint32_t len)
{
	struct ear *ear = (struct ear *)transport;

	ear->unflushed++;
	ear->inner->ops->tx_commit(ear->inner, len);
}

static int
ear_flush(struct fanin_transport *transport)
{
	((struct ear *)transport)->unflushed = 0;
	return 0;
}

static uint32_t
ear_waiting(struct fanin_transport *transport)
{
	return (world.queued >> ((struct ear *)transport)->rank & 1) != 0 ? 1000 : 0;
}

static void
ear_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct ear *ear = (struct ear *)transport;

	ear->inner->ops->rx_release(ear->inner, frames, n);
}

static unsigned int
ear_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct ear *ear = (struct ear *)transport;
	unsigned int n, kept = 0;

	do {
		n = ear->inner->ops->rx_burst(ear->inner, frames, max);
		for (unsigned int i = 0; i < n; i++) {
			if (world.is_lost != NULL && world.is_lost(ear->rank, frames[i].data))
				ear_release(transport, &frames[i], 1);
			else
				frames[kept++] = frames[i];
		}
	} while (n != 0 && kept == 0);
	return kept;
}

static const struct fanin_transport_ops ear_ops = {
	.name = "ear",
	.tx_reserve = ear_reserve,
	.tx_commit = ear_commit,
	.tx_flush = ear_flush,
	.tx_waiting = ear_waiting,
	.rx_burst = ear_burst,
	.rx_release = ear_release,
};

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;
	uint64_t idle_ns;

	if (member->is_dead)
		return;
	if (fanin_engine_poll(member->engine) < 0)
		n_unflushed += member->ear.unflushed;
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = fanin_engine_idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

static struct rig_host *
host_of(uint16_t rank)
{
	return world.network.hosts[world.job.hosts[rank]];
}

static void
engine_open(uint16_t rank, uint64_t nonce)
{
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS };
	struct fanin_peer peers[MOST_RANKS];
	struct fanin_error error = { 0 };
	struct fanin_canary *canary;
	int status;

	rig_leaders_config(&world.job, rank, peers, &config);
	if (world.trial.has_pairs) {
		struct rig_host *second = world.network.hosts[rig_leaders_second(&world.job, rank)];
		struct fanin_transport *const parts[2] = { config.transport,
							   rig_host_transport(second) };

		ck_assert_int_eq(fanin_bundle_open(parts, rig_host_mac(second),
						   &world.members[rank].bundle, &error),
				 FANIN_OK);
		config.transport = world.members[rank].bundle;
		rig_host_set_poll(second, member_poll, &world.members[rank]);
	} else {
		world.members[rank].ear = (struct ear){ .transport = { .ops = &ear_ops },
							.inner = config.transport,
							.rank = rank };
		config.transport = &world.members[rank].ear.transport;
	}
	config.wait_limit_ns = rank == world.impatient ? world.wait_limit_ns : 0;
	status = fanin_protocol_canary.open(&fanin_protocol_canary, &config,
					    &world.members[rank].engine, &error);
	ck_assert_msg(status == FANIN_OK, "%s", error.text);
	canary = canary_of(fanin_engine_of(world.members[rank].engine));
	canary->seed = (struct canary_seed){ .nonce = nonce, .roll = 77 + nonce, .run = RUN };
	fanin_canary_roll_begin(canary);
	rig_host_set_poll(host_of(rank), member_poll, &world.members[rank]);
	rig_host_wake(host_of(rank), rig_now_ns(world.rig));
}

static void
open_network(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end host_end = { .egress = { .rate_mbit = 1000 },
					  .delay_ns = trial->delay_ns != 0 ? trial->delay_ns : 2000 };
	const struct rig_end up_end = { .egress = { .rate_mbit = 1000 }, .delay_ns = 2000 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks * (trial->has_pairs ? 2 : 1) / trial->n_leaves,
		.n_spines = trial->n_spines,
		.host_end = host_end,
		.up_end = up_end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 2,
		.slots = 64,
		.shared_slots = trial->descriptors,
	};
	char error[RIG_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	world.spec = (struct job_spec){
		.handler = "canary",
		.slots = 2u * trial->window,
		.n_parameters = trial->timeout_us != 0,
		.parameters = { { .name = "timeout_us", .value = trial->timeout_us } },
	};
	ret = rig_leaders_create(&world.network, &world.spec, NULL, trial->n_ranks,
				 trial->has_pairs, &world.job, error);
	ck_assert_msg(ret == 0, "%s", error);
}

static void
open_world(const struct trial *trial)
{
	open_network(trial);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank, 100u + rank);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];

		fanin_engine_close(member->engine);
		if (member->bundle != NULL)
			member->bundle->ops->close(member->bundle);
		for (uint32_t r = 0; r < world.n_requests; r++) {
			if (member->recv[r] != member->send[r])
				free(member->recv[r]);
			free(member->send[r]);
		}
	}
	rig_leaders_destroy(&world.job);
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* ------------------------------------------------------------------ requests */

static void
post(uint16_t rank, uint32_t r, const struct perf_collective *like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	struct member *member = &world.members[rank];
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
	ck_assert_int_eq(fanin_protocol_canary.post(member->engine, &member->requests[r], count),
			 FANIN_OK);
	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	rig_host_wake(host_of(rank), rig_now_ns(world.rig));
}

static void
post_all(uint32_t r, const struct perf_collective *like)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		post(rank, r, like);
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < world.n_requests && !world.members[rank].is_dead; r++) {
			if (!world.members[rank].taken[r] &&
			    world.members[rank].requests[r].status >= 0)
				return false;
		}
	}
	return true;
}

/* Until all are done. Returns how long that took. */
static uint64_t
run_all(void)
{
	const uint64_t begin_ns = rig_now_ns(world.rig);

	rig_run(world.rig, begin_ns + 600 * SECOND, all_done, NULL);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_msg(world.members[rank].taken[r],
				      "seed %lu, rank %u, request %u: %s",
				      (unsigned long)world.trial.seed, rank, r,
				      fanin_engine_error(world.members[rank].engine)->text);
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

/* Of all ranks. */
struct totals {
	uint64_t queries;
	uint64_t asks;
	uint64_t retransmits;
	uint64_t restores;
	uint64_t repeats;
	uint64_t duplicates;
	uint64_t invalid;
	uint64_t led;
	uint64_t direct;
};

static struct totals
totals(void)
{
	struct totals sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct fanin_endpoint *engine = world.members[rank].engine;
		const struct fanin_engine_stats *blocks = fanin_engine_stats(engine);
		const struct fanin_canary_stats *stats = fanin_canary_stats(engine);

		sum.queries += blocks->queries;
		sum.asks += stats->asks;
		sum.retransmits += blocks->retransmits;
		sum.restores += stats->restores;
		sum.repeats += stats->repeats;
		sum.duplicates += blocks->duplicates;
		sum.invalid += blocks->invalid;
		sum.led += stats->led;
		sum.direct += stats->direct;
	}
	return sum;
}

/* ------------------------------------------------------------------ tests */

static const struct trial quiet_trials[] = {
	{ .n_ranks = 1, .n_leaves = 1, .n_spines = 0, .window = 16, .descriptors = 1024 },
	{ .n_ranks = 2, .n_leaves = 1, .n_spines = 0, .window = 16, .descriptors = 1024 },
	{ .n_ranks = 2, .n_leaves = 2, .n_spines = 1, .window = 64, .descriptors = 1024 },
	{ .n_ranks = 4, .n_leaves = 2, .n_spines = 2, .window = 64, .descriptors = 1024 },
	{ .n_ranks = 16, .n_leaves = 4, .n_spines = 4, .window = 64, .descriptors = 4096 },
};

START_TEST(without_loss_nobody_asks)
{
	const struct perf_collective sum = sum_of(100000);
	struct trial trial = quiet_trials[_i];
	struct totals found;

	trial.seed = 1;
	open_world(&trial);
	post_all(0, &sum);
	run_all();
	found = totals();
	ck_assert_uint_eq(found.queries, 0);
	ck_assert_uint_eq(found.asks, 0);
	ck_assert_uint_eq(found.retransmits, 0);
	ck_assert_uint_eq(found.repeats, 0);
	ck_assert_uint_eq(found.invalid, 0);
	ck_assert_uint_eq(found.led, 1 + (100000 * 4 + 1407) / 1408);
	close_world();
}
END_TEST

/* A packet without data of another job, in the name of its rank, which is at the port of this one's. */
static void
forge(const struct rig_leaders *other, uint16_t rank, uint32_t block)
{
	const uint32_t leader = block % other->n_ranks;
	struct fanin_flow flow = rig_host_flow(&world.network, other->hosts[rank]);
	struct fanin_headers headers;

	flow.dst_ip_be = rig_host_ip_be(&world.network, other->hosts[leader]);
	fanin_wire_encode_l4(&headers, &flow, 0);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_REDUCE, other->id, RUN + 1,
				 other->leaf_jobs[0]->params.keys.up);
	headers.fanin.rank = rank;
	headers.fanin.contributions = 1;
	headers.fanin.block = block;
	headers.fanin.members = UINT64_C(1) << rank;
	headers.fanin.flags = FANIN_FLAG_EMPTY;
	headers.fanin.dtype = FANIN_WIRE_I32;
	headers.fanin.op = FANIN_WIRE_SUM;
	headers.fanin.count = 1;
	if (leader != rank)
		ck_assert(rig_host_send(host_of(rank), &headers, FANIN_PAYLOAD_OFFSET));
}

static uint64_t
job_counter(const struct job *job, enum canary_counter counter)
{
	struct fanin_handler_stats stats;

	job_stats(job, &stats);
	return stats.own[counter];
}

static uint64_t
time_beside(const struct trial *trial, bool is_attacked)
{
	const struct perf_collective sum = sum_of(200000);
	struct rig_leaders other;
	char error[RIG_ERROR_LEN] = "";
	uint64_t ns;
	int ret;

	open_network(trial);
	ret = rig_leaders_create(&world.network, &world.spec, NULL, trial->n_ranks, false, &other,
				 error);
	ck_assert_msg(ret == 0, "%s", error);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank, 100u + rank);
	for (uint32_t block = 0; is_attacked && block < 2 * trial->descriptors; block++) {
		for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
			forge(&other, rank, block);
		rig_run(world.rig, rig_now_ns(world.rig) + 10000, NULL, NULL);
	}
	/* Their timers have expired, and no result comes. */
	rig_run(world.rig, rig_now_ns(world.rig) + 10 * MS, NULL, NULL);
	if (is_attacked)
		ck_assert_uint_ge(job_counter(other.leaf_jobs[0], CANARY_REDUCES),
				  trial->descriptors);
	post_all(0, &sum);
	ns = run_all();
	for (uint16_t leaf = 0; leaf < trial->n_leaves; leaf++)
		ck_assert_uint_eq(job_counter(world.job.leaf_jobs[leaf], CANARY_COLLISIONS), 0);
	rig_leaders_destroy(&other);
	close_world();
	return ns;
}

/* By _i: the size of the table. All of it is as well as the forger's, but for what the other job keeps. */
START_TEST(forged_blocks_of_another_job_take_no_descriptor_and_no_time)
{
	static const uint32_t descriptors[] = { 128, 256, 1024 };
	const struct trial trial = { .seed = 3,
				     .n_ranks = 8,
				     .n_leaves = 2,
				     .n_spines = 2,
				     .window = 64,
				     .descriptors = descriptors[_i] };
	const uint64_t usual_ns = time_beside(&trial, false), ns = time_beside(&trial, true);

	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
}
END_TEST

static struct trial
trial_of(unsigned int i)
{
	static const uint16_t ranks[] = { 2, 4, 8, 16, 6, 32 };
	static const uint16_t leaves[] = { 1, 2, 4, 4, 3, 8 };
	static const double faults[] = { 0.01, 0.03, 0.1 };
	static const uint16_t windows[] = { 64, 16, 4, 256 };
	static const uint32_t descriptors[] = { 16, 64, 4096 };

	return (struct trial){
		.seed = i + 100,
		.n_ranks = ranks[i % 6],
		.n_leaves = leaves[i % 6],
		.n_spines = i % 6 == 0 ? 0 : 1 + i / 6 % 4,
		.window = windows[i / 3 % 4],
		.descriptors = descriptors[i / 2 % 3],
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
	close_world();
}
END_TEST

/* By _i: the data type. All operators, and all collectives, in a network that loses. */
START_TEST(all_collectives_and_operators_are_exact)
{
	const struct trial trial = { .seed = (uint64_t)_i,
				     .n_ranks = 4,
				     .n_leaves = 2,
				     .n_spines = 2,
				     .window = 32,
				     .descriptors = _i % 3 == 0 ? 16 : 1024,
				     .faults = 0.02 };
	struct perf_collective like = { .root = 2,
					.data = { .dtype = (enum fanin_dtype)_i, .seed = 3 } };

	for (enum perf_collective_kind kind = PERF_ALLREDUCE; kind < PERF_COLLECTIVES; kind++) {
		like.kind = kind;
		for (like.data.op = FANIN_SUM; like.data.op <= FANIN_AVG; like.data.op++) {
			if (!fanin_supports(like.data.dtype, like.data.op) ||
			    (like.data.op != FANIN_SUM && kind != PERF_ALLREDUCE))
				continue;
			like.count = kind == PERF_BARRIER ? 0 : 4000;
			open_world(&trial);
			post_all(0, &like);
			run_all();
			close_world();
		}
	}
}
END_TEST

static const struct trial usual = {
	.seed = 3, .n_ranks = 8, .n_leaves = 2, .n_spines = 2, .window = 64, .descriptors = 1024
};

/* Which packets meet, and so the order of additions, differs from block to block, but not from rank to rank. */
START_TEST(float_sums_have_the_same_bits_on_all_ranks)
{
	struct perf_collective sum = sum_of(50000);
	struct trial trial = usual;

	trial.faults = 0.02;
	trial.descriptors = _i == 0 ? 16 : 1024;
	sum.data.dtype = FANIN_F32;
	open_world(&trial);
	post_all(0, &sum);
	run_all();
	for (uint16_t rank = 1; rank < trial.n_ranks; rank++)
		ck_assert_uint_eq(world.members[rank].digest[0], world.members[0].digest[0]);
	close_world();
}
END_TEST

static bool
all_ready(void *user)
{
	struct fanin_error problem;

	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (!fanin_canary_ready(world.members[rank].engine, &problem))
			return false;
	}
	return true;
}

/* Of all ranks but one that is dead or late: the request's status. */
static int
others_status(uint16_t but)
{
	int status = FANIN_IN_PROGRESS;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (rank == but)
			continue;
		if (status == FANIN_IN_PROGRESS)
			status = world.members[rank].requests[0].status;
		ck_assert_int_eq(world.members[rank].requests[0].status, status);
	}
	return status;
}

static bool
all_have_failed(void *user)
{
	const uint16_t but = *(const uint16_t *)user;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (rank != but && world.members[rank].requests[0].status >= 0)
			return false;
	}
	return true;
}

/* By _i: the rank. All others name it, at about the same time. */
START_TEST(a_rank_that_is_gone_is_named_by_all_others)
{
	const struct perf_collective sum = sum_of(200000);
	struct trial trial = usual;
	uint16_t gone = (uint16_t)_i;
	uint64_t gone_ns;

	trial.faults = _i % 2 == 0 ? 0 : 0.01;
	open_world(&trial);
	post_all(0, &sum);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * MS, NULL, NULL);
	world.members[gone].is_dead = true;
	gone_ns = rig_now_ns(world.rig);
	ck_assert(rig_run(world.rig, gone_ns + 60 * SECOND, all_have_failed, &gone));
	ck_assert_uint_le(rig_now_ns(world.rig) - gone_ns, TIMEOUT_NS + TIMEOUT_NS / 4);
	ck_assert_int_eq(others_status(gone), FANIN_ERR_TIMEOUT);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		struct fanin_ranks missing;

		if (rank == gone)
			continue;
		fanin_engine_missing(world.members[rank].engine, &missing);
		ck_assert_msg(missing.words[0] == UINT64_C(1) << gone, "rank %u: %s", rank,
			      fanin_engine_error(world.members[rank].engine)->text);
	}
	close_world();
}
END_TEST

/* True if a rank knows that another one is merely late. */
static bool
is_late(uint16_t rank, uint16_t late)
{
	struct fanin_ranks ranks;

	fanin_engine_late(world.members[rank].engine, &ranks);
	return fanin_ranks_has(&ranks, late);
}

/* By _i: the rank that is late. Longer than the timeout, but it is there: the others wait, and ask now and then only. */
START_TEST(a_late_rank_is_waited_for)
{
	const struct perf_collective sum = sum_of(100000);
	struct trial trial = usual;
	const uint16_t late = (uint16_t)_i;
	struct totals found;

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		if (rank != late)
			post(rank, 0, &sum);
	}
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	ck_assert_int_eq(others_status(late), FANIN_IN_PROGRESS);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		if (rank != late)
			ck_assert(is_late(rank, late));
	}
	found = totals();
	/* At most two a second and rank, and those while the intervals still grow. */
	ck_assert_uint_le(found.queries + found.asks, 20 * 2 * 8 + 200);
	post(late, 0, &sum);
	ck_assert_uint_le(run_all(), 200 * MS);
	close_world();
}
END_TEST

static void
swallow(struct rig_host *host, const void *frame, uint32_t len, void *user)
{
	(void)host;
	(void)frame;
	(void)len;
	(void)user;
}

static bool
others_done(void *user)
{
	const uint16_t but = *(const uint16_t *)user;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (rank != but && !world.members[rank].taken[0])
			return false;
	}
	return true;
}

static bool
all_have_sent(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (fanin_engine_stats(world.members[rank].engine)->blocks < 50)
			return false;
	}
	return true;
}

/* Nobody else has anything in progress, as their applications compute: leaders answer all the same. */
START_TEST(the_last_results_to_one_rank_are_lost_and_all_others_compute)
{
	const struct perf_collective sum = sum_of(20000); /* 57 blocks */
	uint16_t deaf = 3;

	open_world(&usual);
	post_all(0, &sum);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_have_sent, NULL));
	rig_host_set_take(host_of(deaf), swallow, NULL);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + 10 * SECOND, others_done, &deaf));
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * SECOND, NULL, NULL);
	ck_assert(!world.members[deaf].taken[0]);
	rig_host_set_take(host_of(deaf), NULL, NULL);
	ck_assert_uint_le(run_all(), SECOND);
	close_world();
}
END_TEST

/* All switches forget what they know of the run, one after the other, in the middle of it. */
START_TEST(switches_that_forget_cost_time_only)
{
	const struct perf_collective sum = sum_of(200000);
	struct trial trial = usual;
	char error[PIPELINE_ERROR_LEN];

	trial.seed = (uint64_t)_i;
	open_world(&trial);
	post_all(0, &sum);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	for (unsigned int i = 0; i < 4u; i++) {
		struct rig_switch *sw = i < 2 ? world.network.leaves[i] : world.network.spines[i - 2];

		rig_run(world.rig, rig_now_ns(world.rig) + 700000 + 100000u * (unsigned int)_i,
			NULL, NULL);
		rig_job_remove(sw, world.job.id);
		rig_run(world.rig, rig_now_ns(world.rig) + 100000, NULL, NULL);
		ck_assert_int_eq(rig_leaders_restore(&world.job, &world.spec, i < 2, i % 2, error),
				 0);
	}
	ck_assert_uint_le(run_all(), SECOND);
	close_world();
}
END_TEST

/* A leaf dies in the middle of it, and comes back after a while. By _i: which one, and when. */
START_TEST(ranks_with_two_links_go_on_by_the_other_one)
{
	const struct perf_collective sum = sum_of(250000);
	const struct trial trial = { .seed = (uint64_t)_i,
				     .n_ranks = 8,
				     .n_leaves = 4,
				     .n_spines = 2,
				     .window = 64,
				     .descriptors = 1024,
				     .has_pairs = true };
	struct rig_switch *leaf;
	uint64_t ns;

	open_world(&trial);
	post_all(0, &sum);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	rig_run(world.rig, rig_now_ns(world.rig) + 300000 * (uint64_t)(1 + _i / 4), NULL, NULL);
	leaf = world.network.leaves[_i % 4];
	rig_switch_kill(leaf, true);
	ns = run_all();
	ck_assert_msg(ns <= 300 * MS, "%lu ms", (unsigned long)(ns / MS));
	rig_switch_kill(leaf, false);
	post_all(1, &sum);
	ck_assert_uint_le(run_all(), 500 * MS);
	rig_switch_kill(world.network.leaves[(_i + 1) % 4], true);
	post_all(2, &sum);
	ck_assert_uint_le(run_all(), 500 * MS);
	rig_switch_kill(world.network.leaves[(_i + 1) % 4], false);
	close_world();
}
END_TEST

START_TEST(ranks_that_disagree_are_told)
{
	struct perf_collective sum = sum_of(10000);
	uint16_t none = UINT16_MAX;

	open_world(&usual);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		sum.data.op = rank == 5 ? FANIN_MAX : FANIN_SUM;
		post(rank, 0, &sum);
	}
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_have_failed, &none));
	ck_assert_int_eq(others_status(none), FANIN_ERR_REFUSED);
	ck_assert_uint_eq(n_unflushed, 0);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		const struct fanin_error *error = fanin_engine_error(world.members[rank].engine);

		/* Of two that differ nobody knows who is wrong. */
		ck_assert_msg(fanin_ranks_has(&error->missing, 5) &&
				      fanin_ranks_count(&error->missing) <= 2,
			      "%s", error->text);
		ck_assert(strstr(error->text, "posted another collective") != NULL);
	}
	close_world();
}
END_TEST

/* The last rank is missing; then another process of rank 1 takes part in the roll instead of the first one. */
START_TEST(a_run_begins_when_all_have_called_and_with_those_that_are_there)
{
	const struct perf_collective sum = sum_of(1000);
	const uint16_t last = usual.n_ranks - 1;
	struct fanin_error problem;

	open_network(&usual);
	for (uint16_t rank = 0; rank < last; rank++)
		engine_open(rank, 10u + rank);
	rig_run(world.rig, rig_now_ns(world.rig) + 10 * SECOND, NULL, NULL);
	for (uint16_t rank = 0; rank < last; rank++) {
		ck_assert(!fanin_canary_ready(world.members[rank].engine, &problem));
		ck_assert_msg(strcmp(problem.text, "rank 7 did not answer rank 0's roll") == 0,
			      "%s", problem.text);
	}
	fanin_engine_close(world.members[1].engine);
	engine_open(1, 999);
	engine_open(last, 10u + last);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	post_all(0, &sum);
	run_all();
	/* One more process of that rank is none of the run's. */
	fanin_engine_close(world.members[1].engine);
	engine_open(1, 1000);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	ck_assert(!fanin_canary_ready(world.members[1].engine, &problem));
	close_world();
}
END_TEST

START_TEST(without_rank_0_it_is_named)
{
	struct fanin_error problem;

	open_network(&usual);
	for (uint16_t rank = 1; rank < usual.n_ranks; rank++)
		engine_open(rank, 10u + rank);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	ck_assert(!fanin_canary_ready(world.members[1].engine, &problem));
	ck_assert(strstr(problem.text, "rank 0, which calls the roll, does not answer") != NULL);
	engine_open(0, 10);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	close_world();
}
END_TEST

/* The ranks leave together: the leader of the last block when all have told. */
START_TEST(ranks_leave_when_all_have_all_results)
{
	const struct perf_collective sum = sum_of(10000);
	const struct perf_collective closing = { .kind = PERF_BARRIER,
						 .data = { .dtype = FANIN_U8, .op = FANIN_BOR } };
	unsigned int n_waiting = 0;

	open_world(&usual);
	post_all(0, &sum);
	run_all();
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		ck_assert(fanin_protocol_canary.on_switch->peers_may_need_results(
			world.members[rank].engine));
	post_all(1, &closing);
	run_all();
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		n_waiting += !fanin_canary_say_bye(fanin_engine_of(world.members[rank].engine));
	ck_assert_uint_eq(n_waiting, 1);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		ck_assert(fanin_canary_say_bye(fanin_engine_of(world.members[rank].engine)));
	close_world();
}
END_TEST

/* Descriptors wait for long, as their operator wants it: ranks know that, and don't ask before. */
START_TEST(long_timeouts_make_nobody_ask)
{
	const struct perf_collective sum = sum_of(100000);
	struct trial trial = usual;
	struct totals found;

	trial.timeout_us = _i == 0 ? 2000 : 5000;
	open_world(&trial);
	for (uint32_t r = 0; r < 2; r++) {
		post_all(r, &sum);
		run_all();
	}
	found = totals();
	ck_assert_msg(found.queries == 0 && found.asks == 0,
		      "%lu queries, %lu asks, %lu retransmits", (unsigned long)found.queries,
		      (unsigned long)found.asks, (unsigned long)found.retransmits);
	close_world();
}
END_TEST

/* By _i: round trips of 12, 100 and 400 ms. What hosts ask before they know them is little, and afterwards they ask nothing. */
START_TEST(long_round_trips_are_learned)
{
	static const uint64_t delays_ns[] = { 3 * MS, 25 * MS, 100 * MS };
	const struct perf_collective sum = sum_of(100000);
	struct trial trial = usual;
	struct totals first, found;

	trial.delay_ns = delays_ns[_i];
	open_world(&trial);
	post_all(0, &sum);
	run_all();
	first = totals();
	ck_assert_uint_le(first.queries + first.asks, first.led);
	for (uint32_t r = 1; r < 3; r++) {
		post_all(r, &sum);
		run_all();
	}
	found = totals();
	ck_assert_msg(found.queries == first.queries && found.asks == first.asks,
		      "%lu and %lu queries, %lu and %lu asks", (unsigned long)first.queries,
		      (unsigned long)found.queries, (unsigned long)first.asks,
		      (unsigned long)found.asks);
	close_world();
}
END_TEST

static bool
the_first_word_of_rank_3_to_rank_2(uint16_t rank, const struct fanin_headers *headers)
{
	return rank == 2 && headers->fanin.type == FANIN_TYPE_ANSWER && headers->fanin.rank == 3 &&
	       (headers->fanin.block & 7) == 3;
}

/* Rank 3 does not wait for rank 0 any longer. Rank 2 does not hear that, and asks rank 1, which leads the block. */
START_TEST(who_has_not_heard_of_the_end_is_told_by_others)
{
	const struct perf_collective sum = sum_of(100000);
	uint16_t none = UINT16_MAX;
	uint64_t begin_ns;

	open_network(&usual);
	world.impatient = 3;
	world.wait_limit_ns = 2 * SECOND;
	world.is_lost = the_first_word_of_rank_3_to_rank_2;
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++)
		engine_open(rank, 100u + rank);
	for (uint16_t rank = 1; rank < usual.n_ranks; rank++)
		post(rank, 0, &sum);
	begin_ns = rig_now_ns(world.rig);
	none = 0;
	ck_assert(rig_run(world.rig, begin_ns + 20 * SECOND, all_have_failed, &none));
	for (uint16_t rank = 1; rank < usual.n_ranks; rank++) {
		struct fanin_ranks missing;

		fanin_engine_missing(world.members[rank].engine, &missing);
		ck_assert_msg(missing.words[0] == (rank == 3 ? 1 : UINT64_C(1) << 3), "rank %u: %s",
			      rank, fanin_engine_error(world.members[rank].engine)->text);
	}
	ck_assert_uint_le(rig_now_ns(world.rig) - begin_ns, 3 * SECOND);
	close_world();
}
END_TEST

/* Alone there is nobody to wait for. */
START_TEST(one_rank_leaves_at_once)
{
	const struct perf_collective barrier = { .kind = PERF_BARRIER,
						 .data = { .dtype = FANIN_U8, .op = FANIN_BOR } };

	open_world(&quiet_trials[0]);
	post_all(0, &barrier);
	run_all();
	ck_assert(fanin_canary_say_bye(fanin_engine_of(world.members[0].engine)));
	close_world();
}
END_TEST

static const struct trial odd_trials[] = {
	{ .n_ranks = 64, .n_leaves = 8, .n_spines = 2, .window = 2, .descriptors = 64 },
	{ .n_ranks = 64, .n_leaves = 8, .n_spines = 2, .window = 64, .descriptors = 16 },
	{ .n_ranks = 3, .n_leaves = 3, .n_spines = 2, .window = 2, .descriptors = 16 },
	{ .n_ranks = 7, .n_leaves = 1, .n_spines = 0, .window = 2, .descriptors = 16 },
	{ .n_ranks = 2, .n_leaves = 2, .n_spines = 1, .window = 2, .descriptors = 1024 },
	{ .n_ranks = 15, .n_leaves = 5, .n_spines = 3, .window = 8, .descriptors = 16 },
};

/* More ranks than blocks in flight, and numbers of ranks that are no power of two. */
START_TEST(windows_may_be_smaller_than_the_job)
{
	struct trial trial = odd_trials[_i / 2];
	struct perf_collective like = sum_of(8000);

	trial.seed = (uint64_t)_i + 500;
	trial.faults = _i % 2 == 0 ? 0.05 : 0;
	open_world(&trial);
	for (uint32_t r = 0; r < 3; r++) {
		post_all(r, &like);
		like.count = 700;
	}
	run_all();
	close_world();
}
END_TEST

static bool
half_of_results(uint16_t rank, const struct fanin_headers *headers)
{
	static uint32_t n;

	return rank % 2 == 1 && (headers->fanin.type == FANIN_TYPE_RESULT ||
				 headers->fanin.type == FANIN_TYPE_ANSWER ||
				 (headers->fanin.type == FANIN_TYPE_REPEAT && ++n % 2 == 0));
}

static bool
large_packets_to_rank_3(uint16_t rank, const struct fanin_headers *headers)
{
	return rank == 3 && fanin_wire_payload_len(headers) > 200;
}

START_TEST(results_come_by_repetition_alone)
{
	const struct perf_collective sum = sum_of(20000);

	open_world(&usual);
	world.is_lost = half_of_results;
	post_all(0, &sum);
	run_all();
	close_world();
}
END_TEST

/* It has no results, although all others answer it: it goes, and they name it. */
START_TEST(a_rank_that_large_packets_never_reach_is_named)
{
	const struct perf_collective sum = sum_of(20000);
	uint16_t none = UINT16_MAX;
	uint64_t begin_ns;

	open_world(&usual);
	world.is_lost = large_packets_to_rank_3;
	begin_ns = rig_now_ns(world.rig);
	post_all(0, &sum);
	ck_assert(rig_run(world.rig, begin_ns + 60 * SECOND, all_have_failed, &none));
	ck_assert_uint_le(rig_now_ns(world.rig) - begin_ns, TIMEOUT_NS + TIMEOUT_NS / 4);
	for (uint16_t rank = 0; rank < usual.n_ranks; rank++) {
		struct fanin_ranks missing;

		fanin_engine_missing(world.members[rank].engine, &missing);
		ck_assert_msg(missing.words[0] == (rank == 3 ? 0u : 1u << 3), "rank %u: %s", rank,
			      fanin_engine_error(world.members[rank].engine)->text);
	}
	close_world();
}
END_TEST

/* The leader has its own result, and waits for nothing. */
START_TEST(a_result_leaves_as_soon_as_there_is_room)
{
	const struct trial trial = { .n_ranks = 2, .n_leaves = 1, .window = 16, .descriptors = 64 };
	const struct perf_collective sum = sum_of(10);

	open_world(&trial);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	post(0, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 2, NULL, NULL);
	/* Rank 1 leads block 1. */
	world.full = 2;
	post(1, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 2, NULL, NULL);
	ck_assert(world.members[1].taken[0]);
	ck_assert(!world.members[0].taken[0]);
	world.full = 0;
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 2, NULL, NULL);
	ck_assert(world.members[0].taken[0]);
	ck_assert_uint_eq(totals().queries, 0);
	close_world();
}
END_TEST

/* A result waits behind no more data than keeps the link busy. */
START_TEST(data_is_held_back_behind_a_queue_and_results_are_not)
{
	const struct trial trial = { .n_ranks = 2, .n_leaves = 1, .window = 128, .descriptors = 512 };
	const struct perf_collective sum = sum_of(21000); /* 60 blocks */
	uint64_t blocks;

	open_world(&trial);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_ready, NULL));
	blocks = fanin_engine_stats(world.members[0].engine)->blocks;
	world.queued = 2;
	post(1, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 2, NULL, NULL);
	post(0, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + 2 * MS, NULL, NULL);
	/* Of 60 blocks rank 1 leads each second one, and has sent data of some 24. */
	blocks = fanin_engine_stats(world.members[0].engine)->blocks - blocks;
	ck_assert_uint_ge(blocks, 30);
	ck_assert_uint_lt(blocks, 60);
	ck_assert(!world.members[1].taken[0]);
	world.queued = 0;
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert(world.members[0].taken[0] && world.members[1].taken[0]);
	ck_assert_uint_eq(totals().queries, 0);
	close_world();
}
END_TEST

Suite *
suite_canary_hosts(void)
{
	Suite *suite = suite_create("canary_hosts");
	TCase *tcase = tcase_create("canary_hosts"), *forgers = tcase_create("forgers");

	tcase_set_timeout(tcase, 120);
	tcase_set_timeout(forgers, 120);
	tcase_add_loop_test(forgers, forged_blocks_of_another_job_take_no_descriptor_and_no_time, 0,
			    3);
	tcase_add_loop_test(tcase, without_loss_nobody_asks, 0, RTE_DIM(quiet_trials));
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 36);
	tcase_add_loop_test(tcase, all_collectives_and_operators_are_exact, FANIN_I8, FANIN_F64 + 1);
	tcase_add_loop_test(tcase, float_sums_have_the_same_bits_on_all_ranks, 0, 2);
	tcase_add_loop_test(tcase, a_rank_that_is_gone_is_named_by_all_others, 0, 8);
	tcase_add_loop_test(tcase, a_late_rank_is_waited_for, 0, 8);
	tcase_add_test(tcase, the_last_results_to_one_rank_are_lost_and_all_others_compute);
	tcase_add_loop_test(tcase, switches_that_forget_cost_time_only, 0, 8);
	tcase_add_loop_test(tcase, ranks_with_two_links_go_on_by_the_other_one, 0, 16);
	tcase_add_test(tcase, a_result_leaves_as_soon_as_there_is_room);
	tcase_add_test(tcase, data_is_held_back_behind_a_queue_and_results_are_not);
	tcase_add_test(tcase, ranks_that_disagree_are_told);
	tcase_add_test(tcase, a_run_begins_when_all_have_called_and_with_those_that_are_there);
	tcase_add_test(tcase, without_rank_0_it_is_named);
	tcase_add_test(tcase, ranks_leave_when_all_have_all_results);
	tcase_add_loop_test(tcase, long_timeouts_make_nobody_ask, 0, 2);
	tcase_add_loop_test(tcase, long_round_trips_are_learned, 0, 3);
	tcase_add_test(tcase, who_has_not_heard_of_the_end_is_told_by_others);
	tcase_add_test(tcase, one_rank_leaves_at_once);
	tcase_add_loop_test(tcase, windows_may_be_smaller_than_the_job, 0, 2 * RTE_DIM(odd_trials));
	tcase_add_test(tcase, results_come_by_repetition_alone);
	tcase_add_test(tcase, a_rank_that_large_packets_never_reach_is_named);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, forgers);
	return suite;
}
