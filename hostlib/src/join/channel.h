/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The channel of control packets (JOIN, LEAVE and their answers) to the switch and back: an
 * ordinary UDP socket where the kernel does ARP and routing (channel_udp.c), or frames of a
 * transport without a kernel interface (channel_frames.c). One thread at a time.
 */
#ifndef FANIN_HOSTLIB_CHANNEL_H
#define FANIN_HOSTLIB_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/transport/inflow.h"
#include "hostlib/src/transport/route.h"
#include "hostlib/src/transport/transport.h"
#include "wire/wire.h"

/* A control packet as on the link. */
struct fanin_control {
	struct fanin_headers headers;
	union {
		struct fanin_join_body join;
		struct fanin_join_ack_body join_ack;
		uint8_t bytes[256 + sizeof(struct fanin_ranks) + FANIN_TAG_LEN]; /* any body, and
										    its tag */
	} body;
};

struct fanin_channel;

struct fanin_channel_ops {
	/*
	 * Sends a packet whose Fanin header and body are filled in. body_len: includes the tag, if
	 * there is one. Returns 0 or the link's last errno.
	 */
	int (*send)(struct fanin_channel *channel, struct fanin_control *control, size_t body_len);

	/*
	 * Receives one packet that claims to come from the switch, with all headers in place; not
	 * validated otherwise.
	 *
	 * errnum: set if the link reports an error. Returns the length from the Ethernet header on;
	 * 0: there is no packet.
	 */
	size_t (*receive)(struct fanin_channel *channel, struct fanin_control *control,
			  int *errnum);

	/*
	 * Sends two packets of the same length as one super-frame, filled in as for send. NULL:
	 * this channel has no super-frames. Returns 0, or the errno with which the kernel refuses
	 * them.
	 */
	int (*send_pair)(struct fanin_channel *channel, struct fanin_control pair[2],
			 size_t body_len);

	/* Sleeps until there may be something to receive, or a signal comes. */
	void (*wait)(struct fanin_channel *channel, int timeout_ms);

	void (*close)(struct fanin_channel *channel);
};

struct fanin_channel {
	const struct fanin_channel_ops *ops; /* NULL: not open */
	int fd;                              /* UDP: connected to the switch */
	int data_fd; /* UDP: a second socket to the switch, for packets to this host alone; -1: the
			transport has it, or there is none */
	uint16_t data_port;                /* its port, as named in JOIN */
	uint16_t join_port;                /* UDP: source port of JOINs */
	uint16_t udp_port;                 /* of the switch */
	struct fanin_transport *transport; /* of the frames; not owned */
	struct fanin_flow flow;
	struct fanin_inflow at_open; /* UDP: of this host, when it was opened */
};

/*
 * Opens two UDP sockets to the switch: one that sends JOINs and stays open for PROBEs, and one for
 * the transport. Both get their ports from the kernel.
 *
 * bind_interface: the user named the interface, so the kernel must not choose another one. channel:
 * set on success only. Returns FANIN_OK or a negative status.
 */
int fanin_channel_udp(struct fanin_channel *channel, const struct fanin_route *route,
		      uint16_t udp_port, bool bind_interface, struct fanin_error *error);

/* Joins a multicast group on the interface, as long as the UDP channel is open. */
int fanin_channel_udp_group(struct fanin_channel *channel, uint32_t group_be,
			    const struct fanin_route *route, struct fanin_error *error);

/*
 * Reserves the UDP port of a host that joins no switch: otherwise the kernel would answer packets
 * to it with ICMP errors, as it does not know that the transport receives them. The kernel drops
 * all packets to this socket; several jobs of a host may reserve the same port.
 *
 * channel: set on success only; can't send control packets. Returns FANIN_OK or a negative status.
 */
int fanin_channel_udp_port(struct fanin_channel *channel, const struct fanin_route *route,
			   uint16_t udp_port, struct fanin_error *error);

/*
 * Opens a channel whose control packets are frames. flow: to the switch. The transport must stay
 * open.
 */
void fanin_channel_frames(struct fanin_channel *channel, struct fanin_transport *transport,
			  const struct fanin_flow *flow);

#endif
