/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-switch: reads its configuration, starts DPDK, ports, workers and the control socket, and
 * serves until SIGTERM or SIGINT. Exit codes: 0 stopped as asked, 1 failure, 2 wrong usage or
 * configuration.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_version.h>

#include "control/clock.h"
#include "control/notify.h"
#include "control/options.h"
#include "control/wake.h"
#include "handlers/kernels/kernels.h"
#include "pipeline/net/route_table.h"
#include "switch/commands.h"
#include "switch/config/config.h"
#include "switch/eal.h"
#include "switch/hop_watch.h"
#include "switch/log.h"
#include "switch/memif_gate.h"
#include "switch/port_watch.h"
#include "switch/ports_packet.h"
#include "switch/telemetry.h"
#include "switch/version_watch.h"

#define HOUSEKEEP_MS 1000
static_assert(PORT_WATCH_MS <= HOUSEKEEP_MS, "the loop waits for the more frequent one");
/*
 * Maximum number of connections at a time. Half of them may be without a handshake: enough for all
 * that connect within 40 ms, except a flood.
 */
#define CONTROL_CLIENTS 256

static_assert(CONFIG_MAX_PORTS <= PIPELINE_MAX_PORTS && CONFIG_MAX_WORKERS <= PIPELINE_MAX_WORKERS,
	      "limits");
static_assert(CONTROL_MESSAGE_LEN >= METRICS_ERROR_LEN, "buffers");
static_assert(CONFIG_MAX_NEXT_HOPS == ROUTE_MAX_NEXT_HOPS, "next hops");
static_assert(CONFIG_NAME_LEN == PIPELINE_NAME_LEN && CONFIG_ERROR_LEN == PIPELINE_ERROR_LEN,
	      "buffers");

/* Returns the routes for the pipeline, which the caller frees; NULL without memory. */
static struct route_spec *
route_specs(const struct config *config)
{
	struct route_spec *specs = calloc(config->n_routes + 1u, sizeof(*specs));

	for (uint16_t i = 0; specs != NULL && i < config->n_routes; i++) {
		const struct config_route *route = &config->routes[i];

		specs[i].prefix_be = route->prefix.ip_be;
		specs[i].prefix_len = route->prefix.len;
		specs[i].n_next_hops = route->n_via;
		for (uint16_t k = 0; k < route->n_via; k++)
			specs[i].next_hops[k] = (struct next_hop_spec){ route->via[k].ip_be,
									route->via[k].port };
	}
	return specs;
}

static int
pipeline_setup(struct daemon *daemon, char *error)
{
	const struct config *config = daemon->config;
	unsigned int lcores[CONFIG_MAX_WORKERS];
	struct route_spec *routes = route_specs(config);
	struct pipeline_options options = {
		.ip_be = config->ip_be,
		.prefix_len = (uint8_t)config->prefix_len,
		.routes = routes,
		.n_routes = config->n_routes,
		.udp_port = config->udp_port,
		.idle_empty_polls = config->idle_empty_polls,
		.idle_sleep_us = config->idle_sleep_us,
		.max_jobs = config->max_jobs,
		.slots = config->slots,
		.shared_slots = config->shared_slots,
		.key_rate = config->key_rate,
		.mac_entries = config->mac_entries,
		.mac_age_seconds = config->mac_age_seconds,
		.probe_ns = config->probe_ms * UINT64_C(1000000),
		.probe_misses = config->probe_misses,
		.faults = { config->fault_drop, config->fault_duplicate, config->fault_reorder,
			    config->fault_seed },
		.pool = ports_pool_of_longest(&daemon->ports),
		.ports = daemon->ports.ports,
		.n_ports = daemon->ports.n_ports,
		.lcores = lcores,
		.cluster_size = config->cluster_size,
		.tree_up_to = config->tree_up_to,
		.multi2_up_to = config->multi2_up_to,
		.multi4_up_to = config->multi4_up_to,
		.policy = config->policy == CONFIG_POLICY_RSS ? PIPELINE_POLICY_RSS
							      : PIPELINE_POLICY_DISPATCH,
		.n_workers = config->n_workers,
		.isa = fanin_isa_detect(),
	};
	int ret;

	if (routes == NULL) {
		snprintf(error, CONFIG_ERROR_LEN, "no memory for %u routes", config->n_routes);
		return -ENOMEM;
	}
	switch (config->idle_policy) {
	case CONFIG_IDLE_YIELD:
		options.idle = PIPELINE_IDLE_YIELD;
		break;
	case CONFIG_IDLE_SPIN:
		options.idle = PIPELINE_IDLE_SPIN;
		break;
	case CONFIG_IDLE_SLEEP:
		options.idle = PIPELINE_IDLE_SLEEP;
		break;
	}
	memcpy(options.mac, config->mac, sizeof(options.mac));
	for (uint16_t i = 0; i < config->n_workers; i++)
		lcores[i] = config->workers[i].lcore;
	ret = pipeline_create(&options, &daemon->pipeline, error);
	free(routes);
	return ret;
}

static void
print_counters(const struct daemon *daemon)
{
	const struct pipeline *pipeline = daemon->pipeline;
	struct counters sum;

	pipeline_counters(pipeline, &sum);
	for (uint16_t i = 0; i < pipeline->n_ports; i++) {
		const struct port_counters *port = &sum.ports[i];

		log_info(
			"port %-12s rx %lu frames, %lu bytes; tx %lu frames, %lu bytes, %lu dropped",
			pipeline->ports[i].name, port->rx_frames, port->rx_bytes, port->tx_frames,
			port->tx_bytes, port->tx_dropped);
	}
	log_info("switching: %lu forwarded, %lu flooded, %lu routed, %lu for the switch itself",
		 sum.forwarded, sum.flooded, sum.routed, sum.local);
	for (unsigned int i = 1; i < FANIN_REASON_COUNT; i++) {
		if (sum.drops[i] != 0)
			log_info("drops: %-22s %lu (%s)", fanin_reason_name(i), sum.drops[i],
				 fanin_reason_text(i));
	}
}

/* Serves until a signal asks to stop. Returns 0 or -errno. */
static int
serve_until_signal(struct daemon *daemon, struct control *control, struct memif_gate *gate,
		   struct metrics_server *metrics, int signal_fd)
{
	int telemetry_fd = telemetry_open();
	const int fds[] = { signal_fd, memif_gate_fd(gate), metrics_server_fd(metrics),
			    telemetry_fd, port_watch_fd(&daemon->watch) };
	int wake_fd = wake_fd_open(fds, RTE_DIM(fds));
	struct hop_watch *hops = hop_watch_create(daemon->config, &daemon->ports, daemon->pipeline);
	uint64_t housekept_ms = clock_ms();
	bool more = false;
	int ret = 0;

	if (hops == NULL) {
		log_error("no memory for the next hops");
		ret = -ENOMEM;
	}
	if (telemetry_fd < 0)
		log_warning("no commands in DPDK's telemetry: %s", strerror(-telemetry_fd));
	if (ret == 0 && wake_fd < 0) {
		log_error("cannot wait for signals: %s", strerror(-wake_fd));
		ret = wake_fd;
	}
	if (ret == 0)
		notify_service("READY=1");
	while (ret == 0) {
		const int wait_ms = hop_watch_serve(hops, PORT_WATCH_MS);

		ret = control_serve(control, wake_fd, more ? 0 : wait_ms);
		if (ret == 1 && !wake_is_readable(signal_fd))
			ret = 0;
		if (ret == 0)
			memif_gate_serve(gate, daemon->pipeline);
		more = metrics_server_serve(metrics);
		telemetry_serve(daemon);
		port_watch_serve(&daemon->watch);
		if (clock_ms() - housekept_ms >= HOUSEKEEP_MS) {
			pipeline_housekeep(daemon->pipeline);
			version_watch_serve(daemon->pipeline);
			housekept_ms = clock_ms();
		}
	}
	notify_service("STOPPING=1");
	telemetry_close();
	hop_watch_free(hops);
	if (wake_fd >= 0)
		close(wake_fd);
	return ret < 0 ? ret : 0;
}

/* Opens the control socket and the metrics server, and serves them. Returns 0 or -errno. */
static int
serve(struct daemon *daemon, struct memif_gate *gate, int signal_fd)
{
	const struct config *config = daemon->config;
	struct metrics_server *metrics = NULL;
	struct control *control = NULL;
	char error[CONTROL_MESSAGE_LEN];
	char address[INET_ADDRSTRLEN];
	const struct control_options options = {
		.service = "switch",
		.name = config->name,
		.commands = commands,
		.user = daemon,
		.path = config->control_socket,
		.tcp = config_control_tcp(config),
		.max_clients = CONTROL_CLIENTS,
	};
	int ret = control_open(&options, &control, error);

	daemon->control = control;
	if (ret == 0)
		ret = metrics_server_open(config->metrics_listen, switch_metrics,
					  switch_metrics_values, daemon, &metrics, error);
	if (ret != 0) {
		log_error("%s", error);
		goto close_control;
	}
	inet_ntop(AF_INET, &config->ip_be, address, sizeof(address));
	log_info("\"%s\" is ready: %u ports, %u workers, address %s, kernels %s, control socket %s",
		 config->name, daemon->pipeline->n_ports, daemon->pipeline->n_workers, address,
		 fanin_isa_name(fanin_isa_detect()), config->control_socket);
	for (unsigned int i = 0; i < config->n_ports; i++) {
		const struct config_port *port = &config->ports[i];

		if (port->by_rule)
			log_info("port \"%s\": %s: %s", port->name,
				 config_port_is_af_xdp(port) ? "AF_XDP" : "packet sockets",
				 port->why);
	}
	if (control_tcp_port(control) != 0)
		log_info("control over TCP at %s%s", config->control_listen,
			 config->tls_certificate[0] == '\0' ? "" : " with TLS");
	if (metrics != NULL)
		log_info("metrics: http://%s/metrics", config->metrics_listen);
	ret = serve_until_signal(daemon, control, gate, metrics, signal_fd);
	metrics_server_close(metrics);
close_control:
	control_close(control);
	return ret;
}

static int
run(const struct config *config, const char *source, char *const argv[], int signal_fd)
{
	struct daemon daemon = { .config = config };
	struct memif_gate *gate = NULL;
	char error[CONFIG_ERROR_LEN] = "";
	mode_t mask;
	int ret = memif_gate_open(config, &gate, error);

	if (ret != 0)
		goto report;
	/* DPDK's drivers create files, such as a memif socket that only the gate may use. */
	mask = umask(0077);
	ret = eal_start(config, argv, error);
	umask(mask);
	if (ret != 0)
		goto close_gate;
	daemon.start_ns = pipeline_now_ns();
	ret = ports_start(config, &daemon.ports, error);
	if (ret != 0)
		goto stop_eal;
	ret = pipeline_setup(&daemon, error);
	if (ret != 0)
		goto stop_ports;
	ret = port_watch_open(&daemon.watch, config, &daemon.ports, daemon.pipeline);
	if (ret != 0) {
		snprintf(error, sizeof(error), "no thread to look after ports: %s", strerror(-ret));
		goto free_pipeline;
	}
	ret = pipeline_start(daemon.pipeline);
	if (ret == 0) {
		ret = serve(&daemon, gate, signal_fd);
		pipeline_stop(daemon.pipeline);
		memif_gate_stop(gate, daemon.pipeline);
		print_counters(&daemon);
	}
	port_watch_close(&daemon.watch);
free_pipeline:
	pipeline_free(daemon.pipeline);
stop_ports:
	ports_stop(&daemon.ports);
stop_eal:
	eal_stop();
close_gate:
	memif_gate_close(gate);
report:
	if (error[0] != '\0')
		log_error("%s: %s", source, error);
	return ret;
}

int
main(int argc, char **argv)
{
	struct options options;
	struct config config;
	char error[CONFIG_ERROR_LEN];
	char problem[CONFIG_ERROR_LEN];
	sigset_t signals;
	int signal_fd;
	char libraries[64];
	int ret;

	snprintf(libraries, sizeof(libraries), "%s; built with %s", rte_version(), DPDK_BUILT_WITH);
	ret = daemon_options_parse(
		argc, argv, "fanin-switch",
		"Switches Ethernet frames and reduces the packets of Fanin jobs on their way.",
		"fanin-switch.json(5)",
		"SIGTERM and SIGINT stop it cleanly; faninctl(1) talks to it while it runs.",
		libraries, &options);
	if (ret >= 0)
		return ret;
	ret = config_load(options.config_path, &config, error);
	if (ret == 0)
		ret = config_check_machine(&config, options.config_path, error);
	if (ret == 0 && ports_check_packet(&config, problem) != 0) {
		snprintf(error, sizeof(error), "%.128s: %.380s", options.config_path, problem);
		ret = -EINVAL;
	}
	if (ret != 0) {
		fprintf(stderr, "fanin-switch: %s\n", error);
		return OPTIONS_EXIT_USAGE;
	}
	if (options.check) {
		printf("%s: ok\n", options.config_path);
		return 0;
	}
	if (options.log_level >= 0)
		config.log_level = (enum log_level)options.log_level;
	log_init("fanin-switch", config.log_level);
	log_libraries();
	/* Before any thread starts, so that all threads have the signals blocked. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (signal_fd < 0) {
		log_error("signalfd: %s", strerror(errno));
		return 1;
	}
	ret = run(&config, options.config_path, argv, signal_fd);
	close(signal_fd);
	return ret == 0 ? 0 : 1;
}
