/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requests of a handler's call: as many emissions and frees as it needs, to children, ports and
 * addresses, and mbufs of the switch.
 */
#include <arpa/inet.h>
#include <string.h>

#include <check.h>

#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define MANY 200u

static struct job *job;
static uint32_t epoch;

/* The action of the handler below on a contribution. */
static enum fanin_verdict (*act)(struct fanin_handler_ctx *ctx, struct fanin_packet *packet);
static uint32_t destination_be;
static uint64_t ports;
static unsigned int n_taken;

static enum fanin_verdict
emitting_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		      struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)slot;
	(void)index;
	(void)reason;
	return act(ctx, packet);
}

static void
emitting_release(struct fanin_handler_ctx *ctx, void *slot)
{
	(void)ctx;
	(void)slot;
}

static struct fanin_handler emitting = {
	.name = "emitting",
	.description = "emits what the test says",
	.slot_mbufs = { .fixed = 1 },
	.makes_packets = true,
	.slot_bytes = 8,
	.contribution = emitting_contribution,
	.slot_release = emitting_release,
};

static void
setup(void)
{
	/*
	 * Registered here, not before main: other suites of this program use all registered
	 * handlers that reduce.
	 */
	if (fanin_handler_find(emitting.name) == NULL)
		fanin_handler_register(&emitting);
	leaf_open();
	leaf_hears_all();
	job = ring_switch_job_of(&leaf, "emitting", 2, 0);
	epoch = host_join_all(&leaf, job, 2, 1);
	leaf_drain();
	n_taken = 0;
}

/*
 * Makes host 0 contribute to block 0, and returns the frame that it has sent. Returns its length.
 */
static size_t
contribute(uint8_t *frame)
{
	const size_t len = host_contribution(&leaf, job, 0, epoch, 0, false, frame);

	ring_switch_put(&leaf, 0, frame, len);
	return len;
}

static unsigned int
frames_of(uint16_t port)
{
	unsigned int n = 0;

	while (ring_switch_take(&leaf, port, leaf_out) != 0)
		n++;
	return n;
}

static enum fanin_verdict
emit_many(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	rte_mbuf_refcnt_update(packet->mbuf, MANY);
	for (unsigned int i = 0; i < MANY; i++)
		fanin_emit(ctx, FANIN_EMIT_CHILDREN, packet->mbuf, UINT64_C(1) << i % 2, 0);
	return FANIN_VERDICT_FREE;
}

START_TEST(a_call_emits_as_often_as_it_needs)
{
	uint8_t frame[4096];

	act = emit_many;
	contribute(frame);
	ck_assert_uint_eq(frames_of(0), MANY / 2);
	ck_assert_uint_eq(frames_of(1), MANY / 2);
	leaf_expect_silence();
}
END_TEST

static enum fanin_verdict
release_many(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	rte_mbuf_refcnt_update(packet->mbuf, 3 * FANIN_MAX_FREES);
	for (unsigned int i = 0; i < 3 * FANIN_MAX_FREES; i++)
		fanin_release(ctx, packet->mbuf);
	return FANIN_VERDICT_FREE;
}

START_TEST(a_call_releases_as_often_as_it_needs)
{
	const unsigned int before = rte_mempool_in_use_count(leaf.pool);
	uint8_t frame[4096];

	act = release_many;
	contribute(frame);
	/* Only the stock is left, which is filled before the first call. */
	ck_assert_uint_eq(rte_mempool_in_use_count(leaf.pool), before + FANIN_STOCK);
	leaf_expect_silence();
}
END_TEST

static enum fanin_verdict
emit_to_ports(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	rte_mbuf_refcnt_update(packet->mbuf, (int16_t)__builtin_popcountll(ports));
	fanin_emit_ports(ctx, packet->mbuf, ports);
	return FANIN_VERDICT_FREE;
}

START_TEST(a_frame_leaves_by_each_port_of_a_bitmap)
{
	uint8_t frame[4096];

	ck_assert_uint_eq(job->params.ports, 3);
	act = emit_to_ports;
	ports = 1 << 1 | 1 << 3;
	const size_t len = contribute(frame);
	for (uint16_t port = 1; port < 4; port += 2) {
		ck_assert_uint_eq(ring_switch_take(&leaf, port, leaf_out), len);
		ck_assert_mem_eq(leaf_out, frame, len);
	}
	leaf_expect_silence();
	/* One of the ports does not exist. */
	ports = 1 | UINT64_C(1) << 40;
	contribute(frame);
	ck_assert_uint_eq(frames_of(0), 1);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_PORT_DOWN), 1);
}
END_TEST

static enum fanin_verdict
emit_by_route(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	struct fanin_ip *ip = &packet->headers->ip;

	ip->dst_be = destination_be;
	ip->checksum_be = 0;
	ip->checksum_be = fanin_ip_checksum(ip);
	fanin_emit_route(ctx, packet->mbuf, false);
	return FANIN_VERDICT_HELD;
}

/* Checks that host 0's contribution leaves by a port for an address. */
static void
expect_routed(const char *destination, uint16_t port, const uint8_t mac[6])
{
	uint8_t frame[4096];
	size_t len;

	destination_be = inet_addr(destination);
	len = contribute(frame);
	((struct fanin_headers *)frame)->ip.dst_be = destination_be;
	leaf_set_checksum(frame);
	leaf_expect_routed(port, frame, len, mac);
	leaf_expect_silence();
}

START_TEST(a_packet_goes_where_routes_lead)
{
	uint8_t frame[4096], mac[6];

	act = emit_by_route;
	host_mac(1, mac);
	expect_routed("10.0.0.2", 1, mac);
	spine_mac(1, mac);
	expect_routed("10.77.5.1", 3, mac);
	spine_mac(0, mac);
	expect_routed("10.77.5.129", 2, mac);
	/* One of several next hops. */
	destination_be = inet_addr("10.77.9.9");
	contribute(frame);
	ck_assert_uint_eq(frames_of(2) + frames_of(3), 1);
	ck_assert_uint_eq(leaf.pipeline->workers[0]->counters.routed, 4);
}
END_TEST

START_TEST(a_packet_that_no_route_leads_to_is_counted)
{
	uint8_t frame[4096];

	act = emit_by_route;
	destination_be = inet_addr("10.76.0.1");
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NO_ROUTE), 1);
	destination_be = leaf.pipeline->ip_be;
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_IP_ADDRESS), 1);
	leaf_expect_silence();
	/* The switch asks for an unknown host by ARP. */
	destination_be = inet_addr("10.0.0.77");
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NEIGHBOR), 1);
	leaf_expect_ask(0, destination_be, NULL);
}
END_TEST

static enum fanin_verdict
emit_by_route_with_ttl_1(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	packet->headers->ip.ttl = 1;
	return emit_by_route(ctx, packet);
}

START_TEST(a_packet_goes_in_no_circle)
{
	uint8_t frame[4096];

	act = emit_by_route_with_ttl_1;
	destination_be = inet_addr("10.0.0.2");
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_TTL), 1);
	leaf_expect_silence();
}
END_TEST

static void
inject(double drop, double duplicate, double reorder)
{
	const struct pipeline_faults faults = { drop, duplicate, reorder, 1 };

	faults_init(&leaf.pipeline->workers[0]->faults, &faults, 0);
}

/*
 * Acts like a handler that emits by route, only on the packet's way out: the packet has come in
 * before faults begin.
 */
static enum fanin_verdict
emit_into_faults(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	leaf.pipeline->workers[0]->faults.enabled = true;
	return emit_by_route(ctx, packet);
}

START_TEST(faults_meet_routed_packets_too)
{
	uint8_t frame[4096];

	act = emit_into_faults;
	destination_be = inet_addr("10.0.0.2");
	inject(1, 0, 0);
	leaf.pipeline->workers[0]->faults.enabled = false;
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_FAULT_DROP), 1);
	leaf_expect_silence();
	inject(0, 1, 0);
	leaf.pipeline->workers[0]->faults.enabled = false;
	contribute(frame);
	ck_assert_uint_eq(frames_of(1), 2);
	inject(0, 0, 1);
	leaf.pipeline->workers[0]->faults.enabled = false;
	contribute(frame);
	ck_assert_uint_eq(leaf.pipeline->workers[0]->counters.fault_reorders, 1);
	ring_switch_rounds(&leaf, FAULTS_MAX_DELAY + 1);
	ck_assert_uint_eq(frames_of(1), 1);
	leaf.pipeline->workers[0]->faults.enabled = false;
	leaf_expect_silence();
}
END_TEST

/* Takes all mbufs of the stock, and sends each to the host that has contributed. */
static enum fanin_verdict
take_all(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	struct rte_mbuf *mbuf;

	while ((mbuf = fanin_take(ctx)) != NULL) {
		ck_assert_uint_eq(mbuf->data_len, 0);
		ck_assert_uint_eq(rte_mbuf_refcnt_read(mbuf), 1);
		ck_assert_ptr_nonnull(rte_pktmbuf_append(mbuf, sizeof(struct fanin_headers)));
		*rte_pktmbuf_mtod(mbuf, struct fanin_headers *) = ctx->job->result_headers;
		ck_assert_uint_eq(((uintptr_t)rte_pktmbuf_mtod(mbuf, char *) +
				   FANIN_PAYLOAD_OFFSET) %
					  FANIN_PAYLOAD_ALIGN,
				  0);
		fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, UINT64_C(1) << packet->child, 0);
		n_taken++;
	}
	return FANIN_VERDICT_FREE;
}

START_TEST(a_handler_takes_packets_from_a_stock)
{
	struct rte_mbuf *rest[2047];
	unsigned int n_rest = 0;
	uint8_t frame[4096];

	act = take_all;
	contribute(frame);
	ck_assert_uint_eq(n_taken, FANIN_STOCK);
	ck_assert_uint_eq(frames_of(0), FANIN_STOCK);
	/* The stock is refilled before the next call, as far as there are mbufs. */
	contribute(frame);
	ck_assert_uint_eq(n_taken, 2 * FANIN_STOCK);
	ck_assert_uint_eq(frames_of(0), FANIN_STOCK);
	while (rte_mempool_avail_count(leaf.pool) > FANIN_STOCK / 2)
		rest[n_rest++] = rte_pktmbuf_alloc(leaf.pool);
	contribute(frame);
	ck_assert_uint_eq(n_taken, 2 * FANIN_STOCK);
	rte_pktmbuf_free_bulk(rest, n_rest);
	contribute(frame);
	ck_assert_uint_eq(n_taken, 3 * FANIN_STOCK);
	ck_assert_uint_eq(frames_of(0), FANIN_STOCK);
}
END_TEST

START_TEST(handlers_that_make_no_packets_have_no_stock)
{
	uint8_t frame[4096];

	emitting.makes_packets = false;
	act = take_all;
	contribute(frame);
	ck_assert_uint_eq(n_taken, 0);
	ck_assert_uint_eq(leaf.pipeline->workers[0]->handler_ctx.n_stock, 0);
	emitting.makes_packets = true;
}
END_TEST

/* Makes a packet of the switch's own that is too long for the next hop. */
static enum fanin_verdict
take_and_route(struct fanin_handler_ctx *ctx, struct fanin_packet *packet)
{
	struct rte_mbuf *mbuf = fanin_take(ctx);
	const uint16_t len = (uint16_t)(FANIN_PAYLOAD_OFFSET + packet->payload_len);
	struct fanin_headers *headers;

	ck_assert_ptr_nonnull(mbuf);
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, len);
	memcpy(headers, packet->headers, len);
	headers->ip.src_be = packet->headers->ip.dst_be;
	headers->ip.dst_be = destination_be;
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	fanin_emit_route(ctx, mbuf, true);
	return FANIN_VERDICT_FREE;
}

START_TEST(no_error_answers_what_the_switch_has_made)
{
	uint8_t frame[4096];

	act = take_and_route;
	destination_be = inet_addr("10.77.5.1");
	contribute(frame);
	ck_assert_uint_eq(frames_of(3), 1);
	leaf.pipeline->ports[3].mtu = 200;
	contribute(frame);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_MTU), 1);
	leaf_expect_silence();
}
END_TEST

Suite *
suite_emissions(void)
{
	Suite *suite = suite_create("emissions");
	TCase *tcase = tcase_create("emissions");

	tcase_add_checked_fixture(tcase, setup, leaf_close);
	tcase_add_test(tcase, a_call_emits_as_often_as_it_needs);
	tcase_add_test(tcase, a_call_releases_as_often_as_it_needs);
	tcase_add_test(tcase, a_frame_leaves_by_each_port_of_a_bitmap);
	tcase_add_test(tcase, a_packet_goes_where_routes_lead);
	tcase_add_test(tcase, a_packet_that_no_route_leads_to_is_counted);
	tcase_add_test(tcase, a_packet_goes_in_no_circle);
	tcase_add_test(tcase, faults_meet_routed_packets_too);
	tcase_add_test(tcase, a_handler_takes_packets_from_a_stock);
	tcase_add_test(tcase, handlers_that_make_no_packets_have_no_stock);
	tcase_add_test(tcase, no_error_answers_what_the_switch_has_made);
	suite_add_tcase(suite, tcase);
	return suite;
}
