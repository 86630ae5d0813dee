/* SPDX-License-Identifier: BSD-3-Clause */
/* See secret.h. */
#include "control/secret.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/crypto.h>

static int
read_token(FILE *file, const char *path, char *secret, char *error)
{
	char line[SECRET_SIZE + 2] = "";
	struct stat status;
	size_t len;

	if (fstat(fileno(file), &status) != 0 || (status.st_mode & S_IRWXO) != 0) {
		snprintf(
			error, SECRET_ERROR_LEN,
			"token file %s: found the mode %04o, expected no access for others: chmod o= %s",
			path, status.st_mode & 07777u, path);
		return -EACCES;
	}
	if (fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	len = strcspn(line, "\r\n");
	line[len] = '\0';
	for (size_t i = 0; i < len; i++) {
		if (line[i] < '!' || line[i] > '~')
			len = 0;
	}
	if (len == 0 || len > SECRET_MAX) {
		snprintf(
			error, SECRET_ERROR_LEN,
			"token file %s: expected a line of 1 to %d printable characters without spaces",
			path, SECRET_MAX);
		return -EINVAL;
	}
	memcpy(secret, line, len + 1);
	OPENSSL_cleanse(line, sizeof(line));
	return 0;
}

int
secret_load(const char *path, char *secret, char *error)
{
	FILE *file = fopen(path, "re");
	int ret;

	if (file == NULL) {
		ret = -errno;
		snprintf(error, SECRET_ERROR_LEN, "token file %s: cannot open: %s", path,
			 strerror(errno));
		return ret;
	}
	ret = read_token(file, path, secret, error);
	fclose(file);
	return ret;
}

bool
secret_equal(const char *a, const char *b)
{
	char padded_a[SECRET_SIZE] = "";
	char padded_b[SECRET_SIZE] = "";
	size_t len_a = strnlen(a, SECRET_SIZE);
	size_t len_b = strnlen(b, SECRET_SIZE);

	memcpy(padded_a, a, len_a > SECRET_MAX ? SECRET_MAX : len_a);
	memcpy(padded_b, b, len_b > SECRET_MAX ? SECRET_MAX : len_b);
	/* The padded texts have equal lengths and are always compared completely. */
	return (CRYPTO_memcmp(padded_a, padded_b, sizeof(padded_a)) != 0) + (len_a != len_b) +
		       (len_a > SECRET_MAX) ==
	       0;
}
