/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings of docs/mpi.md. */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MIN_BYTES 1024
#define DEFAULT_MAX_JOBS 8
#define DEFAULT_TIMEOUT_MS 5000

struct settings mpi_settings;

/* An invalid file is reported by the code that joins the first job. */
const char *
setting_of_fanin(const char *name, char text[SETTING_LEN])
{
	return fanin_setting(name, text, SETTING_LEN) == FANIN_OK && text[0] != '\0' ? text : NULL;
}

/* Reads a number of the settings. An invalid value is reported, and replaced by the default. */
static uint64_t
setting(const char *name, uint64_t least, uint64_t most, uint64_t value)
{
	char buffer[SETTING_LEN];
	const char *text = setting_text(name, buffer);
	unsigned long long found;
	char *end;

	if (text == NULL)
		return value;
	errno = 0;
	found = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || found < least ||
	    found > most) {
		fprintf(stderr,
			"fanin-mpi: %s: found '%s', expected a number from %llu to %llu; it is %llu\n",
			name, text, (unsigned long long)least, (unsigned long long)most,
			(unsigned long long)value);
		return value;
	}
	return found;
}

void
settings_read(void)
{
	char buffer[SETTING_LEN];
	const char *report = setting_text("FANIN_MPI_REPORT", buffer);

	mpi_settings = (struct settings){
		.enabled = setting("FANIN_MPI", 0, 1, 1) != 0,
		.nonblocking = setting("FANIN_MPI_NONBLOCKING", 0, 1, 1) != 0,
		.job_at_init = setting("FANIN_MPI_JOB_AT_INIT", 0, 1, 0) != 0,
		.min_bytes = setting("FANIN_MPI_MIN_BYTES", 1, UINT64_MAX, DEFAULT_MIN_BYTES),
		.max_jobs = (uint32_t)setting("FANIN_MPI_MAX_JOBS", 0, 4096, DEFAULT_MAX_JOBS),
		.timeout_ms = (uint32_t)setting("FANIN_MPI_TIMEOUT_MS", 100, 3600000,
						DEFAULT_TIMEOUT_MS),
		.report = report != NULL && strcmp(report, "0") != 0,
		.report_json = report != NULL && strcmp(report, "json") == 0,
	};
}
