/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memif transport's frames. Indices are published once per burst, and interrupts are requested
 * only before sleeping. Data that the switch writes is trusted only within the buffer that it was
 * written to. See memif.h and transport.h.
 */
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memif_internal.h"
#include "wire/wire.h"

static uint16_t
index_load(const uint16_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

/*
 * Returns the slots that the switch has given back. If it gives back more than it had, it is broken
 * and no longer used.
 */
static uint16_t
ring_returned(struct fanin_memif *memif, const struct fanin_memif_ring *ring)
{
	uint16_t n = (uint16_t)(index_load(&ring->shared->tail) - ring->tail);

	if (n <= (uint16_t)(ring->published - ring->tail))
		return n;
	memif->errnum = EPROTO;
	return 0;
}

/* Puts a buffer into the next slot. */
static void
ring_put(struct fanin_memif_ring *ring, uint32_t buffer, uint32_t len)
{
	uint16_t slot = ring->head & FANIN_MEMIF_MASK;

	ring->buffers[slot] = buffer;
	ring->shared->descriptors[slot] = (struct memif_descriptor){
		.length = len,
		.offset = buffer + FANIN_MEMIF_HEADROOM,
	};
	ring->head++;
}

static void
ring_publish(struct fanin_memif_ring *ring)
{
	__atomic_store_n(&ring->shared->head, ring->head, __ATOMIC_RELEASE);
	ring->published = ring->head;
}

static void
tx_reclaim(struct fanin_memif *memif)
{
	struct fanin_memif_ring *ring = &memif->tx;
	uint16_t n = ring_returned(memif, ring);

	while (n-- != 0)
		memif->tx_free[memif->n_tx_free++] = ring->buffers[ring->tail++ & FANIN_MEMIF_MASK];
}

static void *
memif_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;

	if (memif->errnum != 0 || len > FANIN_MEMIF_FRAME_BYTES)
		return NULL;
	/* Reclaiming early keeps few buffers in use, and those in the cache. */
	if ((memif->tx.head & 7) == 0 || memif->n_tx_free == 0)
		tx_reclaim(memif);
	if (memif->n_tx_free == 0)
		return NULL;
	return memif->area + memif->tx_free[memif->n_tx_free - 1] + FANIN_MEMIF_HEADROOM;
}

static void
memif_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;

	ring_put(&memif->tx, memif->tx_free[--memif->n_tx_free], len);
}

static int
memif_tx_flush(struct fanin_transport *transport)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;
	struct fanin_memif_ring *ring = &memif->tx;

	if (ring->published != ring->head) {
		ring_publish(ring);
		/* A switch that polls has set this flag. */
		if ((__atomic_load_n(&ring->shared->flags, __ATOMIC_RELAXED) &
		     MEMIF_RING_NO_INTERRUPT) == 0) {
			transport->counts.send_calls++;
			eventfd_write(ring->event_fd, 1);
		}
	}
	return -memif->errnum;
}

static void
interrupts_disable(struct fanin_memif *memif)
{
	eventfd_t ignored;

	__atomic_store_n(&memif->rx.shared->flags, MEMIF_RING_NO_INTERRUPT, __ATOMIC_RELAXED);
	memif->transport.counts.receive_calls++;
	eventfd_read(memif->rx.event_fd, &ignored);
	memif->interrupts = false;
}

/*
 * True for untagged IPv4 without options or fragments, UDP to our port, our job: the same as the
 * other transports' filters.
 */
static bool
is_wanted(const struct fanin_memif *memif, const void *frame, uint32_t len)
{
	const struct fanin_headers *headers = frame;

	if (!memif->filtering)
		return true;
	return len >= sizeof(*headers) && headers->eth.type_be == htons(ETHERTYPE_IP) &&
	       headers->ip.version_ihl == 0x45 && headers->ip.protocol == IPPROTO_UDP &&
	       (headers->ip.fragment_be & htons(0x3fff)) == 0 &&
	       headers->udp.dst_be == memif->udp_port_be && headers->fanin.job == memif->job;
}

static unsigned int
memif_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;
	struct fanin_memif_ring *ring = &memif->rx;
	unsigned int n = 0;
	uint16_t left;

	if (memif->errnum != 0)
		return 0;
	if (memif->interrupts)
		interrupts_disable(memif);
	for (left = ring_returned(memif, ring); left != 0 && n < max; left--) {
		uint16_t slot = ring->tail & FANIN_MEMIF_MASK;
		/* The descriptor is read once: it may change at any time. */
		struct memif_descriptor descriptor =
			*(volatile struct memif_descriptor *)&ring->shared->descriptors[slot];
		uint32_t buffer = ring->buffers[slot];
		void *frame = memif->area + buffer + FANIN_MEMIF_HEADROOM;

		ring->tail++;
		if (descriptor.length > FANIN_MEMIF_FRAME_BYTES ||
		    (descriptor.flags & MEMIF_DESCRIPTOR_NEXT) != 0 ||
		    !is_wanted(memif, frame, descriptor.length)) {
			ring_put(ring, buffer, FANIN_MEMIF_FRAME_BYTES);
			continue;
		}
		frames[n++] = (struct fanin_frame){
			.data = frame,
			.len = descriptor.length,
			.handle = buffer,
		};
	}
	if (ring->published != ring->head && n == 0)
		ring_publish(ring);
	return n;
}

static void
memif_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames,
		 unsigned int n)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;

	for (unsigned int i = 0; i < n; i++)
		ring_put(&memif->rx, (uint32_t)frames[i].handle, FANIN_MEMIF_FRAME_BYTES);
	ring_publish(&memif->rx);
}

/* Ends the transport if the connection is readable: the switch has ended it then. */
static void
connection_check(struct fanin_memif *memif)
{
	struct memif_message message;
	ssize_t len = recv(memif->fd, &message, sizeof(message), MSG_DONTWAIT);

	memif->transport.counts.other_calls++;
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	memif->errnum = len < 0 ? errno : ECONNRESET;
}

/* Called before sleeping: checks what polling does not see, and requests interrupts. */
static unsigned int
memif_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;
	struct fanin_memif_ring *ring = &memif->rx;

	if (memif->errnum == 0)
		connection_check(memif);
	if (memif->errnum != 0)
		return 0;
	/*
	 * Frames that came before the switch saw the flag cause no interrupt: the ring is checked
	 * after setting the flag, not before.
	 */
	__atomic_store_n(&ring->shared->flags, 0, __ATOMIC_SEQ_CST);
	memif->interrupts = true;
	if (__atomic_load_n(&ring->shared->tail, __ATOMIC_SEQ_CST) != ring->tail) {
		transport->counts.other_calls++;
		eventfd_write(ring->event_fd, 1);
	}
	fds[0] = (struct pollfd){ .fd = ring->event_fd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = memif->fd, .events = POLLIN };
	return 2;
}

/* The switch drops and counts frames for which the host's ring has no room. */
static uint64_t
memif_ring_drops(struct fanin_transport *transport)
{
	(void)transport;
	return 0;
}

static void
ring_close(struct fanin_memif_ring *ring)
{
	if (ring->event_fd >= 0)
		close(ring->event_fd);
}

static void
memif_close(struct fanin_transport *transport)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;

	ring_close(&memif->tx);
	ring_close(&memif->rx);
	if (memif->area != NULL)
		munmap(memif->area, memif->area_len);
	close(memif->fd);
	free(memif);
}

const struct fanin_transport_ops fanin_memif_ops = {
	.name = "memif",
	.shares_memory = true,
	.tx_reserve = memif_tx_reserve,
	.tx_commit = memif_tx_commit,
	.tx_flush = memif_tx_flush,
	.rx_burst = memif_rx_burst,
	.rx_release = memif_rx_release,
	.poll_fds = memif_poll_fds,
	.ring_drops = memif_ring_drops,
	.close = memif_close,
};

void
fanin_memif_post(struct fanin_memif *memif, uint32_t n)
{
	for (; n != 0 && memif->rx_posted < FANIN_MEMIF_SLOTS; n--)
		ring_put(&memif->rx, FANIN_MEMIF_BUFFER(FANIN_MEMIF_SLOTS + memif->rx_posted++),
			 FANIN_MEMIF_FRAME_BYTES);
	ring_publish(&memif->rx);
}

void
fanin_memif_expect(struct fanin_transport *transport, uint16_t window)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;
	const uint32_t wanted = 2u * window;

	/*
	 * Room for all results at once, each repeated, and no more: buffers are used in turn, and
	 * those that leave the cache meanwhile cost time.
	 */
	if (wanted > memif->rx_posted)
		fanin_memif_post(memif, wanted - memif->rx_posted);
}

void
fanin_memif_filter(struct fanin_transport *transport, uint32_t job, uint16_t udp_port)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;

	memif->job = job;
	memif->udp_port_be = htons(udp_port);
	memif->filtering = true;
}
