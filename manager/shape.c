/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shapes of jobs that have a tree: see shape.h. The one without a tree is in leaders.c. Main
 * thread.
 */
#include "manager/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manager/handlers.h"
#include "manager/leaders.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "manager/reconcile.h"

/* Makes the nodes of a tree. */
static struct group_node *
make_nodes(const struct manager *manager, const struct group *group, const struct tree *tree,
	   uint16_t *n_nodes)
{
	const struct topology *topology = &manager->config->topology;
	struct group_node *nodes = calloc(tree->n_nodes, sizeof(*nodes));

	(void)group;
	for (uint16_t i = 0; nodes != NULL && i < tree->n_nodes; i++) {
		const struct tree_node *node = &tree->nodes[i];
		const struct topology_end *ends;
		unsigned int here; /* the link's end at this switch */

		nodes[i].switch_index = node->switch_index;
		nodes[i].parent = node->parent;
		nodes[i].link = node->parent == TREE_NO_PARENT ? TOPOLOGY_NO_LINK : node->link;
		memcpy(nodes[i].ip, manager->peers[node->switch_index].ip, sizeof(nodes[i].ip));
		nodes[i].udp_port = manager->peers[node->switch_index].udp_port;
		nodes[i].local = node->local;
		nodes[i].ranks = node->ranks;
		snprintf(nodes[i].switch_name, sizeof(nodes[i].switch_name), "%s",
			 topology->switches[node->switch_index].name);
		if (node->parent == TREE_NO_PARENT)
			continue;
		ends = topology->links[node->link].ends;
		here = ends[0].switch_index != node->switch_index;
		snprintf(nodes[i].port, sizeof(nodes[i].port), "%s",
			 peer_port_of(manager, &ends[here]));
		snprintf(nodes[i].parent_port, sizeof(nodes[i].parent_port), "%s",
			 peer_port_of(manager, &ends[1 - here]));
	}
	*n_nodes = tree->n_nodes;
	return nodes;
}

static int
check_server(const struct manager *manager, const struct group *group, struct control_error *error)
{
	(void)manager;
	return handlers_check_hosts(group, "a parameter server", error);
}

static const struct shape tree_shape = {
	.name = "tree",
	.has_tree = true,
	.has_slots = true,
	.may_be_ring = true,
	.has_order = true,
	.check = handlers_check_order,
	.make_nodes = make_nodes,
	.mend = move_tree_if_broken,
};

static const struct shape multicast_shape = {
	.name = "multicast",
	.has_tree = true,
	.tells_peers = true,
	.check = handlers_check_order,
	.make_nodes = make_nodes,
	.mend = move_tree_if_broken,
};

static const struct shape server_shape = {
	.name = "server",
	.has_tree = true,
	.has_server = true,
	.has_slots = true,
	.check = check_server,
	.make_nodes = make_nodes,
	.mend = move_tree_if_broken,
};

static const struct shape *const shapes[GROUP_SHAPES] = {
	[GROUP_TREE] = &tree_shape,
	[GROUP_MULTICAST] = &multicast_shape,
	[GROUP_SERVER] = &server_shape,
	[GROUP_LEADERS] = &leaders_shape,
};

const struct shape *
shape_of(enum group_shape shape)
{
	return shapes[shape];
}

bool
shape_find(const char *name, enum group_shape *shape)
{
	for (unsigned int i = 0; i < GROUP_SHAPES; i++) {
		if (strcmp(shapes[i]->name, name) == 0) {
			*shape = (enum group_shape)i;
			return true;
		}
	}
	return false;
}
