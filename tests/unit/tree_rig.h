/* SPDX-License-Identifier: BSD-3-Clause */
/* A graph of switches under the test's control, for suites of the manager's trees. */
#ifndef FANIN_TESTS_UNIT_TREE_RIG_H
#define FANIN_TESTS_UNIT_TREE_RIG_H

#include <string.h>

#include "manager/tree.h"

static struct tree_switch switches[TREE_MAX_SWITCHES];
static struct tree_link links[2 * TREE_MAX_SWITCHES];
static struct tree_graph graph;
static struct tree_place places[TREE_MAX_RANKS];
static struct tree tree;

/* Begins a graph of switches without links, in which the order of ranks counts. */
static inline void
start(uint16_t n_switches)
{
	memset(switches, 0, sizeof(switches));
	memset(links, 0, sizeof(links));
	memset(places, 0, sizeof(places));
	graph = (struct tree_graph){
		.switches = switches, .links = links, .n_switches = n_switches, .in_order = true
	};
	for (uint16_t i = 0; i < n_switches; i++)
		switches[i].usable = true;
}

static inline void
add_link(uint16_t a, uint16_t b)
{
	links[graph.n_links++] = (struct tree_link){ .a = a, .b = b, .usable = true };
}

/* Begins with leaves, and spines that are linked to each. */
static inline void
start_leaf_spine(uint16_t n_leaves, uint16_t n_spines)
{
	start((uint16_t)(n_leaves + n_spines));
	for (uint16_t leaf = 0; leaf < n_leaves; leaf++) {
		for (uint16_t spine = 0; spine < n_spines; spine++)
			add_link(leaf, (uint16_t)(n_leaves + spine));
	}
}

/* Begins with leaves 0 to 3, two below each of two more, and a core. */
static inline void
start_three_levels(void)
{
	start(7);
	for (uint16_t leaf = 0; leaf < 4; leaf++)
		add_link(leaf, (uint16_t)(4 + leaf / 2));
	add_link(4, 6);
	add_link(5, 6);
}

#endif
