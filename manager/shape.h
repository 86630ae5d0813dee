/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job's switches make of its packets, as they say of its handler, and what of the manager's
 * work depends on it: one table for each shape. Plans depend on this, and never on the handler's
 * name. Main thread.
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
	 * No tree: the job is on all switches between its hosts; a rank makes each block's result.
	 */
	GROUP_LEADERS,
	GROUP_SHAPES,
};

struct shape {
	const char *name; /* as `version` of a switch has it */
	/* If not, nothing of it ever moves, and what fails is for its hosts to get around. */
	bool has_tree;
	bool has_server;  /* the root of its tree is one */
	bool has_slots;   /* blocks wait in them, and its switches have to have them alike */
	bool may_be_ring; /* its hosts can do without the network what its switches do */
	bool has_order;   /* all trees of a reproducible job combine the ranks in their order */
	/* Its hosts send to each other, or ask each other for what the switches do not repeat. */
	bool tells_peers;

	/* Whether a group asks for what such jobs have not. Returns 0, or -EINVAL with *error. */
	int (*check)(const struct manager *manager, const struct group *group,
		     struct control_error *error);

	/*
	 * Makes the nodes of a group. tree: one that reaches all ranks. n_nodes: set on success.
	 * Returns them, to be freed, or NULL without memory.
	 */
	struct group_node *(*make_nodes)(const struct manager *manager, const struct group *group,
					 const struct tree *tree, uint16_t *n_nodes);

	/*
	 * Adds to a node's arguments of jobs.create what they have beside a tree's. NULL: nothing.
	 */
	void (*add_args)(const struct manager *manager, const struct group *group,
			 const struct group_node *node, json_t *args);

	/* A node with hosts has the job: notes what its switch has said of it. NULL: nothing. */
	void (*note_created)(struct group *group, const struct peer *peer, const json_t *result);

	/* Adds to the answer to a join what the host does not hear of its switch. NULL: nothing. */
	void (*add_answer)(const struct group *group, json_t *result);

	/*
	 * A switch can't make the job now. Returns true if the job goes on without it, and notes
	 * why it has not got it. NULL: it does not. code: of the switch's refusal.
	 */
	bool (*can_spare)(const struct group *group, struct group_node *node, const char *code);

	/* Of a group that runs: something has been lost, or has come back. why: for the log. */
	void (*mend)(struct manager *manager, struct group *group, const char *why);
};

/* Returns what a shape is. */
const struct shape *shape_of(enum group_shape shape);

/* Returns false, and leaves *shape as it is, if there is none of that name. */
bool shape_find(const char *name, enum group_shape *shape);

#endif
