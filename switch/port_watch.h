/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks after ports while the switch runs. On one that comes up the switch announces its address: a switch that took another one's
 * place has its address, and perhaps another MAC address. What others on the machine do to a port's interface is told, and mended
 * where that is possible: a port whose interface was removed is taken down, and opened anew if its driver can do that; an XDP program
 * that was taken off is attached again. Main thread.
 */
#ifndef FANIN_SWITCH_PORT_WATCH_H
#define FANIN_SWITCH_PORT_WATCH_H

#include "switch/port_trouble.h"
#include "switch/ports.h"

/* How often it looks. */
#define PORT_WATCH_MS 500u

struct port_watch_entry {
	bool lost; /* what it was opened on is gone */
	bool told; /* that it can't be opened anew, or its program not be attached */
	bool up;
	uint8_t announcements;   /* that are left */
	uint64_t attach_ms;      /* the program is not attached again before */
	uint64_t attach_wait_ms; /* from the next time to the one after it; 0: at once */
	uint64_t rx_errors;      /* at the last look */
	uint64_t rx_errors_ms;   /* when there were last more of them */
	struct port_trouble troubles[PORT_TROUBLE_COUNT];
};

struct port_watch {
	const struct config *config;
	struct ports *ports;
	struct pipeline *pipeline;
	uint64_t next_ms;
	bool looked; /* at all ports once */
	struct port_watch_entry each[CONFIG_MAX_PORTS];
};

/* watch: zeroed but for its pointers. To be called often; looks at once and then each PORT_WATCH_MS. */
void port_watch_serve(struct port_watch *watch);

#endif
