/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sources of frames: no host speaks as the switch, and a routed packet must come by the path that
 * leads back to its source.
 */
#include <arpa/inet.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>

#include "pipeline/net/mac_table.h"
#include "tests/unit/leaf_rig.h"
#include "tests/unit/suites.h"

static struct ring_switch sw;
static uint8_t out[4096];

static void
setup(void)
{
	ring_switch_eal();
	ring_switch_open(&sw, 4, 1, NULL);
}

static void
teardown(void)
{
	ring_switch_close(&sw);
}

static void
expect_silence(void)
{
	for (uint16_t p = 0; p < sw.n_ports; p++)
		ck_assert_uint_eq(ring_switch_take(&sw, p, out), 0);
}

/*
 * Claims of the switch's address that would reach hosts, or make the switch answer: Ethernet, IPv4,
 * ARP, and with tags.
 */
#define OWN_MAC (1u << 0)
#define OWN_IP (1u << 1)
#define OWN_ARP_MAC (1u << 2)
#define OWN_ARP_IP (1u << 3)

struct claim {
	const char *what;
	unsigned int own;
	unsigned int n_tags;
	bool arp;
	bool group;     /* to the multicast group of a job, else to all */
	bool to_switch; /* to its MAC */
};

static const struct claim claims[] = {
	{ .what = "MAC", .own = OWN_MAC },
	{ .what = "address", .own = OWN_IP },
	{ .what = "both", .own = OWN_MAC | OWN_IP },
	{ .what = "a result", .own = OWN_IP, .group = true },
	{ .what = "a result with its MAC", .own = OWN_MAC | OWN_IP, .group = true },
	{ .what = "to the switch", .own = OWN_IP, .to_switch = true },
	{ .what = "to the switch with its MAC", .own = OWN_MAC, .to_switch = true },
	{ .what = "in VLAN 0", .own = OWN_IP, .n_tags = 1 },
	{ .what = "in VLAN 0 of VLAN 0", .own = OWN_IP, .n_tags = 2 },
	{ .what = "behind many tags", .own = OWN_IP, .n_tags = 40 },
	{ .what = "its MAC in VLAN 0", .own = OWN_MAC, .n_tags = 1 },
	{ .what = "ARP's address", .own = OWN_ARP_IP, .arp = true },
	{ .what = "ARP's MAC", .own = OWN_ARP_MAC, .arp = true },
	{ .what = "ARP to the switch", .own = OWN_ARP_IP, .arp = true, .to_switch = true },
	{ .what = "ARP in VLAN 0", .own = OWN_ARP_IP, .n_tags = 1, .arp = true },
};

/* Makes the frame. Returns its length. */
static size_t
claim_make(const struct claim *claim, uint8_t *frame)
{
	const uint32_t group_be = htonl(FANIN_WIRE_GROUPS | 1);
	const size_t tags = claim->n_tags * sizeof(struct rte_vlan_hdr);
	struct fanin_headers untagged;
	struct fanin_flow flow = {
		.dst_mac = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		.dst_ip_be = claim->to_switch ? sw.pipeline->ip_be : group_be,
		.src_ip_be = claim->own & OWN_IP ? sw.pipeline->ip_be : host_ip_be(3),
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.src_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};
	struct rte_arp_hdr arp = {
		.arp_hardware = htons(RTE_ARP_HRD_ETHER),
		.arp_protocol = htons(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = 6,
		.arp_plen = 4,
		.arp_opcode = htons(RTE_ARP_OP_REPLY),
		.arp_data.arp_sip = claim->own & OWN_ARP_IP ? sw.pipeline->ip_be : host_ip_be(3),
		.arp_data.arp_tip = host_ip_be(1),
	};

	host_mac(3, arp.arp_data.arp_sha.addr_bytes);
	if (claim->own & OWN_ARP_MAC)
		memcpy(&arp.arp_data.arp_sha, sw.pipeline->mac, 6);
	host_mac(3, flow.src_mac);
	if (claim->own & OWN_MAC)
		memcpy(flow.src_mac, sw.pipeline->mac, 6);
	if (claim->to_switch)
		memcpy(flow.dst_mac, sw.pipeline->mac, 6);
	if (claim->group)
		memcpy(flow.dst_mac, (const uint8_t[]){ 0x01, 0x00, 0x5e, 0x40, 0x00, 0x01 }, 6);
	memset(&untagged, 0, sizeof(untagged));
	fanin_wire_encode_l4(&untagged, &flow, 0);
	if (claim->arp) {
		untagged.eth.type_be = htons(RTE_ETHER_TYPE_ARP);
		memcpy(&untagged.ip, &arp, sizeof(arp));
	}
	memcpy(frame, &untagged, 12);
	for (unsigned int i = 0; i < claim->n_tags; i++)
		memcpy(frame + 12 + i * sizeof(struct rte_vlan_hdr),
		       (const uint8_t[]){ i % 2 == 0 ? 0x81 : 0x88, i % 2 == 0 ? 0x00 : 0xa8, 0,
					  0 },
		       sizeof(struct rte_vlan_hdr));
	memcpy(frame + 12 + tags, (const uint8_t *)&untagged + 12, sizeof(untagged) - 12);
	return sizeof(untagged) + tags;
}

START_TEST(nobody_but_the_switch_speaks_as_the_switch)
{
	struct claim honest = claims[_i];
	uint8_t frame[4096];
	unsigned int n = 0;

	ring_switch_job(&sw, 2, 16);
	ring_switch_put(&sw, 3, frame, claim_make(&claims[_i], frame));
	expect_silence();
	ck_assert_msg(ring_switch_drops(&sw, FANIN_REASON_SOURCE_OWN) == 1, "%s", claims[_i].what);
	/* The switch has learned nothing: it is not behind that port. */
	ck_assert_int_lt(mac_table_lookup(sw.pipeline->macs, mac_key_make(sw.pipeline->mac, 0)), 0);

	/* The same frame from another station is no such claim. */
	honest.own = 0;
	ring_switch_put(&sw, 3, frame, claim_make(&honest, frame));
	for (uint16_t p = 0; p < 4; p++)
		n += ring_switch_take(&sw, p, out) != 0;
	ck_assert_uint_eq(n, honest.to_switch ? 0 : 3);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_SOURCE_OWN), 1);
}
END_TEST

START_TEST(tags_to_the_end_of_a_frame_are_no_address)
{
	uint8_t frame[200];

	memset(frame, 0, sizeof(frame));
	host_mac(0, frame + 6);
	for (size_t i = 12; i < sizeof(frame); i += 4)
		memcpy(frame + i, (const uint8_t[]){ 0x81, 0, 0, 0 }, 4);
	for (size_t len = FANIN_ETH_LEN; len <= sizeof(frame); len++)
		ring_switch_put(&sw, 0, frame, len);
	ck_assert_uint_eq(ring_switch_drops(&sw, FANIN_REASON_SOURCE_OWN), 0);
}
END_TEST

/*
 * A routed packet and the ports from which it is accepted: bitmaps of the leaf's ports, with hosts
 * at 0 and 1, and spines behind 2 and 3.
 */
#define HOST_PORTS 0x3u
#define SPINE_0 0x4u
#define SPINE_1 0x8u

static const struct {
	const char *source;
	unsigned int ports;
} sources[] = {
	{ "10.0.0.1", HOST_PORTS },
	{ "10.0.0.77", HOST_PORTS },
	{ "10.77.9.9", SPINE_0 | SPINE_1 }, /* of two next hops either */
	{ "10.77.5.1", SPINE_1 },
	{ "10.77.5.129", SPINE_0 },
	{ "10.77.5.130", SPINE_1 },
	{ "10.78.0.254", SPINE_0 }, /* next hops */
	{ "10.78.1.254", SPINE_1 },
	{ "10.0.0.0", 0 }, /* not a host */
	{ "10.0.0.255", 0 },
	{ "10.0.0.254", 0 },                /* the leaf itself */
	{ "10.99.0.1", SPINE_0 | SPINE_1 }, /* no route leads there */
};

START_TEST(a_source_is_taken_where_it_belongs_only)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = leaf_packet(sources[_i].source, "10.0.0.2", 1, frame);
	const bool own = headers->ip.src_be == leaf.pipeline->ip_be;
	uint8_t mac[6];

	leaf_hears_all();
	host_mac(1, mac);
	for (uint16_t p = 0; p < 4; p++) {
		const uint64_t before = leaf_drops(FANIN_REASON_SOURCE_PATH);

		ring_switch_put(&leaf, p, frame, len);
		if ((sources[_i].ports >> p & 1) != 0)
			leaf_expect_routed(1, frame, len, mac);
		leaf_expect_silence();
		ck_assert_uint_eq(leaf_drops(FANIN_REASON_SOURCE_PATH) - before,
				  (sources[_i].ports >> p & 1) == 0 && !own);
	}
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_SOURCE_OWN), own ? 4 : 0);
}
END_TEST

/*
 * This made wrong sums for all: a host sends the spine, through its leaf, a result as if it were
 * the leaf.
 */
START_TEST(a_host_does_not_speak_as_its_leaf_to_a_spine)
{
	const uint32_t speakers_be[] = { leaf.pipeline->ip_be, spine_ip_be(0), spine_ip_be(1),
					 inet_addr("10.77.5.254") };
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;

	leaf_hears_all();
	for (unsigned int i = 0; i < RTE_DIM(speakers_be); i++) {
		size_t len = host_packet(&leaf, 0, FANIN_TYPE_KNOWN, 1, 1, NULL, 0, headers);

		headers->ip.src_be = speakers_be[i];
		headers->ip.dst_be = spine_ip_be(0);
		leaf_set_checksum(frame);
		ring_switch_put(&leaf, 0, frame, len);
		leaf_expect_silence();
	}
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_SOURCE_OWN), 1);
	ck_assert_uint_eq(leaf_drops(FANIN_REASON_SOURCE_PATH), RTE_DIM(speakers_be) - 1);
}
END_TEST

Suite *
suite_sources(void)
{
	Suite *suite = suite_create("sources");
	TCase *own = tcase_create("own");
	TCase *path = tcase_create("path");

	tcase_add_checked_fixture(own, setup, teardown);
	tcase_set_timeout(own, 300);
	tcase_add_loop_test(own, nobody_but_the_switch_speaks_as_the_switch, 0, RTE_DIM(claims));
	tcase_add_test(own, tags_to_the_end_of_a_frame_are_no_address);
	suite_add_tcase(suite, own);
	tcase_add_checked_fixture(path, leaf_open, leaf_close);
	tcase_set_timeout(path, 300);
	tcase_add_loop_test(path, a_source_is_taken_where_it_belongs_only, 0, RTE_DIM(sources));
	tcase_add_test(path, a_host_does_not_speak_as_its_leaf_to_a_spine);
	suite_add_tcase(suite, path);
	return suite;
}
