/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long frames of the AF_PACKET transport (af_packet.c) have a socket of their own. It has no ring: the kernel queues its own
 * buffers, and this process copies from them to where the payload belongs. A ring is filled by whoever brings the frame,
 * which on veth is the switch's core, and what lies in it is copied once more; for short frames that costs less than
 * system calls.
 */
#ifndef FANIN_HOSTLIB_AF_PACKET_LONG_H
#define FANIN_HOSTLIB_AF_PACKET_LONG_H

#include "transport.h"
#include "wire/wire.h"

/* Frames longer than this are long. On veth rings and queues took the same time with 17000 bytes, rings 5 % more with 32000. */
#define FANIN_PACKET_SHORT_MAX (32 * 1024u)

struct fanin_packet_long {
	int fd;                       /* -1: long frames go into the ring, too */
	bool held;                    /* the frame whose headers are here is still in the queue */
	struct fanin_headers headers; /* of the frame looked at last */
	uint8_t skipped[UINT16_MAX];  /* what stands before the part of a frame that is wanted */
};

/*
 * Opens the socket, if the kernel grants it room for a window of long frames; that takes CAP_NET_ADMIN or a large
 * net.core.rmem_max. If not, or if there will be no long frames, fd is -1. The log is told why.
 */
void fanin_packet_long_open(struct fanin_packet_long *queue,
			    const struct fanin_transport_config *config);

/* The next frame's headers; false if there is none. The frame must be released before the next call. */
bool fanin_packet_long_next(struct fanin_packet_long *queue, struct fanin_frame *frame);

/* Takes the frame out of the queue, with len bytes from offset on. See transport.h's rx_copy. */
bool fanin_packet_long_copy(struct fanin_packet_long *queue, const struct fanin_frame *frame,
			    uint32_t offset, void *to, uint32_t len);

void fanin_packet_long_release(struct fanin_packet_long *queue);

void fanin_packet_long_close(struct fanin_packet_long *queue);

/* In af_packet.c, for both sockets: */

enum fanin_packet_lengths {
	FANIN_PACKET_ALL,
	FANIN_PACKET_SHORT,
	FANIN_PACKET_LONG,
};

/* A raw socket that takes the job's packets of these lengths once it is bound; or -errno. */
int fanin_packet_socket(const struct fanin_transport_config *config,
			enum fanin_packet_lengths lengths);

/* From here on packets come in. Returns 0 or -errno. */
int fanin_packet_bind(int fd, const struct fanin_transport_config *config);

/* Frames that were dropped for lack of room since the last call. */
uint32_t fanin_packet_drops(int fd);

#endif
