/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives that fanin-perf can run, and their expected results. Each is about a vector:
 * every rank sends a part of it and receives a part of the result, which may be empty or whole.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_COLLECTIVE_H
#define FANIN_LAB_REFERENCE_PERF_COLLECTIVE_H

#include "lab/reference/perf_data.h"

enum perf_collective_kind {
	PERF_ALLREDUCE,
	PERF_REDUCE,
	PERF_REDUCE_SCATTER,
	PERF_BROADCAST,
	PERF_ALLGATHER,
	PERF_BARRIER,
	PERF_COLLECTIVES
};

struct perf_collective {
	enum perf_collective_kind kind;
	uint16_t root;  /* of reduce and broadcast */
	uint16_t rank;  /* this rank */
	uint64_t count; /* elements of the vector: with reduce_scatter and allgather a multiple of
			   the ranks */
	struct perf_data data;
};

/* A range of the vector's elements. */
struct perf_range {
	uint64_t first;
	uint64_t n;
};

/* Returns a static string: "allreduce", "reduce_scatter", ... */
const char *perf_collective_name(enum perf_collective_kind kind);

/* Returns true if elements of several ranks are combined. */
bool perf_collective_combines(enum perf_collective_kind kind);

/* Returns true if each rank has a part of its own. */
bool perf_collective_has_parts(enum perf_collective_kind kind);

/* Return the range that this rank sends, and the one that it receives. */
struct perf_range perf_collective_sends(const struct perf_collective *collective);
struct perf_range perf_collective_receives(const struct perf_collective *collective);

/*
 * Writes the result's elements from `first` on, n of them, as every rank has to receive them.
 *
 * elements: n elements of the data type, aligned to their size.
 */
void perf_collective_expect(const struct perf_collective *collective, uint64_t iteration,
			    uint64_t first, uint64_t n, void *elements);

/*
 * Posts the collective. send, recv: vectors, of which this rank sends and receives its ranges; the
 * same vector in place. The rest of the vectors does not change.
 *
 * req: set on success only. Returns the library's status.
 */
int perf_collective_post(const struct perf_collective *collective, void *send, void *recv,
			 fanin_comm *comm, fanin_request **req);

/*
 * Calls a broadcast or allgather, and waits for it; does nothing for others. The arguments are as
 * above. Returns the library's status.
 */
int perf_collective_call(const struct perf_collective *collective, void *send, void *recv,
			 fanin_comm *comm);

#endif
