/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch and router: handles frames that are not Fanin's, and frames for the switch as a
 * station. It knows ports, stations, neighbors and routes, and nothing of jobs. Worker only, unless
 * a function says otherwise.
 */
#ifndef FANIN_PIPELINE_NET_NET_H
#define FANIN_PIPELINE_NET_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/net/mac_table.h"
#include "pipeline/net/neighbor.h"
#include "pipeline/base/worker.h"

/* Returns true if a host of the switch's own subnet can have this address. Any thread. */
static inline bool
is_host_address(const struct pipeline *pipeline, uint32_t ip_be)
{
	const uint32_t mask_be = pipeline->subnet_mask_be;
	const uint32_t host_be = ip_be & ~mask_be;

	if (mask_be == 0 || ((ip_be ^ pipeline->ip_be) & mask_be) != 0 || ip_be == pipeline->ip_be)
		return false;
	/*
	 * The network's own address and broadcast. Subnets of one or two addresses have neither
	 * (RFC 3021).
	 */
	return pipeline->few_hosts || (host_be != 0 && host_be != ~mask_be);
}

/*
 * forward.c: takes a foreign frame: learns its source, looks its destination up, and sends or
 * floods it.
 */
void worker_forward(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * forward.c: learns a station, which mac_key_is_invalid does not rule out, on a port (index) that
 * is not routed.
 */
void worker_learn(struct worker *worker, mac_key station, uint16_t port);

/* forward.c: returns the port (index) of a station, or -ENOENT. */
int worker_station_port(struct worker *worker, mac_key station);

/*
 * forward.c: queues a frame that may be a super-frame (base/offload.h) for a port (index), as
 * worker_send does.
 */
void worker_send_foreign(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf);

/*
 * forward.c: sends a frame to all ports that are not routed but the one it came from (index;
 * WORKER_NO_PORT: none).
 */
void worker_flood(struct worker *worker, struct rte_mbuf *mbuf, uint16_t ingress, bool tagged);

/*
 * arp.c: takes an ARP message: learns from it, and answers.
 *
 * sender_be: set to the address of the station that speaks to the switch, 0 if none does. Returns
 * false if it is not for the switch: the mbuf stays the caller's.
 */
bool worker_local_arp(struct worker *worker, struct rte_mbuf *mbuf, uint32_t *sender_be);

/* arp.c: asks for a neighbor's MAC address. */
void worker_ask(struct worker *worker, neighbor_key neighbor);

/* arp.c: asks a station on a port (index) whether it still has its address. */
void worker_ask_station(struct worker *worker, uint32_t ip_be, const uint8_t mac[6], uint16_t port);

/* arp.c: sends the requests that neighbor_housekeep has queued. */
void worker_ask_due(struct worker *worker);

/*
 * local.c: takes an IPv4 packet to the switch's own address that is not Fanin's: answers an ICMP
 * echo (RFC 792), and drops packets that are not ICMP.
 *
 * Returns false for any other ICMP message, whose lengths are right: the mbuf stays the caller's.
 */
bool worker_local_ip(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * route.c: takes an IPv4 packet to the switch's MAC address but not to its IP address. The frame
 * has at least the Ethernet and IPv4 headers.
 */
void worker_route(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * route.c: routes a valid IPv4 packet that a handler has made, or passes on, to its destination.
 * There is no other reference to it.
 *
 * by_backlog: the packet takes the next hop with the smallest backlog. flow: chooses its usual next
 * hop, alike on all switches that have as many next hops; NULL: the packet's addresses and ports
 * choose, differently on each switch.
 */
void worker_route_fanin(struct worker *worker, struct rte_mbuf *mbuf, bool by_backlog,
			const uint32_t *flow);

/*
 * icmp.c: takes a routed packet that ends here: counts it, and sends an ICMP message (RFC 792) to
 * its sender if that is allowed, within WORKER_ICMP_RATE. The packet's headers have been found
 * valid.
 *
 * mtu: of the next hop, for "fragmentation needed" (RFC 1191); else 0.
 */
void worker_unreachable(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason,
			uint8_t type, uint8_t code, uint16_t mtu);

#endif
