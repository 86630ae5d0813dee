/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab/reference/perf_collective.h"

const char *
perf_collective_name(enum perf_collective_kind kind)
{
	static const char *const names[PERF_COLLECTIVES] = {
		[PERF_ALLREDUCE] = "allreduce",           [PERF_REDUCE] = "reduce",
		[PERF_REDUCE_SCATTER] = "reduce_scatter", [PERF_BROADCAST] = "broadcast",
		[PERF_ALLGATHER] = "allgather",           [PERF_BARRIER] = "barrier",
	};

	return names[kind];
}

bool
perf_collective_combines(enum perf_collective_kind kind)
{
	return kind == PERF_ALLREDUCE || kind == PERF_REDUCE || kind == PERF_REDUCE_SCATTER;
}

bool
perf_collective_has_parts(enum perf_collective_kind kind)
{
	return kind == PERF_REDUCE_SCATTER || kind == PERF_ALLGATHER;
}

static struct perf_range
all_of(const struct perf_collective *collective)
{
	return (struct perf_range){ 0, collective->count };
}

static struct perf_range
part_of(const struct perf_collective *collective)
{
	uint64_t n = collective->count / collective->data.size;

	return (struct perf_range){ n * collective->rank, n };
}

struct perf_range
perf_collective_sends(const struct perf_collective *collective)
{
	if (collective->kind == PERF_ALLGATHER)
		return part_of(collective);
	if (collective->kind == PERF_BROADCAST && collective->rank != collective->root)
		return (struct perf_range){ 0 };
	return all_of(collective);
}

struct perf_range
perf_collective_receives(const struct perf_collective *collective)
{
	bool is_root = collective->rank == collective->root;

	if (collective->kind == PERF_REDUCE_SCATTER)
		return part_of(collective);
	if ((collective->kind == PERF_BROADCAST && is_root) ||
	    (collective->kind == PERF_REDUCE && !is_root))
		return (struct perf_range){ 0 };
	return all_of(collective);
}

/* Writes the expected elements: each rank's part is its own data at this place of the vector. */
static void
gathered_expect(const struct perf_collective *collective, uint64_t iteration, uint64_t first,
		uint64_t n, uint8_t *elements)
{
	const struct perf_data *data = &collective->data;
	size_t size = fanin_dtype_size_of(data->dtype);
	uint64_t part = collective->count / data->size;

	while (n > 0) {
		uint64_t rank = first / part;
		uint64_t left = (rank + 1) * part - first;

		if (left > n)
			left = n;
		perf_data_fill(data, (uint16_t)rank, iteration, first, left, elements);
		elements += left * size;
		first += left;
		n -= left;
	}
}

void
perf_collective_expect(const struct perf_collective *collective, uint64_t iteration, uint64_t first,
		       uint64_t n, void *elements)
{
	if (collective->kind == PERF_BROADCAST)
		perf_data_fill(&collective->data, collective->root, iteration, first, n, elements);
	else if (collective->kind == PERF_ALLGATHER)
		gathered_expect(collective, iteration, first, n, elements);
	else
		perf_data_expect(&collective->data, iteration, first, n, elements);
}

/*
 * Returns the address of a range of a vector; NULL if the range is empty: then nothing may be
 * touched.
 */
static uint8_t *
place_of(void *vector, struct perf_range range, size_t size)
{
	return range.n == 0 ? NULL : (uint8_t *)vector + range.first * size;
}

int
perf_collective_post(const struct perf_collective *collective, void *send, void *recv,
		     fanin_comm *comm, fanin_request **req)
{
	enum fanin_dtype dtype = collective->data.dtype;
	enum fanin_op op = collective->data.op;
	size_t size = fanin_dtype_size_of(dtype);
	uint64_t part = collective->count / collective->data.size;
	uint8_t *from = place_of(send, perf_collective_sends(collective), size);
	uint8_t *to = place_of(recv, perf_collective_receives(collective), size);

	switch (collective->kind) {
	case PERF_ALLREDUCE:
		return fanin_iallreduce(from, to, collective->count, dtype, op, comm, req);
	case PERF_REDUCE:
		return fanin_ireduce(from, to, collective->count, dtype, op, collective->root, comm,
				     req);
	case PERF_REDUCE_SCATTER:
		return fanin_ireduce_scatter(from, to, part, dtype, op, comm, req);
	case PERF_BROADCAST:
		return fanin_ibroadcast(from != NULL ? from : to, collective->count, dtype,
					collective->root, comm, req);
	case PERF_ALLGATHER:
		return fanin_iallgather(from, to, part, dtype, comm, req);
	case PERF_BARRIER:
		return fanin_ibarrier(comm, req);
	default:
		return FANIN_ERR_INVALID;
	}
}

int
perf_collective_call(const struct perf_collective *collective, void *send, void *recv,
		     fanin_comm *comm)
{
	enum fanin_dtype dtype = collective->data.dtype;
	size_t size = fanin_dtype_size_of(dtype);
	uint64_t part = collective->count / collective->data.size;
	uint8_t *from = place_of(send, perf_collective_sends(collective), size);
	uint8_t *to = place_of(recv, perf_collective_receives(collective), size);

	if (collective->kind == PERF_BROADCAST)
		return fanin_broadcast(from != NULL ? from : to, collective->count, dtype,
				       collective->root, comm);
	if (collective->kind == PERF_ALLGATHER)
		return fanin_allgather(from, to, part, dtype, comm);
	return FANIN_OK;
}
