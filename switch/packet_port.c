/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See packet_port.h: how frames move. Frames come in through a ring that the kernel fills
 * (TPACKET_V2), and are copied out of it. If no worker comes in time and the ring is full, the
 * kernel counts the frames that it drops. The ring has only the beginning of a super-frame that is
 * longer than the ring's frames; the whole waits in the socket's queue (PACKET_COPY_THRESH), and is
 * read from there once, directly to where its segments belong. Frames leave by sendmmsg, which
 * tells exactly which frame the kernel refused: a frame that found the backlog, the queue
 * discipline or the interface's queue full stays the caller's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <rte_ether.h>
#include <rte_memcpy.h>

#include "pipeline/base/offload.h"
#include "switch/packet_port_internal.h"

/* Puts back a tag that the kernel has removed from a frame. */
static void
put_tag(uint8_t *frame, const struct tpacket2_hdr *slot)
{
	const bool typed = (slot->tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
	const rte_be16_t tag[] = { rte_cpu_to_be_16(typed ? slot->tp_vlan_tpid : ETH_P_8021Q),
				   rte_cpu_to_be_16(slot->tp_vlan_tci) };

	static_assert(sizeof(tag) == RTE_VLAN_HLEN, "a tag");
	memcpy(frame + 2 * RTE_ETHER_ADDR_LEN, tag, sizeof(tag));
}

/* Copies a frame and inserts its tag. Returns its length with the tag, bytes. */
static uint32_t
copy_tagged(uint8_t *to, const uint8_t *from, const struct tpacket2_hdr *slot)
{
	memcpy(to, from, 2 * RTE_ETHER_ADDR_LEN);
	put_tag(to, slot);
	memcpy(to + 2 * RTE_ETHER_ADDR_LEN + RTE_VLAN_HLEN, from + 2 * RTE_ETHER_ADDR_LEN,
	       slot->tp_snaplen - 2 * RTE_ETHER_ADDR_LEN);
	return slot->tp_snaplen + RTE_VLAN_HLEN;
}

/* Returns the header in which the kernel describes a frame: it lies before the frame. */
static inline const struct virtio_net_hdr *
slot_vnet(const struct tpacket2_hdr *slot)
{
	return (const void *)((const uint8_t *)slot + slot->tp_mac - sizeof(struct virtio_net_hdr));
}

static inline bool
slot_is_tagged(const struct tpacket2_hdr *slot)
{
	return (slot->tp_status & TP_STATUS_VLAN_VALID) != 0 &&
	       slot->tp_snaplen >= 2 * RTE_ETHER_ADDR_LEN;
}

/*
 * Keeps the kernel's description of a frame that is not Fanin's. Returns false, and counts the
 * frame, if that is impossible.
 */
static bool
keep_vnet(struct packet_queue *queue, const struct virtio_net_hdr *vnet, uint32_t shift,
	  struct rte_mbuf *mbuf)
{
	if (super_frame_read(vnet, shift, mbuf))
		return true;
	queue->rx_refused++;
	return false;
}

/*
 * Handles a frame whose checksum is still to be completed: Fanin's packets need none, others keep a
 * note of it. Returns false if the note can't be kept.
 */
static __rte_noinline bool
take_checksum(struct packet_queue *queue, const struct tpacket2_hdr *slot, bool tagged,
	      struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	if (super_frame_is_fanin(headers, mbuf->pkt_len, queue->udp_port_be)) {
		headers->udp.checksum_be = 0;
		return true;
	}
	return keep_vnet(queue, slot_vnet(slot), tagged ? RTE_VLAN_HLEN : 0, mbuf);
}

/*
 * Copies a frame into an mbuf. Returns false, and counts the frame, if the port does not take it.
 */
static inline bool
take_frame(struct packet_queue *queue, const struct tpacket2_hdr *slot, struct rte_mbuf *mbuf)
{
	const uint8_t *frame = (const uint8_t *)slot + slot->tp_mac;
	const bool tagged = slot_is_tagged(slot);
	uint32_t len = slot->tp_snaplen;

	if (unlikely(len + (tagged ? RTE_VLAN_HLEN : 0) > rte_pktmbuf_tailroom(mbuf))) {
		queue->rx_errors++;
		return false;
	}
	if (likely(!tagged))
		rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), frame, len);
	else
		len = copy_tagged(rte_pktmbuf_mtod(mbuf, uint8_t *), frame, slot);
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = len;
	mbuf->port = queue->number;
	return likely((slot_vnet(slot)->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) == 0) ||
	       take_checksum(queue, slot, tagged, mbuf);
}

static inline struct tpacket2_hdr *
ring_slot(const struct packet_queue *queue, uint32_t ahead)
{
	uint32_t index = queue->head + ahead;

	return (struct tpacket2_hdr *)
		queue->frames[index < queue->n_frames ? index : index - queue->n_frames];
}

static inline void
slot_give_back(struct packet_queue *queue, struct tpacket2_hdr *slot)
{
	__atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	if (++queue->head == queue->n_frames)
		queue->head = 0;
}

/* True if the slot has a single frame, and all of it. */
static inline bool
slot_is_plain(const struct tpacket2_hdr *slot)
{
	return slot->tp_len == slot->tp_snaplen &&
	       slot_vnet(slot)->gso_type == VIRTIO_NET_HDR_GSO_NONE;
}

/* Counts the plain frames that come next, up to max, which is at most the ring's size. */
static inline uint16_t
count_plain(const struct packet_queue *queue, uint16_t max)
{
	uint16_t n;

	for (n = 0; n < max; n++) {
		const struct tpacket2_hdr *slot = ring_slot(queue, n);

		if ((__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0 ||
		    unlikely(!slot_is_plain(slot)))
			break;
	}
	return n;
}

/* Takes at most max plain frames. If there are no free packets, the frames wait in the ring. */
static uint16_t
take_plain(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t max)
{
	const uint16_t ready = count_plain(queue, (uint16_t)RTE_MIN(max, queue->n_frames));
	uint16_t n = 0;

	if (ready == 0 || rte_pktmbuf_alloc_bulk(queue->pool, mbufs, ready) != 0)
		return 0;
	for (uint16_t i = 0; i < ready; i++) {
		struct tpacket2_hdr *slot = ring_slot(queue, 0);

		if (likely(take_frame(queue, slot, mbufs[n]))) {
			n++;
		} else {
			rte_pktmbuf_reset(mbufs[n]);
		}
		slot_give_back(queue, slot);
	}
	if (unlikely(n != ready))
		rte_pktmbuf_free_bulk(mbufs + n, ready - n);
	return n;
}

/* Returns the room of an mbuf of a pool, bytes. */
static inline uint32_t
mbuf_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
}

/*
 * Returns how many packets a super-frame takes; one of Fanin's takes one for each segment. 0: it is
 * longer than the port takes.
 */
static uint32_t
mbufs_for(const struct packet_queue *queue, const struct tpacket2_hdr *slot, bool fanin)
{
	const uint32_t segment = slot_vnet(slot)->gso_size;
	const uint32_t room = mbuf_room(queue->pool);
	uint32_t n;

	if (slot_vnet(slot)->gso_type == VIRTIO_NET_HDR_GSO_NONE || segment == 0 ||
	    slot->tp_len <= FANIN_L4_LEN || slot->tp_len > UINT16_MAX + FANIN_ETH_LEN)
		return 0;
	if (!fanin) {
		n = (slot->tp_len + RTE_VLAN_HLEN + room - 1) / room;
		return n <= SUPER_FRAME_SEGMENTS_IN ? n : 0;
	}
	n = (slot->tp_len - FANIN_L4_LEN + segment - 1) / segment;
	return FANIN_L4_LEN + segment <= room && n <= SUPER_FRAME_SEGMENTS_IN ? n : 0;
}

/*
 * Copies a super-frame to the n parts of queue->scatter: from the ring, or from the socket's queue
 * if it is longer than the ring's frames. Returns false, and counts the frame, if the queue has
 * another one than the ring says.
 */
static bool
gather(struct packet_queue *queue, const struct tpacket2_hdr *slot, uint32_t n)
{
	const uint8_t *from = (const uint8_t *)slot + slot->tp_mac;
	struct msghdr message = { .msg_iov = queue->scatter, .msg_iovlen = n };

	if (slot->tp_len != slot->tp_snaplen) {
		if (recvmsg(queue->fd, &message, MSG_DONTWAIT) ==
		    (ssize_t)(sizeof(struct virtio_net_hdr) + slot->tp_len))
			return true;
		queue->rx_errors++;
		return false;
	}
	for (uint32_t i = 1; i < n; i++) {
		rte_memcpy(queue->scatter[i].iov_base, from, queue->scatter[i].iov_len);
		from += queue->scatter[i].iov_len;
	}
	return true;
}

/*
 * Makes a frame of each segment of a super-frame of Fanin's, with headers derived from those of the
 * whole.
 */
static bool
take_segments(struct packet_queue *queue, const struct tpacket2_hdr *slot, uint32_t n)
{
	const uint32_t most = slot_vnet(slot)->gso_size;
	uint32_t rest = slot->tp_len - FANIN_L4_LEN;
	struct super_frame_head head;
	struct iovec *scatter = queue->scatter;

	*scatter++ = (struct iovec){ &head.vnet, sizeof(head.vnet) };
	*scatter++ = (struct iovec){ head.headers, sizeof(head.headers) };
	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = queue->segments[i];
		const uint32_t len = RTE_MIN(rest, most);

		*scatter++ = (struct iovec){ rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_L4_LEN),
					     len };
		mbuf->data_len = (uint16_t)(FANIN_L4_LEN + len);
		mbuf->pkt_len = mbuf->data_len;
		mbuf->port = queue->number;
		rest -= len;
	}
	if (!gather(queue, slot, n + 2))
		return false;
	for (uint32_t i = 0; i < n; i++)
		super_frame_segment_headers((const struct fanin_headers *)head.headers, i,
					    queue->segments[i]->pkt_len - FANIN_L4_LEN,
					    rte_pktmbuf_mtod(queue->segments[i],
							     struct fanin_headers *));
	return true;
}

/* Takes a super-frame of other traffic as a whole, in a chain of n packets. */
static bool
take_chain(struct packet_queue *queue, const struct tpacket2_hdr *slot, uint32_t n)
{
	const struct virtio_net_hdr vnet = *slot_vnet(slot);
	const uint32_t shift = slot_is_tagged(slot) ? RTE_VLAN_HLEN : 0;
	struct rte_mbuf *frame = queue->segments[0];
	uint32_t rest = slot->tp_len + shift;
	struct iovec *scatter = queue->scatter;
	struct virtio_net_hdr ignored;

	*scatter++ = (struct iovec){ &ignored, sizeof(ignored) };
	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = queue->segments[i];
		uint8_t *to = rte_pktmbuf_mtod(mbuf, uint8_t *);
		const uint32_t len = RTE_MIN(rest, rte_pktmbuf_tailroom(mbuf));

		mbuf->data_len = (uint16_t)len;
		mbuf->next = i + 1 < n ? queue->segments[i + 1] : NULL;
		rest -= len;
		if (i == 0 && shift != 0) {
			put_tag(to, slot);
			*scatter++ = (struct iovec){ to, 2 * RTE_ETHER_ADDR_LEN };
			*scatter++ = (struct iovec){ to + 2 * RTE_ETHER_ADDR_LEN + shift,
						     len - 2 * RTE_ETHER_ADDR_LEN - shift };
		} else {
			*scatter++ = (struct iovec){ to, len };
		}
	}
	frame->nb_segs = (uint16_t)n;
	frame->pkt_len = slot->tp_len + shift;
	frame->port = queue->number;
	return gather(queue, slot, (uint32_t)(scatter - queue->scatter)) &&
	       keep_vnet(queue, &vnet, shift, frame);
}

/*
 * Discards the whole of the ring's first frame, which waits in the socket's queue and is not
 * wanted.
 */
static void
discard(const struct packet_queue *queue, const struct tpacket2_hdr *slot)
{
	if ((slot->tp_status & TP_STATUS_COPY) != 0)
		recv(queue->fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC);
}

/*
 * Allocates *n packets for a super-frame. One of other traffic gets a large packet, and *n becomes
 * 1. If no large packet is free, it gets a chain only as the first of a burst; otherwise the burst
 * ends, since its large packets will be free soon and are still in the CPU's cache. room: frames
 * that the burst still takes. max: frames that it takes in all.
 */
static bool
alloc_segments(struct packet_queue *queue, const struct tpacket2_hdr *slot, bool fanin,
	       uint16_t room, uint16_t max, uint32_t *n)
{
	if (!fanin && *n > 1 && queue->large != NULL &&
	    slot->tp_len + RTE_VLAN_HLEN <= mbuf_room(queue->large)) {
		queue->segments[0] = rte_pktmbuf_alloc(queue->large);
		if (likely(queue->segments[0] != NULL)) {
			*n = 1;
			return true;
		}
		if (room != max) {
			queue->rx_left += room;
			return false;
		}
	}
	return rte_pktmbuf_alloc_bulk(queue->pool, queue->segments, *n) == 0;
}

/*
 * Takes the next frame in the ring if it is a super-frame, or longer than the ring's frames, into
 * the queue's segments. Returns false if there is none; or if it has to wait, because the burst has
 * no room for all of it or there are no packets. room, max: as for alloc_segments.
 */
static __rte_noinline bool
take_super_frame(struct packet_queue *queue, uint16_t room, uint16_t max)
{
	struct tpacket2_hdr *slot = ring_slot(queue, 0);
	const struct fanin_headers *headers;
	bool fanin, taken;
	uint32_t n;

	if ((__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0 ||
	    slot_is_plain(slot))
		return false;
	/* Not before the check above: until then, the kernel may not have set the offset. */
	headers = (const void *)((const uint8_t *)slot + slot->tp_mac);
	fanin = slot_vnet(slot)->gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 && !slot_is_tagged(slot) &&
		super_frame_is_fanin(headers, slot->tp_snaplen, queue->udp_port_be);
	n = mbufs_for(queue, slot, fanin);
	if (fanin && n > room && room != max) {
		queue->rx_left += room;
		return false;
	}
	if (n == 0) {
		discard(queue, slot);
		queue->rx_errors++;
	} else if (slot->tp_len != slot->tp_snaplen && (slot->tp_status & TP_STATUS_COPY) == 0) {
		queue->rx_lost++;
	} else if (!alloc_segments(queue, slot, fanin, room, max, &n)) {
		return false;
	} else {
		taken = fanin ? take_segments(queue, slot, n) : take_chain(queue, slot, n);
		queue->next_segment = 0;
		queue->n_segments = fanin ? (uint16_t)n : 1;
		if (taken) {
			queue->rx_super_frames++;
			queue->rx_super_segments += fanin ? n
							  : offload_segments(queue->segments[0]);
		} else {
			rte_pktmbuf_free_bulk(queue->segments, queue->n_segments);
			queue->n_segments = 0;
		}
	}
	slot_give_back(queue, slot);
	return true;
}

/* Hands out at most max frames of the super-frame that was taken. */
static uint16_t
give_segments(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t max)
{
	const uint16_t n = (uint16_t)RTE_MIN(max,
					     (uint16_t)(queue->n_segments - queue->next_segment));

	memcpy(mbufs, queue->segments + queue->next_segment, n * sizeof(mbufs[0]));
	queue->next_segment = (uint16_t)(queue->next_segment + n);
	return n;
}

static uint16_t
packet_rx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t max)
{
	struct packet_queue *queue = handle;
	uint16_t n = 0;

	for (;;) {
		if (unlikely(queue->next_segment != queue->n_segments))
			n = (uint16_t)(n + give_segments(queue, mbufs + n, (uint16_t)(max - n)));
		if (n == max)
			return n;
		n = (uint16_t)(n + take_plain(queue, mbufs + n, (uint16_t)(max - n)));
		if (likely(n == max || !take_super_frame(queue, (uint16_t)(max - n), max)))
			return n;
	}
}

static uint64_t
relaxed(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static uint64_t
packet_rx_left(const void *handle)
{
	return relaxed(&((const struct packet_queue *)handle)->rx_left);
}

static int
packet_wake_fd(const void *handle)
{
	return ((const struct packet_queue *)handle)->fd;
}

/* Groups the frames of a burst: each one by itself, or several as one super-frame. */
static uint16_t
group(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t n, bool apart)
{
	if (likely(!apart && n > 1))
		return super_frame_group(mbufs, n, queue->udp_port_be, queue->groups);
	for (uint16_t i = 0; i < n; i++)
		queue->groups[i] = (struct super_frame_group){ .first = i, .n = 1 };
	return n;
}

/*
 * Stops skipping the queue discipline. Without it, the kernel splits no super-frame: it drops each
 * one that the interface does not take as it is, with the error of a full queue.
 */
static __rte_noinline void
stop_bypassing(struct packet_queue *queue)
{
	const int off = 0;

	setsockopt(queue->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &off, sizeof(off));
	queue->bypasses = false;
}

/*
 * Describes frames, at most a burst, to the kernel. mbufs: reordered. Returns the number of
 * messages, which stand for the first groups of queue->groups.
 */
static uint16_t
describe(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t n, bool apart)
{
	const uint16_t n_groups = group(queue, mbufs, (uint16_t)RTE_MIN(n, PACKET_PORT_BURST),
					apart);
	const struct iovec *end = queue->iovecs + PACKET_PORT_IOVECS;
	struct iovec *iovec = queue->iovecs;
	uint16_t i;

	for (i = 0; i < n_groups; i++) {
		const struct super_frame_group *group = &queue->groups[i];
		struct rte_mbuf *first = mbufs[group->first];
		struct msghdr *message = &queue->messages[i].msg_hdr;
		struct super_frame_head *head = &queue->heads[i];

		if (unlikely(iovec + 1 + group->n * first->nb_segs > end))
			break;
		message->msg_iov = iovec;
		message->msg_iovlen = 1u + (size_t)group->n * first->nb_segs;
		if (group->n > 1) {
			super_frame_head(group, first, head);
			*iovec++ = (struct iovec){ head, sizeof(*head) };
			for (uint16_t k = 0; k < group->n; k++)
				*iovec++ = (struct iovec){
					.iov_base = rte_pktmbuf_mtod_offset(mbufs[group->first + k],
									    void *, FANIN_L4_LEN),
					.iov_len = mbufs[group->first + k]->data_len - FANIN_L4_LEN,
				};
			continue;
		}
		super_frame_write(first, &head->vnet);
		if (unlikely(head->vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE && queue->bypasses))
			stop_bypassing(queue);
		*iovec++ = (struct iovec){ &head->vnet, sizeof(head->vnet) };
		for (const struct rte_mbuf *part = first; part != NULL; part = part->next)
			*iovec++ = (struct iovec){ rte_pktmbuf_mtod(part, void *), part->data_len };
	}
	return i;
}

/* True if a frame that was refused with this error may be accepted later. */
static bool
may_pass_later(int errnum)
{
	switch (errnum) {
	case EAGAIN: /* the socket's send buffer is full: frames that were sent are still on
			their way */
	/*
	 * The queue discipline, the interface or the backlog of the receiver's CPU is full. The
	 * error is the same if a veth's other end never takes this frame: pipeline/base/tx.c
	 * detects that.
	 */
	case ENOBUFS:
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
count_sent(struct packet_queue *queue, struct rte_mbuf *const *mbufs, int n_messages)
{
	uint16_t n = 0;

	for (int i = 0; i < n_messages; i++) {
		const struct super_frame_group *group = &queue->groups[i];
		const uint32_t segments = group->n > 1 ? group->n
						       : offload_segments(mbufs[group->first]);

		n = (uint16_t)(n + group->n);
		if (segments == 1)
			continue;
		queue->tx_super_frames++;
		queue->tx_super_segments += segments;
	}
	return n;
}

static uint16_t
packet_tx_burst(void *handle, struct rte_mbuf **mbufs, uint16_t n)
{
	struct packet_queue *queue = handle;
	bool apart = queue->refused || __atomic_load_n(&queue->apart, __ATOMIC_RELAXED);
	uint16_t done = 0;

	while (done < n) {
		const uint16_t offered = describe(queue, mbufs + done, (uint16_t)(n - done), apart);
		int sent = offered == 0
				   ? 0
				   : sendmmsg(queue->fd, queue->messages, offered, MSG_DONTWAIT);

		if (likely(sent > 0)) {
			done = (uint16_t)(done + count_sent(queue, mbufs + done, sent));
			continue;
		}
		if (offered != 0 && may_pass_later(errno))
			break;
		/* The kernel refuses the frames as one, but may take each by itself. */
		if (offered != 0 && queue->groups[0].n > 1) {
			queue->refused = errno == EINVAL || errno == EOPNOTSUPP;
			apart = true;
			continue;
		}
		/*
		 * The frame is in too many mbufs, longer than the interface's MTU, or shorter than
		 * a header.
		 */
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

	/* Reading the kernel's counters resets them. */
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
		stats->rx_missed += queue->rx_missed + relaxed(&queue->rx_lost);
		stats->rx_errors += relaxed(&queue->rx_errors);
		stats->tx_errors += relaxed(&queue->tx_errors);
		stats->rx_super_frames += relaxed(&queue->rx_super_frames);
		stats->rx_super_segments += relaxed(&queue->rx_super_segments);
		stats->rx_refused += relaxed(&queue->rx_refused);
		stats->tx_super_frames += relaxed(&queue->tx_super_frames);
		stats->tx_super_segments += relaxed(&queue->tx_super_segments);
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
	for (uint16_t i = 0; i < port->options.n_queues; i++)
		rte_mempool_free(port->queues[i].large);
	free(port);
}

const struct port_driver packet_port_driver = {
	.name = "af_packet",
	.queue = packet_queue_of,
	.rx_burst = packet_rx_burst,
	.rx_left = packet_rx_left,
	.wake_fd = packet_wake_fd,
	.tx_burst = packet_tx_burst,
	.stats = packet_stats,
	.mac = packet_mac,
	.close = packet_close,
};
