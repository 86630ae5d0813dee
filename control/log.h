/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's log: lines on standard error, filtered by level. One thread; never called by a
 * switch's workers.
 */
#ifndef FANIN_CONTROL_LOG_H
#define FANIN_CONTROL_LOG_H

#include <stdarg.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

/* program: precedes each line; borrowed forever. */
void log_init(const char *program, enum log_level level);

/* Returns the level of a name, "error" to "debug"; -1 if there is none. */
int log_level_find(const char *name);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs a line with a prefix before the message; a newline at the end is removed. */
void log_line_va(enum log_level level, const char *prefix, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
