/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Output for people: aligned tables, and numbers with units. Prints to standard output; for
 * faninctl's commands.
 */
#ifndef FANIN_TOOLS_CTL_TABLE_H
#define FANIN_TOOLS_CTL_TABLE_H

#include <stddef.h>

#define CTL_NUMBER_LEN 32

struct ctl_table {
	const char *const *headers; /* ends with NULL; one that starts with '>' makes its column
				       flush right */
	size_t n_columns;
	char **cells; /* row by row */
	size_t n_cells;
	size_t size;
};

/* Starts a table. headers must outlive the table. */
void ctl_table_start(struct ctl_table *table, const char *const *headers);

/* Adds the next cell, from left to right; after the last cell of a row, the first of the next. */
void ctl_table_cell(struct ctl_table *table, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints headers and rows, each after the indent, and frees the cells. */
void ctl_table_print(struct ctl_table *table, const char *indent);

/*
 * Write numbers for people. buffer: CTL_NUMBER_LEN bytes; returned.
 * "1.5 GB"; "2.4 M/s", or "-" for a negative rate, which is not known yet; "8.1 Gbit/s" from bytes;
 * "1 h 05 min".
 */
const char *ctl_bytes(double bytes, char *buffer);
const char *ctl_rate(double per_second, char *buffer);
const char *ctl_bit_rate(double bytes_per_second, char *buffer);
const char *ctl_duration(double seconds, char *buffer);

#endif
