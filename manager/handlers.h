/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which handlers the switches have, as they say themselves: the manager knows none by name. Main thread.
 */
#ifndef FANIN_MANAGER_HANDLERS_H
#define FANIN_MANAGER_HANDLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "manager/manager.h"

/* A job's handler, where hosts leave it to the network. */
#define HANDLERS_AUTO "auto"

/*
 * The handler that is meant by a name.
 *
 * name: any but HANDLERS_AUTO is returned. reproducible: the job's sums have to be.
 * Returns a string of a switch's, or name, which HANDLERS_AUTO stays as long as no switch has been heard.
 */
const char *handlers_resolve(const struct manager *manager, const char *name, bool reproducible);

/*
 * Packets that a slot of a handler holds on a switch at most.
 *
 * n_children: of the job at that switch. Returns 0 if the switch has no such handler.
 */
uint32_t handlers_slot_mbufs(const struct peer *peer, const char *name, uint32_t n_children);

#endif
