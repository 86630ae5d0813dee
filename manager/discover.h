/* SPDX-License-Identifier: BSD-3-Clause */
/* Where hosts are that the topology does not list. Main thread. */
#ifndef FANIN_MANAGER_DISCOVER_H
#define FANIN_MANAGER_DISCOVER_H

#include <stdint.h>

struct manager;
struct group;

/*
 * All ranks of a group have come, and are in order: installs it as soon as it is known where its
 * hosts are, at once if all are listed. Those that are not are asked for at the switches, if the
 * topology allows it; what none finds in time can't be installed. The group is GATHERING until
 * then.
 */
void discover_and_install(struct manager *manager, struct group *group);

/*
 * Ends the search for a group's hosts, if there is one: it is not complete any more, or is freed.
 */
void discover_end(struct manager *manager, const struct group *group);

/*
 * Asks again where it is time to, and ends searches. Returns when to be called next, in
 * milliseconds of clock_ms.
 */
uint64_t discover_tick(struct manager *manager, uint64_t now_ms);

#endif
