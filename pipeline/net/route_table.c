/* SPDX-License-Identifier: BSD-3-Clause */
/* See route_table.h. Main thread, before the workers start. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#include "pipeline/net/route_table.h"

static struct route *
find_route(struct route_table *table, uint32_t prefix_be, uint8_t prefix_len)
{
	for (uint32_t i = 0; i < table->n_routes; i++) {
		struct route *route = &table->routes[i];

		if (route->prefix_be == prefix_be && route->prefix_len == prefix_len)
			return route;
	}
	return NULL;
}

/* Appends a route without next hops; there is room. */
static int
add_route(struct route_table *table, uint32_t prefix_be, uint8_t prefix_len, struct route **added)
{
	struct route *route = &table->routes[table->n_routes];
	int ret;

	if (find_route(table, prefix_be, prefix_len) != NULL)
		return -EEXIST;
	ret = rte_fib_add(table->fib, rte_be_to_cpu_32(prefix_be), prefix_len, table->n_routes + 1);
	if (ret != 0)
		return ret;
	route->prefix_be = prefix_be;
	route->prefix_len = prefix_len;
	table->n_routes++;
	*added = route;
	return 0;
}

static int
add_next_hop(struct route *route, const struct next_hop_spec *spec,
	     struct neighbor_table *neighbors)
{
	neighbor_key key = neighbor_key_make(spec->ip_be, NEIGHBOR_ON_PORT(spec->port));
	int32_t position = neighbor_add_next_hop(neighbors, key);

	if (position < 0)
		return position;
	if (route->n_next_hops == ROUTE_MAX_NEXT_HOPS)
		return -ENOSPC;
	route->next_hops[route->n_next_hops++] =
		(struct next_hop){ .ip_be = spec->ip_be, .port = spec->port, .neighbor = position };
	return 0;
}

static bool
has_next_hop(const struct route *route, const struct next_hop_spec *spec)
{
	for (uint16_t i = 0; i < route->n_next_hops; i++) {
		if (route->next_hops[i].ip_be == spec->ip_be &&
		    route->next_hops[i].port == spec->port)
			return true;
	}
	return false;
}

/*
 * Adds the route to a next hop itself: by its own port, or by each of them if several links lead
 * there.
 */
static int
add_way_to_next_hop(struct route_table *table, uint32_t n_given, const struct next_hop_spec *spec,
		    struct neighbor_table *neighbors)
{
	struct route *route = find_route(table, spec->ip_be, 32);
	int ret = 0;

	if (route != NULL && (route < &table->routes[n_given] || has_next_hop(route, spec)))
		return 0;
	if (route == NULL)
		ret = add_route(table, spec->ip_be, 32, &route);
	return ret != 0 ? ret : add_next_hop(route, spec, neighbors);
}

static int
add_all(struct route_table *table, uint32_t ip_be, uint8_t prefix_len,
	const struct route_spec *specs, uint16_t n_specs, struct neighbor_table *neighbors)
{
	struct route *route;
	uint32_t n_given;
	int ret = 0;

	if (prefix_len != 0)
		ret = add_route(table, ip_be & route_mask_be(prefix_len), prefix_len, &route);
	for (uint16_t i = 0; i < n_specs && ret == 0; i++) {
		ret = add_route(table, specs[i].prefix_be, specs[i].prefix_len, &route);
		for (uint16_t k = 0; k < specs[i].n_next_hops && ret == 0; k++)
			ret = add_next_hop(route, &specs[i].next_hops[k], neighbors);
	}
	n_given = table->n_routes;
	for (uint16_t i = 0; i < n_specs && ret == 0; i++) {
		for (uint16_t k = 0; k < specs[i].n_next_hops && ret == 0; k++)
			ret = add_way_to_next_hop(table, n_given, &specs[i].next_hops[k],
						  neighbors);
	}
	return ret;
}

int
route_table_create(uint32_t ip_be, uint8_t prefix_len, const struct route_spec *specs,
		   uint16_t n_specs, struct neighbor_table *neighbors, struct route_table **created)
{
	static unsigned int instances;
	char name[32];
	uint32_t room = 1;
	/*
	 * The tree of prefixes: its few hundred nodes stay in the cache, where a DIR24_8 table
	 * would take 32 MiB of each switch's memory.
	 */
	struct rte_fib_conf conf = { .type = RTE_FIB_DUMMY, .default_nh = 0 };
	struct route_table *table;
	int ret;

	for (uint16_t i = 0; i < n_specs; i++)
		room += 1u + specs[i].n_next_hops;
	table = rte_zmalloc("routes", sizeof(*table) + room * sizeof(table->routes[0]),
			    RTE_CACHE_LINE_SIZE);
	if (table == NULL)
		return -ENOMEM;
	conf.max_routes = (int)room;
	snprintf(name, sizeof(name), "routes_%u", instances++);
	table->fib = rte_fib_create(name, SOCKET_ID_ANY, &conf);
	if (table->fib == NULL) {
		ret = -rte_errno;
		goto free_table;
	}
	ret = add_all(table, ip_be, prefix_len, specs, n_specs, neighbors);
	if (ret != 0)
		goto free_table;
	*created = table;
	return 0;

free_table:
	route_table_free(table);
	return ret;
}

void
route_table_free(struct route_table *table)
{
	if (table == NULL)
		return;
	rte_fib_free(table->fib);
	rte_free(table);
}
