/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Follows the switches: their properties and jobs, and what changes mean for groups. Main thread.
 */
#ifndef FANIN_MANAGER_RECONCILE_H
#define FANIN_MANAGER_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>

struct manager;
struct group;
struct peer;
struct topology_end;

/* Asks a switch that has connected for its properties and jobs. */
void reconcile_ready(void *user, struct peer *peer);

/* Handles the loss of a switch. */
void reconcile_lost(void *user, struct peer *peer);

/* Sends the pings and comparisons that are due. */
void reconcile_tick(struct manager *manager, struct peer *peer, uint64_t now_ms);

/*
 * Returns when reconcile_tick has to be called for a switch, in milliseconds of clock_ms. Any
 * message from the switch may change that.
 */
uint64_t reconcile_due(const struct peer *peer);

/*
 * True if one of the group's nodes is at the switch; with a port, if one of the group's links or
 * hosts is at that port.
 */
bool group_uses(const struct manager *manager, const struct group *group, uint16_t switch_index,
		const char *port);

/*
 * True if a switch has room for one more job once pending requests are done. A place that the group
 * has there counts as free, since it is given up before the group gets another one.
 */
bool group_has_room(const struct manager *manager, const struct group *group,
		    const struct peer *peer);

/*
 * Sets how many jobs a switch has now. If it was full and has room now, jobs that found no room
 * there are tried again.
 */
void peer_note_jobs(struct manager *manager, struct peer *peer, uint32_t n_jobs);

/* True if a switch has reported that a port is down. */
bool peer_port_is_down(const struct peer *peer, const char *port);

/*
 * Returns the name of the port at an end of a link. A server reports the name of its port; it is ""
 * until then.
 */
const char *peer_port_of(const struct manager *manager, const struct topology_end *end);

/* True if the switch or server at an end of a link has reported that the port there is down. */
bool peer_end_is_down(const struct manager *manager, const struct topology_end *end);

#endif
