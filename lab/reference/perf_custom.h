/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The custom operators that fanin-perf can run and check: an application's side of
 * docs/custom-operators.md. Each is an entry in perf_custom.c.
 */
#ifndef FANIN_LAB_REFERENCE_PERF_CUSTOM_H
#define FANIN_LAB_REFERENCE_PERF_CUSTOM_H

#include "lab/reference/perf_data.h"

struct perf_custom {
	const char *dtype_name; /* the switch's names for it, as for --dtype and --op */
	const char *op_name;
	enum fanin_dtype dtype; /* FANIN_OPAQUE(1) to FANIN_OPAQUE(64) */
	enum fanin_op op;       /* as registered in the switch */

	/* Like perf_data_fill and perf_data_expect. */
	void (*fill)(const struct perf_data *data, uint16_t rank, uint64_t iteration,
		     uint64_t first, uint64_t n, void *elements);
	void (*expect)(const struct perf_data *data, uint64_t iteration, uint64_t first, uint64_t n,
		       void *elements);
};

/* Returns the entry with this number, from 0; NULL after the last one. */
const struct perf_custom *perf_custom_at(size_t number);

/* Returns the entry with these names, or NULL. */
const struct perf_custom *perf_custom_find(const char *dtype_name, const char *op_name);

/* Returns the entry with this code, or NULL. */
const struct perf_custom *perf_custom_of(enum fanin_op op);

#endif
