/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes of next hops, in virtual time: when a next hop is dead, when it is back, and which events
 * say nothing about this.
 */
#include <check.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_ring_elem.h>

#include "pipeline/net/next_hops.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define INTERVAL_NS NEXT_HOPS_PROBE_NS
#define ALL_SPINES 3u

static uint64_t now_ns;

static uint64_t
test_clock(void *user)
{
	(void)user;
	return now_ns;
}

static void
open_at_start(const struct pipeline_egress *limits)
{
	now_ns = 1000 * MS;
	leaf_open_limited(limits);
	leaf.pipeline->clock = test_clock;
}

static void
open_at(const struct pipeline_egress *limits)
{
	open_at_start(limits);
	leaf_hears_all();
	now_ns += MS;
}

static void
open_idle(void)
{
	open_at(NULL);
}

/* Takes all frames of a spine's port; returns how many of them are ARP requests for the spine. */
static unsigned int
take_requests(unsigned int spine)
{
	const struct arp_message *message = (const struct arp_message *)leaf_out;
	unsigned int n = 0;
	size_t len;

	while ((len = ring_switch_take(&leaf, (uint16_t)(SPINE_PORT + spine), leaf_out)) != 0)
		n += len == 60 && message->arp.operation_be == FANIN_ARP_REQUEST_BE &&
		     message->arp.target_ip_be == spine_ip_be(spine);
	return n;
}

/*
 * Lets the time of one probe pass, at whose end the next hops are judged. answering: bitmap of
 * spines. Returns the spines that were asked.
 */
static unsigned int
interval(unsigned int answering)
{
	unsigned int asked = 0;

	pipeline_watch_next_hops(leaf.pipeline);
	ring_switch_rounds(&leaf, 2);
	for (unsigned int spine = 0; spine < N_SPINES; spine++) {
		if (take_requests(spine) == 0)
			continue;
		asked |= 1u << spine;
		if ((answering >> spine & 1) != 0)
			leaf_hears_spine(spine);
	}
	now_ns += INTERVAL_NS / 5 * 4;
	ring_switch_rounds(&leaf, 3);
	now_ns += INTERVAL_NS / 5;
	return asked;
}

static void
take_info(void *user, const struct next_hop_info *info)
{
	struct next_hop_info *infos = user;

	infos[info->port - SPINE_PORT] = *info;
}

static struct next_hop_info
info_of(unsigned int spine)
{
	struct next_hop_info infos[N_SPINES];

	next_hops_each(leaf.pipeline->next_hops, take_info, infos);
	return infos[spine];
}

static bool
is_up(unsigned int spine)
{
	return info_of(spine).mac != 0;
}

START_TEST(a_next_hop_is_asked_each_interval_at_its_own_address)
{
	uint8_t mac[6];

	ck_assert_uint_eq(interval(ALL_SPINES), ALL_SPINES);
	pipeline_watch_next_hops(leaf.pipeline);
	/* A call before that time does nothing. */
	ck_assert_uint_eq(pipeline_watch_next_hops(leaf.pipeline), now_ns + INTERVAL_NS);
	ring_switch_rounds(&leaf, 2);
	for (unsigned int spine = 0; spine < N_SPINES; spine++) {
		spine_mac(spine, mac);
		leaf_expect_ask((uint16_t)(SPINE_PORT + spine), spine_ip_be(spine), mac);
	}
	leaf_expect_silence();
	ck_assert_uint_eq(next_hops_count(leaf.pipeline->next_hops), N_SPINES);
}
END_TEST

START_TEST(four_misses_in_a_row_kill_and_one_answer_revives_at_once)
{
	const uint64_t began_ns = now_ns;
	int before[100];

	for (uint16_t i = 0; i < 100; i++)
		before[i] = leaf_spine_of_flow("10.77.9.9", (uint16_t)(1000 + i));
	for (unsigned int i = 0; i < NEXT_HOPS_PROBE_MISSES; i++) {
		ck_assert(is_up(1));
		ck_assert_uint_eq(interval(1), ALL_SPINES);
	}
	pipeline_watch_next_hops(leaf.pipeline);
	ck_assert_uint_le(now_ns - began_ns, 200 * MS);
	ck_assert(!is_up(1));
	ck_assert(is_up(0));
	ck_assert_uint_eq(info_of(1).lost, 1);
	ck_assert_uint_eq(info_of(1).missed, NEXT_HOPS_PROBE_MISSES);
	ck_assert_uint_eq(info_of(1).since_ns, now_ns);
	ring_switch_rounds(&leaf, 1);
	leaf_drain();
	for (uint16_t i = 0; i < 100; i++)
		ck_assert_int_eq(leaf_spine_of_flow("10.77.9.9", (uint16_t)(1000 + i)), 0);
	leaf_drain();
	/* The dead next hop is still asked, and is used from its first answer on. */
	for (unsigned int i = 0; i < 10; i++)
		ck_assert_uint_eq(interval(1) & 2, i == 0 ? 0 : 2);
	ck_assert_uint_eq(info_of(1).lost, 1);
	leaf_hears_spine(1);
	for (uint16_t i = 0; i < 100; i++)
		ck_assert_int_eq(leaf_spine_of_flow("10.77.9.9", (uint16_t)(1000 + i)), before[i]);
	for (unsigned int i = 0; i < 10; i++)
		interval(ALL_SPINES);
	ck_assert(is_up(1));
	ck_assert_uint_eq(info_of(1).changes, 3);
}
END_TEST

START_TEST(an_answer_in_between_begins_the_count_anew)
{
	for (unsigned int i = 0; i < 10 * NEXT_HOPS_PROBE_MISSES; i++)
		interval(i % NEXT_HOPS_PROBE_MISSES == 0 ? ALL_SPINES : 1);
	ck_assert(is_up(1));
	ck_assert_uint_eq(info_of(1).lost, 0);
	ck_assert_uint_gt(info_of(1).missed, 0);
}
END_TEST

START_TEST(a_reply_to_a_stopped_worker_is_no_miss)
{
	/* The worker never runs: nothing leaves, and requests don't pile up. */
	for (unsigned int i = 0; i < 60; i++) {
		pipeline_watch_next_hops(leaf.pipeline);
		now_ns += INTERVAL_NS;
	}
	ck_assert_uint_le(rte_ring_count(leaf.pipeline->neighbors->asks), 2 * N_SPINES);
	/* The worker runs when the request leaves, and not afterwards. */
	interval(ALL_SPINES);
	interval(ALL_SPINES);
	pipeline_watch_next_hops(leaf.pipeline);
	ring_switch_rounds(&leaf, 3);
	for (unsigned int i = 0; i < 60; i++) {
		now_ns += INTERVAL_NS;
		pipeline_watch_next_hops(leaf.pipeline);
	}
	ck_assert_uint_eq(take_requests(0), 1);
	ck_assert_uint_eq(info_of(0).missed + info_of(1).missed, 0);
	ck_assert(is_up(0) && is_up(1));
}
END_TEST

START_TEST(time_in_which_the_main_thread_was_away_is_no_miss)
{
	interval(ALL_SPINES);
	for (unsigned int i = 0; i < 20; i++) {
		pipeline_watch_next_hops(leaf.pipeline);
		ring_switch_rounds(&leaf, 3);
		now_ns += 100 * INTERVAL_NS;
		ring_switch_rounds(&leaf, 3);
	}
	ck_assert_uint_eq(info_of(1).missed, 0);
	ck_assert(is_up(1));
}
END_TEST

START_TEST(a_next_hop_that_cannot_be_judged_is_dead_after_four_seconds)
{
	const uint64_t began_ns = now_ns;

	while (is_up(0)) {
		pipeline_watch_next_hops(leaf.pipeline);
		now_ns += INTERVAL_NS;
		ck_assert_uint_lt(now_ns - began_ns, 5000 * MS);
	}
	ck_assert_uint_gt(now_ns - began_ns, 3900 * MS);
}
END_TEST

START_TEST(an_answer_that_waits_behind_full_bursts_is_no_miss)
{
	uint8_t frame[4096];
	const size_t len = leaf_packet("10.77.9.9", "10.0.0.99", 1, frame);

	interval(ALL_SPINES);
	for (unsigned int i = 0; i < 8; i++) {
		/* As many packets as seven rounds take. */
		for (unsigned int k = 0; k < 7 * FANIN_BURST; k++)
			ring_switch_enqueue(&leaf, SPINE_PORT + 1, frame, len);
		interval(1);
	}
	ck_assert_uint_eq(info_of(1).missed, 0);
	ck_assert(is_up(1));
	for (unsigned int i = 0; i < NEXT_HOPS_PROBE_MISSES + 2; i++)
		interval(1);
	ck_assert(!is_up(1));
}
END_TEST

/*
 * Sends no more than a super-frame at once, whatever the backlog. handle: of the port's number in
 * DPDK.
 */
#define SHORT_BURST 46
static uint64_t short_left;

static uint16_t
short_rx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t max)
{
	const uint16_t n = rte_eth_rx_burst(*(const uint16_t *)handle, 0, mbufs, SHORT_BURST);

	if (n == SHORT_BURST)
		short_left += (uint64_t)(max - n);
	return n;
}

static uint64_t
short_rx_left(const void *handle)
{
	(void)handle;
	return short_left;
}

START_TEST(an_answer_that_waits_behind_super_frames_is_no_miss)
{
	static const struct port_driver driver = { .name = "test",
						   .rx_burst = short_rx_burst,
						   .rx_left = short_rx_left };
	struct worker *worker = leaf.pipeline->workers[0];
	uint8_t frame[4096];
	const size_t len = leaf_packet("10.77.9.9", "10.0.0.99", 1, frame);

	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		struct rx_queue *queue = &worker->rx_queues[i];

		if (queue->port == SPINE_PORT + 1) {
			queue->handle = &queue->ethdev;
			queue->driver = &driver;
		}
	}
	interval(ALL_SPINES);
	for (unsigned int i = 0; i < 8; i++) {
		for (unsigned int k = 0; k < 7 * SHORT_BURST; k++)
			ring_switch_enqueue(&leaf, SPINE_PORT + 1, frame, len);
		interval(1);
	}
	ck_assert_uint_eq(info_of(1).missed, 0);
	ck_assert(is_up(1));
}
END_TEST

START_TEST(a_dead_next_hop_that_asks_itself_stays_dead)
{
	uint8_t mac[6];

	for (unsigned int i = 0; i <= NEXT_HOPS_PROBE_MISSES; i++)
		interval(1);
	ck_assert(!is_up(1));
	spine_mac(1, mac);
	leaf_put_arp(SPINE_PORT + 1, RTE_ARP_OP_REQUEST, mac, spine_ip_be(1), leaf.pipeline->ip_be);
	ck_assert_uint_eq(ring_switch_take(&leaf, SPINE_PORT + 1, leaf_out), 60);
	leaf_put_arp(SPINE_PORT + 1, RTE_ARP_OP_REPLY, mac, spine_ip_be(1), spine_ip_be(1));
	ck_assert(!is_up(1));
	leaf_hears_spine(1);
	ck_assert(is_up(1));
}
END_TEST

START_TEST(misses_before_a_next_hop_was_known_do_not_count)
{
	uint8_t mac[6];

	open_at_start(NULL);
	spine_mac(1, mac);
	for (unsigned int i = 0; i < 10; i++)
		interval(0);
	leaf_put_arp(SPINE_PORT + 1, RTE_ARP_OP_REQUEST, mac, spine_ip_be(1), leaf.pipeline->ip_be);
	ck_assert(is_up(1));
	leaf_drain();
	for (unsigned int i = 1; i < NEXT_HOPS_PROBE_MISSES; i++)
		interval(0);
	ck_assert(is_up(1));
	ck_assert_uint_eq(info_of(1).lost, 0);
}
END_TEST

START_TEST(without_a_link_nothing_is_asked_and_nothing_missed)
{
	pipeline_port_set_link(leaf.pipeline, SPINE_PORT + 1, false);
	for (unsigned int i = 0; i < 10; i++)
		ck_assert_uint_eq(interval(1), 1);
	ck_assert_int_eq(leaf_spine_of_flow("10.77.5.1", 1), -1);
	pipeline_port_set_link(leaf.pipeline, SPINE_PORT + 1, true);
	ck_assert_int_eq(leaf_spine_of_flow("10.77.5.1", 1), 1);
	ck_assert_uint_eq(info_of(1).missed, 0);
	ck_assert_uint_eq(interval(ALL_SPINES), ALL_SPINES);
}
END_TEST

START_TEST(a_request_behind_a_full_queue_is_judged_when_it_has_left)
{
	const struct pipeline_egress limits[4] = { [SPINE_PORT + 1] = { .rate_mbit = 1 } };
	uint8_t frame[4096];
	size_t len;

	open_at(limits);
	len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);
	interval(ALL_SPINES);
	for (unsigned int i = 0; i < 200; i++)
		ring_switch_put(&leaf, 0, frame, len);
	/* These are some 21,000 bytes at 1 Mbit/s. */
	for (unsigned int i = 0; i < 3; i++)
		interval(1);
	pipeline_watch_next_hops(leaf.pipeline);
	ck_assert_uint_eq(info_of(1).missed, 0);
	for (unsigned int i = 0; i < 10; i++)
		interval(1);
	ck_assert(!is_up(1));
}
END_TEST

Suite *
suite_next_hops(void)
{
	Suite *suite = suite_create("next_hops");
	TCase *tcase = tcase_create("next_hops"), *other = tcase_create("other starts");

	tcase_add_checked_fixture(tcase, open_idle, leaf_close);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_next_hop_is_asked_each_interval_at_its_own_address);
	tcase_add_test(tcase, four_misses_in_a_row_kill_and_one_answer_revives_at_once);
	tcase_add_test(tcase, an_answer_in_between_begins_the_count_anew);
	tcase_add_test(tcase, a_reply_to_a_stopped_worker_is_no_miss);
	tcase_add_test(tcase, time_in_which_the_main_thread_was_away_is_no_miss);
	tcase_add_test(tcase, a_next_hop_that_cannot_be_judged_is_dead_after_four_seconds);
	tcase_add_test(tcase, an_answer_that_waits_behind_full_bursts_is_no_miss);
	tcase_add_test(tcase, an_answer_that_waits_behind_super_frames_is_no_miss);
	tcase_add_test(tcase, a_dead_next_hop_that_asks_itself_stays_dead);
	tcase_add_test(tcase, without_a_link_nothing_is_asked_and_nothing_missed);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(other, NULL, leaf_close);
	tcase_set_timeout(other, 60);
	tcase_add_test(other, misses_before_a_next_hop_was_known_do_not_count);
	tcase_add_test(other, a_request_behind_a_full_queue_is_judged_when_it_has_left);
	suite_add_tcase(suite, other);
	return suite;
}
