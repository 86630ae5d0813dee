/* SPDX-License-Identifier: BSD-3-Clause */
/* See gather.h. */
#include "gather.h"

#include <stdlib.h>
#include <string.h>

/* Begin of a chunk: how many values follow, or how many the whole result has. */
#define HEAD_BYTES 64u
#define INDEX_BYTES sizeof(uint64_t)

/* Returns the values of a chunk: their indices come first. */
static uint64_t
per_chunk(const struct fanin_vector *vector)
{
	return (FANIN_LOCAL_CHUNK_BYTES - HEAD_BYTES) / (INDEX_BYTES + vector->element_bytes);
}

static uint32_t
chunks_of(const struct fanin_vector *vector, uint64_t n)
{
	const uint64_t per = per_chunk(vector);

	return n == 0 ? 1 : (uint32_t)((n - 1) / per + 1);
}

/* Returns how many of n values are in a chunk. */
static uint64_t
count_at(const struct fanin_vector *vector, uint64_t n, uint32_t index)
{
	const uint64_t first = index * per_chunk(vector);
	const uint64_t left = first < n ? n - first : 0;

	return left < per_chunk(vector) ? left : per_chunk(vector);
}

/* ---- lists */

static bool
list_reserve(struct fanin_local_list *list, uint64_t more, uint32_t element_bytes)
{
	uint64_t room = list->n + more;
	void *indices, *values;

	if (room <= list->room)
		return true;
	if (room < 2 * list->room)
		room = 2 * list->room;
	indices = realloc(list->indices, room * INDEX_BYTES);
	if (indices != NULL)
		list->indices = indices;
	values = realloc(list->values, room * element_bytes);
	if (values != NULL)
		list->values = values;
	if (indices == NULL || values == NULL)
		return false;
	list->room = room;
	return true;
}

/* Appends values of another list, or of a chunk. There is room for them. */
static void
list_append(struct fanin_local_list *list, const void *indices, const void *values, uint64_t n,
	    uint32_t element_bytes)
{
	memcpy(list->indices + list->n, indices, n * INDEX_BYTES);
	memcpy(list->values + list->n * element_bytes, values, n * element_bytes);
	list->n += n;
}

static void
list_free(struct fanin_local_list *list)
{
	free(list->indices);
	free(list->values);
	*list = (struct fanin_local_list){ 0 };
}

/*
 * Merges b into a, and frees b. Values with the same index stay side by side, those of a first.
 * Returns false without memory.
 */
static bool
lists_merge(struct fanin_local_list *a, struct fanin_local_list *b, uint32_t element_bytes)
{
	struct fanin_local_list both = { 0 };
	uint64_t i = 0, k = 0;

	if (!list_reserve(&both, a->n + b->n + 1, element_bytes)) {
		list_free(&both);
		return false;
	}
	while (i < a->n || k < b->n) {
		const bool of_a = k == b->n || (i < a->n && a->indices[i] <= b->indices[k]);
		const struct fanin_local_list *from = of_a ? a : b;
		const uint64_t at = of_a ? i++ : k++;

		list_append(&both, from->indices + at, from->values + at * element_bytes, 1,
			    element_bytes);
	}
	list_free(a);
	list_free(b);
	*a = both;
	return true;
}

/* ---- the ranks' values */

uint32_t
fanin_local_sparse_chunks(const struct fanin_vector *vector)
{
	return chunks_of(vector, vector->most);
}

void
fanin_local_sparse_fill(const struct fanin_vector *vector, uint32_t index, uint8_t *in)
{
	const uint64_t first = index * per_chunk(vector);
	const uint64_t n = count_at(vector, vector->nnz, index);
	uint8_t *indices = in + HEAD_BYTES;

	memcpy(in, &n, sizeof(n));
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t at = fanin_vector_index(vector->indices, vector->index_bytes,
						       first + i);

		memcpy(indices + i * INDEX_BYTES, &at, sizeof(at));
	}
	if (n != 0)
		memcpy(indices + n * INDEX_BYTES, vector->values + first * vector->element_bytes,
		       n * vector->element_bytes);
}

bool
fanin_local_sparse_gather(struct fanin_local_sparse *sparse,
			  const struct fanin_local_layout *layout,
			  const struct fanin_vector *vector,
			  const struct fanin_local_memory *memory, uint64_t chunk)
{
	if (sparse->gathered == NULL)
		sparse->gathered = calloc(layout->n_neighbors, sizeof(*sparse->gathered));
	if (sparse->gathered == NULL)
		return false;
	for (unsigned int place = 0; place < layout->n_neighbors; place++) {
		const uint8_t *in = fanin_local_in(memory, place, chunk);
		const uint8_t *indices = in + HEAD_BYTES;
		uint64_t n = fanin_local_sparse_result_count(in);

		if (n > per_chunk(vector))
			n = per_chunk(vector);
		if (!list_reserve(&sparse->gathered[place], n + 1, vector->element_bytes))
			return false;
		list_append(&sparse->gathered[place], indices, indices + n * INDEX_BYTES, n,
			    vector->element_bytes);
	}
	return true;
}

/* Merges the lists of all places into the first one. */
static bool
gathered_merge(struct fanin_local_sparse *sparse, unsigned int n_places, uint32_t element_bytes)
{
	for (unsigned int apart = 1; apart < n_places; apart *= 2)
		for (unsigned int place = 0; place + apart < n_places; place += 2 * apart)
			if (!lists_merge(&sparse->gathered[place], &sparse->gathered[place + apart],
					 element_bytes))
				return false;
	return true;
}

int
fanin_local_sparse_join(struct fanin_local_sparse *sparse, const struct fanin_local_layout *layout,
			const struct fanin_vector *vector, struct fanin_error *error)
{
	struct fanin_vector *hosts = calloc(1, sizeof(*hosts));
	const struct fanin_local_list *all;

	if (hosts == NULL || !gathered_merge(sparse, layout->n_neighbors, vector->element_bytes)) {
		free(hosts);
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for the values of this host's ranks");
	}
	all = &sparse->gathered[0];
	sparse->found = (struct fanin_sparse_result){ .sz = sizeof(sparse->found) };
	*hosts = (struct fanin_vector){
		.n = vector->n,
		.nnz = all->n,
		.indices = (const uint8_t *)all->indices,
		.values = all->values,
		.result = &sparse->found,
		.index_bytes = INDEX_BYTES,
		.dtype = vector->dtype,
		.op = vector->op,
		.element_bytes = vector->element_bytes,
		.is_known = true,
		/* The same at all hosts, whatever their number of ranks. */
		.most = vector->most > vector->n / layout->most ? vector->n
								: vector->most * layout->most,
	};
	sparse->vector = hosts;
	return fanin_vector_check(hosts, true, error);
}

int
fanin_local_sparse_alone(struct fanin_local_sparse *sparse)
{
	return fanin_vector_finish_alone(sparse->vector);
}

/* ---- the result */

uint32_t
fanin_local_sparse_result_chunks(const struct fanin_vector *vector, uint64_t n)
{
	return chunks_of(vector, n);
}

void
fanin_local_sparse_write(const struct fanin_local_sparse *sparse, const struct fanin_vector *vector,
			 uint32_t index, uint8_t *out)
{
	const struct fanin_sparse_result *found = &sparse->found;
	const uint64_t first = index * per_chunk(vector);
	const uint64_t n = count_at(vector, found->count, index);
	uint8_t *indices = out + HEAD_BYTES;

	memcpy(out, &found->count, sizeof(found->count));
	if (n == 0)
		return;
	memcpy(indices, (const uint64_t *)found->indices + first, n * INDEX_BYTES);
	memcpy(indices + n * INDEX_BYTES,
	       (const uint8_t *)found->values + first * vector->element_bytes,
	       n * vector->element_bytes);
}

bool
fanin_local_sparse_take(struct fanin_local_sparse *sparse, const struct fanin_vector *vector,
			uint32_t index, const uint8_t *out)
{
	const uint64_t count = fanin_local_sparse_result_count(out);
	const uint64_t n = count_at(vector, count, index);
	const uint8_t *indices = out + HEAD_BYTES;

	if (!list_reserve(&sparse->result, index == 0 ? count + 1 : n, vector->element_bytes))
		return false;
	list_append(&sparse->result, indices, indices + n * INDEX_BYTES, n, vector->element_bytes);
	return true;
}

int
fanin_local_sparse_finish(struct fanin_local_sparse *sparse, struct fanin_vector *vector)
{
	struct fanin_local_list *result = &sparse->result;
	int status;

	/* The caller's indices may be shorter; they become so in place. */
	for (uint64_t i = 0; vector->index_bytes != INDEX_BYTES && i < result->n; i++) {
		const uint64_t at = result->indices[i];

		fanin_vector_index_set(result->indices, vector->index_bytes, i, at);
	}
	vector->indices = (const uint8_t *)result->indices;
	vector->values = result->values;
	vector->nnz = result->n;
	status = fanin_vector_finish_alone(vector);
	vector->indices = NULL;
	vector->values = NULL;
	vector->nnz = 0;
	return status;
}

void
fanin_local_sparse_clear(struct fanin_local_sparse *sparse, const struct fanin_local_layout *layout)
{
	for (unsigned int place = 0; sparse->gathered != NULL && place < layout->n_neighbors;
	     place++)
		list_free(&sparse->gathered[place]);
	free(sparse->gathered);
	fanin_vector_free(sparse->vector);
	fanin_sparse_result_free(&sparse->found);
	list_free(&sparse->result);
	*sparse = (struct fanin_local_sparse){ 0 };
}
