/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-server: reads its configuration, opens the parameter server and its control socket, and
 * serves until SIGTERM or SIGINT. Exit codes: 0 stopped as asked, 1 failure, 2 wrong usage or
 * configuration.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/log.h"
#include "control/notify.h"
#include "control/options.h"
#include "control/wake.h"
#include "protocols/pa_atp/server/commands.h"

#define HOUSEKEEP_MS 1000
/* Maximum number of rounds with packets before control connections are served. */
#define MAX_ROUNDS 64

/* Handles packets for a while. Returns the number of packets of the last round, or -EIO. */
static int
serve_packets(struct daemon *daemon)
{
	int n = 1;

	for (unsigned int i = 0; i < MAX_ROUNDS && n > 0; i++)
		n = fanin_serve(daemon->server);
	if (n >= 0)
		return n;
	log_error("%s", fanin_server_error(daemon->server));
	return -EIO;
}

/* Serves until a signal asks to stop. Returns 0 or -errno. */
static int
serve_until_signal(struct daemon *daemon, struct metrics_server *metrics, int signal_fd)
{
	const int fds[] = { signal_fd, fanin_server_fd(daemon->server),
			    metrics_server_fd(metrics) };
	int wake_fd = wake_fd_open(fds, sizeof(fds) / sizeof(fds[0]));
	bool more = false;
	int ret = 0;
	int n = 0;

	if (wake_fd < 0) {
		log_error("cannot wait for packets: %s", strerror(-wake_fd));
		return wake_fd;
	}
	notify_service("READY=1");
	while (ret >= 0) {
		ret = control_serve(daemon->control, wake_fd, more || n > 0 ? 0 : HOUSEKEEP_MS);
		if (ret < 0 || wake_is_readable(signal_fd))
			break;
		n = serve_packets(daemon);
		if (n < 0)
			ret = n;
		more = metrics_server_serve(metrics);
	}
	notify_service("STOPPING=1");
	close(wake_fd);
	return ret < 0 ? ret : 0;
}

/* Opens the control and metrics sockets and serves them. Returns 0 or -errno. */
static int
serve(struct daemon *daemon, int signal_fd)
{
	const struct server_config *config = daemon->config;
	struct metrics_server *metrics = NULL;
	char error[CONTROL_MESSAGE_LEN];
	struct fanin_server_stats stats;
	const struct control_options options = {
		.service = "server",
		.name = config->name,
		.commands = commands,
		.user = daemon,
		.path = config->socket,
		.tcp = config->tcp,
	};
	int ret = control_open(&options, &daemon->control, error);

	if (ret == 0)
		ret = metrics_server_open(config->metrics_listen, server_metrics,
					  server_metrics_values, daemon, &metrics, error);
	if (ret != 0) {
		log_error("%s", error);
		goto close_control;
	}
	server_stats(daemon, &stats);
	log_info(
		"\"%s\" is ready: %s, UDP port %u on %s with an MTU of %u, room for %u jobs, receive buffer %u KiB of %lu, control socket %s",
		config->name, config->ip, stats.udp_port, stats.interface, stats.mtu,
		stats.max_jobs, stats.receive_buffer_bytes / 1024,
		(unsigned long)config->receive_buffer_kilobytes, config->socket);
	if (control_tcp_port(daemon->control) != 0)
		log_info("control over TCP at %s%s", config->tcp.listen,
			 config->tcp.certificate == NULL ? "" : " with TLS");
	if (metrics != NULL)
		log_info("metrics: http://%s/metrics", config->metrics_listen);
	ret = serve_until_signal(daemon, metrics, signal_fd);
	metrics_server_close(metrics);
close_control:
	control_close(daemon->control);
	return ret;
}

static int
run(const struct server_config *config)
{
	struct daemon daemon = { .config = config, .start_ns = clock_ns() };
	const struct fanin_server_opts opts = {
		.sz = sizeof(opts),
		.address = config->ip,
		.udp_port = config->udp_port,
		.max_jobs = (uint32_t)config->max_jobs,
		.memory_bytes = (uint64_t)config->memory_megabytes << 20,
		.receive_buffer_bytes = (uint32_t)config->receive_buffer_kilobytes << 10,
		.round_trip_us = (uint32_t)config->round_trip_us,
	};
	char error[CONTROL_MESSAGE_LEN];
	sigset_t signals;
	int signal_fd;
	int ret;

	TAILQ_INIT(&daemon.records);
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
	ret = fanin_server_open(&opts, &daemon.server, error, sizeof(error));
	if (ret != FANIN_OK) {
		log_error("%s", error[0] != '\0' ? error : fanin_strerror(ret));
		goto close_signals;
	}
	ret = serve(&daemon, signal_fd);
	server_records_free(&daemon);
	fanin_server_close(daemon.server);
close_signals:
	close(signal_fd);
	return ret == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	struct options options;
	struct server_config config;
	struct control_error error;
	char libraries[64];
	int ret;

	snprintf(libraries, sizeof(libraries), "libfanin %s; built with %s", fanin_version(),
		 FANIN_HEADER_VERSION);
	ret = daemon_options_parse(
		argc, argv, "fanin-server",
		"Combines what the switches of Fanin jobs could not, and sends the results.",
		"fanin-server.json(5)",
		"SIGTERM and SIGINT stop it; faninctl(1) talks to it while it runs.", libraries,
		&options);
	if (ret >= 0)
		return ret;
	if (server_config_load(options.config_path, &config, &error) != 0) {
		fprintf(stderr, "fanin-server: %s\n", error.message);
		return OPTIONS_EXIT_USAGE;
	}
	if (server_config_check_machine(&config, options.config_path, &error) != 0) {
		fprintf(stderr, "fanin-server: %s\n", error.message);
		server_config_free(&config);
		return OPTIONS_EXIT_USAGE;
	}
	if (options.check) {
		printf("%s: ok\n", options.config_path);
		server_config_free(&config);
		return 0;
	}
	log_init("fanin-server",
		 options.log_level < 0 ? config.log_level : (enum log_level)options.log_level);
	ret = run(&config);
	server_config_free(&config);
	return ret;
}
