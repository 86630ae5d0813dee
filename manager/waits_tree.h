/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From what the switches of a job's tree say of their own blocks to which ranks a block waits for.
 * Knows no connections. Main thread only.
 */
#ifndef FANIN_MANAGER_WAITS_TREE_H
#define FANIN_MANAGER_WAITS_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "control/control.h"
#include "manager/topology.h"
#include "manager/tree.h"

/* A block without a result at one switch. */
struct waits_block {
	uint32_t block;
	bool sent;                  /* the parent's result is awaited */
	struct fanin_ranks missing; /* else: the ranks of children that have not contributed, of a
				       switch the lowest behind it */
	uint64_t since_ms;          /* how long */
};

/* One switch of the tree, or the server at its root, as it was when the question came. */
struct waits_node {
	char switch_name[TOPOLOGY_NAME_LEN];
	bool is_server;  /* what it misses is known by rank, and what is below it may have passed a
			    block on */
	uint16_t parent; /* index of its node, which is lower; TREE_NO_PARENT: the root */
	struct fanin_ranks local; /* the ranks at it */
	struct fanin_ranks ranks; /* and all behind it */
	bool answered;            /* else `error` says why not */
	char error[CONTROL_MESSAGE_LEN];
	struct fanin_ranks not_joined; /* ranks at it; of a job that does not run */
	struct fanin_ranks ended; /* ranks behind it whose processes have ended, as its probes found
				   */
	struct fanin_ranks silent;  /* likewise: that don't answer */
	struct waits_block *blocks; /* by number, once waits_node_take was called */
	size_t n_blocks;
};

/*
 * Reads what a switch answered to jobs.waits. Returns 0; or -EINVAL or -ENOMEM with `error` filled.
 */
int waits_node_take(struct waits_node *node, const json_t *answer);

/*
 * Who waits for whom in a tree. Sets "blocks", those that wait longest, "waiting", how many there
 * are in all, "not_joined" and "unreached" in an object.
 */
void waits_tree_describe(const struct waits_node *nodes, uint16_t n_nodes, json_t *object);

#endif
