/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by faninctl's commands: their tables, the options that all of them take, and access to the
 * switch or manager.
 */
#ifndef FANIN_TOOLS_CTL_H
#define FANIN_TOOLS_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/cli.h"
#include "control/client.h"

#define CTL_OK 0
#define CTL_FAILED 1
#define CTL_USAGE 2

struct ctl {
	struct client_options options;
	bool json;
	const struct ctl_command *commands; /* of a switch or of a manager; ends with zeros */
	const struct ctl_command *command;  /* the running one */
	struct client *client;              /* opened by the first ctl_call */
};

struct ctl_command {
	const char *name;
	const char *verb;  /* second word; NULL if there is none */
	const char *usage; /* words after the name */
	const char *summary;
	const struct cli_option *options; /* NULL if it has none of its own */
	/* argc, argv: from the last word of the name on. Returns an exit code. */
	int (*run)(struct ctl *ctl, int argc, char **argv);
};

/*
 * Reads the command's next option, like getopt_long; handles the options that every command takes.
 * Returns the option's val, -1 after the last one, '?' for a wrong one, which has been reported.
 */
int ctl_next_option(struct ctl *ctl, int argc, char **argv);

/* Reports wrong usage with a hint. Returns CTL_USAGE. */
int ctl_usage_error(const struct ctl *ctl, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Reads all options of a command that has none of its own, and checks that min to max operands are
 * left, starting at argv[optind]. Returns CTL_OK or CTL_USAGE.
 */
int ctl_operands(struct ctl *ctl, int argc, char **argv, int min, int max);

/*
 * Parses the number given for an option or operand `what`. Returns CTL_OK, or CTL_USAGE after
 * reporting an error.
 */
int ctl_number(const struct ctl *ctl, const char *what, const char *text, int64_t min, int64_t max,
	       int64_t *value);

/*
 * Runs a command of the switch or manager. args: a reference that the call takes; NULL for none.
 * Returns a new reference to the result, or NULL after a report.
 */
json_t *ctl_call(struct ctl *ctl, const char *command, json_t *args);

/*
 * Runs a command without options and operands of its own: sends `command` to the switch and prints
 * the answer. Returns an exit code.
 */
int ctl_show(struct ctl *ctl, int argc, char **argv, const char *command,
	     void (*print)(const struct ctl *, const json_t *));

/*
 * Prints a line about the ranks of a job that are behind, and the job's use of slots. entry: of
 * jobs.list, or the answer to jobs.waits. Returns false, with nothing printed, if the entry does
 * not say.
 */
bool ctl_print_progress(const json_t *entry);

/* Prints an object as one line. */
void ctl_print_json(const json_t *object);

/* Read members of answers: 0, "" or false if absent. */
int64_t ctl_integer(const json_t *object, const char *key);
double ctl_real(const json_t *object, const char *key);
const char *ctl_string(const json_t *object, const char *key);
bool ctl_is_true(const json_t *object, const char *key);

/* The commands, listed in the table of tools/faninctl.c. */
int ctl_version(struct ctl *ctl, int argc, char **argv);
int ctl_ports(struct ctl *ctl, int argc, char **argv);
int ctl_jobs_list(struct ctl *ctl, int argc, char **argv);
int ctl_jobs_create(struct ctl *ctl, int argc, char **argv);
int ctl_jobs_destroy(struct ctl *ctl, int argc, char **argv);
int ctl_jobs_waits(struct ctl *ctl, int argc, char **argv);
int ctl_stats(struct ctl *ctl, int argc, char **argv);
int ctl_drops(struct ctl *ctl, int argc, char **argv);
int ctl_mac(struct ctl *ctl, int argc, char **argv);
int ctl_routes(struct ctl *ctl, int argc, char **argv);
int ctl_neighbors(struct ctl *ctl, int argc, char **argv);
int ctl_check(struct ctl *ctl, int argc, char **argv);
int ctl_doctor(struct ctl *ctl, int argc, char **argv);

/* The commands of a manager. */
extern const struct ctl_command ctl_manager_commands[];
int ctl_manager_waits(struct ctl *ctl, int argc, char **argv);

extern const struct cli_option ctl_jobs_create_options[];
extern const struct cli_option ctl_stats_options[];
extern const struct cli_option ctl_drops_options[];
extern const struct cli_option ctl_doctor_options[];

#endif
