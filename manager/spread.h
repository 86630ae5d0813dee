/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of what may be below a switch of a job, in any tree that the job may have or move to: its
 * slots are sized for that from the start. Pure functions on the caller's memory, for any thread.
 */
#ifndef FANIN_MANAGER_SPREAD_H
#define FANIN_MANAGER_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "manager/tree.h"

/* The switches that a job's ranks may be at, and the switches that may be neighbors in its tree. */
struct spread {
	uint16_t n_switches;
	uint16_t n_ranks;
	bool keeps_order; /* the ranks behind each switch are a unit */
	bool has_choice;  /* a host has links to several switches */
	uint8_t n_at[TREE_MAX_RANKS];
	uint16_t at[TREE_MAX_RANKS][TREE_MAX_CHOICES]; /* of each rank: the switches that its host
							  is linked to */
	uint16_t takers[TREE_MAX_SWITCHES]; /* of each switch: number of ranks that may be at it */
	uint16_t n_taking;                  /* number of switches with takers */
	uint16_t beside[TREE_MAX_SWITCHES]; /* of each switch: number of switches linked to it */
	uint16_t taking[TREE_MAX_SWITCHES]; /* of each switch: number of these with takers */
};

struct spread_below {
	uint32_t n_children;
	uint32_t n_pairs; /* sums that wait, as fanin_order_build counts them */
};

void spread_begin(struct spread *spread, uint16_t n_switches, uint16_t n_ranks, bool keeps_order);

/* Adds a switch that a rank's host is linked to. Add all of these before links between switches. */
void spread_add_place(struct spread *spread, uint16_t rank, uint16_t at);

/* Adds a link between two switches. Add each pair once. */
void spread_add_link(struct spread *spread, uint16_t a, uint16_t b);

/* Returns the most children of a switch, and the most sums that wait at one. */
struct spread_below spread_max(const struct spread *spread);

#endif
