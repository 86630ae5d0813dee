/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction tree of a job (Flare section 4): which switches add up what, and where the root is.
 * Pure: a graph and the places of the ranks in, a tree out. Any thread.
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
#define TREE_MAX_CHOICES 4 /* switches that a rank's host is linked to */
#define TREE_NO_PARENT UINT16_MAX

/* A switch, or a server, which has one link. */
struct tree_switch {
	bool usable;   /* lives, is reached, and has room for one more job */
	uint32_t jobs; /* that it has already */
	uint32_t own;  /* other trees of this job that it is in */
};

/* Between two switches, of which there may be several, or from a switch to a server. */
struct tree_link {
	uint16_t a, b; /* switches or servers */
	bool usable;
	uint32_t jobs; /* whose trees use it already */
	uint32_t own;  /* other trees of this job that use it */
};

struct tree_graph {
	const struct tree_switch *switches;
	const struct tree_link *links;
	uint16_t n_switches; /* with servers, which are the last; at most TREE_MAX_NODES */
	uint16_t n_servers;  /* 0: the tree has a switch as its root, else a server */
	uint16_t n_links;    /* at most TREE_MAX_BRANCHES */
	bool in_order; /* the tree has to combine its ranks in their order: those behind each switch
			  are a unit (wire/order.h) */
};

/* Where a rank's host is; where it has several links, the tree uses one of them. */
struct tree_place {
	uint16_t switches[TREE_MAX_CHOICES];
	uint8_t n_switches;
};

struct tree_node {
	uint16_t switch_index;
	uint16_t parent; /* index of its node, lower than the node's own; TREE_NO_PARENT: the root
			  */
	uint16_t link;   /* to the parent */
	struct fanin_ranks local; /* the ranks whose hosts are at this switch */
	struct fanin_ranks ranks; /* those and all behind its children */
};

struct tree {
	struct tree_node nodes[TREE_MAX_NODES]; /* the root first */
	uint16_t n_nodes;
	uint16_t depth;                 /* links between the root and the farthest switch */
	uint16_t shared;                /* of its links, those that other trees of this job use */
	uint8_t chosen[TREE_MAX_RANKS]; /* by rank: which of its place's switches */
};

/*
 * Finds a tree of shortest paths over usable switches and links. Its root is the one of the least
 * depth; among these the one with the fewest switches in its tree, then with the fewest jobs at the
 * root, then in the tree. A switch's parent is one that is in the tree already, or else that with
 * the fewest jobs: so jobs spread over spines. Before jobs are compared, so are other trees of the
 * same job, on links and at the root: these go over different spines as long as there are any.
 *
 * If the graph has servers, one of them is the root, with one child. It is one that has no other
 * tree of this job, as long as there is any; among these one with the fewest jobs, and only then
 * the one of the best tree.
 *
 * Of several switches that a rank's host is linked to, those count that make the tree no deeper: of
 * these one that is in the tree already, then the nearest to the root, then the one that most other
 * ranks can use as well, then the one with the fewest jobs, then the first.
 *
 * If the tree has to be in order, and no root has one like that with these, switches are chosen for
 * the order (placing.h), even if the tree is deeper then.
 *
 * places: of 1 to TREE_MAX_RANKS ranks.
 * Returns 0 with *tree set; -EHOSTUNREACH if no root reaches all of them; -EDOM if some do, but
 * none in the order of ranks; -ENOENT if none of a rank's switches is usable; -EINVAL if a number
 * is out of range; -ENOMEM.
 */
int tree_build(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks,
	       struct tree *tree);

#endif
