/* SPDX-License-Identifier: BSD-3-Clause */
/* See steps.h. */
#include "steps.h"

#include <fenv.h>
#include <string.h>

#include "handlers/kernels/kernels.h"

/*
 * Up to this many bytes of all ranks' data together, the leader combines the whole chunk: the
 * others then wait once instead of twice.
 */
#define SMALL_BYTES (64u << 10)

bool
fanin_local_has_parts(const struct fanin_request *request)
{
	return request->collective == FANIN_COLLECTIVE_ALLGATHER ||
	       request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER;
}

/* Parts of a result: each host has as many as the one that has most ranks. */
static uint64_t
slots_of(const struct fanin_local_layout *layout, const struct fanin_request *request)
{
	return fanin_local_has_parts(request) ? (uint64_t)layout->n_hosts * layout->most : 1;
}

static size_t
slot_of(const struct fanin_local_layout *layout, unsigned int rank)
{
	return (size_t)layout->host_of[rank] * layout->most + layout->place_of[rank];
}

bool
fanin_local_plan_make(struct fanin_local_plan *plan, const struct fanin_local_layout *layout,
		      const struct fanin_request *request, bool wide)
{
	const uint64_t slots = slots_of(layout, request);
	uint64_t chunks;

	*plan = (struct fanin_local_plan){ .in_bytes = request->element_bytes,
					   .out_dtype = request->dtype,
					   .out_op = request->op,
					   .combines = fanin_request_combines(request) };
	/* Elements that are only moved may be of any size. */
	if (!plan->combines) {
		plan->in_bytes = 1;
		plan->out_dtype = FANIN_U8;
	}
	plan->out_bytes = plan->in_bytes;
	plan->units = request->total_bytes / plan->in_bytes;
	if (fanin_local_has_parts(request))
		plan->units /= layout->size;
	plan->is_wide = wide && plan->combines &&
			fanin_operation_widens(request->dtype, request->op);
	if (plan->is_wide) {
		plan->out_bytes = sizeof(float);
		plan->out_dtype = FANIN_F32;
	}
	if (plan->combines && request->op == FANIN_AVG)
		plan->out_op = FANIN_SUM;
	/* The layout has room for one element of each slot. */
	plan->per = FANIN_LOCAL_CHUNK_BYTES / plan->out_bytes / slots;
	chunks = plan->units == 0 ? 1 : (plan->units - 1) / plan->per + 1;
	plan->chunks = (uint32_t)chunks;
	plan->is_small = (plan->units < plan->per ? plan->units : plan->per) * slots *
				 plan->in_bytes * layout->n_neighbors <=
			 SMALL_BYTES;
	return chunks <= UINT32_MAX;
}

struct fanin_local_piece
fanin_local_piece_of(const struct fanin_local_plan *plan, uint32_t chunk)
{
	const uint64_t first = chunk * plan->per;
	const uint64_t left = plan->units - first;

	return (struct fanin_local_piece){ first, (size_t)(left < plan->per ? left : plan->per) };
}

size_t
fanin_local_fill(const struct fanin_local_layout *layout, const struct fanin_local_plan *plan,
		 const struct fanin_request *request, struct fanin_local_piece piece, uint8_t *in,
		 uint8_t *out)
{
	const size_t element = plan->in_bytes, bytes = piece.n * element;
	const uint8_t *from = request->send + piece.first * element;

	if (bytes == 0)
		return 0;
	switch ((enum fanin_collective)request->collective) {
	case FANIN_COLLECTIVE_REDUCE_SCATTER:
		for (size_t part = 0; part < layout->size; part++)
			memcpy(in + part * bytes, from + part * plan->units * element, bytes);
		return layout->size * bytes;
	case FANIN_COLLECTIVE_ALLGATHER:
		memcpy(out + slot_of(layout, layout->rank) * bytes, from, bytes);
		return bytes;
	case FANIN_COLLECTIVE_BROADCAST:
		if (request->root != layout->rank)
			return 0;
		memcpy(out, from, bytes);
		return bytes;
	default:
		memcpy(in, from, bytes);
		return bytes;
	}
}

/* The data of a vector of ranks, combined into the result. */
struct combination {
	fanin_kernel_fn kernel;
	const struct fanin_wide_kernels *wide;
	size_t in_bytes, out_bytes; /* of an element */
};

/* Combines n elements, which are at `offset` in the data of each place. */
static void
combine(const struct combination *how, const struct fanin_local_memory *memory,
	unsigned int n_places, uint64_t chunk, size_t offset, uint8_t *to, size_t n)
{
	const uint8_t *first = fanin_local_in(memory, 0, chunk) + offset * how->in_bytes;

	if (how->wide != NULL)
		how->wide->widen(to, first, n);
	else
		memcpy(to, first, n * how->in_bytes);
	for (unsigned int place = 1; place < n_places; place++) {
		const uint8_t *from = fanin_local_in(memory, place, chunk) + offset * how->in_bytes;

		if (how->wide != NULL)
			how->wide->accumulate(to, from, n);
		else
			how->kernel(to, from, n);
	}
}

/*
 * Between these two calls the thread rounds to nearest and keeps denormal numbers, as a switch
 * does; the program may do otherwise.
 */
static void
arithmetic_enter(fenv_t *programs)
{
	fegetenv(programs);
	fesetenv(FE_DFL_ENV);
}

static void
arithmetic_leave(const fenv_t *programs)
{
	fesetenv(programs);
}

/* Splits n things among the places; returns where a place begins. */
static size_t
share_of(size_t n, unsigned int place, unsigned int n_places)
{
	return n * place / n_places;
}

void
fanin_local_combine(const struct fanin_local_layout *layout, const struct fanin_local_plan *plan,
		    const struct fanin_request *request, struct fanin_local_piece piece,
		    const struct fanin_local_memory *memory, unsigned int place, uint64_t chunk)
{
	const enum fanin_isa isa = layout->isa;
	const unsigned int n_places = layout->n_neighbors;
	const struct combination how = {
		.kernel = fanin_kernel(isa, request->dtype, request->op),
		.wide = plan->is_wide ? fanin_kernel_wide(isa, request->dtype) : NULL,
		.in_bytes = plan->in_bytes,
		.out_bytes = plan->out_bytes,
	};
	uint8_t *out = fanin_local_out(memory, chunk);
	const bool in_parts = request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER;
	const size_t things = in_parts ? layout->size : piece.n;
	const size_t from = plan->is_small ? 0 : share_of(things, place, n_places);
	const size_t to = plan->is_small ? things : share_of(things, place + 1, n_places);
	fenv_t programs;

	if (plan->is_small && place != 0)
		return;
	arithmetic_enter(&programs);
	if (!in_parts)
		combine(&how, memory, n_places, chunk, from, out + from * how.out_bytes, to - from);
	for (size_t part = from; in_parts && part < to; part++)
		combine(&how, memory, n_places, chunk, part * piece.n,
			out + slot_of(layout, (unsigned int)part) * piece.n * how.out_bytes,
			piece.n);
	arithmetic_leave(&programs);
}

uint64_t
fanin_local_hosts_request(const struct fanin_local_layout *layout,
			  const struct fanin_local_plan *plan, const struct fanin_request *request,
			  struct fanin_local_piece piece, uint8_t *out, struct fanin_request *hosts)
{
	const size_t slots = (size_t)layout->most * piece.n; /* elements of a host's parts */
	uint8_t *own = out + layout->host * slots * plan->out_bytes;

	*hosts = (struct fanin_request){ .send = out,
					 .recv = out,
					 .collective = request->collective,
					 .dtype = plan->out_dtype,
					 .op = plan->out_op };
	switch ((enum fanin_collective)request->collective) {
	case FANIN_COLLECTIVE_REDUCE_SCATTER:
		hosts->recv = own;
		return slots;
	case FANIN_COLLECTIVE_ALLGATHER:
		hosts->send = own;
		return slots;
	case FANIN_COLLECTIVE_REDUCE:
	case FANIN_COLLECTIVE_BROADCAST:
		hosts->root = layout->host_of[request->root];
		return piece.n;
	default:
		return piece.n;
	}
}

void
fanin_local_conclude(const struct fanin_local_layout *layout, const struct fanin_local_plan *plan,
		     const struct fanin_request *request, struct fanin_local_piece piece,
		     uint8_t *out)
{
	fanin_finish_fn finish;
	size_t n = piece.n;
	fenv_t programs;

	if (!plan->combines || piece.n == 0)
		return;
	finish = fanin_kernel_finish(layout->isa, plan->out_dtype, request->op);
	if (finish == NULL)
		return;
	if (request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER) {
		n *= layout->most;
		out += layout->host * n * plan->out_bytes;
	}
	arithmetic_enter(&programs);
	finish(out, layout->size, n);
	arithmetic_leave(&programs);
}

size_t
fanin_local_take(const struct fanin_local_layout *layout, const struct fanin_local_plan *plan,
		 const struct fanin_request *request, struct fanin_local_piece piece,
		 const uint8_t *out)
{
	const size_t element = plan->in_bytes, bytes = piece.n * element;
	fenv_t programs;
	uint8_t *to;

	if (bytes == 0 || request->recv_bytes == 0)
		return 0;
	to = request->recv + piece.first * element;
	if (request->collective == FANIN_COLLECTIVE_ALLGATHER) {
		for (unsigned int rank = 0; rank < layout->size; rank++)
			memcpy(to + rank * plan->units * element,
			       out + slot_of(layout, rank) * bytes, bytes);
		return layout->size * bytes;
	}
	if (request->collective == FANIN_COLLECTIVE_REDUCE_SCATTER)
		out += slot_of(layout, layout->rank) * piece.n * plan->out_bytes;
	if (!plan->is_wide) {
		memcpy(to, out, bytes);
		return bytes;
	}
	arithmetic_enter(&programs);
	fanin_kernel_wide(layout->isa, request->dtype)->narrow(to, out, piece.n);
	arithmetic_leave(&programs);
	return bytes;
}
