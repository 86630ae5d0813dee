/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-frames at packet sockets: one buffer of the kernel that stands for several frames of a
 * flow, which differ in what is behind their headers (GSO). The kernel says so in a header before
 * the frame (packet(7), PACKET_VNET_HDR). What they mean, and how Fanin's packets become frames of
 * their own and one super-frame again; how buffers move is packet_port.c's. Pure functions.
 */
#ifndef FANIN_SWITCH_SUPER_FRAME_H
#define FANIN_SWITCH_SUPER_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "wire/wire.h"

/* Of Linux 6.2 and later, which has it for packet sockets. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/*
 * Most segments of a super-frame that comes in, and of one that is made: older kernels take no
 * more.
 */
#define SUPER_FRAME_SEGMENTS_IN 128
#define SUPER_FRAME_SEGMENTS_OUT FANIN_SUPER_FRAME_PACKETS

/*
 * Most segments that one of others may stand for: 64 KiB in the shortest ones that TCP makes by
 * itself, 48 bytes. A host could say 1 byte, and a port that needs segments would be busy with
 * 65,000 frames for one.
 */
#define SUPER_FRAME_SEGMENTS_FOREIGN (UINT16_MAX / 48)

/*
 * Longest one that is made, bytes: from 64 KiB on interfaces take none (their gso_max_size), and
 * the kernel takes them apart.
 */
#define SUPER_FRAME_LEN_OUT UINT16_MAX

/* Frames that leave as one: the n first ones of those that are left. */
struct super_frame_group {
	uint16_t first; /* index in the burst that was grouped */
	uint16_t n;
	uint32_t len; /* of all as one, bytes */
	bool closed;  /* the last one is shorter */
};

/*
 * Before a super-frame or a frame that is sent: what the kernel wants to know, and behind it the
 * headers of one that was made.
 */
struct super_frame_head {
	struct virtio_net_hdr vnet;
	uint8_t headers[FANIN_L4_LEN];
};

static_assert(sizeof(struct super_frame_head) == sizeof(struct virtio_net_hdr) + FANIN_L4_LEN,
	      "no gap");

/* Is it a packet from or to Fanin's UDP port? len: of the frame, bytes. */
static inline bool
super_frame_is_fanin(const struct fanin_headers *headers, uint32_t len, rte_be16_t udp_port_be)
{
	return len >= FANIN_L4_LEN &&
	       headers->eth.type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) &&
	       headers->ip.version_ihl == 0x45 && headers->ip.protocol == IPPROTO_UDP &&
	       (headers->ip.fragment_be &
		rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) == 0 &&
	       (headers->udp.dst_be == udp_port_be || headers->udp.src_be == udp_port_be);
}

/*
 * Reads what the kernel says of a frame that is not Fanin's, for its mbuf: see
 * pipeline/base/offload.h.
 *
 * mbuf: the frame as it is on a link, its headers in the first mbuf. shift: how many bytes of a tag
 * have been put in since the kernel counted. Returns false for one that can't be passed on: a
 * super-frame of another protocol, within a tunnel, or of more segments than
 * SUPER_FRAME_SEGMENTS_FOREIGN.
 */
bool super_frame_read(const struct virtio_net_hdr *vnet, uint32_t shift, struct rte_mbuf *mbuf);

/* The same the other way round, for a frame that is sent. Nothing is left to be done: all zero. */
void super_frame_write(const struct rte_mbuf *mbuf, struct virtio_net_hdr *vnet);

/*
 * Writes the headers of segment `index` of a super-frame of Fanin's, FANIN_L4_LEN bytes. What is
 * wrong with the headers of the whole is wrong with its own. len: of its UDP payload, bytes.
 */
void super_frame_segment_headers(const struct fanin_headers *whole, uint32_t index, uint32_t len,
				 struct fanin_headers *segment);

/*
 * Groups the frames of a burst that may leave as one super-frame each: Fanin's of one job, alike in
 * all that Ethernet, IPv4 and UDP say but lengths, numbers and checksums; all as long as the first
 * one but the last one, which may be shorter. A flow's frames stay in order, those whose elements
 * are left out (EMPTY) and the others each by themselves.
 *
 * n: at most UINT8_MAX. mbufs: reordered, each group's frames side by side. groups: room for n.
 * Returns how many there are.
 */
uint16_t super_frame_group(struct rte_mbuf **mbufs, uint16_t n, rte_be16_t udp_port_be,
			   struct super_frame_group *groups);

/* Writes what is before the payloads of a group of several. first: its first frame. */
void super_frame_head(const struct super_frame_group *group, const struct rte_mbuf *first,
		      struct super_frame_head *head);

#endif
