/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structs of callers that were compiled with another version of the public headers. Thread-safe.
 */
#ifndef FANIN_HOSTLIB_OPTIONS_H
#define FANIN_HOSTLIB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies an options struct of any version: fields that the caller's lacks are zero, and bytes that
 * this library doesn't know must be.
 *
 * copy: copy_len zeroed bytes. options: starts with its size_t sz. Returns false if it is invalid.
 */
bool fanin_options_copy(void *copy, size_t copy_len, const void *options);

/*
 * Fills a report struct of any version: the fields that the caller's has.
 *
 * report: starts with its size_t sz, which stays. full: len bytes. Returns false if sz is invalid.
 */
bool fanin_report_copy(void *report, const void *full, size_t len);

#endif
