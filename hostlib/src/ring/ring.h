/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives without a switch: the hosts form a ring of TCP connections, rank r sending to r + 1, and reduce there. What a
 * communicator falls back to when no reduction tree can be had. Knows sockets and a clock; nothing blocks but
 * fanin_ring_leave. One thread at a time.
 *
 * The vector is cut into as many segments as there are ranks. In the first P - 1 steps (reduce-scatter) rank r passes segment
 * r - g on in step g, after adding its own data to what it has received; in the next P - 1 steps (allgather) the finished
 * segments go round once more. So segment k is combined in the order of ranks k, k + 1, ..., k - 1, from left to right, which is
 * the same every time. A step passes on what the step before has received of a segment, however little: long vectors flow in
 * a pipeline.
 *
 * A rank that is late is waited for. One whose connection has ended, or whose machine does not answer, ends the others.
 */
#ifndef FANIN_HOSTLIB_RING_H
#define FANIN_HOSTLIB_RING_H

#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/protocol/protocol.h"

struct fanin_ring;

extern struct fanin_protocol fanin_protocol_ring;

struct fanin_ring_config {
	uint64_t key; /* derived from the job's, which both ends of a connection must know */
	uint64_t timeout_ns; /* longest time without progress while a collective is at work and a rank is gone */
	uint64_t wait_limit_ns; /* the same whoever is waited for; 0: no limit */
	uint16_t rank;
	uint16_t size;
	bool wide;               /* sums and averages of f16 and bf16 are accumulated in f32 */
	int listener;            /* of fanin_ring_listen; the ring's from now on */
	struct sockaddr_in next; /* where the next rank listens */
	struct sockaddr_in prev; /* where the previous one does; port 0: not known */
	uint64_t (*now_ns)(void *arg); /* NULL: the monotonic clock */
	void *now_arg;
	const struct fanin_log *log;
};

struct fanin_ring_stats {
	uint64_t collectives; /* that are done */
	uint64_t bytes_reduced;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	uint64_t rejected; /* connections that were closed because what they said was wrong */
};

/*
 * Opens the socket at which the previous rank will arrive.
 *
 * ip_be: the address that it shall connect to. address: receives it with the port.
 * Returns the descriptor, or a negative status.
 */
int fanin_ring_listen(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error);

/*
 * config is copied; its listener is closed also on failure. ring: set on success only.
 * Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_ring_create(const struct fanin_ring_config *config, struct fanin_ring **ring);

/* Closes what is open without a word: the others take it for a death. ring may be NULL. */
void fanin_ring_destroy(struct fanin_ring *ring);

/* True once both neighbours are connected. Before that polling works on it. */
bool fanin_ring_wired(const struct fanin_ring *ring);

/* What keeps it from being wired, as a phrase: "rank 2 at 10.0.0.3:4711 has not been reached: ..." */
void fanin_ring_wiring_text(const struct fanin_ring *ring, char *text, size_t text_len);

/* Ranks that it is about. */
uint64_t fanin_ring_wiring_missing(const struct fanin_ring *ring);

/*
 * Takes a request that its owner has filled in; the operator must be a predefined one. Requests are worked on in the order
 * of posting.
 *
 * count: as for fanin_request_layout.
 * Returns FANIN_OK or the ring's earlier error.
 */
int fanin_ring_post(struct fanin_ring *ring, struct fanin_request *request, uint64_t count);

/*
 * Sends, receives and looks at the timers once, without blocking.
 *
 * Returns how often data came or went, or a negative status once the ring has failed; every request then has it.
 */
int fanin_ring_poll(struct fanin_ring *ring);

/* How long from now the ring has nothing to do unless poll_fds wake it. */
uint64_t fanin_ring_idle_ns(const struct fanin_ring *ring);

/* Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS places are used. */
unsigned int fanin_ring_poll_fds(const struct fanin_ring *ring, struct pollfd *fds);

/* Says goodbye to both neighbours and waits, for a second at most, until the kernel has delivered all that was sent. */
void fanin_ring_leave(struct fanin_ring *ring);

const struct fanin_error *fanin_ring_error(const struct fanin_ring *ring);

/* Bitmap of the ranks that are gone, silent or have not posted the oldest collective, as far as known; 0 if none is. */
uint64_t fanin_ring_missing(const struct fanin_ring *ring);

/* Those that are being waited for now; 0 if none is, or once the ring has failed. */
uint64_t fanin_ring_late(const struct fanin_ring *ring);

const struct fanin_ring_stats *fanin_ring_stats(const struct fanin_ring *ring);

#endif
