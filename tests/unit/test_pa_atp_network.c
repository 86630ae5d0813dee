/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP in one process and in virtual time: real engines around real switches, with and without leaves, and real parameter servers. Sums are
 * exact whatever is lost, doubled or reordered on any link, and however few aggregators there are; where nothing is lost, nobody asks.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/pa_atp/pa_atp.h"
#include "hostlib/src/engine/engine_internal.h"
#include "reference/perf_collective.h"
#include "reference/random.h"
#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"
#include "wire/pa_atp.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 16
#define MOST_BYTES (1u << 20)
#define MOST_JOBS 2
#define MOST_REQUESTS 4
#define TYPES FANIN_DUAL_TYPES
#define STRAW 2
#define PA_ATP 5
#define ROUND_TRIP_NS 30000 /* at least, from a host to the server and back */
#define ECT_0 2
#define OVERWRITTEN 0x55
#define MANY_SLOTS 1024

struct trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves; /* 1: they are behind the aggregating switch */
	uint16_t n_jobs;   /* 0: one */
	uint32_t congestion;
	uint32_t aggregators; /* of each switch */
	uint32_t window;
	double faults;
};

struct member {
	struct fanin_endpoint *engine;
	struct fanin_request requests[MOST_REQUESTS];
	uint8_t *send[MOST_REQUESTS];
	uint8_t *recv[MOST_REQUESTS]; /* the same where it is in place */
	bool taken[MOST_REQUESTS];    /* result and memory were looked at, and used again */
	struct perf_collective collectives[MOST_REQUESTS];
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job jobs[MOST_JOBS];
	uint16_t n_jobs;
	uint16_t spine;
	uint32_t n_requests;
	struct member members[MOST_JOBS][MOST_RANKS];
	struct random random;
} world;

static bool eal_is_there; /* a test may open several worlds, one after the other */

/* ------------------------------------------------------------------ world */

static struct member *
member_of(unsigned int job, uint16_t rank)
{
	return &world.members[job][rank];
}

/* The result is what it has to be. All memory is used again at once. */
static void
request_take(struct member *member, uint32_t r)
{
	static uint8_t expected[MOST_BYTES];
	const struct perf_collective *collective = &member->collectives[r];
	const struct perf_range range = perf_collective_receives(collective);
	const size_t size = fanin_dtype_size_of(collective->data.dtype);

	ck_assert_msg(member->requests[r].status == FANIN_OK, "seed %lu, rank %u: %s",
		      (unsigned long)world.trial.seed, collective->rank,
		      fanin_engine_error(member->engine)->text);
	perf_collective_expect(collective, r, range.first, range.n, expected);
	ck_assert_msg(memcmp(member->recv[r] + range.first * size, expected, range.n * size) == 0,
		      "seed %lu, rank %u: wrong", (unsigned long)world.trial.seed, collective->rank);
	memset(member->send[r], OVERWRITTEN, collective->count * size);
	memset(member->recv[r], OVERWRITTEN, collective->count * size);
	member->taken[r] = true;
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;
	uint64_t idle_ns;

	fanin_engine_poll(member->engine);
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = fanin_engine_idle_ns(member->engine);
	/* A call that waits sleeps no longer. */
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

/* Hosts of a second job are polled with those of the first one. */
static void
host_poll(struct rig_host *host, void *user)
{
	const uint16_t rank = (uint16_t)(uintptr_t)user;

	for (uint16_t j = 0; j < world.n_jobs; j++)
		member_poll(host, member_of(j, rank));
}

static void
run_join(uint16_t j)
{
	const struct trial *trial = &world.trial;
	const struct job_spec spec = {
		.handler = "pa-atp",
		.id = world.jobs[j].id,
		.slots = 2 * trial->window,
		.parent = { .is_server = true },
		.n_parameters = 1,
		.parameters = { { .name = "congestion", .value = trial->congestion } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	int ret = rig_job_create(&world.network, &spec, trial->n_ranks, world.spine, &world.jobs[j],
				 error);

	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.jobs[j], 600 * SECOND), 0);
}

static void
engine_open(uint16_t j, uint16_t rank)
{
	const struct rig_joining *joining = &world.jobs[j].joining[rank];
	const struct fanin_join_ack_body *ack = &joining->ack;
	const uint64_t congestion = ack->parameters[FANIN_PA_ATP_CONGESTION];
	struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND, .recover = true };

	struct fanin_error error = { 0 };

	ck_assert_uint_eq(congestion, world.trial.congestion);
	ck_assert_uint_ne(ack->slots, 0);
	rig_protocol_config(&world.jobs[j], rank, &config);
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_pa_atp, &config,
					   &member_of(j, rank)->engine, &error),
			 FANIN_OK);
}

static void
open_world(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	/* Hosts can't fill a queue. */
	const struct rig_end host_end = { .egress = { .rate_mbit = 1000 }, .delay_ns = 2000 };
	const struct rig_end end = { .egress = { .rate_mbit = 25000 }, .delay_ns = 2000 };
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks / trial->n_leaves,
		.n_spines = trial->n_leaves == 1 ? 0 : 2,
		.host_end = host_end,
		.up_end = end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 2,
		.slots = 64,
		.shared_slots = trial->aggregators,
		.servers = true,
		.server = { .max_jobs = 2, .memory_bytes = 64 << 20, .seed = trial->seed, .end = end },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.random = random_seed(trial->seed + 1);
	world.n_jobs = trial->n_jobs == 0 ? 1 : trial->n_jobs;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	for (uint16_t j = 0; j < world.n_jobs; j++) {
		run_join(j);
		for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
			engine_open(j, rank);
	}
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		rig_host_set_poll(world.network.hosts[rank], host_poll, (void *)(uintptr_t)rank);
}

static void
close_world(void)
{
	for (uint16_t j = 0; j < world.n_jobs; j++) {
		for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
			struct member *member = member_of(j, rank);

			fanin_engine_close(member->engine);
			for (uint32_t r = 0; r < world.n_requests; r++) {
				if (member->recv[r] != member->send[r])
					free(member->recv[r]);
				free(member->send[r]);
			}
		}
		rig_job_destroy(&world.jobs[j]);
	}
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* ------------------------------------------------------------------ requests */

static void
post(uint16_t j, uint16_t rank, uint32_t r, const struct perf_collective *like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	struct member *member = member_of(j, rank);
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
	rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
}

static void
post_all(uint32_t r, const struct perf_collective *like)
{
	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	for (uint16_t j = 0; j < world.n_jobs; j++) {
		for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
			post(j, rank, r, like);
	}
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t j = 0; j < world.n_jobs; j++) {
		for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
			for (uint32_t r = 0; r < world.n_requests; r++) {
				if (!member_of(j, rank)->taken[r] &&
				    member_of(j, rank)->requests[r].status >= 0)
					return false;
			}
		}
	}
	return true;
}

static void
all_expect_taken(void)
{
	for (uint16_t j = 0; j < world.n_jobs; j++) {
		for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
			for (uint32_t r = 0; r < world.n_requests; r++)
				ck_assert_msg(member_of(j, rank)->taken[r],
					      "seed %lu, rank %u, request %u: %s",
					      (unsigned long)world.trial.seed, rank, r,
					      fanin_engine_error(member_of(j, rank)->engine)->text);
		}
	}
}

/* Until all are done. Returns how long that took. */
static uint64_t
run_all(void)
{
	const uint64_t begin_ns = rig_now_ns(world.rig);

	rig_run(world.rig, begin_ns + 600 * SECOND, all_done, NULL);
	all_expect_taken();
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

static uint64_t
sum_run(uint64_t count)
{
	const struct perf_collective sum = sum_of(count);

	post_all(0, &sum);
	return run_all();
}

struct totals {
	uint64_t retransmits, queries, asks_answered, gacks, frames;
};

static struct totals
totals_of(uint16_t j)
{
	struct totals totals = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct fanin_endpoint *engine = member_of(j, rank)->engine;

		totals.retransmits += fanin_engine_stats(engine)->retransmits;
		totals.queries += fanin_engine_stats(engine)->queries;
		totals.frames += fanin_engine_stats(engine)->frames_sent;
		totals.asks_answered += fanin_pa_atp_stats(engine)->asks_answered;
		totals.gacks += fanin_pa_atp_stats(engine)->gacks;
	}
	return totals;
}

static struct fanin_server_job_stats
server_stats(uint16_t j)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	const struct fanin_server_core *core = rig_server_core(rig_job_server(&world.jobs[j]));

	fanin_server_job_describe(fanin_server_core_job(core, world.jobs[j].id), &stats);
	return stats;
}

static uint64_t
handler_counter(uint16_t j, const char *name)
{
	const struct rig_job *job = &world.jobs[j];
	const struct job *root = job->jobs[job->n_leaves > 1 ? job->n_leaves : 0];
	struct fanin_handler_stats stats;

	job_stats(root, &stats);
	for (unsigned int i = 0; root->handler->counters[i].name != NULL; i++) {
		if (strcmp(root->handler->counters[i].name, name) == 0)
			return stats.own[i];
	}
	ck_abort_msg("no counter %s", name);
	return 0;
}

/* ------------------------------------------------------------------ tests */

/* By _i: the congestion control, and the network. */
START_TEST(without_loss_and_overflow_nobody_asks)
{
	static const uint16_t ranks[] = { 2, 4, 16 };
	const struct trial trial = {
		.seed = 1,
		.n_ranks = ranks[_i / TYPES % 3],
		.n_leaves = _i / TYPES / 3 == 0 ? 1 : 2,
		.congestion = (uint32_t)_i % TYPES,
		.aggregators = MANY_SLOTS,
		.window = 64,
	};
	const uint64_t count = 200000;
	const uint64_t blocks = (count * 4 + 1407) / 1408;
	struct totals totals;

	open_world(&trial);
	sum_run(count);
	totals = totals_of(0);
	ck_assert_uint_eq(totals.retransmits, 0);
	ck_assert_uint_eq(totals.queries, 0);
	ck_assert_uint_eq(totals.asks_answered, 0);
	ck_assert_uint_eq(totals.gacks, trial.n_ranks * blocks);
	ck_assert_uint_eq(totals.frames, trial.n_ranks * blocks);
	ck_assert_uint_eq(server_stats(0).results, blocks);
	ck_assert_uint_eq(server_stats(0).sums, blocks);
	ck_assert_uint_eq(server_stats(0).flushes, 0);
	ck_assert_uint_eq(server_stats(0).asks, 0);
	ck_assert_uint_eq(handler_counter(0, "overflows"), 0);
	ck_assert_uint_eq(handler_counter(0, "gacks"), trial.n_ranks * blocks);
	close_world();
}
END_TEST

static struct trial
trial_of(unsigned int i)
{
	static const uint16_t ranks[] = { 1, 2, 3, 4, 8, 16 };
	static const double faults[] = { 0.01, 0.03, 0.1 };
	static const uint32_t windows[] = { 64, 16, 4, 256 };
	const uint16_t n_ranks = ranks[i % 6];

	return (struct trial){
		.seed = i + 100,
		.n_ranks = n_ranks,
		.n_leaves = i / 6 % 2 == 0 || n_ranks == 1 ? 1
			    : n_ranks == 3                 ? 3
							   : 2,
		.congestion = i / 2 % TYPES,
		.aggregators = i % 4 == 0   ? 16
			       : i % 4 == 1 ? 64
					    : MANY_SLOTS,
		.window = windows[i / 3 % 4],
		.faults = faults[i % 3],
	};
}

START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	const struct trial trial = trial_of((unsigned int)_i);
	struct perf_collective like = sum_of(60000);

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
				     .n_leaves = _i % 2 == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .aggregators = _i % 3 == 0 ? 32 : MANY_SLOTS,
				     .window = 32,
				     .faults = 0.02 };
	struct perf_collective like = { .count = 4000,
					.root = 2,
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

/* The others run ahead of rank 0, as far as their windows allow. Returns how long a sum takes then. */
static uint64_t
sum_of_late_rank(const struct trial *trial)
{
	const struct perf_collective sum = sum_of(100000);
	uint64_t began_ns;

	open_world(trial);
	world.n_requests = 1;
	began_ns = rig_now_ns(world.rig);
	for (uint16_t rank = 1; rank < trial->n_ranks; rank++)
		post(0, rank, 0, &sum);
	rig_run(world.rig, began_ns + 2 * MS, NULL, NULL);
	post(0, 0, 0, &sum);
	run_all();
	return rig_now_ns(world.rig) - began_ns;
}

/* Every second block finds its aggregator taken: no stall of more than three round trips to the server. By _i: straw, pa-atp; on one level, on two. */
START_TEST(few_aggregators_cost_time_and_nothing_else)
{
	struct trial trial = { .seed = 5,
			       .n_ranks = 4,
			       .n_leaves = _i % 2 == 0 ? 1 : 2,
			       .congestion = _i < 2 ? STRAW : PA_ATP,
			       .aggregators = MANY_SLOTS,
			       .window = 128 };
	const uint64_t least_ns = sum_of_late_rank(&trial);
	uint64_t elapsed_ns;

	ck_assert_uint_eq(handler_counter(0, "overflows"), 0);
	close_world();
	trial.aggregators = 64;
	elapsed_ns = sum_of_late_rank(&trial);
	/* AWD keeps the others from running further ahead than there are aggregators. */
	if (trial.congestion == PA_ATP)
		ck_assert_uint_eq(handler_counter(0, "overflows"), 0);
	else
		ck_assert_uint_gt(handler_counter(0, "overflows"), 0);
	ck_assert_uint_eq(totals_of(0).retransmits, 0);
	close_world();
	ck_assert_uint_le(elapsed_ns, least_ns + 3 * ROUND_TRIP_NS);
}
END_TEST

/* A packet without data in the name of rank 1, as whoever is behind its port and has the key can send it. */
static void
forge(enum fanin_type type, uint32_t block, uint32_t progress)
{
	const struct fanin_protocol_config *config = &fanin_engine_of(member_of(0, 1)->engine)->config;
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &config->flow, 0);
	fanin_wire_encode_header(&headers.fanin, type, config->job, config->epoch, config->keys.up);
	headers.udp.src_be = fanin_wire_source_port_be(block);
	headers.fanin.rank = 1;
	headers.fanin.contributions = type == FANIN_TYPE_KNOWN ? world.trial.n_ranks : 1;
	headers.fanin.block = block;
	headers.fanin.progress = progress;
	if (type == FANIN_TYPE_QUERY) {
		headers.fanin.flags = FANIN_FLAG_RETRANSMIT;
		headers.fanin.number = 7;
	} else {
		headers.fanin.flags = FANIN_FLAG_EMPTY;
		headers.fanin.dtype = FANIN_WIRE_I32;
		headers.fanin.op = FANIN_WIRE_SUM;
		headers.fanin.count = 1;
	}
	ck_assert(rig_host_send(world.network.hosts[1], &headers, FANIN_PAYLOAD_OFFSET));
}

static uint64_t
drops_of(struct rig_switch *sw)
{
	struct counters sum;

	pipeline_counters(rig_switch_pipeline(sw), &sum);
	return sum.drops[FANIN_REASON_BLOCK_WINDOW];
}

/* By _i: what is forged, and whether there are leaves. Neither the switch nor the server ends the job, and it is as fast as ever. */
START_TEST(what_no_rank_can_have_sent_ends_nothing_and_costs_nothing)
{
	static const enum fanin_type types[] = { FANIN_TYPE_KNOWN, FANIN_TYPE_QUERY,
						 FANIN_TYPE_CONTRIBUTION };
	const enum fanin_type type = types[_i % 3];
	struct trial trial = { .seed = 3,
			       .n_ranks = 4,
			       .n_leaves = (uint16_t)(1 + _i / 3),
			       .congestion = PA_ATP,
			       .aggregators = MANY_SLOTS,
			       .window = 64 };
	struct perf_collective sum = sum_of(200000);
	uint64_t usual_ns, ns, n = 0;

	open_world(&trial);
	usual_ns = sum_run(sum.count);
	close_world();

	open_world(&trial);
	post_all(0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	for (uint32_t i = 0; i < 2 * trial.window; i++)
		forge(type, (1u << 20) + i, type == FANIN_TYPE_KNOWN ? 0 : (1u << 20) + i);
	ns = MS + run_all();
	ck_assert_msg(usual_ns >= ns * 9 / 10, "found %lu us, expected %lu",
		      (unsigned long)ns / 1000, (unsigned long)usual_ns / 1000);
	for (uint16_t leaf = 0; leaf < trial.n_leaves; leaf++)
		n += drops_of(world.network.leaves[leaf]);
	for (uint16_t spine = 0; trial.n_leaves > 1 && spine < 2; spine++)
		n += drops_of(world.network.spines[spine]);
	ck_assert_uint_ge(n, 2 * trial.window);
	close_world();
}
END_TEST

START_TEST(a_late_rank_is_waited_for)
{
	const struct trial trial = { .seed = 6,
				     .n_ranks = 4,
				     .n_leaves = _i == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .aggregators = MANY_SLOTS,
				     .window = 64 };
	const struct perf_collective sum = sum_of(30000);
	struct fanin_ranks missing;

	open_world(&trial);
	world.n_requests = 1;
	for (uint16_t rank = 0; rank < 3; rank++)
		post(0, rank, 0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	for (uint16_t rank = 0; rank < 3; rank++) {
		ck_assert_msg(member_of(0, rank)->requests[0].status == FANIN_IN_PROGRESS, "%s",
			      fanin_engine_error(member_of(0, rank)->engine)->text);
		fanin_engine_missing(member_of(0, rank)->engine, &missing);
		ck_assert_uint_eq(missing.words[0], 1 << 3);
	}
	post(0, 3, 0, &sum);
	run_all();
	ck_assert_uint_eq(totals_of(0).retransmits, 0);
	close_world();
}
END_TEST

/* By _i: whether there is a leaf between. */
START_TEST(a_dead_server_is_named_in_time)
{
	const struct trial trial = { .seed = 7,
				     .n_ranks = 2,
				     .n_leaves = _i == 0 ? 1 : 2,
				     .congestion = PA_ATP,
				     .aggregators = MANY_SLOTS,
				     .window = 64 };
	const struct perf_collective sum = sum_of(200000);
	uint64_t began_ns;

	open_world(&trial);
	post_all(0, &sum);
	rig_run(world.rig, rig_now_ns(world.rig) + MS / 10, NULL, NULL);
	rig_server_kill(rig_job_server(&world.jobs[0]));
	began_ns = rig_now_ns(world.rig);
	while (member_of(0, 0)->requests[0].status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(rig_now_ns(world.rig) - began_ns, 6 * SECOND);
		rig_run(world.rig, rig_now_ns(world.rig) + 10 * MS, NULL, NULL);
	}
	ck_assert_int_eq(member_of(0, 0)->requests[0].status, FANIN_ERR_TIMEOUT);
	ck_assert_msg(strstr(fanin_engine_error(member_of(0, 0)->engine)->text,
			     "server does not answer") != NULL,
		      "%s", fanin_engine_error(member_of(0, 0)->engine)->text);
	close_world();
}
END_TEST

/* Server and tree are no more. The job is made anew over the other spine, whose server knows nothing. */
static void
lose_tree(void)
{
	const uint64_t late_ns = random_below(&world.random, 20000);
	uint32_t first_block;

	rig_server_kill(rig_job_server(&world.jobs[0]));
	rig_job_destroy(&world.jobs[0]);
	rig_run(world.rig, rig_now_ns(world.rig) + late_ns, NULL, NULL);
	first_block = fanin_engine_progress(member_of(0, 0)->engine);
	for (uint16_t rank = 1; rank < world.trial.n_ranks; rank++)
		first_block = RTE_MIN(first_block, fanin_engine_progress(member_of(0, rank)->engine));
	world.spine = 1 - world.spine;
	if (rig_server_core(world.network.spine_servers[world.spine]) == NULL)
		rig_server_restart(world.network.spine_servers[world.spine]);
	run_join(0);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct fanin_endpoint *engine = member_of(0, rank)->engine;
		const struct rig_joining *joining = &world.jobs[0].joining[rank];

		rig_host_set_poll(world.network.hosts[rank], host_poll, (void *)(uintptr_t)rank);
		fanin_engine_move(engine, rig_host_transport(world.network.hosts[rank]));
		ck_assert_msg(fanin_engine_resume(engine, joining->headers.fanin.epoch,
						  joining->ack.instance, first_block) == FANIN_OK,
			      "rank %u: %s", rank, fanin_engine_error(engine)->text);
		rig_host_wake(world.network.hosts[rank], rig_now_ns(world.rig));
	}
}

/* Some ranks' memory is overwritten already when others still lack the results. */
START_TEST(a_server_may_be_lost_at_any_moment)
{
	static const uint16_t ranks[] = { 2, 4, 8 };
	const struct trial trial = { .seed = (uint64_t)_i + 1,
				     .n_ranks = ranks[_i % 3],
				     .n_leaves = 2,
				     .congestion = (uint32_t)_i % TYPES,
				     .aggregators = _i % 2 == 0 ? 32 : MANY_SLOTS,
				     .window = _i % 5 == 0 ? 8 : 64,
				     .faults = _i % 4 == 0 ? 0 : 0.03 };
	struct perf_collective like = sum_of(20000);

	open_world(&trial);
	for (uint32_t r = 0; r < 3; r++) {
		post_all(r, &like);
		like.count = like.count / 4 + 1;
	}
	for (int losses = 1 + _i % 3; losses > 0; losses--) {
		rig_run(world.rig, rig_now_ns(world.rig) + random_below(&world.random, 1000000),
			all_done, NULL);
		lose_tree();
	}
	run_all();
	close_world();
}
END_TEST

Suite *
suite_pa_atp_network(void)
{
	Suite *suite = suite_create("pa_atp_network");
	TCase *tcase = tcase_create("pa_atp_network"), *forgers = tcase_create("forgers");

	tcase_set_timeout(forgers, 240);

	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, without_loss_and_overflow_nobody_asks, 0, TYPES * 3 * 2);
	tcase_add_loop_test(tcase, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 120);
	tcase_add_loop_test(tcase, all_collectives_and_operators_are_exact, FANIN_I8, FANIN_F64 + 1);
	tcase_add_loop_test(tcase, few_aggregators_cost_time_and_nothing_else, 0, 4);
	tcase_add_loop_test(forgers, what_no_rank_can_have_sent_ends_nothing_and_costs_nothing, 0, 6);
	tcase_add_loop_test(tcase, a_late_rank_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_dead_server_is_named_in_time, 0, 2);
	tcase_add_loop_test(tcase, a_server_may_be_lost_at_any_moment, 0, 60);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, forgers);
	return suite;
}
