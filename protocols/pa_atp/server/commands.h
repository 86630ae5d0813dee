/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commands of the control socket: the switch's commands, as far as they apply, with the same
 * arguments and answers, so that a manager drives switches and servers alike. Main thread only.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_SERVER_COMMANDS_H
#define FANIN_PROTOCOLS_PA_ATP_SERVER_COMMANDS_H

#include <sys/queue.h>

#include <fanin/server.h>

#include "control/control.h"
#include "control/metrics/metrics.h"
#include "protocols/pa_atp/server/config.h"
#include "protocols/pa_atp/pa_atp.h"
#include "wire/wire.h"

#define SERVER_HANDLER "pa-atp"
#define SERVER_OWNER_LEN 64

/* What the daemon keeps of a job besides the library's state. */
struct server_record {
	uint32_t id;
	uint32_t switch_ip_be;
	char owner[SERVER_OWNER_LEN];
	uint64_t parameters[FANIN_WIRE_PARAMETERS];
	TAILQ_ENTRY(server_record) entry;
};

TAILQ_HEAD(server_records, server_record);

/* The daemon's state as its commands see it. */
struct daemon {
	const struct server_config *config;
	fanin_server *server;
	struct server_records records;
	uint64_t start_ns;
	struct control *control; /* the socket that the commands come by */
};

/* All commands; ends with a NULL name. `user` is a struct daemon. */
extern const struct control_command commands[];

/* commands.c */
json_t *command_ports_list(void *user, const json_t *args, struct control_error *error);
json_t *command_stats(void *user, const json_t *args, struct control_error *error);
json_t *command_drops(void *user, const json_t *args, struct control_error *error);

/* commands_jobs.c */
json_t *command_jobs_list(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_create(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_destroy(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_waits(void *user, const json_t *args, struct control_error *error);

/* commands_jobs.c: a parameter of the jobs' handler, by its position; NULL after the last one. */
struct server_parameter {
	const char *name;
	const char *text;
	uint64_t least;
	uint64_t most;
	uint64_t usual;
};
const struct server_parameter *server_parameter(size_t i);

/* commands_jobs.c: frees all records; the library's jobs stay. */
void server_records_free(struct daemon *daemon);

/* commands_jobs.c: names and texts of the jobs' counters, {"name", "description"} in an array. */
json_t *server_list_counters(void);

/*
 * commands_metrics.c: the server's metrics, and the source of their values: the answers to commands
 * by name, and the server's description. user: struct daemon. Returns a new reference, or NULL
 * without memory.
 */
extern const struct metrics_family server_metrics[];
json_t *server_metrics_values(void *user);

/* commands.c: reads the server's current counters. */
void server_stats(const struct daemon *daemon, struct fanin_server_stats *stats);

#endif
