/* SPDX-License-Identifier: BSD-3-Clause */
/* See memif_peer.h. */
#include "tests/unit/memif_peer.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct memif_message
answer_of(int step)
{
	static const uint16_t types[PEER_STEPS] = { MEMIF_TYPE_HELLO, MEMIF_TYPE_ACK,
						    MEMIF_TYPE_ACK,   MEMIF_TYPE_ACK,
						    MEMIF_TYPE_ACK,   MEMIF_TYPE_CONNECTED };
	struct memif_message message = { .type = types[step] };

	if (step == 0) {
		message.hello.min_version = MEMIF_VERSION;
		message.hello.max_version = MEMIF_VERSION;
		message.hello.max_log2_ring = MEMIF_MAX_LOG2_RING;
	}
	return message;
}

/*
 * Receives a message of the library. Returns the descriptor that came with it, or -1; -2 at the end
 * of the connection.
 */
static int
hear(const struct peer *peer, struct memif_message *message)
{
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec part = { message, sizeof(*message) };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd = -1;

	if (recvmsg(peer->fd, &header, 0) != sizeof(*message))
		return -2;
	if (header.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}

/* Makes the mistake of this step. Returns false if the script ends here. */
static bool
slip_up(const struct peer *peer)
{
	struct {
		struct memif_message message;
		uint8_t more[128];
	} said = { .message = peer->slip.message };
	size_t len = sizeof(said.message);

	if (peer->slip.how == PEER_HANGS_UP)
		shutdown(peer->fd, SHUT_RDWR);
	if (peer->slip.how == PEER_HANGS_UP || peer->slip.how == PEER_KEEPS_SILENT)
		return false;
	if (peer->slip.how == PEER_CUTS)
		len = 60;
	if (peer->slip.how == PEER_ADDS)
		len = sizeof(said);
	send(peer->fd, &said, len, MSG_NOSIGNAL);
	return true;
}

static void *
script(void *argument)
{
	struct peer *peer = argument;

	for (int step = 0; step < PEER_STEPS; step++) {
		struct memif_message message = answer_of(step);
		int fd = -1;

		if (step > 0)
			fd = hear(peer, &peer->heard[step]);
		if (fd == -2)
			break;
		if (step == 2)
			peer->area_fd = fd;
		else if (step == 3 || step == 4)
			peer->event_fds[step - 3] = fd;
		if (step != peer->slip.step)
			send(peer->fd, &message, sizeof(message), MSG_NOSIGNAL);
		else if (!slip_up(peer))
			break;
	}
	return NULL;
}

int
peer_start(struct peer *peer, const struct peer_slip *slip)
{
	int fds[2];

	*peer = (struct peer){ .slip = { .step = -1 }, .area_fd = -1, .event_fds = { -1, -1 } };
	if (slip != NULL)
		peer->slip = *slip;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	peer->fd = fds[0];
	ck_assert_int_eq(pthread_create(&peer->thread, NULL, script, peer), 0);
	return fds[1];
}

void
peer_join(struct peer *peer)
{
	ck_assert_int_eq(pthread_join(peer->thread, NULL), 0);
}

void
peer_map(struct peer *peer)
{
	const struct memif_message *region = &peer->heard[2];

	peer->area = mmap(NULL, region->add_region.size, PROT_READ | PROT_WRITE, MAP_SHARED,
			  peer->area_fd, 0);
	ck_assert(peer->area != MAP_FAILED);
	peer->to_server = (struct memif_ring *)(peer->area + peer->heard[3].add_ring.offset);
	peer->to_client = (struct memif_ring *)(peer->area + peer->heard[4].add_ring.offset);
	peer->to_server->flags = MEMIF_RING_NO_INTERRUPT;
}

void
peer_send(struct peer *peer, const void *frame, uint32_t len)
{
	struct memif_ring *ring = peer->to_client;
	uint32_t mask = (1u << peer->heard[4].add_ring.log2_slots) - 1;
	struct memif_descriptor *descriptor = &ring->descriptors[ring->tail & mask];

	ck_assert_uint_ne(ring->tail, __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE));
	ck_assert_uint_ge(descriptor->length, len);
	ck_assert_uint_eq(descriptor->region, 0);
	ck_assert_uint_eq(descriptor->flags, 0);
	ck_assert_uint_le((uint64_t)descriptor->offset + descriptor->length,
			  peer->heard[2].add_region.size);
	memcpy(peer->area + descriptor->offset, frame, len);
	descriptor->length = len;
	__atomic_store_n(&ring->tail, (uint16_t)(ring->tail + 1), __ATOMIC_RELEASE);
}

uint32_t
peer_take(struct peer *peer, void *frame)
{
	struct memif_ring *ring = peer->to_server;
	uint32_t mask = (1u << peer->heard[3].add_ring.log2_slots) - 1;
	struct memif_descriptor descriptor = ring->descriptors[ring->tail & mask];

	if (ring->tail == __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE))
		return 0;
	ck_assert_uint_eq(descriptor.region, 0);
	ck_assert_uint_eq(descriptor.flags, 0);
	/* The offset is 32 modulo 64: the payload behind 96 bytes of headers is aligned. */
	ck_assert_uint_eq(descriptor.offset % 64, 32);
	ck_assert_uint_le((uint64_t)descriptor.offset + descriptor.length,
			  peer->heard[2].add_region.size);
	memcpy(frame, peer->area + descriptor.offset, descriptor.length);
	__atomic_store_n(&ring->tail, (uint16_t)(ring->tail + 1), __ATOMIC_RELEASE);
	return descriptor.length;
}

struct fanin_memif *
peer_attach(struct peer *peer, const struct fanin_memif_options *options)
{
	struct fanin_memif *memif = NULL;
	struct fanin_error error = { 0 };
	bool busy;
	int fd = peer_start(peer, NULL);

	ck_assert_msg(fanin_memif_attach(fd, options, PEER_ANSWER_MS, &memif, &busy, &error) ==
			      FANIN_OK,
		      "%s", error.text);
	peer_join(peer);
	peer_map(peer);
	return memif;
}

void
peer_close(struct peer *peer)
{
	if (peer->area != NULL)
		munmap(peer->area, peer->heard[2].add_region.size);
	if (peer->area_fd >= 0)
		close(peer->area_fd);
	for (int i = 0; i < 2; i++) {
		if (peer->event_fds[i] >= 0)
			close(peer->event_fds[i]);
	}
	close(peer->fd);
}
