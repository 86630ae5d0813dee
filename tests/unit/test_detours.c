/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that choose their next hop by backlog, on a clock that the test moves: the default one,
 * unless its backlog is too large.
 */
#include <string.h>

#include "pipeline/base/egress.h"
#include "pipeline/net/net.h"
#include "pipeline/base/tx.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define RATE_MBIT 200u
#define ECN_BYTES 20000u
#define FLOOD_LEN 1000u
#define DESTINATION "10.77.9.9"

static uint64_t clock_ns;

static uint64_t
clock_read(void *user)
{
	return *(uint64_t *)user;
}

static void
setup(void)
{
	const struct pipeline_egress spine = { .rate_mbit = RATE_MBIT,
					       .bucket_bytes = 3000,
					       .queue_bytes = 100000,
					       .ecn_bytes = ECN_BYTES };
	const struct pipeline_egress limits[4] = { [SPINE_PORT] = spine, [SPINE_PORT + 1] = spine };

	leaf_open_limited(limits);
	clock_ns = UINT64_C(1000000000000);
	leaf.pipeline->clock = clock_read;
	leaf.pipeline->clock_user = &clock_ns;
	leaf_hears_all();
	for (unsigned int i = 0; i < 10; i++, clock_ns += 1000000000)
		ring_switch_rounds(&leaf, 1);
	leaf_drain();
}

static void
teardown(void)
{
	worker_release_unsent(leaf.pipeline->workers[0]);
	leaf_close();
}

static void
fill(unsigned int spine, unsigned int n)
{
	static uint8_t frame[4096];

	leaf_packet("10.0.0.1", DESTINATION, 1, frame);
	for (unsigned int i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(leaf.pool);

		memcpy(rte_pktmbuf_append(mbuf, FLOOD_LEN), frame, FLOOD_LEN);
		worker_send(leaf.pipeline->workers[0], (uint16_t)(SPINE_PORT + spine), mbuf);
	}
}

/* Returns the source port of a flow whose default next hop is this spine. */
static uint16_t
flow_of(unsigned int spine)
{
	uint16_t port = 1;

	while (leaf_spine_of_flow(DESTINATION, port) != (int)spine) {
		ck_assert_uint_lt(port, 1000);
		port++;
	}
	return port;
}

/* Sends a packet that asks for the smallest backlog; the caller runs the worker's round. */
static void
send_choosing(uint16_t source_port, uint8_t ttl)
{
	uint8_t frame[4096];
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(leaf.pool);
	const size_t len = leaf_packet("10.0.0.1", DESTINATION, source_port, frame);

	((struct fanin_headers *)frame)->ip.ttl = ttl;
	leaf_set_checksum(frame);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)len), frame, len);
	worker_route_fanin(leaf.pipeline->workers[0], mbuf, true, NULL);
}

/*
 * Returns which of these packets, identified by their TTL, have left through a spine's port since
 * the last call.
 */
static unsigned int
left_by(unsigned int spine, uint8_t ttl)
{
	unsigned int n = 0;

	while (ring_switch_take(&leaf, (uint16_t)(SPINE_PORT + spine), leaf_out) != 0)
		n += ((const struct fanin_headers *)leaf_out)->ip.ttl == ttl - 1;
	return n;
}

static unsigned int
way_of_one(uint16_t source_port)
{
	unsigned int ways[N_SPINES] = { 0 };

	send_choosing(source_port, 77);
	for (unsigned int i = 0; i < 200; i++, clock_ns += 1000000)
		ring_switch_rounds(&leaf, 1);
	for (unsigned int spine = 0; spine < N_SPINES; spine++)
		ways[spine] = left_by(spine, 77);
	ck_assert_uint_eq(ways[0] + ways[1], 1);
	return ways[1];
}

START_TEST(the_usual_next_hop_is_kept_up_to_a_threshold)
{
	const unsigned int spine = (unsigned int)_i;
	const uint16_t flow = flow_of(spine);

	ck_assert_uint_eq(way_of_one(flow), spine);
	/*
	 * Three leave at once; the backlog is just not too large, and then one more packet comes.
	 */
	fill(spine, 3 + ECN_BYTES / FLOOD_LEN);
	ring_switch_rounds(&leaf, 1);
	ck_assert_uint_eq(way_of_one(flow), spine);
	fill(spine, 3 + ECN_BYTES / FLOOD_LEN + 1);
	ring_switch_rounds(&leaf, 1);
	ck_assert_uint_eq(way_of_one(flow), 1 - spine);
}
END_TEST

START_TEST(the_usual_next_hop_is_kept_where_as_much_waits_elsewhere)
{
	const uint16_t flow = flow_of(0);

	fill(0, 50);
	fill(1, 50);
	ring_switch_rounds(&leaf, 1);
	ck_assert_uint_eq(egress_backlog(leaf.pipeline, SPINE_PORT, NULL),
			  egress_backlog(leaf.pipeline, SPINE_PORT + 1, NULL));
	ck_assert_uint_eq(way_of_one(flow), 0);
}
END_TEST

START_TEST(a_next_hop_without_a_link_is_no_other_way)
{
	const uint16_t flow = flow_of(0);

	leaf.pipeline->ports[SPINE_PORT + 1].no_link = true;
	fill(0, 50);
	ring_switch_rounds(&leaf, 1);
	ck_assert_uint_eq(way_of_one(flow), 0);
}
END_TEST

/* A foreign flow has 1.5 times the rate of the link that it always takes. */
START_TEST(most_packets_leave_a_blocked_next_hop)
{
	const unsigned int blocked = (unsigned int)_i;
	const uint16_t flow = flow_of(blocked), other = flow_of(1 - blocked);
	unsigned int own[N_SPINES] = { 0 }, others[N_SPINES] = { 0 };
	const uint64_t step_ns = FLOOD_LEN * 8000 / RATE_MBIT * 2 / 3;
	const unsigned int steps = 20000;

	for (unsigned int i = 0; i < steps; i++, clock_ns += step_ns) {
		fill(blocked, 1);
		if (i % 10 == 0)
			send_choosing(flow, 77);
		if (i % 10 == 5)
			send_choosing(other, 99);
		ring_switch_rounds(&leaf, 1);
		for (unsigned int spine = 0; spine < N_SPINES; spine++) {
			while (ring_switch_take(&leaf, (uint16_t)(SPINE_PORT + spine), leaf_out) !=
			       0) {
				const uint8_t ttl =
					((const struct fanin_headers *)leaf_out)->ip.ttl;

				own[spine] += ttl == 76;
				others[spine] += ttl == 98;
			}
		}
	}
	ck_assert_uint_ge(own[1 - blocked], steps / 10 * 80 / 100);
	ck_assert_uint_eq(others[blocked], 0);
	ck_assert_uint_ge(others[1 - blocked], steps / 10 - 1);
	/* The flood loses a third, and keeps its path. */
	ck_assert_uint_ge(leaf_drops(FANIN_REASON_TX_FULL), steps / 4);
}
END_TEST

Suite *
suite_detours(void)
{
	Suite *suite = suite_create("detours");
	TCase *tests = tcase_create("detours");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_loop_test(tests, the_usual_next_hop_is_kept_up_to_a_threshold, 0, 2);
	tcase_add_test(tests, the_usual_next_hop_is_kept_where_as_much_waits_elsewhere);
	tcase_add_test(tests, a_next_hop_without_a_link_is_no_other_way);
	tcase_add_loop_test(tests, most_packets_leave_a_blocked_next_hop, 0, 2);
	return suite;
}
