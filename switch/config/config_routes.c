/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the routes of a configuration against its ports and its own address. Called by the
 * configuration's parser.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "switch/config/config.h"
#include "switch/config/config_keys.h"

static uint32_t
mask_be(unsigned int prefix_len)
{
	return prefix_len == 0 ? 0 : htonl(UINT32_MAX << (32 - prefix_len));
}

/*
 * Checks that the switch's own address is a host address of its subnet; in subnets of one or two
 * addresses, all are (RFC 3021).
 */
static int
check_address(const struct config_reader *reader, const struct config *config)
{
	uint32_t host_mask_be = ~mask_be(config->prefix_len);
	uint32_t host_be = config->ip_be & host_mask_be;
	char ip[INET_ADDRSTRLEN];

	if (config->prefix_len > 30 || (host_be != 0 && host_be != host_mask_be))
		return 0;
	inet_ntop(AF_INET, &config->ip_be, ip, sizeof(ip));
	return config_fail(reader, "address.ip",
			   "found \"%s\", the %s address of its subnet of address.prefix_len %u, "
			   "expected one of a host",
			   ip, host_be == 0 ? "network's own" : "broadcast", config->prefix_len);
}

static int
check_prefix(const struct config_reader *reader, const struct config *config, unsigned int index)
{
	const struct config_prefix *prefix = &config->routes[index].prefix;
	char path[CONFIG_KEY_PATH_LEN];
	char ip[INET_ADDRSTRLEN];

	snprintf(path, sizeof(path), "routes[%u].prefix", index);
	inet_ntop(AF_INET, &prefix->ip_be, ip, sizeof(ip));
	if (prefix->len == config->prefix_len &&
	    prefix->ip_be == (config->ip_be & mask_be(config->prefix_len)))
		return config_fail(
			reader, path,
			"\"%s/%u\" is the hosts' subnet of address.ip and address.prefix_len "
			"already",
			ip, prefix->len);
	for (unsigned int first = 0; first < index; first++) {
		const struct config_prefix *other = &config->routes[first].prefix;

		if (other->len == prefix->len && other->ip_be == prefix->ip_be)
			return config_fail(reader, path,
					   "\"%s/%u\" is the prefix of routes[%u] already", ip,
					   prefix->len, first);
	}
	return 0;
}

/* Writes "u0, u1": the ports that a next hop may name. */
static void
print_routed_ports(const struct config *config, char *buffer, size_t size)
{
	size_t used = 0;

	buffer[0] = '\0';
	for (unsigned int i = 0; i < config->n_ports && used < size; i++) {
		if (config->ports[i].routed)
			used += (size_t)snprintf(buffer + used, size - used, "%s%s",
						 used == 0 ? "" : ", ", config->ports[i].name);
	}
}

static int
find_port(const struct config_reader *reader, const struct config *config, const char *path,
	  struct config_next_hop *hop)
{
	char routed[CONFIG_ERROR_LEN / 2];

	for (uint16_t i = 0; i < config->n_ports; i++) {
		if (config->ports[i].routed && strcmp(config->ports[i].name, hop->port_name) == 0) {
			hop->port = i;
			return 0;
		}
	}
	print_routed_ports(config, routed, sizeof(routed));
	return config_fail(reader, path, "found \"%s\", expected a port with \"routed\": true%s%s",
			   hop->port_name, routed[0] == '\0' ? ", and there is none" : ", one of ",
			   routed);
}

static int
finish_next_hop(const struct config_reader *reader, const struct config *config,
		struct config_route *route, unsigned int route_index, unsigned int index)
{
	struct config_next_hop *hop = &route->via[index];
	char path[CONFIG_KEY_PATH_LEN];
	char ip[INET_ADDRSTRLEN];
	int ret;

	snprintf(path, sizeof(path), "routes[%u].via[%u].port", route_index, index);
	ret = find_port(reader, config, path, hop);
	if (ret != 0)
		return ret;
	snprintf(path, sizeof(path), "routes[%u].via[%u].ip", route_index, index);
	inet_ntop(AF_INET, &hop->ip_be, ip, sizeof(ip));
	if (hop->ip_be == config->ip_be)
		return config_fail(
			reader, path,
			"found \"%s\", which is the switch's own, expected that of another", ip);
	for (unsigned int first = 0; first < index; first++) {
		if (route->via[first].port == hop->port && route->via[first].ip_be == hop->ip_be)
			return config_fail(reader, path, "\"%s\" on port \"%s\" is via[%u] already",
					   ip, hop->port_name, first);
	}
	return 0;
}

int
config_finish_routes(const struct config_reader *reader, struct config *config)
{
	int ret = check_address(reader, config);

	for (unsigned int i = 0; i < config->n_routes && ret == 0; i++) {
		struct config_route *route = &config->routes[i];

		ret = check_prefix(reader, config, i);
		for (unsigned int k = 0; k < route->n_via && ret == 0; k++)
			ret = finish_next_hop(reader, config, route, i, k);
	}
	return ret;
}
