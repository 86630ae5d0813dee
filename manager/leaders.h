/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders: such a job has no tree and runs on all switches between its
 * hosts. Main thread only.
 */
#ifndef FANIN_MANAGER_LEADERS_H
#define FANIN_MANAGER_LEADERS_H

#include <stdint.h>

#include <jansson.h>

#include "manager/manager.h"

extern const struct shape leaders_shape;

/*
 * Returns a node's port at one of the topology's links, or NULL if the job's packets may not take
 * that link.
 */
const char *leaders_port(const struct manager *manager, const struct group *group,
			 const struct group_node *node, uint16_t link);

/* Returns the names of a node's ports that lead to other switches, a new reference. */
json_t *leaders_list_ports(const struct manager *manager, const struct group *group,
			   const struct group_node *node);

#endif
