/* SPDX-License-Identifier: BSD-3-Clause */
/* See datagram.h. */
#include "lab/bench/datagram.h"

#include <arpa/inet.h>
#include <string.h>

#define TTL 64

void
datagram_fill(struct datagram_headers *headers, const struct datagram_way *way, uint8_t tos,
	      uint32_t len)
{
	memcpy(headers->eth.dst, way->dst_mac, sizeof(headers->eth.dst));
	memcpy(headers->eth.src, way->src_mac, sizeof(headers->eth.src));
	headers->eth.type_be = htons(0x0800);
	headers->ip = (struct fanin_ip){ .version_ihl = 0x45,
					 .tos = tos,
					 .total_len_be = htons((uint16_t)(len - FANIN_ETH_LEN)),
					 .ttl = TTL,
					 .protocol = IPPROTO_UDP,
					 .src_be = way->src_ip_be,
					 .dst_be = way->dst_ip_be };
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	headers->udp = (struct fanin_udp){ .src_be = htons(way->src_port),
					   .dst_be = htons(way->dst_port),
					   .len_be = htons((uint16_t)(len - FANIN_ETH_LEN -
								      FANIN_IP_LEN)) };
}
