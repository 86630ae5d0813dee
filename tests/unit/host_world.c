/* SPDX-License-Identifier: BSD-3-Clause */
/* See host_world.h. */
#include "tests/unit/host_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/ring_switch.h"

#define OVERWRITTEN 0x55
#define UNTOUCHED 0xff
#define DELAY_NS 2000
#define MAX_RUN_NS (600 * SECOND)
#define MAX_SLEEP_NS (50 * MS) /* of a call that waits */

struct world world;

/* ------------------------------------------------------------------ a rank's transport */

static void *
member_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct member *member = (struct member *)transport;

	if (member->is_full)
		return NULL;
	member->reserved = member->inner->ops->tx_reserve(member->inner, len);
	return member->reserved;
}

static void
member_commit(struct fanin_transport *transport, uint32_t len)
{
	struct member *member = (struct member *)transport;
	const struct fanin_hdr *hdr = &((const struct fanin_headers *)member->reserved)->fanin;

	if (world.keeps != NULL && world.keeps(member->rank, hdr)) {
		member->kept = realloc(member->kept, (member->n_kept + 1) * sizeof(*member->kept));
		member->kept[member->n_kept++] = world_frame_of(hdr);
	}
	member->n_unflushed++;
	member->inner->ops->tx_commit(member->inner, len);
}

static int
member_flush(struct fanin_transport *transport)
{
	struct member *member = (struct member *)transport;

	member->n_unflushed = 0;
	return member->inner->ops->tx_flush(member->inner);
}

static uint32_t
member_waiting(struct fanin_transport *transport)
{
	const struct member *member = (const struct member *)transport;
	const struct fanin_transport_ops *inner = member->inner->ops;

	if (member->n_waiting != 0 || inner->tx_waiting == NULL)
		return member->n_waiting;
	return inner->tx_waiting(member->inner);
}

static void
member_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct member *member = (struct member *)transport;

	for (unsigned int i = 0; i < n; i++) {
		const uint8_t *data = frames[i].data;

		if (data < world.given[0].bytes ||
		    data >= (uint8_t *)(world.given + RTE_DIM(world.given)))
			member->inner->ops->rx_release(member->inner, &frames[i], 1);
	}
}

/*
 * Takes frames that the test has given to it, which come before all others. Returns their number.
 */
static unsigned int
given_take(const struct member *member, struct fanin_frame *frames, unsigned int max)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < RTE_DIM(world.given) && n < max; i++) {
		if (world.given_to[i] != 1 + (member - world.members))
			continue;
		world.given_to[i] = 0;
		frames[n++] = (struct fanin_frame){ .data = world.given[i].bytes,
						    .len = world.given[i].len };
	}
	return n;
}

static unsigned int
member_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct member *member = (struct member *)transport;
	unsigned int n, kept = given_take(member, frames, max);

	do {
		n = member->inner->ops->rx_burst(member->inner, frames + kept, max - kept);
		for (unsigned int i = 0, first = kept; i < n; i++) {
			const struct fanin_frame frame = frames[first + i];
			const struct fanin_headers *headers = frame.data;

			if (world.loses != NULL && world.loses(member->rank, &headers->fanin)) {
				world.n_lost++;
				member->inner->ops->rx_release(member->inner, &frame, 1);
			} else {
				frames[kept++] = frame;
			}
		}
	} while (n != 0 && kept == 0);
	return kept;
}

static const struct fanin_transport_ops member_ops = {
	.name = "member",
	.tx_reserve = member_reserve,
	.tx_commit = member_commit,
	.tx_flush = member_flush,
	.tx_waiting = member_waiting,
	.rx_burst = member_burst,
	.rx_release = member_release,
};

struct world_frame
world_frame_of(const struct fanin_hdr *hdr)
{
	const struct fanin_headers *headers = container_of(hdr, struct fanin_headers, fanin);
	struct world_frame frame = { .len = FANIN_PAYLOAD_OFFSET +
					    fanin_wire_payload_len(headers) };

	ck_assert_uint_le(frame.len, sizeof(frame.bytes));
	memcpy(frame.bytes, headers, frame.len);
	return frame;
}

void
world_give(uint16_t i, const struct world_frame *frame)
{
	const uint32_t at = world.n_given++ % RTE_DIM(world.given);

	ck_assert_uint_eq(world.given_to[at], 0);
	world.given[at] = *frame;
	world.given_to[at] = (uint16_t)(1 + i);
	world_wake(i);
}

void
world_repeat(uint16_t i)
{
	const struct member *member = &world.members[i];

	for (uint32_t k = 0; k < member->n_kept; k++)
		world_send(i, member->kept[k].bytes);
}

struct fanin_headers
world_forge(uint16_t i, enum fanin_type type, uint32_t block, uint32_t payload_len)
{
	const struct fanin_protocol_config *config = &fanin_engine_of(world_engine(i))->config;
	struct fanin_headers headers;

	fanin_wire_encode_l4(&headers, &config->flow, payload_len);
	fanin_wire_encode_header(&headers.fanin, type, config->job, config->epoch, config->keys.up);
	headers.udp.src_be = fanin_wire_source_port_be(block, 0);
	headers.fanin.rank = world.members[i].rank;
	headers.fanin.contributions = 1;
	headers.fanin.block = block;
	return headers;
}

void
world_send(uint16_t i, const void *headers)
{
	ck_assert(rig_host_send(world.members[i].host, headers,
				FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers)));
}

void
world_contribute(uint16_t i, uint32_t block, uint16_t n)
{
	struct {
		struct fanin_headers headers;
		uint64_t values[64];
	} __attribute__((packed)) frame = { 0 };

	frame.headers = world_forge(i, FANIN_TYPE_CONTRIBUTION, block, n * sizeof(uint64_t));
	frame.headers.fanin.dtype = FANIN_U64;
	frame.headers.fanin.op = FANIN_MAX;
	frame.headers.fanin.count = n;
	world_send(i, &frame);
	world_pass(MS / 100);
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

/*
 * Checks that the rank has its result, and that the rest is unchanged. All memory is reused then.
 */
static void
request_take(struct member *member, uint32_t r)
{
	const struct perf_collective *collective = &member->collectives[r];
	const struct perf_range range = perf_collective_receives(collective);
	const struct perf_range sends = perf_collective_sends(collective);
	const size_t size = fanin_dtype_size_of(collective->data.dtype);
	const size_t len = collective->count * size;
	const uint8_t *got = member->recv[r] + range.first * size;
	uint8_t *expected = malloc(len + 1);

	memset(expected, UNTOUCHED, len + 1);
	if (member->recv[r] == member->send[r])
		perf_data_fill(&collective->data, member->rank, r, sends.first, sends.n,
			       expected + sends.first * size);
	if (collective->data.random)
		memcpy(expected + range.first * size, got, range.n * size);
	else
		perf_collective_expect(collective, r, range.first, range.n,
				       expected + range.first * size);
	ck_assert_msg(memcmp(member->recv[r], expected, len + 1) == 0,
		      "seed %lu, %s, rank %u, request %u: %s %s of %lu %s is wrong",
		      (unsigned long)world.trial.seed, world.trial.handler, member->rank, r,
		      perf_collective_name(collective->kind), fanin_op_name(collective->data.op),
		      (unsigned long)collective->count, fanin_dtype_name(collective->data.dtype));
	member->digest[r] = digest_of(got, range.n * size);
	memset(member->send[r], OVERWRITTEN, len);
	memset(member->recv[r], OVERWRITTEN, len);
	member->taken[r] = true;
	free(expected);
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;
	uint64_t idle_ns;

	if (member->is_away || member->is_gone)
		return;
	/* Its owner may never poll it again after it has failed. */
	if (world.protocol->poll(member->engine) < 0)
		ck_assert_uint_eq(member->n_unflushed, 0);
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->send[r] != NULL && !member->taken[r] &&
		    member->requests[r].status == FANIN_OK)
			request_take(member, r);
	}
	idle_ns = world.protocol->idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, world_now() + RTE_MIN(RTE_MAX(idle_ns, 1u), MAX_SLEEP_NS));
}

/* ------------------------------------------------------------------ world */

/* Returns the number of leaves that ranks are linked to first. */
static uint16_t
leaves_of_ranks(const struct trial *trial)
{
	return trial->n_leaves / (trial->has_pairs ? 2 : 1);
}

static void
network_build(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed,
						 .n_packets = 32767,
						 .mtu = 1500 };
	const struct pipeline_egress egress = { .rate_mbit = trial->host_mbit,
						.bucket_bytes = trial->bucket_bytes,
						.queue_bytes = trial->queue_bytes };
	const struct rig_end host_end = { .egress = egress, .delay_ns = trial->host_delay_ns };
	struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf =
			(uint16_t)(trial->n_ranks / leaves_of_ranks(trial) * trial->n_jobs),
		.hosts_per_port = trial->per_port,
		.n_spines = trial->n_spines,
		.host_end = host_end,
		.up_end = host_end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = WORLD_JOBS,
		.slots = trial->slots,
		.shared_slots = trial->shared_slots,
		.servers = trial->servers,
		.server = { .max_jobs = WORLD_JOBS, .memory_bytes = 64 << 20, .seed = trial->seed },
	};
	char error[RIG_ERROR_LEN] = "";
	int ret;

	options.up_end.delay_ns = DELAY_NS;
	options.up_end.egress.rate_mbit = trial->up_mbit;
	options.server.end = options.up_end;
	ring_switch_eal();
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	world_pass(SECOND);
}

static void
pair_open(struct member *member)
{
	const struct rig_leaders *job = &world.leaders[member->job];
	struct rig_host *second = world.network.hosts[rig_leaders_second(job, member->rank)];
	struct fanin_transport *const parts[2] = { member->inner, rig_host_transport(second) };
	struct fanin_error error = { 0 };

	ck_assert_int_eq(fanin_bundle_open(parts, rig_host_mac(second), &member->bundle, &error),
			 FANIN_OK);
	rig_host_set_poll(second, member_poll, member);
}

struct job_spec
world_spec(void)
{
	const struct trial *trial = &world.trial;
	const struct job_parameter parameters[] = {
		{ "entries", trial->entries }, { "timeout_us", trial->timeout_us },
		{ "waves", trial->waves },     { "wave_blocks", trial->wave_blocks },
		{ "chains", trial->chains },   { "base", trial->base },
		{ "bytes", trial->bytes },
	};
	struct job_spec spec = { .handler = trial->handler,
				 .slots = 2 * trial->window,
				 .wide = trial->wide,
				 .payload_bytes = trial->payload_bytes,
				 .parent = { .is_server = trial->servers != NULL } };

	for (unsigned int p = 0; p < RTE_DIM(parameters); p++) {
		if (parameters[p].value != 0)
			spec.parameters[spec.n_parameters++] = parameters[p];
	}
	if (trial->servers != NULL)
		spec.parameters[spec.n_parameters++] = (struct job_parameter){ "congestion",
									       trial->congestion };
	return spec;
}

/* Makes a job on all switches, or one on the current spine that all ranks join. */
static void
job_make(uint16_t number)
{
	const struct trial *trial = &world.trial;
	struct job_spec spec = world_spec();
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	spec.id = world.jobs[number].id;
	if (world.protocol->has_leaders)
		ret = rig_leaders_create(&world.network, &spec, world.hosts[number], trial->n_ranks,
					 trial->has_pairs, &world.leaders[number], error);
	else
		ret = rig_job_create_on(&world.network, &spec, world.hosts[number], trial->n_ranks,
					world.spine, &world.jobs[number], error);
	ck_assert_msg(ret == 0, "%s", error);
	if (!world.protocol->has_leaders)
		ck_assert_int_eq(rig_job_join(&world.jobs[number], MAX_RUN_NS), 0);
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++) {
		struct member *member = &world.members[number * trial->n_ranks + rank];

		member->job = number;
		member->rank = rank;
		member->host = world.network.hosts[world.hosts[number][rank]];
		member->inner = rig_host_transport(member->host);
		rig_host_set_poll(member->host, member_poll, member);
		if (trial->has_pairs)
			pair_open(member);
	}
}

static void
engine_open(uint16_t i)
{
	const struct trial *trial = &world.trial;
	struct fanin_protocol_config config = { .timeout_ns = trial->timeout_ns,
						.cc = trial->cc,
						.recover = !trial->no_recovery };
	struct member *member = &world.members[i];
	struct fanin_peer peers[WORLD_RANKS];
	struct fanin_error error = { 0 };

	member->transport.ops = &member_ops;
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++) {
		const uint32_t host = world.hosts[member->job][rank];
		const uint16_t leaf = (uint16_t)(host / world.network.options.hosts_per_leaf);

		peers[rank] = (struct fanin_peer){ .ip_be = rig_host_ip_be(&world.network, host),
						   .switch_ip_be = rig_leaf_ip_be(leaf) };
	}
	if (world.protocol->has_leaders) {
		rig_leaders_config(&world.leaders[member->job], member->rank, peers, &config);
	} else {
		rig_protocol_config(&world.jobs[member->job], member->rank, &config);
		config.hosts = trial->places_unknown ? NULL : peers;
	}
	world.payload_bytes = config.payload_bytes;
	config.transport = trial->has_pairs ? member->bundle : &member->transport;
	ck_assert_msg(world.protocol->open(world.protocol, &config, &member->engine, &error) ==
			      FANIN_OK,
		      "%s", error.text);
}

static void
set_usual(struct trial *trial)
{
	trial->n_jobs = RTE_MAX(trial->n_jobs, 1);
	if (trial->n_spines == 0 && trial->n_leaves > 1)
		trial->n_spines = 2;
	if (trial->window == 0)
		trial->window = 64;
	if (trial->slots == 0)
		trial->slots = 4 * trial->window * WORLD_JOBS;
	if (trial->host_delay_ns == 0)
		trial->host_delay_ns = DELAY_NS;
	if (trial->host_mbit == 0)
		trial->host_mbit = 10000;
	if (trial->up_mbit == 0)
		trial->up_mbit = trial->host_mbit;
	if (trial->timeout_ns == 0)
		trial->timeout_ns = WORLD_TIMEOUT;
}

void
world_open(const struct trial *trial)
{
	const uint16_t n_leaves = leaves_of_ranks(trial);
	const uint16_t per_leaf = trial->n_ranks / n_leaves;
	char reason[256];

	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	set_usual(&world.trial);
	world.random = random_seed(trial->seed);
	world.protocol = fanin_protocol_of(trial->handler, reason, sizeof(reason));
	world.n_members = (uint16_t)(trial->n_ranks * world.trial.n_jobs);
	ck_assert_uint_le(world.n_members, RTE_DIM(world.members));
	network_build(&world.trial);
	for (uint16_t job = 0; job < world.trial.n_jobs; job++) {
		/*
		 * Each leaf has hosts of each job. Ranks with two links are at their leaf and at
		 * the next one.
		 */
		for (uint16_t rank = 0; rank < trial->n_ranks; rank++) {
			const uint32_t leaf = (trial->scattered ? rank % n_leaves
								: rank / per_leaf) *
					      (trial->n_leaves / n_leaves);
			const uint32_t at = trial->scattered ? rank / n_leaves : rank % per_leaf;

			world.hosts[job][rank] = (leaf * world.trial.n_jobs + job) * per_leaf + at;
		}
		job_make(job);
	}
	for (uint16_t i = 0; i < world.n_members; i++)
		engine_open(i);
}

void
world_forget(void)
{
	for (uint16_t i = 0; i < world.n_members; i++) {
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

void
world_close(void)
{
	for (uint16_t i = 0; i < world.n_members; i++) {
		/* Closes it without a goodbye, which no rank would hear. */
		fanin_engine_close(world.members[i].engine);
		if (world.members[i].bundle != NULL)
			world.members[i].bundle->ops->close(world.members[i].bundle);
		free(world.members[i].kept);
	}
	world_forget();
	for (uint16_t job = 0; job < world.trial.n_jobs; job++) {
		if (world.protocol->has_leaders)
			rig_leaders_destroy(&world.leaders[job]);
		else
			rig_job_destroy(&world.jobs[job]);
	}
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* The server of the current spine knows nothing of the job, and may have been killed before. */
static void
server_begin(void)
{
	struct rig_server *server;

	world.jobs[0].spine = world.spine;
	server = rig_job_server(&world.jobs[0]);
	if (!world.trial.servers->is_alive(server))
		world.trial.servers->restart(server);
}

void
world_lose_run(uint64_t late_ns)
{
	const struct fanin_switch_ops *ops = world.protocol->on_switch;
	struct rig_job *job = &world.jobs[0];
	uint32_t first_block = UINT32_MAX;

	ck_assert(!world.protocol->has_leaders);
	if (world.trial.servers != NULL)
		world.trial.servers->kill(rig_job_server(job));
	rig_job_destroy(job);
	world_pass(late_ns);
	for (uint16_t rank = 0; rank < job->n_ranks; rank++)
		first_block = RTE_MIN(first_block, ops->progress(world_engine(rank)));
	if (world.trial.n_spines != 0)
		world.spine = (world.spine + 1) % world.trial.n_spines;
	if (world.trial.servers != NULL)
		server_begin();
	job_make(0);
	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		const struct rig_joining *joining = &job->joining[rank];

		ops->move(world_engine(rank), &world.members[rank].transport);
		ck_assert_msg(ops->resume(world_engine(rank), joining->headers.fanin.epoch,
					  joining->ack.instance, first_block) == FANIN_OK,
			      "seed %lu, rank %u: %s", (unsigned long)world.trial.seed, rank,
			      world_error(rank));
		world_wake(rank);
	}
}

/* ------------------------------------------------------------------ time and members */

uint64_t
world_now(void)
{
	return rig_now_ns(world.rig);
}

void
world_pass(uint64_t ns)
{
	rig_run(world.rig, world_now() + ns, NULL, NULL);
}

bool
world_wait(uint64_t max_ns, bool (*condition)(void *user), void *user)
{
	return rig_run(world.rig, world_now() + max_ns, condition, user);
}

struct fanin_endpoint *
world_engine(uint16_t i)
{
	return world.members[i].engine;
}

const char *
world_error(uint16_t i)
{
	return world.protocol->error(world_engine(i))->text;
}

void
world_wake(uint16_t i)
{
	rig_host_wake(world.members[i].host, world_now());
}

void
world_leave(uint16_t i)
{
	world.members[i].is_away = true;
}

void
world_return(uint16_t i)
{
	world.members[i].is_away = false;
	world_wake(i);
}

void
world_kill(uint16_t i)
{
	world.members[i].is_gone = true;
	rig_host_kill(world.members[i].host);
}

void
world_restart(uint16_t i)
{
	fanin_engine_close(world_engine(i));
	engine_open(i);
	world.members[i].is_away = false;
}

uint64_t
world_missing(uint16_t i)
{
	struct fanin_ranks missing;

	world.protocol->missing(world_engine(i), &missing);
	return missing.words[0];
}

uint64_t
world_late(uint16_t i)
{
	struct fanin_ranks late;

	fanin_engine_late(world_engine(i), &late);
	return late.words[0];
}

void
world_expect_named(uint16_t gone, const char *words)
{
	for (uint16_t i = 0; i < world.n_members; i++) {
		if (world.members[i].is_gone)
			continue;
		ck_assert_int_eq(world.members[i].requests[0].status, FANIN_ERR_TIMEOUT);
		ck_assert_msg(world_missing(i) == UINT64_C(1) << gone &&
				      strstr(world_error(i), words) != NULL,
			      "rank %u misses %lx: %s", i, (unsigned long)world_missing(i),
			      world_error(i));
	}
}

void
world_add(void *sum, const void *stats, size_t size)
{
	for (size_t i = 0; i < size / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] += ((const uint64_t *)stats)[i];
}

/* ------------------------------------------------------------------ requests */

void
world_post(uint16_t i, uint32_t r, struct perf_collective like)
{
	static const uint8_t collectives[] = {
		[PERF_ALLREDUCE] = FANIN_COLLECTIVE_ALLREDUCE,
		[PERF_REDUCE] = FANIN_COLLECTIVE_REDUCE,
		[PERF_REDUCE_SCATTER] = FANIN_COLLECTIVE_REDUCE_SCATTER,
		[PERF_BROADCAST] = FANIN_COLLECTIVE_BROADCAST,
		[PERF_ALLGATHER] = FANIN_COLLECTIVE_ALLGATHER,
		[PERF_BARRIER] = FANIN_COLLECTIVE_ALLREDUCE,
	};
	struct member *member = &world.members[i];
	struct perf_collective *collective = &member->collectives[r];
	const size_t size = fanin_dtype_size_of(like.data.dtype);
	const size_t len = like.count * size;
	struct perf_range sends, receives;

	ck_assert_uint_lt(r, WORLD_REQUESTS);
	*collective = like;
	collective->rank = member->rank;
	collective->data.size = world.trial.n_ranks;
	collective->data.wide = world.trial.wide;
	sends = perf_collective_sends(collective);
	receives = perf_collective_receives(collective);
	member->send[r] = malloc(len + 1);
	member->recv[r] = (member->rank + r) % 2 == 0 ? member->send[r] : malloc(len + 1);
	memset(member->send[r], UNTOUCHED, len + 1);
	memset(member->recv[r], UNTOUCHED, len + 1);
	member->taken[r] = false;
	perf_data_fill(&collective->data, member->rank, r, sends.first, sends.n,
		       member->send[r] + sends.first * size);
	member->requests[r] = (struct fanin_request){
		.send = member->send[r] + sends.first * size,
		.recv = member->recv[r] + receives.first * size,
		.collective = collectives[like.kind],
		.dtype = (uint8_t)like.data.dtype,
		.op = (uint8_t)like.data.op,
		.root = like.root,
	};
	ck_assert_int_eq(world.protocol->post(member->engine, &member->requests[r],
					      perf_collective_has_parts(like.kind)
						      ? like.count / world.trial.n_ranks
						      : like.count),
			 FANIN_OK);
	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	world_wake(i);
}

void
world_post_all(uint32_t r, struct perf_collective like)
{
	for (uint16_t i = 0; i < world.n_members; i++)
		world_post(i, r, like);
}

struct perf_collective
world_sum(uint64_t count)
{
	return (struct perf_collective){
		.kind = PERF_ALLREDUCE,
		.count = count,
		.data = { .dtype = FANIN_I32, .op = FANIN_SUM, .seed = 1 },
	};
}

struct perf_collective
world_float_sum(uint64_t count)
{
	struct perf_collective sum = world_sum(count);

	sum.data.dtype = FANIN_F32;
	sum.data.random = true;
	return sum;
}

bool
world_collective(enum fanin_dtype dtype, unsigned int n, struct perf_collective *like)
{
	*like = (struct perf_collective){ .root = 2, .data = { .dtype = dtype, .seed = 3 } };
	for (; like->kind < PERF_COLLECTIVES; like->kind++) {
		like->count = like->kind == PERF_BARRIER ? 0 : 4000;
		for (like->data.op = FANIN_SUM; like->data.op <= FANIN_AVG; like->data.op++) {
			if (fanin_supports(dtype, like->data.op) &&
			    (like->data.op == FANIN_SUM || like->kind == PERF_ALLREDUCE) &&
			    n-- == 0)
				return true;
		}
	}
	return false;
}

bool
world_done(void *user)
{
	(void)user;
	for (uint16_t i = 0; i < world.n_members; i++) {
		const struct member *member = &world.members[i];

		for (uint32_t r = 0; r < world.n_requests && !member->is_gone; r++) {
			if (member->send[r] == NULL ||
			    (!member->taken[r] && member->requests[r].status >= 0))
				return false;
		}
	}
	return true;
}

uint64_t
world_run(void)
{
	const uint64_t begin_ns = world_now();

	world_wait(MAX_RUN_NS, world_done, NULL);
	for (uint16_t i = 0; i < world.n_members; i++) {
		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_msg(world.members[i].taken[r],
				      "seed %lu, %s, member %u, request %u: %s",
				      (unsigned long)world.trial.seed, world.trial.handler, i, r,
				      world_error(i));
	}
	return world_now() - begin_ns;
}

void
world_expect_equal_bits(void)
{
	for (uint16_t i = 0; i < world.n_members; i++) {
		const struct member *first = &world.members[i - world.members[i].rank];

		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_uint_eq(world.members[i].digest[r], first->digest[r]);
	}
}

/* ------------------------------------------------------------------ switches */

uint64_t
world_drops(enum fanin_reason reason)
{
	const struct rig_leaf_spine *network = &world.network;
	const uint16_t n_leaves = network->options.n_leaves;
	struct counters counters;
	uint64_t sum = 0;

	for (uint16_t i = 0; i < n_leaves + network->options.n_spines; i++) {
		pipeline_counters(rig_switch_pipeline(i < n_leaves ? network->leaves[i]
								   : network->spines[i - n_leaves]),
				  &counters);
		sum += counters.drops[reason];
	}
	return sum;
}

uint64_t
world_job_counter(const struct job *job, unsigned int counter)
{
	struct fanin_handler_stats stats;

	job_stats(job, &stats);
	return stats.own[counter];
}

uint64_t
world_counter(unsigned int counter)
{
	const struct rig_job *job = &world.jobs[0];
	uint64_t sum = 0;

	ck_assert(!world.protocol->has_leaders);
	for (uint16_t i = 0; i < job->n_leaves + (job->n_leaves > 1 ? 1u : 0u); i++)
		sum += world_job_counter(job->jobs[i], counter);
	return sum;
}
