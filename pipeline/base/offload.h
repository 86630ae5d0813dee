/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that differ from those on a link: a checksum is incomplete, or the frame is a super-frame,
 * which stands for several of the same flow (the kernel's GSO). Kernels hand such frames to packet
 * sockets and accept them. The mbuf marks them as DPDK does: RTE_MBUF_F_TX_TCP_SEG or _UDP_SEG with
 * tso_segsz, RTE_MBUF_F_TX_TCP_CKSUM or _UDP_CKSUM, and the lengths of the headers. The checksum
 * field holds the sum of the pseudo header, with the length of the whole frame. Fanin's own packets
 * have this if they go to devices that complete checksums.
 */
#ifndef FANIN_PIPELINE_OFFLOAD_H
#define FANIN_PIPELINE_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#define OFFLOAD_SEGMENTS (RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_UDP_SEG)
#define OFFLOAD_ALL                                                                                \
	(OFFLOAD_SEGMENTS | RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IPV6)

/* Length of the headers that all segments of a super-frame have, bytes. */
static inline uint32_t
offload_header_len(const struct rte_mbuf *mbuf)
{
	return (uint32_t)mbuf->l2_len + mbuf->l3_len + mbuf->l4_len;
}

/* Length of the frame on a link, bytes: of a super-frame that of its longest segment. */
static inline uint32_t
offload_link_len(const struct rte_mbuf *mbuf)
{
	if (likely((mbuf->ol_flags & OFFLOAD_SEGMENTS) == 0))
		return mbuf->pkt_len;
	return RTE_MIN(mbuf->pkt_len, offload_header_len(mbuf) + mbuf->tso_segsz);
}

/* Returns true if anything is left to be done before a link can carry the frame. */
static inline bool
offload_is_needed(const struct rte_mbuf *mbuf)
{
	return (mbuf->ol_flags & OFFLOAD_ALL) != 0;
}

/*
 * Copies segment `index` of a super-frame, or the whole frame if it is none, into an empty mbuf
 * with room for it, as a link carries it: with lengths, numbers, flags and checksum of its own (RFC
 * 791, 793, 768, 8200). The frame's headers are in its first mbuf.
 */
void offload_copy_segment(const struct rte_mbuf *frame, uint32_t index, struct rte_mbuf *segment);

/* Returns how many segments a frame has: 1 if it is no super-frame. */
static inline uint32_t
offload_segments(const struct rte_mbuf *mbuf)
{
	const uint32_t header_len = offload_header_len(mbuf);

	if ((mbuf->ol_flags & OFFLOAD_SEGMENTS) == 0 || mbuf->pkt_len <= header_len)
		return 1;
	return (mbuf->pkt_len - header_len + mbuf->tso_segsz - 1) / mbuf->tso_segsz;
}

#endif
