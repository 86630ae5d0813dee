/* SPDX-License-Identifier: BSD-3-Clause */
/* See job_key.h. */
#include "control/job_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DIGITS 16
#define DIGITS "0123456789abcdefABCDEF"

int
job_key_parse(const char *text, uint64_t *key)
{
	size_t len = strlen(text);

	if (len < 3 || len > 2 + MAX_DIGITS || text[0] != '0' ||
	    (text[1] != 'x' && text[1] != 'X') || strspn(text + 2, DIGITS) != len - 2)
		return -EINVAL;
	*key = strtoull(text + 2, NULL, 16);
	return 0;
}

/* name: of the file, for the error. */
static int
read_key(FILE *file, const char *name, uint64_t *key, char *error)
{
	char line[2 + MAX_DIGITS + 3] = "";
	struct stat status;
	int ret;

	if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode) &&
	    (status.st_mode & S_IRWXO) != 0) {
		snprintf(error, JOB_KEY_ERROR_LEN,
			 "%s: found the mode %04o, expected no access for others: chmod o= %s",
			 name, status.st_mode & 07777u, name);
		return -EACCES;
	}
	if (fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	ret = job_key_parse(line, key);
	explicit_bzero(line, sizeof(line));
	if (ret != 0)
		snprintf(error, JOB_KEY_ERROR_LEN,
			 "%s: expected a line with 0x and 1 to %d hexadecimal digits", name,
			 MAX_DIGITS);
	return ret;
}

int
job_key_load(const char *path, uint64_t *key, char *error)
{
	FILE *file;
	int ret;

	if (strcmp(path, "-") == 0)
		return read_key(stdin, "standard input", key, error);
	file = fopen(path, "re");
	if (file == NULL) {
		ret = -errno;
		snprintf(error, JOB_KEY_ERROR_LEN, "%s: cannot open: %s", path, strerror(-ret));
		return ret;
	}
	ret = read_key(file, path, key, error);
	fclose(file);
	return ret;
}

int
job_key_from_environment(uint64_t *key, char *error)
{
	const char *text = getenv(JOB_KEY_VARIABLE);

	if (text == NULL)
		return 0;
	if (job_key_parse(text, key) == 0)
		return 1;
	snprintf(error, JOB_KEY_ERROR_LEN,
		 JOB_KEY_VARIABLE ": expected 0x and 1 to %d hexadecimal digits", MAX_DIGITS);
	return -EINVAL;
}

void
job_key_hide(char *argument)
{
	/* A compiler may remove a memset, since nothing here reads the text again. */
	for (volatile char *at = argument; *at != '\0'; at++)
		*at = 'x';
}
