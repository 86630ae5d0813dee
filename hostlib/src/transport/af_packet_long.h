/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long frames of the AF_PACKET transport (af_packet.c) have a socket of their own without a ring:
 * the kernel queues its own buffers, and this process copies from them to the payload's
 * destination. A ring is filled by the sender of the frame, which on veth is the switch's core, and
 * its contents are copied once more; for short frames that costs less than system calls.
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
	uint8_t skipped[UINT16_MAX];  /* the bytes before the wanted part of a frame */
};

/*
 * Opens the socket, if the kernel grants it room for a window of long frames; that takes
 * CAP_NET_ADMIN or a large net.core.rmem_max. If not, or if there will be no long frames, fd is -1
 * and the log says why.
 */
void fanin_packet_long_open(struct fanin_packet_long *queue,
			    const struct fanin_transport_config *config);

/*
 * Receives the next frame's headers; false if there is none. The frame must be released before the
 * next call.
 */
bool fanin_packet_long_next(struct fanin_packet_long *queue, struct fanin_frame *frame);

/*
 * Removes the frame from the queue and copies len bytes from offset on. See transport.h's rx_copy.
 */
bool fanin_packet_long_copy(struct fanin_packet_long *queue, const struct fanin_frame *frame,
			    uint32_t offset, void *to, uint32_t len);

void fanin_packet_long_release(struct fanin_packet_long *queue);

void fanin_packet_long_close(struct fanin_packet_long *queue);

/* In af_packet.c, for both sockets. */

enum fanin_packet_lengths {
	FANIN_PACKET_ALL,
	FANIN_PACKET_SHORT,
	FANIN_PACKET_LONG,
};

/*
 * Opens a raw socket for the job's packets of these lengths, still to be bound. Returns it or
 * -errno.
 */
int fanin_packet_socket(const struct fanin_transport_config *config,
			enum fanin_packet_lengths lengths);

/* Starts receiving. Returns 0 or -errno. */
int fanin_packet_bind(int fd, const struct fanin_transport_config *config);

/* Returns how many frames were dropped for lack of room since the last call. */
uint32_t fanin_packet_drops(int fd);

#endif
