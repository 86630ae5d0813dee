/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's options and the fields that they fill, in one table: names, kinds, bounds and help of
 * each. One thread. A program with letters or subcommands uses cli.h itself.
 */
#ifndef FANIN_CONTROL_CLI_FIELDS_H
#define FANIN_CONTROL_CLI_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/cli.h"

enum cli_kind {
	CLI_SET,     /* a bool, without an argument: true */
	CLI_CLEAR,   /* a bool, without an argument: false */
	CLI_TEXT,    /* a const char *, which is in argv */
	CLI_INTEGER, /* an unsigned integer of the field's size */
	CLI_REAL,    /* a double from low to high */
	CLI_SHARE,   /* a double from 0 to 1 */
	CLI_PART,    /* a double above 0 and up to 1 */
	CLI_CHOICE,  /* the index of a name, of the field's size; entries may be NULL */
	CLI_FIND,    /* the value that a function finds for the text, of the field's size */
	CLI_TAKE,    /* handled by a function */
	CLI_HELP,
};

/* A row; a table ends with zeros. */
struct cli_field {
	const char *name;     /* after -- */
	const char *argument; /* the argument's name in the help; NULL: the option takes none */
	const char *help;     /* if the program prints its help from the table */
	enum cli_kind kind;
	size_t offset; /* of the field */
	size_t size;
	uint64_t least; /* this and the next two: of integers */
	uint64_t most;
	uint64_t unit; /* factor of what is stored; 0: 1 */
	double low;    /* this and the next two: of CLI_REAL */
	double high;
	double divisor;           /* of what is stored; 0: 1 */
	const char *const *names; /* of choices */
	size_t n_names;
	int (*find)(const char *text);              /* negative: there is none */
	void (*take)(void *fields, char *argument); /* argument: in argv, NULL if there is none */
	/*
	 * The words behind "expected" in the error about a wrong argument. NULL: the bounds; for a
	 * choice, wrong usage.
	 */
	const char *expected;
};

/* Members of a row for a field, and for the kinds of fields. */
#define CLI_FIELD(type, member)                                                                    \
	.offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)
#define CLI_FLAG(type, member) .kind = CLI_SET, CLI_FIELD(type, member)
#define CLI_NUMBER(type, member, low, high)                                                        \
	.kind = CLI_INTEGER, CLI_FIELD(type, member), .least = (low), .most = (high)
#define CLI_DOUBLE(type, member, least, most)                                                      \
	.kind = CLI_REAL, CLI_FIELD(type, member), .low = (least), .high = (most)
#define CLI_NAMES(array) .names = (array), .n_names = sizeof(array) / sizeof((array)[0])

struct cli_program {
	const struct cli_field *fields; /* CLI_MAX_OPTIONS at most */
	const char *about;              /* for usage(): beginning of the help */
	int column;                     /* for usage(): column of the options' texts */
	int base;                       /* of numbers; 0: as in C */
	const char *number;             /* prefix of the bounds in errors about numbers */
	/*
	 * Ends the program. status: 0 for --help, else 2, after getopt_long() has printed the
	 * error.
	 */
	void (*usage)(const struct cli_program *program, int status);
	/* Ends the program with an error about a wrong argument. name: of the option. */
	void (*refuse)(const char *name, const char *found, const char *expected);
};

/* Which options were given. */
struct cli_given {
	const struct cli_field *fields;
	bool is[CLI_MAX_OPTIONS];
};

/*
 * Takes all options, in their order. fields: the struct that they fill, with its defaults. given:
 * filled. Returns the position of the first operand, argc if there is none.
 */
int cli_fields_parse(const struct cli_program *program, void *fields, int argc, char **argv,
		     struct cli_given *given);

/* True if the option of this name, which must be in the table, was given. */
bool cli_given(const struct cli_given *given, const char *name);

/*
 * Reads a number from least to most. Returns false if the text is no such number. base: as in
 * cli_program.
 */
bool cli_number(const char *text, int base, uint64_t least, uint64_t most, uint64_t *value);

/*
 * For cli_program.usage: prints program->about and the options like cli_print_options, or how to
 * list them.
 */
void __attribute__((noreturn)) cli_usage(const struct cli_program *program, int status);

#endif
