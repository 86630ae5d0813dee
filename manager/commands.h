/* SPDX-License-Identifier: BSD-3-Clause */
/* The control commands of faninctl. Main thread. */
#ifndef FANIN_MANAGER_COMMANDS_H
#define FANIN_MANAGER_COMMANDS_H

#include <jansson.h>

#include "control/control.h"

json_t *command_version(void *user, const json_t *args, struct control_error *error);
json_t *command_topology(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs(void *user, const json_t *args, struct control_error *error);
json_t *command_trees(void *user, const json_t *args, struct control_error *error);
json_t *command_stats(void *user, const json_t *args, struct control_error *error);
json_t *command_jobs_destroy(void *user, const json_t *args, struct control_error *error);

#endif
