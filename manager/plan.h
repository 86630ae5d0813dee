/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a group's job goes. Main thread. */
#ifndef FANIN_MANAGER_PLAN_H
#define FANIN_MANAGER_PLAN_H

#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

struct manager;
struct group;
struct topology_host;

/*
 * The code of a job whose trees that reach all ranks have none that keeps their order, which it
 * promises.
 */
#define PLAN_ORDER "order"

/*
 * Finds a tree for a group whose ranks are settled: its nodes, payload and slots. Returns 0; or
 * -errno with *error filled: code "no_path", "no_room", PLAN_ORDER, or "invalid" for what no switch
 * can change. Of a group that is being made ranks that nobody has asked for may change.
 */
int plan_group(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Finds the shape of a group's handler, as far as the switches have told, unless the group has it
 * already, and whether the group asks for what jobs of that shape have not. Returns 0; or -EINVAL
 * with *error.
 */
int plan_check_shape(const struct manager *manager, struct group *group,
		     struct control_error *error);

/* The arguments of jobs.create for one node; a new reference. */
json_t *plan_create_args(const struct manager *manager, const struct group *group, uint16_t node);

/* Adds a host's link to the members that the arguments of jobs.create list. */
void plan_add_host(json_t *list, const struct topology_host *link, unsigned int rank);

#endif
