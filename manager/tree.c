/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See tree.h. Tries every usable switch as the root: distances from it by breadth-first search,
 * then parents from the farthest switches inwards. The links of each switch are listed once for all
 * roots. If no root has a tree in the order of ranks, all are tried again with other links of
 * hosts.
 */
#include "manager/tree.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "manager/placing.h"
#include "wire/order.h"

#define FAR UINT16_MAX

/* One end of a usable link between usable switches. */
struct branch {
	uint16_t link;
	uint16_t to; /* the switch at its other end */
};

/* All branches, grouped by switch, in the order of the links. */
struct branches {
	uint16_t first[TREE_MAX_NODES + 1]; /* of each switch; the next switch's entry is its end */
	struct branch all[2 * TREE_MAX_BRANCHES];
};

/* The tree of one root while it is made. */
struct attempt {
	uint16_t root;
	uint16_t depth;
	uint16_t n_switches;
	uint16_t shared; /* links */
	uint64_t jobs;   /* sum over its switches */
	uint16_t distances[TREE_MAX_NODES];
	bool included[TREE_MAX_NODES];
	uint16_t parents[TREE_MAX_NODES]; /* switches */
	uint16_t links[TREE_MAX_NODES];   /* to the parent */
	uint8_t chosen[TREE_MAX_RANKS];
};

static bool
is_usable(const struct tree_graph *graph, const struct tree_place *place)
{
	for (uint8_t k = 0; k < place->n_switches; k++) {
		if (graph->switches[place->switches[k]].usable)
			return true;
	}
	return false;
}

static int
check(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks)
{
	if (graph->n_switches > TREE_MAX_NODES || graph->n_links > TREE_MAX_BRANCHES ||
	    graph->n_servers > graph->n_switches || n_ranks == 0 || n_ranks > TREE_MAX_RANKS)
		return -EINVAL;
	for (uint16_t i = 0; i < graph->n_links; i++) {
		if (graph->links[i].a >= graph->n_switches ||
		    graph->links[i].b >= graph->n_switches)
			return -EINVAL;
	}
	for (uint16_t i = 0; i < n_ranks; i++) {
		if (places[i].n_switches == 0 || places[i].n_switches > TREE_MAX_CHOICES)
			return -EINVAL;
		for (uint8_t k = 0; k < places[i].n_switches; k++) {
			if (places[i].switches[k] >= graph->n_switches)
				return -EINVAL;
		}
	}
	for (uint16_t i = 0; i < n_ranks; i++) {
		if (!is_usable(graph, &places[i]))
			return -ENOENT;
	}
	return 0;
}

static bool
is_branch(const struct tree_graph *graph, const struct tree_link *link)
{
	return link->usable && link->a != link->b && graph->switches[link->a].usable &&
	       graph->switches[link->b].usable;
}

static void
list_branches(const struct tree_graph *graph, struct branches *branches)
{
	uint16_t used[TREE_MAX_NODES] = { 0 };

	for (uint16_t i = 0; i < graph->n_links; i++) {
		const struct tree_link *link = &graph->links[i];

		used[link->a] = (uint16_t)(used[link->a] + is_branch(graph, link));
		used[link->b] = (uint16_t)(used[link->b] + is_branch(graph, link));
	}
	branches->first[0] = 0;
	for (uint16_t at = 0; at < graph->n_switches; at++) {
		branches->first[at + 1] = (uint16_t)(branches->first[at] + used[at]);
		used[at] = branches->first[at];
	}
	for (uint16_t i = 0; i < graph->n_links; i++) {
		const struct tree_link *link = &graph->links[i];

		if (!is_branch(graph, link))
			continue;
		branches->all[used[link->a]++] = (struct branch){ i, link->b };
		branches->all[used[link->b]++] = (struct branch){ i, link->a };
	}
}

static void
measure(const struct tree_graph *graph, const struct branches *branches, uint16_t root,
	uint16_t *distances)
{
	uint16_t queue[TREE_MAX_NODES];
	uint16_t n_queued = 0;

	for (uint16_t i = 0; i < graph->n_switches; i++)
		distances[i] = FAR;
	distances[root] = 0;
	queue[n_queued++] = root;
	for (uint16_t next = 0; next < n_queued; next++) {
		uint16_t at = queue[next];

		for (uint16_t i = branches->first[at]; i < branches->first[at + 1]; i++) {
			uint16_t other = branches->all[i].to;

			if (distances[other] != FAR)
				continue;
			distances[other] = distances[at] + 1;
			queue[n_queued++] = other;
		}
	}
}

/* True if branch a leads to a better parent than b. */
static bool
is_better_parent(const struct tree_graph *graph, const struct attempt *attempt,
		 const struct branch *a, const struct branch *b)
{
	const struct tree_link *first = &graph->links[a->link];
	const struct tree_link *second = &graph->links[b->link];

	if (attempt->included[a->to] != attempt->included[b->to])
		return attempt->included[a->to];
	if (first->own != second->own)
		return first->own < second->own;
	if (graph->switches[a->to].jobs != graph->switches[b->to].jobs)
		return graph->switches[a->to].jobs < graph->switches[b->to].jobs;
	return first->jobs < second->jobs;
}

/* Every included switch but the root has a neighbor at a smaller distance. */
static void
choose_parent(const struct tree_graph *graph, const struct branches *branches,
	      struct attempt *attempt, uint16_t at)
{
	const struct branch *best = NULL;

	for (uint16_t i = branches->first[at]; i < branches->first[at + 1]; i++) {
		const struct branch *branch = &branches->all[i];

		if (attempt->distances[branch->to] + 1 != attempt->distances[at])
			continue;
		if (best == NULL || is_better_parent(graph, attempt, branch, best))
			best = branch;
	}
	if (best == NULL)
		return;
	attempt->links[at] = best->link;
	attempt->parents[at] = best->to;
	attempt->included[best->to] = true;
}

/*
 * Returns the least distance of a place's switches; FAR if none is reached. Unusable ones are not
 * reached.
 */
static uint16_t
distance_of(const struct attempt *attempt, const struct tree_place *place)
{
	uint16_t least = FAR;

	for (uint8_t k = 0; k < place->n_switches; k++) {
		if (attempt->distances[place->switches[k]] < least)
			least = attempt->distances[place->switches[k]];
	}
	return least;
}

/* Counts, for each switch, the ranks with a choice that may use it. */
static void
count_takers(const struct tree_place *places, uint16_t n_ranks, uint16_t *takers)
{
	memset(takers, 0, TREE_MAX_NODES * sizeof(*takers));
	for (uint16_t i = 0; i < n_ranks; i++) {
		for (uint8_t k = 0; k < places[i].n_switches; k++)
			takers[places[i].switches[k]] += places[i].n_switches > 1;
	}
}

/* True if switch a is better for a place than b. */
static bool
is_better_place(const struct tree_graph *graph, const struct attempt *attempt,
		const uint16_t *takers, uint16_t a, uint16_t b)
{
	if (attempt->included[a] != attempt->included[b])
		return attempt->included[a];
	if (attempt->distances[a] != attempt->distances[b])
		return attempt->distances[a] < attempt->distances[b];
	if (takers[a] != takers[b])
		return takers[a] > takers[b];
	return graph->switches[a].jobs < graph->switches[b].jobs;
}

/* Chooses one of each place's switches within the depth. Places without a choice come first. */
static void
choose_places(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks,
	      struct attempt *attempt)
{
	uint16_t takers[TREE_MAX_NODES];

	for (uint16_t i = 0; i < n_ranks; i++) {
		if (places[i].n_switches == 1)
			attempt->included[places[i].switches[0]] = true;
	}
	count_takers(places, n_ranks, takers);
	for (uint16_t i = 0; i < n_ranks; i++) {
		const struct tree_place *place = &places[i];
		uint16_t best = FAR;

		for (uint8_t k = 0; k < place->n_switches; k++) {
			uint16_t at = place->switches[k];

			if (attempt->distances[at] > attempt->depth ||
			    (best != FAR && !is_better_place(graph, attempt, takers, at, best)))
				continue;
			best = at;
			attempt->chosen[i] = k;
		}
		attempt->included[best] = true;
	}
}

/*
 * Begins the tree of one root. most: links to its farthest rank. Returns false if the root does not
 * reach all ranks within these.
 */
static bool
begin_root(const struct tree_graph *graph, const struct branches *branches,
	   const struct tree_place *places, uint16_t n_ranks, uint16_t root, uint16_t most,
	   struct attempt *attempt)
{
	memset(attempt, 0, sizeof(*attempt));
	attempt->root = root;
	measure(graph, branches, root, attempt->distances);
	attempt->included[root] = true;
	for (uint16_t i = 0; i < n_ranks; i++) {
		uint16_t distance = distance_of(attempt, &places[i]);

		if (distance > most)
			return false;
		if (distance > attempt->depth)
			attempt->depth = distance;
	}
	return true;
}

/* Includes parents of all included switches, none of which is farther away than the depth. */
static void
choose_parents(const struct tree_graph *graph, const struct branches *branches,
	       struct attempt *attempt)
{
	for (uint16_t distance = attempt->depth; distance > 0; distance--) {
		for (uint16_t at = 0; at < graph->n_switches; at++) {
			if (attempt->included[at] && attempt->distances[at] == distance)
				choose_parent(graph, branches, attempt, at);
		}
	}
}

static void
count_load(const struct tree_graph *graph, struct attempt *attempt)
{
	for (uint16_t at = 0; at < graph->n_switches; at++) {
		if (!attempt->included[at])
			continue;
		attempt->n_switches++;
		attempt->jobs += graph->switches[at].jobs;
		if (at != attempt->root)
			attempt->shared = (uint16_t)(attempt->shared +
						     (graph->links[attempt->links[at]].own > 0));
	}
}

/* Makes the tree of one root. Arguments and result as for begin_root. */
static bool
try_root(const struct tree_graph *graph, const struct branches *branches,
	 const struct tree_place *places, uint16_t n_ranks, uint16_t root, uint16_t most,
	 struct attempt *attempt)
{
	if (!begin_root(graph, branches, places, n_ranks, root, most, attempt))
		return false;
	choose_places(graph, places, n_ranks, attempt);
	choose_parents(graph, branches, attempt);
	count_load(graph, attempt);
	return true;
}

/* Includes all reached switches that a rank may be at. */
static void
include_choices(const struct tree_place *places, uint16_t n_ranks, struct attempt *attempt)
{
	for (uint16_t i = 0; i < n_ranks; i++) {
		for (uint8_t k = 0; k < places[i].n_switches; k++) {
			const uint16_t at = places[i].switches[k];

			if (attempt->distances[at] == FAR)
				continue;
			attempt->included[at] = true;
			if (attempt->distances[at] > attempt->depth)
				attempt->depth = attempt->distances[at];
		}
	}
}

/* Includes only switches with ranks behind them. */
static void
include_chosen(const struct tree_place *places, uint16_t n_ranks, struct attempt *attempt)
{
	memset(attempt->included, 0, sizeof(attempt->included));
	attempt->included[attempt->root] = true;
	attempt->depth = 0;
	for (uint16_t i = 0; i < n_ranks; i++) {
		uint16_t at = places[i].switches[attempt->chosen[i]];

		if (attempt->distances[at] > attempt->depth)
			attempt->depth = attempt->distances[at];
		for (; !attempt->included[at]; at = attempt->parents[at])
			attempt->included[at] = true;
	}
}

/*
 * Like try_root, but chooses hosts' links for the order of ranks, which may make the tree deeper.
 * Also returns false if no choice keeps the order.
 */
static bool
try_root_in_order(const struct tree_graph *graph, const struct branches *branches,
		  const struct tree_place *places, uint16_t n_ranks, uint16_t root, uint16_t most,
		  struct placing *placing, struct attempt *attempt)
{
	struct placing_tree tree;

	if (!begin_root(graph, branches, places, n_ranks, root, most, attempt))
		return false;
	include_choices(places, n_ranks, attempt);
	choose_parents(graph, branches, attempt);
	tree = (struct placing_tree){ .n_switches = graph->n_switches,
				      .root = root,
				      .distances = attempt->distances,
				      .parents = attempt->parents,
				      .switches = graph->switches };
	for (uint16_t at = 0; at < graph->n_switches; at++) {
		if (!attempt->included[at])
			attempt->distances[at] = FAR;
	}
	if (placing_find(placing, &tree, attempt->chosen) != 0)
		return false;
	include_chosen(places, n_ranks, attempt);
	count_load(graph, attempt);
	return true;
}

/* The ranks behind a switch. A job that keeps their order needs them in a row. */
struct row {
	uint16_t first;
	uint16_t last;
	uint16_t n;
};

/* True if the ranks behind each switch are a unit. Switches without ranks are not in the tree. */
static bool
is_in_order(const struct tree_graph *graph, const struct attempt *attempt,
	    const struct tree_place *places, uint16_t n_ranks)
{
	struct row rows[TREE_MAX_NODES] = { 0 };

	for (uint16_t i = 0; i < n_ranks; i++) {
		uint16_t at = places[i].switches[attempt->chosen[i]];

		for (bool is_done = false; !is_done; at = attempt->parents[at]) {
			if (rows[at].n++ == 0)
				rows[at].first = i;
			rows[at].last = i;
			is_done = at == attempt->root;
		}
	}
	for (uint16_t at = 0; at < graph->n_switches; at++) {
		const struct row *row = &rows[at];

		if (row->n != 0 && (row->last - row->first + 1 != row->n ||
				    !fanin_order_is_unit_run(row->first, row->n, n_ranks)))
			return false;
	}
	return true;
}

static bool
is_better_root(const struct tree_graph *graph, const struct attempt *a, const struct attempt *b)
{
	uint32_t jobs_a = graph->switches[a->root].jobs;
	uint32_t jobs_b = graph->switches[b->root].jobs;

	if (graph->n_servers > 0 && graph->switches[a->root].own != graph->switches[b->root].own)
		return graph->switches[a->root].own < graph->switches[b->root].own;
	if (graph->n_servers > 0 && jobs_a != jobs_b)
		return jobs_a < jobs_b;
	if (a->depth != b->depth)
		return a->depth < b->depth;
	if (a->n_switches != b->n_switches)
		return a->n_switches < b->n_switches;
	if (a->shared != b->shared)
		return a->shared < b->shared;
	if (graph->switches[a->root].own != graph->switches[b->root].own)
		return graph->switches[a->root].own < graph->switches[b->root].own;
	return jobs_a != jobs_b ? jobs_a < jobs_b : a->jobs < b->jobs;
}

/* Fills the result, parents before children. */
static void
finish(const struct tree_graph *graph, const struct attempt *attempt,
       const struct tree_place *places, uint16_t n_ranks, struct tree *tree)
{
	uint16_t node_of[TREE_MAX_NODES];

	tree->n_nodes = 0;
	tree->depth = attempt->depth;
	tree->shared = attempt->shared;
	for (uint16_t distance = 0; distance <= attempt->depth; distance++) {
		for (uint16_t at = 0; at < graph->n_switches; at++) {
			if (!attempt->included[at] || attempt->distances[at] != distance)
				continue;
			node_of[at] = tree->n_nodes;
			tree->nodes[tree->n_nodes++] = (struct tree_node){
				.switch_index = at,
				.parent = distance == 0 ? TREE_NO_PARENT
							: node_of[attempt->parents[at]],
				.link = attempt->links[at],
			};
		}
	}
	for (uint16_t i = 0; i < n_ranks; i++) {
		tree->chosen[i] = attempt->chosen[i];
		fanin_ranks_add(&tree->nodes[node_of[places[i].switches[attempt->chosen[i]]]].local,
				i);
	}
	for (uint16_t i = tree->n_nodes; i-- > 0;) {
		struct tree_node *node = &tree->nodes[i];

		fanin_ranks_merge(&node->ranks, &node->local);
		if (node->parent != TREE_NO_PARENT)
			fanin_ranks_merge(&tree->nodes[node->parent].ranks, &node->ranks);
	}
}

/* The search for the best tree of a job. */
struct search {
	struct branches branches;
	struct attempt attempts[2];
	struct attempt *best; /* NULL: there is none yet */
	bool is_reached;      /* a root reaches all ranks, perhaps in another order */
};

/*
 * Tries all roots. placing: chooses hosts' links for the order of ranks; NULL: choose_places does.
 */
static void
try_roots(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks,
	  struct placing *placing, struct search *search)
{
	struct attempt *next = &search->attempts[0];
	uint16_t root = 0;

	if (graph->n_servers > 0)
		root = (uint16_t)(graph->n_switches - graph->n_servers);
	for (; root < graph->n_switches; root++) {
		/* The nearest server need not be the best. */
		uint16_t most = search->best == NULL || graph->n_servers > 0 ? FAR - 1
									     : search->best->depth;

		if (!graph->switches[root].usable)
			continue;
		if (placing == NULL
			    ? !try_root(graph, &search->branches, places, n_ranks, root, most, next)
			    : !try_root_in_order(graph, &search->branches, places, n_ranks, root,
						 most, placing, next))
			continue;
		search->is_reached = true;
		if ((graph->in_order && !is_in_order(graph, next, places, n_ranks)) ||
		    (search->best != NULL && !is_better_root(graph, next, search->best)))
			continue;
		search->best = next;
		next = &search->attempts[next == &search->attempts[0]];
	}
}

static bool
has_choice(const struct tree_place *places, uint16_t n_ranks)
{
	for (uint16_t i = 0; i < n_ranks; i++) {
		if (places[i].n_switches > 1)
			return true;
	}
	return false;
}

int
tree_build(const struct tree_graph *graph, const struct tree_place *places, uint16_t n_ranks,
	   struct tree *tree)
{
	struct search search;
	struct placing *placing;
	int ret = check(graph, places, n_ranks);

	if (ret != 0)
		return ret;
	search.best = NULL;
	search.is_reached = false;
	list_branches(graph, &search.branches);
	try_roots(graph, places, n_ranks, NULL, &search);
	if (search.best == NULL && search.is_reached && has_choice(places, n_ranks)) {
		placing = placing_create(places, n_ranks, graph->n_switches);
		if (placing == NULL)
			return -ENOMEM;
		try_roots(graph, places, n_ranks, placing, &search);
		placing_free(placing);
	}
	if (search.best == NULL)
		return search.is_reached ? -EDOM : -EHOSTUNREACH;
	finish(graph, search.best, places, n_ranks, tree);
	return 0;
}
