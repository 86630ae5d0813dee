/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse allreduces of ranks of one host ("Sparse vectors" in docs/local.md): the leader gathers
 * the values of all ranks, makes one vector of them, which the hosts sum, and passes the result on.
 * A request has chunks with its ranks' values, and then chunks with the result, whose number is
 * known once the result is. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_LOCAL_GATHER_H
#define FANIN_HOSTLIB_LOCAL_GATHER_H

#include "hostlib/src/vector/vector.h"
#include "local.h"

/* Values at ascending indices. */
struct fanin_local_list {
	uint64_t n, room;
	uint64_t *indices;
	uint8_t *values;
};

/* State of the sparse request that is on its way. */
struct fanin_local_sparse {
	struct fanin_local_list *gathered; /* leader: of each place; NULL: nothing yet */
	struct fanin_vector *vector;       /* leader: of the hosts' request */
	struct fanin_sparse_result found;  /* leader: its result */
	struct fanin_local_list result;    /* as far as it was taken */
};

/* Returns how many chunks the values of a rank take, the same at all ranks. */
uint32_t fanin_local_sparse_chunks(const struct fanin_vector *vector);

/* Puts the values of one of these chunks in. */
void fanin_local_sparse_fill(const struct fanin_vector *vector, uint32_t index, uint8_t *in);

/*
 * Takes over the values of a chunk from all places. Returns false without memory.
 */
bool fanin_local_sparse_gather(struct fanin_local_sparse *sparse,
			       const struct fanin_local_layout *layout,
			       const struct fanin_vector *vector,
			       const struct fanin_local_memory *memory, uint64_t chunk);

/*
 * Makes the vector of the host out of what was gathered. Returns FANIN_OK, FANIN_ERR_NO_MEMORY or
 * FANIN_ERR_INVALID with an error.
 */
int fanin_local_sparse_join(struct fanin_local_sparse *sparse,
			    const struct fanin_local_layout *layout,
			    const struct fanin_vector *vector, struct fanin_error *error);

/* Makes the result of the only host. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_local_sparse_alone(struct fanin_local_sparse *sparse);

/* Returns how many chunks the result takes, at the leader, or out of its first chunk. */
uint32_t fanin_local_sparse_result_chunks(const struct fanin_vector *vector, uint64_t n);
static inline uint64_t
fanin_local_sparse_result_count(const uint8_t *out)
{
	uint64_t n;

	memcpy(&n, out, sizeof(n));
	return n;
}

/* Writes a chunk of the result; index: of the result's chunks. */
void fanin_local_sparse_write(const struct fanin_local_sparse *sparse,
			      const struct fanin_vector *vector, uint32_t index, uint8_t *out);

/* Takes such a chunk. Returns false without memory. */
bool fanin_local_sparse_take(struct fanin_local_sparse *sparse, const struct fanin_vector *vector,
			     uint32_t index, const uint8_t *out);

/*
 * Passes the result to the caller. Returns FANIN_OK, FANIN_ERR_CAPACITY or FANIN_ERR_NO_MEMORY with
 * the vector's error.
 */
int fanin_local_sparse_finish(struct fanin_local_sparse *sparse, struct fanin_vector *vector);

/* Frees what belongs to a request, whose hosts' request is no longer posted. */
void fanin_local_sparse_clear(struct fanin_local_sparse *sparse,
			      const struct fanin_local_layout *layout);

#endif
