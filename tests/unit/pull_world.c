/* SPDX-License-Identifier: BSD-3-Clause */
/* See pull_world.h. */
#include "tests/unit/pull_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/pull.h"
#include "tests/unit/ring_switch.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define WINDOW 64

struct pull_world pull_world;

static const struct fanin_protocol *
protocol(void)
{
	char reason[256];
	const struct fanin_protocol *found = fanin_protocol_of("pull", reason, sizeof(reason));

	ck_assert_str_eq(found->name, "pull");
	return found;
}

/* ------------------------------------------------------------------ a rank's transport */

static unsigned int
member_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct pull_member *member = (struct pull_member *)transport;
	unsigned int n, kept = 0;

	do {
		n = member->inner->ops->rx_burst(member->inner, frames, max);
		for (unsigned int i = 0; i < n; i++) {
			const struct fanin_headers *headers = frames[i].data;

			if (pull_world.loses == NULL ||
			    !pull_world.loses(member->rank, &headers->fanin)) {
				frames[kept++] = frames[i];
				continue;
			}
			pull_world.n_lost++;
			member->inner->ops->rx_release(member->inner, &frames[i], 1);
		}
	} while (n != 0 && kept == 0);
	return kept;
}

static void
member_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct pull_member *member = (struct pull_member *)transport;

	member->inner->ops->rx_release(member->inner, frames, n);
}

static void *
member_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct pull_member *member = (struct pull_member *)transport;

	member->reserved = member->inner->ops->tx_reserve(member->inner, len);
	return member->reserved;
}

static void
member_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct pull_member *member = (struct pull_member *)transport;
	const struct fanin_headers *headers = member->reserved;

	if (pull_world.keeps != NULL && member->n_kept < PULL_WORLD_KEPT &&
	    pull_world.keeps(member->rank, &headers->fanin)) {
		struct pull_frame *frame = &member->kept[member->n_kept++];

		ck_assert_uint_le(len, sizeof(frame->bytes));
		memcpy(frame->bytes, member->reserved, len);
		frame->len = len;
	}
	member->inner->ops->tx_commit(member->inner, len);
}

static int
member_tx_flush(struct fanin_transport *transport)
{
	struct pull_member *member = (struct pull_member *)transport;

	return member->inner->ops->tx_flush(member->inner);
}

static const struct fanin_transport_ops member_ops = {
	.name = "member",
	.tx_reserve = member_tx_reserve,
	.tx_commit = member_tx_commit,
	.tx_flush = member_tx_flush,
	.rx_burst = member_rx_burst,
	.rx_release = member_rx_release,
};

void
pull_world_repeat(uint16_t rank)
{
	struct pull_member *member = &pull_world.members[rank];

	for (unsigned int i = 0; i < member->n_kept; i++)
		ck_assert(rig_host_send(pull_world.network.hosts[rank], member->kept[i].bytes,
					member->kept[i].len));
}

/* ------------------------------------------------------------------ what comes of requests */

static uint64_t
digest_of(const uint8_t *bytes, size_t n)
{
	uint64_t digest = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	return digest;
}

/* True if the sum depends on the order, so that only its being the same everywhere can be looked at. */
static bool
is_unordered(const struct perf_collective *collective)
{
	return collective->data.random;
}

static void
request_take(struct pull_member *member, uint32_t r)
{
	static uint8_t expected[PULL_WORLD_BYTES] __attribute__((aligned(64)));
	const struct perf_collective *collective = &member->collectives[r];
	const struct perf_range range = perf_collective_receives(collective);
	const size_t size = fanin_dtype_size_of(collective->data.dtype);
	const uint8_t *got = member->recv[r] + range.first * size;

	member->digest[r] = digest_of(got, range.n * size);
	if (!is_unordered(collective)) {
		perf_collective_expect(collective, r, range.first, range.n, expected);
		ck_assert_msg(memcmp(got, expected, range.n * size) == 0,
			      "seed %lu, rank %u, request %u: %s %s of %lu %s is wrong",
			      (unsigned long)pull_world.trial.seed, member->rank, r,
			      perf_collective_name(collective->kind),
			      fanin_op_name(collective->data.op), (unsigned long)collective->count,
			      fanin_dtype_name(collective->data.dtype));
	}
	memset(member->send[r], 0x55, collective->count * size);
	memset(member->recv[r], 0x55, collective->count * size);
	member->taken[r] = true;
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct pull_member *member = user;
	uint64_t idle_ns;

	if (member->is_away)
		return;
	/* As descriptors that stay ready have it: until nothing is left to be read. */
	while (protocol()->poll(member->engine) > 0)
		;
	for (uint32_t r = 0; r < pull_world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = protocol()->idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host,
			      rig_now_ns(pull_world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

/* ------------------------------------------------------------------ world */

static void
engine_open(uint16_t rank)
{
	struct fanin_protocol_config config = {
		/* Where a tenth is lost on each link, five questions in a row may be lost on four links each. */
		.timeout_ns = (pull_world.trial.faults < 0.1 ? 1 : 4) * PULL_WORLD_TIMEOUT_NS,
		.recover = !pull_world.trial.no_recovery,
	};
	struct pull_member *member = &pull_world.members[rank];
	struct fanin_error error = { 0 };

	rig_protocol_config(&pull_world.job, rank, &config);
	pull_world.payload_bytes = config.payload_bytes;
	member->transport.ops = &member_ops;
	member->inner = rig_host_transport(pull_world.network.hosts[rank]);
	member->rank = rank;
	member->kept = calloc(PULL_WORLD_KEPT, sizeof(*member->kept));
	ck_assert_ptr_nonnull(member->kept);
	config.transport = &member->transport;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_pull, &config, &member->engine, &error),
			 FANIN_OK);
	rig_host_set_poll(pull_world.network.hosts[rank], member_poll, member);
}

static void
network_build(const struct pull_trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	const struct rig_end end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 };
	const uint32_t slots = 2u * (trial->window == 0 ? WINDOW : trial->window);
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
		/* A pull job's slots hold two packets each. */
		.slots = 2 * slots,
	};
	static bool eal_is_there;
	char error[RIG_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	pull_world.rig = rig_create(&rig_options, error);
	ck_assert_msg(pull_world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(pull_world.rig, &options, &pull_world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(pull_world.rig, rig_now_ns(pull_world.rig) + SECOND, NULL, NULL);
}

static void
job_make(const struct pull_trial *trial)
{
	struct job_spec spec = {
		.handler = "pull",
		.slots = 2u * (trial->window == 0 ? WINDOW : trial->window),
		.wide = trial->wide,
		.payload_bytes = trial->payload_bytes,
		.n_parameters = 3,
		.parameters = { { .name = "waves", .value = trial->waves },
				{ .name = "wave_blocks", .value = trial->wave_blocks },
				{ .name = "entries",
				  .value = trial->entries == 0 ? 4096 : trial->entries } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	ret = rig_job_create(&pull_world.network, &spec, trial->n_ranks, 0, &pull_world.job, error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&pull_world.job, 600 * SECOND), 0);
}

void
pull_world_open(const struct pull_trial *trial)
{
	memset(&pull_world, 0, sizeof(pull_world));
	pull_world.trial = *trial;
	network_build(trial);
	job_make(trial);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank);
}

void
pull_world_forget(void)
{
	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		struct pull_member *member = &pull_world.members[rank];

		for (uint32_t r = 0; r < pull_world.n_requests; r++) {
			if (member->recv[r] != member->send[r])
				free(member->recv[r]);
			free(member->send[r]);
			member->send[r] = NULL;
			member->recv[r] = NULL;
			member->taken[r] = false;
		}
	}
	pull_world.n_requests = 0;
}

void
pull_world_close(void)
{
	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		fanin_engine_close(pull_world.members[rank].engine);
		free(pull_world.members[rank].kept);
	}
	pull_world_forget();
	rig_job_destroy(&pull_world.job);
	rig_leaf_spine_free(&pull_world.network);
	ck_assert_uint_eq(rig_destroy(pull_world.rig), 0);
}

/* ------------------------------------------------------------------ requests */

void
pull_world_post(uint16_t rank, uint32_t r, const struct perf_collective *like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	struct pull_member *member = &pull_world.members[rank];
	struct perf_collective *collective = &member->collectives[r];
	const size_t size = fanin_dtype_size_of(like->data.dtype);
	struct perf_range sends, receives;
	uint64_t count = like->count;

	*collective = *like;
	collective->rank = rank;
	collective->data.size = pull_world.trial.n_ranks;
	collective->data.wide = pull_world.trial.wide;
	sends = perf_collective_sends(collective);
	receives = perf_collective_receives(collective);
	ck_assert_uint_le(count * size, PULL_WORLD_BYTES);
	member->send[r] = calloc(1, count * size + 1);
	member->recv[r] = (rank + r) % 2 == 0 ? member->send[r] : calloc(1, count * size + 1);
	member->taken[r] = false;
	perf_data_fill(&collective->data, rank, r, sends.first, sends.n,
		       member->send[r] + sends.first * size);
	if (perf_collective_has_parts(like->kind))
		count /= pull_world.trial.n_ranks;
	member->requests[r] = (struct fanin_request){
		.send = member->send[r] + sends.first * size,
		.recv = member->recv[r] + receives.first * size,
		.collective = collectives[like->kind],
		.dtype = (uint8_t)like->data.dtype,
		.op = (uint8_t)like->data.op,
		.root = like->root,
	};
	ck_assert_int_eq(protocol()->post(member->engine, &member->requests[r], count), FANIN_OK);
	pull_world.n_requests = RTE_MAX(pull_world.n_requests, r + 1);
	rig_host_wake(pull_world.network.hosts[rank], rig_now_ns(pull_world.rig));
}

void
pull_world_post_all(uint32_t r, const struct perf_collective *like)
{
	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++)
		pull_world_post(rank, r, like);
}

struct perf_collective
pull_world_sum(uint64_t count)
{
	return (struct perf_collective){
		.kind = PERF_ALLREDUCE,
		.count = count,
		.data = { .dtype = FANIN_I32, .op = FANIN_SUM, .seed = 1 },
	};
}

bool
pull_world_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		const struct pull_member *member = &pull_world.members[rank];

		for (uint32_t r = 0; r < pull_world.n_requests; r++) {
			if (member->send[r] == NULL ||
			    (!member->taken[r] && member->requests[r].status >= 0))
				return false;
		}
	}
	return true;
}

void
pull_world_run(void)
{
	rig_run(pull_world.rig, rig_now_ns(pull_world.rig) + 600 * SECOND, pull_world_done, NULL);
	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < pull_world.n_requests; r++)
			ck_assert_msg(pull_world.members[rank].taken[r],
				      "seed %lu, rank %u, request %u: %s",
				      (unsigned long)pull_world.trial.seed, rank, r,
				      fanin_engine_error(pull_world.members[rank].engine)->text);
	}
}

/* ------------------------------------------------------------------ counters */

struct fanin_pull_stats
pull_world_stats(void)
{
	struct fanin_pull_stats sum = { 0 };

	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		const struct fanin_pull_stats *stats =
			fanin_pull_stats(pull_world.members[rank].engine);

		sum.pulls += stats->pulls;
		sum.requests += stats->requests;
		sum.busy += stats->busy;
		sum.merged += stats->merged;
		sum.ranks_merged += stats->ranks_merged;
		sum.replaced += stats->replaced;
		sum.overlaps += stats->overlaps;
		sum.duplicates += stats->duplicates;
		sum.asks += stats->asks;
		sum.given += stats->given;
		sum.answers += stats->answers;
		sum.forgotten += stats->forgotten;
		sum.again += stats->again;
		sum.closed += stats->closed;
	}
	return sum;
}

struct fanin_multicast_stats
pull_world_multicast(void)
{
	struct fanin_multicast_stats sum = { 0 };

	for (uint16_t rank = 0; rank < pull_world.trial.n_ranks; rank++) {
		const struct fanin_multicast_stats *stats =
			fanin_multicast_stats(pull_world.members[rank].engine);

		sum.packets += stats->packets;
		sum.packets_sent += stats->packets_sent;
		sum.fetched += stats->fetched;
		sum.fetches += stats->fetches;
		sum.duplicates += stats->duplicates;
		sum.closed += stats->closed;
	}
	return sum;
}

uint64_t
pull_world_counter(unsigned int counter)
{
	const struct rig_job *job = &pull_world.job;
	uint64_t sum = 0;

	for (uint16_t i = 0; i < job->n_leaves + (job->n_leaves > 1 ? 1u : 0u); i++) {
		for (uint16_t w = 0; w < job->jobs[i]->n_workers; w++)
			sum += job->jobs[i]->worker_stats[w].stats.own[counter];
	}
	return sum;
}
