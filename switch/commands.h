/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commands of the control socket: their table, and the state that they work on. Main thread
 * only.
 */
#ifndef FANIN_SWITCH_COMMANDS_H
#define FANIN_SWITCH_COMMANDS_H

#include "control/metrics/metrics.h"
#include "pipeline/pipeline.h"
#include "control/control.h"
#include "switch/port_watch.h"
#include "switch/ports.h"

/* The daemon's state as its commands see it. */
struct daemon {
	const struct config *config;
	struct ports ports;
	struct pipeline *pipeline;
	struct port_watch watch;
	uint64_t start_ns;
	struct control *control; /* the socket that the commands come by */
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
 * commands_memory.c: returns an object, all values in bytes: rss and hugepages as the kernel sees
 * them; packets and slots, which are parts of DPDK's memory; limit of DPDK's memory.
 */
json_t *json_memory(const struct daemon *daemon);

/*
 * commands_metrics.c: the switch's metrics, and the source of their values: the answers to commands
 * by name, and the switch's description. user: struct daemon. Returns a new reference, or NULL
 * without memory.
 */
extern const struct metrics_family switch_metrics[];
json_t *switch_metrics_values(void *user);

/* commands_ports.c */
json_t *command_ports_list(void *user, const json_t *args, struct control_error *error);

/*
 * commands_ports.c: returns the frames that were dropped before workers saw them or after workers
 * had sent them: an array of objects. A new reference.
 */
json_t *command_drops_elsewhere(const struct daemon *daemon);

/* commands_workers.c: an array with an object for each worker. uptime: seconds. A new reference. */
json_t *command_list_workers(const struct pipeline *pipeline, double uptime);

/* commands.c */
json_t *command_stats(void *user, const json_t *args, struct control_error *error);
json_t *command_drops(void *user, const json_t *args, struct control_error *error);

/* Returns a MAC address like "02:fa:00:00:00:01" as a new JSON string. */
json_t *json_mac(const uint8_t mac[6]);

/* Returns the histogram's non-zero buckets, of COUNTERS_HISTOGRAM, as an object: "2-3": count. */
json_t *json_histogram(const uint64_t *buckets);

/* Returns a dotted IPv4 address as a new JSON string. */
json_t *json_ipv4(uint32_t ip_be);

#endif
