/* SPDX-License-Identifier: BSD-3-Clause */
/* See virtual.h. */
#include "lab/bench/virtual.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

/* True after a member or an element. */
static bool comma;

void
virtual_die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
	exit(1);
}

void
virtual_eal(unsigned int megabytes)
{
	char line[160];
	char *argv[16] = { NULL };
	int argc = 0;

	snprintf(
		line, sizeof(line),
		"%s --no-huge --no-shconf --no-pci --no-telemetry -m %u --lcores 0@(0-1) --log-level=error",
		program_invocation_short_name, megabytes);
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		virtual_die("DPDK", "it does not start");
}

void
json_open(const char *beginning)
{
	json_add("%s", beginning);
	comma = false;
}

void
json_close(const char *end)
{
	fputs(end, stdout);
	comma = true;
}

void
json_add(const char *format, ...)
{
	va_list args;

	if (comma)
		fputs(", ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	comma = true;
}

void
json_seconds(const char *name, const uint64_t *times_ns, uint32_t n)
{
	json_add("\"%s\": [", name);
	comma = false;
	for (uint32_t i = 0; i < n; i++)
		json_add("%.9f", (double)times_ns[i] / 1e9);
	json_close("]");
}
