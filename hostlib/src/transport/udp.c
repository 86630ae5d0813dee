/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transport over UDP sockets: it needs no rights. Packets of one kind leave as one super-frame
 * (UDP_SEGMENT) and arrive as one (UDP_GRO), so that the kernel is entered once for some 64 KiB,
 * whatever the MTU. Until the next flush they are gathered from the callers' headers and payloads.
 * One socket sends, and receives packets to this host alone; another one receives packets to the
 * job's group. Both are connected to the switch, so the kernel drops packets from other senders.
 * See transport.h.
 */
#include "udp_internal.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/*
 * Payloads up to this length are copied: this is cheaper than one more part of a message, and their
 * memory may be the caller's stack.
 */
#define MAX_COPY_BYTES 256u

/* -------------------------------------------------------------- sending */

static bool
is_no_room(int errnum)
{
	return errnum == EAGAIN || errnum == ENOBUFS || errnum == EINTR;
}

/*
 * Returns the socket that sends this packet: hosts that join no switch choose paths by source
 * ports.
 */
static int
fd_of(const struct fanin_sockets *udp, const struct fanin_headers *headers)
{
	return udp->tx_fds[ntohs(headers->udp.src_be) % udp->n_tx_fds];
}

static void
batch_begin(struct fanin_udp_batch *batch, int fd, const struct fanin_headers *headers,
	    uint32_t size)
{
	batch->fd = fd;
	batch->to.sin_family = AF_INET;
	batch->to.sin_addr.s_addr = headers->ip.dst_be;
	batch->to.sin_port = headers->udp.dst_be;
	batch->tos = headers->ip.tos;
	batch->size = size;
}

static void
batch_clear(struct fanin_udp_batch *batch)
{
	batch->n_packets = 0;
	batch->n_parts = 0;
	batch->bytes = 0;
	batch->used = 0;
	batch->closed = false;
	batch->is_late = false;
}

/* True if the packet may leave in one super-frame with those of the batch. */
static bool
batch_takes(const struct fanin_udp_batch *batch, int fd, const struct fanin_headers *headers,
	    uint32_t size)
{
	return !batch->closed && batch->n_packets < FANIN_SUPER_FRAME_PACKETS &&
	       size <= batch->size && batch->bytes + size <= FANIN_SUPER_FRAME_BYTES &&
	       batch->fd == fd && batch->to.sin_addr.s_addr == headers->ip.dst_be &&
	       batch->to.sin_port == headers->udp.dst_be && batch->tos == headers->ip.tos;
}

static void
part_add(struct fanin_udp_batch *batch, const void *data, uint32_t len)
{
	batch->parts[batch->n_parts++] = (struct iovec){
		.iov_base = (void *)(uintptr_t)data,
		.iov_len = len,
	};
}

/*
 * Adds a packet that the batch takes. copy: the payload's memory may change before the packet
 * leaves.
 */
static void
batch_add(struct fanin_udp_batch *batch, const struct fanin_headers *headers, const void *payload,
	  uint32_t payload_len, bool copy)
{
	const uint32_t copied = copy || payload_len <= MAX_COPY_BYTES ? payload_len : 0;
	uint8_t *at = batch->copies + batch->used;

	memcpy(at, &headers->fanin, FANIN_HDR_LEN);
	if (copied != 0)
		memcpy(at + FANIN_HDR_LEN, payload, copied);
	batch->used += FANIN_HDR_LEN + copied;
	batch->first_part[batch->n_packets++] = (uint16_t)batch->n_parts;
	part_add(batch, at, FANIN_HDR_LEN + copied);
	if (copied != payload_len)
		part_add(batch, payload, payload_len);
	batch->bytes += FANIN_HDR_LEN + payload_len;
	batch->closed = FANIN_HDR_LEN + payload_len < batch->size;
}

/* Copies the whole batch into memory of its own, as it can't leave now. */
static void
batch_copy(struct fanin_udp_batch *batch)
{
	uint32_t at = 0;

	for (unsigned int i = 0; i < batch->n_packets; i++) {
		const unsigned int end = i + 1 < batch->n_packets ? batch->first_part[i + 1]
								  : batch->n_parts;
		const uint32_t begin = at;

		for (unsigned int k = batch->first_part[i]; k < end; k++) {
			memcpy(batch->late + at, batch->parts[k].iov_base, batch->parts[k].iov_len);
			at += (uint32_t)batch->parts[k].iov_len;
		}
		/* Entries from here on have been read: each packet has at least one part. */
		batch->first_part[i] = (uint16_t)i;
		batch->parts[i] = (struct iovec){ batch->late + begin, at - begin };
	}
	batch->n_parts = batch->n_packets;
	batch->closed = true;
	batch->is_late = true;
}

/* Appends IP_TOS to a message's control data. */
static void
tos_set(struct msghdr *message, union fanin_segment_control *control, int tos)
{
	struct cmsghdr header = {
		.cmsg_level = IPPROTO_IP,
		.cmsg_type = IP_TOS,
		.cmsg_len = CMSG_LEN(sizeof(tos)),
	};
	uint8_t *at = control->bytes + message->msg_controllen;

	memcpy(at, &header, sizeof(header));
	memcpy(CMSG_DATA((struct cmsghdr *)at), &tos, sizeof(tos));
	message->msg_control = control->bytes;
	message->msg_controllen += CMSG_SPACE(sizeof(tos));
}

/*
 * Sends n packets of the batch, from `first` on, as a super-frame if there are several. Returns 0
 * or an errno.
 */
static int
message_send(struct fanin_sockets *udp, const struct fanin_udp_batch *batch, unsigned int first,
	     unsigned int n)
{
	const unsigned int end = first + n < batch->n_packets ? batch->first_part[first + n]
							      : batch->n_parts;
	union fanin_segment_control control;
	struct msghdr message = {
		.msg_iov = (struct iovec *)&batch->parts[batch->first_part[first]],
		.msg_iovlen = end - batch->first_part[first],
	};

	if (udp->switch_ip_be == 0) {
		message.msg_name = (void *)(uintptr_t)&batch->to;
		message.msg_namelen = sizeof(batch->to);
	}
	memset(&control, 0, sizeof(control));
	if (n > 1)
		fanin_segment_control_set(&message, &control, (uint16_t)batch->size);
	if (batch->tos != 0)
		tos_set(&message, &control, batch->tos);
	udp->transport.counts.send_calls++;
	/* The socket reports errors of earlier packets once; they say nothing about this one. */
	if (sendmsg(batch->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	if (errno == ECONNREFUSED || errno == EHOSTUNREACH) {
		udp->tx_errnum = errno;
		udp->transport.counts.send_calls++;
		if (sendmsg(batch->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return 0;
	}
	return errno;
}

/* Adds to the transport's reason why packets leave one by one. why: NULL: they don't. */
static void
reason_note(struct fanin_sockets *udp, const char *why)
{
	static const char alone[] = "; packets leave one by one: ";
	char *reason = udp->transport.reason;
	char *end = strstr(reason, alone);

	if (end == NULL)
		end = reason + strlen(reason);
	*end = '\0';
	if (why != NULL)
		snprintf(end, sizeof(udp->transport.reason) - (size_t)(end - reason), "%s%s", alone,
			 why);
}

/* Sends no super-frames any more, because the kernel or the interface refuses them. */
static void
super_frames_give_up(struct fanin_sockets *udp, const char *why)
{
	udp->super_frames = false;
	udp->is_told = true;
	reason_note(udp, why);
	fanin_log_line(&udp->log, FANIN_LOG_WARNING,
		       "udp: packets leave one by one from now on: %s", why);
}

/* Removes the packets that have left from a batch. */
static void
batch_cut(struct fanin_udp_batch *batch, unsigned int n)
{
	const unsigned int gone = batch->first_part[n];

	for (unsigned int i = n; i < batch->n_packets; i++)
		batch->first_part[i - n] = (uint16_t)(batch->first_part[i] - gone);
	memmove(batch->parts, batch->parts + gone,
		(batch->n_parts - gone) * sizeof(batch->parts[0]));
	batch->n_parts -= gone;
	batch->n_packets -= n;
	batch->closed = true;
}

/* Sends the batch. Returns false if there is no room for all of it now; the rest stays. */
static bool
batch_send(struct fanin_sockets *udp)
{
	struct fanin_udp_batch *batch = &udp->batch;
	int errnum;

	if (udp->super_frames && batch->n_packets > 1) {
		errnum = message_send(udp, batch, 0, batch->n_packets);
		if (is_no_room(errnum))
			return false;
		if (errnum == 0) {
			udp->doubt -= udp->doubt < batch->n_packets ? udp->doubt : batch->n_packets;
			udp->transport.counts.super_frames.sent++;
			udp->transport.counts.super_frames.sent_packets += batch->n_packets;
			batch_clear(batch);
			return true;
		}
		if (errnum == EINVAL || errnum == EIO || errnum == EMSGSIZE)
			super_frames_give_up(udp, strerror(errnum));
	}
	for (unsigned int i = 0; i < batch->n_packets; i++) {
		errnum = message_send(udp, batch, i, 1);
		if (is_no_room(errnum)) {
			if (i != 0)
				batch_cut(batch, i);
			return false;
		}
		if (errnum != 0)
			udp->tx_errnum = errnum;
	}
	batch_clear(batch);
	return true;
}

static bool
take(struct fanin_sockets *udp, const struct fanin_headers *headers, const void *payload,
     uint32_t payload_len, bool copy)
{
	struct fanin_udp_batch *batch = &udp->batch;
	const uint32_t size = FANIN_HDR_LEN + payload_len;
	const int fd = fd_of(udp, headers);

	if (batch->n_packets != 0 && (udp->alone || !batch_takes(batch, fd, headers, size)) &&
	    !batch_send(udp))
		return false;
	if (batch->n_packets == 0)
		batch_begin(batch, fd, headers, size);
	batch_add(batch, headers, payload, payload_len, copy);
	if (copy || payload_len <= MAX_COPY_BYTES)
		udp->transport.counts.copied_out += payload_len;
	return true;
}

static void
udp_tx_alone(struct fanin_transport *transport, bool alone, bool lost_twice)
{
	struct fanin_sockets *udp = (struct fanin_sockets *)transport;

	/* No later packet may join a packet that leaves alone. */
	if (udp->alone && !alone)
		udp->batch.closed = true;
	udp->alone = alone;
	if (!lost_twice || !udp->super_frames)
		return;
	udp->doubt += FANIN_UDP_DOUBT_STEP;
	if (udp->doubt >= FANIN_UDP_DOUBT_MAX)
		super_frames_give_up(udp, "what is lost in super-frames passes by itself");
}

static bool
udp_tx_gather(struct fanin_transport *transport, const struct fanin_headers *headers,
	      const void *payload, uint32_t payload_len)
{
	return take((struct fanin_sockets *)transport, headers, payload, payload_len, false);
}

static bool
udp_tx_copy(struct fanin_transport *transport, const struct fanin_headers *headers,
	    const void *payload, uint32_t payload_len)
{
	return take((struct fanin_sockets *)transport, headers, payload, payload_len, true);
}

static int
udp_tx_flush(struct fanin_transport *transport)
{
	struct fanin_sockets *udp = (struct fanin_sockets *)transport;
	int errnum;

	if (udp->batch.n_packets != 0 && !batch_send(udp) && !udp->batch.is_late) {
		batch_copy(&udp->batch);
		transport->counts.copied_out += udp->batch.bytes;
	}
	errnum = udp->tx_errnum;
	udp->tx_errnum = 0;
	return -errnum;
}

static uint32_t
udp_tx_waiting(struct fanin_transport *transport)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;
	uint32_t sum = 0;

	transport->counts.other_calls += udp->n_tx_fds;
	for (unsigned int i = 0; i < udp->n_tx_fds; i++) {
		int bytes = 0;

		if (ioctl(udp->tx_fds[i], SIOCOUTQ, &bytes) == 0 && bytes > 0)
			sum += (uint32_t)bytes;
	}
	return sum / udp->frame_memory + udp->batch.n_packets;
}

static void
udp_path(struct fanin_transport *transport, bool super_frames, const char *why)
{
	struct fanin_sockets *udp = (struct fanin_sockets *)transport;

	if (!super_frames) {
		if (udp->super_frames || !udp->is_told)
			super_frames_give_up(udp, why);
		return;
	}
	udp->super_frames = true;
	udp->is_told = false;
	reason_note(udp, NULL);
}

/* ------------------------------------------------------------ receiving */

/*
 * Reads a received super-frame's control data: the length of its packets, and the type of service
 * with its ECN mark.
 */
static void
control_read(struct msghdr *message, uint32_t *size, uint8_t *tos)
{
	for (struct cmsghdr *found = CMSG_FIRSTHDR(message); found != NULL;
	     found = CMSG_NXTHDR(message, found)) {
		int value = 0;

		if (found->cmsg_level == SOL_UDP && found->cmsg_type == UDP_GRO) {
			memcpy(&value, CMSG_DATA(found), sizeof(value));
			if (value > 0)
				*size = (uint32_t)value;
		} else if (found->cmsg_level == IPPROTO_IP && found->cmsg_type == IP_TOS) {
			memcpy(tos, CMSG_DATA(found), sizeof(*tos));
		}
	}
}

/* Receives one super-frame or packet. Returns false if there is none. */
static bool
receive(struct fanin_sockets *udp, int fd, const struct fanin_headers *like,
	struct fanin_segments *segments)
{
	struct fanin_headers headers = *like;
	struct sockaddr_in from = { 0 };
	struct iovec part = {
		.iov_base = segments->data,
		.iov_len = sizeof(segments->data),
	};
	union {
		struct cmsghdr first;
		uint8_t bytes[128];
	} control;
	struct msghdr message = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	const ssize_t len = recvmsg(fd, &message, MSG_DONTWAIT);
	uint32_t size = len > 0 ? (uint32_t)len : 0;

	udp->transport.counts.receive_calls++;
	if (len <= 0)
		return len == 0;
	control_read(&message, &size, &headers.ip.tos);
	memcpy(headers.eth.src, udp->switch_mac, sizeof(headers.eth.src));
	headers.ip.src_be = from.sin_addr.s_addr;
	headers.udp.src_be = from.sin_port;
	fanin_segments_begin(segments, &headers, (uint32_t)len, size);
	return true;
}

/* True if all segments have been handed out. */
static bool
is_empty(const struct fanin_segments *segments)
{
	return segments->next >= segments->len;
}

/* Receives packets to the job's group. Returns false if there are none. */
static bool
receive_of_group(struct fanin_sockets *udp)
{
	if (!receive(udp, udp->group_fd, &udp->group_like, udp->of_group))
		return false;
	udp->heard_group = true;
	return true;
}

/*
 * Packets to the group come first. Packets to this host alone follow once all packets to the group
 * that came before them are handed out: an answer must not overtake the results that the switch has
 * sent before it, since a host that hears that a block is done takes its result for lost.
 */
static unsigned int
udp_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct fanin_sockets *udp = (struct fanin_sockets *)transport;
	unsigned int n = fanin_segments_next(udp->of_group, frames, max);

	/*
	 * Frames that were handed out stay valid until the same socket receives its next
	 * super-frame.
	 */
	if (n != 0)
		return n;
	if (receive_of_group(udp))
		return fanin_segments_next(udp->of_group, frames, max);
	if (is_empty(udp->of_host)) {
		if (!receive(udp, udp->data_fd, &udp->data_like, udp->of_host))
			return 0;
		udp->heard_alone = true;
		if (receive_of_group(udp))
			return fanin_segments_next(udp->of_group, frames, max);
	}
	return fanin_segments_next(udp->of_host, frames, max);
}

static void
udp_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	(void)frames;
	(void)n;
}

static bool
udp_rx_copy(struct fanin_transport *transport, const struct fanin_frame *frame, uint32_t offset,
	    void *to, uint32_t len)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;
	const bool is_group = fanin_segments_have(udp->of_group, frame);

	transport->counts.copied_in += len;
	return fanin_segments_copy(is_group ? udp->of_group : udp->of_host, frame, offset, to, len);
}

static unsigned int
udp_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;

	fds[0] = (struct pollfd){ .fd = udp->data_fd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = udp->group_fd, .events = POLLIN };
	return 2;
}

static uint64_t
drops_of(int fd)
{
	uint32_t found[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(found);

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, found, &len) == 0 ? found[SK_MEMINFO_DROPS]
									: 0;
}

static uint64_t
udp_ring_drops(struct fanin_transport *transport)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;

	return drops_of(udp->data_fd) + drops_of(udp->group_fd);
}

static void
udp_counts(struct fanin_transport *transport, struct fanin_transport_counts *sum)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;

	fanin_super_frames_add(&sum->super_frames, &udp->of_group->counts);
	fanin_super_frames_add(&sum->super_frames, &udp->of_host->counts);
}

static uint32_t
udp_rx_room(struct fanin_transport *transport)
{
	return ((const struct fanin_sockets *)transport)->rx_room;
}

static const char *
udp_rx_trouble(struct fanin_transport *transport)
{
	const struct fanin_sockets *udp = (const struct fanin_sockets *)transport;
	struct fanin_inflow now;

	/*
	 * The cause is not rp_filter, which checks the source: packets to this host alone have the
	 * same source.
	 */
	if (udp->heard_group || !udp->heard_alone)
		return NULL;
	fanin_inflow_read(&now);
	if (now.multicasts != udp->at_open.multicasts)
		return "nothing of the job's multicast group is received, though this host gets multicast: a firewall here drops it, which has to accept UDP from the switch, or else IGMP snooping on the way";
	return "nothing of the job's multicast group is received, nor other multicast: a bridge or switch on the way keeps it off (IGMP snooping), or a router or firewall does";
}

static void
udp_close(struct fanin_transport *transport)
{
	fanin_udp_free((struct fanin_sockets *)transport);
}

const struct fanin_transport_ops fanin_udp_ops = {
	.name = "udp",
	.has_port = true,
	.tx_gather = udp_tx_gather,
	.tx_copy = udp_tx_copy,
	.tx_flush = udp_tx_flush,
	.tx_waiting = udp_tx_waiting,
	.tx_alone = udp_tx_alone,
	.path = udp_path,
	.rx_burst = udp_rx_burst,
	.rx_release = udp_rx_release,
	.rx_copy = udp_rx_copy,
	.rx_room = udp_rx_room,
	.poll_fds = udp_poll_fds,
	.ring_drops = udp_ring_drops,
	.counts = udp_counts,
	.rx_trouble = udp_rx_trouble,
	.close = udp_close,
};
