/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds hosts that the topology does not list. Main thread. */
#ifndef FANIN_MANAGER_DISCOVER_H
#define FANIN_MANAGER_DISCOVER_H

#include <stdint.h>

struct manager;
struct group;

/*
 * Installs a group whose ranks have all joined and are in order, as soon as the places of its hosts
 * are known: at once if the topology lists them all. Otherwise asks the switches for the others, if
 * the topology allows that; a group with a host that is not found in time can't be installed. The
 * group is GATHERING until then.
 */
void discover_and_install(struct manager *manager, struct group *group);

/*
 * Ends the search for a group's hosts, if there is one: the group is no longer complete, or is
 * about to be freed.
 */
void discover_end(struct manager *manager, const struct group *group);

/*
 * Repeats requests that are due, and ends searches. Returns when to be called next, in milliseconds
 * of clock_ms.
 */
uint64_t discover_tick(struct manager *manager, uint64_t now_ms);

#endif
