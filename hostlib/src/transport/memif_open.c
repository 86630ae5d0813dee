/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets up the memif transport: the connection to the switch, the shared memory, and the switch's
 * address. See memif.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hostlib/src/base/clock.h"
#include "memif_internal.h"
#include "wire/arp.h"

static_assert(FANIN_MEMIF_BUFFER_BYTES % 64 == 0 && FANIN_MEMIF_RINGS_BYTES % 64 == 0 &&
		      FANIN_MEMIF_HEADROOM % 64 == 32,
	      "payload alignment");
static_assert(FANIN_MEMIF_FRAME_BYTES >= FANIN_MEMIF_MTU + 18, "Ethernet header and VLAN tag");
static_assert(FANIN_MEMIF_SLOTS <= 1u << MEMIF_MAX_LOG2_RING, "ring size");

/*
 * Timeout of connecting and of each answer; maximum wait for another client to end, and the pause
 * between tries.
 */
#define ANSWER_MS 2000
#define BUSY_WAIT_MS 1000
#define BUSY_PAUSE_MS 10

#define ARP_REPEAT_NS (100 * 1000000ull)

/* Suffices for the answers to ARP and JOIN, and for other hosts' broadcasts meanwhile. */
#define FIRST_BUFFERS 16

/* Replaces unprintable characters in a string from the switch, for messages. */
static const char *
printable(char *text, size_t len)
{
	text[len - 1] = '\0';
	for (char *c = text; *c != '\0'; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	return text;
}

/* Allocates the shared memory, with two empty rings. */
static int
area_open(struct fanin_memif *memif, int *area_fd, struct fanin_error *error)
{
	const struct memif_ring empty = { .cookie = MEMIF_COOKIE,
					  .flags = MEMIF_RING_NO_INTERRUPT };
	uint64_t ring_bytes = memif_ring_bytes(FANIN_MEMIF_LOG2_SLOTS);
	void *area;
	int fd;

	static_assert(2 * (sizeof(struct memif_ring) +
			   FANIN_MEMIF_SLOTS * sizeof(struct memif_descriptor)) <=
			      FANIN_MEMIF_RINGS_BYTES,
		      "rings");
	fd = memfd_create("fanin-memif", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot make shared memory: %s",
				       strerror(errno));
	*area_fd = fd;
	/* The switch requires that the mapped memory can't shrink. */
	if (ftruncate(fd, FANIN_MEMIF_AREA_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "no %u bytes of shared memory: %s", FANIN_MEMIF_AREA_BYTES,
				       strerror(errno));
	area = mmap(NULL, FANIN_MEMIF_AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "cannot map %u bytes of shared memory: %s",
				       FANIN_MEMIF_AREA_BYTES, strerror(errno));
	memif->area = area;
	memif->area_len = FANIN_MEMIF_AREA_BYTES;
	memif->tx.shared = area;
	memif->rx.shared = (struct memif_ring *)(memif->area + ring_bytes);
	*memif->tx.shared = empty;
	*memif->rx.shared = empty;
	while (memif->n_tx_free < FANIN_MEMIF_SLOTS) {
		memif->tx_free[memif->n_tx_free] = FANIN_MEMIF_BUFFER(memif->n_tx_free);
		memif->n_tx_free++;
	}
	memif->tx.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	memif->rx.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (memif->tx.event_fd < 0 || memif->rx.event_fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "cannot make an eventfd: %s",
				       strerror(errno));
	return FANIN_OK;
}

static int
message_send(const struct fanin_memif *memif, const struct memif_message *message, int passed,
	     struct fanin_error *error)
{
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { (void *)(uintptr_t)message, sizeof(*message) };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passed >= 0) {
		header.msg_control = &control;
		header.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(passed));
	}
	if (sendmsg(memif->fd, &header, MSG_NOSIGNAL) == sizeof(*message))
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_TRANSPORT,
			       "the switch does not listen any more: %s", strerror(errno));
}

/*
 * Receives the next message, which must have this type. The kernel drops descriptors that come with
 * it.
 */
static int
message_receive(const struct fanin_memif *memif, enum memif_type type,
		struct memif_message *message, bool *busy, struct fanin_error *error)
{
	ssize_t len;

	do {
		len = recv(memif->fd, message, sizeof(*message), MSG_TRUNC);
	} while (len < 0 && errno == EINTR);
	if (len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "the switch sends no answer: expected message type %u",
				       type);
	if (len <= 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "the switch closed the connection: %s",
				       len == 0 ? "no reason given" : strerror(errno));
	if (len != sizeof(*message))
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "found a message of %zd bytes, expected %zu", len,
				       sizeof(*message));
	if (message->type == MEMIF_TYPE_DISCONNECT) {
		char *reason = message->disconnect.reason;

		*busy = strncasecmp(reason, MEMIF_BUSY_REASON, strlen(MEMIF_BUSY_REASON)) == 0;
		return fanin_error_set(error, FANIN_ERR_TRANSPORT, "the switch refused: %s",
				       printable(reason, sizeof(message->disconnect.reason)));
	}
	if (message->type != type)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "found message type %u, expected %u", message->type, type);
	return FANIN_OK;
}

/* Sends a message and receives the answer. */
static int
request_reply(const struct fanin_memif *memif, struct memif_message *message, int passed,
	      enum memif_type answer, bool *busy, struct fanin_error *error)
{
	int status = message_send(memif, message, passed, error);

	return status == FANIN_OK ? message_receive(memif, answer, message, busy, error) : status;
}

static int
hello_check(const struct memif_hello *hello, struct fanin_error *error)
{
	if (hello->min_version > MEMIF_VERSION || hello->max_version < MEMIF_VERSION)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "the switch speaks memif 0x%04x to 0x%04x, expected 0x%04x",
				       hello->min_version, hello->max_version, MEMIF_VERSION);
	if (hello->max_log2_ring < FANIN_MEMIF_LOG2_SLOTS)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "the switch takes rings of 2^%u slots, expected 2^%u",
				       hello->max_log2_ring, FANIN_MEMIF_LOG2_SLOTS);
	return FANIN_OK;
}

static int
ring_add(struct fanin_memif *memif, const struct fanin_memif_ring *ring, uint16_t flags, bool *busy,
	 struct fanin_error *error)
{
	struct memif_message message = {
		.type = MEMIF_TYPE_ADD_RING,
		.add_ring = {
			.flags = flags,
			.offset = (uint32_t)((uint8_t *)ring->shared - memif->area),
			.log2_slots = FANIN_MEMIF_LOG2_SLOTS,
		},
	};

	return request_reply(memif, &message, ring->event_fd, MEMIF_TYPE_ACK, busy, error);
}

static int
handshake(struct fanin_memif *memif, bool *busy, struct fanin_error *error)
{
	struct memif_message message;
	int area_fd = -1;
	int status = message_receive(memif, MEMIF_TYPE_HELLO, &message, busy, error);

	if (status == FANIN_OK)
		status = hello_check(&message.hello, error);
	if (status == FANIN_OK)
		status = area_open(memif, &area_fd, error);
	if (status == FANIN_OK) {
		message = (struct memif_message){
			.type = MEMIF_TYPE_INIT,
			.init = { .version = MEMIF_VERSION, .id = memif->options.id },
		};
		snprintf(message.init.name, sizeof(message.init.name), "fanin-%d", (int)getpid());
		status = request_reply(memif, &message, -1, MEMIF_TYPE_ACK, busy, error);
	}
	if (status == FANIN_OK) {
		message = (struct memif_message){
			.type = MEMIF_TYPE_ADD_REGION,
			.add_region = { .size = memif->area_len },
		};
		status = request_reply(memif, &message, area_fd, MEMIF_TYPE_ACK, busy, error);
	}
	if (area_fd >= 0)
		close(area_fd);
	if (status == FANIN_OK)
		status = ring_add(memif, &memif->tx, MEMIF_RING_TO_SERVER, busy, error);
	if (status == FANIN_OK)
		status = ring_add(memif, &memif->rx, 0, busy, error);
	if (status == FANIN_OK) {
		message = (struct memif_message){ .type = MEMIF_TYPE_CONNECT };
		snprintf(message.connect.interface, sizeof(message.connect.interface), "memif%u",
			 memif->options.id);
		status = request_reply(memif, &message, -1, MEMIF_TYPE_CONNECTED, busy, error);
	}
	return status;
}

int
fanin_memif_attach(int fd, const struct fanin_memif_options *options, unsigned int timeout_ms,
		   struct fanin_memif **memif, bool *busy, struct fanin_error *error)
{
	const struct timeval limit = {
		.tv_sec = timeout_ms / 1000,
		.tv_usec = timeout_ms % 1000 * 1000,
	};
	struct fanin_memif *created = calloc(1, sizeof(*created));
	int status;

	*busy = false;
	if (created == NULL) {
		close(fd);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	}
	created->transport.ops = &fanin_memif_ops;
	created->fd = fd;
	created->tx.event_fd = -1;
	created->rx.event_fd = -1;
	created->options = *options;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	status = handshake(created, busy, error);
	if (status != FANIN_OK) {
		created->transport.ops->close(&created->transport);
		return status;
	}
	/* Buffers are posted only now, as the switch resets the indices when it connects. */
	fanin_memif_post(created, FIRST_BUFFERS);
	*memif = created;
	return FANIN_OK;
}

static int
switch_connect(const struct fanin_memif_options *options, int *connected, struct fanin_error *error)
{
	const struct timeval limit = { .tv_sec = ANSWER_MS / 1000 };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;
	int status;

	if (strlen(options->socket) >= sizeof(address.sun_path))
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"the memif socket's path has %zu bytes, expected at most %zu",
			strlen(options->socket), sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, options->socket, strlen(options->socket) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
		*connected = fd;
		return FANIN_OK;
	}
	status = fanin_error_set(error, fanin_status_from_errno(errno, FANIN_ERR_TRANSPORT),
				 "no switch serves the memif socket %s: %s", options->socket,
				 strerror(errno));
	close(fd);
	return status;
}

int
fanin_memif_open(const struct fanin_memif_options *options, struct fanin_transport **transport,
		 struct fanin_error *error)
{
	const struct timespec pause = { .tv_nsec = BUSY_PAUSE_MS * 1000000 };
	struct fanin_memif *memif = NULL;
	bool busy = false;
	int status;

	for (int tries = 0;; tries++) {
		int fd = -1;

		status = switch_connect(options, &fd, error);
		if (status == FANIN_OK)
			status = fanin_memif_attach(fd, options, ANSWER_MS, &memif, &busy, error);
		/* The switch notices a killed client a little later. */
		if (status == FANIN_OK || !busy || tries == BUSY_WAIT_MS / BUSY_PAUSE_MS)
			break;
		nanosleep(&pause, NULL);
	}
	if (status != FANIN_OK)
		return status;
	snprintf(memif->transport.reason, sizeof(memif->transport.reason),
		 "memif: memory shared with the switch");
	*transport = &memif->transport;
	return FANIN_OK;
}

static void
arp_ask(struct fanin_memif *memif, uint32_t switch_ip_be)
{
	const struct fanin_transport_ops *ops = memif->transport.ops;
	struct fanin_arp arp;
	void *frame = ops->tx_reserve(&memif->transport, sizeof(arp));

	if (frame == NULL)
		return;
	fanin_arp_encode(&arp, FANIN_ARP_REQUEST_BE, memif->options.local_mac,
			 memif->options.local_ip_be, switch_ip_be);
	memset(arp.eth.dst, 0xff, sizeof(arp.eth.dst));
	memcpy(frame, &arp, sizeof(arp));
	ops->tx_commit(&memif->transport, sizeof(arp));
	ops->tx_flush(&memif->transport);
}

/* Looks for the answer to ARP among the received frames. Returns true if it is there. */
static bool
arp_answer(struct fanin_memif *memif, uint32_t switch_ip_be, uint8_t *mac)
{
	const struct fanin_transport_ops *ops = memif->transport.ops;
	struct fanin_frame frame;
	struct fanin_arp arp;
	bool found = false;

	while (!found && ops->rx_burst(&memif->transport, &frame, 1) != 0) {
		found = fanin_arp_decode(frame.data, frame.len, &arp) &&
			arp.operation_be == FANIN_ARP_REPLY_BE &&
			arp.sender_ip_be == switch_ip_be &&
			arp.target_ip_be == memif->options.local_ip_be;
		ops->rx_release(&memif->transport, &frame, 1);
	}
	if (found)
		memcpy(mac, arp.sender_mac, sizeof(arp.sender_mac));
	return found;
}

int
fanin_memif_resolve(struct fanin_transport *transport, uint32_t switch_ip_be, uint64_t deadline_ns,
		    fanin_interrupt_fn interrupt, void *interrupt_arg, uint8_t *mac,
		    struct fanin_error *error)
{
	struct fanin_memif *memif = (struct fanin_memif *)transport;
	uint64_t next_ns = 0;
	char address[INET_ADDRSTRLEN];

	while (!arp_answer(memif, switch_ip_be, mac)) {
		struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];
		uint64_t now_ns = fanin_now_ns(NULL);
		unsigned int n;

		if (now_ns >= deadline_ns || memif->errnum != 0)
			return fanin_error_set(
				error, FANIN_ERR_NO_ROUTE,
				"the switch on %s has no answer for the address %s: is that its own? (%s)",
				memif->options.socket,
				inet_ntop(AF_INET, &switch_ip_be, address, sizeof(address)),
				memif->errnum != 0 ? strerror(memif->errnum) : "ARP timed out");
		if (interrupt != NULL && interrupt(interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while asking for the switch's address");
		if (now_ns >= next_ns) {
			arp_ask(memif, switch_ip_be);
			next_ns = now_ns + ARP_REPEAT_NS;
		}
		n = transport->ops->poll_fds(transport, fds);
		poll(fds, n, (int)((next_ns - now_ns + 999999) / 1000000));
	}
	return FANIN_OK;
}
