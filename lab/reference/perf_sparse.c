/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_sparse.h. */
#include "lab/reference/perf_sparse.h"

#include <string.h>

#include "lab/reference/kernel_reference.h"

#define RUN 64
#define CHUNK 512 /* elements of a result that are computed at a time */
/* The indices of values must not depend on the values. */
#define PLACES_SEED 0x5ba25eu

const char *
perf_pattern_name(enum perf_pattern pattern)
{
	static const char *const names[PERF_PATTERNS] = {
		[PERF_UNIFORM] = "uniform",
		[PERF_CLUSTERED] = "clustered",
		[PERF_SAME] = "same",
		[PERF_DISJOINT] = "disjoint",
	};

	return names[pattern];
}

/* The random choice of the indices at which a rank has values in an iteration. */
struct choice {
	enum perf_pattern pattern;
	uint16_t rank;
	uint16_t size;
	uint32_t stream;
	uint64_t below; /* an index has a value if its 32-bit number is below this */
};

static struct choice
choice_of(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration)
{
	const double chance = sparse->density *
			      (sparse->pattern == PERF_DISJOINT ? sparse->data.size : 1) *
			      4294967296.0;
	struct perf_data places = sparse->data;

	places.seed ^= PLACES_SEED;
	return (struct choice){
		.pattern = sparse->pattern,
		.rank = rank,
		.size = sparse->data.size,
		.stream = perf_data_stream(&places, sparse->pattern == PERF_SAME ? 0 : rank,
					   iteration),
		.below = (uint64_t)chance + ((double)(uint64_t)chance < chance),
	};
}

static bool
is_chosen(const struct choice *choice, uint64_t index)
{
	if (choice->pattern == PERF_DISJOINT && index % choice->size != choice->rank)
		return false;
	if (choice->pattern == PERF_CLUSTERED)
		index /= RUN;
	return perf_data_mix(choice->stream, index) < choice->below;
}

/* A part of a result. */
struct part {
	uint64_t first; /* index */
	uint64_t n;     /* CHUNK at most */
	bool is_there[CHUNK];
	uint64_t combined[CHUNK]; /* as bits */
};

static void
part_add(struct part *part, const struct perf_data *data, uint16_t rank, uint64_t iteration,
	 uint64_t index)
{
	uint64_t *combined = &part->combined[index - part->first];
	bool *is_there = &part->is_there[index - part->first];
	uint64_t bits = 0;

	perf_data_fill(data, rank, iteration, index, 1, &bits);
	*combined = *is_there ? reference_combine(data->dtype, data->op, *combined, bits) : bits;
	*is_there = true;
}

/* Adds a rank's values in this part. */
static void
part_add_rank(struct part *part, const struct perf_sparse *sparse, uint16_t rank,
	      uint64_t iteration)
{
	const struct perf_places *places = sparse->places;
	const struct choice choice = choice_of(sparse, rank, iteration);

	if (places != NULL) {
		for (uint64_t at = perf_places_find(places, rank, part->first);
		     at < places->counts[rank] && places->indices[rank][at] < part->first + part->n;
		     at++)
			part_add(part, &sparse->data, rank, iteration, places->indices[rank][at]);
		return;
	}
	for (uint64_t index = part->first; index < part->first + part->n; index++) {
		if (is_chosen(&choice, index))
			part_add(part, &sparse->data, rank, iteration, index);
	}
}

/* Appends a value and its index. */
static void
vector_add(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration, uint64_t index,
	   unsigned int index_bytes, void *indices, void *values, uint64_t count)
{
	const size_t size = fanin_dtype_size_of(sparse->data.dtype);

	memcpy((uint8_t *)indices + count * index_bytes, &index, index_bytes);
	perf_data_fill(&sparse->data, rank, iteration, index, 1, (uint8_t *)values + count * size);
}

uint64_t
perf_sparse_fill(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration, uint64_t n,
		 unsigned int index_bytes, void *indices, void *values)
{
	const struct perf_places *places = sparse->places;
	const struct choice choice = choice_of(sparse, rank, iteration);
	uint64_t count = 0;

	if (places != NULL) {
		for (; count < places->counts[rank]; count++)
			vector_add(sparse, rank, iteration, places->indices[rank][count],
				   index_bytes, indices, values, count);
		return count;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (is_chosen(&choice, i))
			vector_add(sparse, rank, iteration, i, index_bytes, indices, values,
				   count++);
	}
	return count;
}

void
perf_sparse_expect(const struct perf_sparse *sparse, uint64_t iteration, uint64_t first, uint64_t n,
		   void *elements)
{
	const size_t size = fanin_dtype_size_of(sparse->data.dtype);

	for (uint64_t done = 0; done < n; done += CHUNK) {
		struct part part = { .first = first + done,
				     .n = n - done < CHUNK ? n - done : CHUNK };

		for (uint16_t rank = 0; rank < sparse->data.size; rank++)
			part_add_rank(&part, sparse, rank, iteration);
		for (uint64_t i = 0; i < part.n; i++)
			memcpy((uint8_t *)elements + (done + i) * size, &part.combined[i], size);
	}
}
