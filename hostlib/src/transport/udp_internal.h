/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of the transport over UDP sockets, shared by udp_open.c (opening) and udp.c (use). See
 * udp.c.
 */
#ifndef FANIN_HOSTLIB_UDP_INTERNAL_H
#define FANIN_HOSTLIB_UDP_INTERNAL_H

#include <netinet/in.h>
#include <sys/uio.h>

#include "inflow.h"
#include "segments.h"
#include "transport.h"

/* Sockets, and so source ports, of a host that joins no switch. */
#define FANIN_UDP_PATHS 8

/*
 * Doubt about super-frames: a packet that was lost twice in super-frames raises it by the step, and
 * each other packet lowers it by 1; at the maximum, super-frames are not sent any more.
 */
#define FANIN_UDP_DOUBT_STEP 64u
#define FANIN_UDP_DOUBT_MAX (16 * FANIN_UDP_DOUBT_STEP)

/* Packets of one kind that have not left yet. */
struct fanin_udp_batch {
	int fd;
	struct sockaddr_in to;
	uint8_t tos;
	bool closed;  /* the last packet is shorter, or the rest could not leave: takes no more */
	bool is_late; /* a flush found no room: all packets are in `late` */
	unsigned int n_packets;
	unsigned int n_parts;
	uint32_t size;  /* of the first packet from its Fanin header on, bytes */
	uint32_t bytes; /* of all packets */
	uint32_t used;  /* of copies */
	uint16_t first_part[FANIN_SUPER_FRAME_PACKETS];
	struct iovec parts[2 * FANIN_SUPER_FRAME_PACKETS];
	uint8_t copies[FANIN_SUPER_FRAME_BYTES]; /* headers, and payloads that are copied */
	uint8_t late[FANIN_SUPER_FRAME_BYTES]; /* all packets, if they could not leave at a flush */
};

struct fanin_sockets {
	struct fanin_transport transport;
	struct fanin_log log;
	uint32_t switch_ip_be; /* address that the sockets are connected to; 0: none, as packets go
				  to many */
	const uint8_t *switch_mac; /* 6 bytes, may change */
	int data_fd;
	int group_fd;
	int tx_fds[FANIN_UDP_PATHS]; /* only data_fd, if there is a switch */
	unsigned int n_tx_fds;
	bool super_frames; /* super-frames are sent */
	bool is_told;      /* why no super-frames are sent has been told */
	bool alone;        /* the packets sent now leave alone */
	uint32_t doubt; /* about super-frames: raised by each packet that was lost twice, lowered by
			   all others */
	uint32_t frame_memory;          /* approximate kernel memory for a sent packet, bytes */
	uint32_t rx_room;               /* maximum of the job's packets that wait in a socket */
	int tx_errnum;                  /* errno since the last flush; 0: nothing was refused */
	bool heard_alone;               /* packets to this host alone have come, */
	bool heard_group;               /* and packets to the group */
	struct fanin_inflow at_open;    /* of this host, when the sockets were opened */
	struct fanin_headers data_like; /* headers of received packets, from Ethernet to UDP */
	struct fanin_headers group_like;
	struct fanin_segments *of_group; /* received packets to the group, */
	struct fanin_segments *of_host;  /* and to this host alone */
	struct fanin_udp_batch batch;
};

extern const struct fanin_transport_ops fanin_udp_ops;

/* Closes all open sockets, and frees the transport. */
void fanin_udp_free(struct fanin_sockets *udp);

#endif
