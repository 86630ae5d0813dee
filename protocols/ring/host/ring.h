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
 * Sparse allreduces do not go round: ranks exchange them with partners, by recursive doubling, over
 * connections of their own (ring_doubling.c).
 *
 * A rank that is late is waited for. If a rank's connection has ended, or its machine does not
 * answer, the others fail.
 */
#ifndef FANIN_PROTOCOLS_RING_HOST_RING_H
#define FANIN_PROTOCOLS_RING_HOST_RING_H

#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_ring;

struct fanin_ring_stats {
	uint64_t collectives; /* that are done */
	uint64_t bytes_reduced;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	uint64_t send_calls;    /* system calls that send */
	uint64_t receive_calls; /* that receive, or find nothing */
	uint64_t bytes_copied;  /* of partial sums and results, on their way */
	uint64_t rejected;      /* connections that were closed because of an invalid hello */
	/* Of the sparse ones: */
	uint64_t sparse_collectives;
	uint64_t sparse_elements;        /* indices of their vectors */
	uint64_t sparse_values_sent;     /* that this rank brought */
	uint64_t sparse_values_received; /* of the results */
	uint64_t vectors_sent;           /* in all rounds */
	uint64_t vectors_received;
	uint64_t sparse_bytes_sent;  /* of these vectors, in bytes_sent, too */
	uint64_t sparse_dense_bytes; /* that the ring's allreduce would have sent for as many
					elements */
};

/*
 * Opens the socket to which the previous rank connects.
 *
 * ip_be: the address for its connection. address: receives it with the port. Returns the
 * descriptor, or a negative status.
 */
int fanin_ring_listen(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error);

/*
 * Opens the ring as an endpoint, with the arguments of struct fanin_protocol. It uses the
 * configuration's `keys.ring`, `timeout_ns`, `wait_limit_ns`, `rank`, `size`, `wide`, the clock,
 * `log` and what is said to be among the ranks. Requests have predefined operators.
 */
int fanin_ring_open(const struct fanin_protocol *protocol,
		    const struct fanin_protocol_config *config, struct fanin_endpoint **endpoint,
		    struct fanin_error *error);
bool fanin_ring_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem);
int fanin_ring_post(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count);
int fanin_ring_poll(struct fanin_endpoint *endpoint);
uint64_t fanin_ring_idle_ns(struct fanin_endpoint *endpoint);
unsigned int fanin_ring_poll_fds(struct fanin_endpoint *endpoint, struct pollfd *fds);
const struct fanin_error *fanin_ring_error(struct fanin_endpoint *endpoint);

/* As in struct fanin_protocol. */
void fanin_ring_abort(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error);

/*
 * Closes all connections without a goodbye, which the other ranks take for a death. endpoint may be
 * NULL.
 */
void fanin_ring_destroy(struct fanin_endpoint *endpoint);

/*
 * Says goodbye to both neighbours and waits, for at most one second, until the kernel has delivered
 * all sent data.
 */
void fanin_ring_leave(struct fanin_endpoint *endpoint);

/*
 * Returns a bitmap of the ranks that are gone, silent or have not posted the oldest collective, as
 * far as known; 0 if there are none.
 */
uint64_t fanin_ring_missing(struct fanin_endpoint *endpoint);

/*
 * Returns a bitmap of the ranks that this rank waits for now; 0 if there are none, or once the ring
 * has failed.
 */
uint64_t fanin_ring_late(struct fanin_endpoint *endpoint);

const struct fanin_ring_stats *fanin_ring_stats(struct fanin_endpoint *endpoint);

#endif
