/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connects the ranks: each rank to the next, and the lower of two partners of recursive doubling to
 * the other. Both ends say hello with the job's key. A connection that starts with anything else,
 * or whose hello is late, is closed and counted. All connections are made before the first
 * collective. After that no rank listens, which shows that a machine is alive (ring_watch.c).
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
	if (bind(fd, (struct sockaddr *)&bound, len) < 0 || listen(fd, 2 * FANIN_RING_GUESTS) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &len) < 0) {
		fanin_error_set(error, 0, "cannot listen on %s for the ring: %s",
				inet_ntop(AF_INET, &ip_be, text, sizeof(text)), strerror(errno));
		close(fd);
		return FANIN_ERR_SYSTEM;
	}
	*address = bound;
	return fd;
}

/* Returns the first link that is not connected yet; NULL if all are. */
static const struct fanin_ring_link *
link_missing(const struct fanin_ring *ring)
{
	for (unsigned int i = 0; i < ring->n_links; i++) {
		if (ring->links[i].call.state != FANIN_RING_CALL_OPEN)
			return &ring->links[i];
	}
	return NULL;
}

bool
fanin_ring_wired(const struct fanin_ring *ring)
{
	/* No connection is closed later: when no rank can call any more, all connections exist. */
	return ring->listener < 0 || ring->config.size == 1 ||
	       (ring->prev >= 0 && ring->next.state == FANIN_RING_CALL_OPEN &&
		link_missing(ring) == NULL);
}

static void
hello_make(const struct fanin_ring *ring, uint16_t to, uint8_t purpose,
	   struct fanin_ring_piece *piece)
{
	const struct fanin_ring_hello hello = {
		.magic = FANIN_RING_MAGIC,
		.key = ring->config.keys.ring,
		.version = FANIN_RING_VERSION,
		.from = ring->config.rank,
		.to = to,
		.size = ring->config.size,
		.purpose = purpose,
	};

	fanin_ring_piece_set(piece, &hello, sizeof(hello));
}

/*
 * Returns what is wrong with a hello; NULL if nothing is. from: the rank that it should come from.
 */
static const char *
hello_problem(const struct fanin_ring *ring, const struct fanin_ring_hello *hello, uint16_t from)
{
	if (hello->magic != FANIN_RING_MAGIC)
		return "it does not speak this protocol";
	if (hello->version != FANIN_RING_VERSION || hello->purpose > FANIN_RING_LINK)
		return "it speaks another version";
	if (hello->key != ring->config.keys.ring)
		return "its key is not the job's";
	if (hello->size != ring->config.size || hello->to != ring->config.rank ||
	    hello->from != from)
		return hello->purpose == FANIN_RING_LINK ? "it is no partner"
							 : "it is not the neighbour";
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

/* ------------------------------------------------------- other ranks call */

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

/* Returns the link to a lower rank, which makes the connection; NULL if there is none. */
static struct fanin_ring_link *
link_from(struct fanin_ring *ring, uint16_t rank)
{
	for (unsigned int i = 0; i < ring->n_links; i++) {
		if (ring->links[i].call.rank == rank && rank < ring->config.rank)
			return &ring->links[i];
	}
	return NULL;
}

/*
 * Returns what is wrong with a connection that has said hello; NULL if nothing is. link: receives
 * what it is, NULL for the previous rank's.
 */
static const char *
guest_problem(struct fanin_ring *ring, const struct fanin_ring_hello *hello,
	      struct fanin_ring_link **link)
{
	const char *problem;

	*link = hello->purpose == FANIN_RING_LINK ? link_from(ring, hello->from) : NULL;
	problem = hello_problem(ring, hello,
				*link != NULL ? hello->from : fanin_ring_prev_rank(ring));
	if (problem != NULL)
		return problem;
	if (*link != NULL)
		return (*link)->call.fd >= 0 ? "the partner is connected already" : NULL;
	if (hello->purpose == FANIN_RING_LINK)
		return "it is no partner";
	return ring->prev >= 0 ? "the previous rank is connected already" : NULL;
}

/* The peer is the previous rank or a partner: answers its hello. */
static void
guest_admit(struct fanin_ring *ring, struct fanin_ring_guest *guest, struct fanin_ring_link *link)
{
	struct fanin_ring_piece hello;

	hello_make(ring, link != NULL ? link->call.rank : fanin_ring_prev_rank(ring),
		   link != NULL ? FANIN_RING_LINK : FANIN_RING_AROUND, &hello);
	/* Nothing was written to this connection before: there is room. */
	if (fanin_ring_piece_send(guest->fd, &hello, &ring->stats.send_calls) != 1) {
		guest_close(ring, guest, "it could not be answered");
		return;
	}
	connection_tune(guest->fd);
	if (link != NULL) {
		link->call.fd = guest->fd;
		link->call.state = FANIN_RING_CALL_OPEN;
	} else {
		ring->prev = guest->fd;
	}
	guest->fd = -1;
}

static void
guest_hear(struct fanin_ring *ring, struct fanin_ring_guest *guest)
{
	int ret = fanin_ring_piece_receive(guest->fd, &guest->hello,
					   sizeof(struct fanin_ring_hello),
					   &ring->stats.receive_calls);
	struct fanin_ring_hello hello;
	struct fanin_ring_link *link;
	const char *problem;

	if (ret < 0 && guest->hello.done == 0) {
		/*
		 * The connection only checks whether this machine is alive; the neighbour that made
		 * it has a complete ring.
		 */
		close(guest->fd);
		guest->fd = -1;
	} else if (ret < 0) {
		guest_close(ring, guest, "it ended before its hello");
	} else if (ret == 0) {
		if (ring->now_ns >= guest->deadline_ns)
			guest_close(ring, guest, "it did not say hello in time");
	} else {
		memcpy(&hello, guest->hello.bytes, sizeof(hello));
		problem = guest_problem(ring, &hello, &link);
		if (problem != NULL)
			guest_close(ring, guest, problem);
		else
			guest_admit(ring, guest, link);
	}
}

/* --------------------------------------------- to the next rank and partners */

static void
call_close(const struct fanin_ring *ring, struct fanin_ring_call *call, int errnum)
{
	if (call->fd >= 0)
		close(call->fd);
	call->fd = -1;
	call->errnum = errnum;
	call->state = FANIN_RING_CALL_CLOSED;
	call->retry_ns = ring->now_ns + RETRY_NS;
}

static void
call_connect(const struct fanin_ring *ring, struct fanin_ring_call *call)
{
	const struct sockaddr_in *address = &call->address;

	if (ring->now_ns < call->retry_ns)
		return;
	call->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (call->fd < 0 ||
	    (connect(call->fd, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
	     errno != EINPROGRESS))
		call_close(ring, call, errno);
	else
		call->state = FANIN_RING_CALL_CONNECTING;
}

/* Checks whether connecting succeeded; then sends the hello. */
static void
call_greet(struct fanin_ring *ring, struct fanin_ring_call *call)
{
	struct pollfd ready = { .fd = call->fd, .events = POLLOUT };
	struct fanin_ring_piece hello;
	socklen_t len = sizeof(int);
	int errnum = 0;

	if (poll(&ready, 1, 0) <= 0)
		return;
	getsockopt(call->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
	hello_make(ring, call->rank, call->purpose, &hello);
	if (errnum != 0 || fanin_ring_piece_send(call->fd, &hello, &ring->stats.send_calls) != 1) {
		call_close(ring, call, errnum != 0 ? errnum : ECONNRESET);
		return;
	}
	connection_tune(call->fd);
	call->greeting = (struct fanin_ring_piece){ 0 };
	call->state = FANIN_RING_CALL_GREETING;
}

static void
call_hear(struct fanin_ring *ring, struct fanin_ring_call *call)
{
	int ret = fanin_ring_piece_receive(call->fd, &call->greeting,
					   sizeof(struct fanin_ring_hello),
					   &ring->stats.receive_calls);
	struct fanin_ring_hello hello;

	if (ret < 0)
		call_close(ring, call, -ret);
	if (ret != 1)
		return;
	memcpy(&hello, call->greeting.bytes, sizeof(hello));
	if (hello_problem(ring, &hello, call->rank) != NULL || hello.purpose != call->purpose) {
		ring->stats.rejected++;
		call_close(ring, call, EPROTO);
		return;
	}
	call->greeting = (struct fanin_ring_piece){ 0 };
	call->errnum = 0;
	call->state = FANIN_RING_CALL_OPEN;
}

static void
call_continue(struct fanin_ring *ring, struct fanin_ring_call *call)
{
	if (call->state == FANIN_RING_CALL_CLOSED)
		call_connect(ring, call);
	if (call->state == FANIN_RING_CALL_CONNECTING)
		call_greet(ring, call);
	if (call->state == FANIN_RING_CALL_GREETING)
		call_hear(ring, call);
}

/* True while some rank has yet to call this one. */
static bool
expects_calls(const struct fanin_ring *ring)
{
	for (unsigned int i = 0; i < ring->n_links; i++) {
		if (ring->links[i].call.rank < ring->config.rank && ring->links[i].call.fd < 0)
			return true;
	}
	return ring->prev < 0;
}

/* Stops listening, as all ranks are connected. */
static void
listener_close(struct fanin_ring *ring)
{
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd >= 0)
			guest_close(ring, &ring->guests[i], "the ring is complete");
	}
	close(ring->listener);
	ring->listener = -1;
	/*
	 * Other ranks may still accept connections, so the result of an attempt would say nothing.
	 */
	ring->prev_watch.due_ns = ring->now_ns + RETRY_NS;
	ring->next_watch.due_ns = ring->now_ns + RETRY_NS;
	for (unsigned int i = 0; i < ring->n_links; i++)
		ring->links[i].watch.due_ns = ring->now_ns + RETRY_NS;
}

void
fanin_ring_wire(struct fanin_ring *ring)
{
	if (expects_calls(ring))
		guests_accept(ring);
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd >= 0)
			guest_hear(ring, &ring->guests[i]);
	}
	call_continue(ring, &ring->next);
	for (unsigned int i = 0; i < ring->n_links; i++) {
		/* A lower rank calls this one. */
		if (ring->links[i].call.rank > ring->config.rank)
			call_continue(ring, &ring->links[i].call);
	}
	if (fanin_ring_wired(ring))
		listener_close(ring);
}

/* Adds what poll() has to wait for on behalf of a connection that this rank makes. */
static unsigned int
call_fds(const struct fanin_ring_call *call, struct pollfd *fds)
{
	if (call->state != FANIN_RING_CALL_CONNECTING && call->state != FANIN_RING_CALL_GREETING)
		return 0;
	*fds = (struct pollfd){
		.fd = call->fd,
		.events = call->state == FANIN_RING_CALL_CONNECTING ? POLLOUT : POLLIN,
	};
	return 1;
}

static_assert(1 + FANIN_RING_GUESTS + 1 + FANIN_RING_LINKS <= FANIN_TRANSPORT_MAX_FDS,
	      "descriptors while ranks are connected");

unsigned int
fanin_ring_wiring_fds(const struct fanin_ring *ring, struct pollfd *fds)
{
	unsigned int n = 0;

	if (expects_calls(ring))
		fds[n++] = (struct pollfd){ .fd = ring->listener, .events = POLLIN };
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++) {
		if (ring->guests[i].fd >= 0)
			fds[n++] = (struct pollfd){ .fd = ring->guests[i].fd, .events = POLLIN };
	}
	n += call_fds(&ring->next, fds + n);
	for (unsigned int i = 0; i < ring->n_links; i++)
		n += call_fds(&ring->links[i].call, fds + n);
	return n;
}

/* ------------------------------------------------------------------ words */

/* Writes that a rank to which this one connects can't be reached. */
static void
call_text(const struct fanin_ring_call *call, char *text, size_t text_len)
{
	char address[INET_ADDRSTRLEN];

	snprintf(text, text_len, "rank %u at %s:%u has not been reached%s%s", call->rank,
		 inet_ntop(AF_INET, &call->address.sin_addr, address, sizeof(address)),
		 ntohs(call->address.sin_port), call->errnum != 0 ? ": " : "",
		 call->errnum != 0 ? strerror(call->errnum) : "");
}

/*
 * Writes why the ring is not connected yet, as a phrase: "rank 2 at 10.0.0.3:4711 has not been
 * reached: ..."
 */
static void
wiring_text(const struct fanin_ring *ring, char *text, size_t text_len)
{
	const struct fanin_ring_link *link = link_missing(ring);

	if (ring->next.state != FANIN_RING_CALL_OPEN)
		call_text(&ring->next, text, text_len);
	else if (ring->prev < 0)
		snprintf(text, text_len, "rank %u has not called", fanin_ring_prev_rank(ring));
	else if (link != NULL && link->call.rank > ring->config.rank)
		call_text(&link->call, text, text_len);
	else if (link != NULL)
		snprintf(text, text_len, "rank %u has not called", link->call.rank);
}

/* Returns the rank that the phrase is about. */
static uint16_t
wiring_missing(const struct fanin_ring *ring)
{
	if (ring->next.state != FANIN_RING_CALL_OPEN)
		return fanin_ring_next_rank(ring);
	if (ring->prev < 0)
		return fanin_ring_prev_rank(ring);
	return link_missing(ring)->call.rank;
}

bool
fanin_ring_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem)
{
	const struct fanin_ring *ring = fanin_ring_of(endpoint);

	if (fanin_ring_wired(ring))
		return true;
	wiring_text(ring, problem->text, sizeof(problem->text));
	problem->missing = fanin_ranks_of_word(UINT64_C(1) << wiring_missing(ring));
	return false;
}
