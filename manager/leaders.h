/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders: they have no tree, and are on all switches between their hosts.
 * Main thread.
 */
#ifndef FANIN_MANAGER_LEADERS_H
#define FANIN_MANAGER_LEADERS_H

#include <stdint.h>

#include <jansson.h>

#include "manager/manager.h"

extern const struct shape leaders_shape;

/*
 * The port of a node at one of the topology's links, if packets of the job may take that link; else
 * NULL.
 */
const char *leaders_port(const struct manager *manager, const struct group *group,
			 const struct group_node *node, uint16_t link);

/* The names of a node's ports that lead to other switches; a new reference. */
json_t *leaders_list_ports(const struct manager *manager, const struct group *group,
			   const struct group_node *node);

#endif
