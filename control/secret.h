/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets of control connections: tokens in files, keys of jobs. Any thread. */
#ifndef FANIN_CONTROL_SECRET_H
#define FANIN_CONTROL_SECRET_H

#include <stdbool.h>

#define SECRET_MAX 128 /* characters of a token */
#define SECRET_SIZE (SECRET_MAX + 1)
#define SECRET_ERROR_LEN 512

/*
 * Reads a token: the first line of a file that others can't read.
 *
 * secret: SECRET_SIZE bytes. error: SECRET_ERROR_LEN bytes. Returns 0, or -errno with the error
 * filled.
 */
int secret_load(const char *path, char *secret, char *error);

/* Compares in constant time. Both at most SECRET_MAX characters; longer ones differ. */
bool secret_equal(const char *a, const char *b);

#endif
