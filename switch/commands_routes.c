/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commands that show where IPv4 packets go: routes.list and neighbors.list; and hosts.find.
 * Main thread only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "pipeline/net/neighbor.h"
#include "pipeline/net/next_hops.h"
#include "pipeline/net/route_table.h"
#include "pipeline/pipeline.h"
#include "control/args.h"
#include "switch/commands.h"
#include "wire/ranks.h"

#define MAX_HOSTS_TO_FIND FANIN_WIRE_MAX_RANKS /* in one command: the hosts of a job */

static const char *
next_hop_state(const struct pipeline *pipeline, const struct next_hop *hop, mac_key mac)
{
	if (!pipeline_port_has_link(pipeline, hop->port))
		return "no link";
	return mac == 0 ? "silent" : "up";
}

static json_t *
json_key_mac(mac_key key)
{
	uint8_t mac[6];

	if (key == 0)
		return json_null();
	mac_key_get(key, mac);
	return json_mac(mac);
}

static json_t *
describe_next_hop(const struct pipeline *pipeline, const struct next_hop *hop)
{
	mac_key mac = neighbor_mac(pipeline->neighbors, hop->neighbor, hop->ip_be);

	return json_pack("{s:s,s:o,s:o,s:s}", "port", pipeline->ports[hop->port].name, "ip",
			 json_ipv4(hop->ip_be), "mac", json_key_mac(mac), "state",
			 next_hop_state(pipeline, hop, mac));
}

static json_t *
describe_route(const struct pipeline *pipeline, const struct route *route)
{
	char ip[INET_ADDRSTRLEN];
	json_t *via = json_array();

	inet_ntop(AF_INET, &route->prefix_be, ip, sizeof(ip));
	for (uint16_t i = 0; i < route->n_next_hops; i++)
		json_array_append_new(via, describe_next_hop(pipeline, &route->next_hops[i]));
	return json_pack("{s:o,s:b,s:o}", "prefix", json_sprintf("%s/%u", ip, route->prefix_len),
			 "hosts", route->n_next_hops == 0, "via", via);
}

struct next_hop_visit {
	const struct pipeline *pipeline;
	json_t *list;
	uint64_t now_ns;
};

static void
describe_watched(void *user, const struct next_hop_info *info)
{
	const struct next_hop_visit *visit = user;
	const struct pipeline *pipeline = visit->pipeline;
	json_t *entry = json_pack("{s:s,s:o,s:b,s:I,s:I,s:I}", "port",
				  pipeline->ports[info->port].name, "ip", json_ipv4(info->ip_be),
				  "up", info->link && info->mac != 0, "probes",
				  (json_int_t)info->requests, "missed", (json_int_t)info->missed,
				  "lost", (json_int_t)info->lost);

	json_object_set_new(entry, "since_s",
			    info->changes == 0
				    ? json_null()
				    : json_real((double)(visit->now_ns - info->since_ns) / 1e9));
	json_array_append_new(visit->list, entry);
}

json_t *
command_routes_list(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	const struct route_table *table = daemon->pipeline->routes;
	struct next_hop_visit visit = {
		.pipeline = daemon->pipeline,
		.now_ns = pipeline_time_ns(daemon->pipeline),
	};
	json_t *list;

	if (args_check_known(args, error) != 0)
		return NULL;
	list = json_array();
	for (uint32_t i = 0; i < table->n_routes; i++)
		json_array_append_new(list, describe_route(daemon->pipeline, &table->routes[i]));
	visit.list = json_array();
	next_hops_each(daemon->pipeline->next_hops, describe_watched, &visit);
	return json_pack("{s:o,s:o}", "routes", list, "next_hops", visit.list);
}

struct neighbor_visit {
	const struct pipeline *pipeline;
	json_t *list;
	uint32_t now_seconds;
};

/*
 * Returns the name of the port that a neighbor is behind; null if its station has sent no frame for
 * long.
 */
static json_t *
describe_place(const struct pipeline *pipeline, const struct neighbor_info *info)
{
	uint32_t where = neighbor_key_where(info->key);
	int port = where == NEIGHBOR_HOSTS ? mac_table_lookup(pipeline->macs, info->mac)
					   : (int)(where - NEIGHBOR_ON_PORT(0));

	return port < 0 ? json_null() : json_string(pipeline->ports[port].name);
}

static void
describe_neighbor(void *user, const struct neighbor_info *info)
{
	const struct neighbor_visit *visit = user;
	/* Workers' clocks may be a little ahead. */
	int32_t age = (int32_t)(visit->now_seconds - info->seen_seconds);
	json_t *entry = json_pack("{s:o,s:o,s:o,s:b,s:s}", "ip",
				  json_ipv4(neighbor_key_ip_be(info->key)), "port",
				  describe_place(visit->pipeline, info), "mac",
				  json_key_mac(info->mac), "next_hop", info->next_hop, "state",
				  info->mac == 0 ? "silent" : "up");

	json_object_set_new(entry, "age_s",
			    info->mac == 0 ? json_null() : json_integer(age < 0 ? 0 : age));
	json_array_append_new(visit->list, entry);
}

json_t *
command_neighbors_list(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct neighbor_visit visit = {
		.pipeline = daemon->pipeline,
		.now_seconds = (uint32_t)(pipeline_now_ns() / 1000000000u),
	};

	if (args_check_known(args, error) != 0)
		return NULL;
	visit.list = json_array();
	neighbor_each(daemon->pipeline->neighbors, describe_neighbor, &visit);
	return json_pack("{s:o}", "neighbors", visit.list);
}

/*
 * Finds hosts by their addresses. For an unknown address, a worker sends an ARP request, and the
 * client asks again a little later: nothing waits here.
 */
json_t *
command_hosts_find(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	const json_t *hosts, *entry;
	char where[40];
	json_t *list;
	size_t i;

	if (args_check_known(args, error, "hosts") != 0 ||
	    args_objects(args, "hosts", 1, MAX_HOSTS_TO_FIND, &hosts, NULL, error) != 0)
		return NULL;
	list = json_array();
	json_array_foreach(hosts, i, entry) {
		static const char *const known[] = { "ip", NULL };
		uint32_t ip_be;
		int port;

		snprintf(where, sizeof(where), "args.hosts[%zu]", i);
		if (args_check_known_at(where, entry, known, error) != 0 ||
		    args_ipv4_at(where, entry, "ip", &ip_be, NULL, error) != 0)
			goto failed;
		port = pipeline_find_host(daemon->pipeline, ip_be);
		if (port == -ENOSPC) {
			control_fail(
				error, "no_room",
				"%s: the table of neighbors has no room to ask for another one",
				where);
			goto failed;
		}
		json_array_append_new(list,
				      json_pack("{s:o,s:s?,s:b}", "ip", json_ipv4(ip_be), "port",
						port < 0 ? NULL
							 : daemon->pipeline->ports[port].name,
						"asked", port == -EAGAIN));
	}
	return json_pack("{s:o}", "hosts", list);

failed:
	json_decref(list);
	return NULL;
}
