/* SPDX-License-Identifier: BSD-3-Clause */
/* See config.h. */
#include "manager/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/args.h"
#include "control/settings.h"
#include "manager/group.h"
#include "control/metrics/metrics.h"

#define DEFAULT_LISTEN "127.0.0.1:21932"
#define DEFAULT_DATABASE "/var/lib/fanin/manager.db"

/* Paths in the file are relative to its directory. */
static void
resolve(const char *file, const char *path, char *resolved)
{
	const char *slash = strrchr(file, '/');

	if (path[0] == '/' || slash == NULL)
		snprintf(resolved, PATH_MAX, "%s", path);
	else
		snprintf(resolved, PATH_MAX, "%.*s/%s", (int)(slash - file), file, path);
}

static int
read_limits(const json_t *root, struct manager_config *config, struct control_error *error)
{
	static const char *const known[] = { "connections", "jobs", NULL };
	const json_t *limits;
	bool present;

	if (settings_object("limits", root, "limits", known, &limits, error) != 0)
		return -EINVAL;
	if (limits == NULL)
		return 0;
	if (args_integer_at("limits", limits, "connections", 4, 65536, &config->max_connections,
			    &present, error) != 0 ||
	    args_integer_at("limits", limits, "jobs", 1, 65535, &config->max_jobs, &present,
			    error) != 0)
		return -EINVAL;
	return 0;
}

static int
read_words(const json_t *root, struct manager_config *config, struct control_error *error)
{
	const char *level = "info", *loss = "end";
	bool present;

	if (args_string_at("", root, "log_level", 16, &level, &present, error) != 0 ||
	    args_string_at("", root, "on_host_loss", 16, &loss, &present, error) != 0)
		return -EINVAL;
	if (log_level_find(level) < 0) {
		control_fail(
			error, "invalid",
			"log_level: found \"%s\", expected \"error\", \"warning\", \"info\" or \"debug\"",
			level);
		return -EINVAL;
	}
	config->log_level = (enum log_level)log_level_find(level);
	config->destroy_on_host_loss = strcmp(loss, "destroy") == 0;
	if (!config->destroy_on_host_loss && strcmp(loss, "end") != 0) {
		control_fail(error, "invalid",
			     "on_host_loss: found \"%s\", expected \"end\" or \"destroy\"", loss);
		return -EINVAL;
	}
	return 0;
}

static int
read_root(const char *path, const json_t *root, struct manager_config *config,
	  struct control_error *error)
{
	static const char *const known[] = { "$schema",      "name",          "listen",
					     "token_file",   "tls",           "socket",
					     "database",     "topology",      "log_level",
					     "heartbeat_ms", "dead_after_ms", "reconcile_ms",
					     "grace_ms",     "on_host_loss",  "limits",
					     "metrics",      "trees",         NULL };
	const char *database = DEFAULT_DATABASE, *topology = NULL;
	char message[CONTROL_MESSAGE_LEN];
	char topology_path[PATH_MAX];
	bool present;

	if (args_check_known_at("", root, known, error) != 0 ||
	    args_name_at("", root, "name", MANAGER_NAME_LEN - 1, &config->name, &present, error) !=
		    0 ||
	    args_string_at("", root, "listen", 63, &config->tcp.listen, &present, error) != 0 ||
	    args_string_at("", root, "token_file", 255, &config->tcp.token_file, &present, error) !=
		    0 ||
	    settings_tls("tls", root, &config->tcp, error) != 0 ||
	    args_string_at("", root, "socket", 107, &config->socket, &present, error) != 0 ||
	    metrics_listen_read(root, "9465", &config->metrics_listen, error) != 0 ||
	    args_string_at("", root, "database", 255, &database, &present, error) != 0 ||
	    args_string_at("", root, "topology", 255, &topology, NULL, error) != 0 ||
	    args_integer_at("", root, "heartbeat_ms", 10, 60000, &config->heartbeat_ms, &present,
			    error) != 0 ||
	    args_integer_at("", root, "dead_after_ms", 20, 600000, &config->dead_after_ms, &present,
			    error) != 0 ||
	    args_integer_at("", root, "reconcile_ms", 100, 3600000, &config->reconcile_ms, &present,
			    error) != 0 ||
	    args_integer_at("", root, "grace_ms", 0, 3600000, &config->grace_ms, &present, error) !=
		    0 ||
	    args_integer_at("", root, "trees", 1, GROUP_MAX_TREES, &config->trees, &present,
			    error) != 0 ||
	    read_words(root, config, error) != 0 || read_limits(root, config, error) != 0)
		return settings_fail_at(path, error);
	if (config->dead_after_ms < 2 * config->heartbeat_ms) {
		control_fail(error, "invalid",
			     "dead_after_ms: found %" JSON_INTEGER_FORMAT
			     ", expected at least twice heartbeat_ms",
			     (json_int_t)config->dead_after_ms);
		return settings_fail_at(path, error);
	}
	if (control_tcp_check(&config->tcp, message) != 0) {
		control_fail(error, "invalid", "%s", message);
		return settings_fail_at(path, error);
	}
	resolve(path, database, config->database);
	resolve(path, topology, topology_path);
	return topology_load(topology_path, &config->topology, error);
}

int
manager_config_load(const char *path, struct manager_config *config, struct control_error *error)
{
	struct manager_config read = {
		.name = "fanin-manager",
		.tcp.listen = DEFAULT_LISTEN,
		.heartbeat_ms = 500,
		.dead_after_ms = 2000,
		.reconcile_ms = 10000,
		.grace_ms = 30000,
		.max_connections = 1024,
		.max_jobs = 1024,
		.trees = 1,
	};
	int ret;

	read.root = settings_load(path, error);
	if (read.root == NULL)
		return -EINVAL;
	ret = read_root(path, read.root, &read, error);
	if (ret != 0) {
		json_decref(read.root);
		return ret;
	}
	*config = read;
	return 0;
}

void
manager_config_free(struct manager_config *config)
{
	topology_free(&config->topology);
	json_decref(config->root);
	*config = (struct manager_config){ 0 };
}
