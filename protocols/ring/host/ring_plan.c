/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of each collective. With P ranks, reduce-scatter takes P - 1 steps in which segments
 * are combined on their way, allgather P - 1 in which they are passed on, and an allreduce is the
 * former followed by the latter. A reduce is an allreduce whose result only the root keeps. A
 * broadcast is a chain from the root on.
 */
#include "ring_internal.h"

#include <stdlib.h>
#include <string.h>

#include "wire/types.h"

static const struct fanin_wide_kernels *
wide_of(const struct fanin_ring *ring, const struct fanin_request *request)
{
	if (!ring->config.wide || !fanin_request_combines(request) ||
	    !fanin_operation_widens(request->dtype, request->op))
		return NULL;
	return fanin_kernel_wide(ring->isa, request->dtype);
}

static void
steps_plan(struct fanin_ring *ring, unsigned int collective, uint16_t root)
{
	struct fanin_ring_work *work = &ring->work;
	const uint32_t size = ring->config.size;
	const uint32_t distance = (ring->config.rank + size - root) % size;
	const uint32_t once_round = size - 1;

	work->n_segments = size;
	work->lead = 1;
	switch ((enum fanin_collective)collective) {
	case FANIN_COLLECTIVE_ALLREDUCE_SPARSE: /* no steps, but rounds of its own: ring_doubling.c
						 */
		break;
	case FANIN_COLLECTIVE_ALLREDUCE:
	case FANIN_COLLECTIVE_REDUCE:
		work->reducing = once_round;
		work->tx_steps = 2 * once_round;
		break;
	case FANIN_COLLECTIVE_REDUCE_SCATTER:
		/* One segment earlier: each rank ends with its own. */
		work->first = once_round;
		work->reducing = once_round;
		work->tx_steps = once_round;
		break;
	case FANIN_COLLECTIVE_ALLGATHER:
		work->tx_steps = once_round;
		break;
	case FANIN_COLLECTIVE_BROADCAST:
		work->n_segments = 1;
		work->lead = distance == 0;
		work->tx_steps = distance + 1 < size;
		work->rx_steps = distance != 0;
		return;
	}
	work->rx_steps = work->tx_steps;
}

/*
 * Allocates memory for what does not fit into the caller's buffers. Returns false if there is none.
 */
static bool
memory_take(struct fanin_ring_work *work)
{
	const struct fanin_request *request = work->request;
	const bool keeps_all = request->recv_bytes == request->total_bytes;

	if (work->reducing != 0 && !keeps_all && request->collective == FANIN_COLLECTIVE_REDUCE) {
		work->result_memory = malloc(request->total_bytes);
		work->result = work->result_memory;
		if (work->result == NULL)
			return false;
	}
	work->partial = work->result;
	if (work->reducing != 0 &&
	    (work->wide != NULL || request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER)) {
		work->partial_memory = malloc(work->count * work->partial_bytes);
		work->partial = work->partial_memory;
	}
	return work->reducing == 0 || work->partial != NULL;
}

/*
 * Prepares the data that this rank sends first, where the caller's buffer can't be used as it is.
 */
static void
own_prepare(const struct fanin_ring *ring)
{
	const struct fanin_ring_work *work = &ring->work;
	const struct fanin_request *request = work->request;
	uint32_t segment = fanin_ring_segment_of(ring, ring->config.rank, 0);
	uint64_t first = fanin_ring_segment_first(work, segment);

	if (work->wide != NULL && work->reducing != 0)
		work->wide->widen(work->partial + first * work->partial_bytes,
				  work->own + first * work->element_bytes,
				  fanin_ring_segment_count(work, segment));
	if (request->collective == FANIN_COLLECTIVE_ALLGATHER && work->own != NULL &&
	    work->own != work->result)
		memmove(work->result + first * work->element_bytes,
			work->own + first * work->element_bytes, request->send_bytes);
}

void
fanin_ring_work_begin(struct fanin_ring *ring, struct fanin_request *request)
{
	struct fanin_ring_work *work = &ring->work;
	const struct fanin_ring_header header = {
		.type = FANIN_RING_COLLECTIVE,
		.seq = ring->seq,
		.count = request->total_bytes / request->element_bytes,
		.root = request->root,
		.collective = request->collective,
		.dtype = request->dtype,
		.op = request->op,
	};
	unsigned int op = request->op;

	*work = (struct fanin_ring_work){
		.request = request,
		.count = header.count,
		.dtype = request->dtype,
		.element_bytes = request->element_bytes,
		.wide = wide_of(ring, request),
	};
	if (request->sparse != NULL) {
		work->rx_matched = ring->config.size == 1;
		fanin_ring_doubling_begin(ring);
		if (ring->status == FANIN_OK && ring->config.size > 1)
			fanin_ring_piece_set(&ring->tx_header, &header, sizeof(header));
		return;
	}
	/* An empty collective still synchronises: one byte goes round for each rank. */
	if (work->count == 0) {
		work->count = ring->config.size;
		work->own = work->token;
		work->result = work->token;
		work->partial = work->token;
		work->dtype = FANIN_WIRE_U8;
		work->element_bytes = 1;
		work->wide = NULL;
		op = FANIN_WIRE_BOR;
		steps_plan(ring, FANIN_COLLECTIVE_ALLREDUCE, 0);
	} else {
		if (request->send_bytes != 0)
			work->own = request->send - request->send_offset;
		if (request->recv_bytes != 0)
			work->result = request->recv - request->recv_offset;
		steps_plan(ring, request->collective, request->root);
	}
	work->partial_bytes = work->wide != NULL ? sizeof(float) : work->element_bytes;
	if (work->reducing != 0) {
		work->kernel = work->wide != NULL ? work->wide->accumulate
						  : fanin_kernel(ring->isa, work->dtype, op);
		work->finish =
			fanin_kernel_finish(ring->isa,
					    work->wide != NULL ? FANIN_WIRE_F32 : work->dtype, op);
	}
	if (header.count != 0 && !memory_take(work)) {
		fanin_error_set(&ring->error, 0,
				"out of memory for partial results of %llu elements",
				(unsigned long long)header.count);
		fanin_ring_fail(ring, FANIN_ERR_NO_MEMORY);
		return;
	}
	if (ring->config.size == 1) {
		work->rx_matched = true;
		return;
	}
	if (header.count != 0)
		own_prepare(ring);
	fanin_ring_piece_set(&ring->tx_header, &header, sizeof(header));
}

void
fanin_ring_work_end(struct fanin_ring *ring)
{
	fanin_ring_doubling_end(ring);
	free(ring->work.result_memory);
	free(ring->work.partial_memory);
	ring->work = (struct fanin_ring_work){ 0 };
}
