/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port on a packet socket (packet(7)) of a kernel interface, the switch's own instead of DPDK's
 * net_af_packet: that one takes frames for sent which the kernel refused, never asks the socket
 * what it dropped, and has fragments reassembled.
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
	uint16_t udp_port; /* Fanin's: packets from and to it leave and come in super-frames. Host
			      order */
	uint32_t frame_bytes; /* of the receive ring; 0: as the MTU needs */
	uint32_t n_frames;    /* of the receive ring; 0: chosen by the frames' size */
	/*
	 * Frames go to the interface's driver without its queue discipline, those of each queue up
	 * to its first super-frame of others.
	 */
	bool qdisc_bypass;
	struct rte_mempool *pool;
};

extern const struct port_driver packet_port_driver;

/*
 * Opens the port: from here on frames come in. Needs CAP_NET_RAW. Main thread.
 *
 * error: PACKET_PORT_ERROR_LEN bytes. Returns 0 and sets *port, to be closed with the driver's
 * close; or -errno with *error filled.
 */
int packet_port_open(const struct packet_port_options *options, struct packet_port **port,
		     char *error);

/*
 * Opens the sockets anew, after the interface was removed and another one of its name was made. The
 * port and its queues keep their addresses and counters. No worker may use the port meanwhile. Main
 * thread.
 *
 * error: PACKET_PORT_ERROR_LEN bytes. Returns 0, or -errno with *error filled; the port is then
 * silent, and it may be tried again.
 */
int packet_port_reopen(struct packet_port *port, char *error);

/*
 * Says whether the port's interface takes super-frames of UDP, as super_frame_interface_takes
 * knows. Else Fanin's frames leave one by one. Returns true if what they do changes. Main thread.
 */
bool packet_port_set_whole(struct packet_port *port, bool interface_takes);

/* Do Fanin's frames leave in super-frames? Main thread. */
bool packet_port_is_whole(const struct packet_port *port);

/*
 * What this kernel does with super-frames of UDP, as it was when the port was opened. Main thread.
 */
enum super_frame_kernel packet_port_kernel(const struct packet_port *port);

/*
 * Are all sockets on the interface of this number? They leave it for good when it is removed, or
 * leaves the network namespace. Main thread.
 */
bool packet_port_is_bound(const struct packet_port *port, unsigned int ifindex);

#endif
