/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program that brings frames to an AF_XDP port's sockets. DPDK's driver attaches it in a
 * way that lets everybody take it off again (`ip link set DEV xdp off`); from then on all frames
 * pass the switch by. One thread at a time: all of this waits for the kernel's lock on interfaces.
 */
#ifndef FANIN_SWITCH_PORT_PROGRAM_H
#define FANIN_SWITCH_PORT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PORT_PROGRAM_TEXT_LEN 160

struct port_program {
	uint32_t attached; /* id of what is at the interface: the program, or libxdp's dispatcher
			      that calls it */
	uint32_t own;      /* id of the program that has the sockets; 0: it is not known */
	int own_fd;        /* it, if an interface takes it as it is; -1: a dispatcher alone does */
	int map_fd;        /* its sockets by queue */
	int link_fd;       /* of what was attached again; -1: nothing was */
	bool generic;      /* not in the interface's driver */
};

#define PORT_PROGRAM_NONE ((struct port_program){ .own_fd = -1, .map_fd = -1, .link_fd = -1 })

/* What the interface has in the place of the program. */
enum port_program_state {
	PORT_PROGRAM_ATTACHED,
	PORT_PROGRAM_OFF,    /* none */
	PORT_PROGRAM_FOREIGN /* another one */
};

/*
 * Finds what a driver has just attached to an interface. Returns 0 with *program filled, to be
 * released; or -ENOENT with text (PORT_PROGRAM_TEXT_LEN bytes) why: there is no program with a map
 * of AF_XDP sockets, or there are several such maps.
 */
int port_program_find(unsigned int ifindex, struct port_program *program, char *text);

/*
 * Is the program what the interface has? id: of that; 0: none. text: PORT_PROGRAM_TEXT_LEN bytes:
 * what was found instead; untouched if it is attached.
 */
enum port_program_state port_program_look(struct port_program *program, unsigned int ifindex,
					  uint32_t id, char *text);

/*
 * Gives an interface without a program one that brings frames to the same sockets, in the same
 * mode. It is attached as a link of BPF, which `ip link` does not take off, and goes with this
 * process. text: as above, why not. Returns 0 or -errno.
 */
int port_program_attach(struct port_program *program, unsigned int ifindex, char *text);

/* Takes off what was attached again, and closes all. */
void port_program_release(struct port_program *program);

#endif
