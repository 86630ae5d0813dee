/* SPDX-License-Identifier: BSD-3-Clause */
/* What packet_port.c, which moves frames, and packet_port_open.c, which sets sockets up, share. */
#ifndef FANIN_SWITCH_PACKET_PORT_INTERNAL_H
#define FANIN_SWITCH_PACKET_PORT_INTERNAL_H

#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "switch/packet_port.h"

/* Of a sendmmsg; frames in several segments take several of the iovecs. */
#define PACKET_PORT_BURST 64
#define PACKET_PORT_IOVECS 128

/* The kernel puts a received frame 66 bytes behind the ring frame's start; 30 more make it 32 modulo 64, as in an mbuf. */
#define PACKET_PORT_RESERVE 30u
#define PACKET_PORT_OFFSET 96u

struct packet_queue {
	/* Of the worker that receives. */
	uint8_t **frames __rte_cache_aligned; /* of the ring */
	uint32_t n_frames;
	uint32_t head; /* next frame to be filled by the kernel */
	uint16_t number;
	struct rte_mempool *pool;
	uint64_t rx_errors; /* worker: w, control: r */

	/* Of those that send. */
	int fd __rte_cache_aligned;
	uint64_t tx_errors; /* worker: w, control: r */
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
	struct packet_queue queues[];
};

/* packet_port_open.c: closes sockets and unmaps rings; counters stay. */
void packet_port_close_queues(struct packet_port *port);

/* packet_port.c: adds what the socket dropped since the last time to the queue's counter. */
void packet_queue_count_missed(struct packet_queue *queue);

#endif
