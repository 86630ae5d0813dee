/* SPDX-License-Identifier: BSD-3-Clause */
/* Ordinary UDP datagrams between hosts of rig/: headers only, the rest is the caller's. Pure. */
#ifndef FANIN_LAB_BENCH_DATAGRAM_H
#define FANIN_LAB_BENCH_DATAGRAM_H

#include <stdint.h>

#include "wire/wire.h"

/* Codepoints of ECN in IPv4's tos. */
#define DATAGRAM_ECT_0 2
#define DATAGRAM_CE 3
#define DATAGRAM_SHORTEST_FRAME 60u

struct datagram_headers {
	struct fanin_eth eth;
	struct fanin_ip ip;
	struct fanin_udp udp;
} __attribute__((packed));

/* Source and destination of a datagram. */
struct datagram_way {
	const uint8_t *src_mac;
	const uint8_t *dst_mac; /* of the first hop */
	uint32_t src_ip_be;
	uint32_t dst_ip_be;
	uint16_t src_port;
	uint16_t dst_port;
};

/* Fills in the headers of a frame of len bytes. tos: 0, or with ECT. */
void datagram_fill(struct datagram_headers *headers, const struct datagram_way *way, uint8_t tos,
		   uint32_t len);

#endif
