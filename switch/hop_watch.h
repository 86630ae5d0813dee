/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks after next hops while the switch runs: probes, the links of their ports, and a line in the
 * log for each that dies or comes back. Main thread.
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
 * To be called when it is due, or sooner. Returns in how many milliseconds it is due again; most_ms
 * at most.
 */
int hop_watch_serve(struct hop_watch *watch, int most_ms);

#endif
