/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See waits_tree.h. A block is traced from the root down: if a switch misses a child switch, it
 * waits for whatever that child waits for. If a switch knows nothing of a block and none of its
 * children has sent the block up, the switch has not begun the block and waits for all its
 * children. Below a parameter server a switch may also have passed on what it had: if the server
 * has part of the block, the server knows which ranks are missing.
 */
#include "manager/waits_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 16

/* All switches of a tree. */
struct waits_tree {
	const struct waits_node *nodes;
	uint16_t n_nodes;
};

static int
by_number(const void *a, const void *b)
{
	const uint32_t first = ((const struct waits_block *)a)->block;
	const uint32_t second = ((const struct waits_block *)b)->block;

	return first < second ? -1 : first > second;
}

/* Sorts the longest waiting block first. */
static int
by_time(const void *a, const void *b)
{
	const struct waits_block *first = a, *second = b;

	if (first->since_ms != second->since_ms)
		return first->since_ms > second->since_ms ? -1 : 1;
	return by_number(a, b);
}

/* Returns the valid ranks in a list as a set. Ignores all other entries. */
static struct fanin_ranks
ranks_of(const json_t *list)
{
	const json_t *rank;
	struct fanin_ranks ranks = { 0 };
	size_t i;

	json_array_foreach(list, i, rank) {
		if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
		    json_integer_value(rank) < TREE_MAX_RANKS)
			fanin_ranks_add(&ranks, (unsigned int)json_integer_value(rank));
	}
	return ranks;
}

static json_t *
json_ranks(const struct fanin_ranks *ranks)
{
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	json_array_append_new(list, json_integer(rank));
	return list;
}

/* Returns the ranks that are in both sets, as a list. */
static json_t *
json_both(const struct fanin_ranks *a, const struct fanin_ranks *b)
{
	struct fanin_ranks both = *a;

	fanin_ranks_keep(&both, b);
	return json_ranks(&both);
}

static int
fail(struct waits_node *node, int ret, const char *why)
{
	snprintf(node->error, sizeof(node->error), "%s", why);
	return ret;
}

int
waits_node_take(struct waits_node *node, const json_t *answer)
{
	const json_t *blocks = json_object_get(answer, "blocks");
	const char *state = json_string_value(json_object_get(answer, "state"));
	const json_t *entry;
	size_t i;

	if (state == NULL || !json_is_array(blocks))
		return fail(node, -EINVAL, "found no state and blocks in the switch's answer");
	node->blocks = calloc(json_array_size(blocks) + 1, sizeof(*node->blocks));
	if (node->blocks == NULL)
		return fail(node, -ENOMEM, "out of memory");
	json_array_foreach(blocks, i, entry) {
		const char *whom = json_string_value(json_object_get(entry, "for"));

		node->blocks[node->n_blocks++] = (struct waits_block){
			.block = (uint32_t)json_integer_value(json_object_get(entry, "block")),
			.sent = whom != NULL && strcmp(whom, "parent") == 0,
			.missing = ranks_of(json_object_get(entry, "missing")),
			.since_ms =
				(uint64_t)json_integer_value(json_object_get(entry, "since_ms")),
		};
	}
	qsort(node->blocks, node->n_blocks, sizeof(*node->blocks), by_number);
	json_array_foreach(json_object_get(answer, "members"), i, entry) {
		struct fanin_ranks ranks = ranks_of(json_object_get(entry, "ranks"));

		fanin_ranks_keep(&ranks, &node->local);
		if (strcmp(state, "waiting") == 0 &&
		    !json_is_true(json_object_get(entry, "joined")))
			fanin_ranks_merge(&node->not_joined, &ranks);
	}
	node->ended = ranks_of(json_object_get(answer, "ended"));
	node->silent = ranks_of(json_object_get(answer, "silent"));
	node->answered = true;
	return 0;
}

static const struct waits_block *
find(const struct waits_node *node, uint32_t block)
{
	const struct waits_block key = { .block = block };

	return node->n_blocks == 0
		       ? NULL
		       : bsearch(&key, node->blocks, node->n_blocks, sizeof(key), by_number);
}

static void
add_cause(json_t *causes, const struct waits_node *node, const struct fanin_ranks *ranks,
	  const char *why)
{
	json_array_append_new(causes,
			      json_pack("{s:s, s:s*, s:o, s:s}", "switch", node->switch_name,
					"kind", node->is_server ? "server" : NULL, "ranks",
					json_ranks(ranks), "why", why));
}

/* Adds a node that waits for its parent's result, with the parent's name if that is a server. */
static void
add_sent(json_t *causes, const struct waits_tree *tree, const struct waits_node *node)
{
	add_cause(causes, node, &node->ranks, "sent");
	if (node->parent != TREE_NO_PARENT && tree->nodes[node->parent].is_server)
		json_object_set_new(json_array_get(causes, json_array_size(causes) - 1), "server",
				    json_string(tree->nodes[node->parent].switch_name));
}

/* Adds missing hosts at a node, with the findings of its probes. */
static void
add_missing(json_t *causes, const struct waits_node *node, const struct fanin_ranks *ranks)
{
	json_t *cause;

	add_cause(causes, node, ranks, "missing");
	cause = json_array_get(causes, json_array_size(causes) - 1);
	json_object_set_new(cause, "ended", json_both(&node->ended, ranks));
	json_object_set_new(cause, "silent", json_both(&node->silent, ranks));
}

/* True if one of the node's children has sent the block up and waits for the result. */
static bool
child_has_sent(const struct waits_tree *tree, uint16_t index, uint32_t block)
{
	for (uint16_t i = 0; i < tree->n_nodes; i++) {
		const struct waits_block *found = find(&tree->nodes[i], block);

		if (tree->nodes[i].parent == index && found != NULL && found->sent)
			return true;
	}
	return false;
}

/* Adds what a block waits for at and below a node. lacking: the ranks that it may wait for. */
static void
explain(const struct waits_tree *tree, uint16_t index, uint32_t block,
	const struct fanin_ranks *lacking, json_t *causes) /* NOLINT(misc-no-recursion) */
{
	const struct waits_node *node = &tree->nodes[index];
	const struct waits_block *found = find(node, block);
	struct fanin_ranks missing = node->ranks;
	struct fanin_ranks here;
	bool on_its_way = false;

	if (!node->answered) {
		add_cause(causes, node, &node->ranks, "unreached");
		return;
	}
	if (found != NULL && found->sent) {
		add_sent(causes, tree, node);
		return;
	}
	if (found != NULL)
		missing = found->missing;
	else
		on_its_way = child_has_sent(tree, index, block);
	/*
	 * If a child has sent the block up, this node may have finished it. Then only the way
	 * between the children and this node remains to be explained.
	 */
	here = missing;
	fanin_ranks_keep(&here, &node->local);
	fanin_ranks_keep(&here, lacking);
	if (node->is_server && found != NULL)
		lacking = &missing;
	if (!fanin_ranks_is_empty(&here) && !on_its_way)
		add_missing(causes, node, &here);
	for (uint16_t i = (uint16_t)(index + 1); i < tree->n_nodes; i++) {
		const struct waits_node *child = &tree->nodes[i];

		if (child->parent == index && fanin_ranks_meet(&missing, &child->ranks) &&
		    fanin_ranks_meet(lacking, &child->ranks) &&
		    (!on_its_way || find(child, block) != NULL))
			explain(tree, i, block, lacking, causes);
	}
}

/*
 * Returns all blocks that wait at some switch, each once with its longest time, to be freed by the
 * caller.
 */
static struct waits_block *
gather(const struct waits_tree *tree, size_t *n)
{
	struct waits_block *all;
	size_t size = 0, kept = 0;

	for (uint16_t i = 0; i < tree->n_nodes; i++)
		size += tree->nodes[i].n_blocks;
	*n = 0;
	all = calloc(size + 1, sizeof(*all));
	if (all == NULL || size == 0)
		return all;
	size = 0;
	for (uint16_t i = 0; i < tree->n_nodes; i++) {
		for (size_t k = 0; k < tree->nodes[i].n_blocks; k++)
			all[size++] = tree->nodes[i].blocks[k];
	}
	qsort(all, size, sizeof(*all), by_number);
	for (size_t i = 1; i < size; i++) {
		if (all[i].block != all[kept].block)
			all[++kept] = all[i];
		else if (all[i].since_ms > all[kept].since_ms)
			all[kept].since_ms = all[i].since_ms;
	}
	*n = kept + 1;
	qsort(all, *n, sizeof(*all), by_time);
	return all;
}

void
waits_tree_describe(const struct waits_node *nodes, uint16_t n_nodes, json_t *object)
{
	const struct waits_tree tree = { nodes, n_nodes };
	json_t *blocks = json_array(), *not_joined = json_array(), *unreached = json_array();
	struct waits_block *all;
	size_t n;

	for (uint16_t i = 0; i < n_nodes; i++) {
		const struct waits_node *node = &nodes[i];

		if (!fanin_ranks_is_empty(&node->not_joined))
			add_cause(not_joined, node, &node->not_joined, "missing");
		if (!node->answered)
			json_array_append_new(unreached,
					      json_pack("{s:s, s:s*, s:s}", "switch",
							node->switch_name, "kind",
							node->is_server ? "server" : NULL, "error",
							node->error));
	}
	all = gather(&tree, &n);
	for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
		json_t *causes = json_array();

		explain(&tree, 0, all[i].block, &nodes[0].ranks, causes);
		json_array_append_new(blocks,
				      json_pack("{s:I, s:I, s:o}", "block",
						(json_int_t)all[i].block, "since_ms",
						(json_int_t)all[i].since_ms, "waits_for", causes));
	}
	free(all);
	json_object_set_new(object, "blocks", blocks);
	json_object_set_new(object, "waiting", json_integer((json_int_t)n));
	json_object_set_new(object, "not_joined", not_joined);
	json_object_set_new(object, "unreached", unreached);
}
