/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The number of packets that a slot must have room for, so that a job finds it in every tree that
 * it may move to; and that it is not much larger, as slots are fewer then.
 */
#include <string.h>

#include <check.h>

#include "manager/spread.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/order.h"

#define RANKS_MAX 24
#define MOVES 6

enum {
	LEAVES = 4,
	SPINES = 3,
	CORE = LEAVES + SPINES,
	SWITCHES,
};

static struct tree_switch switches[SWITCHES];
static struct tree_link links[64];
static struct tree_graph graph;
static struct tree_place places[RANKS_MAX];
static struct spread spread;
static struct tree tree;

/* Draws fewer spines, or leaves out the links between some of them and leaves. */
static void
draw(struct random *random, bool in_order)
{
	graph = (struct tree_graph){
		.switches = switches, .links = links, .n_switches = SWITCHES, .in_order = in_order
	};
	for (uint16_t leaf = 0; leaf < LEAVES; leaf++) {
		for (uint16_t spine = 0; spine < SPINES; spine++) {
			if (random_below(random, 5) != 0)
				links[graph.n_links++] = (struct tree_link){
					.a = leaf, .b = (uint16_t)(LEAVES + spine)
				};
		}
	}
	for (uint16_t spine = 0; random_below(random, 3) == 0 && spine < SPINES; spine++)
		links[graph.n_links++] = (struct tree_link){ .a = (uint16_t)(LEAVES + spine),
							     .b = CORE };
}

/* Places ranks, mostly in rows. */
static void
place(struct random *random, uint16_t n_ranks, bool has_choice)
{
	const uint32_t width = 1u << random_below(random, 4);
	uint16_t leaf = 0;

	for (uint16_t i = 0; i < n_ranks; i++) {
		if (i % width == 0 || random_below(random, 12) == 0)
			leaf = (uint16_t)random_below(random, LEAVES);
		places[i] = (struct tree_place){ .switches = { leaf }, .n_switches = 1 };
		if (has_choice && random_below(random, 3) == 0)
			places[i].switches[places[i].n_switches++] =
				(uint16_t)((leaf + 1u) % LEAVES);
	}
}

static struct spread_below
most(uint16_t n_ranks)
{
	spread_begin(&spread, SWITCHES, n_ranks, graph.in_order);
	for (uint16_t i = 0; i < n_ranks; i++) {
		for (uint8_t k = 0; k < places[i].n_switches; k++)
			spread_add_place(&spread, i, places[i].switches[k]);
	}
	for (uint16_t i = 0; i < graph.n_links; i++)
		spread_add_link(&spread, links[i].a, links[i].b);
	return spread_max(&spread);
}

/* Makes some links and switches fail, and lets other jobs come and go. */
static void
fail_at_random(struct random *random)
{
	for (uint16_t i = 0; i < graph.n_links; i++) {
		links[i].usable = random_below(random, 4) != 0;
		links[i].jobs = random_below(random, 3);
	}
	for (uint16_t i = 0; i < SWITCHES; i++) {
		switches[i].usable = random_below(random, 10) != 0;
		switches[i].jobs = random_below(random, 3);
	}
}

/* Returns the maximum of packets that wait at a switch of the tree. */
static unsigned int
count_pairs(void)
{
	unsigned int found = 0;

	for (uint16_t node = 0; node < tree.n_nodes; node++) {
		uint16_t first[FANIN_WIRE_MAX_CHILDREN];
		unsigned int n = 0, rank, pairs;

		FANIN_RANKS_EACH(rank, &tree.nodes[node].local)
		first[n++] = (uint16_t)rank;
		for (uint16_t i = 1; i < tree.n_nodes; i++) {
			if (tree.nodes[i].parent == node)
				first[n++] = (uint16_t)fanin_ranks_lowest(&tree.nodes[i].ranks);
		}
		pairs = fanin_order_build(NULL, first, n);
		found = pairs > found ? pairs : found;
	}
	return found;
}

/* _i: bit 0: the job keeps the order; bit 1: hosts have several links. */
START_TEST(no_tree_needs_more_and_many_need_as_much)
{
	struct random random = random_seed((uint64_t)_i);
	unsigned int n_trees = 0, n_reached = 0;

	for (int round = 0; round < 1000; round++) {
		const uint16_t n_ranks = (uint16_t)(2 + random_below(&random, RANKS_MAX - 1));
		struct spread_below below;
		bool is_reached = false;

		draw(&random, (_i & 1) != 0);
		place(&random, n_ranks, (_i & 2) != 0);
		below = most(n_ranks);
		for (int move = 0; move < MOVES; move++) {
			unsigned int found;

			fail_at_random(&random);
			memset(&tree, 0, sizeof(tree));
			if (tree_build(&graph, places, n_ranks, &tree) != 0)
				continue;
			found = count_pairs();
			ck_assert_msg(found <= below.n_pairs, "round %d: found %u, expected %u",
				      round, found, below.n_pairs);
			n_trees++;
			is_reached = is_reached || found == below.n_pairs;
		}
		n_reached += is_reached;
	}
	ck_assert_uint_gt(n_trees, 500);
	ck_assert_uint_gt(n_reached, 200);
}
END_TEST

/* at: for each rank the leaf, as a digit. */
static unsigned int
pairs_of(const char *at, unsigned int n_spines)
{
	const uint16_t n_ranks = (uint16_t)strlen(at);

	graph = (struct tree_graph){ .links = links, .n_switches = SWITCHES, .in_order = true };
	for (uint16_t leaf = 0; leaf < LEAVES; leaf++) {
		for (uint16_t spine = 0; spine < n_spines; spine++)
			links[graph.n_links++] =
				(struct tree_link){ .a = leaf, .b = (uint16_t)(LEAVES + spine) };
	}
	for (uint16_t i = 0; i < n_ranks; i++)
		places[i] = (struct tree_place){ .switches = { (uint16_t)(at[i] - '0') },
						 .n_switches = 1 };
	return most(n_ranks).n_pairs;
}

START_TEST(a_job_that_can_not_move_so_has_no_more_than_its_tree_needs)
{
	ck_assert_uint_eq(pairs_of("0000", 2), 2);
	ck_assert_uint_eq(pairs_of("00001111", 3), 2);
	ck_assert_uint_eq(pairs_of("0000111122223333", 1), 2);
	/* The spine has children of different lengths. */
	ck_assert_uint_eq(pairs_of("00001123", 1), 3);
	/* A leaf whose hosts are not a row is the root. */
	ck_assert_uint_eq(pairs_of("001111", 1), 3);
	ck_assert_uint_eq(pairs_of("0011", 1), 1);
	ck_assert_uint_eq(pairs_of("0010", 1), 2);
	/* Two spines may be below a leaf, and so may three. */
	ck_assert_uint_eq(pairs_of("00001122", 2), 3);
	ck_assert_uint_eq(pairs_of("0000111122223333", 3), 4);
}
END_TEST

Suite *
suite_manager_spread(void)
{
	Suite *suite = suite_create("manager_spread");
	TCase *tcase = tcase_create("pairs");

	tcase_add_loop_test(tcase, no_tree_needs_more_and_many_need_as_much, 0, 4);
	tcase_add_test(tcase, a_job_that_can_not_move_so_has_no_more_than_its_tree_needs);
	suite_add_tcase(suite, tcase);
	return suite;
}
