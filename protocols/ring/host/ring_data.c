/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data of the collective in progress: which bytes of which segment may be sent, and what is done
 * with those that arrive. ring_plan.c plans its steps.
 */
#include "ring_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/types.h"

/* Chunks per poll in each direction, so that a caller which only polls once returns soon. */
#define CHUNKS_PER_POLL 16

/* True for steps that combine. */
static bool
is_reducing(const struct fanin_ring *ring, uint32_t step)
{
	return step < ring->work.reducing;
}

static uint32_t
tx_segment(const struct fanin_ring *ring)
{
	return fanin_ring_segment_of(ring, ring->config.rank, ring->work.tx_step);
}

static uint32_t
rx_segment(const struct fanin_ring *ring)
{
	return fanin_ring_segment_of(ring, fanin_ring_prev_rank(ring), ring->work.rx_step);
}

/* Returns the bytes of an element in a step's stream. */
static uint32_t
step_bytes(const struct fanin_ring *ring, uint32_t step)
{
	return is_reducing(ring, step) ? ring->work.partial_bytes : ring->work.element_bytes;
}

bool
fanin_ring_work_done(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;

	return work->tx_step == work->tx_steps && work->rx_step == work->rx_steps &&
	       work->rx_matched && ring->tx_header.len == 0 &&
	       (!fanin_ring_is_doubling(ring) || ring->doubling.stage == ring->n_stages);
}

/* ------------------------------------------------------------------ send */

/* Returns how many bytes of the segment being sent may be sent so far. */
static uint64_t
tx_available(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	uint32_t bytes = step_bytes(ring, work->tx_step);
	uint32_t bytes_before;

	if (work->tx_step < work->lead || work->rx_step > work->tx_step - work->lead)
		return fanin_ring_segment_count(work, tx_segment(ring)) * bytes;
	if (work->rx_step < work->tx_step - work->lead)
		return 0;
	bytes_before = step_bytes(ring, work->rx_step);
	return bytes_before == bytes ? work->rx_bytes : work->rx_bytes / bytes_before * bytes;
}

/* Returns where the segment being sent lies. */
static const uint8_t *
tx_source(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	uint64_t first = fanin_ring_segment_first(work, tx_segment(ring));

	if (work->tx_step < work->lead && work->wide == NULL)
		return work->own + first * work->element_bytes;
	if (!is_reducing(ring, work->tx_step))
		return work->result + first * work->element_bytes;
	return work->partial + first * work->partial_bytes;
}

/* The connection to the next rank can't be written to: its last notices tell why. */
static void
tx_failed(struct fanin_ring *ring, int errnum)
{
	if (errnum != EAGAIN)
		ring->next.errnum = errnum;
	ring->tx_blocked = true;
}

unsigned int
fanin_ring_work_send(struct fanin_ring *ring)
{
	struct fanin_ring_work *work = &ring->work;
	unsigned int chunks = 0;

	ring->tx_blocked = false;
	if (ring->tx_header.len != 0) {
		int ret = fanin_ring_piece_send(ring->next.fd, &ring->tx_header,
						&ring->stats.send_calls);

		if (ret != 1) {
			tx_failed(ring, ret == 0 ? EAGAIN : -ret);
			return 0;
		}
	}
	while (work->tx_step < work->tx_steps && chunks < CHUNKS_PER_POLL) {
		uint64_t whole = fanin_ring_segment_count(work, tx_segment(ring)) *
				 step_bytes(ring, work->tx_step);
		uint64_t available = tx_available(ring);
		ssize_t sent;

		if (work->tx_bytes == whole) {
			work->tx_step++;
			work->tx_bytes = 0;
			continue;
		}
		if (available == work->tx_bytes)
			break;
		available -= work->tx_bytes;
		sent = send(ring->next.fd, tx_source(ring) + work->tx_bytes,
			    available < 4ul * FANIN_RING_CHUNK ? available : 4ul * FANIN_RING_CHUNK,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
		ring->stats.send_calls++;
		if (sent < 0) {
			tx_failed(ring, errno);
			break;
		}
		work->tx_bytes += (uint64_t)sent;
		ring->stats.bytes_sent += (uint64_t)sent;
		chunks++;
	}
	return chunks;
}

/* --------------------------------------------------------------- receive */

static const char *
collective_name(unsigned int collective)
{
	static const char *const names[] = {
		[FANIN_COLLECTIVE_ALLREDUCE] = "an allreduce",
		[FANIN_COLLECTIVE_REDUCE] = "a reduce",
		[FANIN_COLLECTIVE_REDUCE_SCATTER] = "a reduce_scatter",
		[FANIN_COLLECTIVE_BROADCAST] = "a broadcast",
		[FANIN_COLLECTIVE_ALLGATHER] = "an allgather",
		[FANIN_COLLECTIVE_ALLREDUCE_SPARSE] = "an allreduce_sparse",
	};

	return collective < sizeof(names) / sizeof(names[0]) ? names[collective] : "something";
}

/* Compares the previous rank's header with the request. */
static void
header_match(struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	const struct fanin_request *request = work->request;
	uint64_t count = request->total_bytes / request->element_bytes;
	struct fanin_ring_header header;

	memcpy(&header, ring->rx_header.bytes, sizeof(header));
	ring->rx_header = (struct fanin_ring_piece){ 0 };
	/*
	 * Other lengths of sparse vectors are told by the rounds (ring_doubling.c), and harm the
	 * request only.
	 */
	if (header.seq == ring->seq && (header.count == count || request->sparse != NULL) &&
	    header.dtype == request->dtype && header.op == request->op &&
	    header.collective == request->collective && header.root == request->root) {
		ring->work.rx_matched = true;
		return;
	}
	fanin_error_set(
		&ring->error, 0,
		"collective %u: rank %u posted %s of %llu %s (%s, root %u), rank %u %s of %llu %s "
		"(%s, root %u)",
		header.seq, fanin_ring_prev_rank(ring), collective_name(header.collective),
		(unsigned long long)header.count, fanin_dtype_name(header.dtype),
		fanin_op_name(header.op), header.root, ring->config.rank,
		collective_name(request->collective), (unsigned long long)count,
		fanin_dtype_name(request->dtype), fanin_op_name(request->op), request->root);
	fanin_ring_fail(ring, FANIN_ERR_REFUSED);
}

/*
 * Receives the previous rank's next header, also if no collective is in progress: that shows when
 * it leaves or dies.
 */
static unsigned int
header_receive(struct fanin_ring *ring)
{
	struct fanin_ring_header header;
	int ret;

	if (ring->prev_ended || ring->prev_left ||
	    (ring->rx_header.len != 0 && ring->rx_header.done == ring->rx_header.len))
		return 0;
	ret = fanin_ring_piece_receive(ring->prev, &ring->rx_header, sizeof(header),
				       &ring->stats.receive_calls);
	if (ret < 0) {
		ring->prev_ended = true;
		ring->prev_ended_ns = ring->now_ns;
	}
	if (ret != 1)
		return 0;
	memcpy(&header, ring->rx_header.bytes, sizeof(header));
	if (header.type == FANIN_RING_BYE)
		ring->prev_left = true;
	else if (header.type != FANIN_RING_COLLECTIVE)
		fanin_ring_fail(
			ring,
			fanin_error_set(&ring->error, FANIN_ERR_REFUSED,
					"rank %u sent a message of type %u, expected %u or %u",
					fanin_ring_prev_rank(ring), header.type,
					FANIN_RING_COLLECTIVE, FANIN_RING_BYE));
	return 1;
}

/* Counts bytes of the result as done; an empty vector has none. */
static void
progress_add(struct fanin_request *request, uint64_t bytes)
{
	if (request->total_bytes != 0)
		request->done_bytes += bytes;
}

/*
 * Combines whole elements in `scratch` with this rank's own; the rest of a partial element moves to
 * the front.
 */
static void
chunk_combine(struct fanin_ring *ring)
{
	struct fanin_ring_work *work = &ring->work;
	const uint64_t done = work->rx_bytes / work->partial_bytes;
	const uint64_t first = fanin_ring_segment_first(work, rx_segment(ring)) + done;
	const uint32_t n = work->rx_held / work->partial_bytes;
	const uint32_t bytes = n * work->partial_bytes;

	work->kernel(ring->scratch, work->own + first * work->element_bytes, n);
	if (work->rx_step + 1 == work->reducing) {
		if (work->finish != NULL)
			work->finish(ring->scratch, ring->config.size, n);
		if (work->wide != NULL)
			work->wide->narrow(work->result + first * work->element_bytes,
					   ring->scratch, n);
		else
			memcpy(work->result + first * work->element_bytes, ring->scratch, bytes);
		progress_add(work->request, (uint64_t)n * work->element_bytes);
	} else {
		memcpy(work->partial + first * work->partial_bytes, ring->scratch, bytes);
	}
	work->rx_bytes += bytes;
	work->rx_held -= bytes;
	ring->stats.bytes_copied += bytes;
	memmove(ring->scratch, ring->scratch + bytes, work->rx_held);
}

/* Receives one chunk of a step with `left` bytes to come. Returns false if there is none now. */
static bool
chunk_receive(struct fanin_ring *ring, uint64_t left)
{
	struct fanin_ring_work *work = &ring->work;
	const bool reducing = is_reducing(ring, work->rx_step);
	uint64_t room = reducing ? FANIN_RING_CHUNK - work->rx_held : 4ul * FANIN_RING_CHUNK;
	uint8_t *into = ring->scratch + work->rx_held;
	ssize_t got;

	if (!reducing)
		into = work->result +
		       fanin_ring_segment_first(work, rx_segment(ring)) * work->element_bytes +
		       work->rx_bytes;
	got = recv(ring->prev, into, left < room ? left : room, MSG_DONTWAIT);
	ring->stats.receive_calls++;
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
			ring->prev_ended = true;
			ring->prev_ended_ns = ring->now_ns;
		}
		return false;
	}
	ring->stats.bytes_received += (uint64_t)got;
	if (reducing) {
		work->rx_held += (uint32_t)got;
		chunk_combine(ring);
	} else {
		work->rx_bytes += (uint64_t)got;
		progress_add(work->request, (uint64_t)got);
	}
	return true;
}

unsigned int
fanin_ring_work_receive(struct fanin_ring *ring)
{
	struct fanin_ring_work *work = &ring->work;
	unsigned int chunks = 0;

	if (!work->rx_matched || fanin_ring_is_doubling(ring))
		chunks += header_receive(ring);
	if (ring->status != FANIN_OK || work->request == NULL)
		return chunks;
	if (!work->rx_matched && !ring->prev_left && ring->rx_header.len != 0 &&
	    ring->rx_header.done == ring->rx_header.len)
		header_match(ring);
	if (ring->status != FANIN_OK || !work->rx_matched)
		return chunks;
	while (work->rx_step < work->rx_steps && chunks < CHUNKS_PER_POLL) {
		uint64_t whole = fanin_ring_segment_count(work, rx_segment(ring)) *
				 step_bytes(ring, work->rx_step);

		if (work->rx_bytes == whole) {
			work->rx_step++;
			work->rx_bytes = 0;
			continue;
		}
		if (ring->prev_ended ||
		    !chunk_receive(ring, whole - work->rx_bytes - work->rx_held))
			break;
		chunks++;
	}
	return chunks;
}
