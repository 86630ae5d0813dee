/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts of errors and diagnostics, and the phrases for status codes. Whoever finds an error writes its text; callers only
 * pass the status on.
 */
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int
fanin_error_set(struct fanin_error *error, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	error->missing = 0;
	return status;
}

void
fanin_error_clear(struct fanin_error *error)
{
	error->text[0] = '\0';
	error->missing = 0;
}

int
fanin_status_from_errno(int errnum, int status)
{
	switch (errnum) {
	case EPERM:
	case EACCES:
		return FANIN_ERR_PERMISSION;
	case ENOMEM:
		return FANIN_ERR_NO_MEMORY;
	default:
		return status;
	}
}

void
fanin_log_va(const struct fanin_log *log, enum fanin_log_level level, const char *format, va_list args)
{
	char line[FANIN_TEXT_LEN];
	size_t len;

	if (log->print == NULL)
		return;
	vsnprintf(line, sizeof(line), format, args);
	len = strlen(line);
	while (len > 0 && line[len - 1] == '\n')
		line[--len] = '\0';
	if (len > 0)
		log->print((int)level, line, log->arg);
}

void
fanin_log_line(const struct fanin_log *log, enum fanin_log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fanin_log_va(log, level, format, args);
	va_end(args);
}

const char *
fanin_format_ranks(uint64_t ranks, char *text, size_t text_len)
{
	const char *separator = " ";
	size_t used;

	used = (size_t)snprintf(text, text_len, __builtin_popcountll(ranks) == 1 ? "rank" : "ranks");
	while (ranks != 0 && used < text_len) {
		used += (size_t)snprintf(text + used, text_len - used, "%s%d", separator,
					 __builtin_ctzll(ranks));
		separator = ", ";
		ranks &= ranks - 1;
	}
	return text;
}

const char *
fanin_strerror(int status)
{
	switch (status) {
	case FANIN_OK:
		return "success";
	case FANIN_IN_PROGRESS:
		return "in progress";
	case FANIN_ERR_INVALID:
		return "invalid argument";
	case FANIN_ERR_NO_MEMORY:
		return "out of memory";
	case FANIN_ERR_TRANSPORT:
		return "the transport could not be opened or failed";
	case FANIN_ERR_NO_ROUTE:
		return "no route to the switch";
	case FANIN_ERR_JOIN_REFUSED:
		return "the switch refused this rank";
	case FANIN_ERR_JOIN_TIMEOUT:
		return "timeout while joining";
	case FANIN_ERR_UNSUPPORTED:
		return "operator or collective not supported";
	case FANIN_ERR_TIMEOUT:
		return "timeout";
	case FANIN_ERR_REFUSED:
		return "the switch refused a packet";
	case FANIN_ERR_SYSTEM:
		return "a system call failed";
	case FANIN_ERR_PERMISSION:
		return "permission denied";
	case FANIN_ERR_INTERRUPTED:
		return "interrupted";
	case FANIN_ERR_MANAGER:
		return "the network manager can't be reached or makes no sense";
	default:
		return "unknown status";
	}
}
