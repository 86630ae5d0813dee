/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs whose blocks have leaders: they have no tree, and are on all switches between their hosts. Main thread. */
#ifndef FANIN_MANAGER_LEADERS_H
#define FANIN_MANAGER_LEADERS_H

#include <stdint.h>

#include <jansson.h>

#include "manager/manager.h"

/* Whether a group of this shape asks for what such jobs have not. Returns 0, or -EINVAL with *error. */
int leaders_check(const struct group *group, struct control_error *error);

/*
 * Makes the nodes of a group: all switches that links of the topology connect with its hosts, whatever their state. Those that are lost
 * get the job when they come, those that are full when they have room. Only the switches of hosts must have it now.
 *
 * tree: one that reaches all ranks; says at which switches they are. nodes: set on success, to be freed. Returns 0 or -ENOMEM.
 */
int leaders_make_nodes(const struct manager *manager, const struct group *group,
		       const struct tree *tree, struct group_node **nodes, uint16_t *n_nodes);

/* The port of a node at one of the topology's links, if packets of the job may take that link; else NULL. */
const char *leaders_port(const struct manager *manager, const struct group *group,
			 const struct group_node *node, uint16_t link);

/* The names of a node's ports that lead to other switches; a new reference. */
json_t *leaders_list_ports(const struct manager *manager, const struct group *group,
			   const struct group_node *node);

/*
 * A switch can't make the job now. Returns true if the job goes on without it: it has none of the job's hosts, and packets pass it all
 * the same.
 */
bool leaders_can_spare(const struct group *group, struct group_node *node, const char *code);

/* Asks the switches of a group that runs to create its job, where it is missing and they can. */
void leaders_go_on(struct manager *manager, struct group *group);

#endif
