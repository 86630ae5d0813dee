/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the control socket can be asked: the switch's commands, as far as they make sense here, with
 * the same arguments and answers, so that a manager drives both alike. Main thread only.
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

/* What the daemon keeps of a job, beside what the library does. */
struct server_record {
	uint32_t id;
	uint32_t switch_ip_be;
	char owner[SERVER_OWNER_LEN];
	uint64_t parameters[FANIN_WIRE_PARAMETERS];
	TAILQ_ENTRY(server_record) entry;
};

TAILQ_HEAD(server_records, server_record);

/* The daemon as its commands see it. */
struct daemon {
	const struct server_config *config;
	fanin_server *server;
	struct server_records records;
	uint64_t start_ns;
	struct control *control; /* that the commands come by */
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

/* commands_jobs.c: a parameter of the jobs' handler, by its position; NULL behind the last one. */
struct server_parameter {
	const char *name;
	const char *text;
	uint64_t least;
	uint64_t most;
	uint64_t usual;
};
const struct server_parameter *server_parameter(size_t i);

/* commands_jobs.c: forgets all records; the library's jobs stay. */
void server_records_free(struct daemon *daemon);

/* commands_jobs.c: names and texts of the jobs' counters, {"name", "description"} in an array. */
json_t *server_list_counters(void);

/*
 * commands_metrics.c: what the server's metrics are, and the values that they are taken from: the
 * answers to commands by their names, and what the server is. user: struct daemon. Returns a new
 * reference, or NULL without memory.
 */
extern const struct metrics_family server_metrics[];
json_t *server_metrics_values(void *user);

/* commands.c: what the server is now. */
void server_stats(const struct daemon *daemon, struct fanin_server_stats *stats);

#endif
