/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of ranks over several switches, as the manager plans it: which trees keep it, which
 * ranks it gives to hosts that ask for none, and how it names impossible requests.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <check.h>

#include "manager/group.h"
#include "manager/order.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "tests/unit/tree_rig.h"
#include "wire/order.h"

#define RANKS_MAX 16

enum {
	LEAVES = 4,
	SPINE0 = LEAVES,
	SPINE1,
};

/* at: a letter for each rank, 'a' for the first switch. */
static uint16_t
place(const char *at)
{
	const uint16_t n = (uint16_t)strlen(at);

	for (uint16_t i = 0; i < n; i++)
		places[i] = (struct tree_place){ .switches = { (uint16_t)(at[i] - 'a') },
						 .n_switches = 1 };
	return n;
}

static int
build(const char *at)
{
	const uint16_t n = place(at);

	return tree_build(&graph, places, n, &tree);
}

static bool
is_in_order(unsigned int n_ranks)
{
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		if (!fanin_order_is_unit(&tree.nodes[i].ranks, n_ranks))
			return false;
	}
	return true;
}

START_TEST(ranks_over_leaves_are_taken_where_each_leaf_has_a_unit)
{
	static const struct {
		const char *at;
		int expected;
	} cases[] = {
		{ "aaaa", 0 },
		{ "aaaaa", 0 },
		{ "aabb", 0 },
		{ "bbaa", 0 },
		{ "abab", -EDOM },
		{ "abba", -EDOM },
		{ "aaabbb", -EDOM },
		{ "ababab", -EDOM },
		{ "aaaab", 0 },
		{ "aaaabb", 0 },
		{ "aabbcc", 0 },
		{ "aaaabbbb", 0 },
		{ "bbbbaaaa", 0 },
		{ "abababab", -EDOM },
		{ "aabbccdd", 0 },
		{ "ddddcba", 0 },
		{ "aaabbbcc", -EDOM },
		/* The leaf that has no unit is the root. */
		{ "aabbb", 0 },
		{ "baaaa", 0 },
		{ "aabbbb", 0 },
		{ "aaaaaabb", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start_leaf_spine(LEAVES, 2);
		ck_assert_msg(build(cases[i].at) == cases[i].expected, "%s", cases[i].at);
		if (cases[i].expected == 0)
			ck_assert(is_in_order((unsigned int)strlen(cases[i].at)));
		graph.in_order = false;
		ck_assert_int_eq(build(cases[i].at), 0);
	}
}
END_TEST

START_TEST(ranks_over_three_levels_are_taken_where_each_switch_has_a_unit)
{
	start_three_levels();
	ck_assert_int_eq(build("aabbccdd"), 0);
	ck_assert_uint_eq(tree.n_nodes, 7);
	ck_assert(is_in_order(8));
	ck_assert_int_eq(build("aaaccccc"), -EDOM);
	ck_assert_int_eq(build("aacccccc"), 0);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 2); /* six hosts are no unit */
	ck_assert_int_eq(build("aaccbbdd"), -EDOM); /* leaves are units, but the switches above them
						       are not */
	ck_assert_int_eq(build("aabbcd"), 0);
	ck_assert_int_eq(build("aabbccd"), 0);
}
END_TEST

/* The hosts at a root need not be consecutive. */
START_TEST(a_tree_that_keeps_the_order_is_preferred_to_one_of_less_depth)
{
	start_leaf_spine(LEAVES, 2);
	graph.in_order = false;
	ck_assert_int_eq(build("aaba"), 0);
	ck_assert_uint_eq(tree.depth, 1);
	graph.in_order = true;
	ck_assert_int_eq(build("aaba"), 0);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 0);
	ck_assert_uint_eq(tree.depth, 2);
	ck_assert(is_in_order(4));
}
END_TEST

START_TEST(every_spine_and_every_further_tree_keeps_the_order)
{
	start_leaf_spine(LEAVES, 2);
	ck_assert_int_eq(build("aabb"), 0);
	for (uint16_t i = 1; i < tree.n_nodes; i++) {
		switches[tree.nodes[i].switch_index].own++;
		links[tree.nodes[i].link].own++;
	}
	switches[tree.nodes[0].switch_index].own++;
	ck_assert_uint_eq(tree.nodes[0].switch_index, SPINE0);
	ck_assert_int_eq(build("aabb"), 0);
	ck_assert_uint_eq(tree.nodes[0].switch_index, SPINE1);
	ck_assert(is_in_order(4));
	switches[SPINE0].usable = false;
	ck_assert_int_eq(build("aabb"), 0);
	ck_assert(is_in_order(4));
	switches[SPINE1].usable = false;
	ck_assert_int_eq(build("aabb"), -EHOSTUNREACH);
}
END_TEST

/* Hosts 0 to 3 are at leaves 0 and 1, hosts 4 to 7 at leaves 2 and 3. */
static void
home_twice(void)
{
	start_leaf_spine(LEAVES, 2);
	for (uint16_t i = 0; i < 8; i++)
		places[i] = (struct tree_place){ .switches = { (uint16_t)(i / 4 * 2),
							       (uint16_t)(i / 4 * 2 + 1) },
						 .n_switches = 2 };
}

START_TEST(hosts_of_two_leaves_move_together_or_not_at_all)
{
	home_twice();
	ck_assert_int_eq(tree_build(&graph, places, 8, &tree), 0);
	ck_assert(is_in_order(8));
	/* One of them has lost its first link: the others of its row move with it. */
	places[1] = (struct tree_place){ .switches = { 1 }, .n_switches = 1 };
	ck_assert_int_eq(tree_build(&graph, places, 8, &tree), 0);
	ck_assert(is_in_order(8));
	/* These hosts have one link each. */
	for (uint16_t i = 0; i < 4; i++)
		places[i] = (struct tree_place){ .switches = { i == 1 }, .n_switches = 1 };
	ck_assert_int_eq(tree_build(&graph, places, 8, &tree), -EDOM);
	graph.in_order = false;
	ck_assert_int_eq(tree_build(&graph, places, 8, &tree), 0);
}
END_TEST

/* ------------------------------------------------------------------- dealing ranks */

/*
 * Makes a group whose members have come in a random order; for a rank of '*' the manager chooses.
 */
static struct group *
make_group(const char *at, const char *ranks, struct random *random)
{
	const uint16_t n = (uint16_t)strlen(at);
	struct group *group = group_create("j", n);
	uint16_t order[RANKS_MAX];

	ck_assert_ptr_nonnull(group);
	for (uint16_t i = 0; i < n; i++) {
		const uint32_t k = random_below(random, i + 1u);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint16_t i = 0; i < n; i++) {
		const uint16_t host = order[i];
		struct group_member *member = &group->members[group->n_members++];

		/* 10.0.SWITCH.HOST */
		member->ip_be = htonl(0x0a000000u | (uint32_t)(at[host] - 'a') << 8 | (host + 1u));
		member->rank = ranks == NULL || ranks[host] == '*' ? GROUP_NO_RANK
								   : ranks[host] - '0';
	}
	order_settle(group);
	return group;
}

static void
find_places(const struct group *group)
{
	for (uint16_t i = 0; i < group->size; i++)
		places[i] = (struct tree_place){
			.switches = { (uint16_t)(ntohl(group->members[i].ip_be) >> 8 & 0xff) },
			.n_switches = 1
		};
}

/* Deals ranks as plan.c does. Returns the result of tree_build for them. */
static int
deal(struct group *group)
{
	graph.in_order = false;
	find_places(group);
	ck_assert_int_eq(tree_build(&graph, places, group->size, &tree), 0);
	order_deal(group, &tree);
	graph.in_order = true;
	find_places(group);
	return tree_build(&graph, places, group->size, &tree);
}

/*
 * at: of hosts in the order of their addresses at each switch. expected: the switch of each rank,
 * or NULL: no order exists.
 */
static void
check_deal(const char *at, const char *ranks, const char *expected)
{
	struct random random = random_seed(strlen(at));
	uint32_t first[RANKS_MAX];

	for (int round = 0; round < 20; round++) {
		struct group *group = make_group(at, ranks, &random);
		const int ret = deal(group);

		ck_assert_msg(ret == (expected == NULL ? -EDOM : 0), "%s: found %d", at, ret);
		for (uint16_t i = 0; i < group->size; i++) {
			ck_assert_int_eq(group->members[i].rank, i);
			if (round == 0)
				first[i] = group->members[i].ip_be;
			ck_assert_uint_eq(group->members[i].ip_be, first[i]);
			if (expected != NULL)
				ck_assert_uint_eq(places[i].switches[0],
						  (unsigned int)(expected[i] - 'a'));
		}
		group_free(group);
	}
}

START_TEST(ranks_that_nobody_asks_for_are_dealt_leaf_by_leaf)
{
	start_leaf_spine(LEAVES, 2);
	check_deal("abab", NULL, "aabb");
	check_deal("aaaa", NULL, "aaaa");
	check_deal("bbaa", NULL, "aabb");
	check_deal("abcabc", NULL, "aabbcc");
	/* The switch with most hosts comes first, so that rows begin at valid positions. */
	check_deal("aabbbb", NULL, "bbbbaa");
	check_deal("abbbb", NULL, "bbbba");
	check_deal("aabbbbcc", NULL, "bbbbaacc");
	check_deal("aaabbbb", NULL, "bbbbaaa");
	check_deal("aaabbb", NULL, NULL);
	check_deal("aabbb", NULL, "aabbb");
	check_deal("aaabbbbbbbb", NULL, "bbbbbbbbaaa");
}
END_TEST

START_TEST(ranks_over_three_levels_are_dealt_switch_by_switch)
{
	start_three_levels();
	check_deal("abcdabcd", NULL, "aabbccdd");
	/* 2 and 1 hosts are below the first, 4 below the second: these come first. */
	check_deal("aabcccc", NULL, "ccccaab");
	check_deal("aabccd", NULL, NULL);
	check_deal("aabccdcd", NULL, NULL);
	check_deal("abbccccd", NULL, NULL);
	check_deal("bbaaccd", NULL, "aabbccd");
}
END_TEST

START_TEST(ranks_that_were_asked_for_stay)
{
	start_leaf_spine(LEAVES, 2);
	check_deal("aabb", "0*2*", "aabb");
	check_deal("aabb", "*3*0", NULL);
	check_deal("abab", "0123", NULL);
}
END_TEST

static const char *
name_of(const void *user, unsigned int index)
{
	const char *const *names = user;

	return names[index];
}

START_TEST(ranks_that_form_no_unit_are_named_with_their_switch)
{
	static const char *const names[] = {
		"leaf0", "leaf1", "leaf2", "leaf3", "spine0", "spine1"
	};
	char text[200];

	start_leaf_spine(LEAVES, 2);
	graph.in_order = false;
	ck_assert_int_eq(build("aaabbb"), 0);
	order_describe(&tree, 6, name_of, names, text, sizeof(text));
	ck_assert_str_eq(text, "ranks 0-2 at leaf0, 3-5 at leaf1");
	ck_assert_int_eq(build("abab"), 0);
	order_describe(&tree, 4, name_of, names, text, sizeof(text));
	ck_assert_str_eq(text, "ranks 0, 2 at leaf0, 1, 3 at leaf1");
	ck_assert_int_eq(build("aaaabb"), 0);
	order_describe(&tree, 6, name_of, names, text, sizeof(text));
	ck_assert_str_eq(text, "");
}
END_TEST

Suite *
suite_manager_order(void)
{
	Suite *suite = suite_create("manager_order");
	TCase *tcase = tcase_create("trees");

	tcase_add_test(tcase, ranks_over_leaves_are_taken_where_each_leaf_has_a_unit);
	tcase_add_test(tcase, ranks_over_three_levels_are_taken_where_each_switch_has_a_unit);
	tcase_add_test(tcase, a_tree_that_keeps_the_order_is_preferred_to_one_of_less_depth);
	tcase_add_test(tcase, every_spine_and_every_further_tree_keeps_the_order);
	tcase_add_test(tcase, hosts_of_two_leaves_move_together_or_not_at_all);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("ranks");
	tcase_add_test(tcase, ranks_that_nobody_asks_for_are_dealt_leaf_by_leaf);
	tcase_add_test(tcase, ranks_over_three_levels_are_dealt_switch_by_switch);
	tcase_add_test(tcase, ranks_that_were_asked_for_stay);
	tcase_add_test(tcase, ranks_that_form_no_unit_are_named_with_their_switch);
	suite_add_tcase(suite, tcase);
	return suite;
}
