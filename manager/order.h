/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the ranks of hosts that leave them to the manager, such that the switches can keep the
 * order of ranks (wire/order.h); describes why if they can't. Main thread.
 */
#ifndef FANIN_MANAGER_ORDER_H
#define FANIN_MANAGER_ORDER_H

#include <stdbool.h>
#include <stddef.h>

struct group;
struct tree;

/*
 * Gives each member without a rank one of the free ranks, in the order of their hosts' addresses,
 * and sorts the members by rank. All members have joined, and their places are not known yet.
 */
void order_settle(struct group *group);

/* Takes the ranks back from the members that asked for none: not all members are there any more. */
void order_unsettle(struct group *group);

/* True if the manager has chosen a rank of the group. */
bool order_has_choice(const struct group *group);

/*
 * Deals the ranks that no member has asked for anew, switch by switch of a tree that was built with
 * the old ranks. Below one switch, branches with 2, 4, 8 ... ranks come first, largest first, so
 * that each begins at a multiple of its number; branches of one size are in the order of their
 * lowest addresses. The same hosts at the same switches get the same ranks, in whatever order they
 * join.
 *
 * No member may have been told its rank. The members are sorted by rank again.
 */
void order_deal(struct group *group, const struct tree *tree);

/*
 * Writes which ranks of a tree are no unit, and at which switches: "ranks 0-2 at leaf0 and 3-5 at
 * leaf1". name_of: returns a switch's name.
 */
void order_describe(const struct tree *tree, unsigned int n_ranks,
		    const char *(*name_of)(const void *user, unsigned int index), const void *user,
		    char *text, size_t size);

#endif
