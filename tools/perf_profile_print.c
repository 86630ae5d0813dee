/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the result of fanin-perf --profile. See perf_profile.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/perf.h"
#include "tools/perf_profile.h"

struct row {
	const char *name;
	const char *text;
	size_t offset;
};

#define ROW(field, words) { #field, words, offsetof(struct profile_values, field) },
static const struct row rows[] = { PROFILE_VALUES(ROW) };
#undef ROW

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static double
value_of(const struct profile *profile, const struct row *row)
{
	double value;

	memcpy(&value, (const char *)&profile->values + row->offset, sizeof(value));
	return value;
}

static bool
is_seconds(const struct row *row)
{
	static const char suffix[] = "_seconds";
	const size_t len = strlen(row->name);

	return len > strlen(suffix) && strcmp(row->name + len - strlen(suffix), suffix) == 0;
}

/* Prints all values, each divided by divisor; null if that is 0. */
static void
json_values(const struct profile *profile, const char *name, double divisor)
{
	if (divisor == 0) {
		printf("\"%s\": null, ", name);
		return;
	}
	printf("\"%s\": {", name);
	for (size_t i = 0; i < N_ROWS; i++)
		printf("%s\"%s\": %.12g", i == 0 ? "" : ", ", rows[i].name,
		       value_of(profile, &rows[i]) / divisor);
	printf("}, ");
}

void
profile_json(const struct profile *profile, const struct fanin_report *report)
{
	const struct profile_shares shares = profile_shares(profile);
	struct profile_verdict verdicts[PROFILE_MAX_VERDICTS];
	const size_t n = profile_judge(profile, report, verdicts);

	printf("\"profile\": {\"collectives\": %" PRIu64 ", \"mib\": %.9g, \"seconds\": %.9f, "
	       "\"shares\": {\"computing\": %.6f, \"run_queue\": ",
	       profile->collectives, profile->mib, profile->seconds, shares.computing);
	if (profile->knows_run_queue)
		printf("%.6f", shares.run_queue);
	else
		printf("null");
	printf(", \"asleep\": %.6f}, ", shares.asleep);
	json_values(profile, "totals", 1);
	json_values(profile, "per_mib", profile->mib);
	printf("\"verdicts\": [");
	for (size_t i = 0; i < n; i++) {
		printf("%s{", i == 0 ? "" : ", ");
		perf_json_string("text", verdicts[i].text);
		printf("\"name\": \"%s\"}", verdicts[i].name);
	}
	printf("]}, ");
}

/* Prints times as milliseconds. */
static void
number_print(const struct row *row, double value)
{
	printf(is_seconds(row) ? " %14.3f" : " %14.1f", is_seconds(row) ? value * 1000 : value);
}

void
profile_print(const struct profile *profile, const struct fanin_report *report)
{
	const struct profile_shares shares = profile_shares(profile);
	struct profile_verdict verdicts[PROFILE_MAX_VERDICTS];
	const size_t n = profile_judge(profile, report, verdicts);

	printf("\n%" PRIu64 " collectives of %.2f MiB in %.3f s: computing %.0f %%, ",
	       profile->collectives,
	       profile->collectives == 0 ? 0 : profile->mib / (double)profile->collectives,
	       profile->seconds, shares.computing * 100);
	if (profile->knows_run_queue)
		printf("waiting for a core %.0f %%, ", shares.run_queue * 100);
	printf("asleep %.0f %%\n%-34s %14s %14s\n", shares.asleep * 100, "", "per MiB", "total");
	for (size_t i = 0; i < N_ROWS; i++) {
		printf("%-34s", rows[i].text);
		if (profile->mib == 0)
			printf(" %14s", "-");
		else
			number_print(&rows[i], value_of(profile, &rows[i]) / profile->mib);
		number_print(&rows[i], value_of(profile, &rows[i]));
		putchar('\n');
	}
	for (size_t i = 0; i < n; i++)
		printf("- %s\n", verdicts[i].text);
}
