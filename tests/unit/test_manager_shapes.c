/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of how the manager plans jobs by the shape of their handlers, as the switches report it:
 * multicast needs a tree without slots, which a ring can't replace, and unknown shapes are refused.
 * The rig's switches have one handler of each kind.
 */
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "manager/install.h"
#include "manager/move.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

/*
 * Makes both hosts join the job "j", also as a ring; the switches have not answered yet. Returns
 * NULL if it was refused at once.
 */
static struct group *
join_or_ring(const char *handler)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };

	for (int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		json_t *args = json_pack("{s:s, s:i, s:i, s:s, s:s, s:b, s:s}", "job", "j", "size",
					 MANAGER_RIG_HOSTS, "rank", i, "ip", ips[i], "handler",
					 handler, "fallback", 1, "endpoint", "10.9.9.9:4711");
		json_t *id = json_integer(1);
		struct control_error error;

		ck_assert_ptr_null(
			host_join(manager_rig.manager, &manager_rig.clients[i], id, args, &error));
		json_decref(args);
		json_decref(id);
	}
	return group_find(&manager_rig.manager->groups, "j");
}

/* Returns a host's answer, freed by the next call. member: "result" or "error". */
static const json_t *
answer_of(unsigned int rank, const char *member)
{
	static json_t *line;
	const json_t *found = NULL;

	while (found == NULL) {
		json_decref(line);
		line = manager_rig_hear(rank);
		ck_assert_ptr_nonnull(line);
		found = json_object_get(line, member);
	}
	return found;
}

static const char *
text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

/* Checks that both hosts were refused for this reason. */
static void
expect_refused(const char *code, const char *words)
{
	for (unsigned int rank = 0; rank < MANAGER_RIG_HOSTS; rank++) {
		const json_t *error = answer_of(rank, "error");

		ck_assert_str_eq(text_of(error, "code"), code);
		ck_assert_msg(strstr(text_of(error, "message"), words) != NULL,
			      "found \"%s\", expected \"%s\"", text_of(error, "message"), words);
	}
}

/* Checks that all switches of a tree got the handler in their request, with slots or without. */
static void
expect_created(const struct group *group, const char *handler, bool slots)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const json_t *args = manager_rig.created[group->nodes[i].switch_index];

		ck_assert_str_eq(text_of(args, "handler"), handler);
		ck_assert_int_eq(json_object_get(args, "slots") != NULL, slots);
	}
}

/* Loses all paths between the leaves of the two hosts. */
static void
lose_spines(void)
{
	for (uint16_t i = SPINE0; i <= SPINE2; i++)
		manager_rig_lose(i);
}

START_TEST(a_multicast_job_has_a_tree_without_slots)
{
	struct group *group = join_with(1, "casting", false);

	manager_rig_serve_all();
	check_runs(group);
	ck_assert_int_eq(group->shape, GROUP_MULTICAST);
	ck_assert_uint_eq(group->n_nodes, 3);
	ck_assert_uint_eq(group->slots, 0);
	expect_created(group, "casting", false);
	ck_assert_str_eq(text_of(answer_of(0, "result"), "shape"), "multicast");
	remove_group(manager_rig.manager, group, "the test goes on");
	check_nothing_left();
	/* As usual. */
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++)
		control_client_set_data(&manager_rig.clients[i], NULL);
	group = join_and_serve(1);
	ck_assert_int_eq(group->shape, GROUP_TREE);
	ck_assert_uint_eq(group->slots, 64);
	expect_created(group, "usual", true);
	ck_assert_str_eq(text_of(answer_of(0, "result"), "shape"), "tree");
}
END_TEST

START_TEST(switches_that_give_jobs_no_slots_take_a_multicast_job)
{
	struct group *group;

	for (uint16_t i = 0; i < MANAGER_RIG_SWITCHES; i++)
		manager_rig.manager->peers[i].slots_per_job = 0;
	ck_assert_ptr_null(join_with(1, "usual", false));
	expect_refused("no_room", "fewer than 2 slots");
	group = join_with(1, "casting", false);
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(subgroups_of_a_multicast_job_have_a_tree_each)
{
	struct group *group = join_with(3, "casting", false);
	unsigned int roots = 0;

	manager_rig_serve_all();
	ck_assert_uint_eq(group->n_trees, 3);
	for (uint16_t i = 0; i < 3; i++) {
		const struct group *tree = tree_of(group, i);

		check_runs(tree);
		ck_assert_int_eq(tree->shape, GROUP_MULTICAST);
		ck_assert_uint_eq(tree->slots, 0);
		roots |= 1u << root_of(tree);
	}
	ck_assert_uint_eq(roots, 1u << SPINE0 | 1u << SPINE1 | 1u << SPINE2);
}
END_TEST

START_TEST(a_multicast_job_moves_to_another_tree)
{
	struct group *group = join_with(1, "casting", false);
	uint16_t root;

	manager_rig_serve_all();
	root = root_of(group);
	manager_rig_lose(root);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_ne(root_of(group), root);
	ck_assert(was_told(0, "moved") && was_told(1, "moved"));
	expect_created(group, "casting", false);
	manager_rig_raise(root);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_multicast_job_keeps_its_shape_when_the_manager_is_killed)
{
	struct group *group = join_with(1, "casting", false);

	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->shape, GROUP_MULTICAST);
	ck_assert_uint_eq(group->slots, 0);
	manager_rig_lose(root_of(group));
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
	expect_created(group, "casting", false);
}
END_TEST

/* _i: the switches are lost before hosts ask, or do not create the job. */
START_TEST(no_ring_takes_the_place_of_multicast)
{
	struct group *group;

	if (_i == 0)
		lose_spines();
	else
		memset(manager_rig.full, 1, sizeof(manager_rig.full));
	group = join_or_ring("casting");
	manager_rig_serve_all();
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
	expect_refused(
		_i == 0 ? "no_path" : "no_room",
		"no ring of its hosts does what the handler \"casting\" does, which has the shape multicast");
	check_nothing_left();
	/* A ring does replace a job that reduces. */
	group = join_or_ring("usual");
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_RING);
	ck_assert_str_eq(text_of(answer_of(0, "result"), "mode"), "ring");
}
END_TEST

/* _i: with a tree or without. */
START_TEST(a_shape_that_the_manager_does_not_know_is_refused_by_name)
{
	if (_i != 0)
		lose_spines();
	ck_assert_ptr_null(join_or_ring("strange"));
	expect_refused(
		"invalid",
		"the handler \"strange\" has the shape \"moebius\", expected tree, multicast, server or leaders");
	check_nothing_left();
}
END_TEST

/* Returns the switch of rank 0. */
static const char *
switch_of_rank_0(const json_t *result)
{
	return text_of(json_array_get(json_object_get(result, "peers"), 0), "switch_ip");
}

START_TEST(peers_of_a_multicast_job_are_listed_once_for_each_tree)
{
	struct group *group = join_with(1, "casting", false);
	const json_t *before;
	json_t *results[MANAGER_RIG_HOSTS];
	json_t *moved;

	manager_rig_serve_all();
	check_runs(group);
	for (uint16_t i = 0; i < MANAGER_RIG_HOSTS; i++)
		results[i] = host_result(manager_rig.manager, group, i);
	before = json_object_get(results[0], "peers");
	ck_assert_uint_eq(json_array_size(before), MANAGER_RIG_HOSTS);
	ck_assert_ptr_eq(json_object_get(results[1], "peers"), before);
	/* Rank 0 has a link to another leaf, too. */
	manager_rig_lose(strcmp(group_node_of(group, 0)->switch_name, "leaf0") == 0 ? LEAF0
										    : LEAF2);
	manager_rig_serve_all();
	check_runs(group);
	moved = host_result(manager_rig.manager, group, 1);
	ck_assert_str_ne(switch_of_rank_0(moved), switch_of_rank_0(results[1]));
	ck_assert_str_eq(switch_of_rank_0(moved), group_node_of(group, 0)->ip);
	json_decref(moved);
	for (uint16_t i = 0; i < MANAGER_RIG_HOSTS; i++)
		json_decref(results[i]);
}
END_TEST

START_TEST(switches_that_differ_about_a_handlers_shape_are_named)
{
	manager_rig_lose(LEAF1);
	manager_rig.has_other_handlers[LEAF1] = true;
	manager_rig_raise(LEAF1);
	ck_assert_ptr_null(join_or_ring("casting"));
	expect_refused(
		"invalid",
		"the handler \"casting\" has the shape tree on switch leaf1, but multicast on switch ");
}
END_TEST

Suite *
suite_manager_shapes(void)
{
	Suite *suite = suite_create("manager_shapes");
	TCase *tcase = tcase_create("shapes");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, a_multicast_job_has_a_tree_without_slots);
	tcase_add_test(tcase, switches_that_give_jobs_no_slots_take_a_multicast_job);
	tcase_add_test(tcase, subgroups_of_a_multicast_job_have_a_tree_each);
	tcase_add_test(tcase, a_multicast_job_moves_to_another_tree);
	tcase_add_test(tcase, a_multicast_job_keeps_its_shape_when_the_manager_is_killed);
	tcase_add_loop_test(tcase, no_ring_takes_the_place_of_multicast, 0, 2);
	tcase_add_loop_test(tcase, a_shape_that_the_manager_does_not_know_is_refused_by_name, 0, 2);
	tcase_add_test(tcase, peers_of_a_multicast_job_are_listed_once_for_each_tree);
	tcase_add_test(tcase, switches_that_differ_about_a_handlers_shape_are_named);
	suite_add_tcase(suite, tcase);
	return suite;
}
