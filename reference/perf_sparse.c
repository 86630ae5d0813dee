/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_sparse.h. */
#include "reference/perf_sparse.h"

#include <string.h>

#include "reference/kernel_reference.h"

#define RUN 64
#define CHUNK 512 /* elements of a result that are put together at a time */
/* Where values are must not depend on what they are. */
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

/* Has the rank a value there? */
static bool
has_value(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration, uint64_t index)
{
	struct perf_data places = sparse->data;
	double density = sparse->density;

	places.seed ^= PLACES_SEED;
	switch (sparse->pattern) {
	case PERF_CLUSTERED:
		index /= RUN;
		break;
	case PERF_SAME:
		rank = 0;
		break;
	case PERF_DISJOINT:
		if (index % places.size != rank)
			return false;
		density *= places.size;
		break;
	default:
		break;
	}
	return perf_data_random(&places, rank, iteration, index) < density * 4294967296.0;
}

/* A rank's vector, whose places a file has. */
static uint64_t
fill_at_places(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration,
	       unsigned int index_bytes, uint8_t *indices, uint8_t *values)
{
	const struct perf_places *places = sparse->places;
	const size_t size = fanin_dtype_size_of(sparse->data.dtype);
	const uint64_t count = places->counts[rank];

	for (uint64_t i = 0; i < count; i++) {
		const uint64_t index = places->indices[rank][i];

		memcpy(indices + i * index_bytes, &index, index_bytes);
		perf_data_fill(&sparse->data, rank, iteration, index, 1, values + i * size);
	}
	return count;
}

/* The result's elements from `first` on, n of them, CHUNK at most, at the places that a file has. */
static void
expect_at_places(const struct perf_sparse *sparse, uint64_t iteration, uint64_t first, uint64_t n,
		 uint8_t *elements)
{
	const struct perf_places *places = sparse->places;
	const struct perf_data *data = &sparse->data;
	const size_t size = fanin_dtype_size_of(data->dtype);
	bool is_there[CHUNK] = { false };
	uint64_t combined[CHUNK] = { 0 };

	for (uint16_t rank = 0; rank < data->size; rank++) {
		for (uint64_t at = perf_places_find(places, rank, first);
		     at < places->counts[rank] && places->indices[rank][at] < first + n; at++) {
			const uint64_t index = places->indices[rank][at];
			const uint64_t i = index - first;
			uint64_t bits = 0;

			perf_data_fill(data, rank, iteration, index, 1, &bits);
			combined[i] = is_there[i] ? reference_combine(data->dtype, data->op,
								      combined[i], bits)
						  : bits;
			is_there[i] = true;
		}
	}
	for (uint64_t i = 0; i < n; i++)
		memcpy(elements + i * size, &combined[i], size);
}

uint64_t
perf_sparse_fill(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration, uint64_t n,
		 unsigned int index_bytes, void *indices, void *values)
{
	const size_t size = fanin_dtype_size_of(sparse->data.dtype);
	uint64_t count = 0;

	if (sparse->places != NULL)
		return fill_at_places(sparse, rank, iteration, index_bytes, indices, values);
	for (uint64_t i = 0; i < n; i++) {
		if (!has_value(sparse, rank, iteration, i))
			continue;
		memcpy((uint8_t *)indices + count * index_bytes, &i, index_bytes);
		perf_data_fill(&sparse->data, rank, iteration, i, 1,
			       (uint8_t *)values + count * size);
		count++;
	}
	return count;
}

void
perf_sparse_expect(const struct perf_sparse *sparse, uint64_t iteration, uint64_t first, uint64_t n,
		   void *elements)
{
	const struct perf_data *data = &sparse->data;
	const size_t size = fanin_dtype_size_of(data->dtype);

	for (uint64_t i = 0; sparse->places != NULL && i < n; i += CHUNK)
		expect_at_places(sparse, iteration, first + i, n - i < CHUNK ? n - i : CHUNK,
				 (uint8_t *)elements + i * size);
	for (uint64_t i = 0; sparse->places == NULL && i < n; i++) {
		uint64_t combined = 0;
		bool is_there = false;

		for (uint16_t rank = 0; rank < data->size; rank++) {
			uint64_t bits = 0;

			if (!has_value(sparse, rank, iteration, first + i))
				continue;
			perf_data_fill(data, rank, iteration, first + i, 1, &bits);
			combined = is_there ? reference_combine(data->dtype, data->op, combined, bits)
					    : bits;
			is_there = true;
		}
		memcpy((uint8_t *)elements + i * size, &combined, size);
	}
}
