/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by packet_port.c, which moves frames, and packet_port_open.c, which sets sockets up. */
#ifndef FANIN_SWITCH_PACKET_PORT_INTERNAL_H
#define FANIN_SWITCH_PACKET_PORT_INTERNAL_H

#include <assert.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "switch/packet_port.h"
#include "switch/super_frame.h"

/* Messages of one sendmmsg. A frame in several mbufs takes several of the iovecs. */
#define PACKET_PORT_BURST 192
#define PACKET_PORT_IOVECS 512
static_assert(PACKET_PORT_BURST <= UINT8_MAX, "super_frame_group takes no more");

/*
 * The kernel puts a received frame 66 bytes after the start of its ring frame, and its metadata in
 * between. 20 more bytes make the offset 32 modulo 64, as in an mbuf.
 */
#define PACKET_PORT_RESERVE 20u
#define PACKET_PORT_OFFSET 96u

/*
 * Super-frames of other traffic are received into large packets while some are free, otherwise into
 * chains of the pool's packets. With packets of 2 KiB, chains take half as long again to fill, send
 * and free.
 */
#define PACKET_PORT_LARGE 16

struct packet_queue {
	/* Used by the worker that receives. */
	uint8_t **frames __rte_cache_aligned; /* of the ring */
	uint32_t n_frames;
	uint32_t head; /* next frame to be filled by the kernel */
	uint16_t number;
	rte_be16_t udp_port_be;
	struct rte_mempool *pool;
	struct rte_mempool *large; /* PACKET_PORT_LARGE packets; or NULL */
	/* segments of a super-frame, on their way to the worker */
	struct rte_mbuf *segments[SUPER_FRAME_SEGMENTS_IN];
	uint16_t n_segments;
	uint16_t next_segment;
	struct iovec scatter[SUPER_FRAME_SEGMENTS_IN + 2];
	uint64_t rx_errors; /* worker: w, control: r */
	uint64_t rx_lost; /* super-frames for which the socket had no room; worker: w, control: r */
	uint64_t rx_super_frames; /* this and the following: worker: w, control: r */
	uint64_t rx_super_segments;
	uint64_t rx_refused;
	uint64_t rx_left; /* see port_driver.h */

	/* Used by the workers that send. */
	int fd __rte_cache_aligned;
	bool apart;   /* Fanin's super-frames leave as single frames; worker: r, control: w */
	bool refused; /* the same, because the kernel has refused one */
	/* Frames skip the queue discipline. worker: rw, control: w before the worker starts */
	bool bypasses;
	uint64_t tx_errors; /* worker: w, control: r */
	uint64_t tx_super_frames;
	uint64_t tx_super_segments;
	struct super_frame_group groups[PACKET_PORT_BURST];
	struct super_frame_head heads[PACKET_PORT_BURST];
	struct mmsghdr messages[PACKET_PORT_BURST];
	struct iovec iovecs[PACKET_PORT_IOVECS];

	/* Main thread. */
	void *map __rte_cache_aligned;
	size_t map_len;
	uint64_t rx_missed;
};

struct packet_port {
	struct packet_port_options options;
	char interface[IFNAMSIZ];
	struct rte_ether_addr mac;
	enum super_frame_kernel kernel;
	bool whole; /* Fanin's super-frames leave as such */
	struct packet_queue queues[];
};

/* packet_port_open.c: closes sockets and unmaps rings; counters stay. */
void packet_port_close_queues(struct packet_port *port);

/* packet_port.c: adds what the socket dropped since the last time to the queue's counter. */
void packet_queue_count_missed(struct packet_queue *queue);

#endif
