/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a router does to an IPv4 header (RFC 1812): validates it, counts its time to live down, and
 * tells flows apart. Pure functions on a frame's bytes, for the workers, the tests and the fuzzer.
 */
#ifndef FANIN_PIPELINE_IPV4_H
#define FANIN_PIPELINE_IPV4_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_jhash.h>

#include "wire/wire.h"

static inline unsigned int
ipv4_header_len(const struct fanin_ip *ip)
{
	return (ip->version_ihl & 0xfu) * 4;
}

/*
 * Returns true for an address that no host can have: multicast, broadcast, loopback or "this
 * network" (RFC 1812 section 5.3.7).
 */
static inline bool
ipv4_is_unicast(uint32_t ip_be)
{
	uint8_t first = (uint8_t)(rte_be_to_cpu_32(ip_be) >> 24);

	return first != 0 && first != IN_LOOPBACKNET && first < 224;
}

/*
 * Returns FANIN_REASON_NONE if the header allows the packet to be routed (RFC 1812 section 5.2.2),
 * or the reason to drop it. Options are not read.
 *
 * len: bytes of the frame, those of Ethernet's and the least IPv4 header at least.
 */
static inline enum fanin_reason
ipv4_check(const struct fanin_headers *headers, uint32_t len)
{
	const struct fanin_ip *ip = &headers->ip;
	uint16_t total = rte_be_to_cpu_16(ip->total_len_be);
	unsigned int header_len = ipv4_header_len(ip);

	if (ip->version_ihl >> 4 != 4 || header_len < FANIN_IP_LEN || total < header_len)
		return FANIN_REASON_IP_HEADER;
	if (total > len - FANIN_ETH_LEN)
		return FANIN_REASON_FRAME_TRUNCATED;
	/* With a right checksum, the sum of all words, including the checksum, is all ones. */
	if (rte_raw_cksum(ip, header_len) != UINT16_MAX)
		return FANIN_REASON_IP_CHECKSUM;
	if (!ipv4_is_unicast(ip->src_be) || !ipv4_is_unicast(ip->dst_be))
		return FANIN_REASON_IP_ADDRESS;
	return FANIN_REASON_NONE;
}

/*
 * Brings the checksum up to date after one word of the header has changed (RFC 1624, equation 3).
 */
static inline void
ipv4_checksum_update(struct fanin_ip *ip, uint16_t before, uint16_t after)
{
	uint32_t sum = (uint32_t)(uint16_t)~ip->checksum_be + (uint16_t)~before + after;

	sum = (sum & UINT16_MAX) + (sum >> 16);
	sum = (sum & UINT16_MAX) + (sum >> 16);
	ip->checksum_be = (uint16_t)~sum;
}

/* Decrements a time to live that is not zero. */
static inline void
ipv4_decrement_ttl(struct fanin_ip *ip)
{
	uint16_t before, after;

	memcpy(&before, &ip->ttl, sizeof(before)); /* TTL and protocol are one word of the checksum
						    */
	ip->ttl--;
	memcpy(&after, &ip->ttl, sizeof(after));
	ipv4_checksum_update(ip, before, after);
}

/* Sets "congestion experienced" (RFC 3168) in the header. */
static inline void
ipv4_mark_congestion(struct fanin_ip *ip)
{
	uint16_t before, after;

	memcpy(&before, &ip->version_ihl, sizeof(before)); /* with the byte that has ECN's bits one
							      word of the checksum */
	ip->tos |= RTE_IPV4_HDR_ECN_CE;
	memcpy(&after, &ip->version_ihl, sizeof(after));
	ipv4_checksum_update(ip, before, after);
}

static inline bool
ipv4_is_fragment(const struct fanin_ip *ip)
{
	return (ip->fragment_be &
		rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0;
}

/*
 * Returns the checksum of the pseudo header of UDP or TCP, for a device or the kernel to complete.
 * The header may be at any address: DPDK's own structure wants an even one since 24.11.
 *
 * ol_flags: of the mbuf; 0 if there is none.
 */
static inline uint16_t
ipv4_pseudo_checksum(const struct fanin_ip *ip, uint64_t ol_flags)
{
	const void *header = ip;

	return rte_ipv4_phdr_cksum(header, ol_flags);
}

/*
 * Returns a hash of the packet's flow: addresses, protocol, and ports if the protocol has any. The
 * hash of a fragment uses only addresses and protocol, because only the first fragment has ports.
 *
 * headers: those of a packet that passed ipv4_check. seed: the switch's own, so that switches in a
 * row decide differently.
 */
static inline uint32_t
ipv4_flow_hash(const struct fanin_headers *headers, uint32_t seed)
{
	const struct fanin_ip *ip = &headers->ip;
	unsigned int header_len = ipv4_header_len(ip);
	uint32_t ports = 0;
	bool has_ports = ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP ||
			 ip->protocol == IPPROTO_SCTP || ip->protocol == IPPROTO_UDPLITE;

	if (has_ports && !ipv4_is_fragment(ip) &&
	    rte_be_to_cpu_16(ip->total_len_be) >= header_len + sizeof(ports))
		memcpy(&ports, (const uint8_t *)ip + header_len, sizeof(ports));
	return rte_jhash_3words(ip->src_be, ip->dst_be, ports, seed + ip->protocol);
}

#endif
