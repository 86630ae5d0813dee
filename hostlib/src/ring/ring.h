/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives without a switch: the hosts form a ring of TCP connections, rank r sending to r + 1,
 * and reduce there. A communicator falls back to it when no reduction tree is available. Depends on
 * sockets and a clock; nothing blocks but fanin_ring_leave. One thread at a time.
 *
 * The vector is cut into as many segments as there are ranks. In the first P - 1 steps
 * (reduce-scatter) rank r passes on segment r - g in step g, after adding its own data to what it
 * has received; in the next P - 1 steps (allgather) the finished segments go round once more. So
 * segment k is combined in the order of ranks k, k + 1, ..., k - 1, from left to right, in every
 * run. A step passes on received bytes of a segment at once, however few: long vectors are
 * pipelined.
 *
 * Sparse allreduces do not go round: ranks exchange them with partners, by recursive doubling, over connections of their own
 * (ring_doubling.c).
 *
 * A rank that is late is waited for. If a rank's connection has ended, or its machine does not
 * answer, the others fail.
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
	uint64_t key; /* derived from the job's; both ends of a connection must know it */
	uint64_t timeout_ns; /* longest time without progress while a collective is in progress and a rank is gone */
	uint64_t wait_limit_ns; /* the same, even if all missing ranks are merely late; 0: no limit */
	uint16_t rank;
	uint16_t size;
	bool wide;    /* sums and averages of f16 and bf16 are accumulated in f32 */
	int listener; /* from fanin_ring_listen; the ring's from now on */
	const struct sockaddr_in *peers; /* where each rank listens, by rank; read by fanin_ring_create only */
	uint64_t (*now_ns)(void *arg); /* NULL: the monotonic clock */
	void *now_arg;
	const struct fanin_log *log;
};

struct fanin_ring_stats {
	uint64_t collectives; /* that are done */
	uint64_t bytes_reduced;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	uint64_t rejected; /* connections that were closed because of an invalid hello */
	/* Of the sparse ones: */
	uint64_t sparse_collectives;
	uint64_t sparse_elements;        /* indices of their vectors */
	uint64_t sparse_values_sent;     /* that this rank brought */
	uint64_t sparse_values_received; /* of the results */
	uint64_t vectors_sent;           /* in all rounds */
	uint64_t vectors_received;
	uint64_t sparse_bytes_sent; /* of these vectors, in bytes_sent, too */
	uint64_t sparse_dense_bytes; /* that the ring's allreduce would have sent for as many elements */
};

/*
 * Opens the socket to which the previous rank will connect.
 *
 * ip_be: the address that it shall connect to. address: receives it with the port. Returns the
 * descriptor, or a negative status.
 */
int fanin_ring_listen(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error);

/*
 * Creates a ring. config is copied; its listener is closed also on failure. ring: set on success
 * only.
 * Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_ring_create(const struct fanin_ring_config *config, struct fanin_ring **ring);

/* Closes all connections without a goodbye: the others take it for a death. ring may be NULL. */
void fanin_ring_destroy(struct fanin_ring *ring);

/* True once neighbours and partners are connected. Until then, polling connects them. */
bool fanin_ring_wired(const struct fanin_ring *ring);

/*
 * Writes why the ring is not connected yet, as a phrase: "rank 2 at 10.0.0.3:4711 has not been
 * reached: ..."
 */
void fanin_ring_wiring_text(const struct fanin_ring *ring, char *text, size_t text_len);

/* Returns the ranks that the phrase is about, as a bitmap. */
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
 * Sends, receives and checks the timers once, without blocking.
 *
 * Returns how often data was sent or received, or a negative status once the ring has failed; every
 * request then has it.
 */
int fanin_ring_poll(struct fanin_ring *ring);

/* Returns how long from now the ring has nothing to do unless poll_fds wake it, in nanoseconds. */
uint64_t fanin_ring_idle_ns(const struct fanin_ring *ring);

/*
 * Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS entries are
 * used.
 */
unsigned int fanin_ring_poll_fds(const struct fanin_ring *ring, struct pollfd *fds);

/* Says goodbye to both neighbours and waits, for a second at most, until the kernel has delivered all that was sent. */
void fanin_ring_leave(struct fanin_ring *ring);

const struct fanin_error *fanin_ring_error(const struct fanin_ring *ring);

/*
 * Returns a bitmap of the ranks that are gone, silent or have not posted the oldest collective, as
 * far as known; 0 if none is.
 */
uint64_t fanin_ring_missing(const struct fanin_ring *ring);

/*
 * Returns a bitmap of the ranks that are being waited for now; 0 if none is, or once the ring has
 * failed.
 */
uint64_t fanin_ring_late(const struct fanin_ring *ring);

const struct fanin_ring_stats *fanin_ring_stats(const struct fanin_ring *ring);

#endif
