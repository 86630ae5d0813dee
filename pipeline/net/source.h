/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of source addresses. What the switch sends never comes back to it, so a frame with the
 * switch's own address as its source is forged or looped. Both are dropped, since hosts trust what
 * the switch sends.
 */
#ifndef FANIN_PIPELINE_NET_SOURCE_H
#define FANIN_PIPELINE_NET_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "pipeline/base/state.h"
#include "wire/wire.h"

#define SOURCE_IP_AT (FANIN_ETH_LEN + offsetof(struct fanin_ip, src_be))
#define SOURCE_ARP_MAC_AT (FANIN_ETH_LEN + offsetof(struct rte_arp_hdr, arp_data.arp_sha))
#define SOURCE_ARP_IP_AT (FANIN_ETH_LEN + offsetof(struct rte_arp_hdr, arp_data.arp_sip))

/* Returns true if the six bytes are the switch's MAC address. mac: eight bytes are readable. */
static inline bool
source_is_own_mac(const struct pipeline *pipeline, const uint8_t *mac)
{
	uint64_t word;

	memcpy(&word, mac, sizeof(word));
	return ((word ^ pipeline->mac_word) & RTE_LEN2MASK(48, uint64_t)) == 0;
}

static inline bool
source_is_own_ip(const struct pipeline *pipeline, const uint8_t *ip)
{
	uint32_t ip_be;

	memcpy(&ip_be, ip, sizeof(ip_be));
	return ip_be == pipeline->ip_be;
}

/*
 * Returns true if the source of an IPv4 packet, or the sender of an ARP message, is the switch.
 * frame: with the Ethernet header, without VLAN tags.
 */
static inline bool
source_is_own_payload(const struct pipeline *pipeline, const uint8_t *frame, uint32_t len,
		      uint16_t type_be)
{
	if (type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
		return len >= FANIN_ETH_LEN + FANIN_IP_LEN &&
		       source_is_own_ip(pipeline, frame + SOURCE_IP_AT);
	if (type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
		return len >= FANIN_ETH_LEN + sizeof(struct rte_arp_hdr) &&
		       (source_is_own_mac(pipeline, frame + SOURCE_ARP_MAC_AT) ||
			source_is_own_ip(pipeline, frame + SOURCE_ARP_IP_AT));
	return false;
}

static inline bool
source_is_tag(uint16_t type_be)
{
	return type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) ||
	       type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_QINQ);
}

/*
 * Returns true if a frame names this switch as its source: by its source MAC address, by the source
 * of its IPv4 packet, or by the sender of its ARP message. Looks behind VLAN tags, too: hosts
 * accept frames of VLAN 0 as untagged ones.
 *
 * mbuf: FANIN_ETH_LEN bytes at least.
 */
static inline bool
source_is_own(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	uint32_t len = mbuf->data_len;
	uint16_t type_be;

	if (unlikely(source_is_own_mac(pipeline, frame + RTE_ETHER_ADDR_LEN)))
		return true;
	memcpy(&type_be, frame + offsetof(struct fanin_eth, type_be), sizeof(type_be));
	while (unlikely(source_is_tag(type_be)) && len >= FANIN_ETH_LEN + RTE_VLAN_HLEN) {
		frame += RTE_VLAN_HLEN;
		len -= RTE_VLAN_HLEN;
		memcpy(&type_be, frame + offsetof(struct fanin_eth, type_be), sizeof(type_be));
	}
	return source_is_own_payload(pipeline, frame, len, type_be);
}

#endif
