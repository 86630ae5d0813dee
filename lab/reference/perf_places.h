/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Indices at which the ranks of a sparse allreduce have values, from a text file: one line of
 * indices for each rank, in the order of the ranks.
 *
 *	# gradients of four workers
 *	n 7850
 *	0 17 512 7849
 *	3 17
 *	-
 *	512
 *
 * Indices are decimal, ascending, separated by blanks. A line "-" is a rank without any. "n", which
 * is optional and comes first, is the length of the vector. A # begins a comment; empty lines and
 * lines with only a comment do not count. Lines after the last rank's are not read.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_PLACES_H
#define FANIN_LAB_REFERENCE_PERF_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define PERF_PLACES_ERROR_LEN 512

struct perf_places {
	uint64_t n; /* length of the vector */
	uint16_t n_ranks;
	uint64_t *counts;   /* number of indices of each rank */
	uint64_t **indices; /* indices of each rank; NULL if it has none */
};

/*
 * Reads a file.
 *
 * n: length of the vector, 1 or more. n_is_fixed: "n" in the file must be the same; otherwise it
 * replaces n. places: filled in on success, to be freed by perf_places_free. error: room for
 * PERF_PLACES_ERROR_LEN bytes, receives the problem, with the file and the line. Returns 0 or
 * -errno.
 */
int perf_places_load(struct perf_places *places, const char *path, uint16_t n_ranks, uint64_t n,
		     bool n_is_fixed, char *error);

/* Frees the indices. places: may be all zeros. */
void perf_places_free(struct perf_places *places);

/* Returns the largest share of the indices at which any rank has values, 0 to 1. */
double perf_places_density(const struct perf_places *places);

/*
 * Returns the position of a rank's first index that is not below `index`; the rank's count if there
 * is none.
 */
uint64_t perf_places_find(const struct perf_places *places, uint16_t rank, uint64_t index);

#endif
