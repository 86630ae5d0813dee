/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

#include "switch/log.h"

static enum config_log_level current_level = CONFIG_LOG_INFO;

static const char *const level_names[] = { "error", "warning", "info", "debug" };

static void
log_va(enum config_log_level level, const char *prefix, const char *format, va_list args)
{
	char line[1024];

	if (level > current_level)
		return;
	vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	fprintf(stderr, "fanin-switch: %s: %s%s\n", level_names[level], prefix, line);
}

static int
print_libbpf(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	log_va(CONFIG_LOG_DEBUG, "libbpf: ", format, args);
	return 0;
}

static int
print_libxdp(enum libxdp_print_level level, const char *format, va_list args)
{
	(void)level;
	log_va(CONFIG_LOG_DEBUG, "libxdp: ", format, args);
	return 0;
}

void
log_init(enum config_log_level level)
{
	current_level = level;
	libbpf_set_print(print_libbpf);
	libxdp_set_print(print_libxdp);
}

void
log_line(enum config_log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_va(level, "", format, args);
	va_end(args);
}
