/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches ports while the switch runs. When a port comes up, the switch announces its address
 * there: a switch that replaced another one has that one's address, and perhaps another MAC
 * address. If other programs change a port's interface, the watch logs that, and repairs it where
 * possible. A port whose interface was removed is taken down, and opened again if its driver can do
 * that. An XDP program that was detached is attached again. A separate thread asks the kernel
 * (port_query.h). Main thread.
 */
#ifndef FANIN_SWITCH_PORT_WATCH_H
#define FANIN_SWITCH_PORT_WATCH_H

#include "switch/port_query.h"
#include "switch/port_trouble.h"
#include "switch/ports.h"

/* Time between two checks. The kernel is asked again after it has answered. */
#define PORT_WATCH_MS 500u

struct port_watch_entry {
	bool lost; /* the interface on which the port was opened is gone */
	bool told; /* logged: the port can't be opened again, or its program can't be attached */
	bool up;
	uint8_t announcements;   /* announcements left to send */
	uint64_t attach_ms;      /* the program is not attached again before this time */
	uint64_t attach_wait_ms; /* from the next attempt to the one after it; 0: at once */
	uint64_t rx_errors;      /* at the last check */
	uint64_t rx_errors_ms;   /* when the count last rose */
	struct port_trouble troubles[PORT_TROUBLE_COUNT];
};

struct port_watch {
	const struct config *config;
	struct ports *ports;
	struct pipeline *pipeline;
	struct port_query *query;
	uint64_t next_ms;
	uint64_t asked_ms; /* when the kernel was asked; 0: it has answered */
	bool silence_told; /* logged: the kernel has not answered for long */
	bool looked;       /* all ports have been checked once */
	struct port_watch_entry each[CONFIG_MAX_PORTS];
	struct port_answer answers[CONFIG_MAX_PORTS];
};

/* config, ports, pipeline: borrowed. Returns 0, or -errno. */
int port_watch_open(struct port_watch *watch, const struct config *config, struct ports *ports,
		    struct pipeline *pipeline);

/* Call this before the ports are stopped. */
void port_watch_close(struct port_watch *watch);

/* Returns a descriptor that is readable when port_watch_serve has work. */
int port_watch_fd(const struct port_watch *watch);

/*
 * Call this often. Asks the kernel at once and then every PORT_WATCH_MS, and checks the ports when
 * it answers.
 */
void port_watch_serve(struct port_watch *watch);

#endif
