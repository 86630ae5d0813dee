/* SPDX-License-Identifier: BSD-3-Clause */
/* See af_packet_long.h. */
#include "af_packet_long.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Upper bound of the kernel's overhead for a queued frame: headers and the rest of the last page.
 */
#define ROOM_EXTRA 5120u

/* Makes room in the queue for all results of a window. Returns 0 or the errno. */
static int
room_reserve(int fd, const struct fanin_transport_config *config)
{
	/* The kernel grants twice the amount asked for. */
	int wanted = (int)(config->window * (config->frame_len + ROOM_EXTRA));
	int granted = 0;
	socklen_t len = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof(wanted)) < 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof(wanted)) < 0)
		return errno;
	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &len) < 0)
		return errno;
	return granted < wanted ? ENOBUFS : 0;
}

void
fanin_packet_long_open(struct fanin_packet_long *queue, const struct fanin_transport_config *config)
{
	int errnum;

	queue->fd = -1;
	queue->held = false;
	if (config->frame_len <= FANIN_PACKET_SHORT_MAX)
		return;
	queue->fd = fanin_packet_socket(config, FANIN_PACKET_LONG);
	if (queue->fd < 0) {
		errnum = -queue->fd;
	} else {
		errnum = room_reserve(queue->fd, config);
		if (errnum == 0)
			errnum = -fanin_packet_bind(queue->fd, config);
	}
	if (errnum == 0)
		return;
	fanin_log_line(config->log, FANIN_LOG_INFO,
		       "af_packet: frames of %u bytes go through the ring, a queue for %u of them "
		       "(CAP_NET_ADMIN or net.core.rmem_max) would be faster: %s",
		       config->frame_len, config->window, strerror(errnum));
	fanin_packet_long_close(queue);
}

bool
fanin_packet_long_next(struct fanin_packet_long *queue, struct fanin_frame *frame)
{
	ssize_t len;

	if (queue->fd < 0)
		return false;
	len = recv(queue->fd, &queue->headers, sizeof(queue->headers),
		   MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
	if (len < (ssize_t)sizeof(queue->headers))
		return false;
	queue->held = true;
	*frame = (struct fanin_frame){
		.data = &queue->headers,
		.len = (uint32_t)len,
		.headers_only = true,
	};
	return true;
}

bool
fanin_packet_long_copy(struct fanin_packet_long *queue, const struct fanin_frame *frame,
		       uint32_t offset, void *to, uint32_t len)
{
	struct iovec parts[] = {
		{ .iov_base = queue->skipped, .iov_len = offset },
		{ .iov_base = to, .iov_len = len },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (!queue->held || offset > sizeof(queue->skipped))
		return false;
	queue->held = false;
	return recvmsg(queue->fd, &message, MSG_TRUNC | MSG_DONTWAIT) == (ssize_t)frame->len;
}

void
fanin_packet_long_release(struct fanin_packet_long *queue)
{
	if (queue->held)
		recv(queue->fd, NULL, 0, MSG_DONTWAIT);
	queue->held = false;
}

void
fanin_packet_long_close(struct fanin_packet_long *queue)
{
	if (queue->fd >= 0)
		close(queue->fd);
	queue->fd = -1;
}
