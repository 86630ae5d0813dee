/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs of PA-ATP on a real pipeline: which ones a switch refuses, and how it runs one whose server,
 * hosts and leaf the test plays.
 */
#include <arpa/inet.h>
#include <string.h>

#include "protocols/pa_atp/switch/pa_atp.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define HOSTS 3
#define SERVER_PORT 3
#define SERVER_EPOCH 77
#define POOL_SLOTS 16
#define WINDOW 32 /* more than there are slots */

static const uint8_t server_mac[6] = { 0x02, 0, 0, 0, 2, 9 };

static struct ring_switch sw;
static struct job *job;
static char error[PIPELINE_ERROR_LEN];
static uint8_t buffer[4096] __attribute__((aligned(8)));
static struct fanin_headers *const got = (struct fanin_headers *)buffer;

/* Hosts 0 to n - 1 on ports of their own, and a server behind port 3. */
static struct job_spec
make_spec(uint16_t n)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "pa-atp",
		.slots = 2 * WINDOW,
		.n_members = n,
		.has_parent = true,
		.parent = { .port = SERVER_PORT,
			    .ip_be = host_ip_be(SERVER_PORT),
			    .is_server = true },
		/* The clock is the machine's, which may stand still for a while. */
		.n_parameters = 1,
		.parameters = { { "expire_us", 60000000 } },
	};

	for (uint16_t i = 0; i < n; i++) {
		spec.members[i].port = i;
		spec.members[i].ip_be = host_ip_be(i);
		spec.members[i].ranks = fanin_ranks_one(i);
	}
	memcpy(spec.parent.mac, server_mac, sizeof(server_mac));
	return spec;
}

/* The only worker is this thread: nobody waits for it. */
static void
destroy(const struct job *gone)
{
	rte_rcu_qsbr_thread_offline(sw.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(sw.pipeline, gone->params.id), 0);
	rte_rcu_qsbr_thread_online(sw.pipeline->qsbr, 0);
}

static int
create(const struct job_spec *spec, struct job **created)
{
	const char *code;

	return job_create(sw.pipeline, spec, created, &code, error);
}

static void
open_switch(uint16_t n_workers)
{
	ring_switch_eal();
	if (n_workers == 1)
		ring_switch_open(&sw, 4, 1, NULL);
	else
		ring_switch_open_clusters(&sw, 4, n_workers, n_workers, NULL);
	sw.pipeline->jobs->shared_mbufs = POOL_SLOTS;
}

static void
expect_refused(const struct job_spec *spec, const char *text)
{
	struct job *none;

	ck_assert_int_eq(create(spec, &none), -EINVAL);
	ck_assert_msg(strstr(error, text) != NULL, "\"%s\" is not in: %s", text, error);
}

START_TEST(unsupported_jobs_are_refused_by_name)
{
	struct job_spec spec;

	open_switch(1);
	spec = make_spec(HOSTS);
	spec.has_parent = false;
	expect_refused(&spec, "no parent for a job of \"pa-atp\", expected a server");
	spec = make_spec(HOSTS);
	spec.wide = true;
	expect_refused(&spec, "accumulate \"f32\" for a job of \"pa-atp\"");
	spec = make_spec(HOSTS);
	spec.authenticate = true;
	expect_refused(&spec, "authenticate for a job of \"pa-atp\"");
	spec = make_spec(HOSTS);
	spec.reproducible = true;
	expect_refused(&spec, "handler \"pa-atp\" for a reproducible job");
	spec = make_spec(HOSTS);
	spec.n_ranks = 65;
	expect_refused(&spec, "size 65 for a job of \"pa-atp\", expected at most 64 ranks");
	/* A server takes sums of all ranks. */
	spec = make_spec(HOSTS);
	spec.n_ranks = 5;
	expect_refused(&spec, "rank 3 is behind no member, expected all 5: the parent is a server");
	/* And not those of handlers that make results themselves. */
	spec = make_spec(HOSTS);
	spec.handler = "single";
	spec.n_parameters = 0;
	expect_refused(&spec, "a server as the parent of a job of \"single\"");
	spec = make_spec(HOSTS);
	spec.n_parameters = 1;
	spec.parameters[0].name = "eta_percent";
	spec.parameters[0].value = 101;
	expect_refused(&spec, "parameter eta_percent: found 101, expected 1 to 100");
	ring_switch_close(&sw);
}
END_TEST

START_TEST(window_may_be_larger_than_the_pool)
{
	struct job_spec spec = make_spec(HOSTS);

	open_switch(1);
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	ck_assert_uint_eq(job->params.window, WINDOW);
	ck_assert_uint_eq(job->pool->mask + 1, POOL_SLOTS);
	ck_assert(job->params.parent_is_server);
	destroy(job);
	/* A job that names no slots has the pool's. */
	spec.slots = 0;
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	ck_assert_uint_eq(2 * job->params.window, POOL_SLOTS);
	destroy(job);
	/* Without a pool there is nothing. */
	sw.pipeline->jobs->shared_mbufs = 0;
	ck_assert_int_eq(create(&spec, &job), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(error, "limits.shared_slots"));
	ring_switch_close(&sw);
}
END_TEST

/* A leaf has some of the ranks, or all of them, and a switch as its parent. */
START_TEST(leaf_needs_no_server_of_its_own)
{
	struct job_spec spec = make_spec(2);

	open_switch(1);
	spec.parent.is_server = false;
	spec.n_ranks = _i == 0 ? 5 : 2;
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	ck_assert(!job->params.parent_is_server);
	ring_switch_close(&sw);
}
END_TEST

/* ------------------------------------------------------------------ a run */

static const struct fanin_headers *
take_at(uint16_t port, enum fanin_type type)
{
	const size_t len = ring_switch_take(&sw, port, buffer);

	ck_assert_uint_ge(len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(fanin_wire_validate(buffer, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(got->fanin.type, type);
	return got;
}

static void
expect_silence(void)
{
	for (uint16_t port = 0; port < sw.n_ports; port++)
		ck_assert_uint_eq(ring_switch_take(&sw, port, buffer), 0);
}

/* A packet of the server to the switch. */
static size_t
server_packet(enum fanin_type type, uint32_t epoch, const void *payload, uint32_t payload_len,
	      uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_packet(&sw, SERVER_PORT, type, job->params.id, epoch, payload,
				       payload_len, headers);

	memcpy(headers->eth.src, server_mac, sizeof(headers->eth.src));
	headers->udp.src_be = htons(FANIN_WIRE_DEFAULT_UDP_PORT);
	headers->fanin.rank = 0;
	return len;
}

/*
 * Of a server slots and parameters are its own matter; of the aggregating switch slots are those
 * that the job has.
 */
static void
server_ack(uint64_t nonce, uint16_t n_ranks)
{
	const struct join_ack_words body = {
		.body = {
			.nonce = nonce,
			.state = FANIN_JOIN_ACTIVE,
			.size = n_ranks,
			.window = job->params.window,
			.payload_bytes = job->params.payload_bytes,
			.cookie = 4711,
			.instance = 5,
			.slots = 999,
			.sharing = 99,
			.parameters = { 1, 2, 3 },
		},
		.joined = (1u << n_ranks) - 1,
	};
	uint8_t frame[4096];
	const size_t len = server_packet(FANIN_TYPE_JOIN_ACK, SERVER_EPOCH, &body, sizeof(body),
					 frame);

	ring_switch_put(&sw, SERVER_PORT, frame, len);
}

static const struct fanin_join_ack_body *
join_again(unsigned int h, uint64_t nonce, uint16_t n_ranks)
{
	ck_assert_ptr_nonnull(host_sends_join(&sw, h, job->params.id, nonce + h, n_ranks, got));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_JOIN_ACK);
	return (const struct fanin_join_ack_body *)(got + 1);
}

/* All children join, and the server takes the switch in. Returns the run's epoch. */
static uint32_t
start_run(uint64_t nonce, uint16_t n_ranks)
{
	const struct fanin_join_body *join = (const struct fanin_join_body *)(got + 1);

	for (uint16_t h = 0; h < job->params.n_children; h++)
		join_again(h, nonce, n_ranks);
	take_at(SERVER_PORT, FANIN_TYPE_JOIN);
	ck_assert_uint_eq(got->fanin.contributions, job->params.n_below);
	server_ack(join->nonce, n_ranks);
	ck_assert_uint_eq(join_again(0, nonce, n_ranks)->state, FANIN_JOIN_ACTIVE);
	return got->fanin.epoch;
}

static void
start_job(uint16_t n_workers, uint32_t *epoch)
{
	const struct job_spec spec = make_spec(HOSTS);

	open_switch(n_workers);
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	*epoch = start_run(10, HOSTS);
}

/* Hosts have the results of the blocks before this one. */
static uint32_t progress;

/* A host's contribution, which is acknowledged. */
static void
contribute(unsigned int h, uint32_t epoch, uint32_t block)
{
	uint8_t frame[4096];
	const size_t len = host_contribution(&sw, job, h, epoch, block, false, frame);
	uint8_t mac[6];

	((struct fanin_headers *)frame)->fanin.progress = progress;
	ring_switch_put(&sw, (uint16_t)h, frame, len);
	take_at((uint16_t)h, FANIN_TYPE_GACK);
	host_mac(h, mac);
	ck_assert_mem_eq(got->eth.dst, mac, 6);
	ck_assert_uint_eq(got->ip.dst_be, host_ip_be(h));
	ck_assert_uint_eq(got->udp.dst_be, htons(FANIN_WIRE_DEFAULT_UDP_PORT));
	ck_assert_uint_eq(got->fanin.key, job->params.keys.down);
	ck_assert_uint_eq(got->fanin.epoch, epoch);
	ck_assert_uint_eq(got->fanin.block, block);
	ck_assert_uint_eq(got->fanin.count, h);
}

/* The server gets the sum of these hosts. */
static void
expect_upward(enum fanin_type type, uint64_t members, uint32_t block)
{
	const struct fanin_headers *up = take_at(SERVER_PORT, type);
	const int32_t *values = (const int32_t *)(up + 1);
	int32_t slope = 0;

	for (unsigned int h = 0; h < HOSTS; h++)
		slope += (members >> h & 1) != 0 ? (int32_t)h + 1 : 0;
	ck_assert_mem_eq(up->eth.dst, server_mac, 6);
	ck_assert_uint_eq(up->ip.dst_be, host_ip_be(SERVER_PORT));
	ck_assert_uint_eq(up->ip.src_be, sw.pipeline->ip_be);
	ck_assert_uint_eq(up->fanin.key, job->params.keys.up);
	ck_assert_uint_eq(up->fanin.epoch, SERVER_EPOCH);
	ck_assert_uint_eq(up->fanin.block, block);
	ck_assert_uint_eq(up->fanin.contributions, __builtin_popcountll(members));
	ck_assert_uint_eq(up->fanin.members, type == FANIN_TYPE_PARTIAL ? members : 0);
	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		ck_assert_int_eq(values[i],
				 slope * i + (int32_t)up->fanin.contributions * (int32_t)block);
}

/* The server's result, to the group as the server sends it. */
static void
send_result(uint32_t block)
{
	int32_t values[RING_SWITCH_COUNT];
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		values[i] = HOSTS * (HOSTS + 1) / 2 * i + HOSTS * (int32_t)block;
	len = server_packet(FANIN_TYPE_RESULT, SERVER_EPOCH, values, sizeof(values), frame);
	memcpy(headers->eth.dst, job->params.result_headers.eth.dst, 6);
	headers->ip.dst_be = job->group_be;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	headers->fanin.contributions = HOSTS;
	headers->fanin.block = block;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = RING_SWITCH_COUNT;
	ring_switch_put(&sw, SERVER_PORT, frame, len);
}

static void
expect_results(uint32_t block)
{
	for (uint16_t h = 0; h < HOSTS; h++)
		host_result_check(job, HOSTS, block, buffer, ring_switch_take(&sw, h, buffer));
}

static uint64_t
count(enum pa_atp_counter counter)
{
	struct fanin_handler_stats stats;

	job_stats(job, &stats);
	return stats.own[counter];
}

/* _i: workers. */
START_TEST(blocks_go_to_the_server_and_results_to_the_hosts)
{
	uint32_t epoch;

	start_job((uint16_t)_i, &epoch);
	for (uint32_t block = 0; block < 2 * WINDOW; block++) {
		for (unsigned int h = 0; h < HOSTS; h++)
			contribute((h + block) % HOSTS, epoch, block);
		expect_upward(FANIN_TYPE_CONTRIBUTION, 7, block);
		send_result(block);
		expect_results(block);
		expect_silence();
		progress = block + 1;
	}
	ck_assert_uint_eq(count(PA_ATP_GACKS), 2 * HOSTS * WINDOW);
	ck_assert_uint_eq(count(PA_ATP_AACKS), 2 * WINDOW);
	ck_assert_uint_eq(count(PA_ATP_OVERFLOWS), 0);
	ck_assert_uint_eq(slot_pool_used(job->pool), 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(hosts_learn_of_slots_and_parameters_from_their_switch)
{
	const struct fanin_join_ack_body *ack;
	struct job_spec spec = make_spec(HOSTS);
	struct job *other;

	open_switch(1);
	spec.n_parameters = 1;
	spec.parameters[0].name = "congestion";
	spec.parameters[0].value = 3;
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	start_run(10, HOSTS);
	ack = join_again(1, 10, HOSTS);
	ck_assert_str_eq(ack->handler, "pa-atp");
	ck_assert_uint_eq(ack->slots, POOL_SLOTS);
	ck_assert_uint_eq(ack->sharing, 1);
	for (unsigned int i = 0; i < FANIN_WIRE_PARAMETERS; i++)
		ck_assert_uint_eq(ack->parameters[i], job->params.parameters[i]);
	ck_assert_uint_eq(ack->parameters[FANIN_PA_ATP_CONGESTION], 3);
	ck_assert_uint_eq(ack->parameters[FANIN_PA_ATP_ETA], 80);
	/* Another job shares them as long as it is there. */
	spec.n_parameters = 0;
	ck_assert_msg(create(&spec, &other) == 0, "%s", error);
	ck_assert_uint_eq(join_again(1, 10, HOSTS)->sharing, 2);
	destroy(other);
	ck_assert_uint_eq(join_again(1, 10, HOSTS)->sharing, 1);
	destroy(job);
	/* A job with slots of its own. */
	job = ring_switch_job(&sw, 2, 8);
	ack = join_again(0, 10, 2);
	ck_assert_uint_eq(ack->slots, 8);
	ck_assert_uint_eq(ack->sharing, 1);
	for (unsigned int i = 0; i < FANIN_WIRE_PARAMETERS; i++)
		ck_assert_uint_eq(ack->parameters[i], 0);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(overflow_flush_and_query_reach_the_server)
{
	uint8_t frame[4096];
	size_t len;
	uint32_t epoch;

	start_job(1, &epoch);
	/* One slot, two blocks. */
	contribute(0, epoch, 1);
	contribute(1, epoch, 1 + POOL_SLOTS);
	expect_upward(FANIN_TYPE_PARTIAL, 2, 1 + POOL_SLOTS);
	len = server_packet(FANIN_TYPE_FLUSH, SERVER_EPOCH, NULL, 0, frame);
	((struct fanin_headers *)frame)->fanin.block = 1;
	ring_switch_put(&sw, SERVER_PORT, frame, len);
	expect_upward(FANIN_TYPE_PARTIAL, 1, 1);
	contribute(2, epoch, 2);
	host_query(&sw, job, 1, epoch, 2, 9, true);
	expect_upward(FANIN_TYPE_PARTIAL, 4, 2);
	take_at(SERVER_PORT, FANIN_TYPE_QUERY);
	ck_assert_uint_eq(got->fanin.number, 9);
	ck_assert_uint_eq(got->fanin.members, fanin_way_push(0, 1));
	expect_silence();
	ck_assert_uint_eq(count(PA_ATP_OVERFLOWS), 1);
	ck_assert_uint_eq(count(PA_ATP_FLUSHES), 2);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(answer_has_missing_hosts_probed)
{
	struct answer_words words = answer_words_make(4, 0, 0);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint32_t epoch;
	size_t len;

	start_job(1, &epoch);
	len = server_packet(FANIN_TYPE_ANSWER, SERVER_EPOCH, &words, sizeof(words), frame);
	headers->fanin.block = 2;
	headers->fanin.count = FANIN_BLOCK_OPEN;
	headers->fanin.number = 9;
	headers->fanin.members = fanin_way_push(0, 1);
	ring_switch_put(&sw, SERVER_PORT, frame, len);
	take_at(1, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(answer_missing((const struct answer_words *)(const void *)(got + 1)), 4);
	/* Host 2 is watched from now on. */
	ck_assert_uint_ne(job->members[2].probe.until_ns, 0);
	ck_assert_uint_eq(job->members[0].probe.until_ns, 0);
	while (ring_switch_take(&sw, 2, buffer) != 0)
		;
	ring_switch_close(&sw);
}
END_TEST

static void
leave_all(uint32_t epoch)
{
	for (unsigned int h = 0; h < HOSTS; h++) {
		uint8_t frame[4096];
		const size_t len = host_packet(&sw, h, FANIN_TYPE_LEAVE, job->params.id, epoch,
					       NULL, 0, (struct fanin_headers *)frame);

		ring_switch_put(&sw, (uint16_t)h, frame, len);
		take_at((uint16_t)h, FANIN_TYPE_LEAVE_ACK);
	}
	take_at(SERVER_PORT, FANIN_TYPE_LEAVE);
}

START_TEST(run_that_ends_leaves_nothing)
{
	const struct pa_atp_state *state;
	uint32_t epoch, next;

	start_job(1, &epoch);
	state = job->state;
	contribute(0, epoch, 1);
	contribute(1, epoch, 1 + POOL_SLOTS);
	expect_upward(FANIN_TYPE_PARTIAL, 2, 1 + POOL_SLOTS);
	job_slots_sweep(sw.pipeline->jobs);
	ck_assert_uint_eq(state->common->used, 1);
	ck_assert_uint_eq(state->common->overflowed, 1);
	leave_all(epoch);
	job_slots_sweep(sw.pipeline->jobs);
	ck_assert_uint_eq(slot_pool_used(job->pool), 0);
	ck_assert_uint_eq(state->common->used, 0);
	ck_assert_uint_eq(state->common->overflowed, 0);
	/* The next one begins anew. */
	next = start_run(20, HOSTS);
	ck_assert_uint_ne(next, epoch);
	contribute(0, next, 1);
	ck_assert_uint_eq(got->fanin.members, 2);
	/* With the job goes what is in its slots, and what it has entered. */
	contribute(1, next, 1 + POOL_SLOTS);
	expect_upward(FANIN_TYPE_PARTIAL, 2, 1 + POOL_SLOTS);
	destroy(job);
	ring_switch_close(&sw);
}
END_TEST

START_TEST(job_that_goes_leaves_the_others_counts_right)
{
	const struct job_spec spec = make_spec(HOSTS);
	struct pa_atp_common *common;
	struct job *first;
	uint32_t epoch;

	start_job(1, &epoch);
	contribute(0, epoch, 1);
	contribute(1, epoch, 1 + POOL_SLOTS);
	expect_upward(FANIN_TYPE_PARTIAL, 2, 1 + POOL_SLOTS);
	first = job;
	common = first->params.slots.common;
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	ck_assert_ptr_eq(job->params.slots.common, common);
	epoch = start_run(30, HOSTS);
	contribute(0, epoch, 3);
	ck_assert_uint_eq(common->used, 2);
	ck_assert_uint_eq(common->overflowed, 1);
	destroy(first);
	ck_assert_uint_eq(common->used, 1);
	ck_assert_uint_eq(common->overflowed, 0);
	ring_switch_close(&sw);
}
END_TEST

/* Port 2 leads to a leaf with the ranks 2 and 3. */
START_TEST(leaf_s_gradients_are_acknowledged_to_the_leaf)
{
	struct job_spec spec = make_spec(HOSTS);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	uint32_t epoch;
	size_t len;

	open_switch(1);
	spec.n_ranks = 4;
	spec.members[2].ranks = fanin_ranks_of_word(0xc);
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	epoch = start_run(10, 4);
	for (uint16_t rank = 2; rank < 5; rank++) {
		len = host_contribution(&sw, job, 2, epoch, 1, false, frame);
		headers->fanin.type = FANIN_TYPE_PARTIAL;
		headers->fanin.members = UINT64_C(1) << rank;
		ring_switch_put(&sw, 2, frame, len);
		if (rank == 4) {
			/* No rank of the job. */
			take_at(2, FANIN_TYPE_REFUSED);
			ck_assert_uint_eq(got->fanin.count, FANIN_REASON_RANK);
			continue;
		}
		take_at(2, FANIN_TYPE_GACK);
		ck_assert_uint_eq(got->fanin.count, rank);
		ck_assert_uint_eq(got->fanin.rank, 2);
		ck_assert_uint_eq(got->ip.dst_be, host_ip_be(2));
	}
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_RANK), 1);
	ring_switch_close(&sw);
}
END_TEST

/* A packet of the parent to the job's group. */
static void
put_to_group(uint8_t *frame, size_t len)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;

	memcpy(headers->eth.dst, job->params.result_headers.eth.dst, 6);
	headers->ip.dst_be = job->group_be;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	ring_switch_put(&sw, SERVER_PORT, frame, len);
}

/*
 * This switch has the ranks 0 to 2 of 5. Its parent is the aggregating switch, which the test
 * plays.
 */
START_TEST(leaf_passes_on_in_both_directions)
{
	struct job_spec spec = make_spec(HOSTS);
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const struct fanin_join_ack_body *ack;
	uint32_t epoch;
	size_t len;

	open_switch(1);
	spec.parent.is_server = false;
	spec.n_ranks = 5;
	ck_assert_msg(create(&spec, &job) == 0, "%s", error);
	epoch = start_run(10, 5);
	/* The slots are the aggregating switch's; parameters are the job's. */
	ack = join_again(1, 10, 5);
	ck_assert_uint_eq(ack->slots, 999);
	ck_assert_uint_eq(ack->sharing, 99);
	ck_assert_uint_eq(ack->parameters[FANIN_PA_ATP_CONGESTION], 5);

	len = host_contribution(&sw, job, 1, epoch, 4, false, frame);
	ring_switch_put(&sw, 1, frame, len);
	expect_upward(FANIN_TYPE_PARTIAL, 2, 4);
	expect_silence();
	/* The parent's answer to this switch alone. */
	len = server_packet(FANIN_TYPE_GACK, SERVER_EPOCH, NULL, 0, frame);
	headers->fanin.block = 4;
	headers->fanin.count = 1;
	headers->fanin.members = 4711;
	ring_switch_put(&sw, SERVER_PORT, frame, len);
	take_at(1, FANIN_TYPE_GACK);
	ck_assert_uint_eq(got->fanin.epoch, epoch);
	ck_assert_uint_eq(got->fanin.members, 4711);
	ck_assert_uint_eq(got->fanin.count, 1);
	expect_silence();
	/* What it passes on goes to the group: two of these are for ranks behind this switch. */
	len = server_packet(FANIN_TYPE_ASK, SERVER_EPOCH, NULL, 0, frame);
	headers->fanin.block = 4;
	headers->fanin.members = 0x15;
	put_to_group(frame, len);
	take_at(0, FANIN_TYPE_ASK);
	ck_assert_uint_eq(got->fanin.members, 5);
	take_at(2, FANIN_TYPE_ASK);
	expect_silence();
	/* A packet of an earlier run of the parent's. */
	len = server_packet(FANIN_TYPE_GACK, SERVER_EPOCH - 1, NULL, 0, frame);
	ring_switch_put(&sw, SERVER_PORT, frame, len);
	expect_silence();
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_EPOCH), 1);
	ring_switch_close(&sw);
}
END_TEST

Suite *
suite_pa_atp_jobs(void)
{
	Suite *suite = suite_create("pa_atp_jobs");
	TCase *tcase = tcase_create("jobs");

	tcase_add_test(tcase, unsupported_jobs_are_refused_by_name);
	tcase_add_test(tcase, window_may_be_larger_than_the_pool);
	tcase_add_loop_test(tcase, leaf_needs_no_server_of_its_own, 0, 2);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("runs");
	tcase_add_loop_test(tcase, blocks_go_to_the_server_and_results_to_the_hosts, 1, 3);
	tcase_add_test(tcase, hosts_learn_of_slots_and_parameters_from_their_switch);
	tcase_add_test(tcase, overflow_flush_and_query_reach_the_server);
	tcase_add_test(tcase, answer_has_missing_hosts_probed);
	tcase_add_test(tcase, run_that_ends_leaves_nothing);
	tcase_add_test(tcase, job_that_goes_leaves_the_others_counts_right);
	tcase_add_test(tcase, leaf_s_gradients_are_acknowledged_to_the_leaf);
	tcase_add_test(tcase, leaf_passes_on_in_both_directions);
	suite_add_tcase(suite, tcase);
	return suite;
}
