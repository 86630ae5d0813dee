/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port on a packet socket (packet(7)) of a kernel interface. It replaces DPDK's net_af_packet,
 * which counts frames as sent that the kernel refused, never asks the socket for its drops, and
 * lets fragments be reassembled.
 */
#ifndef FANIN_SWITCH_PACKET_PORT_H
#define FANIN_SWITCH_PACKET_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "pipeline/base/port_driver.h"
#include "switch/super_frame_kernel.h"

#define PACKET_PORT_MAX_QUEUES 16
#define PACKET_PORT_ERROR_LEN 256

struct packet_port;

struct packet_port_options {
	const char *interface;
	uint16_t number; /* mbuf->port of its frames */
	uint16_t mtu;
	uint16_t n_queues;
	/* Fanin's port: packets from and to it travel in super-frames. Host order */
	uint16_t udp_port;
	uint32_t frame_bytes; /* size of a frame in the receive ring; 0: as the MTU needs */
	/* number of frames in the receive ring; 0: chosen by the frames' size */
	uint32_t n_frames;
	/*
	 * Frames skip the interface's queue discipline and go to its driver. A queue stops that at
	 * its first super-frame of other traffic.
	 */
	bool qdisc_bypass;
	struct rte_mempool *pool;
};

extern const struct port_driver packet_port_driver;

/*
 * Opens the port, which receives frames from then on. Needs CAP_NET_RAW. Main thread. error:
 * PACKET_PORT_ERROR_LEN bytes. Returns 0 and sets *port, to be closed with the driver's close; or
 * -errno with *error filled.
 */
int packet_port_open(const struct packet_port_options *options, struct packet_port **port,
		     char *error);

/*
 * Opens the sockets again, after the interface was removed and another one with its name was made.
 * The port and its queues keep their addresses and counters. No worker may use the port meanwhile.
 * Main thread. error: PACKET_PORT_ERROR_LEN bytes. Returns 0, or -errno with *error filled; the
 * port is then silent, and the call may be repeated.
 */
int packet_port_reopen(struct packet_port *port, char *error);

/*
 * Sets whether the port's interface takes super-frames of UDP, as super_frame_interface_takes
 * finds. Otherwise Fanin's frames leave one by one. Returns true if this changes how they leave.
 * Main thread.
 */
bool packet_port_set_whole(struct packet_port *port, bool interface_takes);

/* True if Fanin's frames leave in super-frames. Main thread. */
bool packet_port_is_whole(const struct packet_port *port);

/* Returns how this kernel handled super-frames of UDP when the port was opened. Main thread. */
enum super_frame_kernel packet_port_kernel(const struct packet_port *port);

/*
 * True if all sockets are on the interface with this number. They leave it for good when it is
 * removed, or leaves the network namespace. Main thread.
 */
bool packet_port_is_bound(const struct packet_port *port, unsigned int ifindex);

#endif
