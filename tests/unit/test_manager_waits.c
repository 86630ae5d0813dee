/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Causes of waits in a tree of three levels: the core is node 0, an aggregation switch with the
 * ranks 6 and 7 is node 1, and below it are leaf0 with the ranks 0 to 2 and leaf1 with 3 to 5. The
 * test plays the switches' reports of their blocks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manager/waits_tree.h"
#include "tests/unit/suites.h"

#define N_NODES 4

static struct waits_node nodes[N_NODES];
static json_t *told;

static void
make_tree(void)
{
	static const struct waits_node tree[N_NODES] = {
		{ .switch_name = "core", .parent = TREE_NO_PARENT, .ranks = { { 0xff } } },
		{ .switch_name = "agg", .parent = 0, .local = { { 0xc0 } }, .ranks = { { 0xff } } },
		{ .switch_name = "leaf0",
		  .parent = 1,
		  .local = { { 0x07 } },
		  .ranks = { { 0x07 } } },
		{ .switch_name = "leaf1",
		  .parent = 1,
		  .local = { { 0x38 } },
		  .ranks = { { 0x38 } } },
	};

	memcpy(nodes, tree, sizeof(nodes));
	told = NULL;
}

static void
free_tree(void)
{
	for (unsigned int i = 0; i < N_NODES; i++)
		free(nodes[i].blocks);
	json_decref(told);
}

/* Sets a switch's blocks, as JSON. Members that matter only to jobs without a run are left out. */
static void
say(unsigned int node, const char *blocks)
{
	json_error_t error;
	json_t *list = json_loads(blocks, 0, &error);
	json_t *answer = json_pack("{s:s, s:o, s:[]}", "state", "active", "blocks", list,
				   "members");

	ck_assert_msg(answer != NULL, "%s", error.text);
	ck_assert_int_eq(waits_node_take(&nodes[node], answer), 0);
	json_decref(answer);
}

static void
describe(void)
{
	json_decref(told);
	told = json_object();
	waits_tree_describe(nodes, N_NODES, told);
}

/* Checks the causes of the block at a position: "leaf1 3 4 missing, agg 6 missing". */
static void
expect_block(size_t at, int number, const char *expected)
{
	const json_t *block = json_array_get(json_object_get(told, "blocks"), at);
	char text[512] = "";
	const json_t *cause, *rank;
	size_t i, k;

	ck_assert_int_eq(json_integer_value(json_object_get(block, "block")), number);
	json_array_foreach(json_object_get(block, "waits_for"), i, cause) {
		size_t len = strlen(text);

		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i == 0 ? "" : ", ",
					json_string_value(json_object_get(cause, "switch")));
		json_array_foreach(json_object_get(cause, "ranks"), k, rank)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						" %" JSON_INTEGER_FORMAT, json_integer_value(rank));
		snprintf(text + len, sizeof(text) - len, " %s",
			 json_string_value(json_object_get(cause, "why")));
	}
	ck_assert_str_eq(text, expected);
}

START_TEST(a_missing_rank_is_found_below_two_switches)
{
	/* The core has received nothing: its only child has not sent yet. */
	say(0, "[]");
	say(1, "[{\"block\":812,\"since_ms\":1100,\"for\":\"members\",\"missing\":[3]}]");
	say(2, "[{\"block\":812,\"since_ms\":1200,\"for\":\"parent\",\"missing\":[]}]");
	say(3, "[{\"block\":812,\"since_ms\":900,\"for\":\"members\",\"missing\":[4]}]");
	describe();
	expect_block(0, 812, "leaf1 4 missing");
	ck_assert_int_eq(json_integer_value(
				 json_object_get(json_array_get(json_object_get(told, "blocks"), 0),
						 "since_ms")),
			 1200);
	ck_assert_int_eq(json_integer_value(json_object_get(told, "waiting")), 1);
}
END_TEST

START_TEST(probe_findings_about_missing_ranks_are_told)
{
	json_t *answer = json_pack("{s:s, s:[{s:i, s:i, s:s, s:[i,i]}], s:[], s:[i,i], s:[i]}",
				   "state", "active", "blocks", "block", 7, "since_ms", 40, "for",
				   "members", "missing", 3, 4, "members", "ended", 4, 5, "silent",
				   1);
	const json_t *cause, *ended, *silent;

	say(0, "[]");
	say(1, "[{\"block\":7,\"since_ms\":50,\"for\":\"members\",\"missing\":[3]}]");
	say(2, "[{\"block\":7,\"since_ms\":50,\"for\":\"parent\",\"missing\":[]}]");
	ck_assert_int_eq(waits_node_take(&nodes[3], answer), 0);
	json_decref(answer);
	describe();
	cause = json_array_get(json_object_get(json_array_get(json_object_get(told, "blocks"), 0),
					       "waits_for"),
			       0);
	/* Only those that this block lacks. */
	ended = json_object_get(cause, "ended");
	silent = json_object_get(cause, "silent");
	ck_assert_uint_eq(json_array_size(ended), 1);
	ck_assert_int_eq(json_integer_value(json_array_get(ended, 0)), 4);
	ck_assert(json_is_array(silent) && json_array_size(silent) == 0);
}
END_TEST

START_TEST(a_switch_that_has_nothing_of_a_block_waits_for_all_its_ranks)
{
	say(0, "[]");
	say(1, "[{\"block\":5,\"since_ms\":10,\"for\":\"members\",\"missing\":[0,3,7]}]");
	say(2, "[]");
	say(3, "[{\"block\":5,\"since_ms\":10,\"for\":\"members\",\"missing\":[3,5]}]");
	describe();
	expect_block(0, 5, "agg 7 missing, leaf0 0 1 2 missing, leaf1 3 5 missing");
}
END_TEST

START_TEST(a_block_sent_up_is_on_its_way)
{
	/* The sum is on the way to the root, or the result on the way back: no rank is missing. */
	say(0, "[]");
	say(1, "[{\"block\":5,\"since_ms\":10,\"for\":\"parent\",\"missing\":[]}]");
	say(2, "[{\"block\":5,\"since_ms\":12,\"for\":\"parent\",\"missing\":[]},"
	       "{\"block\":4,\"since_ms\":20,\"for\":\"parent\",\"missing\":[]}]");
	say(3, "[]");
	describe();
	expect_block(0, 4, "leaf0 0 1 2 sent");
	expect_block(1, 5, "agg 0 1 2 3 4 5 6 7 sent");
}
END_TEST

START_TEST(a_switch_that_does_not_answer_is_the_cause)
{
	say(0, "[]");
	say(1, "[{\"block\":5,\"since_ms\":10,\"for\":\"members\",\"missing\":[0,3]}]");
	say(2, "[{\"block\":5,\"since_ms\":10,\"for\":\"members\",\"missing\":[1]}]");
	strcpy(nodes[3].error, "the connection was lost");
	describe();
	expect_block(0, 5, "leaf0 1 missing, leaf1 3 4 5 unreached");
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_array_get(json_object_get(told, "unreached"), 0), "error")),
			 "the connection was lost");
}
END_TEST

START_TEST(sixteen_blocks_are_told_that_wait_longest)
{
	json_t *blocks = json_array();
	char *text;

	for (int i = 0; i < 40; i++)
		json_array_append_new(blocks,
				      json_pack("{s:i, s:i, s:s, s:[i]}", "block", i, "since_ms",
						7 * i % 40, "for", "members", "missing", 6));
	text = json_dumps(blocks, 0);
	say(0, "[]");
	say(1, text);
	say(2, "[]");
	say(3, "[]");
	describe();
	ck_assert_uint_eq(json_array_size(json_object_get(told, "blocks")), 16);
	ck_assert_int_eq(json_integer_value(json_object_get(told, "waiting")), 40);
	expect_block(0, 17, "agg 6 missing"); /* 7 * 17 = 39 modulo 40 */
	expect_block(1, 34, "agg 6 missing");
	free(text);
	json_decref(blocks);
}
END_TEST

START_TEST(ranks_that_have_not_joined_are_told_by_their_own_switch)
{
	json_t *answer = json_pack("{s:s, s:[], s:[{s:[i], s:b}, {s:[i], s:b}, {s:[i, i], s:b}]}",
				   "state", "waiting", "blocks", "members", "ranks", 6, "joined", 1,
				   "ranks", 7, "joined", 0, "ranks", 0, 1, "joined", 0);
	const json_t *entry;

	ck_assert_int_eq(waits_node_take(&nodes[1], answer), 0);
	json_decref(answer);
	describe();
	entry = json_array_get(json_object_get(told, "not_joined"), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(told, "not_joined")), 1);
	ck_assert_str_eq(json_string_value(json_object_get(entry, "switch")), "agg");
	ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(entry, "ranks"), 0)), 7);
	ck_assert_uint_eq(json_array_size(json_object_get(entry, "ranks")), 1);
}
END_TEST

START_TEST(an_answer_of_another_form_is_no_answer)
{
	static const char *const answers[] = { "{}", "{\"state\":\"active\"}",
					       "{\"state\":7,\"blocks\":[]}",
					       "{\"state\":\"active\",\"blocks\":{}}" };
	json_t *answer = json_loads(answers[_i], 0, NULL);

	ck_assert_int_lt(waits_node_take(&nodes[0], answer), 0);
	ck_assert_str_ne(nodes[0].error, "");
	ck_assert(!nodes[0].answered);
	json_decref(answer);
}
END_TEST

START_TEST(junk_among_the_blocks_does_no_harm)
{
	say(0, "[7, {}, {\"block\":\"x\",\"missing\":[64,-1,\"y\",3]}, {\"missing\":5}]");
	for (unsigned int i = 1; i < N_NODES; i++)
		say(i, "[]");
	describe();
	ck_assert_int_eq(json_integer_value(json_object_get(told, "waiting")), 1);
}
END_TEST

/* Returns a member of the first cause of the first block. */
static const char *
first_cause(const char *key)
{
	const json_t *block = json_array_get(json_object_get(told, "blocks"), 0);
	const json_t *cause = json_array_get(json_object_get(block, "waits_for"), 0);
	const char *text = json_string_value(json_object_get(cause, key));

	return text == NULL ? "" : text;
}

START_TEST(a_server_knows_which_ranks_it_misses)
{
	nodes[0].is_server = true;
	/* The switches have passed on everything that they had. */
	say(0, "[{\"block\":5,\"since_ms\":30,\"for\":\"members\",\"missing\":[4,7]}]");
	say(1, "[]");
	say(2, "[]");
	say(3, "[]");
	describe();
	expect_block(0, 5, "agg 7 missing, leaf1 4 missing");
	ck_assert_str_eq(first_cause("kind"), "");
	/* Others are in a sum that is not complete yet. */
	free(nodes[1].blocks);
	say(1, "[{\"block\":5,\"since_ms\":30,\"for\":\"members\",\"missing\":[0,7]}]");
	describe();
	expect_block(0, 5, "agg 7 missing");
}
END_TEST

START_TEST(a_block_that_no_server_has_begun_waits_below_it)
{
	nodes[0].is_server = true;
	say(0, "[]");
	say(1, "[{\"block\":5,\"since_ms\":30,\"for\":\"members\",\"missing\":[3,7]}]");
	say(2, "[]");
	say(3, "[]");
	describe();
	expect_block(0, 5, "agg 7 missing, leaf1 3 4 5 missing");
}
END_TEST

START_TEST(a_server_that_a_sum_was_sent_to_is_named)
{
	nodes[0].is_server = true;
	say(0, "[]");
	say(1, "[{\"block\":5,\"since_ms\":10,\"for\":\"parent\",\"missing\":[]}]");
	say(2, "[]");
	say(3, "[]");
	describe();
	expect_block(0, 5, "agg 0 1 2 3 4 5 6 7 sent");
	ck_assert_str_eq(first_cause("server"), "core");
}
END_TEST

START_TEST(a_server_that_does_not_answer_is_named)
{
	const json_t *unreached;

	nodes[0].is_server = true;
	strcpy(nodes[0].error, "the connection was lost");
	say(1, "[{\"block\":5,\"since_ms\":10,\"for\":\"parent\",\"missing\":[]}]");
	say(2, "[]");
	say(3, "[]");
	describe();
	expect_block(0, 5, "core 0 1 2 3 4 5 6 7 unreached");
	ck_assert_str_eq(first_cause("kind"), "server");
	unreached = json_array_get(json_object_get(told, "unreached"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(unreached, "switch")), "core");
	ck_assert_str_eq(json_string_value(json_object_get(unreached, "kind")), "server");
}
END_TEST

Suite *
suite_manager_waits(void)
{
	Suite *suite = suite_create("manager_waits");
	TCase *tcase = tcase_create("tree");

	tcase_add_checked_fixture(tcase, make_tree, free_tree);
	tcase_add_test(tcase, a_missing_rank_is_found_below_two_switches);
	tcase_add_test(tcase, probe_findings_about_missing_ranks_are_told);
	tcase_add_test(tcase, a_switch_that_has_nothing_of_a_block_waits_for_all_its_ranks);
	tcase_add_test(tcase, a_block_sent_up_is_on_its_way);
	tcase_add_test(tcase, a_switch_that_does_not_answer_is_the_cause);
	tcase_add_test(tcase, a_server_knows_which_ranks_it_misses);
	tcase_add_test(tcase, a_block_that_no_server_has_begun_waits_below_it);
	tcase_add_test(tcase, a_server_that_a_sum_was_sent_to_is_named);
	tcase_add_test(tcase, a_server_that_does_not_answer_is_named);
	tcase_add_test(tcase, sixteen_blocks_are_told_that_wait_longest);
	tcase_add_test(tcase, ranks_that_have_not_joined_are_told_by_their_own_switch);
	tcase_add_loop_test(tcase, an_answer_of_another_form_is_no_answer, 0, 4);
	tcase_add_test(tcase, junk_among_the_blocks_does_no_harm);
	suite_add_tcase(suite, tcase);
	return suite;
}
