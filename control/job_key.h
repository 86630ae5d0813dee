/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The key of a job, as users pass it to programs. All users of a machine can see a command line, so
 * a key comes from a file or from the environment; if it is on the command line all the same, it is
 * overwritten there. Any thread.
 */
#ifndef FANIN_CONTROL_JOB_KEY_H
#define FANIN_CONTROL_JOB_KEY_H

#include <stdint.h>

#define JOB_KEY_ERROR_LEN 512
#define JOB_KEY_VARIABLE "FANIN_KEY" /* of the environment */

/* Reads "0x" and 1 to 16 hexadecimal digits. Returns 0 and sets *key, or -EINVAL. */
int job_key_parse(const char *text, uint64_t *key);

/*
 * Reads a key from the first line of a file that others can't read. path: "-" for standard input.
 *
 * error: JOB_KEY_ERROR_LEN bytes. Returns 0 and sets *key, or -errno with the error filled.
 */
int job_key_load(const char *path, uint64_t *key, char *error);

/*
 * Reads a key from the environment. Returns 1 and sets *key, 0 if there is none, or -EINVAL with
 * the error filled, JOB_KEY_ERROR_LEN bytes.
 */
int job_key_from_environment(uint64_t *key, char *error);

/* Overwrites an argument, or the end of one, in the process's command line. */
void job_key_hide(char *argument);

#endif
