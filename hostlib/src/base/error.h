/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's two ways to tell people something: the text of the last error, kept by a context or a communicator, and
 * diagnostic lines, given to the user's print callback. Belongs to one thread, as the context does.
 */
#ifndef FANIN_HOSTLIB_ERROR_H
#define FANIN_HOSTLIB_ERROR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "fanin/fanin.h"

#define FANIN_TEXT_LEN 384

enum fanin_log_level {
	FANIN_LOG_ERROR,
	FANIN_LOG_WARNING,
	FANIN_LOG_INFO,
	FANIN_LOG_DEBUG,
};

struct fanin_log {
	fanin_print_fn print; /* NULL: silent */
	void *arg;
};

struct fanin_error {
	char text[FANIN_TEXT_LEN]; /* "" if nothing went wrong */
	uint64_t missing;          /* ranks that it is about */
};

/*
 * Records what went wrong.
 *
 * status: the negative enum fanin_status that the caller wants to return. Returns it.
 */
int fanin_error_set(struct fanin_error *error, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void fanin_error_clear(struct fanin_error *error);

/* FANIN_ERR_PERMISSION or FANIN_ERR_NO_MEMORY for the errno that says so, otherwise `status`. errnum: positive. */
int fanin_status_from_errno(int errnum, int status);

/* One line for the user's callback; a trailing newline is cut. */
void fanin_log_line(const struct fanin_log *log, enum fanin_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void fanin_log_va(const struct fanin_log *log, enum fanin_log_level level, const char *format,
		  va_list args) __attribute__((format(printf, 3, 0)));

/*
 * "rank 3" or "ranks 1, 2, 5": the set bits of a bitmap, for messages.
 *
 * text: receives a terminated string of at most text_len bytes. Returns text.
 */
const char *fanin_format_ranks(uint64_t ranks, char *text, size_t text_len);

#endif
