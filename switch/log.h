/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log: lines on standard error, below a level nothing. Never called by workers.
 */
#ifndef FANIN_SWITCH_LOG_H
#define FANIN_SWITCH_LOG_H

#include "switch/config.h"

/* Sets the level, and routes the messages of libbpf and libxdp here as debug lines. */
void log_init(enum config_log_level level);

void log_line(enum config_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(CONFIG_LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(CONFIG_LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(CONFIG_LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(CONFIG_LOG_DEBUG, __VA_ARGS__)

#endif
