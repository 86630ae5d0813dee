/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbors of a leaf: which addresses it asks for, which answers it believes, which entries it
 * forgets.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>

#include <rte_arp.h>
#include <rte_ether.h>

#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

START_TEST(next_hops_are_asked_for_at_once_and_hosts_are_not)
{
	ring_switch_rounds(&leaf, 1);
	for (unsigned int spine = 0; spine < N_SPINES; spine++)
		leaf_expect_ask((uint16_t)(SPINE_PORT + spine), spine_ip_be(spine), NULL);
	leaf_expect_silence();
}
END_TEST

START_TEST(arp_for_the_switch_is_answered_on_every_port_and_teaches)
{
	const struct arp_message *answer = (const struct arp_message *)leaf_out;
	uint8_t frame[4096], mac[6];
	size_t len;

	ring_switch_rounds(&leaf, 1);
	leaf_drain();
	spine_mac(1, mac);
	leaf_put_arp(SPINE_PORT + 1, RTE_ARP_OP_REQUEST, mac, spine_ip_be(1), leaf.pipeline->ip_be);
	ck_assert_uint_eq(ring_switch_take(&leaf, SPINE_PORT + 1, leaf_out), 60);
	ck_assert_uint_eq(answer->arp.operation_be, htons(RTE_ARP_OP_REPLY));
	ck_assert_mem_eq(answer->arp.eth.dst, mac, 6);
	len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);

	host_mac(1, mac);
	leaf_put_arp(1, RTE_ARP_OP_REQUEST, mac, host_ip_be(1), leaf.pipeline->ip_be);
	ck_assert_uint_eq(ring_switch_take(&leaf, 1, leaf_out), 60);
	len = leaf_packet("10.77.9.9", "10.0.0.2", 1, frame);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(1, frame, len, mac);
	leaf_expect_silence();
}
END_TEST

START_TEST(an_unknown_host_is_asked_for_on_all_host_ports_once_a_second)
{
	uint8_t frame[4096], mac[6];
	size_t len = leaf_packet("10.77.9.9", "10.0.0.2", 1, frame);
	unsigned int asked = 0;

	ring_switch_rounds(&leaf, 1);
	leaf_drain();
	for (unsigned int i = 0; i < 10; i++)
		ring_switch_put(&leaf, SPINE_PORT, frame, len);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NEIGHBOR), 10);
	leaf_expect_ask(0, host_ip_be(1), NULL);
	leaf_expect_ask(1, host_ip_be(1), NULL);
	/* The ten packets may have fallen into two seconds. */
	while (ring_switch_take(&leaf, 0, leaf_out) != 0)
		asked++;
	ck_assert_uint_le(asked, 1);
	leaf_drain();

	leaf_hears_host(1);
	host_mac(1, mac);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(1, frame, len, mac);
	leaf_expect_silence();
}
END_TEST

static void
count_neighbor(void *user, const struct neighbor_info *info)
{
	unsigned int *counts = user; /* next hops, hosts, and those of them whose MAC is known */

	counts[info->next_hop ? 0 : 1]++;
	counts[2] += info->mac != 0;
}

static void
expect_neighbors(unsigned int next_hops, unsigned int hosts, unsigned int known)
{
	unsigned int counts[3] = { 0 };

	neighbor_each(leaf.pipeline->neighbors, count_neighbor, counts);
	ck_assert_uint_eq(counts[0], next_hops);
	ck_assert_uint_eq(counts[1], hosts);
	ck_assert_uint_eq(counts[2], known);
}

START_TEST(hosts_are_asked_again_by_unicast_and_forgotten_when_they_do_not_answer)
{
	uint32_t now;
	struct neighbor_table *neighbors = leaf.pipeline->neighbors;
	uint8_t mac[6];

	leaf_hears_all();
	now = (uint32_t)(pipeline_now_ns() / 1000000000u);
	expect_neighbors(2, 2, 4);
	neighbor_housekeep(neighbors, now + NEIGHBOR_REFRESH_HOST + 1);
	ring_switch_rounds(&leaf, 2);
	host_mac(0, mac);
	leaf_expect_ask(0, host_ip_be(0), mac);
	host_mac(1, mac);
	leaf_expect_ask(1, host_ip_be(1), mac);
	neighbor_housekeep(neighbors, now + NEIGHBOR_REFRESH_HOST + NEIGHBOR_PATIENCE + 2);
	expect_neighbors(2, 0, 2);
	ring_switch_rounds(&leaf, 2);
}
END_TEST

START_TEST(an_address_that_never_answered_leaves_the_table)
{
	uint32_t now;
	uint8_t frame[4096];

	leaf_hears_all();
	now = (uint32_t)(pipeline_now_ns() / 1000000000u);
	ring_switch_put(&leaf, SPINE_PORT, frame, leaf_packet("10.77.9.9", "10.0.0.77", 1, frame));
	expect_neighbors(2, 3, 4);
	neighbor_housekeep(leaf.pipeline->neighbors, now + NEIGHBOR_PATIENCE + 2);
	expect_neighbors(2, 2, 4);
}
END_TEST

START_TEST(one_address_never_gets_anothers_data)
{
	struct neighbor_table *neighbors = leaf.pipeline->neighbors;
	const uint8_t bytes[6] = { 2, 0, 0, 0, 0, 1 };
	mac_key mac = mac_key_make(bytes, 0);
	int32_t position = neighbor_find_or_add(neighbors,
						neighbor_key_make(host_ip_be(7), NEIGHBOR_HOSTS));

	/* The entry was host 6's, and a worker has just confirmed it. */
	neighbor_confirm(neighbors, position, host_ip_be(6), mac, 1);
	ck_assert_uint_eq(neighbor_mac(neighbors, position, host_ip_be(7)), 0);
	neighbor_confirm(neighbors, position, host_ip_be(7), mac, 1);
	ck_assert_uint_eq(neighbor_mac(neighbors, position, host_ip_be(7)), mac);
}
END_TEST

START_TEST(a_full_table_of_neighbors_drops_and_recovers)
{
	uint32_t now;
	uint8_t frame[4096], mac[6];
	char destination[16];
	unsigned int counts[3] = { 0 };
	size_t len;

	leaf_hears_all();
	now = (uint32_t)(pipeline_now_ns() / 1000000000u);
	for (unsigned int i = 3; i < 254; i++) {
		snprintf(destination, sizeof(destination), "10.0.0.%u", i);
		ring_switch_put(&leaf, SPINE_PORT, frame,
				leaf_packet("10.77.9.9", destination, 1, frame));
		leaf_drain();
	}
	neighbor_each(leaf.pipeline->neighbors, count_neighbor, counts);
	ck_assert_uint_lt(counts[1], 253);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_NEIGHBOR), 251);
	neighbor_housekeep(leaf.pipeline->neighbors, now + NEIGHBOR_PATIENCE + 3);
	ring_switch_rounds(&leaf, 2);
	leaf_drain();
	expect_neighbors(2, 2, 4);
	host_mac(1, mac);
	len = leaf_packet("10.77.9.9", "10.0.0.2", 1, frame);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(1, frame, len, mac);
}
END_TEST

START_TEST(arp_claims_are_believed_of_neighbors_only)
{
	uint8_t mac[6], other[6], frame[4096];
	size_t len;

	leaf_hears_all();
	host_mac(1, mac);
	host_mac(99, other);
	/*
	 * A next hop's address from a host's port and from the wrong link, an address of no subnet,
	 * and the switch's own address.
	 */
	leaf_put_arp(1, RTE_ARP_OP_REPLY, other, spine_ip_be(1), leaf.pipeline->ip_be);
	leaf_put_arp(SPINE_PORT, RTE_ARP_OP_REPLY, other, spine_ip_be(1), leaf.pipeline->ip_be);
	leaf_put_arp(SPINE_PORT, RTE_ARP_OP_REPLY, other, host_ip_be(1), leaf.pipeline->ip_be);
	leaf_put_arp(1, RTE_ARP_OP_REPLY, other, inet_addr("10.9.9.9"), leaf.pipeline->ip_be);
	leaf_put_arp(1, RTE_ARP_OP_REPLY, other, leaf.pipeline->ip_be, leaf.pipeline->ip_be);
	leaf_put_arp(1, RTE_ARP_OP_REPLY, (const uint8_t[6]){ 1, 2, 3, 4, 5, 6 }, host_ip_be(1),
		     leaf.pipeline->ip_be);
	/* A message for another station adds no entry. */
	leaf_put_arp(1, RTE_ARP_OP_REQUEST, other, host_ip_be(50), host_ip_be(51));
	leaf_drain();
	expect_neighbors(2, 2, 4);
	len = leaf_packet("10.77.9.9", "10.0.0.2", 1, frame);
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(1, frame, len, mac);

	/* A known host that changes its address is followed, whatever the target of its message. */
	leaf_put_arp(0, RTE_ARP_OP_REQUEST, other, host_ip_be(1), host_ip_be(1));
	leaf_drain();
	ring_switch_put(&leaf, SPINE_PORT, frame, len);
	leaf_expect_routed(0, frame, len, other);
}
END_TEST

START_TEST(the_switch_announces_its_address_on_the_port_that_is_named)
{
	ring_switch_rounds(&leaf, 1);
	leaf_drain();
	for (uint16_t port = 0; port < SPINE_PORT + N_SPINES; port++) {
		pipeline_announce(leaf.pipeline, port);
		ring_switch_rounds(&leaf, 1);
		leaf_expect_ask(port, leaf.pipeline->ip_be, NULL);
		leaf_expect_silence();
	}
}
END_TEST

START_TEST(a_neighbor_that_announces_another_mac_address_is_followed)
{
	uint8_t mac[6], other[6], frame[4096];
	size_t len;

	leaf_hears_all();
	spine_mac(1, mac);
	host_mac(99, other);
	len = leaf_packet("10.0.0.1", "10.77.5.1", 1, frame);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, mac);
	leaf_put_arp(SPINE_PORT + 1, RTE_ARP_OP_REQUEST, other, spine_ip_be(1), spine_ip_be(1));
	ring_switch_rounds(&leaf, 1);
	leaf_expect_silence();
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_ROUTED_PORT), 0);
	ring_switch_put(&leaf, 0, frame, len);
	leaf_expect_routed(SPINE_PORT + 1, frame, len, other);
	/* A host's message is also for the other hosts. */
	leaf_put_arp(0, RTE_ARP_OP_REQUEST, other, host_ip_be(0), host_ip_be(0));
	ring_switch_rounds(&leaf, 1);
	ck_assert_uint_eq(ring_switch_take(&leaf, 1, leaf_out), 60);
	leaf_expect_silence();
}
END_TEST

START_TEST(the_port_of_a_host_is_found_and_asked_for_if_need_be)
{
	struct pipeline *pipeline = leaf.pipeline;
	uint8_t mac[6];

	ring_switch_rounds(&leaf, 1);
	leaf_drain();
	/*
	 * Addresses that are not hosts of the subnet: its first and last one, the switch, a next
	 * hop, an address elsewhere.
	 */
	ck_assert_int_eq(pipeline_find_host(pipeline, inet_addr("10.0.0.0")), -EINVAL);
	ck_assert_int_eq(pipeline_find_host(pipeline, inet_addr("10.0.0.255")), -EINVAL);
	ck_assert_int_eq(pipeline_find_host(pipeline, pipeline->ip_be), -EINVAL);
	ck_assert_int_eq(pipeline_find_host(pipeline, spine_ip_be(0)), -EINVAL);
	ck_assert_int_eq(pipeline_find_host(pipeline, inet_addr("10.77.5.1")), -EINVAL);
	ring_switch_rounds(&leaf, 1);
	leaf_expect_silence();

	ck_assert_int_eq(pipeline_find_host(pipeline, host_ip_be(1)), -EAGAIN);
	ring_switch_rounds(&leaf, 1);
	leaf_expect_ask(0, host_ip_be(1), NULL);
	leaf_expect_ask(1, host_ip_be(1), NULL);
	leaf_expect_silence();
	leaf_hears_host(1);
	ck_assert_int_eq(pipeline_find_host(pipeline, host_ip_be(1)), 1);
	/* The host has moved to another port. */
	host_mac(1, mac);
	leaf_put_arp(0, RTE_ARP_OP_REQUEST, mac, host_ip_be(1), host_ip_be(1));
	leaf_drain();
	ck_assert_int_eq(pipeline_find_host(pipeline, host_ip_be(1)), 0);
	leaf_expect_silence();
	/* The table forgets its port before its address. */
	mac_table_age(pipeline->macs, (uint32_t)(pipeline_now_ns() / 1000000000u) + 1000, 300);
	ck_assert_int_eq(pipeline_find_host(pipeline, host_ip_be(1)), -EAGAIN);
}
END_TEST

START_TEST(a_host_is_not_looked_for_if_the_table_of_neighbors_is_full)
{
	char ip[16];
	int ret = 0;

	for (unsigned int i = 3; i < 254 && ret != -ENOSPC; i++) {
		snprintf(ip, sizeof(ip), "10.0.0.%u", i);
		ret = pipeline_find_host(leaf.pipeline, inet_addr(ip));
		ck_assert(ret == -EAGAIN || ret == -ENOSPC);
	}
	ck_assert_int_eq(ret, -ENOSPC);
	/* None of them answers: the table frees their entries. */
	ring_switch_rounds(&leaf, 40);
	neighbor_housekeep(leaf.pipeline->neighbors,
			   (uint32_t)(pipeline_now_ns() / 1000000000u) + NEIGHBOR_PATIENCE + 3);
	ring_switch_rounds(&leaf, 2);
	ck_assert_int_eq(pipeline_find_host(leaf.pipeline, host_ip_be(1)), -EAGAIN);
}
END_TEST

Suite *
suite_neighbors(void)
{
	Suite *suite = suite_create("neighbors");
	TCase *tcase = tcase_create("neighbors");

	tcase_add_checked_fixture(tcase, leaf_open, leaf_close);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, next_hops_are_asked_for_at_once_and_hosts_are_not);
	tcase_add_test(tcase, arp_for_the_switch_is_answered_on_every_port_and_teaches);
	tcase_add_test(tcase, an_unknown_host_is_asked_for_on_all_host_ports_once_a_second);
	tcase_add_test(tcase,
		       hosts_are_asked_again_by_unicast_and_forgotten_when_they_do_not_answer);
	tcase_add_test(tcase, an_address_that_never_answered_leaves_the_table);
	tcase_add_test(tcase, one_address_never_gets_anothers_data);
	tcase_add_test(tcase, a_full_table_of_neighbors_drops_and_recovers);
	tcase_add_test(tcase, arp_claims_are_believed_of_neighbors_only);
	tcase_add_test(tcase, the_switch_announces_its_address_on_the_port_that_is_named);
	tcase_add_test(tcase, a_neighbor_that_announces_another_mac_address_is_followed);
	tcase_add_test(tcase, the_port_of_a_host_is_found_and_asked_for_if_need_be);
	tcase_add_test(tcase, a_host_is_not_looked_for_if_the_table_of_neighbors_is_full);
	suite_add_tcase(suite, tcase);
	return suite;
}
