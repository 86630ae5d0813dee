/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See packet_port.h: how frames move. They come in through a ring that the kernel fills (TPACKET_V2) and are copied out of it; where
 * no worker comes in time and the ring is full, the kernel counts what it drops. They leave by sendmmsg, which says exactly which
 * frame the kernel refused: one that found the backlog, the queue discipline or the interface's queue full stays the caller's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <rte_ether.h>
#include <rte_memcpy.h>

#include "switch/packet_port_internal.h"

/* A tag that the kernel has taken off a frame goes back to where it was. Returns how many bytes the frame has now. */
static uint32_t
copy_tagged(uint8_t *to, const uint8_t *from, const struct tpacket2_hdr *slot)
{
	const bool typed = (slot->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
	const rte_be16_t tag[] = { rte_cpu_to_be_16(typed ? slot->tp_vlan_tpid : ETH_P_8021Q),
				   rte_cpu_to_be_16(slot->tp_vlan_tci) };

	memcpy(to, from, 2 * RTE_ETHER_ADDR_LEN);
	memcpy(to + 2 * RTE_ETHER_ADDR_LEN, tag, sizeof(tag));
	memcpy(to + 2 * RTE_ETHER_ADDR_LEN + sizeof(tag), from + 2 * RTE_ETHER_ADDR_LEN,
	       slot->tp_snaplen - 2 * RTE_ETHER_ADDR_LEN);
	return slot->tp_snaplen + (uint32_t)sizeof(tag);
}

/* Copies a frame into an mbuf. Returns false if it is longer than the port takes. */
static inline bool
take_frame(const struct packet_queue *queue, const struct tpacket2_hdr *slot, struct rte_mbuf *mbuf)
{
	const uint8_t *frame = (const uint8_t *)slot + slot->tp_mac;
	const bool tagged = (slot->tp_status & TP_STATUS_VLAN_VALID) != 0;
	uint32_t len = slot->tp_snaplen;

	if (unlikely(slot->tp_len != len ||
		     len + (tagged ? RTE_VLAN_HLEN : 0) > rte_pktmbuf_tailroom(mbuf)))
		return false;
	if (likely(!tagged || len < 2 * RTE_ETHER_ADDR_LEN))
		rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), frame, len);
	else
		len = copy_tagged(rte_pktmbuf_mtod(mbuf, uint8_t *), frame, slot);
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = len;
	mbuf->port = queue->number;
	return true;
}

static inline struct tpacket2_hdr *
ring_slot(const struct packet_queue *queue, uint32_t ahead)
{
	uint32_t index = queue->head + ahead;

	return (struct tpacket2_hdr *)
		queue->frames[index < queue->n_frames ? index : index - queue->n_frames];
}

/* How many frames are there, up to max, which is at most what the ring has. */
static inline uint16_t
count_ready(const struct packet_queue *queue, uint16_t max)
{
	uint16_t n;

	for (n = 0; n < max; n++) {
		const struct tpacket2_hdr *slot = ring_slot(queue, n);

		if ((__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0)
			break;
	}
	return n;
}

static uint16_t
packet_rx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t max)
{
	struct packet_queue *queue = handle;
	const uint16_t ready = count_ready(queue, (uint16_t)RTE_MIN(max, queue->n_frames));
	uint16_t n = 0;

	/* Without packets the frames wait in the ring. */
	if (ready == 0 || rte_pktmbuf_alloc_bulk(queue->pool, mbufs, ready) != 0)
		return 0;
	for (uint16_t i = 0; i < ready; i++) {
		struct tpacket2_hdr *slot = ring_slot(queue, i);

		if (likely(take_frame(queue, slot, mbufs[n])))
			n++;
		else
			queue->rx_errors++;
		__atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
	queue->head += ready;
	if (queue->head >= queue->n_frames)
		queue->head -= queue->n_frames;
	if (unlikely(n != ready))
		rte_pktmbuf_free_bulk(mbufs + n, ready - n);
	return n;
}

/* Describes frames, at most a burst, to the kernel. Returns how many. */
static uint16_t
describe(struct packet_queue *queue, struct rte_mbuf *const *mbufs, uint16_t n)
{
	struct iovec *iovec = queue->iovecs;
	const struct iovec *end = iovec + PACKET_PORT_IOVECS;
	uint16_t i;

	for (i = 0; i < n && i < PACKET_PORT_BURST; i++) {
		struct msghdr *message = &queue->messages[i].msg_hdr;

		if (unlikely(iovec + mbufs[i]->nb_segs > end))
			break;
		message->msg_iov = iovec;
		message->msg_iovlen = mbufs[i]->nb_segs;
		for (const struct rte_mbuf *segment = mbufs[i]; segment != NULL;
		     segment = segment->next)
			*iovec++ = (struct iovec){
				.iov_base = rte_pktmbuf_mtod(segment, void *),
				.iov_len = segment->data_len,
			};
	}
	return i;
}

/* Is it worth while to offer a frame again that was refused so? */
static bool
may_pass_later(int errnum)
{
	switch (errnum) {
	case EAGAIN: /* the socket's send buffer: frames that were sent are still on their way */
	case ENOBUFS: /* the queue discipline, the interface, or the backlog of the receiver's CPU; the
		       * same if a veth's other end never takes this frame: pipeline/tx.c finds out */
	case ENOMEM:
	case EINTR:
	case ENETDOWN: /* the interface is down, or gone */
	case ENXIO:
		return true;
	default:
		return false;
	}
}

static uint16_t
packet_tx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t n)
{
	struct packet_queue *queue = handle;
	uint16_t done = 0;

	while (done < n) {
		const uint16_t offered = describe(queue, mbufs + done, (uint16_t)(n - done));
		int sent = offered == 0
				   ? 0
				   : sendmmsg(queue->fd, queue->messages, offered, MSG_DONTWAIT);

		if (likely(sent > 0)) {
			done = (uint16_t)(done + sent);
			continue;
		}
		if (offered != 0 && may_pass_later(errno))
			break;
		/* Of too many segments, longer than the interface's MTU, or shorter than a header. */
		queue->tx_errors++;
		done++;
	}
	rte_pktmbuf_free_bulk(mbufs, done);
	return done;
}

static void *
packet_queue_of(void *handle, uint16_t queue)
{
	struct packet_port *port = handle;

	return &port->queues[queue];
}

void
packet_queue_count_missed(struct packet_queue *queue)
{
	struct tpacket_stats stats = { 0 };
	socklen_t len = sizeof(stats);

	/* Asking sets the kernel's counters back. */
	if (getsockopt(queue->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len) == 0)
		queue->rx_missed += stats.tp_drops;
}

static void
packet_stats(void *handle, struct port_driver_stats *stats)
{
	struct packet_port *port = handle;

	*stats = (struct port_driver_stats){ 0 };
	for (uint16_t i = 0; i < port->options.n_queues; i++) {
		struct packet_queue *queue = &port->queues[i];

		packet_queue_count_missed(queue);
		stats->rx_missed += queue->rx_missed;
		stats->rx_errors += __atomic_load_n(&queue->rx_errors, __ATOMIC_RELAXED);
		stats->tx_errors += __atomic_load_n(&queue->tx_errors, __ATOMIC_RELAXED);
	}
}

static void
packet_mac(const void *handle, struct rte_ether_addr *mac)
{
	const struct packet_port *port = handle;

	*mac = port->mac;
}

static void
packet_close(void *handle)
{
	struct packet_port *port = handle;

	packet_port_close_queues(port);
	free(port);
}

const struct port_driver packet_port_driver = {
	.name = "af_packet",
	.queue = packet_queue_of,
	.rx_burst = packet_rx_burst,
	.tx_burst = packet_tx_burst,
	.stats = packet_stats,
	.mac = packet_mac,
	.close = packet_close,
};
