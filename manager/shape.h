/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shape of a job: what its switches do with its packets, as they report it for the handler.
 * There is one table per shape of what the manager's work depends on. Plans depend on the shape,
 * never on the handler's name. Main thread.
 */
#ifndef FANIN_MANAGER_SHAPE_H
#define FANIN_MANAGER_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"

struct group;
struct group_node;
struct manager;
struct peer;
struct tree;

enum group_shape {
	GROUP_TREE,      /* a reduction tree, in whose slots blocks are combined */
	GROUP_MULTICAST, /* a tree without slots: packets of any member go to all others */
	GROUP_SERVER,    /* a reduction tree with a parameter server at its root */
	/*
	 * No tree: the job is on all switches between its hosts, and a rank makes each block's
	 * result.
	 */
	GROUP_LEADERS,
	GROUP_SHAPES,
};

struct shape {
	const char *name; /* as in a switch's `version` */
	/* If false, the job never moves, and its hosts have to get around failures. */
	bool has_tree;
	bool has_server;  /* the root of the tree is a parameter server */
	bool has_slots;   /* blocks wait in slots; all its switches must have the same number */
	bool may_be_ring; /* its hosts can do themselves what its switches do */
	bool has_order;   /* all trees of a reproducible job combine the ranks in their order */
	/*
	 * Its hosts send to each other, or request from each other what the switches do not repeat.
	 */
	bool tells_peers;

	/*
	 * Checks that a group asks for nothing that its shape lacks. Returns 0, or -EINVAL with
	 * *error.
	 */
	int (*check)(const struct manager *manager, const struct group *group,
		     struct control_error *error);

	/*
	 * Makes the nodes of a group. tree: reaches all ranks. n_nodes: set on success. Returns an
	 * array to be freed, or NULL without memory.
	 */
	struct group_node *(*make_nodes)(const struct manager *manager, const struct group *group,
					 const struct tree *tree, uint16_t *n_nodes);

	/*
	 * Adds to a node's arguments of jobs.create what those of a tree do not have. NULL:
	 * nothing.
	 */
	void (*add_args)(const struct manager *manager, const struct group *group,
			 const struct group_node *node, json_t *args);

	/* Notes what the switch of a node with hosts has answered to jobs.create. NULL: nothing. */
	void (*note_created)(struct group *group, const struct peer *peer, const json_t *result);

	/*
	 * Adds to the answer to a join what the host does not learn from its switch. NULL: nothing.
	 */
	void (*add_answer)(const struct group *group, json_t *result);

	/*
	 * Handles a switch that can't create the job now. Returns true if the job runs without the
	 * switch, and notes why the switch does not have it. NULL: no job of this shape does. code:
	 * of the switch's refusal.
	 */
	bool (*can_spare)(const struct group *group, struct group_node *node, const char *code);

	/* Handles a loss, or its end, for a running group. why: for the log. */
	void (*mend)(struct manager *manager, struct group *group, const char *why);
};

/* Returns the table of a shape. */
const struct shape *shape_of(enum group_shape shape);

/* Finds a shape by name. Returns false, with *shape unchanged, if there is none. */
bool shape_find(const char *name, enum group_shape *shape);

#endif
