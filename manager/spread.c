/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See spread.h. The children of a switch may be each host with a link to it, and each linked switch
 * that leads to other hosts. The number of sums that wait for others depends on the lowest ranks of
 * the children:
 *
 * - A subset of the children has no more waiting sums; each additional child adds at most one.
 * - The lowest rank of a child that is not a host of this switch is either that of a host with a
 * choice of switches, or the lowest of the ranks that can be at one other switch only: all of these
 * are behind the same child.
 */
#include "manager/spread.h"

#include <string.h>

#include "wire/order.h"

/* Some ranks in ascending order: as many as a switch may have children, and how many there are. */
struct some {
	uint16_t ranks[FANIN_WIRE_MAX_CHILDREN];
	uint16_t last;
	uint32_t n;
};

void
spread_begin(struct spread *spread, uint16_t n_switches, uint16_t n_ranks, bool keeps_order)
{
	memset(spread, 0, sizeof(*spread));
	spread->n_switches = n_switches;
	spread->n_ranks = n_ranks;
	spread->keeps_order = keeps_order;
}

void
spread_add_place(struct spread *spread, uint16_t rank, uint16_t at)
{
	for (uint8_t k = 0; k < spread->n_at[rank]; k++) {
		if (spread->at[rank][k] == at)
			return;
	}
	spread->has_choice = spread->has_choice || spread->n_at[rank] > 0;
	spread->at[rank][spread->n_at[rank]++] = at;
	spread->n_taking = (uint16_t)(spread->n_taking + (spread->takers[at]++ == 0));
}

void
spread_add_link(struct spread *spread, uint16_t a, uint16_t b)
{
	spread->beside[a]++;
	spread->beside[b]++;
	spread->taking[a] = (uint16_t)(spread->taking[a] + (spread->takers[b] != 0));
	spread->taking[b] = (uint16_t)(spread->taking[b] + (spread->takers[a] != 0));
}

static uint32_t
least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void
add_rank(struct some *some, uint16_t rank)
{
	if (some->n < FANIN_WIRE_MAX_CHILDREN)
		some->ranks[some->n] = rank;
	some->last = rank;
	some->n++;
}

/* Returns the most sums that wait at a switch with a child for each of some ranks. */
static uint32_t
count_pairs(const struct some *some)
{
	if (some->n < 2)
		return 0;
	return some->n <= FANIN_WIRE_MAX_CHILDREN ? fanin_order_build(NULL, some->ranks, some->n)
						  : FANIN_WIRE_MAX_CHILDREN - 1;
}

/*
 * Returns how many switches may be children of one. A single child without hosts is the better root
 * of the same tree, since it is nearer to all hosts but those here: so it is no child, unless the
 * ranks here are no unit, or the tree has other links of hosts with another root.
 */
static uint32_t
count_switches(const struct spread *spread, uint16_t at, const struct some *here)
{
	const uint32_t others = spread->n_taking - (here->n != 0);
	const uint32_t n = least(spread->beside[at], others);
	const bool is_unit = here->n != 0 && here->last - here->ranks[0] + 1u == here->n &&
			     fanin_order_is_unit_run(here->ranks[0], here->n, spread->n_ranks);

	if (n == 1 && here->n != 0 && spread->taking[at] == 0 && !spread->has_choice &&
	    (is_unit || !spread->keeps_order))
		return 0;
	return n;
}

/* lowest: of each switch, the lowest rank that can be at that switch only. */
static struct spread_below
most_at(const struct spread *spread, const uint16_t *lowest, uint16_t at)
{
	struct some here = { .n = 0 }, all = { .n = 0 };
	struct spread_below below;
	uint32_t n_switches;

	for (uint16_t rank = 0; rank < spread->n_ranks; rank++) {
		const uint16_t *places = spread->at[rank];
		bool is_here = false;

		for (uint8_t k = 0; k < spread->n_at[rank]; k++)
			is_here = is_here || places[k] == at;
		if (is_here)
			add_rank(&here, rank);
		if (is_here || spread->n_at[rank] > 1 ||
		    (spread->n_at[rank] == 1 && lowest[places[0]] == rank))
			add_rank(&all, rank);
	}
	n_switches = count_switches(spread, at, &here);
	below.n_children = least(least(here.n + n_switches, all.n), FANIN_WIRE_MAX_CHILDREN);
	below.n_pairs = least(count_pairs(&here) + n_switches, count_pairs(&all));
	/* No more wait than if all ranks were here. */
	below.n_pairs = least(below.n_pairs, (spread->n_ranks + 1u) / 2);
	if (below.n_pairs >= below.n_children)
		below.n_pairs = below.n_children == 0 ? 0 : below.n_children - 1;
	return below;
}

struct spread_below
spread_max(const struct spread *spread)
{
	struct spread_below most = { .n_pairs = 1 };
	uint16_t lowest[TREE_MAX_SWITCHES];

	for (uint16_t at = 0; at < spread->n_switches; at++)
		lowest[at] = spread->n_ranks;
	for (uint16_t rank = spread->n_ranks; rank-- > 0;) {
		if (spread->n_at[rank] == 1)
			lowest[spread->at[rank][0]] = rank;
	}
	for (uint16_t at = 0; at < spread->n_switches; at++) {
		const struct spread_below below = most_at(spread, lowest, at);

		if (below.n_children > most.n_children)
			most.n_children = below.n_children;
		if (below.n_pairs > most.n_pairs)
			most.n_pairs = below.n_pairs;
	}
	return most;
}
