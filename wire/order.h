/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which reproducible sums and ordered operators combine the ranks of a job:
 * docs/operators.md, "Order". Pure functions on the caller's memory, for any thread.
 *
 * Definition. Let n be a power of two, at least the number of ranks P. The sum of ranks [f, f+n) is
 * the sum of [f, f+n/2) plus the sum of [f+n/2, f+n); ranks that do not exist (P or above) are left
 * out, and so is a half without ranks. The existing ranks of such an interval are a unit: units are
 * the sets [k * 2^m, (k+1) * 2^m) up to P - 1. The definition consists of the sums of units, each
 * unit once.
 *
 * A switch sends one sum to its parent: the sum of all ranks behind it. It combines its children's
 * sums pairwise and in no other way, so the result at the root is a term, whose parts are the
 * switches' terms. If an operation is not associative, two terms have the same bits for all data
 * only if they are the same term. So:
 *
 * The root has the definition's sum exactly if the ranks behind each switch are a unit.
 *
 * - Only if: the term of a switch must be a part of the definition's term, and these parts are the
 *   sums of units.
 * - If: let the ranks behind a switch be a unit U, and the ranks behind each child be a unit as
 *   well (a host's rank is one). Two units are disjoint, or one contains the other. Halve U as the
 *   definition does, and so on, until the rank sets of the halves are the children's: no child's
 *   unit crosses a cut, as it would overlap both halves without being in one of them. So the
 *   definition's sum of U is a sum of the children's sums, which by induction are the definition's.
 *   The cut between two children is at the highest bit in which their lowest ranks differ, so the
 *   lowest ranks alone determine how to combine the children.
 */
#ifndef FANIN_WIRE_ORDER_H
#define FANIN_WIRE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ranks.h"
#include "wire/wire.h"

/*
 * End of an error message about ranks behind one switch, in a job of a given number of ranks, that
 * are not a unit.
 */
#define FANIN_ORDER_PROBLEM                                                                                                 \
	"the order of ranks never sums up by themselves: expected 2, 4, 8 ... ranks in a row that begins at a multiple of " \
	"their number, or the last ones from such a multiple on"

/*
 * The tree by which a switch combines its children: a binary tree with a leaf for each child. For n
 * children its inner nodes are 1 to n - 1, and each has two children. An entry is twice the
 * parent's number, plus 1 on the parent's right side; 0: there is no parent.
 */
struct fanin_order {
	uint8_t up_of_child[FANIN_WIRE_MAX_CHILDREN];
	uint8_t up_of_node[FANIN_WIRE_MAX_CHILDREN];
};

static inline unsigned int
fanin_order_node(uint8_t up)
{
	return up >> 1;
}

static inline bool
fanin_order_is_right(uint8_t up)
{
	return (up & 1) != 0;
}

/*
 * Determines how children are combined.
 *
 * first: the lowest rank behind each child; children with the same rank are in any order. n: 0 to
 * FANIN_WIRE_MAX_CHILDREN. order: set; may be NULL. Returns the maximum number of sums that wait
 * for their siblings at the same time, 1 at least: half of n rounded up, if the children are hosts
 * of consecutive ranks that begin at a multiple of a power of two as large as n.
 */
unsigned int fanin_order_build(struct fanin_order *order, const uint16_t *first, unsigned int n);

/* Returns true if the n ranks from `first` on are a unit of a job of n_ranks. */
bool fanin_order_is_unit_run(unsigned int first, unsigned int n, unsigned int n_ranks);

/* Returns true if the ranks of a set are a unit of a job of n_ranks. */
bool fanin_order_is_unit(const struct fanin_ranks *set, unsigned int n_ranks);

/*
 * Writes a set of ranks as text: "0-2, 5", or "0-2, 5 and 9 others". text: of size bytes, 64 at
 * least. Returns text.
 */
const char *fanin_order_describe(const struct fanin_ranks *set, char *text, size_t size);

#endif
