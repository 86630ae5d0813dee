/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memif transport: frames in memory that is shared with a switch on the same machine, without a
 * kernel interface. The host has the address that the user gives and a MAC address made from it,
 * and finds the switch's MAC address by ARP over the ring. See transport.h for the frames.
 */
#ifndef FANIN_HOSTLIB_MEMIF_H
#define FANIN_HOSTLIB_MEMIF_H

#include "transport.h"

/* Maximum MTU of the switch; buffers hold more. */
#define FANIN_MEMIF_MTU 61184u

struct fanin_memif_options {
	const char *socket; /* path */
	uint32_t id;        /* of the switch's port */
	uint32_t local_ip_be;
	uint8_t local_mac[6];
};

extern const struct fanin_transport_ops fanin_memif_ops;

/*
 * Connects to the switch's socket. Blocks, for a few seconds at most.
 *
 * options: the socket's path must live until the switch is resolved. transport: set on success
 * only; close with its ops. Returns FANIN_OK, FANIN_ERR_TRANSPORT, FANIN_ERR_PERMISSION,
 * FANIN_ERR_NO_MEMORY or FANIN_ERR_SYSTEM.
 */
int fanin_memif_open(const struct fanin_memif_options *options, struct fanin_transport **transport,
		     struct fanin_error *error);

/*
 * Asks for the switch's MAC address by ARP (RFC 826), repeatedly until the deadline.
 *
 * deadline_ns: on the clock of fanin_now_ns. mac: 6 bytes, set on success only.
 * Returns FANIN_OK, FANIN_ERR_NO_ROUTE or FANIN_ERR_INTERRUPTED.
 */
int fanin_memif_resolve(struct fanin_transport *transport, uint32_t switch_ip_be,
			uint64_t deadline_ns, fanin_interrupt_fn interrupt, void *interrupt_arg,
			uint8_t *mac, struct fanin_error *error);

/* From now on the transport receives only Fanin packets of this job. */
void fanin_memif_filter(struct fanin_transport *transport, uint32_t job, uint16_t udp_port);

/* Makes room for the results of a window, once its size is known. */
void fanin_memif_expect(struct fanin_transport *transport, uint16_t window);

#endif
