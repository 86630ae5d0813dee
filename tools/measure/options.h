/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lines of benchmarks: what their tables (control/cli_fields.h) have in common. */
#ifndef FANIN_TOOLS_MEASURE_OPTIONS_H
#define FANIN_TOOLS_MEASURE_OPTIONS_H

#include "control/cli_fields.h"

/* Members of cli_program of a benchmark whose messages name the option. */
#define BENCH_PROGRAM                                                                              \
	.base = 10, .number = "a number from ", .usage = bench_usage, .refuse = bench_refuse

/* The same of one whose messages don't. */
#define VIRTUAL_PROGRAM                                                                            \
	.base = 10, .number = "a number from ", .usage = bench_usage, .refuse = bench_refuse_value

/* Prints program->about, and behind it the options if program->column is not 0. Exits. */
void __attribute__((noreturn)) bench_usage(const struct cli_program *program, int status);

/* Exits with status 2 and words about a wrong argument, with the option's name. */
void __attribute__((noreturn))
bench_refuse(const char *name, const char *found, const char *expected);

/* The same without the name. */
void __attribute__((noreturn))
bench_refuse_value(const char *name, const char *found, const char *expected);

/* For CLI_FIND: what has the name, or -1; of instruction sets, those of this CPU. */
int bench_isa_find(const char *name);
int bench_dtype_find(const char *name);
int bench_op_find(const char *name);

/* Members of a row for an enum fanin_isa. */
#define BENCH_ISA(type, member)                                                                    \
	.kind = CLI_FIND, CLI_FIELD(type, member), .find = bench_isa_find,                         \
	.expected = "one that this CPU has",                                                       \
	.help = "portable, avx2, avx512 or avx512fp16 (default: the best of this CPU)"

#endif
