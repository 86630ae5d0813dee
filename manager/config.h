/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager's configuration: a JSON file that names another one with the topology. Read once at
 * start and constant afterwards; an error names the file, the path of the key, what was found and
 * what is expected.
 */
#ifndef FANIN_MANAGER_CONFIG_H
#define FANIN_MANAGER_CONFIG_H

#include <limits.h>
#include <stdbool.h>

#include "control/control.h"
#include "control/log.h"
#include "manager/topology.h"

#define MANAGER_DEFAULT_PORT 21932
#define MANAGER_NAME_LEN 32

struct manager_config {
	const char *name; /* marks its jobs on the switches */
	struct control_tcp tcp;
	const char *socket;         /* a Unix socket; NULL: none */
	const char *metrics_listen; /* IP:PORT; NULL: none */
	char database[PATH_MAX];
	enum log_level log_level;
	int64_t heartbeat_ms;      /* between pings of a switch */
	int64_t dead_after_ms;     /* a switch that has not answered for so long is dead */
	int64_t reconcile_ms;      /* between comparisons of the jobs on a switch */
	int64_t grace_ms;          /* for hosts to come back after the manager's restart */
	bool destroy_on_host_loss; /* true: losing a host destroys its job; false: a job ends with
				      its last host */
	int64_t max_connections;
	int64_t max_jobs;
	int64_t trees; /* number of trees of a job whose hosts ask for no number */
	struct topology topology;
	json_t *root; /* owns the strings */
};

/*
 * Reads and checks the configuration and its topology.
 *
 * Returns 0 with *config filled, for manager_config_free; or -EINVAL with *error filled.
 */
int manager_config_load(const char *path, struct manager_config *config,
			struct control_error *error);

void manager_config_free(struct manager_config *config);

#endif
