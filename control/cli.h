/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's options in one table, from which the arguments of getopt_long() and the output of
 * --help are made. Main thread.
 */
#ifndef FANIN_CONTROL_CLI_H
#define FANIN_CONTROL_CLI_H

#include <getopt.h>
#include <stdio.h>

/* Maximum number of options of a command, including those that all commands share. */
#define CLI_MAX_OPTIONS 64

/* A table ends with zeros. */
struct cli_option {
	const char *name;     /* after -- */
	const char *argument; /* the argument's name in the help; in brackets if optional; NULL: the
				 option takes none */
	int code; /* result of getopt_long(), not 0 or '?'; below 128 also the option's letter */
	const char *help; /* may have several lines; long lines are wrapped when printed */
};

/* Arguments of getopt_long(), made from a table. */
struct cli {
	struct option long_options[CLI_MAX_OPTIONS + 1];
	char letters[3 * CLI_MAX_OPTIONS + 2];
};

/*
 * Prepares getopt_long(argc, argv, cli->letters, cli->long_options, ...).
 *
 * options, others: CLI_MAX_OPTIONS at most in both tables together; others may be NULL. If both
 * have an option of the same name, the one in `options` is used. stop: the first operand ends the
 * options.
 */
void cli_prepare(struct cli *cli, const struct cli_option *options, const struct cli_option *others,
		 int stop);

/* Prints a line or more for each option. */
void cli_print_options(FILE *out, const struct cli_option *options);

#endif
