/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-frames: which frames leave as one, that its segments are the same frames, the meaning of a
 * header before a frame, and how super-frames leave by links that take none.
 */
#include <stdlib.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "pipeline/base/offload.h"
#include "pipeline/pipeline.h"
#include "lab/reference/random.h"
#include "switch/super_frame.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define UDP_PORT 21930
#define BURST 64
#define POOL_SIZE 255

static struct rte_mempool *pool;
static struct rte_mbuf *mbufs[UINT8_MAX];
static struct super_frame_group groups[UINT8_MAX];

static void
setup(void)
{
	ring_switch_eal();
	pool = rte_pktmbuf_pool_create("frames", POOL_SIZE, 0, PIPELINE_MBUF_PRIV_SIZE, 2048 + 128,
				       SOCKET_ID_ANY);
	ck_assert_ptr_nonnull(pool);
}

static void
teardown(void)
{
	ck_assert_uint_eq(rte_mempool_avail_count(pool), POOL_SIZE);
	rte_mempool_free(pool);
}

static struct fanin_headers *
headers_of(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
}

/*
 * Makes a result of Fanin's in a flow of this number; its bytes show its number. len: of the UDP
 * payload.
 */
static struct rte_mbuf *
make_frame(uint8_t number, unsigned int flow_number, uint16_t len)
{
	const struct fanin_flow flow = {
		.src_mac = { 2, 0, 0, 0, 0, 1 },
		.dst_mac = { 2, 0, 0, 0, 0, 2 },
		.src_ip_be = 0xfe00000a,
		.dst_ip_be = rte_cpu_to_be_32(0x0a000001 + flow_number),
		.src_port = UDP_PORT,
		.dst_port = UDP_PORT,
	};
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	struct fanin_headers *headers;

	ck_assert_ptr_nonnull(mbuf);
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, (uint16_t)(FANIN_L4_LEN + len));
	ck_assert_ptr_nonnull(headers);
	fanin_wire_encode_l4(headers, &flow, len < FANIN_HDR_LEN ? 0 : len - FANIN_HDR_LEN);
	headers->ip.total_len_be = rte_cpu_to_be_16((uint16_t)(FANIN_IP_LEN + FANIN_UDP_LEN + len));
	headers->udp.len_be = rte_cpu_to_be_16((uint16_t)(FANIN_UDP_LEN + len));
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	for (uint16_t i = 0; i < len; i++)
		((uint8_t *)&headers->fanin)[i] = (uint8_t)(number + 7 * i);
	headers->fanin.type = FANIN_TYPE_RESULT;
	headers->fanin.flags = 0;
	headers->fanin.job = 9;
	return mbuf;
}

static void
expect_groups(uint16_t n, const uint16_t *sizes, uint16_t n_sizes)
{
	uint16_t first = 0;

	ck_assert_uint_eq(super_frame_group(mbufs, n, rte_cpu_to_be_16(UDP_PORT), groups), n_sizes);
	for (uint16_t i = 0; i < n_sizes; i++) {
		ck_assert_uint_eq(groups[i].n, sizes[i]);
		ck_assert_uint_eq(groups[i].first, first);
		first = (uint16_t)(first + sizes[i]);
	}
	ck_assert_uint_eq(first, n);
}

/* Returns the number that a frame's bytes show. */
static uint8_t
number_of(const struct rte_mbuf *mbuf)
{
	return *(const uint8_t *)&headers_of(mbuf)->fanin;
}

static void
expect_numbers(const uint8_t *numbers, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		ck_assert_uint_eq(number_of(mbufs[i]), numbers[i]);
	rte_pktmbuf_free_bulk(mbufs, n);
}

START_TEST(frames_of_a_flow_leave_together_and_in_order)
{
	for (uint8_t i = 0; i < 12; i++)
		mbufs[i] = make_frame(i, i % 3, 500);
	expect_groups(12, (const uint16_t[]){ 4, 4, 4 }, 3);
	expect_numbers((const uint8_t[]){ 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11 }, 12);
}
END_TEST

START_TEST(a_shorter_frame_is_the_last_and_a_longer_one_begins_anew)
{
	static const uint16_t lengths[] = { 500, 500, 300, 500, 500, 700, 700, 54 };

	for (uint8_t i = 0; i < 8; i++)
		mbufs[i] = make_frame(i, 0, lengths[i]);
	expect_groups(8, (const uint16_t[]){ 3, 2, 3 }, 3);
	expect_numbers((const uint8_t[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 8);
}
END_TEST

/*
 * As in a reduce_scatter: the owner of every fourth block gets its elements, and a notice for the
 * others.
 */
START_TEST(results_without_their_elements_leave_together)
{
	for (uint8_t i = 0; i < 9; i++) {
		mbufs[i] = make_frame(i, 0, i % 4 == 0 ? 500 : FANIN_HDR_LEN);
		headers_of(mbufs[i])->fanin.flags = i % 4 == 0 ? 0 : FANIN_FLAG_EMPTY;
	}
	expect_groups(9, (const uint16_t[]){ 3, 6 }, 2);
	expect_numbers((const uint8_t[]){ 0, 4, 8, 1, 2, 3, 5, 6, 7 }, 9);
}
END_TEST

START_TEST(packets_with_different_headers_leave_apart)
{
	struct fanin_headers *headers;

	for (uint8_t i = 0; i < 9; i++)
		mbufs[i] = make_frame(i, 0, 500);
	headers_of(mbufs[8])->fanin.job++;
	/* Identifications and checksums of IPv4 may differ. */
	headers_of(mbufs[1])->ip.id_be = 77;
	headers_of(mbufs[2])->ip.tos |= RTE_IPV4_HDR_ECN_CE;
	headers_of(mbufs[3])->udp.src_be++;
	headers_of(mbufs[4])->eth.dst[5]++;
	headers_of(mbufs[5])->ip.ttl--;
	headers_of(mbufs[6])->ip.src_be++;
	headers = headers_of(mbufs[7]);
	headers->ip.fragment_be = 0;
	expect_groups(9, (const uint16_t[]){ 2, 1, 1, 1, 1, 1, 1, 1 }, 8);
	expect_numbers((const uint8_t[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8 }, 9);
}
END_TEST

START_TEST(only_fanins_packets_without_a_checksum_are_joined)
{
	for (uint8_t i = 0; i < 14; i++)
		mbufs[i] = make_frame(i, 0, i < 12 ? 500 : FANIN_HDR_LEN - 1);
	for (uint8_t i = 0; i < 2; i++) {
		headers_of(mbufs[i])->udp.checksum_be = 1;
		headers_of(mbufs[2 + i])->eth.type_be = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6);
		headers_of(mbufs[4 + i])->ip.protocol = IPPROTO_TCP;
		headers_of(mbufs[6 + i])->udp.src_be = 1;
		headers_of(mbufs[6 + i])->udp.dst_be = 1;
		headers_of(mbufs[8 + i])->ip.version_ihl = 0x46;
		headers_of(mbufs[10 + i])->ip.fragment_be = rte_cpu_to_be_16(1);
	}
	expect_groups(14, (const uint16_t[]){ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 14);
	rte_pktmbuf_free_bulk(mbufs, 14);
}
END_TEST

START_TEST(no_super_frame_is_longer_than_interfaces_take)
{
	/* 46 frames of 1400 bytes are 64400; 47 would be 65800. */
	for (uint8_t i = 0; i < BURST; i++)
		mbufs[i] = make_frame(i, 0, 1400);
	expect_groups(BURST, (const uint16_t[]){ 46, 18 }, 2);
	ck_assert_uint_eq(groups[0].len, FANIN_L4_LEN + 46 * 1400);
	rte_pktmbuf_free_bulk(mbufs, BURST);
	/* 46 frames of 1424 would fit an IP packet, but would be 65546 bytes with all headers. */
	for (uint8_t i = 0; i < BURST; i++)
		mbufs[i] = make_frame(i, 0, 1424);
	expect_groups(BURST, (const uint16_t[]){ 45, 19 }, 2);
	rte_pktmbuf_free_bulk(mbufs, BURST);
	for (uint8_t i = 0; i < BURST; i++)
		mbufs[i] = make_frame(i, 0, 100);
	expect_groups(BURST, (const uint16_t[]){ 64 }, 1);
	rte_pktmbuf_free_bulk(mbufs, BURST);
}
END_TEST

/*
 * Frames that leave as one are the same frames again after segmentation, however many flows are
 * mixed.
 */
START_TEST(the_segments_of_a_group_are_its_frames)
{
	struct random random = { .state = 4711 };

	for (unsigned int round = 0; round < 200; round++) {
		const uint16_t n = (uint16_t)(1 + random_below(&random, UINT8_MAX));
		const uint16_t usual = (uint16_t)(1 + random_below(&random, 1400));
		uint16_t n_groups;

		for (uint16_t i = 0; i < n; i++) {
			mbufs[i] =
				make_frame((uint8_t)i, (unsigned int)random_below(&random, 3),
					   random_chance(&random, 0.9)
						   ? usual
						   : (uint16_t)(1 + random_below(&random, 1400)));
			/* A wrong checksum stays wrong: no receiver accepts the segment. */
			if (random_chance(&random, 0.05))
				headers_of(mbufs[i])->ip.checksum_be ^= 0x10;
		}
		n_groups = super_frame_group(mbufs, n, rte_cpu_to_be_16(UDP_PORT), groups);
		for (uint16_t g = 0; g < n_groups; g++) {
			const struct super_frame_group *group = &groups[g];
			const struct fanin_headers *first = headers_of(mbufs[group->first]);
			struct super_frame_head head;

			super_frame_head(group, mbufs[group->first], &head);
			ck_assert_uint_eq(head.vnet.gso_size,
					  mbufs[group->first]->pkt_len - FANIN_L4_LEN);
			for (uint16_t k = 0; k < group->n; k++) {
				const struct rte_mbuf *frame = mbufs[group->first + k];
				struct fanin_headers made;

				super_frame_segment_headers(
					(const struct fanin_headers *)head.headers, k,
					frame->pkt_len - FANIN_L4_LEN, &made);
				ck_assert_uint_eq(made.ip.total_len_be,
						  headers_of(frame)->ip.total_len_be);
				ck_assert_uint_eq(made.udp.len_be, headers_of(frame)->udp.len_be);
				ck_assert_uint_eq(made.udp.checksum_be, 0);
				ck_assert_uint_eq(rte_raw_cksum(&made.ip, FANIN_IP_LEN) ==
							  UINT16_MAX,
						  rte_raw_cksum(&first->ip, FANIN_IP_LEN) ==
							  UINT16_MAX);
			}
		}
		rte_pktmbuf_free_bulk(mbufs, n);
	}
}
END_TEST

/*
 * A super-frame of TCP or UDP over either IP version, with a tag or without, in mbufs of `room`
 * bytes each.
 */
struct foreign {
	bool tcp;
	bool v6;
	bool tagged;
	uint16_t segment;
	uint32_t payload;
	uint32_t room;
};

static uint32_t
foreign_l2(const struct foreign *foreign)
{
	return RTE_ETHER_HDR_LEN + (foreign->tagged ? RTE_VLAN_HLEN : 0);
}

static uint32_t
foreign_l4(const struct foreign *foreign)
{
	return foreign_l2(foreign) +
	       (foreign->v6 ? (uint32_t)sizeof(struct rte_ipv6_hdr) : FANIN_IP_LEN);
}

static uint32_t
foreign_header(const struct foreign *foreign)
{
	return foreign_l4(foreign) + (uint32_t)(foreign->tcp ? sizeof(struct rte_tcp_hdr) + 12
							     : sizeof(struct rte_udp_hdr));
}

static void
foreign_write(const struct foreign *foreign, uint8_t *to)
{
	const uint32_t l2 = foreign_l2(foreign);
	const uint32_t l4 = foreign_l4(foreign);
	const uint32_t len = foreign_header(foreign) + foreign->payload;
	struct rte_ipv4_hdr *v4 = (struct rte_ipv4_hdr *)(to + l2);
	struct rte_ipv6_hdr *v6 = (struct rte_ipv6_hdr *)(to + l2);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(to + l4);
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(to + l4);
	const uint8_t protocol = foreign->tcp ? IPPROTO_TCP : IPPROTO_UDP;
	uint16_t sum;

	memset(to, 0, len);
	memset(to, 2, 12);
	to[12] = foreign->tagged ? 0x81 : foreign->v6 ? 0x86 : 0x08;
	to[13] = !foreign->tagged && foreign->v6 ? 0xdd : 0;
	if (foreign->tagged) {
		to[15] = 5;
		to[16] = foreign->v6 ? 0x86 : 0x08;
		to[17] = foreign->v6 ? 0xdd : 0;
	}
	for (uint32_t i = foreign_header(foreign); i < len; i++)
		to[i] = (uint8_t)(i * 13 + (i >> 8));
	if (foreign->v6) {
		v6->vtc_flow = rte_cpu_to_be_32(0x60000000);
		v6->payload_len = rte_cpu_to_be_16((uint16_t)(len - l4));
		v6->proto = protocol;
		memset(&v6->src_addr, 3, sizeof(v6->src_addr));
		memset(&v6->dst_addr, 4, sizeof(v6->dst_addr));
	} else {
		v4->version_ihl = 0x45;
		v4->total_length = rte_cpu_to_be_16((uint16_t)(len - l2));
		v4->packet_id = rte_cpu_to_be_16(65533);
		v4->time_to_live = 64;
		v4->next_proto_id = protocol;
		v4->src_addr = 0x0100000a;
		v4->dst_addr = 0x0200000a;
		v4->hdr_checksum = rte_ipv4_cksum(v4);
	}
	if (foreign->tcp) {
		tcp->sent_seq = rte_cpu_to_be_32(UINT32_MAX - 2000);
		tcp->data_off = (sizeof(*tcp) + 12) / 4 << 4;
		tcp->tcp_flags = RTE_TCP_ACK_FLAG | RTE_TCP_PSH_FLAG | RTE_TCP_FIN_FLAG |
				 RTE_TCP_CWR_FLAG;
	} else {
		udp->src_port = 7;
		udp->dgram_len = rte_cpu_to_be_16((uint16_t)(len - l4));
	}
	sum = foreign->v6 ? rte_ipv6_phdr_cksum(v6, 0) : rte_ipv4_phdr_cksum(v4, 0);
	if (foreign->tcp)
		tcp->cksum = sum;
	else
		udp->dgram_cksum = sum;
}

/* Returns the kernel's description of it. */
static struct virtio_net_hdr
foreign_vnet(const struct foreign *foreign)
{
	return (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = foreign->segment == 0 ? VIRTIO_NET_HDR_GSO_NONE
			    : !foreign->tcp       ? VIRTIO_NET_HDR_GSO_UDP_L4
			    : foreign->v6 ? VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_ECN
					  : VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN,
		.hdr_len = (uint16_t)(foreign->segment == 0 ? 0 : foreign_header(foreign)),
		.gso_size = foreign->segment,
		.csum_start = (uint16_t)foreign_l4(foreign),
		.csum_offset = foreign->tcp ? offsetof(struct rte_tcp_hdr, cksum)
					    : offsetof(struct rte_udp_hdr, dgram_cksum),
	};
}

static struct rte_mbuf *
foreign_make(const struct foreign *foreign)
{
	static uint8_t bytes[UINT16_MAX + FANIN_ETH_LEN + RTE_VLAN_HLEN];
	const uint32_t len = foreign_header(foreign) + foreign->payload;
	struct rte_mbuf *head = NULL, **end = &head;
	uint16_t n = 0;

	foreign_write(foreign, bytes);
	for (uint32_t at = 0; at < len; at += foreign->room, n++) {
		const uint16_t part = (uint16_t)RTE_MIN(len - at, foreign->room);

		*end = rte_pktmbuf_alloc(pool);
		ck_assert_ptr_nonnull(*end);
		memcpy(rte_pktmbuf_mtod(*end, void *), bytes + at, part);
		(*end)->data_len = part;
		end = &(*end)->next;
	}
	head->nb_segs = n;
	head->pkt_len = len;
	return head;
}

/* Returns true if the transport protocol's checksum over len bytes is right. */
static bool
is_right(const struct foreign *foreign, const uint8_t *frame, uint32_t len)
{
	const void *ip = frame + foreign_l2(foreign);
	const uint32_t l4 = foreign_l4(foreign);
	uint32_t sum = foreign->v6 ? rte_ipv6_phdr_cksum(ip, 0) : rte_ipv4_phdr_cksum(ip, 0);

	sum += rte_raw_cksum(frame + l4, len - l4);
	return (sum & UINT16_MAX) + (sum >> 16) == UINT16_MAX;
}

/* Checks a segment as a link carries it. offset: of its payload in the super-frame. */
static void
check_segment(const struct foreign *foreign, const struct rte_mbuf *segment, uint32_t index,
	      uint32_t offset, uint32_t payload)
{
	const uint8_t *frame = rte_pktmbuf_mtod(segment, const uint8_t *);
	const uint32_t l2 = foreign_l2(foreign);
	const uint32_t l4 = foreign_l4(foreign);
	const struct rte_ipv4_hdr *v4 = (const struct rte_ipv4_hdr *)(frame + l2);
	const struct rte_ipv6_hdr *v6 = (const struct rte_ipv6_hdr *)(frame + l2);
	const struct rte_tcp_hdr *tcp = (const struct rte_tcp_hdr *)(frame + l4);
	const bool last = offset + payload == foreign->payload;
	uint8_t flags = RTE_TCP_ACK_FLAG;

	ck_assert_uint_eq(segment->pkt_len, foreign_header(foreign) + payload);
	ck_assert(is_right(foreign, frame, segment->pkt_len));
	for (uint32_t i = 0; i < payload; i++) {
		const uint32_t at = foreign_header(foreign) + offset + i;

		ck_assert_uint_eq(frame[foreign_header(foreign) + i],
				  (uint8_t)(at * 13 + (at >> 8)));
	}
	if (foreign->v6) {
		ck_assert_uint_eq(rte_be_to_cpu_16(v6->payload_len), segment->pkt_len - l4);
	} else {
		ck_assert_uint_eq(rte_be_to_cpu_16(v4->total_length), segment->pkt_len - l2);
		ck_assert_uint_eq(rte_raw_cksum(v4, sizeof(*v4)), UINT16_MAX);
		ck_assert_uint_eq(rte_be_to_cpu_16(v4->packet_id), (uint16_t)(65533 + index));
	}
	if (!foreign->tcp)
		return;
	flags |= index == 0 ? RTE_TCP_CWR_FLAG : 0;
	flags |= last ? RTE_TCP_PSH_FLAG | RTE_TCP_FIN_FLAG : 0;
	ck_assert_uint_eq(tcp->tcp_flags, flags);
	ck_assert_uint_eq(rte_be_to_cpu_32(tcp->sent_seq), UINT32_MAX - 2000 + offset);
}

START_TEST(links_get_segments_as_the_kernel_makes_them)
{
	const struct foreign foreign = {
		.tcp = (_i & 1) != 0,
		.v6 = (_i & 2) != 0,
		.tagged = (_i & 4) != 0,
		.segment = 1000,
		.payload = (_i & 8) != 0 ? 30000 : 7777,
		.room = (_i & 16) != 0 ? 2048 : 300,
	};
	const struct virtio_net_hdr vnet = foreign_vnet(&foreign);
	struct rte_mbuf *frame = foreign_make(&foreign);
	struct virtio_net_hdr again;

	ck_assert(super_frame_read(&vnet, 0, frame));
	ck_assert_uint_eq(offload_link_len(frame), foreign_header(&foreign) + 1000);
	ck_assert_uint_eq(offload_segments(frame), (foreign.payload + 999) / 1000);
	super_frame_write(frame, &again);
	ck_assert_int_eq(memcmp(&again, &vnet, sizeof(vnet)), 0);
	for (uint32_t i = 0; i < offload_segments(frame); i++) {
		struct rte_mbuf *segment = rte_pktmbuf_alloc(pool);

		ck_assert_ptr_nonnull(segment);
		offload_copy_segment(frame, i, segment);
		check_segment(&foreign, segment, i, i * 1000,
			      RTE_MIN(foreign.payload - i * 1000, 1000u));
		rte_pktmbuf_free(segment);
	}
	rte_pktmbuf_free(frame);
}
END_TEST

/* A frame whose checksum is left to be completed is one segment. */
START_TEST(a_checksum_is_completed)
{
	const struct foreign foreign = { .tcp = (_i & 1) != 0,
					 .v6 = (_i & 2) != 0,
					 .tagged = (_i & 4) != 0,
					 .payload = 999,
					 .room = 2048 };
	const struct virtio_net_hdr vnet = foreign_vnet(&foreign);
	struct rte_mbuf *frame = foreign_make(&foreign);
	struct rte_mbuf *segment = rte_pktmbuf_alloc(pool);
	struct virtio_net_hdr again;

	ck_assert_ptr_nonnull(segment);
	ck_assert(super_frame_read(&vnet, 0, frame));
	ck_assert_uint_eq(offload_segments(frame), 1);
	ck_assert_uint_eq(offload_link_len(frame), frame->pkt_len);
	super_frame_write(frame, &again);
	ck_assert_int_eq(memcmp(&again, &vnet, sizeof(vnet)), 0);
	offload_copy_segment(frame, 0, segment);
	ck_assert_uint_eq(segment->pkt_len, frame->pkt_len);
	ck_assert(is_right(&foreign, rte_pktmbuf_mtod(segment, const uint8_t *), segment->pkt_len));
	rte_pktmbuf_free(segment);
	rte_pktmbuf_free(frame);
}
END_TEST

/*
 * Frames that a header before them can't describe: tunnels, whose inner headers it means; protocols
 * without segments; lengths that don't fit; more segments than anybody sends.
 */
START_TEST(frames_beyond_the_headers_limits_are_refused)
{
	const struct foreign foreign = {
		.tcp = true, .segment = 1000, .payload = 5000, .room = 2048
	};
	const struct virtio_net_hdr good = foreign_vnet(&foreign);
	struct rte_mbuf *frame = foreign_make(&foreign);
	struct virtio_net_hdr bad[11];

	for (size_t i = 0; i < RTE_DIM(bad); i++)
		bad[i] = good;
	bad[0].flags = 0;
	bad[1].gso_type = 3; /* fragments of UDP */
	bad[2].gso_size = 0;
	bad[3].csum_start += 28;
	bad[4].csum_start = 10;
	bad[5].csum_start = 3000;
	bad[6].gso_type = VIRTIO_NET_HDR_GSO_TCPV6;
	bad[7].gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
	bad[8].csum_offset = 2040;
	bad[9].csum_offset = 6;
	bad[10].gso_size = 3;
	for (size_t i = 0; i < RTE_DIM(bad); i++) {
		frame->ol_flags = 0;
		ck_assert_msg(!super_frame_read(&bad[i], 0, frame), "header %zu is taken", i);
	}
	frame->ol_flags = 0;
	ck_assert(super_frame_read(&good, 0, frame));
	frame->data_len = 60;
	frame->ol_flags = 0;
	ck_assert(!super_frame_read(&good, 0, frame));
	rte_pktmbuf_free(frame);
}
END_TEST

Suite *
suite_super_frame(void)
{
	Suite *suite = suite_create("super_frame");
	TCase *joining = tcase_create("joining");
	TCase *others = tcase_create("others");

	tcase_add_checked_fixture(joining, setup, teardown);
	tcase_add_test(joining, frames_of_a_flow_leave_together_and_in_order);
	tcase_add_test(joining, a_shorter_frame_is_the_last_and_a_longer_one_begins_anew);
	tcase_add_test(joining, results_without_their_elements_leave_together);
	tcase_add_test(joining, packets_with_different_headers_leave_apart);
	tcase_add_test(joining, only_fanins_packets_without_a_checksum_are_joined);
	tcase_add_test(joining, no_super_frame_is_longer_than_interfaces_take);
	tcase_add_test(joining, the_segments_of_a_group_are_its_frames);
	suite_add_tcase(suite, joining);
	tcase_add_checked_fixture(others, setup, teardown);
	tcase_add_loop_test(others, links_get_segments_as_the_kernel_makes_them, 0, 32);
	tcase_add_loop_test(others, a_checksum_is_completed, 0, 8);
	tcase_add_test(others, frames_beyond_the_headers_limits_are_refused);
	suite_add_tcase(suite, others);
	return suite;
}
