/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport over UDP sockets, between opening it (udp_open.c) and using it (udp.c). See udp.c.
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
 * A packet that was lost twice in super-frames raises the doubt by so much, each other one lowers
 * it by 1; at so much none are sent any more.
 */
#define FANIN_UDP_DOUBT_STEP 64u
#define FANIN_UDP_DOUBT_MAX (16 * FANIN_UDP_DOUBT_STEP)

/* Packets that are alike, and have not left yet. */
struct fanin_udp_batch {
	int fd;
	struct sockaddr_in to;
	uint8_t tos;
	bool closed;  /* the last packet is shorter, or the rest could not leave: takes no more */
	bool is_late; /* a flush found no room: all of it is in `late` */
	unsigned int n_packets;
	unsigned int n_parts;
	uint32_t size;  /* of the first packet from its Fanin header on, bytes */
	uint32_t bytes; /* of all */
	uint32_t used;  /* of copies */
	uint16_t first_part[FANIN_SUPER_FRAME_PACKETS];
	struct iovec parts[2 * FANIN_SUPER_FRAME_PACKETS];
	uint8_t copies[FANIN_SUPER_FRAME_BYTES]; /* headers, and what is not sent from where it lies
						  */
	uint8_t late[FANIN_SUPER_FRAME_BYTES];   /* all of it, if it could not leave at a flush */
};

struct fanin_sockets {
	struct fanin_transport transport;
	struct fanin_log log;
	uint32_t switch_ip_be; /* that the sockets are connected to; 0: to none, as packets go to
				  many */
	const uint8_t *switch_mac; /* 6 bytes, may change */
	int data_fd;
	int group_fd;
	int tx_fds[FANIN_UDP_PATHS]; /* data_fd alone, where there is a switch */
	unsigned int n_tx_fds;
	bool super_frames; /* are sent */
	bool is_told;      /* that none are */
	bool alone;        /* but not of what is sent now */
	uint32_t doubt; /* whether they pass: more with each packet that was lost twice, less with
			   all others */
	uint32_t frame_memory;          /* about what the kernel takes for a sent packet, bytes */
	uint32_t rx_room;               /* packets of the job that wait in a socket at most */
	int tx_errnum;                  /* since the last flush; 0: nothing was refused */
	bool heard_alone;               /* what is for this host alone has come, */
	bool heard_group;               /* and what is for the group */
	struct fanin_inflow at_open;    /* of this host, when the sockets were opened */
	struct fanin_headers data_like; /* headers of what comes in, from Ethernet to UDP */
	struct fanin_headers group_like;
	struct fanin_segments *of_group; /* what has come for the group, */
	struct fanin_segments *of_host;  /* and for this host alone */
	struct fanin_udp_batch batch;
};

extern const struct fanin_transport_ops fanin_udp_ops;

/* Closes what is open, and frees it. */
void fanin_udp_free(struct fanin_sockets *udp);

#endif
