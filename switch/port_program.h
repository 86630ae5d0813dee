/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program that passes frames to an AF_XDP port's sockets. DPDK's driver attaches it in a
 * way that lets any program detach it (`ip link set DEV xdp off`); after that, all frames bypass
 * the switch. One thread at a time: all functions wait for the kernel's lock on interfaces.
 */
#ifndef FANIN_SWITCH_PORT_PROGRAM_H
#define FANIN_SWITCH_PORT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PORT_PROGRAM_TEXT_LEN 160

struct port_program {
	/* id of the program at the interface: this program, or libxdp's dispatcher that calls it */
	uint32_t attached;
	uint32_t own; /* id of the program that has the sockets; 0: unknown */
	/*
	 * descriptor of that program if an interface takes it directly; -1: only a dispatcher does
	 */
	int own_fd;
	int map_fd;   /* its sockets by queue */
	int link_fd;  /* BPF link of the program that was attached again; -1: none */
	bool generic; /* attached outside of the interface's driver */
};

#define PORT_PROGRAM_NONE ((struct port_program){ .own_fd = -1, .map_fd = -1, .link_fd = -1 })

/* The program that the interface has now. */
enum port_program_state {
	PORT_PROGRAM_ATTACHED,
	PORT_PROGRAM_OFF,    /* none */
	PORT_PROGRAM_FOREIGN /* another program */
};

/*
 * Finds the program that a driver has just attached to an interface. Returns 0 with *program
 * filled, to be released; or -ENOENT with the reason in text (PORT_PROGRAM_TEXT_LEN bytes): no
 * program has a map of AF_XDP sockets, or there are several such maps.
 */
int port_program_find(unsigned int ifindex, struct port_program *program, char *text);

/*
 * Checks whether the interface still has the program. id: of the interface's program; 0: none.
 * text: PORT_PROGRAM_TEXT_LEN bytes: what was found instead; untouched if the program is attached.
 */
enum port_program_state port_program_look(struct port_program *program, unsigned int ifindex,
					  uint32_t id, char *text);

/*
 * Gives an interface without a program one that passes frames to the same sockets, in the same
 * mode. It is attached as a BPF link, which `ip link` does not detach, and which ends with this
 * process. text: as above, the reason for a failure. Returns 0 or -errno.
 */
int port_program_attach(struct port_program *program, unsigned int ifindex, char *text);

/* Detaches a program that was attached again, and closes all descriptors. */
void port_program_release(struct port_program *program);

#endif
