/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collective at work: which bytes of which segment may be sent, and what becomes of those that arrive. With P ranks there
 * are P - 1 steps of reduce-scatter and as many of allgather. In step g rank r sends segment r - g and receives segment
 * r - 1 - g, which it sends in step g + 1 as it comes.
 */
#include "ring_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/types.h"

/* Chunks per poll in each direction, so that a caller who only looks in gets away again. */
#define CHUNKS_PER_POLL 16

static const struct fanin_wide_kernels *
wide_of(const struct fanin_ring *ring, const struct fanin_request *request)
{
	if (!ring->config.wide || !fanin_operation_widens(request->dtype, request->op))
		return NULL;
	return fanin_kernel_wide(ring->isa, request->dtype);
}

static uint64_t
segment_first(const struct fanin_ring *ring, uint32_t segment)
{
	uint64_t count = ring->work.count;
	uint32_t rest = (uint32_t)(count % ring->config.size);

	return count / ring->config.size * segment + (segment < rest ? segment : rest);
}

static uint64_t
segment_count(const struct fanin_ring *ring, uint32_t segment)
{
	return segment_first(ring, segment + 1) - segment_first(ring, segment);
}

static uint32_t
steps(const struct fanin_ring *ring)
{
	return 2u * (ring->config.size - 1u);
}

/* Steps that combine. */
static bool
is_reducing(const struct fanin_ring *ring, uint32_t step)
{
	return step < ring->config.size - 1u;
}

/* The segment that a rank sends in a step. */
static uint32_t
segment_of(const struct fanin_ring *ring, uint32_t rank, uint32_t step)
{
	return (rank + 2u * ring->config.size - step) % ring->config.size;
}

static uint32_t
tx_segment(const struct fanin_ring *ring)
{
	return segment_of(ring, ring->config.rank, ring->work.tx_step);
}

static uint32_t
rx_segment(const struct fanin_ring *ring)
{
	return segment_of(ring, fanin_ring_prev_rank(ring), ring->work.rx_step);
}

/* Bytes of an element in a step's stream. */
static uint32_t
step_bytes(const struct fanin_ring *ring, uint32_t step)
{
	return is_reducing(ring, step) ? ring->work.partial_bytes : ring->work.element_bytes;
}

void
fanin_ring_work_begin(struct fanin_ring *ring, struct fanin_request *request)
{
	struct fanin_ring_work *work = &ring->work;
	const uint32_t own = ring->config.rank;
	unsigned int op = request->op;

	*work = (struct fanin_ring_work){
		.request = request,
		.send = request->send,
		.recv = request->recv,
		.dtype = request->dtype,
		.element_bytes = request->element_bytes,
		.count = request->total_bytes / request->element_bytes,
		.wide = wide_of(ring, request),
	};
	/* An empty collective still synchronises: one byte goes round for each rank. */
	if (work->count == 0) {
		work->count = ring->config.size;
		work->send = work->token;
		work->recv = work->token;
		work->dtype = FANIN_WIRE_U8;
		work->element_bytes = 1;
		work->wide = NULL;
		op = FANIN_WIRE_BOR;
	}
	work->partial = work->recv;
	work->partial_bytes = work->element_bytes;
	work->kernel = fanin_kernel(ring->isa, work->dtype, op);
	work->finish = fanin_kernel_finish(ring->isa,
					   work->wide != NULL ? FANIN_WIRE_F32 : work->dtype, op);
	if (work->wide != NULL) {
		uint64_t first = segment_first(ring, own);

		work->partial_bytes = sizeof(float);
		work->partial = malloc(work->count * sizeof(float));
		if (work->partial == NULL) {
			work->wide = NULL;
			fanin_ring_fail(
				ring,
				fanin_error_set(&ring->error, FANIN_ERR_NO_MEMORY,
						"out of memory for the sums of %llu elements in f32",
						(unsigned long long)work->count));
			return;
		}
		work->kernel = work->wide->accumulate;
		work->wide->widen(work->partial + first * sizeof(float),
				  work->send + first * work->element_bytes, segment_count(ring, own));
	}
	if (ring->config.size > 1) {
		const struct fanin_ring_header header = {
			.type = FANIN_RING_COLLECTIVE,
			.seq = ring->seq,
			.count = request->total_bytes / request->element_bytes,
			.dtype = request->dtype,
			.op = request->op,
		};

		fanin_ring_piece_set(&ring->tx_header, &header, sizeof(header));
	}
}

void
fanin_ring_work_end(struct fanin_ring *ring)
{
	if (ring->work.wide != NULL)
		free(ring->work.partial);
	ring->work = (struct fanin_ring_work){ 0 };
}

bool
fanin_ring_work_done(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;

	return work->tx_step == steps(ring) && work->rx_step == steps(ring) &&
	       ring->tx_header.len == 0;
}

/* ------------------------------------------------------------------ send */

/* Bytes of the segment being sent that may be sent so far. */
static uint64_t
tx_available(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	uint32_t bytes = step_bytes(ring, work->tx_step);
	uint32_t bytes_before;

	if (work->tx_step == 0 || work->rx_step >= work->tx_step)
		return segment_count(ring, tx_segment(ring)) * bytes;
	if (work->rx_step + 1 < work->tx_step)
		return 0;
	bytes_before = step_bytes(ring, work->rx_step);
	return bytes_before == bytes ? work->rx_bytes : work->rx_bytes / bytes_before * bytes;
}

/* Where the segment being sent lies. */
static const uint8_t *
tx_source(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	uint64_t first = segment_first(ring, tx_segment(ring));

	if (!is_reducing(ring, work->tx_step))
		return work->recv + first * work->element_bytes;
	if (work->tx_step == 0 && work->wide == NULL)
		return work->send + first * work->element_bytes;
	return work->partial + first * work->partial_bytes;
}

/* The connection to the next rank can't be written to: its last notices tell why. */
static void
tx_failed(struct fanin_ring *ring, int errnum)
{
	if (errnum != EAGAIN)
		ring->next_errnum = errnum;
	ring->tx_blocked = true;
}

unsigned int
fanin_ring_work_send(struct fanin_ring *ring)
{
	struct fanin_ring_work *work = &ring->work;
	unsigned int chunks = 0;

	ring->tx_blocked = false;
	if (ring->tx_header.len != 0) {
		int ret = fanin_ring_piece_send(ring->next, &ring->tx_header);

		if (ret != 1) {
			tx_failed(ring, ret == 0 ? EAGAIN : -ret);
			return 0;
		}
	}
	while (work->tx_step < steps(ring) && chunks < CHUNKS_PER_POLL) {
		uint64_t whole = segment_count(ring, tx_segment(ring)) *
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
		sent = send(ring->next, tx_source(ring) + work->tx_bytes,
			    available < 4ul * FANIN_RING_CHUNK ? available : 4ul * FANIN_RING_CHUNK,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
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

/* Compares what the previous rank is about to send with the request. */
static void
header_match(struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	const struct fanin_request *request = work->request;
	uint64_t count = request->total_bytes / request->element_bytes;
	struct fanin_ring_header header;

	memcpy(&header, ring->rx_header.bytes, sizeof(header));
	ring->rx_header = (struct fanin_ring_piece){ 0 };
	if (header.seq == ring->seq && header.count == count && header.dtype == request->dtype &&
	    header.op == request->op) {
		ring->work.rx_matched = true;
		return;
	}
	fanin_ring_fail(
		ring,
		fanin_error_set(&ring->error, FANIN_ERR_REFUSED,
				"collective %u: rank %u posted the %s of %llu %s, rank %u the %s of %llu %s",
				header.seq, fanin_ring_prev_rank(ring), fanin_op_name(header.op),
				(unsigned long long)header.count, fanin_dtype_name(header.dtype),
				ring->config.rank, fanin_op_name(request->op),
				(unsigned long long)count, fanin_dtype_name(request->dtype)));
}

/* The previous rank's next header, also if nothing is at work: that shows when it leaves or dies. */
static unsigned int
header_receive(struct fanin_ring *ring)
{
	struct fanin_ring_header header;
	int ret;

	if (ring->prev_ended || ring->prev_left ||
	    (ring->rx_header.len != 0 && ring->rx_header.done == ring->rx_header.len))
		return 0;
	ret = fanin_ring_piece_receive(ring->prev, &ring->rx_header, sizeof(header));
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
		fanin_ring_fail(ring,
				fanin_error_set(&ring->error, FANIN_ERR_REFUSED,
						"rank %u sent a message of type %u, expected %u or %u",
						fanin_ring_prev_rank(ring), header.type,
						FANIN_RING_COLLECTIVE, FANIN_RING_BYE));
	return 1;
}

/* That much of the result is there; of an empty vector there is nothing to come. */
static void
progress_add(struct fanin_request *request, uint64_t bytes)
{
	if (request->total_bytes != 0)
		request->done_bytes += bytes;
}

/* Combines whole elements in `scratch` with this rank's own; what is left of one moves to the front. */
static void
chunk_combine(struct fanin_ring *ring)
{
	struct fanin_ring_work *work = &ring->work;
	const uint64_t done = work->rx_bytes / work->partial_bytes;
	const uint64_t first = segment_first(ring, rx_segment(ring)) + done;
	const uint32_t n = work->rx_held / work->partial_bytes;
	const uint32_t bytes = n * work->partial_bytes;

	work->kernel(ring->scratch, work->send + first * work->element_bytes, n);
	if (work->rx_step + 2 == ring->config.size) {
		if (work->finish != NULL)
			work->finish(ring->scratch, ring->config.size, n);
		if (work->wide != NULL)
			work->wide->narrow(work->recv + first * work->element_bytes, ring->scratch,
					   n);
		else
			memcpy(work->recv + first * work->element_bytes, ring->scratch, bytes);
		progress_add(work->request, (uint64_t)n * work->element_bytes);
	} else {
		memcpy(work->partial + first * work->partial_bytes, ring->scratch, bytes);
	}
	work->rx_bytes += bytes;
	work->rx_held -= bytes;
	memmove(ring->scratch, ring->scratch + bytes, work->rx_held);
}

/* One chunk of a step that has `left` bytes to come. Returns false if there is none now. */
static bool
chunk_receive(struct fanin_ring *ring, uint64_t left)
{
	struct fanin_ring_work *work = &ring->work;
	const bool reducing = is_reducing(ring, work->rx_step);
	uint64_t room = reducing ? FANIN_RING_CHUNK - work->rx_held : 4ul * FANIN_RING_CHUNK;
	uint8_t *into = ring->scratch + work->rx_held;
	ssize_t got;

	if (!reducing)
		into = work->recv + segment_first(ring, rx_segment(ring)) * work->element_bytes +
		       work->rx_bytes;
	got = recv(ring->prev, into, left < room ? left : room, MSG_DONTWAIT);
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

	if (!work->rx_matched)
		chunks += header_receive(ring);
	if (ring->status != FANIN_OK || work->request == NULL)
		return chunks;
	if (!work->rx_matched && !ring->prev_left && ring->rx_header.len != 0 &&
	    ring->rx_header.done == ring->rx_header.len)
		header_match(ring);
	if (ring->status != FANIN_OK || !work->rx_matched)
		return chunks;
	while (work->rx_step < steps(ring) && chunks < CHUNKS_PER_POLL) {
		uint64_t whole = segment_count(ring, rx_segment(ring)) *
				 step_bytes(ring, work->rx_step);

		if (work->rx_bytes == whole) {
			work->rx_step++;
			work->rx_bytes = 0;
			continue;
		}
		if (ring->prev_ended || !chunk_receive(ring, whole - work->rx_bytes - work->rx_held))
			break;
		chunks++;
	}
	return chunks;
}
