/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts of errors and diagnostics, and the phrases for status codes. The code that finds an error
 * writes its text; callers only pass the status on.
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
	error->missing = (struct fanin_ranks){ 0 };
	return status;
}

void
fanin_error_clear(struct fanin_error *error)
{
	error->text[0] = '\0';
	error->missing = (struct fanin_ranks){ 0 };
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
fanin_log_va(const struct fanin_log *log, enum fanin_log_level level, const char *format,
	     va_list args)
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

/* Room for " and 4096 more". */
#define MORE_LEN 16

/* Returns the last of a run of consecutive ranks in a set. first: in the set. */
static unsigned int
end_of_run(const struct fanin_ranks *ranks, unsigned int first)
{
	while (fanin_ranks_has(ranks, first + 1))
		first++;
	return first;
}

/*
 * Writes a list of ranks, with consecutive ones as a range if asked for. If the text is too short
 * for all of them, the list ends with how many more there are. Returns how many ranks were left
 * out.
 */
static unsigned int
list_write(const struct fanin_ranks *ranks, bool as_ranges, char *text, size_t text_len)
{
	unsigned int left = fanin_ranks_count(ranks);
	size_t used = (size_t)snprintf(text, text_len, left == 1 ? "rank" : "ranks");
	const char *separator = " ";
	unsigned int first;

	FANIN_RANKS_EACH(first, ranks)
	{
		const unsigned int last = as_ranges ? end_of_run(ranks, first) : first;
		char entry[32];
		size_t len;

		len = (size_t)snprintf(entry, sizeof(entry), last > first ? "%s%u-%u" : "%s%u",
				       separator, first, last);
		if (used + len + (left > last - first + 1 ? MORE_LEN : 1) > text_len)
			break;
		memcpy(text + used, entry, len + 1);
		used += len;
		left -= last - first + 1;
		separator = ", ";
		first = last;
	}
	if (left != 0)
		snprintf(text + used, text_len - used, " and %u more", left);
	return left;
}

const char *
fanin_format_ranks(const struct fanin_ranks *ranks, char *text, size_t text_len)
{
	if (list_write(ranks, false, text, text_len) != 0)
		list_write(ranks, true, text, text_len);
	return text;
}

const char *
fanin_format_absence(const struct fanin_ranks *missing, uint16_t size,
		     const struct fanin_ranks *those, enum fanin_ranks_are are, char *text)
{
	/* For one rank, and for several. */
	static const char *const words[][2] = {
		[FANIN_RANKS_LATE] = { "is late", "are late" },
		[FANIN_RANKS_SILENT] = { "does not answer", "do not answer" },
		[FANIN_RANKS_ENDED] = { "has ended", "have ended" },
		[FANIN_RANKS_GONE] = { "has ended or does not answer",
				       "have ended or do not answer" },
	};
	const char *said = words[are][fanin_ranks_count(those) > 1];
	char all[128];
	char some[128];

	fanin_format_ranks(missing, all, sizeof(all));
	fanin_format_ranks(those, some, sizeof(some));
	if (fanin_ranks_is_empty(those))
		snprintf(text, FANIN_ABSENCE_LEN, "%s (of %u)", all, size);
	else if (fanin_ranks_equal(those, missing))
		snprintf(text, FANIN_ABSENCE_LEN, "%s (of %u), which %s", all, size, said);
	else
		snprintf(text, FANIN_ABSENCE_LEN, "%s (of %u), of which %s %s", all, size, some,
			 said);
	return text;
}

size_t
fanin_list_ranks(const struct fanin_ranks *set, uint16_t *ranks, size_t n)
{
	size_t found = 0;
	unsigned int rank;

	FANIN_RANKS_EACH(rank, set)
	{
		if (found < n)
			ranks[found] = (uint16_t)rank;
		found++;
	}
	return found;
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
		return "the collective was refused";
	case FANIN_ERR_SYSTEM:
		return "a system call failed";
	case FANIN_ERR_PERMISSION:
		return "permission denied";
	case FANIN_ERR_INTERRUPTED:
		return "interrupted";
	case FANIN_ERR_MANAGER:
		return "the network manager can't be reached or makes no sense";
	case FANIN_ERR_CAPACITY:
		return "the result has more values than there is room for";
	case FANIN_ERR_VERSION:
		return "libfanin " FANIN_VERSION " is older than its caller";
	default:
		return "unknown status";
	}
}
