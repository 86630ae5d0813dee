/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_PACKET transport. Frames come in through a ring shared with the kernel (TPACKET_V2, which hands over every frame at once
 * where V3 waits for a block to fill), long ones through a queue (af_packet_long.h). They are sent one by one from where
 * headers and payload lie: from a ring of frames, into which they would be copied first, veth copies them as well. Works on
 * every interface and with every MTU; needs CAP_NET_RAW. See transport.h.
 */
#include "af_packet_long.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
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

/* The kernel puts a received frame 66 bytes after the ring frame's start; 30 more make it 32 modulo 64. */
#define RX_RESERVE 30u
#define RX_OFFSET 96u

/* Memory that the kernel takes for a sent frame beside its bytes, about. */
#define FRAME_OVERHEAD 1024u
#define MIN_RX_FRAMES 256u
#define SEND_BUFFER_BYTES (16 * 1024 * 1024)

struct ring {
	uint8_t **frames;
	uint32_t n_frames;
	uint32_t head; /* next frame to use */
};

struct af_packet {
	struct fanin_transport transport;
	int fd;
	int sink_fd; /* drains what the kernel's UDP would answer with "port unreachable" */
	void *map;
	size_t map_len;
	struct ring rx;
	struct fanin_packet_long longer;
	uint64_t ring_drops;
	uint32_t frame_memory; /* about what the kernel takes for a sent frame, bytes */
	int tx_errnum;         /* why a frame was refused since the last flush; 0: none was */
};

static_assert(TPACKET_ALIGN(TPACKET2_HDRLEN + 16) - ETH_HLEN + RX_RESERVE == RX_OFFSET,
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
	struct iovec parts[] = {
		{ .iov_base = (void *)(uintptr_t)headers, .iov_len = sizeof(*headers) },
		{ .iov_base = (void *)(uintptr_t)payload, .iov_len = payload_len },
	};
	const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (sendmsg(packet->fd, &message, MSG_DONTWAIT) >= 0)
		return true;
	/* No room in the socket's or the interface's queue. */
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

	if (ioctl(packet->fd, SIOCOUTQ, &bytes) < 0 || bytes < 0)
		return 0;
	return (uint32_t)bytes / packet->frame_memory;
}

static unsigned int
packet_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct af_packet *packet = (struct af_packet *)transport;
	unsigned int n;

	for (n = 0; n < max; n++) {
		struct tpacket2_hdr *slot = ring_head(&packet->rx);

		if ((slot_status(slot) & TP_STATUS_USER) == 0)
			break;
		frames[n] = (struct fanin_frame){
			.data = (uint8_t *)slot + slot->tp_mac,
			.len = slot->tp_snaplen,
			.handle = (uintptr_t)slot,
		};
		ring_advance(&packet->rx);
	}
	if (n == 0 && max != 0 && fanin_packet_long_next(&packet->longer, frames))
		return 1;
	return n;
}

static void
packet_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct af_packet *packet = (struct af_packet *)transport;

	for (unsigned int i = 0; i < n; i++) {
		if (frames[i].headers_only)
			fanin_packet_long_release(&packet->longer);
		else
			slot_set_status((struct tpacket2_hdr *)(uintptr_t)frames[i].handle,
					TP_STATUS_KERNEL);
	}
}

static bool
packet_rx_copy(struct fanin_transport *transport, const struct fanin_frame *frame, uint32_t offset,
	       void *to, uint32_t len)
{
	struct af_packet *packet = (struct af_packet *)transport;

	return fanin_packet_long_copy(&packet->longer, frame, offset, to, len);
}

static unsigned int
packet_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct af_packet *packet = (struct af_packet *)transport;

	fds[0] = (struct pollfd){ .fd = packet->fd, .events = POLLIN };
	if (packet->longer.fd < 0)
		return 1;
	fds[1] = (struct pollfd){ .fd = packet->longer.fd, .events = POLLIN };
	return 2;
}

uint32_t
fanin_packet_drops(int fd)
{
	struct tpacket_stats stats = { 0 };
	socklen_t len = sizeof(stats);

	/* Reading resets the kernel's counters. */
	getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len);
	return stats.tp_drops;
}

static uint64_t
packet_ring_drops(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;

	packet->ring_drops += fanin_packet_drops(packet->fd);
	if (packet->longer.fd >= 0)
		packet->ring_drops += fanin_packet_drops(packet->longer.fd);
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
	fanin_packet_long_close(&packet->longer);
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
	.close = packet_close,
};

/*
 * Accepts untagged IPv4 without options or fragments, UDP to our port, our job: the same as the XDP
 * program.
 */
static int
filter_attach(int fd, const struct fanin_transport_config *config, enum fanin_packet_lengths lengths)
{
	const uint32_t longest = lengths == FANIN_PACKET_ALL ? UINT32_MAX : FANIN_PACKET_SHORT_MAX;
	const uint8_t if_longer = lengths == FANIN_PACKET_LONG ? 0 : 15;
	uint32_t job_offset = FANIN_L4_LEN + offsetof(struct fanin_hdr, job);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, longest, if_longer, 15 - if_longer),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 13),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, eth.type_be)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 11),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, offsetof(struct fanin_headers, ip.version_ihl)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x45, 0, 9),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, offsetof(struct fanin_headers, ip.protocol)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 7),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, ip.fragment_be)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 5, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct fanin_headers, udp.dst_be)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, config->udp_port, 0, 3),
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
 * Opens a UDP socket on our port that drops everything. Without it the kernel answers the switch
 * with ICMP errors.
 */
static int
sink_open(const struct fanin_transport_config *config)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { .len = 1, .filter = code };
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(config->udp_port),
		.sin_addr = { .s_addr = config->local_ip_be },
	};
	int on = 1;
	int fd;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* Several jobs on one host each have such a socket. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		fanin_log_line(config->log, FANIN_LOG_WARNING,
			       "cannot occupy UDP port %u: %s; the switch may get "
			       "ICMP errors",
			       config->udp_port, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
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
	 * Frames count against it until the receiver has them; without CAP_NET_ADMIN the default
	 * limit stays.
	 */
	if (setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) < 0)
		setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
	return FANIN_OK;
}

int
fanin_packet_socket(const struct fanin_transport_config *config, enum fanin_packet_lengths lengths)
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
	ret = filter_attach(fd, config, lengths);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	return fd;
}

int
fanin_packet_bind(int fd, const struct fanin_transport_config *config)
{
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = config->ifindex,
	};

	return bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

/*
 * Opens the socket with the ring. packet->longer is open already; the ring gets what it does not
 * take.
 */
static int
ring_open(struct af_packet *packet, const struct fanin_transport_config *config,
	  struct fanin_error *error)
{
	const bool all = packet->longer.fd < 0;
	const uint32_t frame_len = all ? config->frame_len : FANIN_PACKET_SHORT_MAX;
	int status;

	packet->frame_memory = config->frame_len + FRAME_OVERHEAD;
	packet->fd = fanin_packet_socket(config, all ? FANIN_PACKET_ALL : FANIN_PACKET_SHORT);
	if (packet->fd == -EPERM || packet->fd == -EACCES)
		return fanin_error_set(error, FANIN_ERR_PERMISSION, "raw sockets need CAP_NET_RAW");
	if (packet->fd < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "no filtered raw socket: %s",
				       strerror(-packet->fd));
	status = socket_configure(packet, config, error);
	if (status != FANIN_OK)
		return status;
	status = ring_map(packet, frame_len, config->window);
	if (status < 0)
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "cannot map a ring for %u frames of %u bytes: %s",
				       2u * config->window, frame_len, strerror(-status));
	status = fanin_packet_bind(packet->fd, config);
	if (status < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "cannot bind to %s: %s",
				       config->interface, strerror(-status));
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
	fanin_packet_long_open(&packet->longer, config);
	status = ring_open(packet, config, error);
	if (status != FANIN_OK) {
		packet_close(&packet->transport);
		return status;
	}
	packet->sink_fd = sink_open(config);
	snprintf(packet->transport.reason, sizeof(packet->transport.reason),
		 "af_packet: a memory-mapped ring%s on %s",
		 packet->longer.fd >= 0 ? " and a queue for long frames" : "", config->interface);
	*transport = &packet->transport;
	return FANIN_OK;
}
