/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports which ranks blocks wait for, as the switches tell. Main thread only. */
#ifndef FANIN_MANAGER_WAITS_H
#define FANIN_MANAGER_WAITS_H

#include <jansson.h>

#include "control/control.h"

struct manager;

/*
 * Asks all switches of a job's tree, or of all jobs' trees, which blocks wait there, and answers
 * which ranks they wait for.
 */
json_t *command_waits(void *user, struct control_client *client, json_t *id, const json_t *args,
		      struct control_error *error);

/* Drops all unanswered questions. The peers must have ended. */
void waits_end(struct manager *manager);

#endif
