/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parses the values of fanin-perf's options. An invalid value ends the program with status 2 and a
 * message with the option's name and what was expected. One thread.
 */
#ifndef FANIN_TOOLS_PERF_VALUES_H
#define FANIN_TOOLS_PERF_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include <fanin/fanin.h>

#include "lab/reference/perf_collective.h"
#include "lab/reference/perf_sparse.h"

/*
 * Parses a number from least to most, decimal or in C's other notations. name: of the option,
 * without dashes.
 */
uint64_t parse_number(const char *name, const char *text, uint64_t least, uint64_t most);

/* Parses the bytes of --bytes, as in "4096", "64KiB" or "1GB". */
uint64_t parse_bytes(const char *text);

/* Parses the name of a --pattern. Returns false if it is no such name. */
bool parse_pattern(const char *text, enum perf_pattern *pattern);

/*
 * Reads the file of --pattern for n_ranks. n: length of the vector. n_is_given: --bytes sets n,
 * which must match the file's. A missing file is reported as a wrong name.
 */
void load_pattern(struct perf_places *places, const char *path, uint16_t n_ranks, uint64_t n,
		  bool n_is_given);

enum perf_collective_kind parse_collective(const char *text);

/*
 * Parse predefined names. Custom operators and their types are found by both names together
 * (perf_custom.h).
 */
enum fanin_dtype parse_dtype(const char *text);
enum fanin_op parse_op(const char *text);

/* Refuses an operator that is not defined on the type. */
void check_operation(enum fanin_dtype dtype, enum fanin_op op);

#endif
