/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network as its operator describes it: switches, the links between them, parameter servers,
 * where the hosts are. A JSON file, read once at start and constant afterwards. Servers have
 * numbers and links as switches have, behind all of those.
 */
#ifndef FANIN_MANAGER_TOPOLOGY_H
#define FANIN_MANAGER_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

#define TOPOLOGY_NAME_LEN 32
#define TOPOLOGY_MAX_HOSTS 4096 /* their links, to be exact */
#define TOPOLOGY_MAX_LINKS_OF_HOST 4
#define TOPOLOGY_HASH_LEN 65 /* with its end */
#define TOPOLOGY_NO_SWITCH UINT16_MAX
#define TOPOLOGY_NO_LINK UINT16_MAX

/* A switch, or a parameter server. */
struct topology_switch {
	const char *name;
	const char *control;                             /* path, or ADDRESS:PORT */
	const char *token_file, *ca, *certificate, *key; /* of TCP; NULL: none */
	bool is_server;
};

/* What it is, for people. */
static inline const char *
topology_kind(const struct topology_switch *about)
{
	return about->is_server ? "server" : "switch";
}

struct topology_end {
	uint16_t switch_index;
	char port[TOPOLOGY_NAME_LEN]; /* "": the only one, of a server */
};

struct topology_link {
	struct topology_end ends[2];
};

/* One link of a host; most hosts have one. */
struct topology_host {
	uint32_t ip_be; /* the host's address there */
	struct topology_end at;
	uint16_t number;                   /* of the host, in the order of the file */
	const struct topology_host *first; /* the host's link that the file has first; NULL: it has
					      this one only */
	const struct topology_host *next;  /* the one after this; NULL: this is the last */
};

struct topology {
	struct topology_switch *switches; /* servers behind them */
	struct topology_link *links;  /* between switches; behind them one for each server, whose
					 first end is at the switch */
	struct topology_host *hosts;  /* their links, by address */
	uint16_t n_switches;          /* without servers; at most TREE_MAX_SWITCHES */
	uint16_t n_links;             /* without servers'; at most TREE_MAX_LINKS */
	uint16_t n_servers;           /* at most TREE_MAX_SERVERS */
	uint16_t n_hosts;             /* at most TOPOLOGY_MAX_HOSTS */
	bool discover_hosts;          /* those that are not listed are asked for at the switches */
	char hash[TOPOLOGY_HASH_LEN]; /* of all that the file says, however it is written down */
	json_t *root;                 /* owns the texts */
};

/*
 * Reads what a file has. source: stands before the error, one line like "t.json: links[0].a: found
 * ...".
 *
 * Returns 0 with *topology filled, for topology_free; or -EINVAL.
 */
int topology_read(json_t *root, const char *source, struct topology *topology,
		  struct control_error *error);

/* The same from a file. -ENOENT and the like if it cannot be read. */
int topology_load(const char *path, struct topology *topology, struct control_error *error);

void topology_free(struct topology *topology);

/* The number of switches and servers: what the manager has connections to. */
static inline uint16_t
topology_n_peers(const struct topology *topology)
{
	return (uint16_t)(topology->n_switches + topology->n_servers);
}

/* The number of links between switches, and to servers. */
static inline uint16_t
topology_n_links(const struct topology *topology)
{
	return (uint16_t)(topology->n_links + topology->n_servers);
}

/* True if an index of switches is that of a server. */
static inline bool
topology_is_server(const struct topology *topology, uint16_t index)
{
	return index >= topology->n_switches && index < topology_n_peers(topology);
}

/* The link of a server. index: as of a switch. */
static inline uint16_t
topology_server_link(const struct topology *topology, uint16_t index)
{
	return (uint16_t)(topology->n_links + index - topology->n_switches);
}

/* The index of a switch or server; TOPOLOGY_NO_SWITCH if there is none of that name. */
uint16_t topology_switch_find(const struct topology *topology, const char *name);

/* The index of the link at a port, of a server's, too; TOPOLOGY_NO_LINK if there is none. */
uint16_t topology_link_find(const struct topology *topology, uint16_t switch_index,
			    const char *port);

/* A host's link that the file has first. */
static inline const struct topology_host *
topology_host_first(const struct topology_host *link)
{
	return link->first == NULL ? link : link->first;
}

/* The link at which a host has an address, or NULL if no one listed it. */
const struct topology_host *topology_host_find(const struct topology *topology, uint32_t ip_be);

#endif
