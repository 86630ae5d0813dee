/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything that a handler may declare and ask for, in one protocol, end to end: switches make
 * partial sums of packets on their way to a collector, in slots that jobs share, until a timeout;
 * the result goes to the waiting ranks. The test acts as hosts and collector and moves the clock,
 * and the injector loses, duplicates and delays packets both ways.
 */
#include <arpa/inet.h>
#include <string.h>

#include <check.h>

#include "lab/reference/random.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define N_HOSTS 2u
#define N_JOBS 2u
#define N_BLOCKS 150u
#define IN_FLIGHT 8u
#define SHARED_SLOTS 16u
#define COLLECTOR "10.77.5.1" /* behind spine 1 */
#define COLLECTOR_PORT (SPINE_PORT + 1)
#define TYPE_RECEIPT 210
#define TIMEOUT_NS 1000u

enum {
	FAN_MERGED,
	FAN_COLLISIONS,
	FAN_EXPIRED,
	FAN_LATE,
	FAN_PASSED,
	FAN_RESULTS,
	FAN_NO_PACKET,
};

struct fan_slot {
	struct fanin_slot_tag tag;
	struct rte_mbuf *sum; /* NULL: it has been sent */
	uint64_t ranks;       /* whose contributions are in the sum */
	uint64_t ports;       /* by which they came */
};

static struct job *jobs[N_JOBS];
static uint64_t clock_ns;
static struct random chance;

/* The state of a block at the collector and the hosts of a job. */
static struct {
	int32_t sum[RING_SWITCH_COUNT];
	uint64_t ranks;
	uint64_t done; /* bitmap of hosts with the result */
} known[N_JOBS][N_BLOCKS];
static unsigned int n_receipts;

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static uint64_t
fan_timeout_ns(const struct fanin_job_params *params)
{
	return params->parameters[0];
}

static void
take_slot(struct fanin_handler_ctx *ctx, struct fan_slot *slot, uint32_t index,
	  const struct fanin_packet *packet)
{
	fanin_slot_take(&slot->tag, ctx, packet->headers->fanin.block);
	slot->sum = packet->mbuf;
	slot->ranks = packet->headers->fanin.members;
	slot->ports = UINT64_C(1) << packet->child;
	ck_assert(fanin_timer_arm(ctx, index, slot->tag.block));
}

static void
merge(struct fan_slot *slot, const struct fanin_packet *packet)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(slot->sum, struct fanin_headers *);
	int32_t *into = (int32_t *)(headers + 1);
	const int32_t *from = packet->payload;

	for (unsigned int i = 0; i < headers->fanin.count; i++)
		into[i] += from[i];
	slot->ranks |= packet->headers->fanin.members;
	headers->fanin.members = slot->ranks;
}

/* Handles a contribution in a slot that has been entered. */
static enum fanin_verdict
contribute(struct fanin_handler_ctx *ctx, struct fan_slot *slot, uint32_t index,
	   struct fanin_packet *packet)
{
	if (slot->tag.job == 0) {
		take_slot(ctx, slot, index, packet);
		return FANIN_VERDICT_HELD;
	}
	if (!fanin_slot_holds(&slot->tag, ctx, packet->headers->fanin.block)) {
		ctx->stats->own[FAN_COLLISIONS]++;
		fanin_emit_route(ctx, packet->mbuf, true);
		return FANIN_VERDICT_HELD;
	}
	slot->ports |= UINT64_C(1) << packet->child;
	if (slot->sum == NULL) {
		ctx->stats->own[FAN_LATE]++;
		fanin_emit_route(ctx, packet->mbuf, true);
		return FANIN_VERDICT_HELD;
	}
	if ((slot->ranks & packet->headers->fanin.members) == 0) {
		merge(slot, packet);
		ctx->stats->own[FAN_MERGED]++;
	}
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
fan_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		 struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct fan_slot *slot = memory;
	enum fanin_verdict verdict;

	(void)reason;
	/* A retransmission goes past all tables. */
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) != 0) {
		ctx->stats->own[FAN_PASSED]++;
		fanin_emit_route(ctx, packet->mbuf, true);
		return FANIN_VERDICT_HELD;
	}
	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	verdict = contribute(ctx, slot, index, packet);
	fanin_slot_leave(&slot->tag);
	return verdict;
}

/* Tells the collector that its result has come, with a packet of the switch's own. */
static void
send_receipt(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	struct rte_mbuf *mbuf = fanin_take(ctx);
	struct fanin_headers *headers;

	if (mbuf == NULL) {
		ctx->stats->own[FAN_NO_PACKET]++;
		return;
	}
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, sizeof(*headers));
	*headers = ctx->job->result_headers;
	headers->ip.dst_be = packet->headers->ip.src_be;
	fanin_wire_set_payload_len(headers, 0);
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	fanin_wire_encode_header(&headers->fanin, TYPE_RECEIPT, ctx->job->id, 0, ctx->job->keys.up);
	headers->fanin.block = packet->headers->fanin.block;
	fanin_emit_route(ctx, mbuf, true);
}

/* The result goes to the ports that wait or, if none is known, to all. */
static enum fanin_verdict
fan_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, struct fanin_packet *packet,
	  enum fanin_reason *reason)
{
	struct fan_slot *slot = memory;
	const struct fanin_hdr hdr = packet->headers->fanin;
	uint64_t ports = ctx->job->ports & ~(UINT64_C(1) << packet->child);

	(void)index;
	if (hdr.type != FANIN_TYPE_RESULT) {
		*reason = FANIN_REASON_DIRECTION;
		return FANIN_VERDICT_DROP;
	}
	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	if (fanin_slot_holds(&slot->tag, ctx, hdr.block)) {
		if (slot->ports == ports)
			++*(uint64_t *)ctx->state;
		if (slot->sum != NULL)
			fanin_release(ctx, slot->sum);
		slot->sum = NULL;
		fanin_slot_empty(&slot->tag);
	}
	fanin_slot_leave(&slot->tag);
	send_receipt(ctx, packet);
	*packet->headers = ctx->job->result_headers;
	fanin_wire_set_payload_len(packet->headers, packet->payload_len);
	packet->headers->fanin = hdr;
	packet->headers->fanin.contributions = N_HOSTS;
	packet->mbuf->ol_flags = 0;
	rte_mbuf_refcnt_set(packet->mbuf, (uint16_t)__builtin_popcountll(ports));
	fanin_emit_ports(ctx, packet->mbuf, ports);
	ctx->stats->own[FAN_RESULTS]++;
	return FANIN_VERDICT_HELD;
}

static bool
fan_expired(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, uint32_t block)
{
	struct fan_slot *slot = memory;

	(void)index;
	if (!fanin_slot_enter(&slot->tag))
		return false;
	if (fanin_slot_holds(&slot->tag, ctx, block) && slot->sum != NULL) {
		ctx->stats->own[FAN_EXPIRED]++;
		fanin_emit_route(ctx, slot->sum, true);
		slot->sum = NULL;
	}
	fanin_slot_leave(&slot->tag);
	return true;
}

static void
fan_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct fan_slot *slot = memory;

	if (slot->sum != NULL)
		fanin_release(ctx, slot->sum);
	slot->sum = NULL;
}

static const struct fanin_counter fan_counters[] = {
	[FAN_MERGED] = { "merged", "contributions added to a sum" },
	[FAN_COLLISIONS] = { "collisions", "contributions whose slot another block had" },
	[FAN_EXPIRED] = { "expired", "sums that left at their timeout" },
	[FAN_LATE] = { "late", "contributions whose sum had left" },
	[FAN_PASSED] = { "passed", "contributions sent again" },
	[FAN_RESULTS] = { "results_sent", "results on their way to hosts" },
	[FAN_NO_PACKET] = { "no_packet", "receipts that there was no packet for" },
	{ 0 },
};

static const struct fanin_parameter fan_parameters[] = {
	{ "timeout", "ns", 1, 1000000000, TIMEOUT_NS },
	{ 0 },
};

static const uint8_t fan_types[] = { FANIN_TYPE_RESULT, TYPE_RECEIPT, 0 };

static struct fanin_handler fan = {
	.name = "fan",
	.description = "partial sums of packets on their way",
	.makes_packets = true,
	.admission = FANIN_ADMIT_KEY,
	.slots_of = FANIN_SLOTS_SHARED,
	.slot_mbufs = { .fixed = 1 },
	.counters = fan_counters,
	.parameters = fan_parameters,
	.state_bytes = sizeof(uint64_t),
	.slot_bytes = sizeof(struct fan_slot),
	.contribution = fan_contribution,
	.types = fan_types,
	.other = fan_other,
	.timeout_ns = fan_timeout_ns,
	.expired = fan_expired,
	.slot_release = fan_release,
};

static const struct fanin_packet_type receipt = {
	.name = "RECEIPT",
	.text = "a result has come",
	.code = TYPE_RECEIPT,
	.direction = FANIN_UP,
	.class = FANIN_CLASS_BLOCK,
	.payload = FANIN_PAYLOAD_NOTHING,
	.count = FANIN_FIELD_ZERO,
	.number = FANIN_FIELD_ZERO,
};

/* Creates a job of two hosts here, and a switch behind spine 1's port. */
static struct job *
create(void)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = "fan",
		.n_members = 3,
		.n_ranks = 4,
		.members = { { .port = 0, .ip_be = host_ip_be(0) },
			     { .port = 1, .ip_be = host_ip_be(1) },
			     { .port = COLLECTOR_PORT, .ip_be = spine_ip_be(1) } },
	};
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code;
	struct job *job;

	ck_assert_msg(job_create(leaf.pipeline, &spec, &job, &code, error) == 0, "%s", error);
	return job;
}

static void
setup(void)
{
	/*
	 * Registered here, not before main: other suites of this program use all registered
	 * handlers that reduce.
	 */
	if (fanin_handler_find(fan.name) == NULL) {
		ck_assert_int_eq(fanin_wire_register_type(&receipt), 0);
		fanin_handler_register(&fan);
	}
	leaf_open();
	leaf_hears_all();
	clock_ns = UINT64_C(1000000000000);
	leaf.pipeline->clock = clock_read;
	leaf.pipeline->clock_user = &clock_ns;
	leaf.pipeline->jobs->shared_mbufs = SHARED_SLOTS;
	for (unsigned int j = 0; j < N_JOBS; j++)
		jobs[j] = create();
	ck_assert_ptr_eq(jobs[0]->pool, jobs[1]->pool);
	memset(known, 0, sizeof(known));
	n_receipts = 0;
	chance = random_seed(1);
}

static void
round_after(uint64_t ns)
{
	clock_ns += ns;
	ring_switch_rounds(&leaf, 1);
}

/* Sends a host's contribution to the collector. */
static void
host_send(unsigned int j, unsigned int h, uint32_t block, bool again)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_contribution(&leaf, jobs[j], h, 0, block, again, frame);

	headers->ip.dst_be = inet_addr(COLLECTOR);
	headers->fanin.members = UINT64_C(1) << h;
	leaf_set_checksum(frame);
	ring_switch_enqueue(&leaf, (uint16_t)h, frame, len);
}

static void
collector_answer(unsigned int j, uint32_t block)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_packet(&leaf, 9, FANIN_TYPE_RESULT, jobs[j]->params.id, 0,
				       known[j][block].sum, sizeof(known[j][block].sum), headers);

	headers->ip.src_be = inet_addr(COLLECTOR);
	headers->fanin.rank = 0;
	headers->fanin.block = block;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = RING_SWITCH_COUNT;
	leaf_set_checksum(frame);
	ring_switch_enqueue(&leaf, COLLECTOR_PORT, frame, len);
}

static unsigned int
job_index(const struct fanin_hdr *hdr)
{
	for (unsigned int j = 0; j < N_JOBS; j++) {
		if (jobs[j]->params.id == hdr->job)
			return j;
	}
	ck_abort_msg("job %u", hdr->job);
	return 0;
}

/* Takes a partial sum: a disjoint one is added, and one that contains the sum replaces it. */
static void
collector_take(const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	const unsigned int j = job_index(hdr);
	const uint64_t all = (UINT64_C(1) << N_HOSTS) - 1;
	const int32_t *values = (const int32_t *)(headers + 1);
	int32_t *sum = known[j][hdr->block].sum;
	uint64_t *ranks = &known[j][hdr->block].ranks;

	ck_assert(hdr->members != 0 && (hdr->members & ~all) == 0);
	ck_assert_uint_eq(headers->ip.dst_be, inet_addr(COLLECTOR));
	if ((*ranks & hdr->members) == 0) {
		for (unsigned int i = 0; i < RING_SWITCH_COUNT; i++)
			sum[i] += values[i];
		*ranks |= hdr->members;
	} else if ((*ranks & ~hdr->members) == 0) {
		memcpy(sum, values, RING_SWITCH_COUNT * sizeof(*sum));
		*ranks = hdr->members;
	}
	if (*ranks == all)
		collector_answer(j, hdr->block);
}

/* Takes the frames to the collector and to the hosts. */
static void
take_frames(void)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	const struct fanin_headers *headers = (const struct fanin_headers *)frame;
	size_t len;

	while ((len = ring_switch_take(&leaf, COLLECTOR_PORT, frame)) != 0) {
		ck_assert_uint_eq(fanin_wire_validate(frame, len), FANIN_REASON_NONE);
		if (headers->fanin.type == TYPE_RECEIPT)
			n_receipts++;
		else
			collector_take(headers);
	}
	for (uint16_t h = 0; h < N_HOSTS; h++) {
		while ((len = ring_switch_take(&leaf, h, frame)) != 0) {
			const unsigned int j = job_index(&headers->fanin);

			host_result_check(jobs[j], N_HOSTS, headers->fanin.block, frame, len);
			known[j][headers->fanin.block].done |= UINT64_C(1) << h;
		}
	}
	ck_assert_uint_eq(ring_switch_take(&leaf, SPINE_PORT, frame), 0);
}

static uint64_t
count(unsigned int counter)
{
	uint64_t sum = 0;

	for (unsigned int j = 0; j < N_JOBS; j++) {
		struct fanin_handler_stats stats;

		job_stats(jobs[j], &stats);
		sum += stats.own[counter];
	}
	return sum;
}

START_TEST(contributions_that_meet_leave_as_one)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	const struct fanin_headers *headers = (const struct fanin_headers *)frame;
	uint8_t mac[6];

	host_send(0, 0, 5, false);
	host_send(0, 1, 5, false);
	round_after(0);
	round_after(TIMEOUT_NS - 1);
	leaf_expect_silence();
	ck_assert_uint_eq(slot_pool_used(jobs[0]->pool), 1);
	round_after(1);
	ck_assert_uint_ne(ring_switch_take(&leaf, COLLECTOR_PORT, frame), 0);
	ck_assert_uint_eq(headers->fanin.members, 3);
	ck_assert_uint_eq(headers->ip.ttl, 63);
	spine_mac(1, mac);
	ck_assert_mem_eq(headers->eth.dst, mac, 6);
	leaf_expect_silence();
	collector_take(headers);
	round_after(0);
	take_frames();
	ck_assert_uint_eq(known[0][5].done, 3);
	ck_assert_uint_eq(n_receipts, 1);
	ck_assert_uint_eq(slot_pool_used(jobs[0]->pool), 0);
	ck_assert_uint_eq(*(const uint64_t *)jobs[0]->state, 1);
}
END_TEST

START_TEST(a_slot_that_another_job_has_costs_a_packet_that_is_not_combined)
{
	const uint32_t meets = (fanin_slot_index(&jobs[0]->params.slots, 5) ^
				jobs[1]->params.slots.salt) &
			       (SHARED_SLOTS - 1);

	host_send(0, 0, 5, false);
	round_after(0);
	leaf_expect_silence();
	host_send(1, 0, meets, false);
	host_send(1, 1, meets, false);
	round_after(0);
	take_frames();
	ck_assert_uint_eq(count(FAN_COLLISIONS), 2);
	round_after(0);
	take_frames();
	ck_assert_uint_eq(known[1][meets].done, 3);
	ck_assert_uint_eq(slot_pool_used(jobs[0]->pool), 1);
}
END_TEST

/*
 * A job's number may be reused soon; the new job must not get the first one's timers and held
 * packets.
 */
START_TEST(a_new_job_has_nothing_of_the_one_before_it)
{
	host_send(0, 0, 5, false);
	round_after(0);
	ck_assert_uint_eq(slot_pool_used(jobs[0]->pool), 1);
	rte_rcu_qsbr_thread_offline(leaf.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(leaf.pipeline, jobs[0]->params.id), 0);
	rte_rcu_qsbr_thread_online(leaf.pipeline->qsbr, 0);
	ck_assert_uint_eq(slot_pool_used(jobs[1]->pool), 0);
	jobs[0] = create();
	ck_assert_ptr_eq(jobs[0]->pool, jobs[1]->pool);
	clock_ns += TIMEOUT_NS / 2;
	host_send(0, 1, 5, false);
	round_after(0);
	/* The first job's timer. */
	round_after(TIMEOUT_NS / 2);
	leaf_expect_silence();
	ck_assert_uint_eq(count(FAN_EXPIRED), 0);
	job_slots_sweep(leaf.pipeline->jobs);
	ck_assert_uint_eq(slot_pool_used(jobs[0]->pool), 1);
	round_after(TIMEOUT_NS / 2);
	ck_assert_uint_eq(count(FAN_EXPIRED), 1);
}
END_TEST

/*
 * Sends data that not all hosts have results of, first to be combined, and then straight to the
 * collector.
 */
static bool
send_some(unsigned int j, uint32_t first, uint8_t (*sent)[N_BLOCKS])
{
	bool open = false;

	for (uint32_t block = first; block < RTE_MIN(first + IN_FLIGHT, N_BLOCKS); block++) {
		for (unsigned int h = 0; h < N_HOSTS; h++) {
			if ((known[j][block].done >> h & 1) != 0)
				continue;
			open = true;
			if (random_chance(&chance, 0.5))
				continue;
			host_send(j, h, block, sent[h][block] > 3);
			sent[h][block] += sent[h][block] < UINT8_MAX;
		}
	}
	return open;
}

START_TEST(every_host_gets_every_sum_whatever_the_links_do)
{
	static uint8_t sent[N_JOBS][N_HOSTS][N_BLOCKS];
	const struct pipeline_faults faults = { _i == 0 ? 0 : 0.05, 0.05, 0.1, (uint64_t)_i };
	struct faults *injector = &leaf.pipeline->workers[0]->faults;
	uint32_t first[N_JOBS] = { 0 };
	unsigned int n_done = 0;

	memset(sent, 0, sizeof(sent));
	chance = random_seed((uint64_t)_i + 1);
	faults_init(injector, &faults, 0);
	for (unsigned int turn = 0; n_done < N_JOBS; turn++) {
		ck_assert_uint_lt(turn, 20000);
		n_done = 0;
		for (unsigned int j = 0; j < N_JOBS; j++) {
			if (!send_some(j, first[j], sent[j]) && first[j] < N_BLOCKS)
				first[j] += IN_FLIGHT;
			n_done += first[j] >= N_BLOCKS;
		}
		round_after(random_below(&chance, TIMEOUT_NS / 2));
		take_frames();
	}
	injector->enabled = false;
	ck_assert_uint_gt(count(FAN_MERGED), 0);
	ck_assert_uint_gt(count(FAN_COLLISIONS), 0);
	ck_assert_uint_gt(count(FAN_EXPIRED), 0);
	ck_assert_uint_gt(count(FAN_LATE), 0);
	ck_assert_uint_gt(count(FAN_RESULTS), 0);
	ck_assert_uint_eq(count(FAN_NO_PACKET), 0);
	ck_assert_uint_gt(n_receipts, 0);
	if (_i > 0) {
		ck_assert_uint_gt(count(FAN_PASSED), 0);
		ck_assert_uint_gt(leaf_drops(FANIN_REASON_FAULT_DROP), 0);
	}
	/* Packets that stragglers have left are freed together with the job that owns them. */
	ring_switch_rounds(&leaf, 2 * FAULTS_MAX_DELAY);
	leaf_drain();
	rte_rcu_qsbr_thread_offline(leaf.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(leaf.pipeline, jobs[0]->params.id), 0);
	rte_rcu_qsbr_thread_online(leaf.pipeline->qsbr, 0);
	for (uint32_t i = 0; i <= jobs[1]->pool->mask; i++) {
		const struct fan_slot *slot = (const void *)jobs[1]->pool->slots[i];

		ck_assert(slot->tag.job == 0 || slot->tag.job == jobs[1]->params.id);
	}
}
END_TEST

Suite *
suite_contract(void)
{
	Suite *suite = suite_create("contract");
	TCase *tcase = tcase_create("contract");

	tcase_add_checked_fixture(tcase, setup, leaf_close);
	tcase_add_test(tcase, contributions_that_meet_leave_as_one);
	tcase_add_test(tcase, a_slot_that_another_job_has_costs_a_packet_that_is_not_combined);
	tcase_add_test(tcase, a_new_job_has_nothing_of_the_one_before_it);
	tcase_add_loop_test(tcase, every_host_gets_every_sum_whatever_the_links_do, 0, 6);
	suite_add_tcase(suite, tcase);
	return suite;
}
