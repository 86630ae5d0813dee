/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks after ports while the switch runs. On one that comes up the switch announces its address: a switch that took another
 * one's place has its address, and perhaps another MAC address. A socket on a kernel interface is dead for good once that interface is removed, even if
 * another one gets its name: the port is taken down, and opened anew if its driver can do that. Main thread.
 */
#ifndef FANIN_SWITCH_PORT_WATCH_H
#define FANIN_SWITCH_PORT_WATCH_H

#include "switch/ports.h"

struct port_watch {
	const struct config *config;
	struct ports *ports;
	struct pipeline *pipeline;
	uint64_t next_ms;
	bool looked; /* at all ports once */
	struct {
		bool lost; /* what it was opened on is gone */
		bool told; /* that it can't be opened anew */
		bool up;
		uint8_t announcements; /* that are left */
	} each[CONFIG_MAX_PORTS];
};

/* watch: zeroed but for its pointers. To be called often; looks at once and then each second. */
void port_watch_serve(struct port_watch *watch);

#endif
