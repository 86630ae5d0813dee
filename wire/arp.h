/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ARP (RFC 826) for Ethernet and IPv4, for programs without a kernel or DPDK that does it.
 * Thread-safe.
 */
#ifndef FANIN_WIRE_ARP_H
#define FANIN_WIRE_ARP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/wire.h"

#define FANIN_ETHERTYPE_ARP_BE __builtin_bswap16(0x0806)
#define FANIN_ARP_REQUEST_BE __builtin_bswap16(1)
#define FANIN_ARP_REPLY_BE __builtin_bswap16(2)

struct fanin_arp {
	struct fanin_eth eth;
	uint16_t hardware_be;
	uint16_t protocol_be;
	uint8_t hardware_len;
	uint8_t protocol_len;
	uint16_t operation_be;
	uint8_t sender_mac[6];
	uint32_t sender_ip_be;
	uint8_t target_mac[6];
	uint32_t target_ip_be;
} __attribute__((packed));

static_assert(sizeof(struct fanin_arp) == FANIN_ETH_LEN + 28, "ARP");

/*
 * Fills in a message, except for eth.dst and target_mac, which are zero.
 *
 * operation_be: FANIN_ARP_REQUEST_BE or FANIN_ARP_REPLY_BE. mac, ip_be: the sender's. target_ip_be:
 * the address that is asked for, or that gets the reply.
 */
static inline void
fanin_arp_encode(struct fanin_arp *arp, uint16_t operation_be, const uint8_t mac[6], uint32_t ip_be,
		 uint32_t target_ip_be)
{
	*arp = (struct fanin_arp){
		.eth.type_be = FANIN_ETHERTYPE_ARP_BE,
		.hardware_be = __builtin_bswap16(1),
		.protocol_be = __builtin_bswap16(0x0800),
		.hardware_len = sizeof(arp->sender_mac),
		.protocol_len = sizeof(arp->sender_ip_be),
		.operation_be = operation_be,
		.sender_ip_be = ip_be,
		.target_ip_be = target_ip_be,
	};
	memcpy(arp->eth.src, mac, sizeof(arp->eth.src));
	memcpy(arp->sender_mac, mac, sizeof(arp->sender_mac));
}

/*
 * Reads a frame, which need not be aligned.
 *
 * len: bytes of the frame. arp: set on success only. Returns true if the frame is ARP.
 */
static inline bool
fanin_arp_decode(const void *frame, size_t len, struct fanin_arp *arp)
{
	struct fanin_arp found;

	if (len < sizeof(found))
		return false;
	memcpy(&found, frame, sizeof(found));
	if (found.eth.type_be != FANIN_ETHERTYPE_ARP_BE)
		return false;
	*arp = found;
	return true;
}

#endif
