/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looks after ports while the switch runs. On one that comes up the switch announces its address: a
 * switch that took another one's place has its address, and perhaps another MAC address. What
 * others on the machine do to a port's interface is told, and mended where that is possible: a port
 * whose interface was removed is taken down, and opened anew if its driver can do that; an XDP
 * program that was taken off is attached again. The kernel is asked on a thread of its own
 * (port_query.h). Main thread.
 */
#ifndef FANIN_SWITCH_PORT_WATCH_H
#define FANIN_SWITCH_PORT_WATCH_H

#include "switch/port_query.h"
#include "switch/port_trouble.h"
#include "switch/ports.h"

/* How often it looks. The kernel is asked again when it has answered. */
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
	struct port_query *query;
	uint64_t next_ms;
	uint64_t asked_ms; /* when the kernel was asked; 0: it has answered */
	bool silence_told; /* that it has not for long */
	bool looked;       /* at all ports once */
	struct port_watch_entry each[CONFIG_MAX_PORTS];
	struct port_answer answers[CONFIG_MAX_PORTS];
};

/* config, ports, pipeline: borrowed. Returns 0, or -errno. */
int port_watch_open(struct port_watch *watch, const struct config *config, struct ports *ports,
		    struct pipeline *pipeline);

/* Before the ports are stopped. */
void port_watch_close(struct port_watch *watch);

/* A descriptor that is readable when port_watch_serve has something to do. */
int port_watch_fd(const struct port_watch *watch);

/*
 * To be called often; asks the kernel at once and then each PORT_WATCH_MS, and looks when it
 * answers.
 */
void port_watch_serve(struct port_watch *watch);

#endif
