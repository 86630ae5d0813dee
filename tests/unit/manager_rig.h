/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A manager in the test's hands. All of it is there, with its database in a directory of its own;
 * switches and hosts are the test's ends of their connections, and a switch does what it is asked
 * when the test says so. Two hosts: rank 0 has links to leaf0 and leaf2, rank 1 one to leaf1; each
 * leaf has one to each of three spines. Parameter servers there are if a test wants them: server0
 * is at spine0, server1 at spine1.
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
#define MANAGER_RIG_PORTS 8 /* u0 to u2, p0 to p2, h0, s0; of a server the last one alone */

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
	json_t *jobs[MANAGER_RIG_PEERS];    /* that a switch has: their owners by number */
	json_t *created[MANAGER_RIG_PEERS]; /* the last job that a switch made, as it was asked for;
					       NULL: none */
	uint32_t max_jobs;                  /* of each switch; learned when it is looked at */
	bool full[MANAGER_RIG_PEERS];       /* it makes no job */
	bool port_is_down[MANAGER_RIG_PEERS][MANAGER_RIG_PORTS];
	bool is_old[MANAGER_RIG_SWITCHES];          /* it does not know hosts.find */
	bool has_old_handlers[MANAGER_RIG_PEERS];   /* it does not tell what they need */
	bool has_other_handlers[MANAGER_RIG_PEERS]; /* its usual one is another */
	bool has_other_order[MANAGER_RIG_PEERS]; /* it is of a version that did not know the order
						    of ranks */
	bool is_other_kind[MANAGER_RIG_PEERS];   /* it is a server where a switch should be, or the
						    other way round */
	bool is_before[MANAGER_RIG_PEERS];       /* its packets are of the version before */
	bool is_silent[MANAGER_RIG_SWITCHES];    /* its host answers no ARP */
	bool sees_others[MANAGER_RIG_SWITCHES];  /* it has heard the others' hosts over its first
						    link */
	struct control_client clients[MANAGER_RIG_HOSTS];
};

extern struct manager_rig manager_rig;

/* Starts the manager, connected to all switches. */
void manager_rig_begin(void);

/* The same with parameter servers, as many as there may be. */
void manager_rig_begin_servers(void);

/* The same with a topology that lists no hosts. Of 10.0.N.0/24 the leaf N has the host 1. */
void manager_rig_begin_unlisted(void);

/* Closes it and removes its files. */
void manager_rig_end(void);

/* As after a kill: what is not in the database is forgotten. Its switches are as they were. */
void manager_rig_restart(void);

/* The same, with something done to its database meanwhile. */
void manager_rig_restart_after(const char *sql);

/* The manager is connected to a switch, and has learned what it is and has. */
void manager_rig_raise(uint16_t index);

/* The manager connects to a switch, and asks what it is; it may go away again for the answer. */
void manager_rig_try(uint16_t index);

/* The connection to a switch is lost; what it had been asked, it has not done. */
void manager_rig_lose(uint16_t index);

/* The same, but the next thing that it had been asked it has done. */
void manager_rig_do_unheard(uint16_t index);

bool manager_rig_is_up(uint16_t index);

/* The manager asks a switch for its ports and jobs. */
void manager_rig_look_at(uint16_t index);

/* A switch does the next thing that it is asked. Returns false if there is none. */
bool manager_rig_serve_one(uint16_t index);

/* A switch answers all that it has been asked. Returns how much that was. */
unsigned int manager_rig_serve_switch(uint16_t index);

/* All switches answer until nobody is asked any more. */
void manager_rig_serve_all(void);

/* The next line that a host is sent, a new reference; NULL: there is none. */
json_t *manager_rig_hear(unsigned int rank);

#endif
