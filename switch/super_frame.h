/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-frames at packet sockets: one kernel buffer that stands for several frames of a flow, which
 * differ only after their headers (GSO). The kernel describes it in a header before the frame
 * (packet(7), PACKET_VNET_HDR). This file interprets that header, and converts between Fanin's
 * packets and super-frames; packet_port.c moves the buffers. Pure functions.
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

/* Defined since Linux 6.2, which supports it for packet sockets. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/*
 * Maximum number of segments in a received super-frame, and in one that is made: older kernels take
 * no more.
 */
#define SUPER_FRAME_SEGMENTS_IN 128
#define SUPER_FRAME_SEGMENTS_OUT FANIN_SUPER_FRAME_PACKETS

/*
 * Maximum number of segments of a super-frame of other traffic: 64 KiB in the shortest segments
 * that TCP makes by itself, 48 bytes. A host could claim segments of 1 byte, and a port that needs
 * segments would have to make 65,000 frames of one.
 */
#define SUPER_FRAME_SEGMENTS_FOREIGN (UINT16_MAX / 48)

/*
 * Maximum length of a super-frame that is made, in bytes. Interfaces take none from 64 KiB on
 * (their gso_max_size), and the kernel splits them.
 */
#define SUPER_FRAME_LEN_OUT UINT16_MAX

/* Frames that leave as one: the first n of the remaining frames. */
struct super_frame_group {
	uint16_t first; /* index in the grouped burst */
	uint16_t n;
	uint32_t len; /* length of all frames as one, bytes */
	bool closed;  /* the last one is shorter */
};

/*
 * The data before a super-frame or frame that is sent: the kernel's header, and after it the
 * headers of a super-frame that was made.
 */
struct super_frame_head {
	struct virtio_net_hdr vnet;
	uint8_t headers[FANIN_L4_LEN];
};

static_assert(sizeof(struct super_frame_head) == sizeof(struct virtio_net_hdr) + FANIN_L4_LEN,
	      "no gap");

/* True if the packet is from or to Fanin's UDP port. len: of the frame, bytes. */
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
 * Translates the kernel's description of a frame that is not Fanin's for its mbuf: see
 * pipeline/base/offload.h. mbuf: the frame as on a link, its headers in the first mbuf. shift:
 * bytes of a tag that were inserted since the kernel counted. Returns false if the frame can't be
 * passed on: a super-frame of another protocol, within a tunnel, or of more segments than
 * SUPER_FRAME_SEGMENTS_FOREIGN.
 */
bool super_frame_read(const struct virtio_net_hdr *vnet, uint32_t shift, struct rte_mbuf *mbuf);

/*
 * Translates the other way, for a frame that is sent. If nothing is left for the kernel to do, all
 * fields are zero.
 */
void super_frame_write(const struct rte_mbuf *mbuf, struct virtio_net_hdr *vnet);

/*
 * Writes the headers of segment `index` of a super-frame of Fanin's, FANIN_L4_LEN bytes. If the
 * whole's headers are invalid, so are the segment's. len: of its UDP payload, bytes.
 */
void super_frame_segment_headers(const struct fanin_headers *whole, uint32_t index, uint32_t len,
				 struct fanin_headers *segment);

/*
 * Groups the frames of a burst that may leave as one super-frame each: Fanin's frames of one job
 * that agree in all of Ethernet, IPv4 and UDP except lengths, numbers and checksums. All are as
 * long as the first one, except the last one, which may be shorter. A flow's frames stay in order:
 * those without elements (EMPTY) and those with elements, each among themselves. n: at most
 * UINT8_MAX. mbufs: reordered, each group's frames side by side. groups: room for n. Returns the
 * number of groups.
 */
uint16_t super_frame_group(struct rte_mbuf **mbufs, uint16_t n, rte_be16_t udp_port_be,
			   struct super_frame_group *groups);

/*
 * Writes the data before the payloads of a group of several frames. first: the group's first frame.
 */
void super_frame_head(const struct super_frame_group *group, const struct rte_mbuf *first,
		      struct super_frame_head *head);

#endif
