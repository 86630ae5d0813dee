/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches next hops while the switch runs: sends probes, follows the links of their ports, and logs
 * each next hop that dies or comes back. Main thread.
 */
#ifndef FANIN_SWITCH_HOP_WATCH_H
#define FANIN_SWITCH_HOP_WATCH_H

#include "switch/ports.h"

struct hop_watch;

/* config, ports, pipeline: borrowed. Returns NULL without memory. */
struct hop_watch *hop_watch_create(const struct config *config, const struct ports *ports,
				   struct pipeline *pipeline);

/* May be NULL. */
void hop_watch_free(struct hop_watch *watch);

/*
 * Call this when it is due, or sooner. Returns in how many milliseconds it is due again, at most
 * max_ms.
 */
int hop_watch_serve(struct hop_watch *watch, int max_ms);

#endif
