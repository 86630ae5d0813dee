/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memif transport's state, shared by memif.c (frames) and memif_open.c (setting up). Only these
 * and tests include this.
 */
#ifndef FANIN_HOSTLIB_MEMIF_INTERNAL_H
#define FANIN_HOSTLIB_MEMIF_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "memif.h"
#include "wire/memif.h"

#define FANIN_MEMIF_LOG2_SLOTS 10
#define FANIN_MEMIF_SLOTS (1u << FANIN_MEMIF_LOG2_SLOTS)
#define FANIN_MEMIF_MASK (FANIN_MEMIF_SLOTS - 1)

/* Room for the longest frame of any port. Memory that is never touched is never allocated. */
#define FANIN_MEMIF_BUFFER_BYTES 62464u
/* 32 modulo 64, so that the payload behind 96 bytes of headers is 64-byte aligned. */
#define FANIN_MEMIF_HEADROOM 32u
#define FANIN_MEMIF_FRAME_BYTES (FANIN_MEMIF_BUFFER_BYTES - FANIN_MEMIF_HEADROOM)

/*
 * Layout of the shared memory: both rings, buffers for sending, buffers for receiving.
 * FANIN_MEMIF_BUFFER is the offset of a buffer:
 */
#define FANIN_MEMIF_RINGS_BYTES 65536u
#define FANIN_MEMIF_BUFFER(number)                                                                 \
	(FANIN_MEMIF_RINGS_BYTES + (uint32_t)(number)*FANIN_MEMIF_BUFFER_BYTES)
#define FANIN_MEMIF_AREA_BYTES FANIN_MEMIF_BUFFER(2 * FANIN_MEMIF_SLOTS)

/*
 * One direction. The library reads only the indices in the memory that the switch can write. This
 * struct has the buffer of each slot, which is never read back from that memory.
 */
struct fanin_memif_ring {
	struct memif_ring *shared;
	uint32_t buffers[FANIN_MEMIF_SLOTS]; /* by slot: offset in the area */
	uint16_t head;                       /* next slot to be given to the switch */
	uint16_t published;                  /* head as the switch knows it */
	uint16_t tail;                       /* next slot that the switch will give back */
	int event_fd;
};

struct fanin_memif {
	struct fanin_transport transport;
	int fd; /* socket to the switch */
	uint8_t *area;
	size_t area_len;
	struct fanin_memif_ring tx;
	struct fanin_memif_ring rx;
	uint32_t tx_free[FANIN_MEMIF_SLOTS]; /* stack, so that buffers in the cache come first */
	uint32_t n_tx_free;
	uint32_t rx_posted; /* buffers that circulate on the receive ring */
	bool filtering;     /* only frames of the job are received */
	bool interrupts;    /* the switch signals rx.event_fd */
	uint32_t job;
	uint16_t udp_port_be;
	int errnum; /* errno that broke the connection; 0: it works */
	struct fanin_memif_options options;
};

/*
 * Makes the memory and runs the protocol's handshake on a connected socket, each answer within
 * timeout_ms.
 *
 * fd: becomes the transport's, closed on failure, too. busy: set if another client has the
 * interface, so that retrying makes sense. Returns FANIN_OK, or a negative status with the error
 * filled in.
 */
int fanin_memif_attach(int fd, const struct fanin_memif_options *options, unsigned int timeout_ms,
		       struct fanin_memif **memif, bool *busy, struct fanin_error *error);

/* Adds n buffers to the receive ring; fewer if it is full. */
void fanin_memif_post(struct fanin_memif *memif, uint32_t n);

#endif
