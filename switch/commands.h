/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the control socket can be asked: the table of commands and the state that they work on. Main
 * thread only.
 */
#ifndef FANIN_SWITCH_COMMANDS_H
#define FANIN_SWITCH_COMMANDS_H

#include "control/metrics/metrics.h"
#include "pipeline/pipeline.h"
#include "control/control.h"
#include "switch/port_watch.h"
#include "switch/ports.h"

/* The daemon as its commands see it. */
struct daemon {
	const struct config *config;
	struct ports ports;
	struct pipeline *pipeline;
	struct port_watch watch;
	uint64_t start_ns;
	struct control *control; /* that the commands come by */
};

/* All commands; ends with a NULL name. `user` is a struct daemon. */
extern const struct control_command commands[];

/* commands_jobs.c */
json_t *command_jobs_list(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_create(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_destroy(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_waits(void *user, const json_t *args, struct control_error *error);

/* commands_routes.c */
json_t *command_routes_list(void *user, const json_t *args, struct control_error *error);
json_t *command_neighbors_list(void *user, const json_t *args, struct control_error *error);
json_t *command_hosts_find(void *user, const json_t *args, struct control_error *error);

/*
 * commands_memory.c: an object, all in bytes: rss and hugepages that the kernel sees, packets and
 * slots that DPDK's memory holds among other things, limit of DPDK's memory.
 */
json_t *json_memory(const struct daemon *daemon);

/*
 * commands_metrics.c: what the switch's metrics are, and the values that they are taken from: the
 * answers to commands by their names, and what the switch is. user: struct daemon. Returns a new
 * reference, or NULL without memory.
 */
extern const struct metrics_family switch_metrics[];
json_t *switch_metrics_values(void *user);

/* commands_ports.c */
json_t *command_ports_list(void *user, const json_t *args, struct control_error *error);

/*
 * commands_ports.c: what was dropped before workers saw it or after they had sent it: an array of
 * objects. A new reference.
 */
json_t *command_drops_elsewhere(const struct daemon *daemon);

/* commands_workers.c: an array with an object for each worker. uptime: seconds. A new reference. */
json_t *command_list_workers(const struct pipeline *pipeline, double uptime);

/* commands.c */
json_t *command_stats(void *user, const json_t *args, struct control_error *error);
json_t *command_drops(void *user, const json_t *args, struct control_error *error);

/* "02:fa:00:00:00:01" as a new JSON string. */
json_t *json_mac(const uint8_t mac[6]);

/* A histogram of COUNTERS_HISTOGRAM buckets: an object of those that are not 0, "2-3": count. */
json_t *json_histogram(const uint64_t *buckets);

/* Dotted IPv4 address as a new JSON string. */
json_t *json_ipv4(uint32_t ip_be);

#endif
