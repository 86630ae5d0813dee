/* SPDX-License-Identifier: BSD-3-Clause */
/* See order.h. */
#include "manager/order.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "manager/group.h"
#include "wire/order.h"

#define MAX_NAMED 3 /* switches named in an error */

/*
 * A child of a switch: a switch of the tree, or the switch's own hosts, which count as one branch
 * here.
 */
struct branch {
	uint16_t node;    /* of the tree; the switch's own node stands for its hosts */
	uint16_t n;       /* ranks */
	uint32_t address; /* the lowest address of its hosts */
};

/* The state of dealing ranks. */
struct deal {
	const struct group *group;
	const struct tree *tree;
	uint16_t *places;        /* of each old rank: its place among all */
	struct branch *branches; /* of one switch */
	uint16_t *starts;        /* of each node: the first place of the ranks behind it */
};

/* ------------------------------------------------------------------------ members */

/* Sorts the members by rank. Each exchange puts one member in its place. */
static void
sort_members(struct group *group)
{
	for (uint16_t i = 0; i < group->size; i++) {
		while (group->members[i].rank != i) {
			struct group_member *place = &group->members[group->members[i].rank];
			const struct group_member there = *place;

			*place = group->members[i];
			group->members[i] = there;
		}
	}
}

static int
compare_addresses(const void *a, const void *b)
{
	const struct group_member *first = a, *second = b;
	const uint32_t one = ntohl(first->ip_be), other = ntohl(second->ip_be);

	return one < other ? -1 : one > other;
}

void
order_settle(struct group *group)
{
	struct fanin_ranks left = fanin_ranks_all(group->size);

	qsort(group->members, group->size, sizeof(*group->members), compare_addresses);
	for (uint16_t i = 0; i < group->size; i++) {
		group->members[i].any_rank = group->members[i].rank == GROUP_NO_RANK;
		if (!group->members[i].any_rank)
			fanin_ranks_remove(&left, (unsigned int)group->members[i].rank);
	}
	for (uint16_t i = 0; i < group->size; i++) {
		struct group_member *member = &group->members[i];

		if (member->any_rank) {
			member->rank = (int)fanin_ranks_lowest(&left);
			fanin_ranks_remove(&left, (unsigned int)member->rank);
		}
	}
	sort_members(group);
}

void
order_unsettle(struct group *group)
{
	for (uint16_t i = 0; i < group->n_members; i++) {
		struct group_member *member = &group->members[i];

		if (member->any_rank)
			member->rank = GROUP_NO_RANK;
		member->any_rank = false;
	}
}

bool
order_has_choice(const struct group *group)
{
	for (uint16_t i = 0; i < group->size; i++) {
		if (group->members[i].any_rank)
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------- dealing */

static uint32_t
lowest_address(const struct group *group, const struct fanin_ranks *ranks)
{
	uint32_t lowest = UINT32_MAX;
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	{
		const uint32_t address = ntohl(group->members[rank].ip_be);

		lowest = address < lowest ? address : lowest;
	}
	return lowest;
}

/*
 * Returns the class of a branch: 0: a power of two of ranks, which may begin at any multiple of
 * that number; 1: hosts, which need not be in one row; 2: a row that can only be the last.
 */
static int
class_of(const struct branch *branch, uint16_t node)
{
	if ((branch->n & (branch->n - 1)) == 0)
		return 0;
	return branch->node == node ? 1 : 2;
}

static bool
goes_before(const struct branch *a, const struct branch *b, uint16_t node)
{
	if (class_of(a, node) != class_of(b, node))
		return class_of(a, node) < class_of(b, node);
	return a->n != b->n ? a->n > b->n : a->address < b->address;
}

/*
 * Inserts a branch of a node's switch among the n existing ones. Returns the new number of
 * branches.
 */
static uint16_t
add_branch(struct deal *deal, uint16_t node, uint16_t n, uint16_t branch_node,
	   const struct fanin_ranks *ranks)
{
	const struct branch branch = { .node = branch_node,
				       .n = (uint16_t)fanin_ranks_count(ranks),
				       .address = lowest_address(deal->group, ranks) };
	uint16_t at = n;

	if (branch.n == 0)
		return n;
	for (; at > 0 && goes_before(&branch, &deal->branches[at - 1], node); at--)
		deal->branches[at] = deal->branches[at - 1];
	deal->branches[at] = branch;
	return (uint16_t)(n + 1);
}

/* Deals the places behind a node to its switch's hosts and to the nodes below it. */
static void
deal_node(struct deal *deal, uint16_t node)
{
	const struct tree *tree = deal->tree;
	uint16_t next = deal->starts[node];
	uint16_t n = add_branch(deal, node, 0, node, &tree->nodes[node].local);

	for (uint16_t i = (uint16_t)(node + 1); i < tree->n_nodes; i++) {
		if (tree->nodes[i].parent == node)
			n = add_branch(deal, node, n, i, &tree->nodes[i].ranks);
	}
	for (uint16_t i = 0; i < n; i++) {
		const struct branch *branch = &deal->branches[i];
		unsigned int rank;

		if (branch->node != node) {
			deal->starts[branch->node] = next;
			next = (uint16_t)(next + branch->n);
			continue;
		}
		FANIN_RANKS_EACH(rank, &tree->nodes[node].local)
		deal->places[rank] = next++;
	}
}

/* Gives the free ranks to the members that asked for none, in the order of their places. */
static void
take_places(struct group *group, const uint16_t *places, uint16_t *at_place)
{
	struct fanin_ranks left = { 0 };
	unsigned int rank;

	for (uint16_t i = 0; i < group->size; i++) {
		at_place[places[i]] = i;
		if (group->members[i].any_rank)
			fanin_ranks_add(&left, i);
	}
	rank = fanin_ranks_lowest(&left);
	for (uint16_t i = 0; i < group->size; i++) {
		struct group_member *member = &group->members[at_place[i]];

		if (!member->any_rank)
			continue;
		member->rank = (int)rank;
		rank = fanin_ranks_next(&left, rank + 1);
	}
	sort_members(group);
}

void
order_deal(struct group *group, const struct tree *tree)
{
	struct deal deal = {
		.group = group,
		.tree = tree,
		.places = calloc(group->size, sizeof(*deal.places)),
		.branches = calloc(tree->n_nodes + 1u, sizeof(*deal.branches)),
		.starts = calloc(tree->n_nodes, sizeof(*deal.starts)),
	};
	uint16_t *at_place = calloc(group->size, sizeof(*at_place));

	/* Without memory the ranks stay as they were, and the plan may be refused. */
	if (deal.places != NULL && deal.branches != NULL && deal.starts != NULL &&
	    at_place != NULL) {
		for (uint16_t i = 0; i < tree->n_nodes; i++)
			deal_node(&deal, i);
		take_places(group, deal.places, at_place);
	}
	free(at_place);
	free(deal.starts);
	free(deal.branches);
	free(deal.places);
}

/* -------------------------------------------------------------------------- errors */

/* True if the ranks behind a node are no unit, but the ranks behind each node below it are. */
static bool
is_lowest_problem(const struct tree *tree, uint16_t node, unsigned int n_ranks)
{
	if (fanin_order_is_unit(&tree->nodes[node].ranks, n_ranks))
		return false;
	for (uint16_t i = (uint16_t)(node + 1); i < tree->n_nodes; i++) {
		if (tree->nodes[i].parent == node &&
		    !fanin_order_is_unit(&tree->nodes[i].ranks, n_ranks))
			return false;
	}
	return true;
}

void
order_describe(const struct tree *tree, unsigned int n_ranks,
	       const char *(*name_of)(const void *user, unsigned int index), const void *user,
	       char *text, size_t size)
{
	unsigned int n = 0;
	size_t used = 0;

	text[0] = '\0';
	for (uint16_t i = 0; i < tree->n_nodes && n < MAX_NAMED && used < size; i++) {
		char ranks[64];

		if (!is_lowest_problem(tree, i, n_ranks))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s at %.64s",
					 n++ == 0 ? "ranks " : ", ",
					 fanin_order_describe(&tree->nodes[i].ranks, ranks,
							      sizeof(ranks)),
					 name_of(user, tree->nodes[i].switch_index));
	}
}
