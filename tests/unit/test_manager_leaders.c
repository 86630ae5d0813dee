/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of jobs whose blocks have leaders: which switches get them, what hosts are told, that no
 * job moves or ends when a switch is lost, and which options such jobs lack. The rig has three
 * leaves and three spines; a host at leaf0 and leaf2, and one at leaf1.
 */
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "manager/commands.h"
#include "manager/install.h"
#include "manager/move.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

static struct group *
make(void)
{
	struct group *group = join_with(1, "leading", false);

	manager_rig_serve_all();
	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	return group;
}

static const struct group_node *
node_at(const struct group *group, uint16_t switch_index)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (group->nodes[i].switch_index == switch_index)
			return &group->nodes[i];
	}
	return NULL;
}

static bool
has_job(uint16_t index)
{
	return json_object_size(manager_rig.jobs[index]) == 1;
}

static const char *
text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

static int64_t
number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/*
 * Makes a host join with one more argument. Returns the error, unless it has to wait for others.
 * value: taken over.
 */
static const char *
refusal_of(const char *key, json_t *value)
{
	static struct control_error error;
	json_t *args = json_pack("{s:s, s:i, s:s, s:s}", "job", "k", "size", 2, "ip", "10.0.0.1",
				 "handler", "leading");
	json_t *id = json_integer(1);

	error = (struct control_error){ 0 };
	json_object_set_new(args, key, value);
	ck_assert_ptr_null(
		host_join(manager_rig.manager, &manager_rig.clients[0], id, args, &error));
	json_decref(args);
	json_decref(id);
	return error.code == NULL ? NULL : error.message;
}

START_TEST(the_job_is_on_all_switches_with_their_links_and_hosts)
{
	struct group *group = make();
	const json_t *args, *members;

	ck_assert_int_eq(group->shape, GROUP_LEADERS);
	ck_assert_uint_eq(group->n_nodes, MANAGER_RIG_SWITCHES);
	check_runs(group);
	for (uint16_t i = 0; i < MANAGER_RIG_SWITCHES; i++) {
		args = manager_rig.created[i];
		ck_assert_uint_eq(json_array_size(json_object_get(args, "links")), 3);
		ck_assert_int_eq(number_of(args, "size"), 2);
		ck_assert_int_eq(number_of(args, "slots"), 64);
		ck_assert_str_eq(text_of(args, "handler"), "leading");
		ck_assert_ptr_null(json_object_get(args, "parent"));
		ck_assert_str_eq(text_of(args, "key"), text_of(manager_rig.created[0], "key"));
		ck_assert_int_eq(number_of(args, "payload_bytes"), group->payload_bytes);
		/* Switches between others have no member at all. */
		members = json_object_get(args, "members");
		ck_assert_int_eq(members != NULL, i != SPINE0 && i != SPINE1 && i != SPINE2);
	}
	members = json_array_get(json_object_get(manager_rig.created[LEAF1], "members"), 0);
	ck_assert_str_eq(text_of(members, "ip"), "10.0.1.1");
	ck_assert_str_eq(text_of(members, "port"), "h0");
	ck_assert_int_eq(number_of(members, "rank"), 1);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(hosts_are_told_all_that_a_switch_would_tell_them)
{
	struct group *group = make();
	json_t *line = manager_rig_hear(0);
	const json_t *result = json_object_get(line, "result");
	const json_t *parameters = json_object_get(result, "parameters");
	const json_t *peers = json_object_get(result, "peers");

	ck_assert_str_eq(text_of(result, "mode"), "network");
	ck_assert_str_eq(text_of(result, "shape"), "leaders");
	ck_assert_str_eq(text_of(result, "handler"), "leading");
	ck_assert_int_eq(number_of(result, "window"), 32);
	ck_assert_int_eq(number_of(result, "trees"), 1);
	ck_assert_int_eq(number_of(result, "slots"), 128 + LEAF0);
	ck_assert_int_eq(number_of(result, "sharing"), 1);
	/* In the order in which the handler declares them. */
	ck_assert_uint_eq(json_array_size(parameters), 2);
	ck_assert_int_eq(json_integer_value(json_array_get(parameters, 0)), 5);
	ck_assert_int_eq(json_integer_value(json_array_get(parameters, 1)), 70);
	ck_assert_uint_eq(json_array_size(peers), 2);
	ck_assert_str_eq(text_of(json_array_get(peers, 1), "ip"), "10.0.1.1");
	ck_assert_str_eq(text_of(result, "switch_ip"), group_node_of(group, 0)->ip);
	json_decref(line);
}
END_TEST

/* _i: the switch that is lost; the loss of a leaf also affects its hosts. */
START_TEST(nothing_moves_and_no_job_ends_when_a_switch_is_lost)
{
	struct group *group = make();
	const uint32_t id = group->id;

	manager_rig_lose((uint16_t)_i);
	manager_rig_serve_all();
	ck_assert_ptr_eq(group_find(&manager_rig.manager->groups, "j"), group);
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert(!group->stranded);
	ck_assert_uint_eq(group->generation, 1);
	ck_assert_uint_eq(group->n_nodes, MANAGER_RIG_SWITCHES);
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_moved, 0);
	ck_assert_uint_eq(manager_rig.manager->counters.moves_failed, 0);
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->removals));
	ck_assert(!was_told(0, "moved") && !was_told(1, "no_path"));
	/* The switch has restarted, and gets the job again. */
	json_object_clear(manager_rig.jobs[_i]);
	manager_rig_raise((uint16_t)_i);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(group->id, id);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_switch_that_keeps_its_job_while_it_is_cut_off_is_not_asked_again)
{
	struct group *group = make();

	manager_rig_lose(SPINE1);
	json_decref(manager_rig.created[SPINE1]);
	manager_rig.created[SPINE1] = NULL;
	manager_rig_raise(SPINE1);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_ptr_null(manager_rig.created[SPINE1]);
}
END_TEST

START_TEST(a_switch_that_comes_later_gets_the_job)
{
	struct group *group;

	manager_rig_lose(SPINE2);
	group = make();
	ck_assert_uint_eq(group->n_nodes, MANAGER_RIG_SWITCHES);
	ck_assert(!has_job(SPINE2) && has_job(SPINE1));
	/* Links to it are listed from the beginning, as it passes packets on in any case. */
	ck_assert_uint_eq(json_array_size(json_object_get(manager_rig.created[LEAF0], "links")), 3);
	manager_rig_raise(SPINE2);
	manager_rig_serve_all();
	check_runs(group);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_job_that_ends_is_not_sought_at_switches_that_never_had_it)
{
	struct group *group;

	manager_rig_lose(SPINE2);
	group = make();
	remove_group(manager_rig.manager, group, "the test is over");
	manager_rig_serve_all();
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->removals));
}
END_TEST

START_TEST(a_full_switch_gets_the_job_when_it_has_room)
{
	struct group *group;

	manager_rig.full[SPINE0] = true;
	group = make();
	ck_assert(!has_job(SPINE0));
	ck_assert_int_eq(node_at(group, SPINE0)->state, NODE_REFUSED);
	manager_rig.full[SPINE0] = false;
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_full_leaf_of_a_host_refuses_the_job)
{
	json_t *line;

	manager_rig.full[LEAF1] = true;
	ck_assert_ptr_nonnull(join_with(1, "leading", false));
	manager_rig_serve_all();
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
	line = manager_rig_hear(0);
	ck_assert_str_eq(text_of(json_object_get(line, "error"), "code"), "no_room");
	json_decref(line);
	check_nothing_left();
}
END_TEST

START_TEST(a_switch_that_is_lost_while_it_is_asked_holds_nobody_up)
{
	struct group *group = join_with(1, "leading", false);

	manager_rig_do_unheard(SPINE0);
	manager_rig_lose(SPINE1);
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	/* One of them has created the job, the other one has not. */
	manager_rig_raise(SPINE0);
	manager_rig_raise(SPINE1);
	manager_rig_serve_all();
	check_runs(group);
	for (uint16_t i = 0; i < group->n_nodes; i++)
		ck_assert_int_eq(group->nodes[i].state, NODE_INSTALLED);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(the_job_goes_on_when_the_manager_is_killed)
{
	struct group *group;

	manager_rig_lose(SPINE2);
	group = make();
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->shape, GROUP_LEADERS);
	/* A switch that was missing is there now, and another one has lost its job meanwhile. */
	json_object_clear(manager_rig.jobs[SPINE1]);
	manager_rig_look_at(SPINE1);
	manager_rig_serve_all();
	check_runs(group);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(the_last_host_that_leaves_ends_it)
{
	make();
	lose_host(0);
	ck_assert_ptr_nonnull(group_find(&manager_rig.manager->groups, "j"));
	lose_host(1);
	check_nothing_left();
}
END_TEST

START_TEST(unsupported_options_are_refused_at_once)
{
	static const struct {
		const char *key;
		const char *json;
		const char *words;
	} cases[] = {
		{ "size", "65", "found 65 ranks, expected at most 64" },
		{ "trees", "2", "found trees 2, expected 1" },
		{ "reproducible", "true", "found reproducible" },
		{ "accumulate", "\"f32\"", "found accumulate f32" },
		{ "authenticate", "true", "found authenticate" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *words = refusal_of(cases[i].key,
					       json_loads(cases[i].json, JSON_DECODE_ANY, NULL));

		ck_assert_ptr_nonnull(words);
		ck_assert_msg(strstr(words, cases[i].words) != NULL,
			      "found \"%s\", expected \"%s\"", words, cases[i].words);
	}
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "k"));
	/*
	 * Trees that the manager's configuration sets for other jobs don't count as requested by
	 * the host.
	 */
	manager_rig.config.trees = 2;
	(void)refusal_of("trees", json_integer(0));
	ck_assert_ptr_nonnull(group_find(&manager_rig.manager->groups, "k"));
}
END_TEST

START_TEST(lists_show_its_switches_and_their_links)
{
	struct control_error error;
	json_t *jobs, *trees;
	const json_t *job, *nodes;

	manager_rig_lose(SPINE2);
	make();
	jobs = command_jobs(manager_rig.manager, NULL, &error);
	trees = command_trees(manager_rig.manager, NULL, &error);
	job = json_array_get(json_object_get(jobs, "jobs"), 0);
	ck_assert_str_eq(text_of(job, "shape"), "leaders");
	ck_assert_uint_eq(json_array_size(json_object_get(job, "switches")), 5);
	nodes = json_object_get(json_array_get(json_object_get(trees, "trees"), 0), "nodes");
	ck_assert_uint_eq(json_array_size(nodes), MANAGER_RIG_SWITCHES);
	ck_assert_ptr_null(json_object_get(json_array_get(nodes, 1), "parent"));
	ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(nodes, 1), "links")), 3);
	json_decref(jobs);
	json_decref(trees);
}
END_TEST

Suite *
suite_manager_leaders(void)
{
	Suite *suite = suite_create("manager_leaders");
	TCase *tcase = tcase_create("leaders");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, the_job_is_on_all_switches_with_their_links_and_hosts);
	tcase_add_test(tcase, hosts_are_told_all_that_a_switch_would_tell_them);
	tcase_add_loop_test(tcase, nothing_moves_and_no_job_ends_when_a_switch_is_lost, LEAF0,
			    LEAF2 + 1);
	tcase_add_test(tcase, a_switch_that_keeps_its_job_while_it_is_cut_off_is_not_asked_again);
	tcase_add_test(tcase, a_switch_that_comes_later_gets_the_job);
	tcase_add_test(tcase, a_job_that_ends_is_not_sought_at_switches_that_never_had_it);
	tcase_add_test(tcase, a_full_switch_gets_the_job_when_it_has_room);
	tcase_add_test(tcase, a_full_leaf_of_a_host_refuses_the_job);
	tcase_add_test(tcase, a_switch_that_is_lost_while_it_is_asked_holds_nobody_up);
	tcase_add_test(tcase, the_job_goes_on_when_the_manager_is_killed);
	tcase_add_test(tcase, the_last_host_that_leaves_ends_it);
	tcase_add_test(tcase, unsupported_options_are_refused_at_once);
	tcase_add_test(tcase, lists_show_its_switches_and_their_links);
	suite_add_tcase(suite, tcase);
	return suite;
}
