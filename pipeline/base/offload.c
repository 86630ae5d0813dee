/* SPDX-License-Identifier: BSD-3-Clause */
/* See offload.h. */
#include "pipeline/base/offload.h"

#include <string.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "pipeline/base/fastpath.h"

/*
 * Flags that segments in the middle do not have: those only of the first and those only of the last
 * segment.
 */
#define TCP_FIRST_ONLY RTE_TCP_CWR_FLAG
#define TCP_LAST_ONLY (RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG)

static uint16_t
fold(uint32_t sum)
{
	sum = (sum & UINT16_MAX) + (sum >> 16);
	return (uint16_t)((sum & UINT16_MAX) + (sum >> 16));
}

/* Completes the IP header of a segment, which has len bytes behind the Ethernet header. */
static void
set_ip(uint8_t *at, uint32_t len, uint32_t index)
{
	struct rte_ipv4_hdr *v4 = (struct rte_ipv4_hdr *)at;
	struct rte_ipv6_hdr *v6 = (struct rte_ipv6_hdr *)at;

	if (at[0] >> 4 == 6) {
		v6->payload_len = rte_cpu_to_be_16((uint16_t)(len - sizeof(*v6)));
		return;
	}
	v4->total_length = rte_cpu_to_be_16((uint16_t)len);
	v4->packet_id = rte_cpu_to_be_16((uint16_t)(rte_be_to_cpu_16(v4->packet_id) + index));
	v4->hdr_checksum = 0;
	v4->hdr_checksum = (uint16_t)~rte_raw_cksum(v4, (size_t)(at[0] & 0xf) * 4);
}

static void
set_tcp(uint8_t *at, uint32_t offset, bool first, bool last)
{
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)at;

	tcp->sent_seq = rte_cpu_to_be_32(rte_be_to_cpu_32(tcp->sent_seq) + offset);
	if (!first)
		tcp->tcp_flags &= (uint8_t)~TCP_FIRST_ONLY;
	if (!last)
		tcp->tcp_flags &= (uint8_t)~TCP_LAST_ONLY;
}

/*
 * Completes the checksum of len bytes, which begin with the transport protocol's header. The field
 * holds the pseudo header's sum, with the length `before` of the whole.
 */
static void
complete(uint8_t *at, uint32_t len, uint32_t before, bool udp)
{
	const size_t place = udp ? offsetof(struct rte_udp_hdr, dgram_cksum)
				 : offsetof(struct rte_tcp_hdr, cksum);
	uint16_t sum;

	memcpy(&sum, at + place, sizeof(sum));
	sum = fold((uint32_t)sum + (uint16_t)~rte_cpu_to_be_16((uint16_t)before) +
		   rte_cpu_to_be_16((uint16_t)len));
	memcpy(at + place, &sum, sizeof(sum));
	sum = (uint16_t)~rte_raw_cksum(at, len);
	/* 0 says that there is none (RFC 768). */
	if (udp && sum == 0)
		sum = UINT16_MAX;
	memcpy(at + place, &sum, sizeof(sum));
}

void
offload_copy_segment(const struct rte_mbuf *frame, uint32_t index, struct rte_mbuf *segment)
{
	const uint64_t flags = frame->ol_flags;
	const bool super = (flags & OFFLOAD_SEGMENTS) != 0;
	const bool udp = (flags & RTE_MBUF_F_TX_UDP_SEG) != 0 ||
			 (flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_UDP_CKSUM;
	const uint32_t l4 = (uint32_t)frame->l2_len + frame->l3_len;
	const uint32_t header_len = super ? offload_header_len(frame) : l4;
	const uint32_t offset = super ? index * frame->tso_segsz : 0;
	const uint32_t rest = frame->pkt_len - header_len - offset;
	const uint32_t len = super ? RTE_MIN(rest, (uint32_t)frame->tso_segsz) : rest;
	uint8_t *to = rte_pktmbuf_mtod(segment, uint8_t *);
	const void *payload;

	memcpy(to, rte_pktmbuf_mtod(frame, const void *), header_len);
	payload = rte_pktmbuf_read(frame, header_len + offset, len, to + header_len);
	if (payload != to + header_len)
		memcpy(to + header_len, payload, len);
	segment->data_len = (uint16_t)(header_len + len);
	segment->pkt_len = segment->data_len;
	segment->port = frame->port;
	if (super) {
		set_ip(to + frame->l2_len, segment->pkt_len - frame->l2_len, index);
		if (udp)
			((struct rte_udp_hdr *)(to + l4))->dgram_len =
				rte_cpu_to_be_16((uint16_t)(segment->pkt_len - l4));
		else
			set_tcp(to + l4, offset, index == 0, len == rest);
	}
	if ((flags & (OFFLOAD_SEGMENTS | RTE_MBUF_F_TX_L4_MASK)) != 0)
		complete(to + l4, segment->pkt_len - l4, frame->pkt_len - l4, udp);
}
