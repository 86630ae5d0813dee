/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans where a group's job runs: its tree, payload and slots. Main thread only. */
#ifndef FANIN_MANAGER_PLAN_H
#define FANIN_MANAGER_PLAN_H

#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

struct manager;
struct group;
struct topology_host;

/*
 * Error code: trees reach all ranks, but none of them keeps the order of ranks that the job
 * promises.
 */
#define PLAN_ORDER "order"

/*
 * Finds a tree for a group whose ranks are settled: its nodes, payload and slots. While the group
 * is being made, ranks that nobody has asked for may change.
 * Returns 0; or -errno with *error filled: code "no_path", "no_room", PLAN_ORDER, or "invalid" for
 * problems that no switch can change.
 */
int plan_group(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Finds the shape of a group's handler, as far as the switches have reported it, unless the group
 * already has one. Checks that jobs of that shape support what the group asks for. Returns 0; or
 * -EINVAL with *error.
 */
int plan_check_shape(const struct manager *manager, struct group *group,
		     struct control_error *error);

/* Returns the arguments of jobs.create for one node, a new reference. */
json_t *plan_create_args(const struct manager *manager, const struct group *group, uint16_t node);

/* Adds a host's link to the members that the arguments of jobs.create list. */
void plan_add_host(json_t *list, const struct topology_host *link, unsigned int rank);

#endif
