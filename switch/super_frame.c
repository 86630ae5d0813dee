/* SPDX-License-Identifier: BSD-3-Clause */
/* See super_frame.h. */
#include "switch/super_frame.h"

#include <string.h>

#include <rte_tcp.h>
#include <rte_udp.h>

#include "pipeline/base/ipv4.h"
#include "pipeline/base/offload.h"

#define GROUP_MAX UINT8_MAX
#define VLAN_TAGS_MAX 2

/*
 * Returns the offset of a frame's IP header, after its tags; sets *type_be to the header's type.
 * Returns 0 if the first mbuf does not reach that far.
 */
static uint32_t
find_ip(const struct rte_mbuf *mbuf, rte_be16_t *type_be)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint32_t at = 2 * RTE_ETHER_ADDR_LEN;

	for (unsigned int tags = 0; tags <= VLAN_TAGS_MAX; tags++) {
		if (mbuf->data_len < at + sizeof(*type_be))
			return 0;
		memcpy(type_be, frame + at, sizeof(*type_be));
		if (*type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) &&
		    *type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ))
			return at + (uint32_t)sizeof(*type_be);
		at += RTE_VLAN_HLEN;
	}
	return 0;
}

/*
 * True if the super-frame's transport header directly follows its IP header, and is of that
 * protocol.
 */
static bool
is_plain_ip(const struct rte_mbuf *mbuf, rte_be16_t type_be, uint32_t l2, uint32_t l4,
	    uint8_t protocol)
{
	const uint8_t *ip = rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, l2);
	const struct rte_ipv6_hdr *v6 = (const struct rte_ipv6_hdr *)ip;

	if (mbuf->data_len < l4)
		return false;
	if (type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
		return l4 >= l2 + FANIN_IP_LEN && ip[0] >> 4 == 4 &&
		       l4 == l2 + (uint32_t)(ip[0] & 0xf) * 4 && ip[9] == protocol;
	if (type_be != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6) || l4 < l2 + sizeof(*v6) ||
	    ip[0] >> 4 != 6)
		return false;
	/*
	 * Extension headers are repeated in every segment; tunnels after them are not searched for.
	 */
	return l4 == l2 + sizeof(*v6)
		       ? v6->proto == protocol
		       : v6->proto != IPPROTO_IPV6 && v6->proto != IPPROTO_IPIP &&
				 v6->proto != IPPROTO_GRE && v6->proto != IPPROTO_UDP;
}

static bool
read_segments(const struct virtio_net_hdr *vnet, uint32_t l2, uint32_t l4, rte_be16_t type_be,
	      struct rte_mbuf *mbuf)
{
	const uint8_t type = vnet->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
	const bool udp = type == VIRTIO_NET_HDR_GSO_UDP_L4;
	const rte_be16_t ip = type_be;
	uint32_t l4_len = sizeof(struct rte_udp_hdr);

	if (type == VIRTIO_NET_HDR_GSO_TCPV4   ? ip != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)
	    : type == VIRTIO_NET_HDR_GSO_TCPV6 ? ip != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6)
					       : !udp)
		return false;
	if (vnet->gso_size == 0 ||
	    vnet->csum_offset != (udp ? offsetof(struct rte_udp_hdr, dgram_cksum)
				      : offsetof(struct rte_tcp_hdr, cksum)) ||
	    !is_plain_ip(mbuf, type_be, l2, l4, udp ? IPPROTO_UDP : IPPROTO_TCP))
		return false;
	if (!udp) {
		if (mbuf->data_len < l4 + sizeof(struct rte_tcp_hdr))
			return false;
		l4_len = (uint32_t)(rte_pktmbuf_mtod_offset(mbuf, const struct rte_tcp_hdr *, l4)
					    ->data_off >>
				    4) *
			 4;
		if (l4_len < sizeof(struct rte_tcp_hdr))
			return false;
	}
	if (mbuf->data_len < l4 + l4_len ||
	    mbuf->pkt_len - l4 - l4_len > (uint32_t)vnet->gso_size * SUPER_FRAME_SEGMENTS_FOREIGN)
		return false;
	mbuf->l4_len = l4_len & 0xff;
	mbuf->tso_segsz = vnet->gso_size;
	mbuf->ol_flags |= udp ? RTE_MBUF_F_TX_UDP_SEG | RTE_MBUF_F_TX_UDP_CKSUM
			      : RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM;
	return true;
}

bool
super_frame_read(const struct virtio_net_hdr *vnet, uint32_t shift, struct rte_mbuf *mbuf)
{
	const uint32_t l4 = vnet->csum_start + shift;
	rte_be16_t type_be = 0;
	uint32_t l2;

	if ((vnet->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) == 0)
		return vnet->gso_type == VIRTIO_NET_HDR_GSO_NONE;
	l2 = find_ip(mbuf, &type_be);
	if (l2 == 0 || l4 <= l2 || l4 - l2 > 0x1ff ||
	    l4 + vnet->csum_offset + sizeof(uint16_t) > mbuf->data_len)
		return false;
	mbuf->l2_len = l2 & 0x7f;
	mbuf->l3_len = (l4 - l2) & 0x1ff;
	mbuf->ol_flags |= type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6) ? RTE_MBUF_F_TX_IPV6
									   : RTE_MBUF_F_TX_IPV4;
	if (vnet->gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return read_segments(vnet, l2, l4, type_be, mbuf);
	if (vnet->csum_offset == offsetof(struct rte_tcp_hdr, cksum))
		mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	else if (vnet->csum_offset == offsetof(struct rte_udp_hdr, dgram_cksum))
		mbuf->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	else
		return false;
	return true;
}

void
super_frame_write(const struct rte_mbuf *mbuf, struct virtio_net_hdr *vnet)
{
	const uint64_t flags = mbuf->ol_flags;
	const uint16_t l4 = (uint16_t)(mbuf->l2_len + mbuf->l3_len);
	const bool udp = (flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_UDP_CKSUM;

	*vnet = (struct virtio_net_hdr){ 0 };
	if (!offload_is_needed(mbuf))
		return;
	vnet->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	vnet->csum_start = l4;
	vnet->csum_offset = udp ? offsetof(struct rte_udp_hdr, dgram_cksum)
				: offsetof(struct rte_tcp_hdr, cksum);
	if ((flags & OFFLOAD_SEGMENTS) == 0)
		return;
	vnet->hdr_len = (uint16_t)(l4 + mbuf->l4_len);
	vnet->gso_size = mbuf->tso_segsz;
	if (udp) {
		vnet->gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
		return;
	}
	vnet->gso_type = (flags & RTE_MBUF_F_TX_IPV6) != 0 ? VIRTIO_NET_HDR_GSO_TCPV6
							   : VIRTIO_NET_HDR_GSO_TCPV4;
	if ((rte_pktmbuf_mtod_offset(mbuf, const struct rte_tcp_hdr *, l4)->tcp_flags &
	     RTE_TCP_CWR_FLAG) != 0)
		vnet->gso_type |= VIRTIO_NET_HDR_GSO_ECN;
}

void
super_frame_segment_headers(const struct fanin_headers *whole, uint32_t index, uint32_t len,
			    struct fanin_headers *segment)
{
	const uint16_t udp_len = (uint16_t)(FANIN_UDP_LEN + len);
	const uint16_t id = rte_be_to_cpu_16(whole->ip.id_be);

	memcpy(segment, whole, FANIN_L4_LEN);
	segment->ip.total_len_be = rte_cpu_to_be_16((uint16_t)(FANIN_IP_LEN + udp_len));
	segment->ip.id_be = rte_cpu_to_be_16((uint16_t)(id + index));
	ipv4_checksum_update(&segment->ip, whole->ip.total_len_be, segment->ip.total_len_be);
	ipv4_checksum_update(&segment->ip, whole->ip.id_be, segment->ip.id_be);
	segment->udp.len_be = rte_cpu_to_be_16(udp_len);
	segment->udp.checksum_be = 0;
}

/* A bitmap of types modulo 64. Types from 64 on with the same remainder leave alone, too. */
#define TYPES_ALONE                                                                                \
	(UINT64_C(1) << FANIN_TYPE_REFUSED | UINT64_C(1) << FANIN_TYPE_JOIN_ACK |                  \
	 UINT64_C(1) << FANIN_TYPE_LEAVE_ACK)

/*
 * True if the frame may be a part of a super-frame. Answers to JOIN and LEAVE, and refusals, may
 * not, so that they arrive even where super-frames do not. A frame with a checksum keeps it, right
 * or wrong.
 */
static inline bool
is_joinable(const struct rte_mbuf *mbuf, rte_be16_t udp_port_be)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	/* Such a packet also goes to devices, which complete its checksum. */
	const uint64_t for_devices = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;

	return mbuf->nb_segs == 1 && mbuf->pkt_len >= FANIN_PAYLOAD_OFFSET &&
	       super_frame_is_fanin(headers, mbuf->pkt_len, udp_port_be) &&
	       (TYPES_ALONE >> headers->fanin.type % 64 & 1) == 0 &&
	       (offload_is_needed(mbuf) ? (mbuf->ol_flags & OFFLOAD_ALL) == for_devices
					: headers->udp.checksum_be == 0);
}

/*
 * True if two frames have the same addresses, ports, time to live, traffic class and congestion
 * mark, and belong to the same job: hosts' sockets identify the job by the first packet. Packets
 * without elements are a flow of their own: between packets with elements, as in a reduce_scatter,
 * each would end a super-frame.
 */
static inline bool
is_same_flow(const struct rte_mbuf *a, const struct rte_mbuf *b)
{
	const uint8_t *x = rte_pktmbuf_mtod(a, const uint8_t *);
	const uint8_t *y = rte_pktmbuf_mtod(b, const uint8_t *);
	const size_t lengths = offsetof(struct fanin_headers, ip.total_len_be);
	const size_t fragment = offsetof(struct fanin_headers, ip.fragment_be);
	const size_t checksum = offsetof(struct fanin_headers, ip.checksum_be);
	const size_t addresses = offsetof(struct fanin_headers, ip.src_be);
	const size_t job = offsetof(struct fanin_headers, fanin.job);
	const size_t flags = offsetof(struct fanin_headers, fanin.flags);

	return memcmp(x, y, lengths) == 0 &&
	       memcmp(x + fragment, y + fragment, checksum - fragment) == 0 &&
	       memcmp(x + addresses, y + addresses,
		      offsetof(struct fanin_headers, udp.len_be) - addresses) == 0 &&
	       memcmp(x + job, y + job, sizeof(uint32_t)) == 0 &&
	       ((x[flags] ^ y[flags]) & FANIN_FLAG_EMPTY) == 0;
}

static inline bool
has_room(const struct super_frame_group *group, const struct rte_mbuf *first, uint32_t len)
{
	return !group->closed && len <= first->pkt_len && group->n < SUPER_FRAME_SEGMENTS_OUT &&
	       group->len + len - FANIN_L4_LEN <= SUPER_FRAME_LEN_OUT;
}

/* Sorts the frames by their groups. */
static void
reorder(struct rte_mbuf **mbufs, uint16_t n, const uint8_t *group_of,
	struct super_frame_group *groups, uint16_t n_groups)
{
	struct rte_mbuf *before[GROUP_MAX];
	uint16_t next[GROUP_MAX];
	uint16_t at = 0;

	memcpy(before, mbufs, n * sizeof(mbufs[0]));
	for (uint16_t g = 0; g < n_groups; g++) {
		groups[g].first = at;
		next[g] = at;
		at = (uint16_t)(at + groups[g].n);
	}
	for (uint16_t i = 0; i < n; i++)
		mbufs[next[group_of[i]]++] = before[i];
}

uint16_t
super_frame_group(struct rte_mbuf **mbufs, uint16_t n, rte_be16_t udp_port_be,
		  struct super_frame_group *groups)
{
	uint8_t open[GROUP_MAX]; /* the newest group of each flow */
	uint8_t group_of[GROUP_MAX];
	uint16_t n_open = 0;
	uint16_t n_groups = 0;

	for (uint16_t i = 0; i < n; i++) {
		const uint32_t len = mbufs[i]->pkt_len;
		uint16_t k = n_open;

		if (is_joinable(mbufs[i], udp_port_be)) {
			/* The flow of the previous frame is the likeliest. */
			while (k != 0 && !is_same_flow(mbufs[groups[open[k - 1]].first], mbufs[i]))
				k--;
			if (k == 0)
				k = ++n_open;
			else if (has_room(&groups[open[k - 1]], mbufs[groups[open[k - 1]].first],
					  len)) {
				struct super_frame_group *group = &groups[open[k - 1]];

				group->closed = len < mbufs[group->first]->pkt_len;
				group->len += len - FANIN_L4_LEN;
				group->n++;
				group_of[i] = open[k - 1];
				continue;
			}
			open[k - 1] = (uint8_t)n_groups;
		}
		group_of[i] = (uint8_t)n_groups;
		groups[n_groups++] = (struct super_frame_group){ .first = i, .n = 1, .len = len };
	}
	if (n_groups != n)
		reorder(mbufs, n, group_of, groups, n_groups);
	return n_groups;
}

void
super_frame_head(const struct super_frame_group *group, const struct rte_mbuf *first,
		 struct super_frame_head *head)
{
	const struct fanin_headers *from = rte_pktmbuf_mtod(first, const struct fanin_headers *);
	struct fanin_headers *headers = (struct fanin_headers *)head->headers;

	head->vnet = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
		.hdr_len = FANIN_L4_LEN,
		.gso_size = (uint16_t)(first->pkt_len - FANIN_L4_LEN),
		.csum_start = FANIN_ETH_LEN + FANIN_IP_LEN,
		.csum_offset = offsetof(struct fanin_udp, checksum_be),
	};
	memcpy(headers, from, FANIN_L4_LEN);
	headers->ip.total_len_be = rte_cpu_to_be_16((uint16_t)(group->len - FANIN_ETH_LEN));
	ipv4_checksum_update(&headers->ip, from->ip.total_len_be, headers->ip.total_len_be);
	headers->udp.len_be =
		rte_cpu_to_be_16((uint16_t)(group->len - FANIN_ETH_LEN - FANIN_IP_LEN));
	headers->udp.checksum_be = ipv4_pseudo_checksum(&headers->ip, 0);
}
