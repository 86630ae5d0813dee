/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring's life, its requests and the poll loop. See ring.h.
 */
#include "ring_internal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hostlib/src/base/absence.h"

#define LEAVE_NS (1000 * 1000000ull)

/* Plans the connections of this rank. */
static void
peers_plan(struct fanin_ring *ring, const struct sockaddr_in *peers)
{
	const uint16_t next = fanin_ring_next_rank(ring);

	ring->next.address = peers[next];
	ring->next.rank = next;
	ring->next.purpose = FANIN_RING_AROUND;
	fanin_ring_watch_init(&ring->next_watch, &peers[next]);
	fanin_ring_watch_init(&ring->prev_watch, &peers[fanin_ring_prev_rank(ring)]);
	fanin_ring_links_plan(ring, peers);
	ring->config.peers = NULL; /* the caller's */
}

int
fanin_ring_open(const struct fanin_protocol *protocol, const struct fanin_protocol_config *config,
		struct fanin_endpoint **endpoint, struct fanin_error *error)
{
	struct fanin_ring *created = aligned_alloc(64, sizeof(*created));

	if (created == NULL) {
		close(config->listener);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory for the ring");
	}
	memset(created, 0, sizeof(*created));
	created->endpoint.protocol = protocol;
	created->config = *config;
	created->clock = fanin_clock_of(config->now_ns, config->now_arg);
	created->isa = fanin_isa_detect();
	created->listener = config->listener;
	created->prev = -1;
	created->next.fd = -1;
	if (config->size > 1)
		peers_plan(created, config->peers);
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++)
		created->guests[i].fd = -1;
	fanin_request_list_init(&created->requests);
	created->last_poll_ns = fanin_clock_read(&created->clock);
	created->now_ns = created->last_poll_ns;
	*endpoint = &created->endpoint;
	return FANIN_OK;
}

static void
fd_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

void
fanin_ring_destroy(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring;

	if (endpoint == NULL)
		return;
	ring = fanin_ring_of(endpoint);
	fanin_ring_work_end(ring);
	for (unsigned int i = 0; i < FANIN_RING_GUESTS; i++)
		fd_close(ring->guests[i].fd);
	fd_close(ring->listener);
	fd_close(ring->prev);
	fd_close(ring->next.fd);
	/* A ring of one rank has no neighbours. */
	if (ring->config.size > 1) {
		fd_close(ring->prev_watch.fd);
		fd_close(ring->next_watch.fd);
	}
	for (unsigned int i = 0; i < ring->n_links; i++) {
		fd_close(ring->links[i].call.fd);
		fd_close(ring->links[i].watch.fd);
	}
	free(ring);
}

void
fanin_ring_piece_set(struct fanin_ring_piece *piece, const void *message, uint32_t len)
{
	memcpy(piece->bytes, message, len);
	piece->len = len;
	piece->done = 0;
}

int
fanin_ring_piece_send(int fd, struct fanin_ring_piece *piece, uint64_t *calls)
{
	while (piece->done < piece->len) {
		ssize_t sent = send(fd, piece->bytes + piece->done, piece->len - piece->done,
				    MSG_NOSIGNAL | MSG_DONTWAIT);

		++*calls;
		if (sent < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		piece->done += (uint32_t)sent;
	}
	*piece = (struct fanin_ring_piece){ 0 };
	return 1;
}

int
fanin_ring_piece_receive(int fd, struct fanin_ring_piece *piece, uint32_t len, uint64_t *calls)
{
	piece->len = len;
	while (piece->done < piece->len) {
		ssize_t got = recv(fd, piece->bytes + piece->done, piece->len - piece->done,
				   MSG_DONTWAIT);

		++*calls;
		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (got == 0)
			return -ECONNRESET;
		piece->done += (uint32_t)got;
	}
	return 1;
}

/* -------------------------------------------------------------- requests */

int
fanin_ring_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);

	if (ring->status != FANIN_OK)
		return ring->status;
	fanin_request_layout(request, ring->config.rank, ring->config.size, count);
	/* Not every collective has an operator, but all ranks must send the same. */
	if (!fanin_request_combines(request))
		request->op = 0;
	if (ring->requests.first == NULL) {
		ring->progress_ns = fanin_clock_read(&ring->clock);
		ring->received_ns = ring->progress_ns;
		ring->late_ns = ring->progress_ns;
	}
	fanin_request_list_append(&ring->requests, request);
	return FANIN_OK;
}

void
fanin_ring_fail(struct fanin_ring *ring, int status)
{
	ring->status = status;
	/*
	 * Before the requests are dropped, the other ranks are told which ranks this one waited
	 * for.
	 */
	fanin_ring_notice_now(ring, FANIN_RING_FAILED);
	fanin_ring_links_tell(ring, FANIN_RING_FAILED);
	fanin_request_list_fail(&ring->requests, status);
	fanin_ring_work_end(ring);
}

void
fanin_ring_abort(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error)
{
	struct fanin_ring *ring = (struct fanin_ring *)endpoint;

	if (ring->status != FANIN_OK)
		return;
	ring->error = *error;
	fanin_ring_fail(ring, status);
}

/* A ring of one rank has nothing to add. */
static void
copy_own(const struct fanin_request *request)
{
	if (request->send_bytes != 0 && request->recv_bytes != 0 && request->send != request->recv)
		memmove(request->recv, request->send, request->recv_bytes);
}

static void
request_finish(struct fanin_ring *ring)
{
	struct fanin_request *request = ring->requests.first;
	uint64_t bytes = request->total_bytes;
	int status = FANIN_OK;

	if (request->sparse != NULL) {
		status = fanin_ring_doubling_finish(ring);
		bytes = request->sparse->nnz * request->element_bytes;
	} else if (ring->config.size == 1) {
		copy_own(request);
	}
	fanin_ring_work_end(ring);
	ring->seq++;
	ring->posted = 0;
	ring->stats.collectives++;
	ring->stats.bytes_reduced += bytes;
	request->done_bytes = request->total_bytes;
	fanin_request_list_finish(&ring->requests, request);
	/*
	 * A failure of this request alone, such as too little room for its result: the ring goes
	 * on.
	 */
	request->status = status;
}

/* ------------------------------------------------------------------ poll */

/* An absence of the caller does not count as silence of the other ranks (base/absence.h). */
static void
absence_forgive(struct fanin_ring *ring)
{
	const uint64_t now_ns = ring->now_ns;
	const uint64_t by_ns = fanin_absence_forgiven_ns(now_ns - ring->last_poll_ns,
							 ring->config.timeout_ns);

	ring->last_poll_ns = now_ns;
	if (by_ns == 0 || ring->requests.first == NULL)
		return;
	fanin_ring_watch_away(ring, &ring->prev_watch, by_ns);
	fanin_ring_watch_away(ring, &ring->next_watch, by_ns);
	fanin_ring_links_away(ring, by_ns);
	ring->progress_ns = fanin_absence_move(ring->progress_ns, by_ns, now_ns);
	ring->received_ns = fanin_absence_move(ring->received_ns, by_ns, now_ns);
	ring->heard_ns = fanin_absence_move(ring->heard_ns, by_ns, now_ns);
	ring->late_ns = fanin_absence_move(ring->late_ns, by_ns, now_ns);
}

/* Works on the requests as long as that makes progress. */
static unsigned int
requests_work(struct fanin_ring *ring)
{
	unsigned int moved = 0;
	unsigned int received;

	if (ring->requests.first == NULL)
		return fanin_ring_work_receive(ring);
	while (ring->requests.first != NULL && ring->status == FANIN_OK) {
		if (ring->work.request == NULL)
			fanin_ring_work_begin(ring, ring->requests.first);
		if (ring->status == FANIN_OK && ring->config.size > 1) {
			moved += fanin_ring_work_send(ring);
			received = fanin_ring_work_receive(ring);
			moved += received;
			if (received != 0)
				ring->received_ns = ring->now_ns;
		}
		if (ring->status == FANIN_OK && fanin_ring_is_doubling(ring))
			moved += fanin_ring_doubling_work(ring);
		/* Received data is passed on at once. */
		if (ring->status == FANIN_OK && ring->config.size > 1)
			moved += fanin_ring_work_send(ring);
		if (ring->status != FANIN_OK || !fanin_ring_work_done(ring))
			break;
		request_finish(ring);
		moved++;
	}
	return moved;
}

int
fanin_ring_poll(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);
	unsigned int moved;

	if (ring->status != FANIN_OK) {
		if (ring->tx_notice.len != 0 && ring->prev >= 0)
			fanin_ring_piece_send(ring->prev, &ring->tx_notice,
					      &ring->stats.send_calls);
		fanin_ring_links_flush(ring);
		return ring->status;
	}
	ring->now_ns = fanin_clock_read(&ring->clock);
	absence_forgive(ring);
	if (!fanin_ring_wired(ring)) {
		fanin_ring_wire(ring);
		ring->progress_ns = ring->now_ns;
		return 0;
	}
	if (ring->config.size == 1)
		return (int)requests_work(ring);

	moved = requests_work(ring);
	if (moved != 0)
		ring->progress_ns = ring->now_ns;
	/* After the data: a rank says goodbye after its last byte. */
	fanin_ring_notice_receive(ring);
	if (ring->status == FANIN_OK)
		fanin_ring_links_poll(ring);
	if (ring->status == FANIN_OK)
		fanin_ring_check_timers(ring);
	if (ring->status == FANIN_OK)
		fanin_ring_notice_send(ring);
	return ring->status != FANIN_OK ? ring->status : (int)moved;
}

uint64_t
fanin_ring_idle_ns(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);
	uint64_t now_ns = fanin_clock_read(&ring->clock);
	uint64_t next_ns = ring->notified_ns > ring->received_ns ? ring->notified_ns
								 : ring->received_ns;

	if (ring->requests.first == NULL)
		return UINT64_MAX;
	/* Timers are checked as often. */
	next_ns += fanin_ring_notice_interval_ns(ring, now_ns);
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

unsigned int
fanin_ring_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);
	const bool holds_header = ring->rx_header.len != 0 &&
				  ring->rx_header.done == ring->rx_header.len;
	const bool is_doubling = fanin_ring_is_doubling(ring);
	/*
	 * The next message belongs to another collective or is the end. It is read once this
	 * collective's last data has been sent. In a sparse collective the header is read earlier:
	 * no data comes before it, and it shows when the previous rank ends.
	 */
	const bool has_all = ring->requests.first != NULL && ring->work.rx_matched &&
			     ring->work.rx_step == ring->work.rx_steps && !is_doubling;
	const bool is_ahead = holds_header && (ring->requests.first == NULL ||
					       (is_doubling && ring->work.rx_matched));
	const struct fanin_ring_link *link = fanin_ring_doubling_link(ring);
	unsigned int n = 0;

	if (!fanin_ring_wired(ring))
		return fanin_ring_wiring_fds(ring, fds);
	if (ring->config.size == 1 || ring->status != FANIN_OK)
		return 0;
	if (!ring->prev_ended && !ring->prev_left && !has_all && !is_ahead)
		fds[n++] = (struct pollfd){ .fd = ring->prev, .events = POLLIN };
	if (!ring->next_ended)
		fds[n++] = (struct pollfd){
			.fd = ring->next.fd,
			.events = (short)(POLLIN | (ring->tx_blocked ? POLLOUT : 0)),
		};
	/* Other links are checked from time to time. */
	if (link != NULL && fanin_ring_doubling_events(ring) != 0)
		fds[n++] = (struct pollfd){
			.fd = link->call.fd,
			.events = fanin_ring_doubling_events(ring),
		};
	return n;
}

/* -------------------------------------------------------------- leaving */

/*
 * Returns true if all sent data has been delivered, or never can be because the other end is
 * closed: then the count of unsent bytes stays constant.
 */
static bool
is_delivered(int fd)
{
	struct pollfd state = { .fd = fd };
	int unsent = 0;

	if (fd < 0 || poll(&state, 1, 0) != 0)
		return true;
	return ioctl(fd, SIOCOUTQ, &unsent) < 0 || unsent == 0;
}

/* The same for data sent to partners. */
static bool
links_are_delivered(struct fanin_ring *ring)
{
	if (!fanin_ring_links_flush(ring))
		return false;
	for (unsigned int i = 0; i < ring->n_links; i++) {
		if (!ring->links[i].ended && !is_delivered(ring->links[i].call.fd))
			return false;
	}
	return true;
}

/*
 * Returns true if the previous rank's machine can still acknowledge data. TCP would keep trying for
 * minutes.
 */
static bool
prev_answers(const struct fanin_ring *ring)
{
	const bool is_blamed = (ring->blamed >> fanin_ring_prev_rank(ring) & 1) != 0;

	return !(is_blamed &&
		 (ring->blame == FANIN_RING_DIED || ring->blame == FANIN_RING_SILENT)) &&
	       !fanin_ring_watch_is_silent(ring, &ring->prev_watch, 0);
}

/*
 * Returns true if the next rank would take the end of this connection for a death. It learns of a
 * failure from the rank after it, which may have noticed the failure later than this rank.
 */
static bool
next_would_blame(const struct fanin_ring *ring)
{
	const bool is_blamed = (ring->blamed >> fanin_ring_next_rank(ring) & 1) != 0;

	return ring->status != FANIN_OK && ring->heard.type != FANIN_RING_FAILED &&
	       !ring->next_ended && !is_blamed;
}

void
fanin_ring_leave(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);
	const struct fanin_ring_header bye = { .type = FANIN_RING_BYE, .seq = ring->seq };
	const bool between = ring->status == FANIN_OK && ring->requests.first == NULL;
	const uint64_t deadline_ns = fanin_now_ns(NULL) + LEAVE_NS;
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (ring->config.size == 1 || !fanin_ring_wired(ring))
		return;
	/* A header can't be sent in the middle of a collective's data. */
	if (between)
		fanin_ring_piece_set(&ring->tx_header, &bye, sizeof(bye));
	if (ring->status == FANIN_OK) {
		ring->blamed = UINT64_C(1) << ring->config.rank;
		ring->blame = FANIN_RING_LEFT;
		fanin_ring_notice_now(ring, between ? FANIN_RING_BYE : FANIN_RING_FAILED);
		fanin_ring_links_tell(ring, between ? FANIN_RING_BYE : FANIN_RING_FAILED);
	}
	while (fanin_now_ns(NULL) < deadline_ns) {
		if (between && ring->tx_header.len != 0 &&
		    fanin_ring_piece_send(ring->next.fd, &ring->tx_header,
					  &ring->stats.send_calls) < 0)
			ring->tx_header.len = 0;
		if (ring->tx_notice.len != 0 && fanin_ring_piece_send(ring->prev, &ring->tx_notice,
								      &ring->stats.send_calls) < 0)
			ring->tx_notice.len = 0;
		/* Unread data would make the kernel reset the connection instead of closing it. */
		fanin_ring_notice_receive(ring);
		if (!next_would_blame(ring) &&
		    (!prev_answers(ring) ||
		     (ring->tx_notice.len == 0 && is_delivered(ring->prev))) &&
		    (!between || (ring->tx_header.len == 0 && is_delivered(ring->next.fd) &&
				  links_are_delivered(ring))))
			break;
		nanosleep(&pause, NULL);
	}
}

/* --------------------------------------------------------------- queries */

const struct fanin_error *
fanin_ring_error(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);

	return &ring->error;
}

const struct fanin_ring_stats *
fanin_ring_stats(struct fanin_endpoint *endpoint)
{
	struct fanin_ring *ring = fanin_ring_of(endpoint);

	return &ring->stats;
}
