/* SPDX-License-Identifier: BSD-3-Clause */
/* See topology.h. */
#include "manager/topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "control/address.h"
#include "control/args.h"
#include "control/settings.h"
#include "control/text.h"
#include "manager/tree.h"

#define PATH_LEN 64 /* path of a key in the file */

uint16_t
topology_switch_find(const struct topology *topology, const char *name)
{
	for (uint16_t i = 0; i < topology_n_peers(topology); i++) {
		if (topology->switches[i].name != NULL &&
		    strcmp(topology->switches[i].name, name) == 0)
			return i;
	}
	return TOPOLOGY_NO_SWITCH;
}

static int
compare_hosts(const void *a, const void *b)
{
	uint32_t ip_a = ((const struct topology_host *)a)->ip_be;
	uint32_t ip_b = ((const struct topology_host *)b)->ip_be;

	return ip_a < ip_b ? -1 : ip_a > ip_b;
}

const struct topology_host *
topology_host_find(const struct topology *topology, uint32_t ip_be)
{
	const struct topology_host key = { .ip_be = ip_be };

	return bsearch(&key, topology->hosts, topology->n_hosts, sizeof(key), compare_hosts);
}

uint16_t
topology_link_find(const struct topology *topology, uint16_t switch_index, const char *port)
{
	for (uint16_t i = 0; i < topology_n_links(topology); i++) {
		for (unsigned int side = 0; side < 2; side++) {
			const struct topology_end *end = &topology->links[i].ends[side];

			if (end->switch_index == switch_index && strcmp(end->port, port) == 0)
				return i;
		}
	}
	return TOPOLOGY_NO_LINK;
}

static int
fail(struct control_error *error, const char *where, const char *message, const char *found)
{
	control_fail(error, "invalid", "%s: %s\"%s\"", where, message, found);
	return -EINVAL;
}

/* Reads how to reach the control port of a switch or server. */
static int
read_control(const struct topology *topology, const json_t *entry, const char *where,
	     struct topology_switch *read, struct control_error *error)
{
	char message[ADDRESS_ERROR_LEN];
	struct address address;
	bool present;

	if (args_name_at(where, entry, "name", TOPOLOGY_NAME_LEN - 1, &read->name, NULL, error) !=
		    0 ||
	    args_string_at(where, entry, "control", 255, &read->control, NULL, error) != 0 ||
	    args_string_at(where, entry, "token_file", 255, &read->token_file, &present, error) !=
		    0 ||
	    args_string_at(where, entry, "ca", 255, &read->ca, &present, error) != 0 ||
	    args_string_at(where, entry, "certificate", 255, &read->certificate, &present, error) !=
		    0 ||
	    args_string_at(where, entry, "key", 255, &read->key, &present, error) != 0)
		return -EINVAL;
	if (topology_switch_find(topology, read->name) != TOPOLOGY_NO_SWITCH)
		return fail(error, where, "two switches or servers have the name ", read->name);
	if (strchr(read->control, '/') == NULL &&
	    address_parse(read->control, 0, false, &address, message) != 0) {
		control_fail(error, "invalid", "%s.control: %s or a path", where, message);
		return -EINVAL;
	}
	return 0;
}

static int
read_switch(const struct topology *topology, const json_t *entry, const char *where,
	    struct topology_switch *read, struct control_error *error)
{
	static const char *const known[] = { "name", "control",     "token_file", "ca",
					     "key",  "certificate", NULL };

	if (args_check_known_at(where, entry, known, error) != 0)
		return -EINVAL;
	return read_control(topology, entry, where, read, error);
}

/* Reads "SWITCH:PORT". */
static int
read_end(const struct topology *topology, const json_t *entry, const char *where, const char *key,
	 struct topology_end *end, struct control_error *error)
{
	char name[TOPOLOGY_NAME_LEN];
	char path[PATH_LEN + 8];
	const char *colon, *text;

	if (args_string_at(where, entry, key, 2 * TOPOLOGY_NAME_LEN, &text, NULL, error) != 0)
		return -EINVAL;
	snprintf(path, sizeof(path), "%s.%s", where, key);
	colon = strchr(text, ':');
	if (colon == NULL || colon == text || colon - text >= TOPOLOGY_NAME_LEN ||
	    colon[1] == '\0' || strlen(colon + 1) >= TOPOLOGY_NAME_LEN)
		return fail(error, path, "expected SWITCH:PORT like leaf0:u0, found ", text);
	snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
	snprintf(end->port, sizeof(end->port), "%s", colon + 1);
	end->switch_index = topology_switch_find(topology, name);
	if (end->switch_index == TOPOLOGY_NO_SWITCH)
		return fail(error, path, "no switch has the name ", name);
	return 0;
}

/* Checks that no link or server has the port. A port leads to one link, one server, or hosts. */
static int
check_port(const struct topology *topology, const struct topology_end *end, const char *where,
	   struct control_error *error)
{
	if (topology_link_find(topology, end->switch_index, end->port) == TOPOLOGY_NO_LINK)
		return 0;
	return fail(error, where, "a link has the port already: ", end->port);
}

static int
read_link(struct topology *topology, const json_t *entry, const char *where,
	  struct control_error *error)
{
	static const char *const known[] = { "a", "b", NULL };
	struct topology_link *link = &topology->links[topology->n_links];

	if (args_check_known_at(where, entry, known, error) != 0 ||
	    read_end(topology, entry, where, "a", &link->ends[0], error) != 0 ||
	    read_end(topology, entry, where, "b", &link->ends[1], error) != 0 ||
	    check_port(topology, &link->ends[0], where, error) != 0 ||
	    check_port(topology, &link->ends[1], where, error) != 0)
		return -EINVAL;
	if (link->ends[0].switch_index == link->ends[1].switch_index)
		return fail(error, where, "both ends are at the switch ",
			    topology->switches[link->ends[0].switch_index].name);
	topology->n_links++;
	return 0;
}

/* Adds a server after the switches and servers so far, and its link. Hosts have been read. */
static int
read_server(struct topology *topology, const json_t *entry, const char *where,
	    struct control_error *error)
{
	static const char *const known[] = { "name",        "control", "token_file", "ca", "key",
					     "certificate", "switch",  "port",       NULL };
	const uint16_t index = topology_n_peers(topology);
	struct topology_link *link = &topology->links[topology_n_links(topology)];
	struct topology_end *at = &link->ends[0];
	const char *name, *port;

	if (args_check_known_at(where, entry, known, error) != 0 ||
	    read_control(topology, entry, where, &topology->switches[index], error) != 0 ||
	    args_name_at(where, entry, "switch", TOPOLOGY_NAME_LEN - 1, &name, NULL, error) != 0 ||
	    args_name_at(where, entry, "port", TOPOLOGY_NAME_LEN - 1, &port, NULL, error) != 0)
		return -EINVAL;
	at->switch_index = topology_switch_find(topology, name);
	if (at->switch_index == TOPOLOGY_NO_SWITCH ||
	    topology_is_server(topology, at->switch_index))
		return fail(error, where, "no switch has the name ", name);
	snprintf(at->port, sizeof(at->port), "%s", port);
	if (check_port(topology, at, where, error) != 0)
		return -EINVAL;
	for (uint16_t i = 0; i < topology->n_hosts; i++) {
		if (topology->hosts[i].at.switch_index == at->switch_index &&
		    strcmp(topology->hosts[i].at.port, port) == 0)
			return fail(error, where, "a host has the port already: ", port);
	}
	topology->switches[index].is_server = true;
	link->ends[1].switch_index = index;
	topology->n_servers++;
	return 0;
}

/* Adds a link of the host with this number after the links so far. */
static int
read_host_link(struct topology *topology, const json_t *entry, const char *where, uint16_t number,
	       struct control_error *error)
{
	static const char *const known[] = { "ip", "switch", "port", NULL };
	struct topology_host *host = &topology->hosts[topology->n_hosts];
	const char *name, *port;

	if (topology->n_hosts == TOPOLOGY_MAX_HOSTS) {
		control_fail(error, "invalid", "%s: hosts have more than %d links", where,
			     TOPOLOGY_MAX_HOSTS);
		return -EINVAL;
	}
	if (args_check_known_at(where, entry, known, error) != 0 ||
	    args_ipv4_at(where, entry, "ip", &host->ip_be, NULL, error) != 0 ||
	    args_name_at(where, entry, "switch", TOPOLOGY_NAME_LEN - 1, &name, NULL, error) != 0 ||
	    args_name_at(where, entry, "port", TOPOLOGY_NAME_LEN - 1, &port, NULL, error) != 0)
		return -EINVAL;
	host->number = number;
	host->at.switch_index = topology_switch_find(topology, name);
	if (host->at.switch_index == TOPOLOGY_NO_SWITCH)
		return fail(error, where, "no switch has the name ", name);
	snprintf(host->at.port, sizeof(host->at.port), "%s", port);
	if (check_port(topology, &host->at, where, error) != 0)
		return -EINVAL;
	for (uint16_t i = topology->n_hosts; i > 0 && topology->hosts[i - 1].number == number;
	     i--) {
		if (topology->hosts[i - 1].at.switch_index == host->at.switch_index &&
		    strcmp(topology->hosts[i - 1].at.port, port) == 0)
			return fail(error, where, "the host has another link at the port ", port);
	}
	topology->n_hosts++;
	return 0;
}

/* Reads a host: one link, or a list of links. */
static int
read_host(struct topology *topology, const json_t *entry, const char *where, uint16_t number,
	  struct control_error *error)
{
	static const char *const known[] = { "links", NULL };
	char path[PATH_LEN + 32];
	const json_t *links, *link;
	size_t i;

	if (json_object_get(entry, "links") == NULL)
		return read_host_link(topology, entry, where, number, error);
	if (args_check_known_at(where, entry, known, error) != 0 ||
	    args_objects_at(where, entry, "links", 1, TOPOLOGY_MAX_LINKS_OF_HOST, &links, NULL,
			    error) != 0)
		return -EINVAL;
	json_array_foreach(links, i, link) {
		snprintf(path, sizeof(path), "%s.links[%zu]", where, i);
		if (read_host_link(topology, link, path, number, error) != 0)
			return -EINVAL;
	}
	return 0;
}

/* Sorts the hosts' links by address, and chains those of each host in the order of the file. */
static int
sort_hosts(struct topology *topology)
{
	const struct topology_host **first_of = calloc(topology->n_hosts + 1u, sizeof(*first_of));
	uint32_t *addresses = malloc((topology->n_hosts + 1u) * sizeof(*addresses));
	int ret = -ENOMEM;

	if (first_of == NULL || addresses == NULL)
		goto free_both;
	for (uint16_t i = 0; i < topology->n_hosts; i++)
		addresses[i] = topology->hosts[i].ip_be;
	qsort(topology->hosts, topology->n_hosts, sizeof(*topology->hosts), compare_hosts);
	/* Goes backwards, so that a host's first link is met last. first_of: by number. */
	for (uint16_t i = topology->n_hosts; i-- > 0;) {
		struct topology_host *host =
			(struct topology_host *)topology_host_find(topology, addresses[i]);

		host->next = first_of[host->number];
		first_of[host->number] = host;
	}
	for (uint16_t i = 0; i < topology->n_hosts; i++)
		topology->hosts[i].first = first_of[topology->hosts[i].number];
	ret = 0;

free_both:
	free(first_of);
	free(addresses);
	return ret;
}

static int
read_all(struct topology *topology, const json_t *switches, const json_t *links,
	 const json_t *servers, const json_t *hosts, struct control_error *error)
{
	char where[PATH_LEN];
	const json_t *entry;
	size_t i;

	json_array_foreach(switches, i, entry) {
		snprintf(where, sizeof(where), "switches[%zu]", i);
		if (read_switch(topology, entry, where, &topology->switches[i], error) != 0)
			return -EINVAL;
		topology->n_switches++;
	}
	json_array_foreach(links, i, entry) {
		snprintf(where, sizeof(where), "links[%zu]", i);
		if (read_link(topology, entry, where, error) != 0)
			return -EINVAL;
	}
	json_array_foreach(hosts, i, entry) {
		snprintf(where, sizeof(where), "hosts[%zu]", i);
		if (read_host(topology, entry, where, (uint16_t)i, error) != 0)
			return -EINVAL;
	}
	json_array_foreach(servers, i, entry) {
		snprintf(where, sizeof(where), "servers[%zu]", i);
		if (read_server(topology, entry, where, error) != 0)
			return -EINVAL;
	}
	if (sort_hosts(topology) != 0) {
		control_fail(error, "internal", "out of memory");
		return -EINVAL;
	}
	for (uint16_t k = 1; k < topology->n_hosts; k++) {
		char ip[INET_ADDRSTRLEN];

		if (topology->hosts[k].ip_be != topology->hosts[k - 1].ip_be)
			continue;
		inet_ntop(AF_INET, &topology->hosts[k].ip_be, ip, sizeof(ip));
		return fail(error, "hosts", "two of them have the address ", ip);
	}
	return 0;
}

static int
hash(struct topology *topology)
{
	char *text = json_dumps(topology->root, JSON_COMPACT | JSON_SORT_KEYS);
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	bool hashed = text != NULL &&
		      EVP_Digest(text, strlen(text), digest, &len, EVP_sha256(), NULL) == 1;

	free(text);
	for (unsigned int i = 0; hashed && i < (TOPOLOGY_HASH_LEN - 1) / 2; i++)
		snprintf(topology->hash + 2 * i, 3, "%02x", digest[i]);
	return hashed ? 0 : -ENOMEM;
}

int
topology_read(json_t *root, const char *source, struct topology *topology,
	      struct control_error *error)
{
	static const char *const known[] = { "$schema", "switches",       "links", "servers",
					     "hosts",   "discover_hosts", NULL };
	const json_t *switches = NULL, *links = NULL, *servers = NULL, *hosts = NULL;
	struct topology read = { .root = json_incref(root) };
	bool present;
	int ret = -EINVAL;

	if (args_check_known_at("", root, known, error) != 0 ||
	    args_objects_at("", root, "switches", 1, TREE_MAX_SWITCHES, &switches, NULL, error) !=
		    0 ||
	    args_objects_at("", root, "links", 0, TREE_MAX_LINKS, &links, &present, error) != 0 ||
	    args_objects_at("", root, "servers", 0, TREE_MAX_SERVERS, &servers, &present, error) !=
		    0 ||
	    args_objects_at("", root, "hosts", 0, TOPOLOGY_MAX_HOSTS, &hosts, &present, error) != 0)
		goto failed;
	read.discover_hosts = !present;
	if (args_boolean_at("", root, "discover_hosts", &read.discover_hosts, &present, error) != 0)
		goto failed;
	read.switches = calloc(json_array_size(switches) + json_array_size(servers),
			       sizeof(*read.switches));
	read.links = calloc(json_array_size(links) + json_array_size(servers) + 1,
			    sizeof(*read.links));
	/* A host may have several links. */
	read.hosts = calloc(TOPOLOGY_MAX_HOSTS + 1, sizeof(*read.hosts));
	if (read.switches == NULL || read.links == NULL || read.hosts == NULL || hash(&read) != 0) {
		control_fail(error, "internal", "out of memory");
		goto failed;
	}
	ret = read_all(&read, switches, links, servers, hosts, error);
	if (ret == 0) {
		*topology = read;
		return 0;
	}

failed:
	topology_free(&read);
	return settings_fail_at(source, error);
}

int
topology_load(const char *path, struct topology *topology, struct control_error *error)
{
	json_t *root = settings_load(path, error);
	int ret = root == NULL ? -EINVAL : topology_read(root, path, topology, error);

	json_decref(root);
	return ret;
}

void
topology_free(struct topology *topology)
{
	free(topology->switches);
	free(topology->links);
	free(topology->hosts);
	json_decref(topology->root);
	*topology = (struct topology){ 0 };
}
