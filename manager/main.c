/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-manager: reads its configuration, connects to the switches, and serves hosts until SIGTERM or SIGINT. Exit codes: 0
 * stopped as asked, 1 failure, 2 wrong usage or configuration.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control/log.h"
#include "control/notify.h"
#include "manager/manager.h"

#define EXIT_USAGE 2

struct arguments {
	const char *config_path;
	bool check;
	int log_level; /* -1: as configured */
};

static void
print_help(FILE *out)
{
	fputs("Usage: fanin-manager --config FILE [--check] [--log-level LEVEL]\n"
	      "\n"
	      "Gives each job a tree of switches, and its hosts what they need to use it.\n"
	      "\n"
	      "  -c, --config FILE      JSON configuration, see fanin-manager(8)\n"
	      "      --check            validate the configuration and its topology and exit\n"
	      "      --log-level LEVEL  error, warning, info or debug; overrides the configuration\n"
	      "  -h, --help             show this text and exit\n"
	      "  -V, --version          show the version and exit\n"
	      "\n"
	      "SIGTERM and SIGINT stop it; jobs go on without it. faninctl(1) talks to it while it runs.\n",
	      out);
}

static int
usage_error(const char *format, const char *found)
{
	fprintf(stderr, "fanin-manager: ");
	fprintf(stderr, format, found);
	fprintf(stderr, "\nTry \"fanin-manager --help\".\n");
	return EXIT_USAGE;
}

/* Returns -1 to go on, else the exit code. */
static int
parse_arguments(int argc, char **argv, struct arguments *arguments)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },    { "check", no_argument, NULL, 'k' },
		{ "log-level", required_argument, NULL, 'l' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },         { NULL, 0, NULL, 0 },
	};
	int option;

	arguments->log_level = -1;
	while ((option = getopt_long(argc, argv, "c:hV", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			arguments->config_path = optarg;
			break;
		case 'k':
			arguments->check = true;
			break;
		case 'l':
			arguments->log_level = log_level_find(optarg);
			if (arguments->log_level < 0)
				return usage_error(
					"--log-level: found \"%s\", expected error, warning, info or debug",
					optarg);
			break;
		case 'h':
			print_help(stdout);
			return 0;
		case 'V':
			puts("fanin-manager " FANIN_VERSION);
			return 0;
		default:
			fputs("Try \"fanin-manager --help\".\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return usage_error("unexpected argument \"%s\"", argv[optind]);
	if (arguments->config_path == NULL)
		return usage_error("%s", "--config FILE is required");
	return -1;
}

static int
run(const struct manager_config *config)
{
	char error[CONTROL_MESSAGE_LEN];
	struct manager *manager;
	sigset_t signals;
	int signal_fd;
	int ret;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN); /* TLS writes without asking for an error instead */
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (signal_fd < 0) {
		log_error("signalfd: %s", strerror(errno));
		return 1;
	}
	ret = manager_open(config, &manager, error);
	if (ret != 0) {
		log_error("%s", error);
		close(signal_fd);
		return 1;
	}
	log_info("\"%s\" is ready at %s%s: %u switches, %u links, %u hosts", config->name,
		 config->tcp.listen, config->tcp.certificate == NULL ? "" : " with TLS",
		 config->topology.n_switches, config->topology.n_links, config->topology.n_hosts);
	notify_service("READY=1");
	ret = manager_serve(manager, signal_fd);
	notify_service("STOPPING=1");
	if (ret != 0)
		log_error("%s", strerror(-ret));
	manager_close(manager);
	close(signal_fd);
	return ret == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	struct arguments arguments = { 0 };
	struct manager_config config;
	struct control_error error;
	int ret = parse_arguments(argc, argv, &arguments);

	if (ret >= 0)
		return ret;
	if (manager_config_load(arguments.config_path, &config, &error) != 0) {
		fprintf(stderr, "fanin-manager: %s\n", error.message);
		return EXIT_USAGE;
	}
	if (arguments.check) {
		printf("%s: ok\n", arguments.config_path);
		manager_config_free(&config);
		return 0;
	}
	log_init("fanin-manager",
		 arguments.log_level < 0 ? config.log_level : (enum log_level)arguments.log_level);
	ret = run(&config);
	manager_config_free(&config);
	return ret;
}
