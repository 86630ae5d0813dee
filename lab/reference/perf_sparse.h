/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse vectors of fanin-perf. The indices at which a rank has values follow from the seed, like
 * the values (perf_data.h), or come from a file (perf_places.h), so every rank can compute every
 * other's.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_SPARSE_H
#define FANIN_LAB_REFERENCE_PERF_SPARSE_H

#include "lab/reference/perf_data.h"
#include "lab/reference/perf_places.h"

enum perf_pattern {
	PERF_UNIFORM,   /* any index, with the same probability */
	PERF_CLUSTERED, /* runs of 64 indices in a row */
	PERF_SAME,      /* all ranks have the same indices */
	PERF_DISJOINT, /* no two ranks have an index in common; each has 1 / size of them at most */
	PERF_PATTERNS
};

struct perf_sparse {
	struct perf_data data;
	enum perf_pattern pattern;
	double density;                   /* 0 to 1 */
	const struct perf_places *places; /* NULL, or the indices of values, whatever pattern and
					     density say */
};

/* Returns a static string: "uniform", ... */
const char *perf_pattern_name(enum perf_pattern pattern);

/*
 * Writes a rank's vector in an iteration.
 *
 * n: number of indices. index_bytes: 4 or 8. indices, values: room for n; values aligned to their
 * size. Returns how many values there are.
 */
uint64_t perf_sparse_fill(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration,
			  uint64_t n, unsigned int index_bytes, void *indices, void *values);

/*
 * Writes the result's elements from `first` on, n of them: zeros where no rank has a value.
 * elements: aligned to their size.
 */
void perf_sparse_expect(const struct perf_sparse *sparse, uint64_t iteration, uint64_t first,
			uint64_t n, void *elements);

#endif
