/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The static IPv4 routes: made when the pipeline is, constant afterwards, read by all workers. A
 * route leads to the hosts of the switch's own subnet or to up to 16 next hops, among which flows
 * are spread (ECMP, RFC 2992).
 */
#ifndef FANIN_PIPELINE_NET_ROUTE_TABLE_H
#define FANIN_PIPELINE_NET_ROUTE_TABLE_H

#include <stdint.h>

#include <rte_byteorder.h>
#include <rte_fib.h>

#include "pipeline/net/neighbor.h"

#define ROUTE_MAX_NEXT_HOPS 16

struct pipeline_port;

struct next_hop_spec {
	uint32_t ip_be;
	uint16_t port; /* index; a routed one */
};

struct route_spec {
	uint32_t prefix_be;
	uint8_t prefix_len;   /* 0 to 32; the prefix's other bits are zero */
	uint16_t n_next_hops; /* 1 to ROUTE_MAX_NEXT_HOPS */
	struct next_hop_spec next_hops[ROUTE_MAX_NEXT_HOPS];
};

struct next_hop {
	uint32_t ip_be;
	uint16_t port;
	int32_t neighbor; /* position */
};

struct route {
	uint32_t prefix_be;
	uint8_t prefix_len;
	uint16_t n_next_hops; /* 0: the hosts of the own subnet */
	struct next_hop next_hops[ROUTE_MAX_NEXT_HOPS];
};

struct route_table {
	struct rte_fib *fib; /* address to index in routes plus 1; 0: no route */
	uint32_t n_routes;
	struct route routes[];
};

/* Returns the netmask of a prefix of 0 to 32 bits, network order. */
static inline uint32_t
route_mask_be(uint8_t prefix_len)
{
	return prefix_len == 0 ? 0 : rte_cpu_to_be_32(UINT32_MAX << (32 - prefix_len));
}

/*
 * Makes the table of the routes, of one to the hosts' subnet, and of one to each next hop itself,
 * unless there is a route of its own to that address.
 *
 * ip_be, prefix_len: the switch's address in the hosts' subnet; prefix_len 0: there is none.
 * neighbors: gets the next hops. Returns 0 and sets *table; -EEXIST for a prefix that is given
 * twice; -ENOSPC or -ENOMEM.
 */
int route_table_create(uint32_t ip_be, uint8_t prefix_len, const struct route_spec *specs,
		       uint16_t n_specs, struct neighbor_table *neighbors,
		       struct route_table **table);

/* May be NULL. */
void route_table_free(struct route_table *table);

/* Returns the route to an address with the longest prefix, or NULL. */
static inline const struct route *
route_lookup(const struct route_table *table, uint32_t ip_be)
{
	uint32_t ip = rte_be_to_cpu_32(ip_be);
	uint64_t index = 0;

	rte_fib_lookup_bulk(table->fib, &ip, &index, 1);
	return index == 0 ? NULL : &table->routes[index - 1];
}

#endif
