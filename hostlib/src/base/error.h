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
#include "wire/ranks.h"

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
	char text[FANIN_TEXT_LEN];  /* "" if nothing went wrong */
	struct fanin_ranks missing; /* ranks that it is about */
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
 * "rank 3" or "ranks 1, 2, 5": a set for messages. Where there is no room for that, "ranks 1, 2, 64-127", and where there is none for that
 * either, "ranks 0, 2, 4 and 509 more".
 *
 * text: receives a terminated string of at most text_len bytes, 64 at least. Returns text.
 */
const char *fanin_format_ranks(const struct fanin_ranks *ranks, char *text, size_t text_len);

/*
 * Fills in the ranks of a set in ascending order, as many as there is room for. n: of that room. Returns how many there are.
 */
size_t fanin_list_ranks(const struct fanin_ranks *set, uint16_t *ranks, size_t n);

#endif
