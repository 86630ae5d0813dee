/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lines of benchmarks: the common parts of their tables (control/cli_fields.h). */
#ifndef FANIN_TOOLS_MEASURE_OPTIONS_H
#define FANIN_TOOLS_MEASURE_OPTIONS_H

#include "control/cli_fields.h"

/* Members of cli_program for a benchmark whose messages name the option. */
#define BENCH_PROGRAM                                                                              \
	.base = 10, .number = "a number from ", .usage = bench_usage, .refuse = bench_refuse

/* Members for a benchmark whose messages do not name the option. */
#define VIRTUAL_PROGRAM                                                                            \
	.base = 10, .number = "a number from ", .usage = bench_usage, .refuse = bench_refuse_value

/* Prints program->about, and the options if program->column is not 0. Exits. */
void __attribute__((noreturn)) bench_usage(const struct cli_program *program, int status);

/* Exits with status 2 after an error about a wrong argument, with the option's name. */
void __attribute__((noreturn))
bench_refuse(const char *name, const char *found, const char *expected);

/* Exits likewise, without the option's name in the error. */
void __attribute__((noreturn))
bench_refuse_value(const char *name, const char *found, const char *expected);

/*
 * For CLI_FIND: return the code of a name, or -1. bench_isa_find knows this CPU's instruction sets
 * only.
 */
int bench_isa_find(const char *name);
int bench_dtype_find(const char *name);
int bench_op_find(const char *name);

/* Members of a row for an enum fanin_isa. */
#define BENCH_ISA(type, member)                                                                    \
	.kind = CLI_FIND, CLI_FIELD(type, member), .find = bench_isa_find,                         \
	.expected = "one that this CPU has",                                                       \
	.help = "portable, avx2, avx512 or avx512fp16 (default: the best of this CPU)"

#endif
