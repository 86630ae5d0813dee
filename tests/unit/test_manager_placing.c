/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The links that the manager chooses of hosts with several, so that a job keeps the order of ranks:
 * if any choice keeps it, the manager finds one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "tests/unit/tree_rig.h"
#include "wire/order.h"

/*
 * at: for each rank the switches that its host has links to, a digit for each, in the topology's
 * order.
 */
static uint16_t
place(const char *const *at)
{
	uint16_t n = 0;

	for (; at[n] != NULL; n++) {
		places[n] = (struct tree_place){ .n_switches = (uint8_t)strlen(at[n]) };
		for (uint8_t k = 0; k < places[n].n_switches; k++)
			places[n].switches[k] = (uint16_t)(at[n][k] - '0');
	}
	return n;
}

/*
 * Checks that each rank is at one of its switches, and that the ranks behind each switch are a
 * unit.
 */
static void
check_tree(uint16_t n_ranks)
{
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		const struct tree_node *node = &tree.nodes[i];
		unsigned int rank;

		ck_assert(fanin_order_is_unit(&node->ranks, n_ranks));
		ck_assert_uint_lt(node->parent, node->parent == TREE_NO_PARENT ? UINT32_MAX : i);
		FANIN_RANKS_EACH(rank, &node->local)
		{
			ck_assert_uint_lt(tree.chosen[rank], places[rank].n_switches);
			ck_assert_uint_eq(places[rank].switches[tree.chosen[rank]],
					  node->switch_index);
		}
	}
	ck_assert_uint_eq(fanin_ranks_count(&tree.nodes[0].ranks), n_ranks);
}

static const char *const case_between[] = { "0", "01", "01", "01", "01", "01", "01",
					    "1", "2",  "2",  "2",  "2",  NULL };
/* The leaf that the other ranks need in any case has a row of its own. */
static const char *const case_apart[] = { "01", "01", "2", "2", "1", "1", "1",
					  "1",  "3",  "3", "3", "3", NULL };
/* The row of the first leaf ends where the second one's must begin. */
static const char *const case_early[] = { "0", "01", "01", "1", "2", "2", "2", "2", NULL };

START_TEST(hosts_between_two_leaves_go_where_their_rows_are)
{
	static const char *const *const cases[] = { case_between, case_apart, case_early };
	const uint16_t n = place(cases[_i]);

	start_leaf_spine(4, 2);
	(void)place(cases[_i]);
	ck_assert_int_eq(tree_build(&graph, places, n, &tree), 0);
	check_tree(n);
}
END_TEST

/*
 * If a host loses a link, the hosts of its row, or some of them, move with it, and no other job
 * ends.
 */
START_TEST(any_host_that_loses_a_link_leaves_a_tree_in_order)
{
	for (uint16_t lost = 0; lost < 16; lost++) {
		for (uint8_t k = 0; k < 2; k++) {
			start_leaf_spine(8, 2);
			for (uint16_t i = 0; i < 16; i++)
				places[i] = (struct tree_place){
					.switches = { (uint16_t)(i / 4 * 2),
						      (uint16_t)(i / 4 * 2 + 1) },
					.n_switches = 2
				};
			/* The first and the last host of each row have one link. */
			places[5] = (struct tree_place){ .switches = { 2 }, .n_switches = 1 };
			places[7] = (struct tree_place){ .switches = { 3 }, .n_switches = 1 };
			places[lost].switches[0] =
				places[lost].switches[places[lost].n_switches == 2 ? k : 0];
			places[lost].n_switches = 1;
			if ((lost == 4 && k == 1) || (lost == 6 && k == 0))
				continue; /* 4 and 5, or 6 and 7, are at different leaves */
			ck_assert_msg(tree_build(&graph, places, 16, &tree) == 0,
				      "rank %u has its link %u", lost, k);
			check_tree(16);
		}
	}
}
END_TEST

/*
 * True if some choice of one link of each host has a tree, which tree_build finds without
 * alternatives.
 */
static bool
some_choice_has_a_tree(uint16_t n_ranks)
{
	struct tree_place all[8];
	uint8_t chosen[8] = { 0 };
	bool found = false;
	uint16_t rank = 0;

	memcpy(all, places, n_ranks * sizeof(*all));
	while (!found && rank < n_ranks) {
		for (uint16_t i = 0; i < n_ranks; i++)
			places[i] = (struct tree_place){ .switches = { all[i].switches[chosen[i]] },
							 .n_switches = 1 };
		found = tree_build(&graph, places, n_ranks, &tree) == 0;
		for (rank = 0; rank < n_ranks && ++chosen[rank] == all[rank].n_switches; rank++)
			chosen[rank] = 0;
	}
	memcpy(places, all, n_ranks * sizeof(*all));
	return found;
}

/* Mostly places ranks at leaves, which are the first four; most hosts have two links. */
static void
place_at_random(struct random *random, uint16_t n_ranks)
{
	for (uint16_t i = 0; i < n_ranks; i++) {
		const uint32_t kind = random_below(random, 8);

		places[i] = (struct tree_place){ .n_switches = kind == 0 ? 3 : kind < 6 ? 2 : 1 };
		for (uint8_t k = 0; k < places[i].n_switches; k++)
			places[i].switches[k] = (uint16_t)random_below(
				random, random_below(random, 16) == 0 ? graph.n_switches : 4);
	}
}

/* There is one path between any two switches, so only links can be chosen. _i: the seed. */
START_TEST(a_tree_in_order_is_found_exactly_if_some_choice_of_links_has_one)
{
	struct random random = random_seed((uint64_t)_i);
	unsigned int n_found = 0, n_none = 0;

	for (int round = 0; round < 200; round++) {
		const uint16_t n_ranks = (uint16_t)(2 + random_below(&random, 7));
		bool expected;
		int ret;

		if (round % 2 == 0)
			start_leaf_spine(4, 1);
		else
			start_three_levels();
		place_at_random(&random, n_ranks);
		expected = some_choice_has_a_tree(n_ranks);
		ret = tree_build(&graph, places, n_ranks, &tree);
		ck_assert_msg(ret == (expected ? 0 : -EDOM), "round %d: found %d", round, ret);
		if (expected)
			check_tree(n_ranks);
		n_found += expected;
		n_none += !expected;
	}
	ck_assert_uint_gt(n_found, 20);
	ck_assert_uint_gt(n_none, 20);
}
END_TEST

/* There are 64 hosts at each pair of leaves, of which the first and the last have one link. */
START_TEST(as_many_ranks_as_there_may_be_are_placed)
{
	start_leaf_spine(TREE_MAX_SWITCHES - 2, 2);
	for (uint16_t i = 0; i < TREE_MAX_RANKS; i++) {
		const uint16_t pair = (uint16_t)(i / 64);

		places[i] = (struct tree_place){ .switches = { (uint16_t)(2 * pair),
							       (uint16_t)(2 * pair + 1) },
						 .n_switches = 2 };
		if (i % 64 == 0 || i % 64 == 63)
			places[i] = (struct tree_place){ .switches = { (uint16_t)(2 * pair +
										  (i % 64 == 63)) },
							 .n_switches = 1 };
	}
	ck_assert_int_eq(tree_build(&graph, places, TREE_MAX_RANKS, &tree), 0);
	check_tree(TREE_MAX_RANKS);
	/* Ranks 30 and 33 can't be at the leaves of the other half. */
	places[30] = places[63];
	places[33] = places[0];
	ck_assert_int_eq(tree_build(&graph, places, TREE_MAX_RANKS, &tree), -EDOM);
}
END_TEST

Suite *
suite_manager_placing(void)
{
	Suite *suite = suite_create("manager_placing");
	TCase *tcase = tcase_create("links");

	tcase_add_loop_test(tcase, hosts_between_two_leaves_go_where_their_rows_are, 0, 3);
	tcase_add_test(tcase, any_host_that_loses_a_link_leaves_a_tree_in_order);
	tcase_add_loop_test(tcase, a_tree_in_order_is_found_exactly_if_some_choice_of_links_has_one,
			    0, 10);
	tcase_add_test(tcase, as_many_ranks_as_there_may_be_are_placed);
	suite_add_tcase(suite, tcase);
	return suite;
}
