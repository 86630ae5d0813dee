/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The middle of the bare exchange (exchange.h): a packet socket on each interface, which receives
 * and sends whole super-frames. Prints a line once all are open. Runs until it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lab/bench/peers/exchange.h"
#include "handlers/kernels/kernels.h"
#include "wire/types.h"
#include "wire/wire.h"

#define HOSTS_MAX 16
#define SLOTS (2 * EXCHANGE_WINDOW)
#define BUFFER_BYTES (8 << 20)

/* A super-frame, as packet sockets receive and send it. */
struct message {
	struct virtio_net_hdr vnet;
	struct fanin_headers headers;
	uint8_t rest[EXCHANGE_BYTES];
} __attribute__((packed));

struct slot {
	struct message *sum;
	uint32_t len;
	uint32_t n; /* hosts whose contributions are in it */
};

struct middle {
	int n_hosts;
	struct pollfd fds[HOSTS_MAX];
	fanin_kernel_fn add;
	struct message *next; /* the next contribution is received into it */
	struct slot slots[SLOTS];
	struct fanin_flow flow;
};

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "exchange-middle: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int
port_open(const char *interface)
{
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = (int)if_nametoindex(interface),
	};
	const int on = 1, buffer = BUFFER_BYTES;
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer)) < 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		fail(interface);
	return fd;
}

static struct message *
message_new(void)
{
	struct message *message = calloc(1, sizeof(*message));

	if (message == NULL)
		fail("memory");
	return message;
}

/* Returns the sum over the pseudo-header, from which the kernel completes the checksum. */
static uint16_t
pseudo_checksum(const struct fanin_headers *headers)
{
	const uint32_t src = ntohl(headers->ip.src_be), dst = ntohl(headers->ip.dst_be);
	uint32_t sum = (src >> 16) + (src & 0xffff) + (dst >> 16) + (dst & 0xffff) + IPPROTO_UDP +
		       ntohs(headers->udp.len_be);

	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	return htons((uint16_t)sum);
}

/* Adds the segments of a contribution to a sum with the same number of segments. */
static void
add(const struct middle *middle, const struct slot *slot, const struct message *from)
{
	const size_t first = offsetof(struct message, headers.fanin);
	const size_t size = slot->sum->vnet.gso_size != 0 ? slot->sum->vnet.gso_size
							  : slot->len - first;

	for (size_t at = first; at < slot->len; at += size) {
		const size_t len = slot->len - at < size ? slot->len - at : size;

		middle->add((uint8_t *)slot->sum + at + FANIN_HDR_LEN,
			    (const uint8_t *)from + at + FANIN_HDR_LEN,
			    (len - FANIN_HDR_LEN) / sizeof(float));
	}
}

/* Sends a sum to all hosts, with the kernel's description of the first contribution. */
static void
give(const struct middle *middle, const struct slot *slot)
{
	struct fanin_headers *headers = &slot->sum->headers;

	fanin_wire_encode_l4(headers, &middle->flow,
			     slot->len - (uint32_t)offsetof(struct message, rest));
	headers->udp.checksum_be = pseudo_checksum(headers);
	for (int i = 0; i < middle->n_hosts; i++) {
		while (send(middle->fds[i].fd, slot->sum, slot->len, MSG_DONTWAIT) < 0) {
			if (errno != EAGAIN && errno != ENOBUFS)
				fail("send");
			sched_yield();
		}
	}
}

/* Receives a contribution. Returns false if there is none. */
static bool
take(struct middle *middle, int fd)
{
	struct message *message = middle->next;
	const ssize_t len = recv(fd, message, sizeof(*message), MSG_DONTWAIT);
	struct slot *slot;

	if (len < 0 && errno != EAGAIN)
		fail("recv");
	if (len < (ssize_t)offsetof(struct message, rest))
		return len >= 0;
	if (message->headers.ip.protocol != IPPROTO_UDP ||
	    message->headers.udp.dst_be != htons(EXCHANGE_PORT))
		return true;
	slot = &middle->slots[message->headers.fanin.block % SLOTS];
	if (slot->n == 0) {
		middle->next = slot->sum;
		slot->sum = message;
		slot->len = (uint32_t)len;
	} else if (slot->sum->headers.fanin.block != message->headers.fanin.block ||
		   slot->len != (uint32_t)len) {
		fprintf(stderr,
			"exchange-middle: found super-frame %u of %zd bytes, expected %u of %u\n",
			message->headers.fanin.block, len, slot->sum->headers.fanin.block,
			slot->len);
		exit(1);
	} else {
		add(middle, slot, message);
	}
	if (++slot->n == (uint32_t)middle->n_hosts) {
		give(middle, slot);
		slot->n = 0;
	}
	return true;
}

static void __attribute__((noreturn)) run(struct middle *middle)
{
	unsigned int empty = 0;

	for (;;) {
		bool found = false;

		for (int i = 0; i < middle->n_hosts; i++)
			found |= take(middle, middle->fds[i].fd);
		if (found) {
			empty = 0;
			continue;
		}
		if (++empty <= EXCHANGE_YIELDS)
			sched_yield();
		else
			(void)poll(middle->fds, (nfds_t)middle->n_hosts, -1);
	}
}

int
main(int argc, char **argv)
{
	static struct middle middle;

	if (argc < 4 || argc - 2 > HOSTS_MAX) {
		fprintf(stderr,
			"usage: exchange-middle ADDRESS INTERFACE INTERFACE...   (at most %d)\n",
			HOSTS_MAX);
		return 2;
	}
	middle.n_hosts = argc - 2;
	for (int i = 0; i < middle.n_hosts; i++)
		middle.fds[i] = (struct pollfd){ .fd = port_open(argv[2 + i]), .events = POLLIN };
	middle.add = fanin_kernel(fanin_isa_detect(), FANIN_WIRE_F32, FANIN_WIRE_SUM);
	middle.next = message_new();
	for (unsigned int i = 0; i < SLOTS; i++)
		middle.slots[i].sum = message_new();
	middle.flow = (struct fanin_flow){
		.src_mac = { 0x02, 0xfa, 0, 0, 0, 0xfe },
		.dst_mac = { 0x01, 0, 0x5e, EXCHANGE_GROUP >> 16 & 0x7f, EXCHANGE_GROUP >> 8 & 0xff,
			     EXCHANGE_GROUP & 0xff },
		.dst_ip_be = htonl(EXCHANGE_GROUP),
		.src_port = EXCHANGE_PORT,
		.dst_port = EXCHANGE_PORT,
	};
	if (inet_pton(AF_INET, argv[1], &middle.flow.src_ip_be) != 1)
		fail(argv[1]);
	puts("ready");
	fflush(stdout);
	run(&middle);
}
