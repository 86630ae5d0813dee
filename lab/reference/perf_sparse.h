/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse vectors of fanin-perf: at which indices a rank has a value is told from the seed, as the
 * values are (perf_data.h), or from a file (perf_places.h), so that every rank can tell every
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
	PERF_DISJOINT,  /* no two ranks have one in common, and each 1 / size of them at most */
	PERF_PATTERNS
};

struct perf_sparse {
	struct perf_data data;
	enum perf_pattern pattern;
	double density;                   /* 0 to 1 */
	const struct perf_places *places; /* NULL, or where the values are, whatever pattern and
					     density say */
};

/* "uniform", ... A static string. */
const char *perf_pattern_name(enum perf_pattern pattern);

/*
 * A rank's vector in an iteration.
 *
 * n: indices there are. index_bytes: 4 or 8. indices, values: room for n; values aligned to their
 * size. Returns how many values there are.
 */
uint64_t perf_sparse_fill(const struct perf_sparse *sparse, uint16_t rank, uint64_t iteration,
			  uint64_t n, unsigned int index_bytes, void *indices, void *values);

/*
 * The result's elements from `first` on, n of them: zeros where no rank has a value. elements:
 * aligned to their size.
 */
void perf_sparse_expect(const struct perf_sparse *sparse, uint64_t iteration, uint64_t first,
			uint64_t n, void *elements);

#endif
