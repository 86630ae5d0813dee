/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network as its operator describes it: switches, the links between them, parameter servers,
 * and the places of hosts. A JSON file, read once at start and constant afterwards. Servers and
 * their links are numbered like switches and links, after all of those.
 */
#ifndef FANIN_MANAGER_TOPOLOGY_H
#define FANIN_MANAGER_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

#define TOPOLOGY_NAME_LEN 32
#define TOPOLOGY_MAX_HOSTS 4096 /* counts hosts' links */
#define TOPOLOGY_MAX_LINKS_OF_HOST 4
#define TOPOLOGY_HASH_LEN 65 /* with its NUL */
#define TOPOLOGY_NO_SWITCH UINT16_MAX
#define TOPOLOGY_NO_LINK UINT16_MAX

/* A switch, or a parameter server. */
struct topology_switch {
	const char *name;
	const char *control;                             /* path, or ADDRESS:PORT */
	const char *token_file, *ca, *certificate, *key; /* for TCP; NULL: none */
	bool is_server;
};

/* Returns the kind of a peer, for people. */
static inline const char *
topology_kind(const struct topology_switch *about)
{
	return about->is_server ? "server" : "switch";
}

struct topology_end {
	uint16_t switch_index;
	char port[TOPOLOGY_NAME_LEN]; /* "": a server's only port */
};

struct topology_link {
	struct topology_end ends[2];
};

/* One link of a host; most hosts have one. */
struct topology_host {
	uint32_t ip_be; /* the host's address there */
	struct topology_end at;
	uint16_t number;                   /* of the host, in the order of the file */
	const struct topology_host *first; /* the host's first link in the file; NULL: this one */
	const struct topology_host *next;  /* the host's next link; NULL: this is the last */
};

struct topology {
	struct topology_switch *switches; /* servers follow them */
	struct topology_link *links;  /* between switches, followed by one for each server, whose
					 first end is at the switch */
	struct topology_host *hosts;  /* hosts' links, by address */
	uint16_t n_switches;          /* without servers; at most TREE_MAX_SWITCHES */
	uint16_t n_links;             /* without servers' links; at most TREE_MAX_LINKS */
	uint16_t n_servers;           /* at most TREE_MAX_SERVERS */
	uint16_t n_hosts;             /* at most TOPOLOGY_MAX_HOSTS */
	bool discover_hosts;          /* switches are asked for hosts that are not listed */
	char hash[TOPOLOGY_HASH_LEN]; /* of the file's content, whatever its layout */
	json_t *root;                 /* owns the strings */
};

/*
 * Reads a topology. source: prefix of errors, which are one line like "t.json: links[0].a: found
 * ...".
 *
 * Returns 0 with *topology filled, for topology_free; or -EINVAL.
 */
int topology_read(json_t *root, const char *source, struct topology *topology,
		  struct control_error *error);

/* Reads a topology from a file. Returns 0, or -EINVAL, also if the file cannot be read. */
int topology_load(const char *path, struct topology *topology, struct control_error *error);

void topology_free(struct topology *topology);

/* The number of switches and servers, to each of which the manager has a connection. */
static inline uint16_t
topology_n_peers(const struct topology *topology)
{
	return (uint16_t)(topology->n_switches + topology->n_servers);
}

/* The number of links between switches and to servers. */
static inline uint16_t
topology_n_links(const struct topology *topology)
{
	return (uint16_t)(topology->n_links + topology->n_servers);
}

/* True if an index of `switches` is that of a server. */
static inline bool
topology_is_server(const struct topology *topology, uint16_t index)
{
	return index >= topology->n_switches && index < topology_n_peers(topology);
}

/* The index of a server's link. index: of the server in `switches`. */
static inline uint16_t
topology_server_link(const struct topology *topology, uint16_t index)
{
	return (uint16_t)(topology->n_links + index - topology->n_switches);
}

/* Finds a switch or server by name. Returns its index, or TOPOLOGY_NO_SWITCH. */
uint16_t topology_switch_find(const struct topology *topology, const char *name);

/* Finds the link at a port; servers' links included. Returns its index, or TOPOLOGY_NO_LINK. */
uint16_t topology_link_find(const struct topology *topology, uint16_t switch_index,
			    const char *port);

/* The first link of a host in the file. */
static inline const struct topology_host *
topology_host_first(const struct topology_host *link)
{
	return link->first == NULL ? link : link->first;
}

/* Finds the link at which a host has an address; NULL if the topology does not list it. */
const struct topology_host *topology_host_find(const struct topology *topology, uint32_t ip_be);

#endif
