/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to users: the text of the last error, kept by a context or a communicator, and
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
	char text[FANIN_TEXT_LEN];  /* "" if there was no error */
	struct fanin_ranks missing; /* ranks that the error is about */
};

/*
 * Records an error.
 *
 * status: the negative enum fanin_status that the caller wants to return. Returns it.
 */
int fanin_error_set(struct fanin_error *error, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void fanin_error_clear(struct fanin_error *error);

/*
 * Returns FANIN_ERR_PERMISSION or FANIN_ERR_NO_MEMORY for an errno that means so, otherwise
 * `status`. errnum: positive.
 */
int fanin_status_from_errno(int errnum, int status);

/* Passes one line to the user's callback; a trailing newline is cut off. */
void fanin_log_line(const struct fanin_log *log, enum fanin_log_level level, const char *format,
		    ...) __attribute__((format(printf, 3, 4)));
void fanin_log_va(const struct fanin_log *log, enum fanin_log_level level, const char *format,
		  va_list args) __attribute__((format(printf, 3, 0)));

/*
 * Writes a set of ranks for messages: "rank 3" or "ranks 1, 2, 5". If the text is too short for
 * this, "ranks 1, 2, 64-127", and if it is too short for this as well, "ranks 0, 2, 4 and 509
 * more".
 *
 * text: receives a terminated string of at most text_len bytes, 64 at least. Returns text.
 */
const char *fanin_format_ranks(const struct fanin_ranks *ranks, char *text, size_t text_len);

/* The state of ranks that are waited for. */
enum fanin_ranks_are {
	FANIN_RANKS_LATE,
	FANIN_RANKS_SILENT, /* they do not answer */
	FANIN_RANKS_ENDED,
	FANIN_RANKS_GONE, /* silent or ended */
};

/*
 * Writes which ranks are waited for, and what is known of them: "ranks 2, 5 (of 8), which do not
 * answer"; "ranks 2, 5 (of 8), of which rank 2 has ended" if it is known of some only; or "rank 2
 * (of 8)".
 *
 * missing: not empty. those: the ones of them that `are` is true of. text: receives a terminated
 * string of at most FANIN_ABSENCE_LEN bytes. Returns text.
 */
#define FANIN_ABSENCE_LEN 320
const char *fanin_format_absence(const struct fanin_ranks *missing, uint16_t size,
				 const struct fanin_ranks *those, enum fanin_ranks_are are,
				 char *text);

/*
 * Writes the ranks of a set in ascending order, as many as there is room for. n: room in `ranks`.
 * Returns how many ranks the set has.
 */
size_t fanin_list_ranks(const struct fanin_ranks *set, uint16_t *ranks, size_t n);

#endif
