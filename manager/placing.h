/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses which link a job uses of a host with several, such that the ranks behind each switch of
 * its tree are a unit of their order (wire/order.h). Pure functions on the caller's memory, for any
 * thread.
 *
 * The row of a switch is the smallest unit that contains all ranks which are certainly behind the
 * switch, whatever is chosen. All ranks of the row have to be behind the switch, so their other
 * links are ruled out; with fewer links left, more ranks are certain. When nothing follows any
 * more, the lowest rank with several links left is given one of them, and so on; if a rank has none
 * left, the last choice was wrong. The choice is right exactly if each rank has one link left: each
 * switch then has its whole row, and no other rank. A wrong choice mostly shows in its own row, so
 * that few are tried. Some problems would take very many, so the number of steps is limited.
 */
#ifndef FANIN_MANAGER_PLACING_H
#define FANIN_MANAGER_PLACING_H

#include "manager/tree.h"

/*
 * Limit of a search's steps, a step being a look at a switch of a rank or at a rank of a row:
 * PLACING_RANK_STEPS for each rank, and PLACING_ROOTS_STEPS shared by all roots. Over three levels,
 * a search without a wrong choice takes 4 for each rank.
 */
#define PLACING_RANK_STEPS 16
#define PLACING_ROOTS_STEPS (1u << 21)

/* A tree of switches. Switches with ranks behind them are used. */
struct placing_tree {
	uint16_t n_switches;
	uint16_t root;
	const uint16_t *distances; /* of each switch from the root; UINT16_MAX: not in the tree */
	const uint16_t *parents;   /* of each switch but the root; nearer to the root */
	const struct tree_switch *switches;
};

struct placing;

/*
 * Allocates the memory for the searches of one job. places: kept until placing_free. n_roots:
 * number of trees that are searched. Returns NULL without memory.
 */
struct placing *placing_create(const struct tree_place *places, uint16_t n_ranks, uint16_t n_roots);

void placing_free(struct placing *placing);

/*
 * Chooses one of its switches for each rank.
 *
 * chosen: by rank, an index of its place's switches; set on success. Returns 0, or -EDOM if no
 * choice keeps the order of ranks, or if none was found within the steps of a search.
 */
int placing_find(struct placing *placing, const struct placing_tree *tree, uint8_t *chosen);

#endif
