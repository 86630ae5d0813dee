/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_PACKET transport. Frames come in through a ring shared with the kernel (TPACKET_V2, which
 * hands over every frame at once, while V3 waits for a block to fill). Of longer frames and
 * super-frames only the beginning is in the ring, and the whole frame waits in the socket's queue
 * (PACKET_COPY_THRESH). The reason: the sender of a frame fills the ring, which on veth takes time
 * of the switch's core, and frames in the ring are copied once more; for short frames this costs
 * less than system calls. Frames are sent one by one from the caller's headers and payload: a ring
 * of frames would need one copy more, as veth copies its frames as well. Works on every interface
 * and with every MTU; needs CAP_NET_RAW. See transport.h.
 */
#include "segments.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/wire.h"

/* Ring frames lie in blocks of this size; a bigger frame gets a block of its own. */
#define BLOCK_BYTES (64 * 1024u)

/*
 * The kernel puts a received frame 66 bytes after the ring frame's start, and its description of
 * the frame in between; 20 bytes more make the offset 32 modulo 64.
 */
#define RX_RESERVE 20u
#define RX_OFFSET 96u

/*
 * Frames longer than this are long: only their beginning is in the ring, if the queue has room for
 * a window of them. On veth, rings and queues took the same time with 17000 bytes, and rings 5 %
 * more with 32000.
 */
#define SHORT_MAX (32 * 1024u)
#define LONG_BEGINNING 2048u

/*
 * Upper bound of the kernel's overhead for a queued frame: headers and the rest of the last page.
 */
#define QUEUE_EXTRA 5120u

/* Queue memory for super-frames, of which a few have all packets of a window. */
#define QUEUE_BYTES (4 * 1024 * 1024u)

/* Approximate memory that the kernel takes for a sent frame beside its bytes. */
#define FRAME_OVERHEAD 1024u
#define MIN_RX_FRAMES 256u
#define SEND_BUFFER_BYTES (16 * 1024 * 1024)

struct ring {
	uint8_t **frames;
	uint32_t n_frames;
	uint32_t head; /* the frame to be used next */
};

struct af_packet {
	struct fanin_transport transport;
	int fd;
	int sink_fd; /* keeps this host's UDP port; -1: somebody else does */
	void *map;
	size_t map_len;
	struct ring rx;
	bool queues_long; /* long frames are not in the ring */
	bool held;        /* a queued frame was handed out, and is still in the queue */
	struct fanin_segments *segments;
	uint64_t ring_drops;
	uint32_t frame_memory; /* approximate kernel memory for a sent frame, bytes */
	int tx_errnum; /* errno of a frame that was refused since the last flush; 0: none was */
};

static_assert(TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - ETH_HLEN + RX_RESERVE +
			      sizeof(struct virtio_net_hdr) ==
		      RX_OFFSET,
	      "frame offset");
static_assert(RX_OFFSET % 64 == 32, "payload alignment");

static struct tpacket2_hdr *
ring_head(const struct ring *ring)
{
	return (struct tpacket2_hdr *)ring->frames[ring->head];
}

static void
ring_advance(struct ring *ring)
{
	if (++ring->head == ring->n_frames)
		ring->head = 0;
}

static uint32_t
slot_status(const struct tpacket2_hdr *slot)
{
	return __atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE);
}

static void
slot_set_status(struct tpacket2_hdr *slot, uint32_t status)
{
	__atomic_store_n(&slot->tp_status, status, __ATOMIC_RELEASE);
}

static bool
packet_tx_gather(struct fanin_transport *transport, const struct fanin_headers *headers,
		 const void *payload, uint32_t payload_len)
{
	struct af_packet *packet = (struct af_packet *)transport;
	static const struct virtio_net_hdr plain;
	struct iovec parts[] = {
		{ .iov_base = (void *)(uintptr_t)&plain, .iov_len = sizeof(plain) },
		{ .iov_base = (void *)(uintptr_t)headers, .iov_len = sizeof(*headers) },
		{ .iov_base = (void *)(uintptr_t)payload, .iov_len = payload_len },
	};
	const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };

	transport->counts.send_calls++;
	if (sendmsg(packet->fd, &message, MSG_DONTWAIT) >= 0)
		return true;
	/* The socket's or the interface's queue has no room. */
	if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)
		return false;
	packet->tx_errnum = errno;
	return true;
}

static int
packet_tx_flush(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;
	int errnum = packet->tx_errnum;

	packet->tx_errnum = 0;
	return -errnum;
}

static uint32_t
packet_tx_waiting(struct fanin_transport *transport)
{
	const struct af_packet *packet = (const struct af_packet *)transport;
	int bytes = 0;

	transport->counts.other_calls++;
	if (ioctl(packet->fd, SIOCOUTQ, &bytes) < 0 || bytes < 0)
		return 0;
	return (uint32_t)bytes / packet->frame_memory;
}

/* Returns the header in which the kernel describes a frame, and which lies before the frame. */
static const struct virtio_net_hdr *
slot_vnet(const struct tpacket2_hdr *slot)
{
	return (const void *)((const uint8_t *)slot + slot->tp_mac - sizeof(struct virtio_net_hdr));
}

/*
 * Reads the queued frame that belongs to a frame in the ring: skip bytes of it, and then len bytes.
 * Returns false if it is another frame.
 */
static bool
queue_read(struct af_packet *packet, uint32_t frame_len, void *skipped, uint32_t skip, void *to,
	   uint32_t len)
{
	struct virtio_net_hdr vnet;
	struct iovec parts[] = {
		{ .iov_base = &vnet, .iov_len = sizeof(vnet) },
		{ .iov_base = skipped, .iov_len = skip },
		{ .iov_base = to, .iov_len = len },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };

	packet->transport.counts.receive_calls++;
	return recvmsg(packet->fd, &message, MSG_TRUNC | MSG_DONTWAIT) ==
	       (ssize_t)(sizeof(vnet) + frame_len);
}

/* Splits the super-frame at this place of the ring into segments. */
static void
take_super_frame(struct af_packet *packet, const struct tpacket2_hdr *slot)
{
	const uint32_t len = slot->tp_len - FANIN_L4_LEN;
	struct fanin_segments *segments = packet->segments;
	uint8_t headers[FANIN_L4_LEN];

	if (slot->tp_len <= FANIN_L4_LEN || len > sizeof(segments->data) ||
	    slot_vnet(slot)->gso_size == 0)
		return;
	memcpy(headers, (const uint8_t *)slot + slot->tp_mac, sizeof(headers));
	if (slot->tp_len == slot->tp_snaplen) {
		memcpy(segments->data, (const uint8_t *)slot + slot->tp_mac + FANIN_L4_LEN, len);
		packet->transport.counts.copied_in += len;
	} else if (!queue_read(packet, slot->tp_len, headers, sizeof(headers), segments->data,
			       len)) {
		return;
	}
	fanin_segments_begin(segments, headers, len, slot_vnet(slot)->gso_size);
}

/*
 * True if the slot's frame waits in the socket's queue. A frame that found no room there is lost.
 */
static bool
is_queued(struct af_packet *packet, const struct tpacket2_hdr *slot)
{
	if (slot->tp_len == slot->tp_snaplen || (slot_status(slot) & TP_STATUS_COPY) != 0)
		return true;
	packet->ring_drops++;
	return false;
}

static unsigned int
packet_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct af_packet *packet = (struct af_packet *)transport;
	unsigned int n = fanin_segments_next(packet->segments, frames, max);
	bool busy = n != 0; /* queued frames are handed out one by one */

	while (n < max) {
		struct tpacket2_hdr *slot = ring_head(&packet->rx);
		bool super, plain;

		if ((slot_status(slot) & TP_STATUS_USER) == 0)
			break;
		super = slot_vnet(slot)->gso_type != VIRTIO_NET_HDR_GSO_NONE;
		plain = !super && slot->tp_len == slot->tp_snaplen;
		if (!plain && busy)
			break;
		busy = busy || !plain;
		ring_advance(&packet->rx);
		if (!plain && !is_queued(packet, slot)) {
			slot_set_status(slot, TP_STATUS_KERNEL);
			continue;
		}
		if (super) {
			take_super_frame(packet, slot);
			slot_set_status(slot, TP_STATUS_KERNEL);
			n += fanin_segments_next(packet->segments, frames + n, max - n);
			continue;
		}
		packet->held = packet->held || !plain;
		frames[n++] = (struct fanin_frame){
			.data = (uint8_t *)slot + slot->tp_mac,
			.len = slot->tp_len,
			.headers_only = !plain,
			.handle = (uintptr_t)slot,
		};
	}
	return n;
}

static void
packet_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames,
		  unsigned int n)
{
	struct af_packet *packet = (struct af_packet *)transport;

	for (unsigned int i = 0; i < n; i++) {
		if (fanin_segments_have(packet->segments, &frames[i]))
			continue;
		if (frames[i].headers_only && packet->held) {
			transport->counts.receive_calls++;
			recv(packet->fd, NULL, 0, MSG_DONTWAIT);
			packet->held = false;
		}
		slot_set_status((struct tpacket2_hdr *)(uintptr_t)frames[i].handle,
				TP_STATUS_KERNEL);
	}
}

static bool
packet_rx_copy(struct fanin_transport *transport, const struct fanin_frame *frame, uint32_t offset,
	       void *to, uint32_t len)
{
	struct af_packet *packet = (struct af_packet *)transport;

	if (fanin_segments_have(packet->segments, frame)) {
		transport->counts.copied_in += len;
		return fanin_segments_copy(packet->segments, frame, offset, to, len);
	}
	if (!packet->held || offset > sizeof(packet->segments->data))
		return false;
	packet->held = false;
	/* There is no super-frame now, so its memory is free. */
	return queue_read(packet, frame->len, packet->segments->data, offset, to, len);
}

static unsigned int
packet_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct af_packet *packet = (struct af_packet *)transport;

	fds[0] = (struct pollfd){ .fd = packet->fd, .events = POLLIN };
	return 1;
}

static void
packet_counts(struct fanin_transport *transport, struct fanin_transport_counts *sum)
{
	fanin_super_frames_add(&sum->super_frames,
			       &((const struct af_packet *)transport)->segments->counts);
}

static uint64_t
packet_ring_drops(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;
	struct tpacket_stats stats = { 0 };
	socklen_t len = sizeof(stats);

	/* Reading resets the kernel's counters. */
	if (getsockopt(packet->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len) == 0)
		packet->ring_drops += stats.tp_drops;
	return packet->ring_drops;
}

static void
packet_close(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;

	if (packet->map != NULL)
		munmap(packet->map, packet->map_len);
	if (packet->fd >= 0)
		close(packet->fd);
	if (packet->sink_fd >= 0)
		close(packet->sink_fd);
	free(packet->segments);
	free(packet->rx.frames);
	free(packet);
}

static const struct fanin_transport_ops packet_ops = {
	.name = "af_packet",
	.tx_gather = packet_tx_gather,
	.tx_flush = packet_tx_flush,
	.tx_waiting = packet_tx_waiting,
	.rx_burst = packet_rx_burst,
	.rx_release = packet_rx_release,
	.rx_copy = packet_rx_copy,
	.poll_fds = packet_poll_fds,
	.ring_drops = packet_ring_drops,
	.counts = packet_counts,
	.close = packet_close,
};

/*
 * Accepts untagged IPv4 without options or fragments, to the groups' or this host's UDP port, of
 * this job: the same as the XDP program.
 */
static int
filter_attach(int fd, const struct fanin_transport_config *config)
{
	uint32_t job_offset = FANIN_L4_LEN + offsetof(struct fanin_hdr, job);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS,
			 (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 14),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, eth.type_be)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 12),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, offsetof(struct fanin_headers, ip.version_ihl)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x45, 0, 10),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, offsetof(struct fanin_headers, ip.protocol)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 8),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, ip.fragment_be)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 6, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, udp.dst_be)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, config->udp_port, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, config->data_port, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, job_offset),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(config->job), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno
											   : 0;
}

/*
 * Makes the UDP socket that has this host's port drop everything: without the socket the kernel
 * would answer the switch with ICMP errors, and without the filter packets would fill its buffer.
 */
static int
sink_make(const struct fanin_transport_config *config, struct fanin_error *error)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	const struct sock_fprog program = { .len = 1, .filter = code };

	if (config->data_fd >= 0 && setsockopt(config->data_fd, SOL_SOCKET, SO_ATTACH_FILTER,
					       &program, sizeof(program)) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot close a UDP socket to others: %s", strerror(errno));
	return FANIN_OK;
}

static void
ring_describe(struct tpacket_req *request, uint32_t frame_bytes, uint32_t n_frames)
{
	uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	uint32_t block = frame_bytes > BLOCK_BYTES ? (frame_bytes + page - 1) / page * page
						   : BLOCK_BYTES;
	uint32_t per_block = block / frame_bytes;

	request->tp_frame_size = frame_bytes;
	request->tp_block_size = block;
	request->tp_block_nr = (n_frames + per_block - 1) / per_block;
	request->tp_frame_nr = request->tp_block_nr * per_block;
}

static int
ring_fill(struct ring *ring, const struct tpacket_req *request, uint8_t *start)
{
	uint32_t per_block = request->tp_block_size / request->tp_frame_size;

	ring->frames = calloc(request->tp_frame_nr, sizeof(*ring->frames));
	if (ring->frames == NULL)
		return -ENOMEM;
	ring->n_frames = request->tp_frame_nr;
	for (uint32_t i = 0; i < request->tp_frame_nr; i++)
		ring->frames[i] = start + (size_t)(i / per_block) * request->tp_block_size +
				  (size_t)(i % per_block) * request->tp_frame_size;
	return 0;
}

/* Makes the ring for frames up to frame_len bytes. Returns 0 or -errno. */
static int
ring_map(struct af_packet *packet, uint32_t frame_len, uint16_t window)
{
	uint32_t frame_bytes = (RX_OFFSET + frame_len + 63) / 64 * 64;
	uint32_t n_frames = 2u * window > MIN_RX_FRAMES ? 2u * window : MIN_RX_FRAMES;
	struct tpacket_req request = { 0 };
	void *map;

	ring_describe(&request, frame_bytes, n_frames);
	if (setsockopt(packet->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)) < 0)
		return -errno;
	packet->map_len = (size_t)request.tp_block_size * request.tp_block_nr;
	map = mmap(NULL, packet->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, packet->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	packet->map = map;
	return ring_fill(&packet->rx, &request, map);
}

/* Sets the options of the socket with the ring, which also sends. */
static int
socket_configure(struct af_packet *packet, const struct fanin_transport_config *config,
		 struct fanin_error *error)
{
	const struct {
		int option;
		int value;
		const char *name;
		bool required;
	} options[] = {
		{ PACKET_VERSION, TPACKET_V2, "TPACKET_V2", true },
		{ PACKET_RESERVE, RX_RESERVE, "PACKET_RESERVE", true },
		{ PACKET_VNET_HDR, 1, "PACKET_VNET_HDR", true },
		{ PACKET_COPY_THRESH, 1, "PACKET_COPY_THRESH", true },
		{ PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS", false },
	};
	int send_buffer = SEND_BUFFER_BYTES;

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (setsockopt(packet->fd, SOL_PACKET, options[i].option, &options[i].value,
			       sizeof(options[i].value)) == 0)
			continue;
		if (options[i].required)
			return fanin_error_set(error, FANIN_ERR_TRANSPORT,
					       "the kernel does not have %s: %s", options[i].name,
					       strerror(errno));
		fanin_log_line(config->log, FANIN_LOG_DEBUG, "af_packet: no %s: %s",
			       options[i].name, strerror(errno));
	}
	/*
	 * Sent frames use this buffer until the receiver has them; without CAP_NET_ADMIN the
	 * default limit stays.
	 */
	if (setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) <
	    0)
		setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
	return FANIN_OK;
}

static int
socket_open(const struct fanin_transport_config *config)
{
	int on = 1;
	int fd;
	int ret;

	/* Protocol 0: nothing is received before the filter is attached and the socket is bound. */
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0)
		fanin_log_line(config->log, FANIN_LOG_DEBUG,
			       "af_packet: no PACKET_IGNORE_OUTGOING: %s", strerror(errno));
	ret = filter_attach(fd, config);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	return fd;
}

/* Makes room in the socket's queue, and decides whether long frames use it. */
static void
queue_reserve(struct af_packet *packet, const struct fanin_transport_config *config)
{
	const bool long_frames = config->frame_len > SHORT_MAX;
	/* The kernel grants twice the requested size. */
	const int needed = (int)(config->window * (config->frame_len + QUEUE_EXTRA));
	const int wanted = long_frames && needed > (int)QUEUE_BYTES ? needed : (int)QUEUE_BYTES;
	int granted = 0;
	socklen_t len = sizeof(granted);

	if (setsockopt(packet->fd, SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof(wanted)) < 0)
		setsockopt(packet->fd, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof(wanted));
	getsockopt(packet->fd, SOL_SOCKET, SO_RCVBUF, &granted, &len);
	packet->queues_long = long_frames && granted >= needed;
	if (long_frames && !packet->queues_long)
		fanin_log_line(
			config->log, FANIN_LOG_INFO,
			"af_packet: frames of %u bytes go through the ring, a queue for %u of them "
			"(CAP_NET_ADMIN or net.core.rmem_max) would be faster",
			config->frame_len, config->window);
}

static int
ring_open(struct af_packet *packet, const struct fanin_transport_config *config,
	  struct fanin_error *error)
{
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = config->ifindex,
	};
	uint32_t frame_len;
	int status;

	packet->frame_memory = config->frame_len + FRAME_OVERHEAD;
	packet->fd = socket_open(config);
	if (packet->fd == -EPERM || packet->fd == -EACCES)
		return fanin_error_set(error, FANIN_ERR_PERMISSION, "raw sockets need CAP_NET_RAW");
	if (packet->fd < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "no filtered raw socket: %s",
				       strerror(-packet->fd));
	status = socket_configure(packet, config, error);
	if (status != FANIN_OK)
		return status;
	queue_reserve(packet, config);
	frame_len = packet->queues_long ? LONG_BEGINNING : config->frame_len;
	status = ring_map(packet, frame_len, config->window);
	if (status < 0)
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "cannot map a ring for %u frames of %u bytes: %s",
				       2u * config->window, frame_len, strerror(-status));
	if (bind(packet->fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "cannot bind to %s: %s",
				       config->interface, strerror(errno));
	return FANIN_OK;
}

int
fanin_af_packet_open(const struct fanin_transport_config *config,
		     struct fanin_transport **transport, struct fanin_error *error)
{
	struct af_packet *packet;
	int status;

	packet = calloc(1, sizeof(*packet));
	if (packet == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	packet->transport.ops = &packet_ops;
	packet->sink_fd = -1;
	packet->fd = -1;
	packet->segments = calloc(1, sizeof(*packet->segments));
	if (packet->segments == NULL) {
		packet_close(&packet->transport);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	}
	status = ring_open(packet, config, error);
	if (status == FANIN_OK)
		status = sink_make(config, error);
	if (status != FANIN_OK) {
		packet_close(&packet->transport);
		return status;
	}
	packet->sink_fd = config->data_fd;
	snprintf(packet->transport.reason, sizeof(packet->transport.reason),
		 "af_packet: a memory-mapped ring%s on %s",
		 packet->queues_long ? " and a queue for long frames" : "", config->interface);
	*transport = &packet->transport;
	return FANIN_OK;
}
