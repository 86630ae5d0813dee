/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares the result of a collective with the expected one, element by element, whatever the
 * elements' size. One thread.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_COMPARE_H
#define FANIN_LAB_REFERENCE_PERF_COMPARE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_ELEMENT_BYTES 64 /* maximum of an element */
#define PERF_ELEMENT_TEXT (2 + 2 * PERF_ELEMENT_BYTES + 1)

/* The first element that is wrong, its bytes as one number in hexadecimal digits. */
struct perf_difference {
	uint64_t index;
	char found[PERF_ELEMENT_TEXT];
	char expected[PERF_ELEMENT_TEXT];
};

struct perf_comparison {
	size_t element_bytes; /* 1 to PERF_ELEMENT_BYTES */
	/* Writes n expected elements, from `first` on. */
	void (*expect)(const void *user, uint64_t first, uint64_t n, void *elements);
	const void *user;
	const volatile sig_atomic_t *stop; /* not zero: the comparison ends early */
};

/*
 * Compares n elements, the first of which has the index `first`. difference: set if one is wrong.
 * Returns how many differ in any bit.
 */
uint64_t perf_compare(const struct perf_comparison *comparison, const void *found, uint64_t first,
		      uint64_t n, struct perf_difference *difference);

#endif
