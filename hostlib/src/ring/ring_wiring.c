/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the neighbours of the ring: each rank connects to the next one, and both say hello with
 * the job's key. A connection that starts with anything else is closed and counted, as is one whose
 * hello does not come in time.
 */
#include "ring_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS (2000 * 1000000ull)
#define RETRY_NS (100 * 1000000ull)

int
fanin_ring_listen(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error)
{
	struct sockaddr_in bound = { .sin_family = AF_INET, .sin_addr.s_addr = ip_be };
	socklen_t len = sizeof(bound);
	char text[INET_ADDRSTRLEN];
	int fd;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "socket: %s", strerror(errno));
	if (bind(fd, (struct sockaddr *)&bound, len) < 0 || listen(fd, FANIN_RING_GUESTS) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &len) < 0) {
		fanin_error_set(error, 0, "cannot listen on %s for the ring: %s",
				inet_ntop(AF_INET, &ip_be, text, sizeof(text)), strerror(errno));
		close(fd);
		return FANIN_ERR_SYSTEM;
	}
	*address = bound;
	return fd;
}

bool
fanin_ring_wired(const struct fanin_ring *ring)
{
	return ring->config.size == 1 ||
	       (ring->prev >= 0 && ring->next_state == FANIN_RING_NEXT_OPEN);
}

static void
hello_make(const struct fanin_ring *ring, uint16_t to, struct fanin_ring_piece *piece)
{
	const struct fanin_ring_hello hello = {
		.magic = FANIN_RING_MAGIC,
		.key = ring->config.key,
		.version = FANIN_RING_VERSION,
		.from = ring->config.rank,
		.to = to,
		.size = ring->config.size,
	};

	fanin_ring_piece_set(piece, &hello, sizeof(hello));
}

/* Returns what is wrong with a hello of that rank; NULL if nothing is. */
static const char *
hello_problem(const struct fanin_ring *ring, const struct fanin_ring_piece *piece, uint16_t from)
{
	struct fanin_ring_hello hello;

	memcpy(&hello, piece->bytes, sizeof(hello));
	if (hello.magic != FANIN_RING_MAGIC)
		return "it does not speak this protocol";
	if (hello.version != FANIN_RING_VERSION)
		return "it speaks another version";
	if (hello.key != ring->config.key)
		return "its key is not the job's";
	if (hello.size != ring->config.size || hello.to != ring->config.rank || hello.from != from)
		return "it is not the neighbour";
	return NULL;
}

/* Small messages must not wait for the acknowledgement of the ones before. */
static void
connection_tune(int fd)
{
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

/* ------------------------------------------------- the previous rank calls */

static void
guest_close(struct fanin_ring *ring, struct fanin_ring_guest *guest, const char *problem)
{
	close(guest->fd);
	guest->fd = -1;
	ring->stats.rejected++;
	fanin_log_line(ring->config.log, FANIN_LOG_WARNING,
		       "a connection to the ring was closed: %s", problem);
}

/*
 * Returns an entry for a new connection: a free one, or that of the connection that has been silent
 * for longest.
 */
static struct fanin_ring_guest *
guest_place(struct fanin_ring *ring)
{
	struct fanin_ring_guest *oldest = &ring->guests[0];

	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd < 0)
			return &ring->guests[i];
		if (ring->guests[i].deadline_ns < oldest->deadline_ns)
			oldest = &ring->guests[i];
	}
	guest_close(ring, oldest, "others came while it was silent");
	return oldest;
}

static void
guests_accept(struct fanin_ring *ring)
{
	for (;;) {
		int fd = accept4(ring->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		*guest_place(ring) = (struct fanin_ring_guest){
			.fd = fd,
			.deadline_ns = ring->now_ns + HELLO_NS,
		};
	}
}

/* The peer is the previous rank: answers its hello. */
static void
guest_admit(struct fanin_ring *ring, struct fanin_ring_guest *guest)
{
	struct fanin_ring_piece hello;

	hello_make(ring, fanin_ring_prev_rank(ring), &hello);
	/* Nothing was written to this connection before: there is room. */
	if (fanin_ring_piece_send(guest->fd, &hello) != 1) {
		guest_close(ring, guest, "it could not be answered");
		return;
	}
	connection_tune(guest->fd);
	ring->prev = guest->fd;
	guest->fd = -1;
}

static void
guest_hear(struct fanin_ring *ring, struct fanin_ring_guest *guest)
{
	int ret = fanin_ring_piece_receive(guest->fd, &guest->hello, sizeof(struct fanin_ring_hello));
	const char *problem;

	if (ret < 0 && guest->hello.done == 0) {
		/*
		 * Only a probe whether this machine is alive, by a neighbour whose ring is complete
		 * already.
		 */
		close(guest->fd);
		guest->fd = -1;
	} else if (ret < 0) {
		guest_close(ring, guest, "it ended before its hello");
	} else if (ret == 0) {
		if (ring->now_ns >= guest->deadline_ns)
			guest_close(ring, guest, "it did not say hello in time");
	} else {
		problem = hello_problem(ring, &guest->hello, fanin_ring_prev_rank(ring));
		if (problem == NULL && ring->prev >= 0)
			problem = "the previous rank is connected already";
		if (problem != NULL)
			guest_close(ring, guest, problem);
		else
			guest_admit(ring, guest);
	}
}

/* ------------------------------------------------------ to the next rank */

static void
next_close(struct fanin_ring *ring, int errnum)
{
	if (ring->next >= 0)
		close(ring->next);
	ring->next = -1;
	ring->next_errnum = errnum;
	ring->next_state = FANIN_RING_NEXT_CLOSED;
	ring->retry_ns = ring->now_ns + RETRY_NS;
}

static void
next_connect(struct fanin_ring *ring)
{
	const struct sockaddr_in *address = &ring->config.next;

	if (ring->now_ns < ring->retry_ns)
		return;
	ring->next = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ring->next < 0 ||
	    (connect(ring->next, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
	     errno != EINPROGRESS))
		next_close(ring, errno);
	else
		ring->next_state = FANIN_RING_NEXT_CONNECTING;
}

/* Checks whether connecting succeeded; then sends the hello. */
static void
next_greet(struct fanin_ring *ring)
{
	struct pollfd ready = { .fd = ring->next, .events = POLLOUT };
	struct fanin_ring_piece hello;
	socklen_t len = sizeof(int);
	int errnum = 0;

	if (poll(&ready, 1, 0) <= 0)
		return;
	getsockopt(ring->next, SOL_SOCKET, SO_ERROR, &errnum, &len);
	hello_make(ring, fanin_ring_next_rank(ring), &hello);
	if (errnum != 0 || fanin_ring_piece_send(ring->next, &hello) != 1) {
		next_close(ring, errnum != 0 ? errnum : ECONNRESET);
		return;
	}
	connection_tune(ring->next);
	ring->greeting = (struct fanin_ring_piece){ 0 };
	ring->next_state = FANIN_RING_NEXT_GREETING;
}

static void
next_hear(struct fanin_ring *ring)
{
	int ret = fanin_ring_piece_receive(ring->next, &ring->greeting,
					   sizeof(struct fanin_ring_hello));

	if (ret < 0)
		next_close(ring, -ret);
	if (ret != 1)
		return;
	if (hello_problem(ring, &ring->greeting, fanin_ring_next_rank(ring)) != NULL) {
		ring->stats.rejected++;
		next_close(ring, EPROTO);
		return;
	}
	ring->next_errnum = 0;
	ring->next_state = FANIN_RING_NEXT_OPEN;
}

void
fanin_ring_wire(struct fanin_ring *ring)
{
	if (ring->prev < 0)
		guests_accept(ring);
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd >= 0)
			guest_hear(ring, &ring->guests[i]);
	}
	if (ring->next_state == FANIN_RING_NEXT_CLOSED)
		next_connect(ring);
	if (ring->next_state == FANIN_RING_NEXT_CONNECTING)
		next_greet(ring);
	if (ring->next_state == FANIN_RING_NEXT_GREETING)
		next_hear(ring);
	if (!fanin_ring_wired(ring))
		return;
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd >= 0)
			guest_close(ring, &ring->guests[i], "the ring is complete");
	}
	close(ring->listener);
	ring->listener = -1;
}

/* ------------------------------------------------------------------ words */

void
fanin_ring_wiring_text(const struct fanin_ring *ring, char *text, size_t text_len)
{
	char address[INET_ADDRSTRLEN];

	if (ring->next_state != FANIN_RING_NEXT_OPEN)
		snprintf(text, text_len, "rank %u at %s:%u has not been reached%s%s",
			 fanin_ring_next_rank(ring),
			 inet_ntop(AF_INET, &ring->config.next.sin_addr, address, sizeof(address)),
			 ntohs(ring->config.next.sin_port), ring->next_errnum != 0 ? ": " : "",
			 ring->next_errnum != 0 ? strerror(ring->next_errnum) : "");
	else
		snprintf(text, text_len, "rank %u has not called", fanin_ring_prev_rank(ring));
}

uint64_t
fanin_ring_wiring_missing(const struct fanin_ring *ring)
{
	if (fanin_ring_wired(ring))
		return 0;
	return UINT64_C(1) << (ring->next_state != FANIN_RING_NEXT_OPEN ? fanin_ring_next_rank(ring)
									: fanin_ring_prev_rank(ring));
}
