/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A manager under the test's control. It is complete, with its database in a directory of its own.
 * Switches and hosts are the test's ends of their connections, and a switch carries out a request
 * when the test says so. Two hosts: rank 0 has links to leaf0 and leaf2, rank 1 one to leaf1; each
 * leaf has one to each of three spines. A test may add parameter servers: server0 at spine0,
 * server1 at spine1.
 */
#ifndef FANIN_TESTS_UNIT_MANAGER_RIG_H
#define FANIN_TESTS_UNIT_MANAGER_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "manager/manager.h"

#define MANAGER_RIG_SWITCHES 6
#define MANAGER_RIG_SERVERS 2
#define MANAGER_RIG_PEERS (MANAGER_RIG_SWITCHES + MANAGER_RIG_SERVERS)
#define MANAGER_RIG_HOSTS 2
#define MANAGER_RIG_PORTS 8 /* u0 to u2, p0 to p2, h0, s0; a server has only the last one */

enum {
	LEAF0,
	LEAF1,
	SPINE0,
	SPINE1,
	SPINE2,
	LEAF2,
	SERVER0,
	SERVER1,
};

struct manager_rig {
	struct manager_config config;
	struct manager *manager;
	uint16_t n_peers;                   /* with servers, or without */
	json_t *jobs[MANAGER_RIG_PEERS];    /* of each switch: their owners by number */
	json_t *created[MANAGER_RIG_PEERS]; /* request for the last job that a switch created; NULL:
					       none */
	uint32_t max_jobs;            /* of each switch; the manager learns it when it looks */
	bool full[MANAGER_RIG_PEERS]; /* it creates no job */
	bool port_is_down[MANAGER_RIG_PEERS][MANAGER_RIG_PORTS];
	bool is_old[MANAGER_RIG_SWITCHES];          /* it does not know hosts.find */
	bool has_old_handlers[MANAGER_RIG_PEERS];   /* it does not tell what they need */
	bool has_other_handlers[MANAGER_RIG_PEERS]; /* its default one is different */
	bool has_other_order[MANAGER_RIG_PEERS]; /* it is of a version that did not know the order
						    of ranks */
	bool is_other_kind[MANAGER_RIG_PEERS];   /* it is a server where a switch should be, or vice
						    versa */
	bool is_before[MANAGER_RIG_PEERS];       /* its packets have the version before */
	bool is_silent[MANAGER_RIG_SWITCHES];    /* its host answers no ARP */
	bool sees_others[MANAGER_RIG_SWITCHES];  /* it has heard the other hosts over its first link
						  */
	struct control_client clients[MANAGER_RIG_HOSTS];
};

extern struct manager_rig manager_rig;

/* Starts the manager, connected to all switches. */
void manager_rig_begin(void);

/* Starts it with the maximum of parameter servers. */
void manager_rig_begin_servers(void);

/* Starts it with a topology that lists no hosts. Leaf N has host 1 of 10.0.N.0/24. */
void manager_rig_begin_unlisted(void);

/* Closes it and removes its files. */
void manager_rig_end(void);

/*
 * Restarts it as after a kill: everything that is not in the database is lost. Its switches are
 * unchanged.
 */
void manager_rig_restart(void);

/* Restarts it, with its database changed meanwhile. */
void manager_rig_restart_after(const char *sql);

/* Connects the manager to a switch, and lets it learn the switch's version and state. */
void manager_rig_raise(uint16_t index);

/*
 * Connects the manager to a switch, and lets it ask for the version; the answer may end the
 * connection again.
 */
void manager_rig_try(uint16_t index);

/* Ends the connection to a switch, which has not carried out its pending requests. */
void manager_rig_lose(uint16_t index);

/* Ends the connection to a switch, which has carried out the first pending request. */
void manager_rig_do_unheard(uint16_t index);

bool manager_rig_is_up(uint16_t index);

/* Makes the manager ask a switch for its ports and jobs. */
void manager_rig_look_at(uint16_t index);

/* Lets a switch carry out its next request. Returns false if there is none. */
bool manager_rig_serve_one(uint16_t index);

/* Lets a switch answer all requests. Returns their number. */
unsigned int manager_rig_serve_switch(uint16_t index);

/* Lets all switches answer until there are no more requests. */
void manager_rig_serve_all(void);

/* Returns the next line to a host, a new reference; NULL: there is none. */
json_t *manager_rig_hear(unsigned int rank);

#endif
