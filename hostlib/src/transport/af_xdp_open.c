/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets up the AF_XDP transport: program, packet memory, a socket for each receive queue. Needs
 * CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. See transport.h for the contract.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "af_xdp_internal.h"
#include "stations.h"

#define MIN_FRAMES 256u
#define SEND_BUFFER_BYTES (16 * 1024 * 1024)

/* Maximum wait for a busy queue, and the pause between tries. */
#define BUSY_WAIT_MS 8000
#define BUSY_PAUSE_MS 10

static int
umem_open(struct fanin_xdp *xdp, const struct fanin_transport_config *config,
	  struct fanin_error *error)
{
	const struct xsk_umem_config umem_config = {
		.fill_size = xdp->ring_frames,
		.comp_size = xdp->ring_frames,
		.frame_size = FANIN_XDP_FRAME_BYTES,
		.frame_headroom = FANIN_XDP_HEADROOM,
	};
	void *area;
	int status;

	/* One share per queue for receiving, and one more for sending. */
	xdp->area_len = (size_t)(xdp->n_queues + 1) * xdp->ring_frames * FANIN_XDP_FRAME_BYTES;
	area = mmap(NULL, xdp->area_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (area == MAP_FAILED)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "no %zu bytes for packets",
				       xdp->area_len);
	xdp->area = area;
	xdp->tx_free = calloc(xdp->ring_frames, sizeof(*xdp->tx_free));
	if (xdp->tx_free == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	while (xdp->n_tx_free < xdp->ring_frames) {
		size_t frame = (size_t)xdp->n_queues * xdp->ring_frames + xdp->n_tx_free;

		xdp->tx_free[xdp->n_tx_free++] = frame * FANIN_XDP_FRAME_BYTES;
	}

	status = xsk_umem__create(&xdp->umem, area, xdp->area_len, &xdp->queues[0].fill,
				  &xdp->queues[0].completion, &umem_config);
	if (status == 0)
		return FANIN_OK;
	xdp->umem = NULL;
	if (status == -EPERM || status == -EACCES)
		return fanin_error_set(error, FANIN_ERR_PERMISSION,
				       "AF_XDP sockets need CAP_NET_RAW");
	if (status == -ENOBUFS || status == -ENOMEM)
		return fanin_error_set(
			error, FANIN_ERR_TRANSPORT,
			"%zu KiB of locked memory are not allowed: raise `ulimit -l` for %s",
			xdp->area_len / 1024, config->interface);
	return fanin_error_set(error, FANIN_ERR_TRANSPORT,
			       "the kernel refused the packet memory: %s", strerror(-status));
}

static int
queue_open(struct fanin_xdp *xdp, const struct fanin_transport_config *config, uint32_t number,
	   struct fanin_error *error)
{
	const struct xsk_socket_config socket_config = {
		.rx_size = xdp->ring_frames,
		.tx_size = number == 0 ? xdp->ring_frames : 0,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_USE_NEED_WAKEUP | (xdp->program.native ? 0 : XDP_COPY),
	};
	struct fanin_xdp_queue *queue = &xdp->queues[number];
	int send_buffer = SEND_BUFFER_BYTES;
	uint32_t index = 0;
	int status;
	int fd;

	if (number == 0)
		status = xsk_socket__create(&queue->socket, config->interface, number, xdp->umem,
					    &queue->rx, &xdp->tx, &socket_config);
	else
		status = xsk_socket__create_shared(&queue->socket, config->interface, number,
						   xdp->umem, &queue->rx, NULL, &queue->fill,
						   &queue->completion, &socket_config);
	if (status < 0) {
		queue->socket = NULL;
		xdp->busy = status == -EBUSY;
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "no socket on queue %u of %u of %s: %s", number,
				       xdp->n_queues, config->interface, strerror(-status));
	}
	fd = xsk_socket__fd(queue->socket);
	/*
	 * Sent frames use this buffer until the receiver has them; without CAP_NET_ADMIN the
	 * default limit stays.
	 */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));

	xsk_ring_prod__reserve(&queue->fill, xdp->ring_frames, &index);
	for (uint32_t i = 0; i < xdp->ring_frames; i++)
		*xsk_ring_prod__fill_addr(&queue->fill, index + i) =
			((uint64_t)number * xdp->ring_frames + i) * FANIN_XDP_FRAME_BYTES;
	xsk_ring_prod__submit(&queue->fill, xdp->ring_frames);

	if (bpf_map_update_elem(xdp->program.map_fd, &number, &fd, BPF_ANY) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot register the socket of queue %u: %s", number,
				       strerror(errno));
	return FANIN_OK;
}

static int
sockets_open(struct fanin_xdp *xdp, const struct fanin_transport_config *config,
	     struct fanin_error *error)
{
	int status;

	xdp->busy = false;
	status = umem_open(xdp, config, error);
	for (uint32_t i = 0; status == FANIN_OK && i < xdp->n_queues; i++)
		status = queue_open(xdp, config, i, error);
	if (status != FANIN_OK)
		fanin_xdp_sockets_close(xdp);
	return status;
}

/*
 * Refuses the interface if another host of the job is behind it: the program takes a job's
 * multicast packets away from the kernel, and XDP cannot give a frame to two receivers, so the
 * other host would get none.
 */
static int
station_check(const struct fanin_transport_config *config, struct fanin_error *error)
{
	uint8_t mac[6];

	if (!fanin_station_behind(config->ifindex, config->local_mac, mac))
		return FANIN_OK;
	return fanin_error_set(
		error, FANIN_ERR_TRANSPORT,
		"another host, %02x:%02x:%02x:%02x:%02x:%02x, shares %s (a macvlan?) and would get no results: use af_packet here",
		mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], config->interface);
}

static int
xdp_configure(struct fanin_xdp *xdp, const struct fanin_transport_config *config,
	      struct fanin_error *error)
{
	const struct timespec pause = { .tv_nsec = BUSY_PAUSE_MS * 1000000 };
	int status;

	if (config->frame_len > FANIN_XDP_MAX_FRAME_LEN)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "frames of %u bytes exceed the %u that its buffers hold",
				       config->frame_len, FANIN_XDP_MAX_FRAME_LEN);
	xdp->n_queues = config->rx_queues;
	if (xdp->n_queues > FANIN_XDP_MAX_QUEUES)
		return fanin_error_set(
			error, FANIN_ERR_TRANSPORT,
			"%s has %u receive queues, more than %u: reduce them with ethtool -L",
			config->interface, xdp->n_queues, FANIN_XDP_MAX_QUEUES);
	xdp->ring_frames = MIN_FRAMES;
	while (xdp->ring_frames < 2u * config->window)
		xdp->ring_frames *= 2;

	status = station_check(config, error);
	if (status == FANIN_OK)
		status = fanin_xdp_program_open(config, &xdp->program, error);
	if (status != FANIN_OK)
		return status;
	/* The kernel releases a closed socket's queue some time later, without a notification. */
	status = sockets_open(xdp, config, error);
	for (int tries = 0; status != FANIN_OK && xdp->busy && tries < BUSY_WAIT_MS / BUSY_PAUSE_MS;
	     tries++) {
		nanosleep(&pause, NULL);
		status = sockets_open(xdp, config, error);
	}
	return status;
}

int
fanin_af_xdp_open(const struct fanin_transport_config *config, struct fanin_transport **transport,
		  struct fanin_error *error)
{
	struct fanin_xdp *xdp;
	int status;

	xdp = calloc(1, sizeof(*xdp));
	if (xdp == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	xdp->transport.ops = &fanin_xdp_ops;
	xdp->program.link_fd = -1;
	xdp->sink_fd = -1;
	status = xdp_configure(xdp, config, error);
	if (status != FANIN_OK) {
		xdp->transport.ops->close(&xdp->transport);
		return status;
	}
	xdp->sink_fd = config->data_fd;
	snprintf(xdp->transport.reason, sizeof(xdp->transport.reason), "af_xdp: %s XDP on %s%s%s",
		 xdp->program.native ? "native" : "generic", config->interface,
		 xdp->program.native ? "" : ", native refused: ", xdp->program.native_error);
	*transport = &xdp->transport;
	return FANIN_OK;
}
