/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks whether a neighbour's machine is alive while its process does nothing. TCP alone does not
 * tell in time. A late rank's window fills up, and then the kernel probes at intervals that double
 * up to two minutes; TCP_USER_TIMEOUT ends such a connection although every probe is answered. So
 * two things are checked: whether anything comes back while data is unacknowledged, and whether the
 * machine refuses a connection to the port at which the rank once listened, which its kernel does
 * at once. The second counts only if it was refused before: firewalls may drop such attempts.
 */
#include "ring_internal.h"

#include <errno.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostlib/src/base/absence.h"

#define PATIENCE 3 /* attempts in a row without an answer */
#define MAX_INTERVAL_NS (500 * 1000000ull)
#define MAX_TRIES 20 /* to find out whether attempts are refused, before anybody has to wait */

static uint64_t
interval_ns(const struct fanin_ring *ring)
{
	uint64_t interval_ns = ring->config.timeout_ns / 8;

	return interval_ns < MAX_INTERVAL_NS ? interval_ns : MAX_INTERVAL_NS;
}

static void
attempt_close(struct fanin_ring_watch *watch)
{
	if (watch->fd >= 0)
		close(watch->fd);
	watch->fd = -1;
}

void
fanin_ring_watch_init(struct fanin_ring_watch *watch, const struct sockaddr_in *address)
{
	*watch = (struct fanin_ring_watch){ .address = *address, .fd = -1 };
}

void
fanin_ring_watch_away(const struct fanin_ring *ring, struct fanin_ring_watch *watch, uint64_t by_ns)
{
	watch->answered_ns = fanin_absence_move(watch->answered_ns, by_ns, ring->now_ns);
	watch->heard_ns = fanin_absence_move(watch->heard_ns, by_ns, ring->now_ns);
}

/*
 * Ends an attempt with its result. Only a refusal shows that attempts are refused; a rank that is
 * still connecting may accept them.
 */
static void
attempt_end(struct fanin_ring *ring, struct fanin_ring_watch *watch, int errnum)
{
	attempt_close(watch);
	if (errnum == ECONNREFUSED)
		watch->refuses = true;
	if (errnum == ECONNREFUSED || errnum == ECONNRESET || errnum == 0) {
		watch->unanswered = 0;
		watch->answered_ns = ring->now_ns;
		watch->heard_ns = ring->now_ns;
	} else if (errnum == ETIMEDOUT || errnum == EHOSTUNREACH || errnum == ENETUNREACH) {
		watch->unanswered++;
	}
}

static void
attempt_check(struct fanin_ring *ring, struct fanin_ring_watch *watch)
{
	struct pollfd ready = { .fd = watch->fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int errnum = 0;

	if (watch->fd < 0)
		return;
	if (poll(&ready, 1, 0) > 0) {
		getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
		attempt_end(ring, watch, errnum);
	} else if (ring->now_ns >= watch->due_ns) {
		attempt_end(ring, watch, ETIMEDOUT);
	}
}

static void
attempt_begin(struct fanin_ring *ring, struct fanin_ring_watch *watch)
{
	const struct sockaddr *address = (const struct sockaddr *)&watch->address;

	if (watch->address.sin_port == 0)
		return;
	watch->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (watch->fd < 0)
		return;
	if (connect(watch->fd, address, sizeof(watch->address)) == 0)
		attempt_end(ring, watch, 0);
	else if (errno != EINPROGRESS)
		attempt_end(ring, watch, errno);
}

/* Checks what the connection to the neighbour shows. */
static void
connection_check(struct fanin_ring *ring, struct fanin_ring_watch *watch, int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return;
	if (info.tcpi_segs_in != watch->segments) {
		watch->unanswered = 0;
		watch->answered_ns = ring->now_ns;
	}
	if (info.tcpi_segs_in != watch->segments || info.tcpi_unacked == 0)
		watch->heard_ns = ring->now_ns;
	watch->segments = info.tcpi_segs_in;
}

void
fanin_ring_watch_idle(struct fanin_ring *ring, struct fanin_ring_watch *watch)
{
	attempt_check(ring, watch);
	watch->unanswered = 0;
	watch->answered_ns = ring->now_ns;
	watch->heard_ns = ring->now_ns;
	if (watch->refuses || watch->tries == MAX_TRIES || ring->now_ns < watch->due_ns)
		return;
	watch->due_ns = ring->now_ns + interval_ns(ring);
	watch->tries++;
	attempt_begin(ring, watch);
}

void
fanin_ring_watch_check(struct fanin_ring *ring, struct fanin_ring_watch *watch, int fd)
{
	attempt_check(ring, watch);
	if (ring->now_ns < watch->due_ns)
		return;
	watch->due_ns = ring->now_ns + interval_ns(ring);
	connection_check(ring, watch, fd);
	attempt_begin(ring, watch);
}

bool
fanin_ring_watch_is_silent(const struct fanin_ring *ring, const struct fanin_ring_watch *watch,
			   uint64_t grace_ns)
{
	const uint64_t timeout_ns = ring->config.timeout_ns;

	/* Attempts are answered within a round trip, unless the machines are very busy. */
	return (watch->refuses && watch->unanswered >= PATIENCE &&
		ring->now_ns - watch->answered_ns >= timeout_ns / 2 + grace_ns) ||
	       ring->now_ns - watch->heard_ns >= timeout_ns + grace_ns;
}
