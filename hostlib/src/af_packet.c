/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_PACKET transport: two rings of frames shared with the kernel (TPACKET_V2, which hands over every frame at once where
 * V3 waits for a block to fill). Works on every interface and with every MTU; needs CAP_NET_RAW. See transport.h.
 */
#include "transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/wire.h"

/* Ring frames lie in blocks of this size; a bigger frame gets a block of its own. */
#define BLOCK_BYTES (64 * 1024u)

/* The kernel puts a received frame 66 bytes behind the ring frame's start; 30 more make it 32 modulo 64. */
#define RX_RESERVE 30u
#define RX_OFFSET 96u
#define TX_OFFSET (TPACKET2_HDRLEN - sizeof(struct sockaddr_ll))

#define MIN_RX_FRAMES 256u
#define MIN_TX_FRAMES 64u
#define SEND_BUFFER_BYTES (16 * 1024 * 1024)

struct ring {
	uint8_t **frames;
	uint32_t n_frames;
	uint32_t head; /* next frame to use */
};

struct af_packet {
	struct fanin_transport transport;
	int fd;
	int sink_fd; /* takes what the kernel's UDP would answer with "port unreachable" */
	void *map;
	size_t map_len;
	struct ring rx;
	struct ring tx;
	uint64_t ring_drops;
	struct tpacket2_hdr *unsent; /* last committed frame while the kernel has not taken it */
};

static_assert(TX_OFFSET % 64 == 32, "payload alignment");
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

static void *
packet_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct af_packet *packet = (struct af_packet *)transport;
	struct tpacket2_hdr *slot = ring_head(&packet->tx);
	uint32_t status = slot_status(slot);

	(void)len; /* fanin_transport_config.frame_len bounds it */
	if (status != TP_STATUS_AVAILABLE && (status & TP_STATUS_WRONG_FORMAT) == 0)
		return NULL;
	return (uint8_t *)slot + TX_OFFSET;
}

static void
packet_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct af_packet *packet = (struct af_packet *)transport;
	struct tpacket2_hdr *slot = ring_head(&packet->tx);

	slot->tp_len = len;
	slot_set_status(slot, TP_STATUS_SEND_REQUEST);
	ring_advance(&packet->tx);
	packet->unsent = slot;
}

static int
packet_tx_flush(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;

	if (packet->unsent == NULL)
		return 0;
	if (sendto(packet->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN &&
	    errno != ENOBUFS && errno != EINTR)
		return -errno;
	if (slot_status(packet->unsent) != TP_STATUS_SEND_REQUEST)
		packet->unsent = NULL;
	return 0;
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
		frames[n].data = (uint8_t *)slot + slot->tp_mac;
		frames[n].len = slot->tp_snaplen;
		frames[n].handle = (uintptr_t)slot;
		ring_advance(&packet->rx);
	}
	return n;
}

static void
packet_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	for (unsigned int i = 0; i < n; i++)
		slot_set_status((struct tpacket2_hdr *)(uintptr_t)frames[i].handle, TP_STATUS_KERNEL);
}

static unsigned int
packet_poll_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	struct af_packet *packet = (struct af_packet *)transport;

	fds[0] = (struct pollfd){ .fd = packet->fd, .events = POLLIN };
	return 1;
}

static uint64_t
packet_ring_drops(struct fanin_transport *transport)
{
	struct af_packet *packet = (struct af_packet *)transport;
	struct tpacket_stats stats = { 0 };
	socklen_t len = sizeof(stats);

	/* Asking sets the kernel's counters back. */
	getsockopt(packet->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len);
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
	free(packet->rx.frames);
	free(packet->tx.frames);
	free(packet);
}

static const struct fanin_transport_ops packet_ops = {
	.name = "af_packet",
	.tx_reserve = packet_tx_reserve,
	.tx_commit = packet_tx_commit,
	.tx_flush = packet_tx_flush,
	.rx_burst = packet_rx_burst,
	.rx_release = packet_rx_release,
	.poll_fds = packet_poll_fds,
	.ring_drops = packet_ring_drops,
	.close = packet_close,
};

/* Untagged IPv4 without options or fragments, UDP to our port, our job: all that the XDP program takes, too. */
static int
filter_attach(int fd, const struct fanin_transport_config *config)
{
	uint32_t job_offset = FANIN_L4_LEN + offsetof(struct fanin_hdr, job);
	struct sock_filter code[] = {
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

/* A UDP socket on our port that drops everything. Without one the kernel answers the switch with ICMP errors. */
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
	/* Several jobs on one host each have one. */
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

/* Both rings, in one mapping as the kernel wants it: first what is received. Returns 0 or -errno. */
static int
rings_map(struct af_packet *packet, const struct fanin_transport_config *config)
{
	uint32_t rx_bytes = (RX_OFFSET + config->frame_len + 63) / 64 * 64;
	uint32_t tx_bytes = (TX_OFFSET + config->frame_len + 63) / 64 * 64;
	uint32_t rx_frames = 2u * config->window > MIN_RX_FRAMES ? 2u * config->window
								 : MIN_RX_FRAMES;
	uint32_t tx_frames = config->window > MIN_TX_FRAMES ? config->window : MIN_TX_FRAMES;
	struct tpacket_req rx = { 0 };
	struct tpacket_req tx = { 0 };
	size_t rx_len;
	void *map;

	ring_describe(&rx, rx_bytes, rx_frames);
	ring_describe(&tx, tx_bytes, tx_frames);
	if (setsockopt(packet->fd, SOL_PACKET, PACKET_RX_RING, &rx, sizeof(rx)) < 0 ||
	    setsockopt(packet->fd, SOL_PACKET, PACKET_TX_RING, &tx, sizeof(tx)) < 0)
		return -errno;

	rx_len = (size_t)rx.tp_block_size * rx.tp_block_nr;
	packet->map_len = rx_len + (size_t)tx.tp_block_size * tx.tp_block_nr;
	map = mmap(NULL, packet->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, packet->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	packet->map = map;
	if (ring_fill(&packet->rx, &rx, map) < 0 ||
	    ring_fill(&packet->tx, &tx, (uint8_t *)map + rx_len) < 0)
		return -ENOMEM;
	return 0;
}

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
		{ PACKET_LOSS, 1, "PACKET_LOSS", false },
		{ PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS", false },
		{ PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING", false },
	};
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = config->ifindex,
	};
	int send_buffer = SEND_BUFFER_BYTES;
	int status;

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
	/* Frames count against it until the receiver has them; without CAP_NET_ADMIN the usual limit stays. */
	if (setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer, sizeof(send_buffer)) < 0)
		setsockopt(packet->fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));

	status = filter_attach(packet->fd, config);
	if (status < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot attach the socket filter: %s", strerror(-status));
	status = rings_map(packet, config);
	if (status < 0)
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "cannot map rings for %u frames of %u bytes: %s",
				       2u * config->window, config->frame_len, strerror(-status));
	if (bind(packet->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
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
	/* Protocol 0: nothing comes in before the filter is there and the socket is bound. */
	packet->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (packet->fd < 0) {
		status = errno == EPERM || errno == EACCES
				 ? fanin_error_set(error, FANIN_ERR_PERMISSION,
						   "raw sockets need CAP_NET_RAW")
				 : fanin_error_set(error, FANIN_ERR_TRANSPORT, "socket: %s",
						   strerror(errno));
		goto close_packet;
	}
	status = socket_configure(packet, config, error);
	if (status != FANIN_OK)
		goto close_packet;
	packet->sink_fd = sink_open(config);
	snprintf(packet->transport.reason, sizeof(packet->transport.reason),
		 "af_packet: memory-mapped rings on %s", config->interface);
	*transport = &packet->transport;
	return FANIN_OK;

close_packet:
	packet_close(&packet->transport);
	return status;
}
