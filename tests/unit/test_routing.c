/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Routing: by which port a packet leaves a leaf, with which header, and how packets that end there
 * are handled.
 */
#include <arpa/inet.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#include <check.h>
#include <rte_arp.h>
#include <rte_ethdev.h>
#include <rte_ether.h>

#include "pipeline/base/ipv4.h"
#include "tests/unit/leaf_rig.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

START_TEST(the_longest_prefix_wins)
{
	static const struct {
		const char *destination;
		int spine;
	} cases[] = {
		{ "10.77.5.1", 1 },   { "10.77.5.127", 1 },
		{ "10.77.5.128", 0 }, { "10.77.5.129", 0 },
		{ "10.77.5.130", 1 }, { "10.77.5.131", 0 },
		{ "10.77.5.255", 0 }, { "10.78.0.254", 0 },
		{ "10.78.1.254", 1 }, /* the next hops themselves */
	};
	uint8_t frame[4096];

	leaf_hears_all();
	for (unsigned int i = 0; i < RTE_DIM(cases); i++)
		ck_assert_msg(leaf_spine_of_flow(cases[i].destination, 1) == cases[i].spine, "%s",
			      cases[i].destination);
	ck_assert_int_ge(leaf_spine_of_flow("10.77.4.255", 1), 0);
	ck_assert_int_ge(leaf_spine_of_flow("10.77.6.0", 1), 0);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NO_ROUTE), 0);
	ck_assert_int_eq(leaf_spine_of(frame, leaf_packet("10.0.0.1", "10.76.255.255", 1, frame)),
			 -1);
	ck_assert_int_eq(leaf_spine_of(frame, leaf_packet("10.0.0.1", "10.78.0.253", 1, frame)),
			 -1);
	ck_assert_int_eq(leaf_spine_of(frame, leaf_packet("10.0.0.1", "9.255.255.255", 1, frame)),
			 -1);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NO_ROUTE), 3);
}
END_TEST

START_TEST(hosts_of_the_subnet_reach_each_other_through_the_gateway_too)
{
	uint8_t frame[4096], mac[6];
	size_t len;

	leaf_hears_all();
	host_mac(1, mac);
	len = leaf_packet("10.0.0.1", "10.0.0.2", 1, frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(1, frame, len, mac);
	host_mac(0, mac);
	len = leaf_packet("10.0.0.1", "10.0.0.1", 1, frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(0, frame, len, mac);
	leaf_expect_silence();
}
END_TEST

START_TEST(flows_are_spread_over_the_next_hops_and_stay_on_theirs)
{
	unsigned int counts[N_SPINES] = { 0 };
	uint8_t frame[4096], again[4096];
	size_t len;

	leaf_hears_all();
	for (uint16_t port = 1000; port < 3000; port++) {
		int spine;

		len = leaf_packet("10.0.0.1", "10.77.9.9", port, frame);
		spine = leaf_spine_of(frame, len);
		ck_assert_int_ge(spine, 0);
		counts[spine]++;
		/* Another packet of the flow has other data, length and TTL. */
		leaf_packet("10.0.0.1", "10.77.9.9", port, again);
		((struct fanin_headers *)again)->ip.ttl = 9;
		((struct fanin_headers *)again)->ip.id_be = port;
		again[FANIN_L4_LEN] ^= 0xff;
		leaf_set_checksum(again);
		ck_assert_int_eq(leaf_spine_of(again, len), spine);
	}
	/* 2000 fair coins are within 150 of the middle, except for one case in 10^10. */
	ck_assert_uint_gt(counts[0], 850);
	ck_assert_uint_gt(counts[1], 850);
}
END_TEST

START_TEST(fragments_of_a_packet_take_the_same_way)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	unsigned int differing = 0;

	leaf_hears_all();
	for (uint16_t port = 1000; port < 1064; port++) {
		size_t len = leaf_packet("10.0.0.1", "10.77.9.9", port, frame);
		int spine;

		headers->ip.fragment_be = htons(RTE_IPV4_HDR_MF_FLAG);
		leaf_set_checksum(frame);
		spine = leaf_spine_of(frame, len);
		headers->ip.fragment_be = htons(100);
		frame[FANIN_ETH_LEN + FANIN_IP_LEN] ^= 0xff;
		leaf_set_checksum(frame);
		ck_assert_int_eq(leaf_spine_of(frame, len), spine);
		headers->ip.fragment_be = 0;
		leaf_set_checksum(frame);
		differing += leaf_spine_of(frame, len) != spine;
	}
	/* Whole packets leave by the same ports. */
	ck_assert_uint_gt(differing, 8);
}
END_TEST

START_TEST(a_port_without_a_link_is_avoided_at_once)
{
	leaf_hears_all();
	pipeline_port_set_link(leaf.pipeline, SPINE_PORT, false);
	for (uint16_t i = 0; i < 50; i++)
		ck_assert_int_eq(leaf_spine_of_flow("10.77.9.9", (uint16_t)(1000 + i)), 1);
	pipeline_port_set_link(leaf.pipeline, SPINE_PORT, true);
	pipeline_port_set_link(leaf.pipeline, SPINE_PORT + 1, false);
	for (uint16_t i = 0; i < 50; i++)
		ck_assert_int_eq(leaf_spine_of_flow("10.77.9.9", (uint16_t)(1000 + i)), 0);
}
END_TEST

/* ---- packets that end here */

/*
 * Aborts the test unless the next frame of port 0 is an ICMP error that quotes the start of the
 * frame.
 */
static void
expect_icmp(uint8_t type, uint8_t code, uint16_t mtu, const uint8_t *frame, size_t quoted)
{
	const struct fanin_headers *got = (const struct fanin_headers *)leaf_out;
	const uint8_t *icmp = leaf_out + FANIN_ETH_LEN + FANIN_IP_LEN;
	uint8_t mac[6];

	host_mac(0, mac);
	ck_assert_uint_eq(ring_switch_take(&leaf, 0, leaf_out),
			  FANIN_ETH_LEN + FANIN_IP_LEN + 8 + quoted);
	ck_assert_mem_eq(got->eth.dst, mac, 6);
	ck_assert_uint_eq(got->ip.src_be, leaf.pipeline->ip_be);
	ck_assert_uint_eq(got->ip.dst_be, ((const struct fanin_headers *)frame)->ip.src_be);
	ck_assert_uint_eq(fanin_ip_checksum(&got->ip), 0);
	ck_assert_uint_eq(ntohs(got->ip.total_len_be), FANIN_IP_LEN + 8 + quoted);
	ck_assert_uint_eq(rte_raw_cksum(icmp, 8 + quoted), UINT16_MAX);
	ck_assert_uint_eq(icmp[0], type);
	ck_assert_uint_eq(icmp[1], code);
	ck_assert_uint_eq(icmp[6] << 8 | icmp[7], mtu);
	ck_assert_mem_eq(icmp + 8, frame + FANIN_ETH_LEN, quoted);
}

START_TEST(time_to_live_ends_here_and_the_sender_is_told)
{
	uint8_t frame[4096], mac[6];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);

	leaf_hears_all();
	for (uint8_t ttl = 0; ttl < 2; ttl++) {
		headers->ip.ttl = ttl;
		leaf_set_checksum(frame);
		ring_switch_put(&leaf, 0, frame, len);
		expect_icmp(ICMP_TIME_EXCEEDED, ICMP_EXC_TTL, 0, frame, FANIN_IP_LEN + 8);
		leaf_expect_silence();
		ck_assert_uint_eq(leaf_drops(FANIN_REASON_TTL), ttl + 1u);
	}
	headers->ip.ttl = 2;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	spine_mac(1, mac);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
}
END_TEST

START_TEST(icmp_errors_have_a_rate_and_never_answer_errors)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);
	unsigned int answers = 0;

	leaf_hears_all();
	headers->ip.ttl = 1;
	leaf_set_checksum(frame);
	for (unsigned int i = 0; i < 3 * WORKER_ICMP_RATE; i++) {
		ring_switch_put(&leaf, 0, frame, len);
		answers += ring_switch_take(&leaf, 0, leaf_out) != 0;
	}
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_TTL), 3 * WORKER_ICMP_RATE);
	ck_assert_uint_ge(answers, WORKER_ICMP_RATE);
	ck_assert_uint_le(answers, 2 * WORKER_ICMP_RATE); /* a new second may have begun */

	leaf.pipeline->workers[0]->icmp_sent = 0;
	headers->ip.protocol = IPPROTO_ICMP;
	frame[FANIN_ETH_LEN + FANIN_IP_LEN] = ICMP_TIME_EXCEEDED;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	headers->ip.protocol = IPPROTO_UDP;
	headers->ip.fragment_be = htons(8);
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_silence();
	frame[FANIN_ETH_LEN + FANIN_IP_LEN] = ICMP_ECHO;
	headers->ip.protocol = IPPROTO_ICMP;
	headers->ip.fragment_be = 0;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	expect_icmp(ICMP_TIME_EXCEEDED, ICMP_EXC_TTL, 0, frame, FANIN_IP_LEN + 8);
}
END_TEST

START_TEST(without_a_route_the_sender_is_told)
{
	uint8_t frame[4096];
	size_t len = leaf_packet("10.0.0.1", "10.200.0.1", 1, frame);

	leaf_hears_all();
	ring_switch_put(&leaf, 0, frame, len);
	expect_icmp(ICMP_DEST_UNREACH, ICMP_NET_UNREACH, 0, frame, FANIN_IP_LEN + 8);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NO_ROUTE), 1);
}
END_TEST

START_TEST(packets_above_the_next_links_mtu_are_dropped_and_path_mtu_discovery_is_told)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);
	uint8_t mac[6];

	leaf_hears_all();
	spine_mac(1, mac);
	leaf.pipeline->ports[SPINE_PORT + 1].mtu = (uint16_t)(len - FANIN_ETH_LEN);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	leaf.pipeline->ports[SPINE_PORT + 1].mtu--;
	ring_switch_put(&leaf, 0, frame, len);
	expect_icmp(ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, (uint16_t)(len - FANIN_ETH_LEN - 1), frame,
		    FANIN_IP_LEN + 8);
	headers->ip.fragment_be = 0;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_MTU), 2);
}
END_TEST

START_TEST(malformed_headers_are_dropped_by_name)
{
	uint8_t good[4096], frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = leaf_packet("10.0.0.1", "10.77.5.1", 1, good);

#define EXPECT_DROP(reason, ...)                                                                   \
	do {                                                                                       \
		uint64_t before = leaf_drops(reason);                                              \
		memcpy(frame, good, len);                                                          \
		__VA_ARGS__;                                                                       \
		ring_switch_put(&leaf, 0, frame, len);                                             \
		leaf_expect_silence();                                                             \
		ck_assert_uint_eq(leaf_drops(reason), before + 1);                                 \
	} while (0)

	leaf_hears_all();
	EXPECT_DROP(FANIN_REASON_IP_CHECKSUM, headers->ip.checksum_be ^= 1);
	EXPECT_DROP(FANIN_REASON_IP_CHECKSUM, headers->ip.checksum_be = 0);
	EXPECT_DROP(FANIN_REASON_IP_HEADER, headers->ip.version_ihl = 0x65,
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_HEADER, headers->ip.version_ihl = 0x44,
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_HEADER, headers->ip.total_len_be = htons(19),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_HEADER, headers->ip.version_ihl = 0x46,
		    headers->ip.total_len_be = htons(20), leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_FRAME_TRUNCATED,
		    headers->ip.total_len_be = htons((uint16_t)(len - FANIN_ETH_LEN + 1)),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.src_be = 0, leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.src_be = UINT32_MAX,
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.src_be = inet_addr("127.0.0.1"),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.dst_be = inet_addr("239.1.1.1"),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.dst_be = inet_addr("10.0.0.255"),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_IP_ADDRESS, headers->ip.dst_be = inet_addr("10.0.0.0"),
		    leaf_set_checksum(frame));
	EXPECT_DROP(FANIN_REASON_SOURCE_MAC, frame[6] |= 1);
#undef EXPECT_DROP
	/* The frame is shorter than the headers. */
	for (size_t cut = FANIN_ETH_LEN; cut < FANIN_ETH_LEN + FANIN_IP_LEN; cut++)
		ring_switch_put(&leaf, 0, good, cut);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_FRAME_TRUNCATED), 1 + FANIN_IP_LEN);
}
END_TEST

START_TEST(options_are_carried_along_and_what_stands_behind_the_packet_is_not)
{
	uint8_t frame[4096], mac[6];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	size_t len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);

	leaf_hears_all();
	spine_mac(1, mac);
	headers->ip.version_ihl = 0x48;
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	ring_switch_put(&leaf, 0, frame, len + 9);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	/* A short packet keeps its padding. */
	headers->ip.version_ihl = 0x45;
	headers->ip.total_len_be = htons(28);
	leaf_set_checksum(frame);
	ring_switch_put(&leaf, 0, frame, 60);
	leaf_expect_routed(SPINE_PORT + 1, frame, 60, mac);
	ring_switch_put(&leaf, 0, frame, 42);
	leaf_expect_routed(SPINE_PORT + 1, frame, 42, mac);
}
END_TEST

START_TEST(the_checksum_stays_right_for_every_header)
{
	struct random random = random_seed(1);

	for (unsigned int i = 0; i < 200000; i++) {
		struct fanin_ip ip;

		for (size_t k = 0; k < sizeof(ip); k++)
			((uint8_t *)&ip)[k] = (uint8_t)random_u32(&random);
		/* Some sums are near the ends of the range. */
		if (i % 4 == 0)
			memset(&ip, i % 8 == 0 ? 0xff : 0, 8);
		ip.version_ihl = 0x45;
		if (ip.ttl == 0)
			ip.ttl = 1;
		ip.checksum_be = 0;
		ip.checksum_be = fanin_ip_checksum(&ip);
		/* Zero may be written as all ones. */
		if (ip.checksum_be == 0 && i % 2 == 0)
			ip.checksum_be = UINT16_MAX;
		ipv4_decrement_ttl(&ip);
		ck_assert_uint_eq(fanin_ip_checksum(&ip), 0);
	}
}
END_TEST

/* ---- routed ports */

START_TEST(nothing_is_flooded_to_or_from_routed_ports)
{
	uint8_t frame[100] = { 0 };
	uint8_t mac[6];

	leaf_hears_all();
	memset(frame, 0xff, 6);
	host_mac(0, frame + 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	ring_switch_put(&leaf, 0, frame, sizeof(frame));
	ck_assert_uint_eq(ring_switch_take(&leaf, 1, leaf_out), sizeof(frame));
	leaf_expect_silence();

	ring_switch_put(&leaf, SPINE_PORT, frame, sizeof(frame));
	host_mac(1, frame);
	host_mac(7, frame + 6);
	ring_switch_put(&leaf, SPINE_PORT, frame, sizeof(frame));
	spine_mac(0, mac);
	leaf_put_arp(SPINE_PORT, RTE_ARP_OP_REQUEST, mac, spine_ip_be(0), host_ip_be(1));
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_ROUTED_PORT), 3);
	/* The switch has learned no host there. */
	host_mac(7, mac);
	ck_assert_int_lt(mac_table_lookup(leaf.pipeline->macs, mac_key_make(mac, 0)), 0);
}
END_TEST

START_TEST(hosts_that_only_use_the_gateway_are_learned_as_stations)
{
	uint8_t frame[4096], mac[6];

	host_mac(0, mac);
	ring_switch_put(&leaf, 0, frame, leaf_packet("10.0.0.1", "10.77.5.1", 1, frame));
	ck_assert_int_eq(mac_table_lookup(leaf.pipeline->macs, mac_key_make(mac, 0)), 0);
	leaf_drain();
	leaf_hears_host(1);
	host_mac(1, mac);
	ck_assert_int_eq(mac_table_lookup(leaf.pipeline->macs, mac_key_make(mac, 0)), 1);
}
END_TEST

START_TEST(a_neighbor_that_is_no_known_station_is_flooded_to)
{
	uint8_t frame[4096], mac[6];
	size_t len = leaf_packet("10.77.9.9", "10.0.0.2", 1, frame);

	leaf_hears_all();
	ck_assert_uint_gt(mac_table_age(leaf.pipeline->macs, UINT32_MAX / 4, 0), 0);
	host_mac(1, mac);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(0, frame, len, mac);
	leaf_expect_routed(1, frame, len, mac);
	leaf_expect_silence();
}
END_TEST

/*
 * Frames with changed bits, bytes and lengths: every frame that leaves is a well-formed packet, and
 * every mbuf comes back.
 */
START_TEST(mutated_frames_do_no_harm)
{
	const struct fanin_headers *got = (const struct fanin_headers *)leaf_out;
	struct counters sum;
	uint8_t frame[4096];
	struct random random = random_seed(7);

	leaf_hears_all();
	for (unsigned int i = 0; i < 20000; i++) {
		size_t len = leaf_packet("10.0.0.1", i % 2 == 0 ? "10.77.9.9" : "10.0.0.2",
					 (uint16_t)i, frame);
		unsigned int changes = random_below(&random, 4);

		for (unsigned int k = 0; k < changes; k++)
			frame[12 + random_below(&random, 30)] = (uint8_t)random_u32(&random);
		if (i % 4 < 2)
			leaf_set_checksum(frame);
		if (i % 7 == 0)
			len -= random_below(&random, (uint32_t)len);
		ring_switch_put(&leaf, (uint16_t)(i % 3), frame, len);
		for (uint16_t p = 0; p < leaf.n_ports; p++) {
			while ((len = ring_switch_take(&leaf, p, leaf_out)) != 0) {
				if (got->eth.type_be != htons(RTE_ETHER_TYPE_IPV4) ||
				    memcmp(got->eth.src, leaf.pipeline->mac, 6) != 0)
					continue;
				ck_assert_uint_eq(ipv4_check(got, (uint16_t)len),
						  FANIN_REASON_NONE);
			}
		}
	}
	pipeline_counters(leaf.pipeline, &sum);
	ck_assert_uint_gt(sum.routed, 1000);
	ck_assert_uint_gt(sum.drops[FANIN_REASON_IP_HEADER], 100);
}
END_TEST

Suite *
suite_routing(void)
{
	Suite *suite = suite_create("routing");
	TCase *tcase = tcase_create("routing");

	tcase_add_checked_fixture(tcase, leaf_open, leaf_close);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, the_longest_prefix_wins);
	tcase_add_test(tcase, hosts_of_the_subnet_reach_each_other_through_the_gateway_too);
	tcase_add_test(tcase, flows_are_spread_over_the_next_hops_and_stay_on_theirs);
	tcase_add_test(tcase, fragments_of_a_packet_take_the_same_way);
	tcase_add_test(tcase, a_port_without_a_link_is_avoided_at_once);
	tcase_add_test(tcase, time_to_live_ends_here_and_the_sender_is_told);
	tcase_add_test(tcase, icmp_errors_have_a_rate_and_never_answer_errors);
	tcase_add_test(tcase, without_a_route_the_sender_is_told);
	tcase_add_test(tcase,
		       packets_above_the_next_links_mtu_are_dropped_and_path_mtu_discovery_is_told);
	tcase_add_test(tcase, malformed_headers_are_dropped_by_name);
	tcase_add_test(tcase, options_are_carried_along_and_what_stands_behind_the_packet_is_not);
	tcase_add_test(tcase, the_checksum_stays_right_for_every_header);
	tcase_add_test(tcase, nothing_is_flooded_to_or_from_routed_ports);
	tcase_add_test(tcase, hosts_that_only_use_the_gateway_are_learned_as_stations);
	tcase_add_test(tcase, a_neighbor_that_is_no_known_station_is_flooded_to);
	tcase_add_test(tcase, mutated_frames_do_no_harm);
	suite_add_tcase(suite, tcase);
	return suite;
}
