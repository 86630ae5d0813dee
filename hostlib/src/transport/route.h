/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's knowledge of the route to the switch: interface, addresses, MTU and the next hop's
 * MAC address. May block for the time of a system call; keeps no state.
 */
#ifndef FANIN_HOSTLIB_ROUTE_H
#define FANIN_HOSTLIB_ROUTE_H

#include <net/if.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"

struct fanin_route {
	char interface[IF_NAMESIZE];
	int ifindex;
	unsigned int rx_queues;
	uint32_t mtu; /* bytes */
	uint32_t switch_ip_be;
	uint32_t local_ip_be;
	uint32_t next_hop_be; /* address of the gateway, or of the switch itself */
	uint8_t local_mac[6];
};

/*
 * Looks up the route to an IPv4 address.
 *
 * interface: NULL, or the only one that may be used. route: set on success only.
 * Returns FANIN_OK, FANIN_ERR_INVALID, FANIN_ERR_NO_ROUTE or FANIN_ERR_SYSTEM.
 */
int fanin_route_find(uint32_t switch_ip_be, const char *interface, struct fanin_route *route,
		     struct fanin_error *error);

/*
 * Looks up the next hop's MAC address in the neighbour table. The table has it once the kernel has
 * exchanged a packet with the next hop.
 */
int fanin_route_resolve(const struct fanin_route *route, uint8_t *mac, struct fanin_error *error);

/*
 * Makes the kernel ask for the next hop's MAC address, if it does not know it, by sending an empty
 * datagram to the switch, which drops it. A failure shows in fanin_route_resolve.
 */
void fanin_route_ping(const struct fanin_route *route);

#endif
