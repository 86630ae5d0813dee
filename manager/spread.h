/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much may be below a switch of a job, in any tree that the job may have or move to: its slots
 * are for so much from the beginning. Pure functions on the caller's memory, for any thread.
 */
#ifndef FANIN_MANAGER_SPREAD_H
#define FANIN_MANAGER_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "manager/tree.h"

/* Where the ranks of a job may be, and which switches may be beside each other in its tree. */
struct spread {
	uint16_t n_switches;
	uint16_t n_ranks;
	bool keeps_order; /* the ranks behind each switch are a unit */
	bool has_choice;  /* a host has links to several switches */
	uint8_t n_at[TREE_MAX_RANKS];
	uint16_t at[TREE_MAX_RANKS][TREE_MAX_CHOICES]; /* of each rank: the switches that its host
							  has links to */
	uint16_t takers[TREE_MAX_SWITCHES];            /* the ranks that may be at a switch */
	uint16_t n_taking;                             /* switches that some may be at */
	uint16_t beside[TREE_MAX_SWITCHES];            /* the switches that a switch has links to */
	uint16_t taking[TREE_MAX_SWITCHES];            /* those of them that ranks may be at */
};

struct spread_below {
	uint32_t n_children;
	uint32_t n_pairs; /* as fanin_order_build counts them */
};

void spread_begin(struct spread *spread, uint16_t n_switches, uint16_t n_ranks, bool keeps_order);

/*
 * Adds a switch that a rank's host has a link to. All of these are added before links between
 * switches.
 */
void spread_add_place(struct spread *spread, uint16_t rank, uint16_t at);

/* Adds a link, once for each two switches. */
void spread_add_link(struct spread *spread, uint16_t a, uint16_t b);

/* The most children of a switch, and the most sums that wait at one. */
struct spread_below spread_max(const struct spread *spread);

#endif
