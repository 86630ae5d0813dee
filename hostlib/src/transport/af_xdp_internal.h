/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The AF_XDP transport's state, shared by af_xdp.c (frames) and af_xdp_open.c (setting up). No
 * other file includes this.
 */
#ifndef FANIN_HOSTLIB_AF_XDP_INTERNAL_H
#define FANIN_HOSTLIB_AF_XDP_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <xdp/xsk.h>

#include "transport.h"
#include "xdp_program.h"

#define FANIN_XDP_FRAME_BYTES 4096u
/*
 * The kernel puts a received frame this far after the UMEM frame's start, in addition to our
 * headroom.
 */
#define FANIN_XDP_KERNEL_HEADROOM 256u
/*
 * 32 modulo 64 in both directions, so that the payload behind 96 bytes of headers is 64-byte
 * aligned.
 */
#define FANIN_XDP_HEADROOM 32u
#define FANIN_XDP_MAX_FRAME_LEN                                                                    \
	(FANIN_XDP_FRAME_BYTES - FANIN_XDP_KERNEL_HEADROOM - FANIN_XDP_HEADROOM)

#define FANIN_XDP_MAX_QUEUES FANIN_TRANSPORT_MAX_FDS

struct fanin_xdp_queue {
	struct xsk_socket *socket;
	struct xsk_ring_cons rx;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons completion;
};

struct fanin_xdp {
	struct fanin_transport transport;
	struct fanin_xdp_program program;
	struct xsk_umem *umem;
	uint8_t *area;
	size_t area_len;
	struct fanin_xdp_queue queues[FANIN_XDP_MAX_QUEUES];
	unsigned int n_queues;
	unsigned int next_queue; /* queue where the next receive burst starts */
	struct xsk_ring_prod tx; /* ring of queue 0 */
	uint64_t *tx_free;       /* stack of free UMEM addresses */
	uint32_t n_tx_free;
	uint32_t ring_frames; /* entries of each ring; frames per queue and direction */
	uint32_t committed;   /* frames not yet given to the kernel */
	int sink_fd;          /* keeps this host's UDP port; -1: another program does */
	bool busy;            /* a queue still had another socket when it was opened */
};

extern const struct fanin_transport_ops fanin_xdp_ops;

/* Closes the sockets and frees their memory, but leaves the program attached. */
void fanin_xdp_sockets_close(struct fanin_xdp *xdp);

#endif
