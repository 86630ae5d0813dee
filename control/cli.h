/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's options in one table: what getopt_long() takes and what --help prints are made from it. Main thread.
 */
#ifndef FANIN_CONTROL_CLI_H
#define FANIN_CONTROL_CLI_H

#include <getopt.h>
#include <stdio.h>

/* Options of a program, with those that all its commands share. */
#define CLI_MOST_OPTIONS 64

/* A table ends with zeros. */
struct cli_option {
	const char *name; /* after -- */
	const char *argument; /* what it is called in the help; in brackets if it may be left out; NULL: the option takes none */
	int code; /* what getopt_long() returns, not 0 nor '?'; below 128 also the option's letter */
	const char *help; /* may have several lines; longer ones are broken where they are printed */
};

/* The arguments of getopt_long() that a table makes. */
struct cli {
	struct option long_options[CLI_MOST_OPTIONS + 1];
	char letters[3 * CLI_MOST_OPTIONS + 2];
};

/*
 * Prepares getopt_long(argc, argv, cli->letters, cli->long_options, ...).
 *
 * options: CLI_MOST_OPTIONS at most, together with others. others: more of them, or NULL; of two with one name, the first counts.
 * stop: the first word that is no option ends the options.
 */
void cli_prepare(struct cli *cli, const struct cli_option *options, const struct cli_option *others,
		 int stop);

/* The name of the option with this code, which the table has. */
const char *cli_option_name(const struct cli_option *options, int code);

/* Prints a line or more for each option. */
void cli_print_options(FILE *out, const struct cli_option *options);

#endif
