/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin-perf's usage errors. See perf.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf.h"

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
