/* SPDX-License-Identifier: BSD-3-Clause */
/* See options.h. */
#include "control/options.h"

#include <stdio.h>
#include <string.h>

#include "control/cli.h"
#include "control/log.h"
#include "control/process.h"

enum {
	OPTION_CHECK = 256,
	OPTION_LOG_LEVEL,
	OPTION_CORE_DUMPS
};

static const struct cli_option known[] = {
	{ "config", "FILE", 'c', "its JSON configuration" },
	{ "check", NULL, OPTION_CHECK, "validate the configuration and exit" },
	{ "log-level", "LEVEL", OPTION_LOG_LEVEL,
	  "error, warning, info or debug; overrides the configuration" },
	{ "core-dumps", NULL, OPTION_CORE_DUMPS,
	  "let the kernel write core dumps, which have keys in them" },
	{ "help", NULL, 'h', "show this text and exit" },
	{ "version", NULL, 'V', "show the version and exit" },
	{ 0 },
};

static void
print_help(const char *program, const char *about, const char *config_page, const char *closing)
{
	printf("Usage: %s --config FILE [--check] [--log-level LEVEL] [--core-dumps]\n\n%s\n\n",
	       program, about);
	cli_print_options(stdout, known);
	printf("\n%s describes the configuration.\n%s\n", config_page, closing);
}

static int
usage_error(const char *program, const char *format, const char *found)
{
	fprintf(stderr, "%s: ", program);
	fprintf(stderr, format, found);
	fprintf(stderr, "\nTry \"%s --help\".\n", program);
	return OPTIONS_EXIT_USAGE;
}

int
daemon_options_parse(int argc, char **argv, const char *program, const char *about,
		     const char *config_page, const char *closing, const char *libraries,
		     struct options *options)
{
	bool core_dumps = false;
	struct cli cli;
	int option;

	*options = (struct options){ .log_level = -1 };
	cli_prepare(&cli, known, NULL, 0);
	while ((option = getopt_long(argc, argv, cli.letters, cli.long_options, NULL)) != -1) {
		switch (option) {
		case 'c':
			options->config_path = optarg;
			break;
		case OPTION_CHECK:
			options->check = true;
			break;
		case OPTION_LOG_LEVEL:
			options->log_level = log_level_find(optarg);
			if (options->log_level < 0)
				return usage_error(
					program,
					"--log-level: found \"%s\", expected error, warning, info or debug",
					optarg);
			break;
		case OPTION_CORE_DUMPS:
			core_dumps = true;
			break;
		case 'h':
			print_help(program, about, config_page, closing);
			return 0;
		case 'V':
			printf("%s " FANIN_VERSION, program);
			if (libraries != NULL)
				printf(" (%s)", libraries);
			putchar('\n');
			return 0;
		default:
			fprintf(stderr, "Try \"%s --help\".\n", program);
			return OPTIONS_EXIT_USAGE;
		}
	}
	if (optind < argc)
		return usage_error(program, "unexpected argument \"%s\"", argv[optind]);
	if (options->config_path == NULL)
		return usage_error(program, "%s", "--config FILE is required");
	/* Before any secret is read. */
	if (!core_dumps)
		process_hide_memory();
	return -1;
}
