/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_values.h. */
#include "tools/perf_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf.h"
#include "lab/reference/perf_custom.h"

uint64_t
parse_number(const char *name, const char *text, uint64_t least, uint64_t most)
{
	uint64_t value;

	if (!cli_number(text, 0, least, most, &value))
		usage_error("--%s is '%s', expected %" PRIu64 " to %" PRIu64, name, text, least,
			    most);
	return value;
}

uint64_t
parse_bytes(const char *text)
{
	static const struct {
		const char *suffix;
		uint64_t factor;
	} units[] = {
		{ "", 1 },          { "B", 1 },          { "k", 1000 },
		{ "kB", 1000 },     { "KB", 1000 },      { "M", 1000000 },
		{ "MB", 1000000 },  { "G", 1000000000 }, { "GB", 1000000000 },
		{ "K", 1024 },      { "KiB", 1024 },     { "MiB", 1 << 20 },
		{ "GiB", 1 << 30 },
	};
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	for (size_t i = 0;
	     errno == 0 && end != text && text[0] != '-' && i < sizeof(units) / sizeof(units[0]);
	     i++) {
		if (strcmp(end, units[i].suffix) == 0 && value <= INT64_MAX / units[i].factor)
			return value * units[i].factor;
	}
	usage_error("--bytes is '%s', expected a size such as 4096, 64KiB or 1GiB", text);
}

/* Appends a name to a list in text. */
static void
list_append(char *text, size_t len, const char *name)
{
	size_t used = strlen(text);

	snprintf(text + used, len - used, "%s%s", used == 0 ? "" : ", ", name);
}

enum perf_collective_kind
parse_collective(const char *text)
{
	char names[256] = "";

	for (int kind = 0; kind < PERF_COLLECTIVES; kind++) {
		const char *name = perf_collective_name((enum perf_collective_kind)kind);

		if (strcmp(text, name) == 0)
			return (enum perf_collective_kind)kind;
		list_append(names, sizeof(names), name);
	}
	usage_error("--collective is '%s', expected one of: %s", text, names);
}

bool
parse_pattern(const char *text, enum perf_pattern *pattern)
{
	for (int i = 0; i < PERF_PATTERNS; i++) {
		if (strcmp(text, perf_pattern_name((enum perf_pattern)i)) != 0)
			continue;
		*pattern = (enum perf_pattern)i;
		return true;
	}
	return false;
}

void
load_pattern(struct perf_places *places, const char *path, uint16_t n_ranks, uint64_t n,
	     bool n_is_given)
{
	char error[PERF_PLACES_ERROR_LEN];
	char names[64] = "";
	const int ret = perf_places_load(places, path, n_ranks, n, n_is_given, error);

	if (ret == 0)
		return;
	for (int i = 0; i < PERF_PATTERNS; i++)
		list_append(names, sizeof(names), perf_pattern_name((enum perf_pattern)i));
	if (ret == -ENOENT)
		usage_error("--pattern is '%s', expected one of: %s, or a file that is there", path,
			    names);
	usage_error("--pattern %s", error);
}

enum fanin_dtype
parse_dtype(const char *text)
{
	char names[256] = "";

	for (int code = FANIN_I8; code <= FANIN_F64; code++) {
		const char *name = fanin_dtype_name_of((enum fanin_dtype)code);

		if (strcmp(text, name) == 0)
			return (enum fanin_dtype)code;
		list_append(names, sizeof(names), name);
	}
	for (size_t i = 0; perf_custom_at(i) != NULL; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s with --op %s", perf_custom_at(i)->dtype_name,
			 perf_custom_at(i)->op_name);
		list_append(names, sizeof(names), name);
	}
	usage_error("--dtype is '%s', expected one of: %s", text, names);
}

enum fanin_op
parse_op(const char *text)
{
	char names[256] = "";

	for (int code = FANIN_SUM; code <= FANIN_AVG; code++) {
		const char *name = fanin_op_name_of((enum fanin_op)code);

		if (strcmp(text, name) == 0)
			return (enum fanin_op)code;
		list_append(names, sizeof(names), name);
	}
	usage_error("--op is '%s', expected one of: %s", text, names);
}

void
check_operation(enum fanin_dtype dtype, enum fanin_op op)
{
	char names[256] = "";

	if (fanin_supports(dtype, op))
		return;
	for (int code = FANIN_SUM; code <= FANIN_AVG; code++) {
		if (fanin_supports(dtype, (enum fanin_op)code))
			list_append(names, sizeof(names), fanin_op_name_of((enum fanin_op)code));
	}
	usage_error("--op is '%s', which is not defined on %s; expected one of: %s",
		    fanin_op_name_of(op), fanin_dtype_name_of(dtype), names);
}
