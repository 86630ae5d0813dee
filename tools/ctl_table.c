/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Aligned tables and numbers with units on standard output, for faninctl.
 */
#include "tools/ctl_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/text.h"

static void
out_of_memory(void)
{
	fprintf(stderr, "faninctl: out of memory\n");
	exit(1);
}

void
ctl_table_start(struct ctl_table *table, const char *const *headers)
{
	*table = (struct ctl_table){ .headers = headers };
	while (headers[table->n_columns] != NULL)
		table->n_columns++;
}

void
ctl_table_cell(struct ctl_table *table, const char *format, ...)
{
	char *cell;
	va_list args;

	va_start(args, format);
	if (vasprintf(&cell, format, args) < 0)
		out_of_memory();
	va_end(args);
	text_make_printable(cell);
	if (table->n_cells == table->size) {
		size_t size = table->size * 2 + table->n_columns;
		char **cells = realloc(table->cells, size * sizeof(*cells));

		if (cells == NULL)
			out_of_memory();
		table->cells = cells;
		table->size = size;
	}
	table->cells[table->n_cells++] = cell;
}

static void
print_cell(const struct ctl_table *table, size_t column, const char *text, int width)
{
	const char *gap = column == 0 ? "" : "  ";

	if (table->headers[column][0] == '>')
		printf("%s%*s", gap, width, text);
	else if (column + 1 == table->n_columns)
		printf("%s%s", gap, text);
	else
		printf("%s%-*s", gap, width, text);
}

void
ctl_table_print(struct ctl_table *table, const char *indent)
{
	int *widths = calloc(table->n_columns, sizeof(*widths));

	if (widths == NULL)
		out_of_memory();
	for (size_t i = 0; i < table->n_columns; i++)
		widths[i] = (int)strlen(table->headers[i]) - (table->headers[i][0] == '>');
	for (size_t i = 0; i < table->n_cells; i++) {
		int len = (int)strlen(table->cells[i]);

		if (len > widths[i % table->n_columns])
			widths[i % table->n_columns] = len;
	}
	fputs(indent, stdout);
	for (size_t i = 0; i < table->n_columns; i++)
		print_cell(table, i, table->headers[i] + (table->headers[i][0] == '>'), widths[i]);
	for (size_t i = 0; i < table->n_cells; i++) {
		size_t column = i % table->n_columns;

		if (column == 0)
			printf("\n%s", indent);
		print_cell(table, column, table->cells[i], widths[column]);
		free(table->cells[i]);
	}
	putchar('\n');
	free(table->cells);
	free(widths);
}

/* Writes a number of about three digits with a decimal prefix. */
static const char *
with_prefix(double value, const char *unit, char *buffer)
{
	static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
	size_t prefix = 0;

	while (value >= 999.5 && prefix < 5) {
		value /= 1000;
		prefix++;
	}
	snprintf(buffer, CTL_NUMBER_LEN, "%.*f%s%s%s",
		 prefix == 0 || value >= 99.95 ? 0
		 : value >= 9.995              ? 1
					       : 2,
		 value, prefix == 0 && unit[0] == '/' ? "" : " ", prefixes[prefix], unit);
	return buffer;
}

const char *
ctl_bytes(double bytes, char *buffer)
{
	return with_prefix(bytes, "B", buffer);
}

const char *
ctl_rate(double per_second, char *buffer)
{
	if (per_second >= 0)
		return with_prefix(per_second, "/s", buffer);
	snprintf(buffer, CTL_NUMBER_LEN, "-");
	return buffer;
}

const char *
ctl_bit_rate(double bytes_per_second, char *buffer)
{
	if (bytes_per_second >= 0)
		return with_prefix(bytes_per_second * 8, "bit/s", buffer);
	snprintf(buffer, CTL_NUMBER_LEN, "-");
	return buffer;
}

const char *
ctl_duration(double seconds, char *buffer)
{
	unsigned long whole = seconds > 0 ? (unsigned long)seconds : 0;

	if (whole < 60)
		snprintf(buffer, CTL_NUMBER_LEN, "%lu s", whole);
	else if (whole < 3600)
		snprintf(buffer, CTL_NUMBER_LEN, "%lu min %02lu s", whole / 60, whole % 60);
	else if (whole < 86400)
		snprintf(buffer, CTL_NUMBER_LEN, "%lu h %02lu min", whole / 3600, whole / 60 % 60);
	else
		snprintf(buffer, CTL_NUMBER_LEN, "%lu d %02lu h", whole / 86400, whole / 3600 % 24);
	return buffer;
}
