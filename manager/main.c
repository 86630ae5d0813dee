/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-manager: reads its configuration, connects to the switches, and serves hosts until SIGTERM
 * or SIGINT. Exit codes: 0 stopped as asked, 1 failure, 2 wrong usage or configuration.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control/log.h"
#include "control/notify.h"
#include "control/options.h"
#include "manager/manager.h"

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
	signal(SIGPIPE, SIG_IGN); /* TLS writes without MSG_NOSIGNAL */
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
	log_info(
		"\"%s\" is ready at %s%s: %u switches, %u links between them, %u parameter servers, %u links to hosts%s",
		config->name, config->tcp.listen,
		config->tcp.certificate == NULL ? "" : " with TLS", config->topology.n_switches,
		config->topology.n_links, config->topology.n_servers, config->topology.n_hosts,
		config->topology.discover_hosts ? ", others are looked for" : "");
	if (config->metrics_listen != NULL)
		log_info("metrics: http://%s/metrics", config->metrics_listen);
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
	struct options options;
	struct manager_config config;
	struct control_error error;
	int ret = daemon_options_parse(
		argc, argv, "fanin-manager",
		"Gives each job a tree of switches, and its hosts what they need to use it.",
		"fanin-manager(8)",
		"SIGTERM and SIGINT stop it; jobs go on without it. faninctl(1) talks to it while it runs.",
		NULL, &options);

	if (ret >= 0)
		return ret;
	if (manager_config_load(options.config_path, &config, &error) != 0) {
		fprintf(stderr, "fanin-manager: %s\n", error.message);
		return OPTIONS_EXIT_USAGE;
	}
	if (options.check) {
		printf("%s: ok\n", options.config_path);
		manager_config_free(&config);
		return 0;
	}
	log_init("fanin-manager",
		 options.log_level < 0 ? config.log_level : (enum log_level)options.log_level);
	ret = run(&config);
	manager_config_free(&config);
	return ret;
}
