/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin-perf's usage errors and its help. See perf.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf.h"

static const char usage_text[] =
	"Usage: fanin-perf --switch IP --job N --rank R --size P --key-file FILE [option...]\n"
	"       fanin-perf --job-name NAME --size P [--manager ADDRESS] [option...]\n"
	"Runs collectives as rank R of P of a job on a Fanin switch and measures them. The job\n"
	"was created on the switch, or is found by its name at the network manager.\n"
	"\n";

void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...)
{
	va_list args;

	fputs("fanin-perf: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\nfanin-perf --help lists the options.\n", stderr);
	exit(2);
}

void __attribute__((noreturn)) usage_print(const struct cli_program *program, int status)
{
	if (status == 0) {
		fputs(usage_text, stdout);
		cli_fields_print(stdout, program->fields);
	} else {
		fputs("fanin-perf --help lists the options.\n", stderr);
	}
	exit(status);
}
