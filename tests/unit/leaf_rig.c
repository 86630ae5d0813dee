/* SPDX-License-Identifier: BSD-3-Clause */
/* See leaf_rig.h. */
#include <arpa/inet.h>
#include <check.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>

#include "pipeline/base/ipv4.h"
#include "tests/unit/leaf_rig.h"

#define DATA_LEN 64

struct ring_switch leaf;
uint8_t leaf_out[4096] __attribute__((aligned(8)));

uint32_t
spine_ip_be(unsigned int spine)
{
	return htonl(0x0a4e00feu + (spine << 8)); /* 10.78.SPINE.254 */
}

void
spine_mac(unsigned int spine, uint8_t mac[6])
{
	const uint8_t address[6] = { 0x02, 0xfa, 0, 0, 1, (uint8_t)spine };

	memcpy(mac, address, sizeof(address));
}

void
leaf_open(void)
{
	leaf_open_limited(NULL);
}

void
leaf_open_limited(const struct pipeline_egress *limits)
{
	const struct next_hop_spec spines[] = { { spine_ip_be(0), SPINE_PORT },
						{ spine_ip_be(1), SPINE_PORT + 1 } };
	const struct route_spec routes[] = {
		{ inet_addr("10.77.0.0"), 16, 2, { spines[0], spines[1] } },
		{ inet_addr("10.77.5.0"), 24, 1, { spines[1] } },
		{ inet_addr("10.77.5.128"), 25, 1, { spines[0] } },
		{ inet_addr("10.77.5.130"), 32, 1, { spines[1] } },
	};
	const struct ring_switch_routing routing = { 3 << SPINE_PORT, routes, RTE_DIM(routes),
						     limits };

	ring_switch_eal();
	ring_switch_open_routed(&leaf, 4, &routing);
}

void
leaf_close(void)
{
	ring_switch_close(&leaf);
}

void
leaf_put_arp(uint16_t port, uint16_t opcode, const uint8_t mac[6], uint32_t ip_be,
	     uint32_t target_be)
{
	struct arp_message message = { 0 };

	fanin_arp_encode(&message.arp, htons(opcode), mac, ip_be, target_be);
	memset(message.arp.eth.dst, 0xff, sizeof(message.arp.eth.dst));
	ring_switch_put(&leaf, port, &message, sizeof(message));
}

void
leaf_expect_ask(uint16_t port, uint32_t ip_be, const uint8_t *known)
{
	static const uint8_t broadcast[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct arp_message message;

	ck_assert_uint_eq(ring_switch_take(&leaf, port, leaf_out), 60);
	memcpy(&message, leaf_out, sizeof(message));
	ck_assert_mem_eq(message.arp.eth.dst, known == NULL ? broadcast : known, 6);
	ck_assert_mem_eq(message.arp.eth.src, leaf.pipeline->mac, 6);
	ck_assert_uint_eq(message.arp.eth.type_be, htons(RTE_ETHER_TYPE_ARP));
	ck_assert_uint_eq(message.arp.operation_be, htons(RTE_ARP_OP_REQUEST));
	ck_assert_mem_eq(message.arp.sender_mac, leaf.pipeline->mac, 6);
	ck_assert_uint_eq(message.arp.sender_ip_be, leaf.pipeline->ip_be);
	ck_assert_uint_eq(message.arp.target_ip_be, ip_be);
}

void
leaf_drain(void)
{
	for (uint16_t p = 0; p < leaf.n_ports; p++) {
		while (ring_switch_take(&leaf, p, leaf_out) != 0)
			;
	}
}

void
leaf_expect_silence(void)
{
	for (uint16_t p = 0; p < leaf.n_ports; p++)
		ck_assert_uint_eq(ring_switch_take(&leaf, p, leaf_out), 0);
}

void
leaf_hears_spine(unsigned int spine)
{
	uint8_t mac[6];

	spine_mac(spine, mac);
	leaf_put_arp((uint16_t)(SPINE_PORT + spine), RTE_ARP_OP_REPLY, mac, spine_ip_be(spine),
		     leaf.pipeline->ip_be);
}

void
leaf_hears_host(unsigned int h)
{
	uint8_t mac[6];

	host_mac(h, mac);
	leaf_put_arp((uint16_t)h, RTE_ARP_OP_REPLY, mac, host_ip_be(h), leaf.pipeline->ip_be);
}

void
leaf_hears_all(void)
{
	for (unsigned int spine = 0; spine < N_SPINES; spine++)
		leaf_hears_spine(spine);
	for (unsigned int h = 0; h < SPINE_PORT; h++)
		leaf_hears_host(h);
	leaf_drain();
}

size_t
leaf_packet(const char *source, const char *destination, uint16_t src_port, uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct fanin_flow flow = {
		.dst_ip_be = inet_addr(destination),
		.src_ip_be = inet_addr(source),
		.dst_port = 7,
		.src_port = src_port,
	};

	memcpy(flow.dst_mac, leaf.pipeline->mac, 6);
	host_mac(0, flow.src_mac);
	memset(frame, 0x5a, FANIN_L4_LEN + DATA_LEN);
	fanin_wire_encode_l4(headers, &flow, DATA_LEN - FANIN_HDR_LEN);
	return FANIN_L4_LEN + DATA_LEN;
}

void
leaf_set_checksum(uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;

	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = (uint16_t)~rte_raw_cksum(&headers->ip,
							   ipv4_header_len(&headers->ip));
}

void
leaf_expect_routed(uint16_t port, const uint8_t *frame, size_t len, const uint8_t mac[6])
{
	const struct fanin_headers *got = (const struct fanin_headers *)leaf_out;
	uint8_t wanted[4096];

	ck_assert_uint_eq(ring_switch_take(&leaf, port, leaf_out), len);
	ck_assert_mem_eq(got->eth.dst, mac, 6);
	ck_assert_mem_eq(got->eth.src, leaf.pipeline->mac, 6);
	memcpy(wanted, frame, len);
	memcpy(wanted, leaf_out, 12);
	((struct fanin_headers *)wanted)->ip.ttl--;
	leaf_set_checksum(wanted);
	ck_assert_mem_eq(leaf_out, wanted, len);
}

uint64_t
leaf_drops(enum fanin_reason reason)
{
	return ring_switch_drops(&leaf, reason);
}

int
leaf_spine_of(const uint8_t *frame, size_t len)
{
	ring_switch_put(&leaf, 0, frame, len);
	for (unsigned int spine = 0; spine < N_SPINES; spine++) {
		if (ring_switch_take(&leaf, (uint16_t)(SPINE_PORT + spine), leaf_out) == len)
			return (int)spine;
	}
	return -1;
}

int
leaf_spine_of_flow(const char *destination, uint16_t src_port)
{
	uint8_t frame[4096];

	return leaf_spine_of(frame, leaf_packet("10.0.0.1", destination, src_port, frame));
}
