/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_XDP transport: an XDP program takes the job's packets off the receive queues before the kernel's network stack sees
 * them, into memory shared with this process. One socket for each receive queue, all on one UMEM; everything is sent on
 * the first queue's. Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. See transport.h.
 */
#include "transport.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/xsk.h>

#include "wire/wire.h"
#include "xdp_program.h"

#define FRAME_BYTES 4096u
/* The kernel puts a received frame this far behind the UMEM frame's start, and behind our headroom. */
#define KERNEL_HEADROOM 256u
/* 32 modulo 64 in both directions, so that the payload behind 96 bytes of headers is 64-byte aligned. */
#define HEADROOM 32u
#define MAX_FRAME_LEN (FRAME_BYTES - KERNEL_HEADROOM - HEADROOM)

#define MAX_QUEUES FANIN_TRANSPORT_MAX_FDS
#define MIN_FRAMES 256u
#define SEND_BUFFER_BYTES (16 * 1024 * 1024)

struct queue {
	struct xsk_socket *socket;
	struct xsk_ring_cons rx;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons completion;
};

struct af_xdp {
	struct fanin_transport transport;
	struct fanin_xdp_program program;
	struct xsk_umem *umem;
	uint8_t *area;
	size_t area_len;
	struct queue queues[MAX_QUEUES];
	unsigned int n_queues;
	unsigned int next_queue;       /* where the next receive burst begins */
	struct xsk_ring_prod tx;       /* of queue 0 */
	uint64_t *tx_free;             /* stack of UMEM addresses */
	uint32_t n_tx_free;
	uint32_t ring_frames;          /* entries of each ring; frames per queue and direction */
	uint32_t committed;            /* not yet given to the kernel */
};

static void
completions_take(struct af_xdp *xdp)
{
	struct xsk_ring_cons *ring = &xdp->queues[0].completion;
	uint32_t index = 0;
	uint32_t n;

	n = xsk_ring_cons__peek(ring, xdp->ring_frames, &index);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t address = *xsk_ring_cons__comp_addr(ring, index + i);

		xdp->tx_free[xdp->n_tx_free++] = address / FRAME_BYTES * FRAME_BYTES;
	}
	if (n != 0)
		xsk_ring_cons__release(ring, n);
}

static void *
xdp_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;

	(void)len; /* fanin_transport_config.frame_len bounds it */
	if (xdp->n_tx_free == 0)
		completions_take(xdp);
	if (xdp->n_tx_free == 0 || xsk_prod_nb_free(&xdp->tx, 1) == 0)
		return NULL;
	return xdp->area + xdp->tx_free[xdp->n_tx_free - 1] + HEADROOM;
}

static void
xdp_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;
	struct xdp_desc *descriptor;
	uint32_t index = 0;

	xsk_ring_prod__reserve(&xdp->tx, 1, &index);
	descriptor = xsk_ring_prod__tx_desc(&xdp->tx, index);
	descriptor->addr = xdp->tx_free[--xdp->n_tx_free] + HEADROOM;
	descriptor->len = len;
	descriptor->options = 0;
	xdp->committed++;
}

static uint32_t
tx_taken(const struct af_xdp *xdp)
{
	return __atomic_load_n(xdp->tx.consumer, __ATOMIC_ACQUIRE);
}

static int
xdp_tx_flush(struct fanin_transport *transport)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;
	int fd = xsk_socket__fd(xdp->queues[0].socket);

	if (xdp->committed != 0) {
		xsk_ring_prod__submit(&xdp->tx, xdp->committed);
		xdp->committed = 0;
	}
	/* One call takes a limited number of frames; it is repeated as long as it takes any. */
	for (;;) {
		uint32_t before = tx_taken(xdp);

		if (before == xdp->tx.cached_prod)
			break;
		if (!xsk_ring_prod__needs_wakeup(&xdp->tx))
			break;
		if (sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY &&
		    errno != ENOBUFS && errno != EINTR)
			return -errno;
		if (tx_taken(xdp) == before)
			break;
	}
	return 0;
}

static unsigned int
queue_receive(struct af_xdp *xdp, unsigned int number, struct fanin_frame *frames, unsigned int max)
{
	struct queue *queue = &xdp->queues[number];
	uint32_t index = 0;
	uint32_t n;

	n = xsk_ring_cons__peek(&queue->rx, max, &index);
	if (n == 0) {
		if (xsk_ring_prod__needs_wakeup(&queue->fill))
			recvfrom(xsk_socket__fd(queue->socket), NULL, 0, MSG_DONTWAIT, NULL, NULL);
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *descriptor = xsk_ring_cons__rx_desc(&queue->rx, index + i);

		frames[i].data = xdp->area + descriptor->addr;
		frames[i].len = descriptor->len;
		frames[i].queue = number;
		frames[i].handle = descriptor->addr / FRAME_BYTES * FRAME_BYTES;
	}
	xsk_ring_cons__release(&queue->rx, n);
	return n;
}

static unsigned int
xdp_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;
	unsigned int n = 0;

	for (unsigned int i = 0; i < xdp->n_queues && n < max; i++) {
		n += queue_receive(xdp, xdp->next_queue, frames + n, max - n);
		if (++xdp->next_queue == xdp->n_queues)
			xdp->next_queue = 0;
	}
	return n;
}

/* The fill rings have room for every frame of their queue, so that this can't fail. */
static void
xdp_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;
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
	struct af_xdp *xdp = (struct af_xdp *)transport;

	for (unsigned int i = 0; i < xdp->n_queues; i++)
		fds[i] = (struct pollfd){ .fd = xsk_socket__fd(xdp->queues[i].socket), .events = POLLIN };
	return xdp->n_queues;
}

/* The program goes first, so that the kernel never redirects to sockets that are being closed. */
static void
xdp_close(struct fanin_transport *transport)
{
	struct af_xdp *xdp = (struct af_xdp *)transport;

	fanin_xdp_program_close(&xdp->program);
	for (unsigned int i = 0; i < MAX_QUEUES; i++) {
		if (xdp->queues[i].socket != NULL)
			xsk_socket__delete(xdp->queues[i].socket);
	}
	if (xdp->umem != NULL)
		xsk_umem__delete(xdp->umem);
	if (xdp->area != NULL)
		munmap(xdp->area, xdp->area_len);
	free(xdp->tx_free);
	free(xdp);
}

static const struct fanin_transport_ops xdp_ops = {
	.name = "af_xdp",
	.tx_reserve = xdp_tx_reserve,
	.tx_commit = xdp_tx_commit,
	.tx_flush = xdp_tx_flush,
	.rx_burst = xdp_rx_burst,
	.rx_release = xdp_rx_release,
	.poll_fds = xdp_poll_fds,
	.close = xdp_close,
};

/* Receive queues of an interface; 1 if the driver doesn't tell. */
static unsigned int
queue_count(const char *interface)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq query = { 0 };
	unsigned int n = 1;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 1;
	snprintf(query.ifr_name, sizeof(query.ifr_name), "%s", interface);
	query.ifr_data = (char *)&channels;
	if (ioctl(fd, SIOCETHTOOL, &query) == 0 && channels.rx_count + channels.combined_count != 0)
		n = channels.rx_count + channels.combined_count;
	close(fd);
	return n;
}

static int
umem_open(struct af_xdp *xdp, const struct fanin_transport_config *config, struct fanin_error *error)
{
	const struct xsk_umem_config umem_config = {
		.fill_size = xdp->ring_frames,
		.comp_size = xdp->ring_frames,
		.frame_size = FRAME_BYTES,
		.frame_headroom = HEADROOM,
	};
	void *area;
	int status;

	/* One share per queue to receive into, and one to send from. */
	xdp->area_len = (size_t)(xdp->n_queues + 1) * xdp->ring_frames * FRAME_BYTES;
	area = mmap(NULL, xdp->area_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "no %zu bytes for packets", xdp->area_len);
	xdp->area = area;
	xdp->tx_free = calloc(xdp->ring_frames, sizeof(*xdp->tx_free));
	if (xdp->tx_free == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	while (xdp->n_tx_free < xdp->ring_frames) {
		size_t frame = (size_t)xdp->n_queues * xdp->ring_frames + xdp->n_tx_free;

		xdp->tx_free[xdp->n_tx_free++] = frame * FRAME_BYTES;
	}

	status = xsk_umem__create(&xdp->umem, area, xdp->area_len, &xdp->queues[0].fill, &xdp->queues[0].completion,
				  &umem_config);
	if (status == 0)
		return FANIN_OK;
	xdp->umem = NULL;
	if (status == -EPERM || status == -EACCES)
		return fanin_error_set(error, FANIN_ERR_PERMISSION, "AF_XDP sockets need CAP_NET_RAW");
	if (status == -ENOBUFS || status == -ENOMEM)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "%zu KiB of locked memory are not allowed: raise `ulimit -l` for %s",
				       xdp->area_len / 1024, config->interface);
	return fanin_error_set(error, FANIN_ERR_TRANSPORT, "the kernel refused the packet memory: %s",
			       strerror(-status));
}

static int
queue_open(struct af_xdp *xdp, const struct fanin_transport_config *config, uint32_t number,
	   struct fanin_error *error)
{
	const struct xsk_socket_config socket_config = {
		.rx_size = xdp->ring_frames,
		.tx_size = number == 0 ? xdp->ring_frames : 0,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_USE_NEED_WAKEUP | (xdp->program.native ? 0 : XDP_COPY),
	};
	struct queue *queue = &xdp->queues[number];
	int send_buffer = SEND_BUFFER_BYTES;
	uint32_t index = 0;
	int status;
	int fd;

	if (number == 0)
		status = xsk_socket__create(&queue->socket, config->interface, number, xdp->umem, &queue->rx, &xdp->tx,
					    &socket_config);
	else
		status = xsk_socket__create_shared(&queue->socket, config->interface, number, xdp->umem, &queue->rx,
						   NULL, &queue->fill, &queue->completion, &socket_config);
	if (status < 0) {
		queue->socket = NULL;
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "no socket on queue %u of %u of %s: %s", number, xdp->n_queues,
				       config->interface, strerror(-status));
	}
	fd = xsk_socket__fd(queue->socket);
	/* Frames count against it until the receiver has them; without CAP_NET_ADMIN the usual limit stays. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));

	xsk_ring_prod__reserve(&queue->fill, xdp->ring_frames, &index);
	for (uint32_t i = 0; i < xdp->ring_frames; i++)
		*xsk_ring_prod__fill_addr(&queue->fill, index + i) =
			((uint64_t)number * xdp->ring_frames + i) * FRAME_BYTES;
	xsk_ring_prod__submit(&queue->fill, xdp->ring_frames);

	if (bpf_map_update_elem(xdp->program.map_fd, &number, &fd, BPF_ANY) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "cannot register the socket of queue %u: %s", number,
				       strerror(errno));
	return FANIN_OK;
}

static int
xdp_configure(struct af_xdp *xdp, const struct fanin_transport_config *config, struct fanin_error *error)
{
	int status;

	if (config->frame_len > MAX_FRAME_LEN)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "frames of %u bytes exceed the %u that its buffers hold", config->frame_len,
				       MAX_FRAME_LEN);
	xdp->n_queues = queue_count(config->interface);
	if (xdp->n_queues > MAX_QUEUES)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "%s has %u receive queues, more than %u: reduce them with ethtool -L",
				       config->interface, xdp->n_queues, MAX_QUEUES);
	xdp->ring_frames = MIN_FRAMES;
	while (xdp->ring_frames < 2u * config->window)
		xdp->ring_frames *= 2;

	status = fanin_xdp_program_open(config, &xdp->program, error);
	if (status == FANIN_OK)
		status = umem_open(xdp, config, error);
	for (uint32_t i = 0; status == FANIN_OK && i < xdp->n_queues; i++)
		status = queue_open(xdp, config, i, error);
	return status;
}

int
fanin_af_xdp_open(const struct fanin_transport_config *config, struct fanin_transport **transport,
		  struct fanin_error *error)
{
	struct af_xdp *xdp;
	int status;

	xdp = calloc(1, sizeof(*xdp));
	if (xdp == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	xdp->transport.ops = &xdp_ops;
	xdp->program.link_fd = -1;
	status = xdp_configure(xdp, config, error);
	if (status != FANIN_OK) {
		xdp_close(&xdp->transport);
		return status;
	}
	snprintf(xdp->transport.reason, sizeof(xdp->transport.reason), "af_xdp: %s XDP on %s%s%s",
		 xdp->program.native ? "native" : "generic", config->interface,
		 xdp->program.native ? "" : ", native refused: ", xdp->program.native_error);
	*transport = &xdp->transport;
	return FANIN_OK;
}
