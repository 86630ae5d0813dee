/* SPDX-License-Identifier: BSD-3-Clause */
/* Follows the switches: what each one is and has, and what that means to groups. Main thread. */
#ifndef FANIN_MANAGER_RECONCILE_H
#define FANIN_MANAGER_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>

struct manager;
struct group;
struct peer;
struct topology_end;

/* A switch can be asked: learns what it is and has. */
void reconcile_ready(void *user, struct peer *peer);

/* A switch is lost. */
void reconcile_lost(void *user, struct peer *peer);

/* Pings and comparisons that are due. */
void reconcile_tick(struct manager *manager, struct peer *peer, uint64_t now_ms);

/*
 * When reconcile_tick has something to do for a switch, in milliseconds of clock_ms, as things are:
 * whatever comes from the switch may change that.
 */
uint64_t reconcile_due(const struct peer *peer);

/*
 * True if one of the group's nodes is at the switch; with a port, if one of its links or hosts is
 * at that.
 */
bool group_uses(const struct manager *manager, const struct group *group, uint16_t switch_index,
		const char *port);

/*
 * True if a switch has room for one more job when it has done what it was asked. A place that the
 * group has there counts as free: it is given up before the group gets another one.
 */
bool group_has_room(const struct manager *manager, const struct group *group,
		    const struct peer *peer);

/*
 * Notes how many jobs a switch has now. Jobs that have found no room there are tried again if there
 * is some.
 */
void peer_note_jobs(struct manager *manager, struct peer *peer, uint32_t n_jobs);

/* True if a switch says that one of its ports is down. */
bool peer_port_is_down(const struct peer *peer, const char *port);

/*
 * The name of the port at an end of a link; of a server's the one that it tells, "" as long as it
 * has not been heard.
 */
const char *peer_port_of(const struct manager *manager, const struct topology_end *end);

/* True if the switch or server at an end of a link says that the port there is down. */
bool peer_end_is_down(const struct manager *manager, const struct topology_end *end);

#endif
