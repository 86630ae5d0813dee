/* SPDX-License-Identifier: BSD-3-Clause */
/* See order.h. */
#include "wire/order.h"

#include <stdio.h>
#include <string.h>

/* Room for " and 4096 others". */
#define OTHERS_LEN 20
/* Room for ", 4094-4095", with any numbers. */
#define RUN_LEN 24

/* Children while their tree is made. */
struct build {
	struct fanin_order *order;
	const uint16_t *first;
	uint8_t sorted[FANIN_WIRE_MAX_CHILDREN]; /* children by their lowest ranks */
	uint8_t n_nodes;
};

/* Returns the index of the first child on the right side of the cut. */
static unsigned int
find_cut(const struct build *build, unsigned int from, unsigned int to)
{
	const unsigned int low = build->first[build->sorted[from]];
	const unsigned int high = build->first[build->sorted[to - 1]];
	unsigned int bit;

	if (low == high)
		return from + 1;
	bit = 1u << (31 - (unsigned int)__builtin_clz(low ^ high));
	while ((build->first[build->sorted[from]] & bit) == 0)
		from++;
	return from;
}

/*
 * Joins the sorted children [from, to) below an entry. Returns the maximum number of sums that wait
 * below it while their combination is incomplete.
 */
static unsigned int
join(struct build *build, unsigned int from, unsigned int to, uint8_t up)
{
	unsigned int left, right, most, cut;
	uint8_t node;

	if (to - from == 1) {
		if (build->order != NULL)
			build->order->up_of_child[build->sorted[from]] = up;
		return 0;
	}
	node = ++build->n_nodes;
	if (build->order != NULL)
		build->order->up_of_node[node] = up;
	cut = find_cut(build, from, to);
	left = join(build, from, cut, (uint8_t)(node << 1));
	right = join(build, cut, to, (uint8_t)(node << 1 | 1));
	most = 1 + (left > right ? left : right); /* one side waits here */
	return most > left + right ? most : left + right;
}

static void
sort_children(struct build *build, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = i;

		for (; at > 0 && build->first[build->sorted[at - 1]] > build->first[i]; at--)
			build->sorted[at] = build->sorted[at - 1];
		build->sorted[at] = (uint8_t)i;
	}
}

unsigned int
fanin_order_build(struct fanin_order *order, const uint16_t *first, unsigned int n)
{
	struct build build = { .order = order, .first = first };
	unsigned int most;

	if (n == 0)
		return 1;
	sort_children(&build, n);
	most = join(&build, 0, n, 0);
	return most == 0 ? 1 : most;
}

bool
fanin_order_is_unit_run(unsigned int first, unsigned int n, unsigned int n_ranks)
{
	unsigned int width = 1;

	if (n == 0 || first + n > n_ranks)
		return false;
	while (width < n)
		width *= 2;
	return first % width == 0 && (n == width || first + n == n_ranks);
}

bool
fanin_order_is_unit(const struct fanin_ranks *set, unsigned int n_ranks)
{
	const unsigned int first = fanin_ranks_lowest(set);
	const unsigned int n = fanin_ranks_count(set);

	/* The set is a run exactly if it has all of the n ranks from its first one on. */
	for (unsigned int i = 0; i < n; i++) {
		if (!fanin_ranks_has(set, first + i))
			return false;
	}
	return fanin_order_is_unit_run(first, n, n_ranks);
}

/* Returns the last rank of the run that begins with `rank`. */
static unsigned int
end_of_run(const struct fanin_ranks *set, unsigned int rank)
{
	while (fanin_ranks_has(set, rank + 1))
		rank++;
	return rank;
}

static void
write_run(char *text, unsigned int rank, unsigned int last, bool is_first)
{
	const char *comma = is_first ? "" : ", ";

	if (last > rank)
		snprintf(text, RUN_LEN, "%s%u-%u", comma, rank, last);
	else
		snprintf(text, RUN_LEN, "%s%u", comma, rank);
}

const char *
fanin_order_describe(const struct fanin_ranks *set, char *text, size_t size)
{
	unsigned int left = fanin_ranks_count(set);
	size_t used = 0;

	text[0] = '\0';
	for (unsigned int rank = fanin_ranks_lowest(set); rank < FANIN_WIRE_MAX_RANKS;) {
		const unsigned int last = end_of_run(set, rank);
		char run[RUN_LEN];

		write_run(run, rank, last, used == 0);
		if (used + strlen(run) + OTHERS_LEN > size) {
			snprintf(text + used, size - used, " and %u others", left);
			break;
		}
		memcpy(text + used, run, strlen(run) + 1);
		used += strlen(run);
		left -= last - rank + 1;
		rank = fanin_ranks_next(set, last + 1);
	}
	return text;
}
