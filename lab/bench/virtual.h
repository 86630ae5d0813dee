/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the benchmarks in virtual time: starting DPDK, ending with an error, and printing a
 * JSON object. Main thread.
 */
#ifndef FANIN_LAB_BENCH_VIRTUAL_H
#define FANIN_LAB_BENCH_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

#define MS_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

/* Prints what went wrong, and exits with status 1. */
void __attribute__((noreturn)) virtual_die(const char *what, const char *why);

/* Starts DPDK with this much memory, without hugepages. */
void virtual_eal(unsigned int megabytes);

/* Print the beginning of an object or array, such as "\"paths\": [", and its end. */
void json_open(const char *beginning);
void json_close(const char *end);

/* Prints members or elements, as printf does, after a comma if others precede them. */
void json_add(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints an array of times in seconds. */
void json_seconds(const char *name, const uint64_t *times_ns, uint32_t n);

static inline const char *
json_bool(bool value)
{
	return value ? "true" : "false";
}

#endif
