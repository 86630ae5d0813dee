/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction tree of a job (Flare section 4): which switches combine which ranks, and which one
 * is the root. Pure: takes a graph and the places of ranks, and returns a tree. Any thread.
 */
#ifndef FANIN_MANAGER_TREE_H
#define FANIN_MANAGER_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/ranks.h"

#define TREE_MAX_SWITCHES 256
#define TREE_MAX_LINKS 2048 /* between switches */
#define TREE_MAX_SERVERS 64
#define TREE_MAX_NODES (TREE_MAX_SWITCHES + TREE_MAX_SERVERS)
#define TREE_MAX_BRANCHES (TREE_MAX_LINKS + TREE_MAX_SERVERS)
#define TREE_MAX_RANKS FANIN_WIRE_MAX_RANKS
#define TREE_MAX_CHOICES 4 /* at most, switches that a rank's host is linked to */
#define TREE_NO_PARENT UINT16_MAX

/* A switch, or a server, which has one link. */
struct tree_switch {
	bool usable;   /* lives, is reached, and has room for one more job */
	uint32_t jobs; /* that the switch has already */
	uint32_t own;  /* other trees of this job that contain the switch */
};

/* A link from a switch to another or to a server. Two switches may have several. */
struct tree_link {
	uint16_t a, b; /* switches or servers */
	bool usable;
	uint32_t jobs; /* jobs whose trees use the link already */
	uint32_t own;  /* other trees of this job that use the link */
};

struct tree_graph {
	const struct tree_switch *switches;
	const struct tree_link *links;
	uint16_t n_switches; /* with servers, which come last; at most TREE_MAX_NODES */
	uint16_t n_servers;  /* 0: the root is a switch; otherwise a server */
	uint16_t n_links;    /* at most TREE_MAX_BRANCHES */
	bool in_order; /* the tree has to combine its ranks in their order: the ranks behind each
			  switch are a unit (wire/order.h) */
};

/* The switches that a rank's host is linked to. The tree uses one of them. */
struct tree_place {
	uint16_t switches[TREE_MAX_CHOICES];
	uint8_t n_switches;
};

struct tree_node {
	uint16_t switch_index;
	uint16_t parent; /* index of its node, below the node's own; TREE_NO_PARENT: root */
	uint16_t link;   /* to the parent */
	struct fanin_ranks local; /* the ranks whose hosts are at this switch */
	struct fanin_ranks ranks; /* local ranks and all ranks behind its children */
};

struct tree {
	struct tree_node nodes[TREE_MAX_NODES]; /* the root first */
	uint16_t n_nodes;
	uint16_t depth;                 /* links between the root and the farthest switch */
	uint16_t shared;                /* number of its links that other trees of this job use */
	uint8_t chosen[TREE_MAX_RANKS]; /* by rank: index of its place's switches */
};

/*
 * Finds a tree of shortest paths over usable switches and links. The root is the one of the least
 * depth; among these, the one with the fewest switches in its tree, then the one with the fewest
 * jobs at the root, then in the tree. The parent of a switch is one that is in the tree already, or
 * else the one with the fewest jobs, so that jobs spread over spines. Other trees of the same job,
 * on links and at the root, count before jobs: a job's trees use different spines as long as there
 * are any.
 *
 * If the graph has servers, the root is a server, with one child. It is a server without another
 * tree of this job, as long as there is any; among these one with the fewest jobs; among these the
 * one with the best tree.
 *
 * A rank's host may be linked to several switches. The tree uses one that does not make it deeper:
 * of these, one that is in the tree already, then the nearest to the root, then the one that most
 * other ranks can use as well, then the one with the fewest jobs, then the first.
 *
 * If the tree has to be in order, and no root has such a tree with these switches, they are chosen
 * for the order (placing.h), even if the tree is deeper then.
 *
 * places: of 1 to TREE_MAX_RANKS ranks.
 * Returns 0 with *tree set; -EHOSTUNREACH if no root reaches all of them; -EDOM if some do, but
 * none in the order of ranks; -ENOENT if none of a rank's switches is usable; -EINVAL if a number
 * is out of range; -ENOMEM.
 */
int tree_build(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks,
	       struct tree *tree);

#endif
