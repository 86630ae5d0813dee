/* SPDX-License-Identifier: BSD-3-Clause */
/* See options.h. */
#include "tools/measure/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void
bench_usage(const struct cli_program *program, int status)
{
	FILE *out = status == 0 ? stdout : stderr;

	fputs(program->about, out);
	for (const struct cli_field *row = program->fields;
	     program->column != 0 && row->name != NULL; row++) {
		const int len = fprintf(out, "  --%s%s%s", row->name,
					row->argument == NULL ? "" : " ",
					row->argument == NULL ? "" : row->argument);

		fprintf(out, "%*s%s\n", row->help == NULL ? 0 : program->column - len, "",
			row->help == NULL ? "" : row->help);
	}
	exit(status);
}

void
bench_refuse(const char *name, const char *found, const char *expected)
{
	fprintf(stderr, "%s: --%s is '%s', expected %s\n", program_invocation_short_name, name,
		found, expected);
	exit(2);
}

void
bench_refuse_value(const char *name, const char *found, const char *expected)
{
	(void)name;
	fprintf(stderr, "%s: found '%s', expected %s\n", program_invocation_short_name, found,
		expected);
	exit(2);
}
