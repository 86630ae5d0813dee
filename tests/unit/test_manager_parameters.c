/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager and parameters of a job's handler: all ranks ask for the same ones, all switches of
 * all trees are told, now and when the job moves, and hosts get the switches' refusals.
 */
#include "manager/host.h"
#include "manager/move.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

/*
 * Sends a request. Returns false, with *error filled, if the manager refuses it at once.
 * parameters: JSON; NULL: none.
 */
static bool
ask(unsigned int rank, const char *parameters, int trees, struct control_error *error)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };
	json_t *args = json_pack("{s:s, s:i, s:i, s:s, s:i, s:s}", "job", "j", "size",
				 MANAGER_RIG_HOSTS, "rank", (int)rank, "ip", ips[rank], "trees",
				 trees, "handler", "usual");
	json_t *id = json_integer(1);

	if (parameters != NULL)
		json_object_set_new(args, "parameters",
				    json_loads(parameters, JSON_DECODE_ANY, NULL));
	ck_assert_ptr_null(
		host_join(manager_rig.manager, &manager_rig.clients[rank], id, args, error));
	json_decref(args);
	json_decref(id);
	return control_client_data(&manager_rig.clients[rank]) != NULL;
}

static struct group *
make(const char *parameters, int trees)
{
	struct control_error error;
	struct group *group;

	ck_assert_msg(ask(0, parameters, trees, &error), "%s", error.message);
	ask(1, parameters, trees, &error);
	manager_rig_serve_all();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	return group;
}

/* Checks the parameters in each switch's request. parameters: NULL: none. */
static void
check_asked(const struct group *group, const char *parameters)
{
	json_t *expected = parameters == NULL ? NULL : json_loads(parameters, 0, NULL);

	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const json_t *args = manager_rig.created[group->nodes[i].switch_index];
		const json_t *found = json_object_get(args, "parameters");

		/* A leaf may have got a request for another tree since. */
		ck_assert_ptr_nonnull(args);
		ck_assert(expected == NULL ? found == NULL : json_equal(found, expected));
	}
	json_decref(expected);
}

#define SOME "{\"base\": 1099511627776, \"bytes\": 4097}"

START_TEST(all_switches_of_all_trees_are_told_the_parameters)
{
	struct group *group = make(SOME, 2);

	ck_assert_uint_eq(group->n_trees, 2);
	check_asked(group, SOME);
	check_asked(TAILQ_NEXT(group, entry), SOME);
}
END_TEST

/*
 * _i: no parameters, or an empty list of them. Switches that don't support parameters accept such a
 * job.
 */
START_TEST(a_job_without_parameters_is_made_without_a_word_of_them)
{
	check_asked(make(_i == 0 ? NULL : "{}", 1), NULL);
}
END_TEST

START_TEST(a_job_that_moves_after_a_restart_of_the_manager_keeps_its_parameters)
{
	struct group *group = make(SOME, 1);

	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (group->nodes[i].parent == TREE_NO_PARENT)
			manager_rig_lose(group->nodes[i].switch_index);
	}
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	check_asked(group, SOME);
}
END_TEST

static const struct {
	const char *first;
	const char *second;
	const char *error;
} pairs[] = {
	{ SOME, NULL,
	  "found parameters none, the others asked for {\"base\":1099511627776,\"bytes\":4097}" },
	{ NULL, SOME,
	  "found parameters {\"base\":1099511627776,\"bytes\":4097}, the others asked for none" },
	{ SOME, "{\"base\": 1099511627776, \"bytes\": 4098}", "found parameters {" },
	{ SOME, "{\"base\": 1099511627776}", "found parameters {" },
};

START_TEST(ranks_that_ask_for_different_parameters_are_refused)
{
	struct control_error error;

	ck_assert(ask(0, pairs[_i].first, 1, &error));
	ck_assert(!ask(1, pairs[_i].second, 1, &error));
	ck_assert_str_eq(error.code, "invalid");
	ck_assert_msg(strstr(error.message, pairs[_i].error) != NULL, "%s", error.message);
}
END_TEST

START_TEST(the_order_of_parameters_does_not_matter)
{
	struct control_error error;

	ck_assert(ask(0, SOME, 1, &error));
	ck_assert(ask(1, "{\"bytes\": 4097, \"base\": 1099511627776}", 1, &error));
}
END_TEST

static const struct {
	const char *parameters;
	const char *error;
} junk[] = {
	{ "5", "args.parameters: expected an object with 8 numbers at most" },
	{ "[1]", "args.parameters: expected an object" },
	{ "{\"base\": -1}", "args.parameters.base: expected an integer of 0 or more" },
	{ "{\"base\": 1.5}", "args.parameters.base: expected an integer of 0 or more" },
	{ "{\"base\": \"1\"}", "args.parameters.base: expected an integer of 0 or more" },
	{ "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1}",
	  "expected an object with 8 numbers at most" },
};

START_TEST(parameters_that_are_no_numbers_are_refused_with_their_names)
{
	struct control_error error;

	ck_assert(!ask(0, junk[_i].parameters, 1, &error));
	ck_assert_str_eq(error.code, "invalid");
	ck_assert_msg(strstr(error.message, junk[_i].error) != NULL, "%s", error.message);
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
}
END_TEST

Suite *
suite_manager_parameters(void)
{
	Suite *suite = suite_create("manager_parameters");
	TCase *tcase = tcase_create("manager_parameters");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, all_switches_of_all_trees_are_told_the_parameters);
	tcase_add_loop_test(tcase, a_job_without_parameters_is_made_without_a_word_of_them, 0, 2);
	tcase_add_test(tcase, a_job_that_moves_after_a_restart_of_the_manager_keeps_its_parameters);
	tcase_add_loop_test(tcase, ranks_that_ask_for_different_parameters_are_refused, 0,
			    sizeof(pairs) / sizeof(pairs[0]));
	tcase_add_test(tcase, the_order_of_parameters_does_not_matter);
	tcase_add_loop_test(tcase, parameters_that_are_no_numbers_are_refused_with_their_names, 0,
			    sizeof(junk) / sizeof(junk[0]));
	suite_add_tcase(suite, tcase);
	return suite;
}
