/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which host gets which rank, where hosts leave that to the manager, so that the order of ranks
 * (wire/order.h) comes out over the switches; and why it does not where it can't. Main thread.
 */
#ifndef FANIN_MANAGER_ORDER_H
#define FANIN_MANAGER_ORDER_H

#include <stdbool.h>
#include <stddef.h>

struct group;
struct tree;

/*
 * Gives each member without a rank one of those that are left, in the order of their hosts'
 * addresses, and puts the members in the order of ranks: all have come, and where they are is not
 * known yet.
 */
void order_settle(struct group *group);

/* The members that have asked for no rank have none again: not all are there any more. */
void order_unsettle(struct group *group);

/* True if a rank of the group is the manager's choice. */
bool order_has_choice(const struct group *group);

/*
 * Deals the ranks that nobody has asked for anew: switch by switch of a tree, with which they were
 * settled until now. Of those below one switch come first those with 2, 4, 8 ... ranks, the most
 * first, so that each begins at a multiple of its number; of as many, the one with the lowest
 * address. The same hosts at the same switches get the same ranks, whoever came first.
 *
 * Nobody may have been told of the ranks. The members are in the order of ranks again.
 */
void order_deal(struct group *group, const struct tree *tree);

/*
 * Writes which ranks of a tree are no unit, and at which switches: "ranks 0-2 at leaf0 and 3-5 at
 * leaf1". names: of all switches.
 */
void order_describe(const struct tree *tree, unsigned int n_ranks,
		    const char *(*name_of)(const void *user, unsigned int index), const void *user,
		    char *text, size_t size);

#endif
