/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a chunk in shared memory: each rank puts its data in, the ranks combine them, the
 * leader makes the hosts' collective of it, and each rank takes its part of the result. Places in
 * memory depend only on what all ranks know alike. Pure: they touch the memory that they are given.
 */
#ifndef FANIN_HOSTLIB_LOCAL_STEPS_H
#define FANIN_HOSTLIB_LOCAL_STEPS_H

#include "local.h"

/* How a request goes through the memory. */
struct fanin_local_plan {
	uint64_t units; /* elements, or bytes, of the vector; of one rank's part of it, if it has
			   parts */
	uint64_t per;   /* of them in a chunk */
	uint32_t chunks;
	uint32_t in_bytes;  /* bytes of an element; 1 if nothing is combined */
	uint32_t out_bytes; /* the same in the result */
	uint8_t out_dtype;
	uint8_t out_op; /* averages are sums until the end */
	bool combines;
	bool is_small; /* the leader combines all of each chunk */
	bool is_wide;  /* elements of 16 bits are summed in f32, rounded once */
};

/* The elements of one chunk. */
struct fanin_local_piece {
	uint64_t first; /* in the vector, or in each rank's part */
	size_t n;
};

/*
 * Makes the plan of a request, which has its layout (fanin_request_layout). wide: f16 and bf16 are
 * summed in f32. Returns false if it has too many chunks.
 */
bool fanin_local_plan_make(struct fanin_local_plan *plan, const struct fanin_local_layout *layout,
			   const struct fanin_request *request, bool wide);

struct fanin_local_piece fanin_local_piece_of(const struct fanin_local_plan *plan, uint32_t chunk);

/* True if each rank has a part of the vector. */
bool fanin_local_has_parts(const struct fanin_request *request);

/*
 * Puts this rank's data in: into `in`, or, if nothing is combined, to its place in the result.
 * Returns its bytes.
 */
size_t fanin_local_fill(const struct fanin_local_layout *layout,
			const struct fanin_local_plan *plan, const struct fanin_request *request,
			struct fanin_local_piece piece, uint8_t *in, uint8_t *out);

/*
 * Combines this place's share of a chunk over all ranks of the host, in the order of ranks. memory,
 * chunk: where the data is.
 */
void fanin_local_combine(const struct fanin_local_layout *layout,
			 const struct fanin_local_plan *plan, const struct fanin_request *request,
			 struct fanin_local_piece piece, const struct fanin_local_memory *memory,
			 unsigned int place, uint64_t chunk);

/*
 * Fills in the hosts' request of a chunk, which the leader posts. Returns its count.
 */
uint64_t fanin_local_hosts_request(const struct fanin_local_layout *layout,
				   const struct fanin_local_plan *plan,
				   const struct fanin_request *request,
				   struct fanin_local_piece piece, uint8_t *out,
				   struct fanin_request *hosts);

/* Divides averages, once the hosts have summed the chunk. */
void fanin_local_conclude(const struct fanin_local_layout *layout,
			  const struct fanin_local_plan *plan, const struct fanin_request *request,
			  struct fanin_local_piece piece, uint8_t *out);

/* Copies this rank's part of the result. Returns its bytes. */
size_t fanin_local_take(const struct fanin_local_layout *layout,
			const struct fanin_local_plan *plan, const struct fanin_request *request,
			struct fanin_local_piece piece, const uint8_t *out);

#endif
