/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_XDP transport: an XDP program takes the job's packets off the receive queues before the
 * kernel's network stack sees them, into memory shared with this process. Each receive queue has a
 * socket, and all sockets share one UMEM; the first queue's socket sends all frames. See
 * transport.h for the contract.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sys/socket.h>

#include "af_xdp_internal.h"

static void
completions_take(struct fanin_xdp *xdp)
{
	struct xsk_ring_cons *ring = &xdp->queues[0].completion;
	uint32_t index = 0;
	uint32_t n;

	n = xsk_ring_cons__peek(ring, xdp->ring_frames, &index);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t address = *xsk_ring_cons__comp_addr(ring, index + i);

		xdp->tx_free[xdp->n_tx_free++] = address / FANIN_XDP_FRAME_BYTES *
						 FANIN_XDP_FRAME_BYTES;
	}
	if (n != 0)
		xsk_ring_cons__release(ring, n);
}

static void *
xdp_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;

	(void)len; /* fanin_transport_config.frame_len bounds it */
	if (xdp->n_tx_free == 0)
		completions_take(xdp);
	if (xdp->n_tx_free == 0 || xsk_prod_nb_free(&xdp->tx, 1) == 0)
		return NULL;
	return xdp->area + xdp->tx_free[xdp->n_tx_free - 1] + FANIN_XDP_HEADROOM;
}

static void
xdp_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;
	struct xdp_desc *descriptor;
	uint32_t index = 0;

	xsk_ring_prod__reserve(&xdp->tx, 1, &index);
	descriptor = xsk_ring_prod__tx_desc(&xdp->tx, index);
	descriptor->addr = xdp->tx_free[--xdp->n_tx_free] + FANIN_XDP_HEADROOM;
	descriptor->len = len;
	descriptor->options = 0;
	xdp->committed++;
}

static uint32_t
tx_taken(const struct fanin_xdp *xdp)
{
	return __atomic_load_n(xdp->tx.consumer, __ATOMIC_ACQUIRE);
}

static int
xdp_tx_flush(struct fanin_transport *transport)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;
	int fd = xsk_socket__fd(xdp->queues[0].socket);

	if (xdp->committed != 0) {
		xsk_ring_prod__submit(&xdp->tx, xdp->committed);
		xdp->committed = 0;
	}
	/* One call sends a limited number of frames, and is repeated as long as it sends any. */
	for (;;) {
		uint32_t before = tx_taken(xdp);

		if (before == xdp->tx.cached_prod)
			break;
		if (!xsk_ring_prod__needs_wakeup(&xdp->tx))
			break;
		transport->counts.send_calls++;
		if (sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN &&
		    errno != EBUSY && errno != ENOBUFS && errno != EINTR)
			return -errno;
		if (tx_taken(xdp) == before)
			break;
	}
	return 0;
}

static uint32_t
xdp_tx_waiting(struct fanin_transport *transport)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;

	completions_take(xdp);
	return xdp->ring_frames - xdp->n_tx_free - xdp->committed;
}

static unsigned int
queue_receive(struct fanin_xdp *xdp, unsigned int number, struct fanin_frame *frames,
	      unsigned int max)
{
	struct fanin_xdp_queue *queue = &xdp->queues[number];
	uint32_t index = 0;
	uint32_t n;

	n = xsk_ring_cons__peek(&queue->rx, max, &index);
	if (n == 0) {
		if (xsk_ring_prod__needs_wakeup(&queue->fill)) {
			xdp->transport.counts.receive_calls++;
			recvfrom(xsk_socket__fd(queue->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
		}
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *descriptor = xsk_ring_cons__rx_desc(&queue->rx, index + i);

		frames[i] = (struct fanin_frame){
			.data = xdp->area + descriptor->addr,
			.len = descriptor->len,
			.queue = number,
			.handle = descriptor->addr / FANIN_XDP_FRAME_BYTES * FANIN_XDP_FRAME_BYTES,
		};
	}
	xsk_ring_cons__release(&queue->rx, n);
	return n;
}

static unsigned int
xdp_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;
	unsigned int n = 0;

	for (unsigned int i = 0; i < xdp->n_queues && n < max; i++) {
		n += queue_receive(xdp, xdp->next_queue, frames + n, max - n);
		if (++xdp->next_queue == xdp->n_queues)
			xdp->next_queue = 0;
	}
	return n;
}

/* The fill rings have room for every frame of their queue, so this can't fail. */
static void
xdp_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;
	unsigned int done = 0;

	while (done < n) {
		struct xsk_ring_prod *fill = &xdp->queues[frames[done].queue].fill;
		unsigned int same = 1;
		uint32_t index = 0;

		while (done + same < n && frames[done + same].queue == frames[done].queue)
			same++;
		xsk_ring_prod__reserve(fill, same, &index);
		for (unsigned int i = 0; i < same; i++)
			*xsk_ring_prod__fill_addr(fill, index + i) = frames[done + i].handle;
		xsk_ring_prod__submit(fill, same);
		done += same;
	}
}

static unsigned int
xdp_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;

	for (unsigned int i = 0; i < xdp->n_queues; i++)
		fds[i] = (struct pollfd){ .fd = xsk_socket__fd(xdp->queues[i].socket),
					  .events = POLLIN };
	return xdp->n_queues;
}

static uint64_t
xdp_ring_drops(struct fanin_transport *transport)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;
	uint64_t sum = 0;

	for (unsigned int i = 0; i < xdp->n_queues; i++) {
		struct xdp_statistics stats = { 0 };
		socklen_t len = sizeof(stats);

		getsockopt(xsk_socket__fd(xdp->queues[i].socket), SOL_XDP, XDP_STATISTICS, &stats,
			   &len);
		sum += stats.rx_dropped + stats.rx_ring_full;
	}
	return sum;
}

static const char *
xdp_rx_trouble(struct fanin_transport *transport)
{
	const struct fanin_xdp *xdp = (const struct fanin_xdp *)transport;

	return fanin_xdp_program_is_attached(&xdp->program)
		       ? NULL
		       : "nothing is received: the XDP program is not at the interface any more: it was detached (bpftool link detach), or the interface is gone";
}

void
fanin_xdp_sockets_close(struct fanin_xdp *xdp)
{
	for (unsigned int i = 0; i < FANIN_XDP_MAX_QUEUES; i++) {
		if (xdp->queues[i].socket != NULL)
			xsk_socket__delete(xdp->queues[i].socket);
		xdp->queues[i].socket = NULL;
	}
	if (xdp->umem != NULL)
		xsk_umem__delete(xdp->umem);
	xdp->umem = NULL;
	if (xdp->area != NULL)
		munmap(xdp->area, xdp->area_len);
	xdp->area = NULL;
	free(xdp->tx_free);
	xdp->tx_free = NULL;
	xdp->n_tx_free = 0;
}

/* Detach the program first, so that the kernel never redirects to sockets that are being closed. */
static void
xdp_close(struct fanin_transport *transport)
{
	struct fanin_xdp *xdp = (struct fanin_xdp *)transport;

	fanin_xdp_program_close(&xdp->program);
	fanin_xdp_sockets_close(xdp);
	if (xdp->sink_fd >= 0)
		close(xdp->sink_fd);
	free(xdp);
}

const struct fanin_transport_ops fanin_xdp_ops = {
	.name = "af_xdp",
	.tx_reserve = xdp_tx_reserve,
	.tx_commit = xdp_tx_commit,
	.tx_flush = xdp_tx_flush,
	.tx_waiting = xdp_tx_waiting,
	.rx_burst = xdp_rx_burst,
	.rx_release = xdp_rx_release,
	.poll_fds = xdp_poll_fds,
	.ring_drops = xdp_ring_drops,
	.rx_trouble = xdp_rx_trouble,
	.close = xdp_close,
};
