/* SPDX-License-Identifier: BSD-3-Clause */
/* See config.h. */
#include "server/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/args.h"
#include "metrics/metrics.h"
#include "wire/wire.h"

#define DEFAULT_SOCKET "/run/fanin-server/server.sock"
/* Far above any real file; keeps a wrong path from being read without end. */
#define LONGEST_FILE ((size_t)1 << 20)

/* An object of the file, NULL if it is absent. Returns 0 or -EINVAL. */
static int
find_object(const char *where, const json_t *root, const char *key, const char *const *known,
	    const json_t **object, struct control_error *error)
{
	*object = json_object_get(root, key);
	if (*object == NULL)
		return 0;
	if (!json_is_object(*object)) {
		control_fail(error, "invalid", "%s: expected an object", where);
		return -EINVAL;
	}
	return args_check_known_at(where, *object, known, error);
}

static int
read_address(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "ip", "udp_port", NULL };
	const json_t *address;
	int64_t udp_port = FANIN_WIRE_DEFAULT_UDP_PORT;
	uint32_t ip_be;
	bool present;

	if (find_object("address", root, "address", known, &address, error) != 0)
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
read_tls(const json_t *control, struct control_tcp *tcp, struct control_error *error)
{
	static const char *const known[] = { "certificate", "key", "ca", NULL };
	const json_t *tls;
	bool present;

	if (find_object("control.tls", control, "tls", known, &tls, error) != 0)
		return -EINVAL;
	if (tls == NULL)
		return 0;
	if (args_string_at("control.tls", tls, "certificate", 255, &tcp->certificate, NULL, error) !=
		    0 ||
	    args_string_at("control.tls", tls, "key", 255, &tcp->key, NULL, error) != 0 ||
	    args_string_at("control.tls", tls, "ca", 255, &tcp->ca, &present, error) != 0)
		return -EINVAL;
	return 0;
}

static int
read_control(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "socket", "listen", "token_file", "tls", NULL };
	char message[CONTROL_MESSAGE_LEN];
	const json_t *control;
	bool present;

	if (find_object("control", root, "control", known, &control, error) != 0)
		return -EINVAL;
	if (control == NULL)
		return 0;
	if (args_string_at("control", control, "socket", 107, &config->socket, &present, error) != 0 ||
	    args_string_at("control", control, "listen", 63, &config->tcp.listen, &present, error) !=
		    0 ||
	    args_string_at("control", control, "token_file", 255, &config->tcp.token_file, &present,
			   error) != 0 ||
	    read_tls(control, &config->tcp, error) != 0)
		return -EINVAL;
	if (control_tcp_check(&config->tcp, message) == 0)
		return 0;
	control_fail(error, "invalid", "control: %s", message);
	return -EINVAL;
}

static int
read_metrics(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "listen", NULL };
	const json_t *metrics;
	struct address address;
	bool present;

	if (find_object("metrics", root, "metrics", known, &metrics, error) != 0)
		return -EINVAL;
	if (metrics == NULL)
		return 0;
	if (args_string_at("metrics", metrics, "listen", 63, &config->metrics_listen, &present,
			   error) != 0)
		return -EINVAL;
	if (!present || metrics_address(config->metrics_listen, &address) == 0)
		return 0;
	control_fail(error, "invalid",
		     "metrics.listen: found \"%s\", expected an IP address and a TCP port like \"127.0.0.1:9466\" or \"[::1]:9466\"",
		     config->metrics_listen);
	return -EINVAL;
}

static int
read_limits(const json_t *root, struct server_config *config, struct control_error *error)
{
	static const char *const known[] = { "max_jobs", "megabytes", NULL };
	const json_t *limits;
	bool present;

	if (find_object("limits", root, "limits", known, &limits, error) != 0)
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
		control_fail(error, "invalid",
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
	    args_name_at("", root, "name", SERVER_NAME_LEN - 1, &config->name, &present, error) != 0 ||
	    read_address(root, config, error) != 0 || read_control(root, config, error) != 0 ||
	    read_metrics(root, config, error) != 0 || read_log_level(root, config, error) != 0 ||
	    read_limits(root, config, error) != 0 ||
	    args_integer_at("", root, "receive_buffer_kilobytes", 64, 1048576,
			    &config->receive_buffer_kilobytes, &present, error) != 0 ||
	    args_integer_at("", root, "round_trip_us", 0, 10000000, &config->round_trip_us,
			    &present, error) != 0)
		return -EINVAL;
	return 0;
}

/* The whole file; NULL with *error filled. */
static char *
read_file(const char *path, size_t *len, struct control_error *error)
{
	FILE *file = fopen(path, "re");
	char *text;

	if (file == NULL) {
		control_fail(error, "not_found", "%s: cannot open: %s", path, strerror(errno));
		return NULL;
	}
	text = malloc(LONGEST_FILE);
	*len = text == NULL ? 0 : fread(text, 1, LONGEST_FILE, file);
	if (text == NULL || ferror(file) || *len == LONGEST_FILE) {
		control_fail(error, "invalid", "%s: cannot read: %s", path,
			     *len == LONGEST_FILE ? "longer than 1 MiB: not a configuration file"
						  : strerror(errno));
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

static json_t *
read_json(const char *path, struct control_error *error)
{
	json_error_t json_error;
	json_t *root;
	size_t len;
	char *text = read_file(path, &len, error);

	if (text == NULL)
		return NULL;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_error);
	free(text);
	if (root == NULL)
		return control_fail(error, "invalid", "%s: line %d, column %d: %s", path,
				    json_error.line, json_error.column, json_error.text);
	if (json_is_object(root))
		return root;
	json_decref(root);
	return control_fail(error, "invalid", "%s: found an array, expected an object", path);
}

/* Puts the file's name before the message. Returns -EINVAL. */
static int
fail_at(const char *path, struct control_error *error)
{
	char message[CONTROL_MESSAGE_LEN];

	snprintf(message, sizeof(message), "%.128s: %.370s", path, error->message);
	memcpy(error->message, message, sizeof(message));
	return -EINVAL;
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

	read.root = read_json(path, error);
	if (read.root == NULL)
		return -EINVAL;
	if (read_root(read.root, &read, error) != 0) {
		json_decref(read.root);
		return fail_at(path, error);
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
		return fail_at(path, error);
	}
	if (config->metrics_listen == NULL ||
	    metrics_check_machine(config->metrics_listen, message) == 0)
		return 0;
	control_fail(error, "invalid", "%.480s", message);
	return fail_at(path, error);
}

void
server_config_free(struct server_config *config)
{
	json_decref(config->root);
	*config = (struct server_config){ 0 };
}
