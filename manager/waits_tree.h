/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds which ranks a block waits for, from what each switch of a job's tree reports about its own
 * blocks. Knows no connections. Main thread only.
 */
#ifndef FANIN_MANAGER_WAITS_TREE_H
#define FANIN_MANAGER_WAITS_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"
#include "manager/topology.h"
#include "manager/tree.h"

/* A block that has no result yet at one switch. */
struct waits_block {
	uint32_t block;
	bool sent;                  /* sent to the parent, whose result is awaited */
	struct fanin_ranks missing; /* if not sent: children that have not contributed, a child
				       switch by the lowest rank behind it */
	uint64_t since_ms;          /* how long the block has waited */
};

/* One switch of the tree, or the server at its root, as of when the question came. */
struct waits_node {
	char switch_name[TOPOLOGY_NAME_LEN];
	bool is_server;  /* reports each missing rank; switches below it may have passed a block on
			    without keeping it */
	uint16_t parent; /* index of the parent's node, lower than this one's; TREE_NO_PARENT: the
			    root */
	struct fanin_ranks local; /* the ranks at it */
	struct fanin_ranks ranks; /* the ranks at it and behind it */
	bool answered;            /* false: `error` says why */
	char error[CONTROL_MESSAGE_LEN];
	struct fanin_ranks not_joined; /* ranks at it that have not joined, if the job is waiting
					  for ranks */
	struct fanin_ranks ended;   /* ranks behind it whose processes have ended, according to its
				       probes */
	struct fanin_ranks silent;  /* ranks behind it that do not answer its probes */
	struct waits_block *blocks; /* sorted by number; set by waits_node_take */
	size_t n_blocks;
};

/* Reads a switch's answer to jobs.waits. Returns 0; or -EINVAL or -ENOMEM with `error` filled. */
int waits_node_take(struct waits_node *node, const json_t *answer);

/*
 * Describes in an object what the blocks of a tree wait for. Sets "blocks", the blocks that have
 * waited longest, "waiting", the number of all blocks that wait, "not_joined" and "unreached".
 */
void waits_tree_describe(const struct waits_node *nodes, uint16_t n_nodes, json_t *object);

#endif
