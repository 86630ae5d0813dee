/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl: inspects a running switch and manages its jobs, or inspects a running manager, over a
 * control socket. This file has the table of commands and their common code; the commands are in
 * tools/ctl_*.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/text.h"
#include "tools/ctl.h"

#define DEFAULT_SOCKET "/run/fanin/switch.sock"

enum {
	COMMON_MANAGER = 512,
	COMMON_TOKEN_FILE,
	COMMON_CA,
	COMMON_CERTIFICATE,
	COMMON_KEY
};

/* Options of every command, and of faninctl itself before the command. */
static const struct cli_option common_options[] = {
	{ "socket", "SOCKET", 's',
	  "control socket, a path or HOST:PORT (default: $FANIN_SOCKET or " DEFAULT_SOCKET ")" },
	{ "manager", "HOST", COMMON_MANAGER,
	  "a manager instead of a switch: its address, perhaps with :PORT" },
	{ "token-file", "FILE", COMMON_TOKEN_FILE,
	  "has the token for HOST:PORT (default: the token is $FANIN_TOKEN)" },
	{ "ca", "FILE", COMMON_CA,
	  "TLS for HOST:PORT: the authority of the other side's certificate" },
	{ "certificate", "FILE", COMMON_CERTIFICATE, "own certificate for TLS" },
	{ "key", "FILE", COMMON_KEY, "its key" },
	{ "json", NULL, 'j', "print the switch's answer as JSON, one object per line" },
	{ "help", NULL, 'h', "print this help, or that of a command" },
	{ "version", NULL, 'V', "print the version of this program" },
	{ 0 },
};

static const struct ctl_command switch_commands[] = {
	{ "version", NULL, "", "version, drivers and operations of the switch", NULL, ctl_version },
	{ "ports", NULL, "", "ports with link state and counters", NULL, ctl_ports },
	{ "jobs", NULL, "[list]", "jobs with their members and counters", NULL, ctl_jobs_list },
	{ "jobs", "create", "--member PORT:IP [--member PORT:IP]... [OPTION]...", "creates a job",
	  ctl_jobs_create_options, ctl_jobs_create },
	{ "jobs", "destroy", "ID", "removes a job, even a running one", NULL, ctl_jobs_destroy },
	{ "jobs", "waits", "ID",
	  "the job's oldest blocks without a result, and the ranks that each waits for", NULL,
	  ctl_jobs_waits },
	{ "stats", NULL, "[--watch [SECONDS]] [--count N]", "counters of workers and switching",
	  ctl_stats_options, ctl_stats },
	{ "drops", NULL, "[--all] [NAME]...", "why packets were not processed", ctl_drops_options,
	  ctl_drops },
	{ "mac", NULL, "", "learned MAC addresses", NULL, ctl_mac },
	{ "routes", NULL, "", "IPv4 routes and their next hops", NULL, ctl_routes },
	{ "neighbors", NULL, "", "hosts and next hops with their MAC addresses", NULL,
	  ctl_neighbors },
	{ "check", NULL, "FILE", "checks a switch configuration on this machine", NULL, ctl_check },
	{ "doctor", NULL, "[--udp-port N] [--driver DRIVER] [--transport TRANSPORT] [INTERFACE]...",
	  "checks this machine, and says what to do", ctl_doctor_options, ctl_doctor },
	{ 0 },
};

static void
print_name(FILE *out, const struct ctl_command *command)
{
	fprintf(out, "faninctl %s%s%s", command->name, command->verb == NULL ? "" : " ",
		command->verb == NULL ? "" : command->verb);
}

static void
print_help(const struct ctl *ctl)
{
	printf("Usage: faninctl [-s SOCKET] [-j] COMMAND [ARGUMENT]...\n"
	       "       faninctl --manager HOST[:PORT] [-j] COMMAND [ARGUMENT]...\n"
	       "%s\n\nCommands%s:\n",
	       ctl->options.manager
		       ? "Looks into a running fanin-manager and destroys jobs."
		       : "Looks into a running fanin-switch and manages its jobs; or into a fanin-manager:\n"
			 "\"faninctl --manager HOST help\" lists its commands.",
	       ctl->options.manager ? " of a manager" : "");
	for (const struct ctl_command *command = ctl->commands; command->name != NULL; command++) {
		char words[64];

		snprintf(words, sizeof(words), "%s %s", command->name,
			 command->verb == NULL ? "" : command->verb);
		printf("  %-22s  %s\n", words, command->summary);
	}
	printf("  %-22s  %s\n"
	       "\nOptions of all commands:\n",
	       "help [COMMAND]", "this list, or what a command takes");
	cli_print_options(stdout, common_options);
}

static void
print_command_help(const struct ctl_command *command)
{
	printf("Usage: ");
	print_name(stdout, command);
	printf(" %s%s[-s SOCKET] [-j]\n%c%s.\n", command->usage,
	       command->usage[0] == '\0' ? "" : " ", command->summary[0] - 'a' + 'A',
	       command->summary + 1);
	if (command->options == NULL)
		return;
	putchar('\n');
	cli_print_options(stdout, command->options);
}

int
ctl_usage_error(const struct ctl *ctl, const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	text_make_printable(message);
	fprintf(stderr, "faninctl: %s\n", message);
	if (ctl->command == NULL)
		fprintf(stderr, "See 'faninctl help'.\n");
	else
		fprintf(stderr, "See 'faninctl help %s%s%s'.\n", ctl->command->name,
			ctl->command->verb == NULL ? "" : " ",
			ctl->command->verb == NULL ? "" : ctl->command->verb);
	return CTL_USAGE;
}

/* Handles an option that every command takes. Returns false for other options. */
static bool
common_option(struct ctl *ctl, int option)
{
	switch (option) {
	case 's':
		ctl->options.at = optarg;
		return true;
	case COMMON_MANAGER:
		if (ctl->command != NULL && !ctl->options.manager) {
			ctl_usage_error(ctl, "--manager: expected before the command");
			exit(CTL_USAGE);
		}
		ctl->options.at = optarg;
		ctl->options.manager = true;
		ctl->commands = ctl_manager_commands;
		return true;
	case COMMON_TOKEN_FILE:
		ctl->options.token_file = optarg;
		return true;
	case COMMON_CA:
		ctl->options.ca = optarg;
		return true;
	case COMMON_CERTIFICATE:
		ctl->options.certificate = optarg;
		return true;
	case COMMON_KEY:
		ctl->options.key = optarg;
		return true;
	case 'j':
		ctl->json = true;
		return true;
	case 'h':
		if (ctl->command == NULL)
			print_help(ctl);
		else
			print_command_help(ctl->command);
		exit(CTL_OK);
	case 'V':
		printf("faninctl %s\n", FANIN_VERSION);
		exit(CTL_OK);
	default:
		return false;
	}
}

int
ctl_next_option(struct ctl *ctl, int argc, char **argv)
{
	static const struct cli_option none = { 0 };
	struct cli cli;
	int option;

	/* The command's own options take precedence: --key may have another meaning there. */
	cli_prepare(&cli, ctl->command->options == NULL ? &none : ctl->command->options,
		    common_options, 0);
	do {
		option = getopt_long(argc, argv, cli.letters, cli.long_options, NULL);
	} while (option != -1 && common_option(ctl, option));
	if (option == '?')
		fprintf(stderr, "See 'faninctl help %s%s%s'.\n", ctl->command->name,
			ctl->command->verb == NULL ? "" : " ",
			ctl->command->verb == NULL ? "" : ctl->command->verb);
	return option;
}

int
ctl_operands(struct ctl *ctl, int argc, char **argv, int min, int max)
{
	int option;

	do {
		option = ctl_next_option(ctl, argc, argv);
		if (option == '?')
			return CTL_USAGE;
	} while (option != -1);
	if (argc - optind < min)
		return ctl_usage_error(ctl, "expected %s", ctl->command->usage);
	if (argc - optind > max)
		return ctl_usage_error(ctl, "unexpected argument \"%s\"", argv[optind + max]);
	return CTL_OK;
}

int
ctl_number(const struct ctl *ctl, const char *what, const char *text, int64_t min, int64_t max,
	   int64_t *value)
{
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || number < min || number > max)
		return ctl_usage_error(ctl,
				       "%s: found \"%.40s\", expected an integer from %" PRId64
				       " to %" PRId64,
				       what, text, min, max);
	*value = number;
	return CTL_OK;
}

json_t *
ctl_call(struct ctl *ctl, const char *command, json_t *args)
{
	char error[CLIENT_ERROR_LEN];
	json_t *result;
	int ret = 0;

	if (ctl->client == NULL)
		ret = client_open(&ctl->options, &ctl->client, error);
	if (ret != 0)
		json_decref(args);
	else
		ret = client_call(ctl->client, command, args, &result, error);
	if (ret == 0)
		return result;
	fflush(stdout);
	fprintf(stderr, "faninctl: %s\n", error);
	return NULL;
}

void
ctl_print_json(const json_t *object)
{
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
	putchar('\n');
	fflush(stdout);
}

int64_t
ctl_integer(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

double
ctl_real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *
ctl_string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

bool
ctl_is_true(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

/* Finds the command of one or two words; two take precedence. Sets *words to their number. */
static const struct ctl_command *
find_command(const struct ctl *ctl, int argc, char **argv, int *words)
{
	const struct ctl_command *found = NULL;

	for (const struct ctl_command *command = ctl->commands; argc > 0 && command->name != NULL;
	     command++) {
		if (strcmp(command->name, argv[0]) != 0)
			continue;
		if (command->verb == NULL && found == NULL) {
			found = command;
			*words = 1;
		} else if (command->verb != NULL && argc > 1 &&
			   strcmp(command->verb, argv[1]) == 0) {
			found = command;
			*words = 2;
		}
	}
	return found;
}

static int
unknown_command(const struct ctl *ctl, const char *word)
{
	struct text_guess guess = { .word = word };

	for (const struct ctl_command *command = ctl->commands; command->name != NULL; command++)
		text_guess_offer(&guess, command->name);
	if (guess.best != NULL)
		return ctl_usage_error(ctl, "unknown command \"%.40s\" (did you mean \"%s\"?)",
				       word, guess.best);
	return ctl_usage_error(ctl, "unknown command \"%.40s\"", word);
}

static int
help(struct ctl *ctl, int argc, char **argv)
{
	const struct ctl_command *command;
	int words = 0;

	if (argc == 0) {
		print_help(ctl);
		return CTL_OK;
	}
	command = find_command(ctl, argc, argv, &words);
	if (command == NULL)
		return unknown_command(ctl, argv[0]);
	if (argc > words)
		return ctl_usage_error(ctl, "unexpected argument \"%.40s\"", argv[words]);
	print_command_help(command);
	return CTL_OK;
}

static int
run(struct ctl *ctl, int argc, char **argv)
{
	int words = 0;

	if (argc == 0)
		return ctl_usage_error(ctl, "expected a command");
	if (strcmp(argv[0], "help") == 0)
		return help(ctl, argc - 1, argv + 1);
	ctl->command = find_command(ctl, argc, argv, &words);
	if (ctl->command == NULL)
		return unknown_command(ctl, argv[0]);
	/*
	 * getopt uses the first word as the program's name in messages, and restarts with optind 0.
	 */
	argv[words - 1] = program_invocation_short_name;
	optind = 0;
	return ctl->command->run(ctl, argc - words + 1, argv + words - 1);
}

int
main(int argc, char **argv)
{
	struct ctl ctl = { .options.at = getenv("FANIN_SOCKET"), .commands = switch_commands };
	struct cli cli;
	int option, code;

	if (ctl.options.at == NULL || ctl.options.at[0] == '\0')
		ctl.options.at = DEFAULT_SOCKET;
	argv[0] = program_invocation_short_name; /* for getopt's messages */
	/* The command parses its own options. */
	cli_prepare(&cli, common_options, NULL, 1);
	while ((option = getopt_long(argc, argv, cli.letters, cli.long_options, NULL)) != -1) {
		if (!common_option(&ctl, option)) {
			fprintf(stderr, "See 'faninctl help'.\n");
			return CTL_USAGE;
		}
	}
	if (ctl.options.ca != NULL)
		signal(SIGPIPE, SIG_IGN); /* TLS writes without MSG_NOSIGNAL */
	code = run(&ctl, argc - optind, argv + optind);
	client_close(ctl.client);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "faninctl: cannot write to standard output: %s\n", strerror(errno));
		code = code == CTL_OK ? CTL_FAILED : code;
	}
	return code;
}
