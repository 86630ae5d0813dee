/* SPDX-License-Identifier: BSD-3-Clause */
/* See config.h. */
#include "protocols/pa_atp/server/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/args.h"
#include "control/settings.h"
#include "control/metrics/metrics.h"
#include "wire/wire.h"

#define DEFAULT_SOCKET "/run/fanin-server/server.sock"

static int
read_address(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "ip", "udp_port", NULL };
	const json_t *address;
	int64_t udp_port = FANIN_WIRE_DEFAULT_UDP_PORT;
	uint32_t ip_be;
	bool present;

	if (settings_object("address", root, "address", known, &address, error) != 0)
		return -EINVAL;
	if (address == NULL) {
		control_fail(error, "invalid",
			     "address: missing, expected an object with the server's \"ip\"");
		return -EINVAL;
	}
	if (args_ipv4_at("address", address, "ip", &ip_be, NULL, error) != 0 ||
	    args_integer_at("address", address, "udp_port", 1024, 65535, &udp_port, &present,
			    error) != 0)
		return -EINVAL;
	config->ip = json_string_value(json_object_get(address, "ip"));
	config->udp_port = (uint16_t)udp_port;
	return 0;
}

static int
read_control(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "socket", "listen", "token_file", "tls", NULL };
	char message[CONTROL_MESSAGE_LEN];
	const json_t *control;
	bool present;

	if (settings_object("control", root, "control", known, &control, error) != 0)
		return -EINVAL;
	if (control == NULL)
		return 0;
	if (args_string_at("control", control, "socket", 107, &config->socket, &present, error) !=
		    0 ||
	    args_string_at("control", control, "listen", 63, &config->tcp.listen, &present,
			   error) != 0 ||
	    args_string_at("control", control, "token_file", 255, &config->tcp.token_file, &present,
			   error) != 0 ||
	    settings_tls("control.tls", control, &config->tcp, error) != 0)
		return -EINVAL;
	if (control_tcp_check(&config->tcp, message) == 0)
		return 0;
	control_fail(error, "invalid", "control: %s", message);
	return -EINVAL;
}

static int
read_limits(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "max_jobs", "megabytes", NULL };
	const json_t *limits;
	bool present;

	if (settings_object("limits", root, "limits", known, &limits, error) != 0)
		return -EINVAL;
	if (limits == NULL)
		return 0;
	if (args_integer_at("limits", limits, "max_jobs", 1, 1024, &config->max_jobs, &present,
			    error) != 0)
		return -EINVAL;
	return args_integer_at("limits", limits, "megabytes", 1, 1048576, &config->memory_megabytes,
			       &present, error);
}

static int
read_log_level(const json_t *root, struct server_config *config, struct control_error *error)
{
	const char *level = "info";
	bool present;

	if (args_string_at("", root, "log_level", 16, &level, &present, error) != 0)
		return -EINVAL;
	if (log_level_find(level) < 0) {
		control_fail(
			error, "invalid",
			"log_level: found \"%s\", expected \"error\", \"warning\", \"info\" or \"debug\"",
			level);
		return -EINVAL;
	}
	config->log_level = (enum log_level)log_level_find(level);
	return 0;
}

static int
read_root(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "$schema",       "name",
					     "address",       "control",
					     "metrics",       "log_level",
					     "limits",        "receive_buffer_kilobytes",
					     "round_trip_us", NULL };
	bool present;

	if (args_check_known_at("", root, known, error) != 0 ||
	    args_name_at("", root, "name", SERVER_NAME_LEN - 1, &config->name, &present, error) !=
		    0 ||
	    read_address(root, config, error) != 0 || read_control(root, config, error) != 0 ||
	    metrics_listen_read(root, "9466", &config->metrics_listen, error) != 0 ||
	    read_log_level(root, config, error) != 0 || read_limits(root, config, error) != 0 ||
	    args_integer_at("", root, "receive_buffer_kilobytes", 64, 1048576,
			    &config->receive_buffer_kilobytes, &present, error) != 0 ||
	    args_integer_at("", root, "round_trip_us", 0, 10000000, &config->round_trip_us,
			    &present, error) != 0)
		return -EINVAL;
	return 0;
}

int
server_config_load(const char *path, struct server_config *config, struct control_error *error)
{
	struct server_config read = {
		.name = "fanin-server",
		.socket = DEFAULT_SOCKET,
		.max_jobs = 16,
		.memory_megabytes = 256,
		.receive_buffer_kilobytes = 8192,
	};

	read.root = settings_load(path, error);
	if (read.root == NULL)
		return -EINVAL;
	if (read_root(read.root, &read, error) != 0) {
		json_decref(read.root);
		return settings_fail_at(path, error);
	}
	*config = read;
	return 0;
}

int
server_config_check_machine(const struct server_config *config, const char *path,
			    struct control_error *error)
{
	char message[METRICS_ERROR_LEN];

	if (control_tcp_check_machine(&config->tcp, message) != 0) {
		control_fail(error, "invalid", "control: %.480s", message);
		return settings_fail_at(path, error);
	}
	if (config->metrics_listen == NULL ||
	    metrics_check_machine(config->metrics_listen, message) == 0)
		return 0;
	control_fail(error, "invalid", "%.480s", message);
	return settings_fail_at(path, error);
}

void
server_config_free(struct server_config *config)
{
	json_decref(config->root);
	*config = (struct server_config){ 0 };
}
