/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager and jobs whose packets have tags: all ranks ask for the same, all switches of all
 * trees are told, and such a job never becomes a ring.
 */
#include "manager/commands.h"
#include "manager/host.h"
#include "manager/move.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"
#include "wire/wire.h"

#define MTU 9000 /* of the rig's ports */

/* A host's request. */
struct wish {
	bool authenticate;
	bool fallback;
	int trees;
};

/* Sends it. Returns false, with *error filled, if the manager refuses it at once. */
static bool
ask(unsigned int rank, const struct wish *wish, struct control_error *error)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };
	json_t *args = json_pack("{s:s, s:i, s:i, s:s, s:i, s:b, s:s}", "job", "j", "size",
				 MANAGER_RIG_HOSTS, "rank", (int)rank, "ip", ips[rank], "trees",
				 wish->trees, "fallback", wish->fallback, "endpoint",
				 "10.0.0.1:4000");
	json_t *id = json_integer(1);

	if (wish->authenticate)
		json_object_set_new(args, "authenticate", json_true());
	ck_assert_ptr_null(
		host_join(manager_rig.manager, &manager_rig.clients[rank], id, args, error));
	json_decref(args);
	json_decref(id);
	return control_client_data(&manager_rig.clients[rank]) != NULL;
}

/*
 * Makes both hosts ask for the same, and the switches answer. Returns the job, NULL if there is
 * none.
 */
static struct group *
ask_both(const struct wish *wish)
{
	struct control_error error;

	ck_assert(ask(0, wish, &error));
	ask(1, wish, &error);
	manager_rig_serve_all();
	return group_find(&manager_rig.manager->groups, "j");
}

static struct group *
make(bool authenticate, int trees)
{
	struct group *group =
		ask_both(&(struct wish){ .authenticate = authenticate, .trees = trees });

	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert_uint_eq(group->n_trees, (unsigned int)trees);
	return group;
}

/*
 * Checks that the requests to all switches of a tree are for a job with tags, or that none mentions
 * tags.
 */
static void
check_asked(const struct group *group, bool authenticate)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const json_t *args = manager_rig.created[group->nodes[i].switch_index];
		const json_t *found = json_object_get(args, "authenticate");

		ck_assert_ptr_nonnull(args);
		ck_assert_int_eq(json_integer_value(json_object_get(args, "id")), group->id);
		ck_assert(authenticate ? json_is_true(found) : found == NULL);
		ck_assert_int_eq(json_integer_value(json_object_get(args, "payload_bytes")),
				 fanin_payload_for_mtu(MTU, authenticate));
	}
}

/* Returns the next answer to a join, a new reference. */
static json_t *
hear_answer(unsigned int rank)
{
	json_t *line;

	while ((line = manager_rig_hear(rank)) != NULL) {
		if (json_object_get(line, "ok") != NULL)
			return line;
		json_decref(line);
	}
	ck_abort_msg("no answer to rank %u", rank);
	return NULL;
}

/* _i: with tags. */
START_TEST(hosts_and_people_are_told_whether_a_job_has_tags)
{
	const json_t *args = NULL;
	struct control_error error;
	json_t *result, *answer;
	const json_t *entry;

	make(_i, 1);
	answer = hear_answer(0);
	entry = json_object_get(json_object_get(answer, "result"), "authenticated");
	ck_assert(json_is_boolean(entry) && json_is_true(entry) == (_i != 0));
	result = command_jobs(manager_rig.manager, args, &error);
	entry = json_array_get(json_object_get(result, "jobs"), 0);
	ck_assert(json_is_boolean(json_object_get(entry, "authenticated")));
	ck_assert_int_eq(json_is_true(json_object_get(entry, "authenticated")), _i);
	json_decref(result);
	json_decref(answer);
}
END_TEST

/* _i: with tags. */
START_TEST(all_switches_of_a_tree_are_asked_for_the_same)
{
	struct group *group = make(_i, 1);

	check_asked(group, _i);
	ck_assert_uint_gt(group->n_nodes, 2);
}
END_TEST

START_TEST(further_trees_have_tags_as_the_first_one)
{
	struct group *group = make(true, 3);

	/* The last request to the leaves was for the third tree, that to each spine for its own. */
	for (unsigned int i = 0; i < MANAGER_RIG_SWITCHES; i++) {
		if (manager_rig.created[i] != NULL)
			ck_assert(json_is_true(
				json_object_get(manager_rig.created[i], "authenticate")));
	}
	check_asked(tree_of(group, 2), true);
	ck_assert_uint_eq(tree_of(group, 1)->payload_bytes, fanin_payload_for_mtu(MTU, true));
}
END_TEST

/* _i: the manager is killed before. */
START_TEST(a_job_keeps_its_tags_when_it_moves)
{
	struct group *group = make(true, 1);

	if (_i != 0)
		manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert(group->authenticate);
	manager_rig_lose(root_of(group));
	manager_rig_serve_all();
	check_runs(group);
	check_asked(group, true);
}
END_TEST

/* _i: the first rank's choice. */
START_TEST(ranks_that_want_something_else_are_refused_by_name)
{
	static const char *const words[] = {
		"found authenticate true, the others asked for false",
		"found authenticate false, the others asked for true"
	};
	struct control_error error;

	ck_assert(ask(0, &(struct wish){ .authenticate = _i, .trees = 1 }, &error));
	ck_assert(!ask(1, &(struct wish){ .authenticate = !_i, .trees = 1 }, &error));
	ck_assert_str_eq(error.code, "invalid");
	ck_assert_msg(strstr(error.message, words[_i]) != NULL, "found '%s'", error.message);
	/* The rank may ask again, with the others' choice. */
	ck_assert(ask(1, &(struct wish){ .authenticate = _i, .trees = 1 }, &error));
	manager_rig_serve_all();
	check_runs(group_find(&manager_rig.manager->groups, "j"));
}
END_TEST

static const char no_ring[] = "a ring of its hosts would not authenticate its packets";

/* _i: with tags. There is no room at all, and both hosts would accept a ring. */
START_TEST(no_job_with_tags_becomes_a_ring)
{
	struct group *group;
	json_t *answer;
	const char *code, *message;

	memset(manager_rig.full, 1, sizeof(manager_rig.full));
	group = ask_both(&(struct wish){ .authenticate = _i, .fallback = true, .trees = 1 });
	answer = hear_answer(1);
	if (_i == 0) {
		ck_assert_int_eq(group->state, GROUP_RING);
	} else {
		code = json_string_value(json_object_get(json_object_get(answer, "error"), "code"));
		message = json_string_value(
			json_object_get(json_object_get(answer, "error"), "message"));
		ck_assert_str_eq(code, "no_room");
		ck_assert_msg(strstr(message, no_ring) != NULL, "found '%s'", message);
		ck_assert_msg(strstr(message, "so the test says") != NULL, "found '%s'", message);
		check_nothing_left();
		ck_assert_uint_eq(manager_rig.manager->counters.jobs_ring, 0);
	}
	json_decref(answer);
}
END_TEST

START_TEST(where_hosts_forbid_a_ring_the_reason_is_only_that_of_the_switches)
{
	json_t *answer;

	memset(manager_rig.full, 1, sizeof(manager_rig.full));
	ck_assert_ptr_null(ask_both(&(struct wish){ .authenticate = true, .trees = 1 }));
	answer = hear_answer(0);
	ck_assert_ptr_null(strstr(
		json_string_value(json_object_get(json_object_get(answer, "error"), "message")),
		"ring"));
	json_decref(answer);
}
END_TEST

/* _i: the next tree is planned, but the switches refuse it. */
START_TEST(a_job_with_tags_that_loses_its_tree_stays_in_the_network)
{
	struct group *group =
		ask_both(&(struct wish){ .authenticate = true, .fallback = true, .trees = 1 });

	check_runs(group);
	if (_i != 0) {
		memset(manager_rig.full, 1, sizeof(manager_rig.full));
		manager_rig_lose(root_of(group));
	} else {
		manager_rig_lose(LEAF1);
	}
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert(group->stranded && group->reason[0] != '\0');
	ck_assert(was_told(0, "no_path"));
	/* The job has its tags when it gets a tree again. */
	memset(manager_rig.full, 0, sizeof(manager_rig.full));
	if (_i == 0)
		manager_rig_raise(LEAF1);
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
	check_asked(group, true);
}
END_TEST

START_TEST(no_entry_of_the_database_is_a_ring_with_tags)
{
	memset(manager_rig.full, 1, sizeof(manager_rig.full));
	ck_assert_int_eq(ask_both(&(struct wish){ .fallback = true, .trees = 1 })->state,
			 GROUP_RING);
	manager_rig_restart();
	ck_assert_int_eq(group_find(&manager_rig.manager->groups, "j")->state, GROUP_RING);
	manager_rig_restart_after(
		"UPDATE groups SET document = replace(document, '\"authenticated\":false', '\"authenticated\":true')");
	check_nothing_left();
}
END_TEST

START_TEST(a_job_of_a_database_without_tags_has_none)
{
	make(false, 1);
	manager_rig_restart_after(
		"UPDATE groups SET document = replace(document, '\"authenticated\":false,', '')");
	ck_assert(!group_find(&manager_rig.manager->groups, "j")->authenticate);
}
END_TEST

Suite *
suite_manager_tags(void)
{
	Suite *suite = suite_create("manager_tags");
	TCase *tcase = tcase_create("tags");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_loop_test(tcase, hosts_and_people_are_told_whether_a_job_has_tags, 0, 2);
	tcase_add_loop_test(tcase, all_switches_of_a_tree_are_asked_for_the_same, 0, 2);
	tcase_add_test(tcase, further_trees_have_tags_as_the_first_one);
	tcase_add_loop_test(tcase, a_job_keeps_its_tags_when_it_moves, 0, 2);
	tcase_add_loop_test(tcase, ranks_that_want_something_else_are_refused_by_name, 0, 2);
	tcase_add_loop_test(tcase, no_job_with_tags_becomes_a_ring, 0, 2);
	tcase_add_test(tcase, where_hosts_forbid_a_ring_the_reason_is_only_that_of_the_switches);
	tcase_add_loop_test(tcase, a_job_with_tags_that_loses_its_tree_stays_in_the_network, 0, 2);
	tcase_add_test(tcase, no_entry_of_the_database_is_a_ring_with_tags);
	tcase_add_test(tcase, a_job_of_a_database_without_tags_has_none);
	suite_add_tcase(suite, tcase);
	return suite;
}
