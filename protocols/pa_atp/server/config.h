/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's configuration: a JSON file, read once at start and constant afterwards. An error
 * names the file, the key's path, the value found and the value expected.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_SERVER_CONFIG_H
#define FANIN_PROTOCOLS_PA_ATP_SERVER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "control/control.h"
#include "control/log.h"

#define SERVER_NAME_LEN 32

struct server_config {
	const char *name;
	const char *ip;
	uint16_t udp_port;
	struct control_tcp tcp;
	const char *socket;
	const char *metrics_listen; /* IP:PORT; NULL: no metrics */
	enum log_level log_level;
	int64_t max_jobs;
	int64_t memory_megabytes;
	int64_t receive_buffer_kilobytes;
	int64_t round_trip_us; /* 0: measured */
	json_t *root;          /* owns the texts */
};

/*
 * Reads and checks the configuration. Returns 0 with *config filled, for server_config_free; or
 * -EINVAL with *error filled.
 */
int server_config_load(const char *path, struct server_config *config, struct control_error *error);

/*
 * Checks settings that depend on this machine: files and addresses to listen on. Reports the same
 * errors.
 */
int server_config_check_machine(const struct server_config *config, const char *path,
				struct control_error *error);

void server_config_free(struct server_config *config);

#endif
