/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which link of a host with several a job uses, so that the ranks behind each switch of its tree
 * are a unit of their order (wire/order.h). Pure functions on the caller's memory, for any thread.
 *
 * The row of a switch is the smallest unit that has all ranks in it which are certainly behind the
 * switch, whatever is chosen. All of the row's ranks have to be behind it, so their other links are
 * of no use, and with fewer links left more ranks are certain. When this comes to an end, the
 * lowest rank with several links left is given one of them, and so on; if a rank has none left, the
 * last choice was wrong. The choice is right exactly if each rank has one link: each switch has its
 * whole row then, and no other rank. A wrong choice mostly shows in its own row, so that few are
 * tried; but there may be problems that take very many, and the search has an end.
 */
#ifndef FANIN_MANAGER_PLACING_H
#define FANIN_MANAGER_PLACING_H

#include "manager/tree.h"

/*
 * Steps that a search takes at most, a step being a look at a switch of a rank, or at a rank of a
 * row: so many for each rank, and a share of so many for all roots together. Over three levels a
 * search that chooses nothing wrong takes 4 for each rank.
 */
#define PLACING_RANK_STEPS 16
#define PLACING_ROOTS_STEPS (1u << 21)

/* A tree of switches, of which those are used that have ranks behind them. */
struct placing_tree {
	uint16_t n_switches;
	uint16_t root;
	const uint16_t *distances; /* of each switch from the root; UINT16_MAX: the tree reaches it
				      not */
	const uint16_t *parents;   /* of each switch but the root; nearer to the root */
	const struct tree_switch *switches;
};

struct placing;

/*
 * Makes the memory for the searches of one job. places: kept until placing_free. n_roots: how many
 * trees are searched. Returns NULL if there is none.
 */
struct placing *placing_create(const struct tree_place *places, uint16_t n_ranks, uint16_t n_roots);

void placing_free(struct placing *placing);

/*
 * Chooses one of its switches for each rank.
 *
 * chosen: by rank, an index of its place's switches; set on success. Returns 0, or -EDOM if no
 * choice has the order of ranks, or if none was found in the steps that a search has.
 */
int placing_find(struct placing *placing, const struct placing_tree *tree, uint8_t *chosen);

#endif
