/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. */
#include "control/log.h"

#include <stdio.h>
#include <string.h>

static const char *program_name = "fanin";
static enum log_level current_level = LOG_LEVEL_INFO;

static const char *const level_names[] = { "error", "warning", "info", "debug" };

void
log_init(const char *program, enum log_level level)
{
	program_name = program;
	current_level = level;
}

int
log_level_find(const char *name)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(level_names[i], name) == 0)
			return (int)i;
	}
	return -1;
}

void
log_line_va(enum log_level level, const char *prefix, const char *format, va_list args)
{
	char line[1024];

	if (level > current_level)
		return;
	vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	fprintf(stderr, "%s: %s: %s%s\n", program_name, level_names[level], prefix, line);
}

void
log_line(enum log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line_va(level, "", format, args);
	va_end(args);
}
