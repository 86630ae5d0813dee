/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_compare.h. */
#include "lab/reference/perf_compare.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES 131072

/*
 * Writes an element's bytes. text: PERF_ELEMENT_TEXT bytes. Elements are little-endian, and the
 * last byte comes first.
 */
static void
element_text(const uint8_t *element, size_t size, char *text)
{
	size_t used = 2;

	memcpy(text, "0x", 3);
	for (size_t i = size; i-- > 0; used += 2)
		snprintf(text + used, PERF_ELEMENT_TEXT - used, "%02x", element[i]);
}

uint64_t
perf_compare(const struct perf_comparison *comparison, const void *found, uint64_t first,
	     uint64_t n, struct perf_difference *difference)
{
	static _Alignas(64) uint8_t expected[CHUNK_BYTES];
	const size_t size = comparison->element_bytes;
	const uint64_t most = sizeof(expected) / size;
	const uint8_t *at = found;
	uint64_t mismatches = 0;

	for (uint64_t done = 0; done < n && *comparison->stop == 0; done += most) {
		const uint64_t part = n - done < most ? n - done : most;

		comparison->expect(comparison->user, first + done, part, expected);
		if (memcmp(expected, at + done * size, part * size) == 0)
			continue;
		for (uint64_t i = 0; i < part; i++) {
			const uint8_t *element = at + (done + i) * size;

			if (memcmp(expected + i * size, element, size) == 0 || mismatches++ > 0)
				continue;
			difference->index = first + done + i;
			element_text(element, size, difference->found);
			element_text(expected + i * size, size, difference->expected);
		}
	}
	return mismatches;
}
