/* SPDX-License-Identifier: BSD-3-Clause */
/* See options.h. */
#include "control/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "control/log.h"

static void
print_help(const char *program, const char *about, const char *config_page, const char *closing)
{
	printf("Usage: %s --config FILE [--check] [--log-level LEVEL]\n"
	       "\n"
	       "%s\n"
	       "\n"
	       "  -c, --config FILE      JSON configuration, see %s\n"
	       "      --check            validate the configuration and exit\n"
	       "      --log-level LEVEL  error, warning, info or debug; overrides the configuration\n"
	       "  -h, --help             show this text and exit\n"
	       "  -V, --version          show the version and exit\n"
	       "\n"
	       "%s\n",
	       program, about, config_page, closing);
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
options_parse(int argc, char **argv, const char *program, const char *about,
	      const char *config_page, const char *closing, struct options *options)
{
	static const struct option known[] = {
		{ "config", required_argument, NULL, 'c' },    { "check", no_argument, NULL, 'k' },
		{ "log-level", required_argument, NULL, 'l' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },         { NULL, 0, NULL, 0 },
	};
	int option;

	*options = (struct options){ .log_level = -1 };
	while ((option = getopt_long(argc, argv, "c:hV", known, NULL)) != -1) {
		switch (option) {
		case 'c':
			options->config_path = optarg;
			break;
		case 'k':
			options->check = true;
			break;
		case 'l':
			options->log_level = log_level_find(optarg);
			if (options->log_level < 0)
				return usage_error(
					program,
					"--log-level: found \"%s\", expected error, warning, info or debug",
					optarg);
			break;
		case 'h':
			print_help(program, about, config_page, closing);
			return 0;
		case 'V':
			printf("%s " FANIN_VERSION "\n", program);
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
	return -1;
}
