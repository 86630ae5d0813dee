/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose packets are admitted by key: which packets in transit the switch takes for them, and
 * which it does not.
 */
#include <arpa/inet.h>
#include <string.h>

#include <check.h>

#include "lab/reference/random.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define ELSEWHERE "10.77.5.1" /* behind spine 1 */

static struct job *job;
static uint64_t clock_ns;

/* The arguments of the last call of the handler below. */
static struct {
	unsigned int n;
	uint16_t child;
	uint8_t type;
	uint32_t epoch; /* ctx's */
	uint32_t block;
	uint32_t payload_len;
} called;

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static enum fanin_verdict
keyed_take(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
	   enum fanin_reason *reason)
{
	(void)slot;
	(void)reason;
	ck_assert_uint_eq(index, fanin_slot_index(&ctx->job->slots, packet->headers->fanin.block));
	called.n++;
	called.child = packet->child;
	called.type = packet->headers->fanin.type;
	called.epoch = ctx->epoch;
	called.block = packet->headers->fanin.block;
	called.payload_len = packet->payload_len;
	return FANIN_VERDICT_FREE;
}

static void
keyed_release(struct fanin_handler_ctx *ctx, void *slot)
{
	(void)ctx;
	(void)slot;
}

static const uint8_t keyed_types[] = { FANIN_TYPE_RESULT, 0 };

static struct fanin_handler keyed = {
	.name = "keyed",
	.description = "takes packets on their way",
	.admission = FANIN_ADMIT_KEY,
	.slot_mbufs = { .fixed = 1 },
	.slot_bytes = 8,
	.contribution = keyed_take,
	.types = keyed_types,
	.other = keyed_take,
	.slot_release = keyed_release,
};

/* Creates a job of host 0 and of the switch behind port 2; the other ranks are elsewhere. */
static int
create(const char *handler, bool authenticate, struct job **created, char *error)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = handler,
		.authenticate = authenticate,
		.n_members = 2,
		.n_ranks = 8,
		.members = { { .port = 0, .ip_be = host_ip_be(0), .ranks = { { 1 } } },
			     { .port = SPINE_PORT, .ip_be = spine_ip_be(0), .ranks = { { 6 } } } },
	};
	const char *code;

	return job_create(leaf.pipeline, &spec, created, &code, error);
}

static void
setup(void)
{
	char error[PIPELINE_ERROR_LEN] = "";

	/*
	 * Registered here, not before main: other suites of this program use all registered
	 * handlers that reduce.
	 */
	if (fanin_handler_find(keyed.name) == NULL)
		fanin_handler_register(&keyed);
	leaf_open();
	leaf_hears_all();
	clock_ns = UINT64_C(1000000000000);
	leaf.pipeline->clock = clock_read;
	leaf.pipeline->clock_user = &clock_ns;
	ck_assert_msg(create("keyed", false, &job, error) == 0, "%s", error);
	memset(&called, 0, sizeof(called));
}

/*
 * Makes a contribution of host 0 to block 7 on its way to an address, with the switch as a router.
 */
static size_t
on_its_way(const char *destination, uint8_t *frame)
{
	const size_t len = host_contribution(&leaf, job, 0, 5, 7, false, frame);

	((struct fanin_headers *)frame)->ip.dst_be = inet_addr(destination);
	leaf_set_checksum(frame);
	return len;
}

/* Makes the same to host 1, with the switch as a bridge. */
static size_t
to_neighbor(uint8_t *frame)
{
	const size_t len = on_its_way("10.0.0.2", frame);

	host_mac(1, ((struct fanin_headers *)frame)->eth.dst);
	return len;
}

static unsigned int
frames_out(void)
{
	unsigned int n = 0;

	for (uint16_t p = 0; p < leaf.n_ports; p++) {
		while (ring_switch_take(&leaf, p, leaf_out) != 0)
			n++;
	}
	return n;
}

START_TEST(a_packet_that_would_be_routed_is_taken)
{
	uint8_t frame[4096];

	ck_assert_uint_eq(job->params.ports, 1 | 1 << SPINE_PORT);
	ring_switch_put(&leaf, 0, frame, on_its_way(ELSEWHERE, frame));
	ck_assert_uint_eq(called.n, 1);
	ck_assert_uint_eq(called.child, 0);
	ck_assert_uint_eq(called.type, FANIN_TYPE_CONTRIBUTION);
	ck_assert_uint_eq(called.block, 7);
	ck_assert_uint_eq(called.payload_len, RING_SWITCH_COUNT * 4);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf.pipeline->workers[0]->counters.routed, 0);
}
END_TEST

START_TEST(a_packet_that_would_be_forwarded_is_taken)
{
	uint8_t frame[4096], mac[6];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = to_neighbor(frame);

	host_mac(77, headers->eth.src);
	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 1);
	leaf_expect_silence();
	/* The switch has learned the sender's port. */
	host_mac(77, mac);
	ck_assert_int_eq(mac_table_lookup(leaf.pipeline->macs, mac_key_make(mac, 0)), 0);
	headers->eth.src[0] |= 1;
	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 1);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_SOURCE_MAC), 1);
}
END_TEST

START_TEST(a_packet_for_the_switch_itself_is_taken)
{
	uint8_t frame[4096];

	ring_switch_put(&leaf, 0, frame, on_its_way(RING_SWITCH_IP, frame));
	ck_assert_uint_eq(called.n, 1);
	leaf_expect_silence();
}
END_TEST

START_TEST(rank_source_and_run_are_the_handlers_to_look_at)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = on_its_way(ELSEWHERE, frame);

	headers->fanin.rank = 4000;
	headers->fanin.epoch = 0;
	headers->ip.src_be = inet_addr("10.99.0.1");
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	ck_assert_uint_eq(called.n, 1);
	ck_assert_uint_eq(called.child, SPINE_PORT);
	/* The number has belonged to no other job. */
	ck_assert_uint_eq(called.epoch, job->lone_epoch);
	ck_assert_uint_ne(called.epoch, 0);
	/* The switch also takes packets that go down. */
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.key = job->params.keys.down;
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	ck_assert_uint_eq(called.n, 2);
	ck_assert_uint_eq(called.type, FANIN_TYPE_RESULT);
	leaf_expect_silence();
}
END_TEST

START_TEST(members_may_join_and_the_handler_knows_their_run)
{
	uint8_t frame[4096] __attribute__((aligned(8)));
	struct fanin_headers *answer = (struct fanin_headers *)frame;

	ck_assert_ptr_nonnull(host_sends_join(&leaf, 0, job->params.id, 1, 8, answer));
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_JOIN_ACK);
	leaf_drain();
	__atomic_store_n(&job->epoch, 99, __ATOMIC_RELEASE);
	ring_switch_put(&leaf, 0, frame, on_its_way(ELSEWHERE, frame));
	ck_assert_uint_eq(called.n, 1);
	ck_assert_uint_eq(called.epoch, 99);
}
END_TEST

/*
 * Puts the frame into a port; it must be dropped for this reason, and must not leave by any port.
 */
static void
expect_dropped(uint16_t port, const uint8_t *frame, size_t len, enum fanin_reason reason)
{
	const uint64_t before = leaf_drops(reason);

	ring_switch_put(&leaf, port, frame, len);
	ck_assert_uint_eq(leaf_drops(reason), before + 1);
	ck_assert_uint_eq(called.n, 0);
	leaf_expect_silence();
}

START_TEST(a_wrong_key_ends_a_packets_way)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = on_its_way(ELSEWHERE, frame);

	headers->fanin.key ^= 1;
	expect_dropped(0, frame, len, FANIN_REASON_KEY);
	/* The key of the other direction. */
	headers->fanin.key = job->params.keys.down;
	expect_dropped(0, frame, len, FANIN_REASON_KEY);
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.key = job->params.keys.up;
	expect_dropped(SPINE_PORT, frame, len, FANIN_REASON_KEY);
	len = to_neighbor(frame);
	headers->fanin.key = 0;
	expect_dropped(0, frame, len, FANIN_REASON_KEY);
}
END_TEST

START_TEST(a_port_that_is_no_members_ends_a_packets_way)
{
	uint8_t frame[4096];
	size_t len = on_its_way(ELSEWHERE, frame);

	expect_dropped(1, frame, len, FANIN_REASON_PORT);
	expect_dropped(SPINE_PORT + 1, frame, len, FANIN_REASON_PORT);
	len = on_its_way(RING_SWITCH_IP, frame);
	expect_dropped(1, frame, len, FANIN_REASON_PORT);
	len = to_neighbor(frame);
	expect_dropped(1, frame, len, FANIN_REASON_PORT);
}
END_TEST

START_TEST(a_type_that_the_handler_does_not_take_ends_a_packets_way)
{
	uint8_t frame[4096];
	const size_t len = on_its_way(ELSEWHERE, frame);

	((struct fanin_headers *)frame)->fanin.type = FANIN_TYPE_KNOWN;
	expect_dropped(0, frame, len, FANIN_REASON_TYPE);
}
END_TEST

START_TEST(the_switchs_own_address_as_a_source_is_forged)
{
	uint8_t frame[4096];
	const size_t len = on_its_way(ELSEWHERE, frame);

	((struct fanin_headers *)frame)->ip.src_be = leaf.pipeline->ip_be;
	leaf_set_checksum(frame);
	expect_dropped(SPINE_PORT, frame, len, FANIN_REASON_SOURCE_OWN);
}
END_TEST

/* Aborts the test unless the frame of host 0 is forwarded to host 1 unchanged. */
static void
expect_forwarded(const uint8_t *frame, size_t len)
{
	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(ring_switch_take(&leaf, 1, leaf_out), len);
	ck_assert_mem_eq(leaf_out, frame, len);
	leaf_expect_silence();
	ck_assert_uint_eq(called.n, 0);
}

START_TEST(packets_of_other_jobs_go_on)
{
	uint8_t frame[4096], mac[6];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct job *other = ring_switch_job(&leaf, 2, 16);
	size_t len = on_its_way(ELSEWHERE, frame);

	spine_mac(1, mac);
	headers->fanin.job = other->params.id;
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	headers->fanin.job = 4711;
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	len = to_neighbor(frame);
	headers->fanin.job = other->params.id;
	expect_forwarded(frame, len);
	headers->fanin.job = 0xffffffff;
	expect_forwarded(frame, len);
	/* A packet of the job that is not about a block is for its destination. */
	to_neighbor(frame);
	headers->fanin.type = FANIN_TYPE_LEAVE;
	headers->fanin.dtype = headers->fanin.op = 0;
	headers->fanin.count = 0;
	headers->udp.len_be = htons(FANIN_UDP_LEN + FANIN_HDR_LEN);
	headers->ip.total_len_be = htons(FANIN_IP_LEN + FANIN_UDP_LEN + FANIN_HDR_LEN);
	leaf_set_checksum(frame);
	ck_assert_uint_eq(fanin_wire_validate(frame, FANIN_PAYLOAD_OFFSET), FANIN_REASON_NONE);
	expect_forwarded(frame, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(called.n, 0);
}
END_TEST

START_TEST(packets_of_a_job_that_is_gone_go_on)
{
	uint8_t frame[4096];
	const size_t len = to_neighbor(frame);

	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 1);
	called.n = 0;
	rte_rcu_qsbr_thread_offline(leaf.pipeline->qsbr, 0);
	ck_assert_int_eq(job_destroy(leaf.pipeline, job->params.id), 0);
	rte_rcu_qsbr_thread_online(leaf.pipeline->qsbr, 0);
	ck_assert_uint_eq(leaf.pipeline->n_by_key, 0);
	expect_forwarded(frame, len);
}
END_TEST

START_TEST(fragments_and_what_is_too_short_go_on_as_anybodys)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = to_neighbor(frame);

	headers->ip.fragment_be = htons(RTE_IPV4_HDR_MF_FLAG);
	leaf_set_checksum(frame);
	expect_forwarded(frame, len);
	headers->ip.fragment_be = htons(20);
	leaf_set_checksum(frame);
	expect_forwarded(frame, len);
	len = to_neighbor(frame);
	/*
	 * A frame shorter than its headers say; a frame without a whole Ethernet header is not
	 * Ethernet.
	 */
	for (size_t cut = FANIN_ETH_LEN; cut < len; cut += cut < 100 ? 1 : 37)
		expect_forwarded(frame, cut);
}
END_TEST

/* Inserts n VLAN tags into a frame. Returns its length. */
static size_t
add_tags(const uint8_t *frame, size_t len, const void *tags, unsigned int n, uint8_t *tagged)
{
	memcpy(tagged, frame, 12);
	memcpy(tagged + 12, tags, 4 * n);
	memcpy(tagged + 12 + 4 * n, frame + 12, len - 12);
	return len + 4 * n;
}

/*
 * Hosts would take the packet for an untagged one. In another network the same number is another
 * job's, with another key.
 */
START_TEST(a_tag_hides_no_packet_with_the_jobs_key)
{
	static const struct {
		const char *tags;
		unsigned int n;
	} cases[] = {
		{ "\x81\x00\x00\x00", 1 },
		{ "\x81\x00\xe0\x05", 1 },
		{ "\x88\xa8\x00\x00", 1 },
		{ "\x81\x00\x00\x00\x81\x00\x00\x00", 2 },
		{ "\x88\xa8\x00\x00\x81\x00\x00\x07\x81\x00\x00\x00", 3 },
	};
	uint8_t frame[4096], tagged[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len;

	for (size_t i = 0; i < RTE_DIM(cases); i++) {
		for (uint16_t port = 0; port < 2; port++) {
			len = port == 0 ? to_neighbor(frame) : on_its_way(ELSEWHERE, frame);
			len = add_tags(frame, len, cases[i].tags, cases[i].n, tagged);
			expect_dropped(port, tagged, len, FANIN_REASON_VLAN);
		}
		len = to_neighbor(frame);
		headers->fanin.key ^= 1;
		len = add_tags(frame, len, cases[i].tags, cases[i].n, tagged);
		ring_switch_put(&leaf, 0, tagged, len);
		ck_assert_uint_eq(ring_switch_take(&leaf, 1, leaf_out), len);
		ck_assert_mem_eq(leaf_out, tagged, len);
		leaf_drain();
	}
	ck_assert_uint_eq(called.n, 0);
}
END_TEST

START_TEST(nor_does_a_tag_that_the_driver_has_taken_out)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(leaf.pool);
	uint8_t frame[4096];
	const size_t len = to_neighbor(frame);

	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)len), frame, len);
	mbuf->port = leaf.pipeline->ports[0].ethdev;
	mbuf->ol_flags = RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	mbuf->vlan_tci = 0;
	rte_ring_enqueue(leaf.rx[0], mbuf);
	ring_switch_rounds(&leaf, 2);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_VLAN), 1);
	ck_assert_uint_eq(called.n, 0);
	leaf_expect_silence();
}
END_TEST

/*
 * A packet with any change reaches the handler only if it is still valid, of the job, and has its
 * key.
 */
START_TEST(garbage_does_not_reach_the_handler)
{
	struct random random = random_seed(1);
	unsigned int taken = 0;
	uint8_t frame[4096];

	for (unsigned int i = 0; i < 20000; i++) {
		const struct fanin_headers *headers = (const struct fanin_headers *)frame;
		const size_t len = i % 2 == 0 ? to_neighbor(frame) : on_its_way(ELSEWHERE, frame);
		const unsigned int changes = 1 + random_below(&random, 3);
		bool fits;

		for (unsigned int k = 0; k < changes; k++)
			frame[random_below(&random, FANIN_PAYLOAD_OFFSET)] =
				(uint8_t)random_u32(&random);
		fits = headers->eth.type_be == htons(0x0800) &&
		       fanin_wire_validate(frame, len) == FANIN_REASON_NONE &&
		       headers->fanin.job == job->params.id &&
		       headers->udp.dst_be == leaf.pipeline->udp_port_be &&
		       headers->fanin.key == job->params.keys.up &&
		       headers->fanin.type == FANIN_TYPE_CONTRIBUTION;
		called.n = 0;
		ring_switch_put(&leaf, 0, frame, len);
		ck_assert_msg(called.n == 0 || fits, "frame %u", i);
		taken += called.n;
		frames_out();
	}
	/* Changes of ranks, runs, sources and the like leave packets acceptable. */
	ck_assert_uint_gt(taken, 1000);
	ck_assert_uint_lt(taken, 15000);
}
END_TEST

static void
inject(double drop, double duplicate, double reorder)
{
	const struct pipeline_faults faults = { drop, duplicate, reorder, 1 };

	faults_init(&leaf.pipeline->workers[0]->faults, &faults, 0);
}

START_TEST(injected_faults_hide_no_packet)
{
	uint8_t frame[4096];
	size_t len;

	inject(0, 1, 0);
	ring_switch_put(&leaf, 0, frame, on_its_way(ELSEWHERE, frame));
	ck_assert_uint_eq(called.n, 2);
	ring_switch_put(&leaf, 0, frame, to_neighbor(frame));
	ck_assert_uint_eq(called.n, 4);
	inject(1, 0, 0);
	ring_switch_put(&leaf, 0, frame, on_its_way(ELSEWHERE, frame));
	ring_switch_put(&leaf, 0, frame, to_neighbor(frame));
	ck_assert_uint_eq(called.n, 4);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_FAULT_DROP), 2);
	inject(0, 0, 1);
	ring_switch_put(&leaf, 0, frame, on_its_way(ELSEWHERE, frame));
	ring_switch_put(&leaf, 0, frame, to_neighbor(frame));
	ring_switch_rounds(&leaf, FAULTS_MAX_DELAY + 1);
	ck_assert_uint_eq(called.n, 6);
	ck_assert_uint_eq(leaf.pipeline->workers[0]->counters.fault_reorders, 2);
	leaf_expect_silence();
	/* Invalid packets are left alone. */
	inject(1, 0, 0);
	len = to_neighbor(frame);
	((struct fanin_headers *)frame)->fanin.version++;
	called.n = 0;
	expect_forwarded(frame, len);
}
END_TEST

START_TEST(a_port_brings_no_more_than_its_rate)
{
	uint8_t frame[4096];
	const size_t len = on_its_way(ELSEWHERE, frame);

	/* The rate is set by the option, with bursts of 10 ms. */
	ck_assert_uint_eq(leaf.pipeline->key_interval_ns, 1000000000u / RING_SWITCH_KEY_RATE);
	ck_assert_uint_eq(leaf.pipeline->key_burst_ns, 10000000);
	/* One packet each microsecond, and ten at the same time. */
	leaf.pipeline->key_interval_ns = 1000;
	leaf.pipeline->key_burst_ns = 9000;
	for (unsigned int i = 0; i < 30; i++)
		ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 10);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_RATE), 20);
	leaf_expect_silence();
	/* Another port has a bucket of its own. */
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	ck_assert_uint_eq(called.n, 11);
	clock_ns += 3000;
	for (unsigned int i = 0; i < 30; i++)
		ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 14);
	/* A packet that is refused for another reason takes nothing from the bucket. */
	clock_ns += 1000;
	((struct fanin_headers *)frame)->fanin.key ^= 1;
	ring_switch_put(&leaf, 0, frame, len);
	((struct fanin_headers *)frame)->fanin.key ^= 1;
	ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 15);
	/* A long silence does not enlarge the burst. */
	clock_ns += 1000000000;
	for (unsigned int i = 0; i < 30; i++)
		ring_switch_put(&leaf, 0, frame, len);
	ck_assert_uint_eq(called.n, 25);
}
END_TEST

START_TEST(such_a_job_has_no_tags)
{
	char error[PIPELINE_ERROR_LEN] = "";
	struct job *none;

	ck_assert_int_eq(create("keyed", true, &none, error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "found authenticate for the handler \"keyed\""));
	/* Only such jobs may have ranks elsewhere. */
	ck_assert_int_eq(create("single", false, &none, error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "rank 3 is behind no member"));
}
END_TEST

Suite *
suite_by_key(void)
{
	Suite *suite = suite_create("by_key");
	TCase *tcase = tcase_create("by_key");

	tcase_add_checked_fixture(tcase, setup, leaf_close);
	tcase_add_test(tcase, a_packet_that_would_be_routed_is_taken);
	tcase_add_test(tcase, a_packet_that_would_be_forwarded_is_taken);
	tcase_add_test(tcase, a_packet_for_the_switch_itself_is_taken);
	tcase_add_test(tcase, rank_source_and_run_are_the_handlers_to_look_at);
	tcase_add_test(tcase, members_may_join_and_the_handler_knows_their_run);
	tcase_add_test(tcase, a_wrong_key_ends_a_packets_way);
	tcase_add_test(tcase, a_port_that_is_no_members_ends_a_packets_way);
	tcase_add_test(tcase, a_type_that_the_handler_does_not_take_ends_a_packets_way);
	tcase_add_test(tcase, the_switchs_own_address_as_a_source_is_forged);
	tcase_add_test(tcase, packets_of_other_jobs_go_on);
	tcase_add_test(tcase, packets_of_a_job_that_is_gone_go_on);
	tcase_add_test(tcase, fragments_and_what_is_too_short_go_on_as_anybodys);
	tcase_add_test(tcase, a_tag_hides_no_packet_with_the_jobs_key);
	tcase_add_test(tcase, nor_does_a_tag_that_the_driver_has_taken_out);
	tcase_add_test(tcase, garbage_does_not_reach_the_handler);
	tcase_add_test(tcase, injected_faults_hide_no_packet);
	tcase_add_test(tcase, a_port_brings_no_more_than_its_rate);
	tcase_add_test(tcase, such_a_job_has_no_tags);
	suite_add_tcase(suite, tcase);
	return suite;
}
