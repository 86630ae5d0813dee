/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line of a daemon: --config, --check, --log-level, --core-dumps, --help and --version.
 * Main thread.
 */
#ifndef FANIN_CONTROL_OPTIONS_H
#define FANIN_CONTROL_OPTIONS_H

#include <stdbool.h>

/* Exit code for a wrong command line or configuration. */
#define OPTIONS_EXIT_USAGE 2

struct options {
	const char *config_path; /* borrowed from argv */
	bool check;              /* only check the configuration */
	int log_level;           /* enum log_level; -1: as configured */
};

/*
 * Parses the command line; prints errors and the help. Disables core dumps unless the command line
 * asks for them.
 *
 * program: the program's name. about: what it does, one line. config_page: the man page of its
 * configuration. closing: the last line of the help. libraries: versions of libraries that
 * --version also prints, those that the program runs and was built with; NULL: none. Returns -1 to
 * continue, else the exit code.
 */
int daemon_options_parse(int argc, char **argv, const char *program, const char *about,
			 const char *config_page, const char *closing, const char *libraries,
			 struct options *options);

#endif
