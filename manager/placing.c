/* SPDX-License-Identifier: BSD-3-Clause */
/* See placing.h. */
#include "manager/placing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT16_MAX

/*
 * Each change takes a link from a rank, or extends the row of a switch, which at least doubles the
 * row's width.
 */
#define MAX_CHANGES (TREE_MAX_RANKS * (TREE_MAX_CHOICES - 1) + TREE_MAX_NODES * 14)

/* A row: the ranks that have to be behind a switch. */
struct row {
	uint16_t first;
	uint16_t n; /* 0: none are known */
};

/* The state of a rank or a row before a change. */
struct change {
	bool is_row;
	uint8_t left;
	uint16_t index; /* of the rank, or of the row's switch */
	uint16_t behind;
	struct row row;
};

/* A link that was chosen among several. */
struct decision {
	uint16_t rank;
	uint8_t choice;
	uint16_t n_changes; /* before this decision */
};

struct placing {
	const struct tree_place *places;
	const struct placing_tree *tree;
	uint16_t n_ranks;
	uint32_t steps_each; /* of a search */
	uint32_t steps;      /* left in this search */

	/* Switch a is below switch b if enter[a] is in [enter[b], end[b]). */
	uint16_t enter[TREE_MAX_NODES];
	uint16_t end[TREE_MAX_NODES];

	uint8_t left[TREE_MAX_RANKS];    /* of each rank: the bits of the links that may still be
					    chosen */
	uint16_t behind[TREE_MAX_RANKS]; /* of each rank: the lowest switch that all these links are
					    below, as far as it has been searched for */
	struct row rows[TREE_MAX_NODES]; /* of each switch */

	uint16_t waiting[TREE_MAX_RANKS]; /* ranks that have lost a link since the last look */
	bool waits[TREE_MAX_RANKS];
	uint16_t n_waiting;

	struct change changes[MAX_CHANGES];
	uint16_t n_changes;
	struct decision decisions[TREE_MAX_RANKS];
	uint16_t n_decisions;
};

_Static_assert(MAX_CHANGES <= UINT16_MAX, "n_changes counts them");

struct placing *
placing_create(const struct tree_place *places, uint16_t n_ranks, uint16_t n_roots)
{
	struct placing *placing = malloc(sizeof(*placing));

	if (placing == NULL)
		return NULL;
	placing->places = places;
	placing->n_ranks = n_ranks;
	placing->steps_each = PLACING_RANK_STEPS * n_ranks + PLACING_ROOTS_STEPS / n_roots;
	return placing;
}

void
placing_free(struct placing *placing)
{
	free(placing);
}

/* Numbers the switches such that those below a switch follow it in a row. */
static void
number_switches(struct placing *placing)
{
	const struct placing_tree *tree = placing->tree;
	uint16_t size[TREE_MAX_NODES], next[TREE_MAX_NODES], order[TREE_MAX_NODES];
	uint16_t n = 0;

	for (uint16_t distance = 0, before = NOWHERE; before != n; distance++) {
		before = n;
		for (uint16_t at = 0; at < tree->n_switches; at++) {
			if (tree->distances[at] == distance)
				order[n++] = at;
		}
	}
	for (uint16_t at = 0; at < tree->n_switches; at++)
		size[at] = 1;
	for (uint16_t i = n; i-- > 1;)
		size[tree->parents[order[i]]] =
			(uint16_t)(size[tree->parents[order[i]]] + size[order[i]]);
	for (uint16_t i = 0; i < n; i++) {
		const uint16_t at = order[i];
		uint16_t *enter = at == tree->root ? NULL : &next[tree->parents[at]];

		placing->enter[at] = enter == NULL ? 0 : *enter;
		placing->end[at] = (uint16_t)(placing->enter[at] + size[at]);
		next[at] = (uint16_t)(placing->enter[at] + 1);
		if (enter != NULL)
			*enter = (uint16_t)(*enter + size[at]);
	}
}

static bool
is_below(const struct placing *placing, uint16_t at, uint16_t above)
{
	return placing->enter[at] >= placing->enter[above] &&
	       placing->enter[at] < placing->end[above];
}

/* Counts a step. Returns false if there are no steps left. */
static bool
count_step(struct placing *placing)
{
	if (placing->steps == 0)
		return false;
	placing->steps--;
	return true;
}

/* True if an earlier link of the place leads to the same switch. */
static bool
is_again(const struct tree_place *place, uint8_t link)
{
	for (uint8_t k = 0; k < link; k++) {
		if (place->switches[k] == place->switches[link])
			return true;
	}
	return false;
}

/*
 * Returns the bits of a rank's links to switches below `above`; of several links to one switch,
 * only the first.
 */
static uint8_t
choices_below(const struct placing *placing, uint16_t rank, uint16_t above)
{
	const struct tree_place *place = &placing->places[rank];
	unsigned int bits = 0;

	for (uint8_t k = 0; k < place->n_switches; k++) {
		if (placing->tree->distances[place->switches[k]] != NOWHERE &&
		    is_below(placing, place->switches[k], above) && !is_again(place, k))
			bits |= 1u << k;
	}
	return (uint8_t)bits;
}

static void
wait_for_look(struct placing *placing, uint16_t rank)
{
	if (placing->waits[rank])
		return;
	placing->waits[rank] = true;
	placing->waiting[placing->n_waiting++] = rank;
}

/* Restricts a rank's links to some. Returns false if none is left. */
static bool
narrow(struct placing *placing, uint16_t rank, uint8_t bits)
{
	const uint8_t left = placing->left[rank] & bits;

	if (left == placing->left[rank])
		return true;
	if (left == 0)
		return false;
	placing->changes[placing->n_changes++] = (struct change){ .index = rank,
								  .left = placing->left[rank],
								  .behind = placing->behind[rank] };
	placing->left[rank] = left;
	wait_for_look(placing, rank);
	return true;
}

/* Returns the smallest unit that contains a row and a rank. */
static struct row
extend(const struct placing *placing, const struct row *row, uint16_t rank)
{
	const unsigned int row_last = row->first + row->n - 1u;
	const unsigned int low = row->n == 0 || rank < row->first ? rank : row->first;
	const unsigned int last = row->n == 0 || rank > row_last ? rank : row_last;
	unsigned int width = 1, first;

	while (low / width != last / width)
		width *= 2;
	first = low / width * width;
	return (struct row){
		.first = (uint16_t)first,
		.n = (uint16_t)(first + width > placing->n_ranks ? placing->n_ranks - first : width)
	};
}

/*
 * Extends the row of a switch to a rank, and to the ranks in between. Returns false if one of them
 * can't be there.
 */
static bool
cover(struct placing *placing, uint16_t at, uint16_t rank)
{
	const struct row old = placing->rows[at];
	struct row row;

	if (rank >= old.first && rank < old.first + old.n)
		return true;
	row = extend(placing, &old, rank);
	placing->changes[placing->n_changes++] =
		(struct change){ .is_row = true, .index = at, .row = old };
	placing->rows[at] = row;
	for (uint16_t i = row.first; i < row.first + row.n; i++) {
		if (i >= old.first && i < old.first + old.n)
			continue;
		if (!count_step(placing) || !narrow(placing, i, choices_below(placing, i, at)))
			return false;
	}
	return true;
}

/* Returns the lowest switch that all remaining links of a rank are below. */
static uint16_t
find_behind(const struct placing *placing, uint16_t rank)
{
	const struct tree_place *place = &placing->places[rank];
	uint16_t found = NOWHERE;

	for (uint8_t k = 0; k < place->n_switches; k++) {
		if ((placing->left[rank] & 1u << k) == 0)
			continue;
		if (found == NOWHERE)
			found = place->switches[k];
		while (!is_below(placing, place->switches[k], found))
			found = placing->tree->parents[found];
	}
	return found;
}

/*
 * Propagates the loss of ranks' links. Returns false at a contradiction, or if there are no steps
 * left.
 */
static bool
conclude(struct placing *placing)
{
	while (placing->n_waiting > 0) {
		const uint16_t rank = placing->waiting[--placing->n_waiting];
		const uint16_t before = placing->behind[rank];
		uint16_t at = find_behind(placing, rank);

		placing->waits[rank] = false;
		placing->behind[rank] = at;
		for (; at != before; at = placing->tree->parents[at]) {
			if (!count_step(placing) || !cover(placing, at, rank))
				return false;
		}
	}
	return true;
}

static void
undo(struct placing *placing, uint16_t n_changes)
{
	while (placing->n_waiting > 0)
		placing->waits[placing->waiting[--placing->n_waiting]] = false;
	while (placing->n_changes > n_changes) {
		const struct change *change = &placing->changes[--placing->n_changes];

		if (change->is_row) {
			placing->rows[change->index] = change->row;
			continue;
		}
		placing->left[change->index] = change->left;
		placing->behind[change->index] = change->behind;
	}
}

/*
 * True if switch a is to be tried before b. beside: the switch of the rank before; NOWHERE: there
 * is none.
 */
static bool
is_better(const struct placing *placing, uint16_t beside, uint16_t a, uint16_t b)
{
	const struct placing_tree *tree = placing->tree;
	const bool is_used_a = placing->rows[a].n != 0 || a == tree->root;
	const bool is_used_b = placing->rows[b].n != 0 || b == tree->root;

	if ((a == beside) != (b == beside))
		return a == beside;
	if (is_used_a != is_used_b)
		return is_used_a;
	if (tree->distances[a] != tree->distances[b])
		return tree->distances[a] < tree->distances[b];
	return tree->switches[a].jobs < tree->switches[b].jobs;
}

static uint8_t
first_choice(uint8_t bits)
{
	return (uint8_t)__builtin_ctz(bits);
}

/*
 * Gives a rank with several links left one of them. All lower ranks have one. Returns false if that
 * is wrong.
 */
static bool
decide(struct placing *placing, uint16_t rank)
{
	const struct tree_place *place = &placing->places[rank];
	const uint16_t beside =
		rank == 0
			? NOWHERE
			: placing->places[rank - 1].switches[first_choice(placing->left[rank - 1])];
	uint8_t best = first_choice(placing->left[rank]);

	for (uint8_t k = (uint8_t)(best + 1); k < place->n_switches; k++) {
		if ((placing->left[rank] & 1u << k) != 0 &&
		    is_better(placing, beside, place->switches[k], place->switches[best]))
			best = k;
	}
	placing->decisions[placing->n_decisions++] =
		(struct decision){ .rank = rank, .choice = best, .n_changes = placing->n_changes };
	return narrow(placing, rank, (uint8_t)(1u << best)) && conclude(placing);
}

/*
 * Takes back the last choice, which was wrong, and those before it that must be wrong then. Returns
 * the rank to continue with; n_ranks: none.
 */
static uint16_t
take_back(struct placing *placing)
{
	while (placing->n_decisions > 0 && placing->steps > 0) {
		const struct decision *last = &placing->decisions[--placing->n_decisions];

		undo(placing, last->n_changes);
		if (narrow(placing, last->rank, (uint8_t) ~(1u << last->choice)) &&
		    conclude(placing))
			return last->rank;
	}
	return placing->n_ranks;
}

static bool
begin(struct placing *placing)
{
	placing->n_waiting = 0;
	placing->n_changes = 0;
	placing->n_decisions = 0;
	placing->steps = placing->steps_each;
	memset(placing->rows, 0, sizeof(placing->rows));
	memset(placing->waits, 0, sizeof(placing->waits));
	number_switches(placing);
	for (uint16_t rank = 0; rank < placing->n_ranks; rank++) {
		placing->left[rank] = choices_below(placing, rank, placing->tree->root);
		placing->behind[rank] = placing->tree->root;
		if (placing->left[rank] == 0)
			return false;
		wait_for_look(placing, rank);
	}
	return conclude(placing);
}

int
placing_find(struct placing *placing, const struct placing_tree *tree, uint8_t *chosen)
{
	placing->tree = tree;
	if (!begin(placing))
		return -EDOM;
	for (uint16_t rank = 0; rank < placing->n_ranks;) {
		if ((placing->left[rank] & (placing->left[rank] - 1)) == 0) {
			rank++;
		} else if (!decide(placing, rank)) {
			rank = take_back(placing);
			if (rank == placing->n_ranks)
				return -EDOM;
		}
	}
	for (uint16_t rank = 0; rank < placing->n_ranks; rank++)
		chosen[rank] = first_choice(placing->left[rank]);
	return 0;
}
