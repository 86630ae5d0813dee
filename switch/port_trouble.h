/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reasons why frames don't get through a port that the switch itself has not closed: kinds with
 * their names, for the log, faninctl and metrics.
 */
#ifndef FANIN_SWITCH_PORT_TROUBLE_H
#define FANIN_SWITCH_PORT_TROUBLE_H

#include <stdbool.h>
#include <stdint.h>

#define PORT_TROUBLE_TEXT_LEN 224

/* X(enumerator, name, what it means) */
#define PORT_TROUBLES(X)                                                                           \
	X(INTERFACE, "interface", "the port's interface is gone, renamed, or another one")         \
	X(SOCKET, "socket", "the port's socket is not on its interface any more")                  \
	X(PROGRAM, "xdp_program", "the port's XDP program was taken off, or replaced")             \
	X(LINK, "link", "the interface is set down, or has no carrier")                            \
	X(MTU, "mtu", "the interface's MTU is less than the port's")                               \
	X(QUEUES, "queues", "the interface has receive queues that the port does not serve")       \
	X(PROMISCUOUS, "promiscuous", "promiscuous mode was taken off")                            \
	X(MASTER, "master", "a bridge or bond has the interface, too")                             \
	X(FRAMES, "frames", "frames come in that are longer than the port takes, or damaged")

enum port_trouble_kind {
#define PORT_TROUBLE_ENUM(kind, name, text) PORT_TROUBLE_##kind,
	PORT_TROUBLES(PORT_TROUBLE_ENUM)
#undef PORT_TROUBLE_ENUM
	PORT_TROUBLE_COUNT,
};

/* The state of one kind of trouble at a port. */
struct port_trouble {
	bool now;
	uint64_t count; /* number of times that it has begun */
	/* what was found and expected the last time; empty: never */
	char text[PORT_TROUBLE_TEXT_LEN];
};

/* Returns a kind's name, such as "xdp_program". */
const char *port_trouble_name(enum port_trouble_kind kind);

#endif
