/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of the bare exchange (exchange.h), without any rights. It receives into the memory that it
 * sends from: segments are sent from the vector, and sums are received over it, as nothing has to
 * be sent again and sums come in the order of sending.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lab/bench/peers/exchange.h"
#include "lab/bench/peers/loop.h"
#include "wire/wire.h"

#define BUFFER_BYTES (8 << 20) /* requested; without rights the kernel grants less */

struct host {
	int tx_fd;
	int rx_fd;
	uint32_t payload;  /* bytes of a whole segment */
	uint32_t segments; /* of a whole super-frame */
	uint32_t window;   /* super-frames */
	uint32_t number;   /* number of the next super-frame */
	struct fanin_hdr headers[EXCHANGE_SEGMENTS];
	struct iovec parts[2 * EXCHANGE_SEGMENTS];
};

/* A vector that is being exchanged. */
struct job {
	uint8_t *bytes;
	size_t len;
	uint32_t n_super; /* number of super-frames */
	uint32_t first;   /* number of the first super-frame */
};

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "exchange-host: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void
option_set(int fd, int level, int name, const void *value, socklen_t len, const char *what)
{
	if (setsockopt(fd, level, name, value, len) < 0)
		fail(what);
}

static int
socket_open(void)
{
	const int buffer = BUFFER_BYTES;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		fail("socket");
	option_set(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer), "SO_RCVBUF");
	option_set(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer), "SO_SNDBUF");
	return fd;
}

static void
host_open(struct host *host, const char *gateway, const char *interface)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(EXCHANGE_PORT) };
	const struct sockaddr_in group = {
		.sin_family = AF_INET,
		.sin_port = htons(EXCHANGE_PORT),
		.sin_addr = { .s_addr = htonl(EXCHANGE_GROUP) },
	};
	const struct ip_mreqn membership = {
		.imr_multiaddr = group.sin_addr,
		.imr_ifindex = (int)if_nametoindex(interface),
	};
	const int on = 1;

	if (inet_pton(AF_INET, gateway, &to.sin_addr) != 1)
		fail(gateway);
	host->tx_fd = socket_open();
	host->rx_fd = socket_open();
	option_set(host->rx_fd, SOL_UDP, UDP_GRO, &on, sizeof(on), "UDP_GRO");
	if (connect(host->tx_fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
	    bind(host->rx_fd, (const struct sockaddr *)&group, sizeof(group)) < 0 ||
	    connect(host->rx_fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
		fail("sockets");
	option_set(host->rx_fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership),
		   interface);
}

/* Lays out a super-frame of the vector. Returns how many segments it has, and their bytes. */
static uint32_t
describe(struct host *host, const struct job *job, uint32_t index, uint32_t *bytes)
{
	size_t at = (size_t)index * host->segments * host->payload;
	uint32_t n = 0;

	*bytes = 0;
	for (; n < host->segments && at < job->len; n++) {
		const size_t left = job->len - at;
		const size_t len = left < host->payload ? left : host->payload;

		host->parts[2 * n] = (struct iovec){ &host->headers[n], FANIN_HDR_LEN };
		host->parts[2 * n + 1] = (struct iovec){ job->bytes + at, len };
		*bytes += FANIN_HDR_LEN + (uint32_t)len;
		at += len;
	}
	return n;
}

static void
send_one(struct host *host, const struct job *job, uint32_t index)
{
	union {
		struct cmsghdr first;
		uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
	} control = { .first = { .cmsg_level = SOL_UDP,
				 .cmsg_type = UDP_SEGMENT,
				 .cmsg_len = CMSG_LEN(sizeof(uint16_t)) } };
	const uint16_t size = (uint16_t)(FANIN_HDR_LEN + host->payload);
	uint32_t bytes;
	const uint32_t n = describe(host, job, index, &bytes);
	struct msghdr message = { .msg_iov = host->parts, .msg_iovlen = 2 * n };

	for (uint32_t i = 0; i < n; i++)
		host->headers[i] = (struct fanin_hdr){ .version = FANIN_WIRE_VERSION,
						       .block = job->first + index };
	if (n > 1) {
		memcpy(CMSG_DATA(&control.first), &size, sizeof(size));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
	}
	while (sendmsg(host->tx_fd, &message, MSG_DONTWAIT) < 0) {
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg");
		sched_yield();
	}
}

/* Waits for a sum, which is received into the vector. */
static void
receive_one(struct host *host, const struct job *job, uint32_t index)
{
	struct pollfd poll_fd = { .fd = host->rx_fd, .events = POLLIN };
	uint32_t bytes;
	const uint32_t n = describe(host, job, index, &bytes);
	struct msghdr message = { .msg_iov = host->parts, .msg_iovlen = 2 * n };
	ssize_t len;

	for (unsigned int empty = 1; (len = recvmsg(host->rx_fd, &message, MSG_DONTWAIT)) < 0;
	     empty++) {
		if (errno != EAGAIN)
			fail("recvmsg");
		if (empty <= EXCHANGE_YIELDS)
			sched_yield();
		else if (poll(&poll_fd, 1, EXCHANGE_SILENCE_MS) == 0)
			fail("a super-frame was lost");
	}
	if (len != (ssize_t)bytes || host->headers[0].block != job->first + index) {
		fprintf(stderr,
			"exchange-host: found %zd bytes of super-frame %u, expected %u of %u\n",
			len, host->headers[0].block, bytes, job->first + index);
		exit(1);
	}
}

static void
exchange_allreduce(struct peer *peer, const float *send, float *recv, size_t count)
{
	struct host *host = peer->state;
	const size_t whole = (size_t)host->segments * host->payload;
	struct job job = { .bytes = (uint8_t *)recv, .len = count * sizeof(*recv) };
	uint32_t sent = 0;

	if (recv != send)
		memcpy(recv, send, job.len);
	job.n_super = (uint32_t)((job.len + whole - 1) / whole);
	job.first = host->number;
	host->number += job.n_super;
	for (uint32_t done = 0; done < job.n_super; done++) {
		for (; sent < job.n_super && sent < done + host->window; sent++)
			send_one(host, &job, sent);
		receive_one(host, &job, done);
	}
}

static void
exchange_barrier(struct peer *peer)
{
	float one = 1;

	exchange_allreduce(peer, &one, &one, 1);
}

/* Each rank's values have a place of their own in a sum, so all ranks receive all values. */
static void
exchange_maximum(struct peer *peer, double *values, size_t count)
{
	float *all = calloc(count * (size_t)peer->size, sizeof(*all));

	if (all == NULL)
		fail("maximum");
	for (size_t i = 0; i < count; i++)
		all[(size_t)peer->rank * count + i] = (float)values[i];
	exchange_allreduce(peer, all, all, count * (size_t)peer->size);
	for (size_t i = 0; i < count * (size_t)peer->size; i++) {
		if ((double)all[i] > values[i % count])
			values[i % count] = (double)all[i];
	}
	free(all);
}

int
main(int argc, char **argv)
{
	static struct host host;
	struct peer_task task = { 0 };
	struct peer peer = {
		.state = &host,
		.barrier = exchange_barrier,
		.collective = exchange_allreduce,
		.maximum = exchange_maximum,
	};

	if (argc < 11) {
		fputs("usage: exchange-host BYTES ITERS WARMUP RANK SIZE GATEWAY INTERFACE PAYLOAD SEGMENTS WINDOW [in-place] [mark=SOCKET]\n",
		      stderr);
		return 2;
	}
	peer_task_parse(&task, (const char *const *)argv + 1);
	peer_task_more(&task, (const char *const *)argv + 11);
	peer.rank = atoi(argv[4]);
	peer.size = atoi(argv[5]);
	host.payload = (uint32_t)atoi(argv[8]);
	host.segments = (uint32_t)atoi(argv[9]);
	host.window = (uint32_t)atoi(argv[10]);
	if (host.segments == 0 || host.segments > EXCHANGE_SEGMENTS || host.payload == 0 ||
	    host.segments * (host.payload + FANIN_HDR_LEN) > EXCHANGE_BYTES || host.window == 0 ||
	    host.window > EXCHANGE_WINDOW) {
		fprintf(stderr,
			"exchange-host: found a window of %s super-frames of %s segments of %s bytes, which is too much\n",
			argv[10], argv[9], argv[8]);
		return 2;
	}
	host_open(&host, argv[6], argv[7]);
	return peer_run(&peer, &task);
}
