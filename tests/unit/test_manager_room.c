/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of where the manager puts jobs on switches that are full or almost full, and of unusual
 * paths.
 */
#include <check.h>

#include "manager/install.h"
#include "manager/move.h"
#include "manager/reconcile.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

START_TEST(a_job_that_moves_needs_no_second_place_on_its_switches)
{
	struct group *group;

	limit_jobs(1);
	group = join_and_serve(1);
	manager_rig_lose(root_of(group));
	ck_assert(group->moving);
	/* The first attempt fails, and the jobs that other switches have created are removed. */
	manager_rig.full[root_of(group)] = true;
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(manager_rig.manager->counters.installs_undone, 1);
	/* The manager no longer knows which switches have created the job, and some have. */
	memset(manager_rig.full, 0, sizeof(manager_rig.full));
	manager_rig_lose(root_of(group));
	manager_rig_raise(SPINE0);
	manager_rig_serve_switch(LEAF1);
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(another_attempt_needs_no_second_place_on_the_switches_of_the_first)
{
	struct group *group;

	limit_jobs(1);
	group = join(1);
	manager_rig.full[root_of(group)] = true;
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(a_switch_may_be_nearer_to_the_root_than_the_one_that_its_link_names_first)
{
	struct group *group;

	/*
	 * The links name leaves first; here a spine must be below a leaf, and another one above it.
	 */
	manager_rig.port_is_down[LEAF0][1] = manager_rig.port_is_down[LEAF0][2] = true;
	manager_rig.port_is_down[LEAF1][0] = true;
	manager_rig.port_is_down[LEAF2][6] = true;
	limit_jobs(8);
	group = join_and_serve(1);
	check_runs(group);
	ck_assert_uint_eq(group->n_nodes, 5);
	for (uint16_t i = 1; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];
		const bool from_leaf = node->switch_name[0] == 'l';

		ck_assert_int_eq(node->port[0], from_leaf ? 'u' : 'p');
		ck_assert_int_eq(node->parent_port[0], from_leaf ? 'p' : 'u');
	}
}
END_TEST

START_TEST(a_full_switch_takes_a_host_of_the_job_that_it_has)
{
	struct group *group;

	/*
	 * The only path between the leaves of the two hosts is through the first host's other leaf.
	 */
	manager_rig.port_is_down[LEAF0][1] = manager_rig.port_is_down[LEAF0][2] = true;
	manager_rig.port_is_down[LEAF1][0] = true;
	manager_rig.port_is_down[LEAF2][6] = true;
	limit_jobs(1);
	group = join_and_serve(1);
	ck_assert_uint_eq(group->n_nodes, 5);
	manager_rig.port_is_down[LEAF2][6] = false;
	manager_rig.port_is_down[LEAF0][6] = true;
	limit_jobs(1);
	check_runs(group);
	ck_assert_uint_eq(group_node_of(group, 0)->switch_index, LEAF2);
}
END_TEST

/* Adds a foreign job to a switch. */
static void
add_foreign(uint16_t index, uint32_t id)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", id);
	json_object_set_new(manager_rig.jobs[index], number, json_string("somebody"));
}

START_TEST(a_job_that_moves_goes_where_nobody_else_has_its_number)
{
	struct group *group = join_and_serve(1);
	uint16_t next;

	manager_rig_lose(root_of(group));
	next = root_of(group);
	add_foreign(next, group->id);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_ne(root_of(group), next);
	ck_assert_uint_eq(manager_rig.manager->counters.installs_undone, 1);
	ck_assert_uint_eq(json_object_size(manager_rig.jobs[next]), 1);
}
END_TEST

/* _i: the jobs that take the room: others', or the manager's own. */
START_TEST(a_job_without_a_tree_has_one_as_soon_as_there_is_room)
{
	struct group *group;
	uint16_t root;

	limit_jobs(1);
	group = join_and_serve(1);
	root = root_of(group);
	for (unsigned int i = SPINE0; i <= SPINE2; i++) {
		if (i != root)
			add_foreign((uint16_t)i, 999);
	}
	limit_jobs(1);
	manager_rig_lose(root);
	manager_rig_serve_all();
	ck_assert(group->stranded && was_told(1, "no_path"));
	for (unsigned int i = SPINE0; i <= SPINE2; i++) {
		struct peer *peer = &manager_rig.manager->peers[i];

		if (i == root)
			continue;
		if (_i == 0) {
			/* Its owner destroys it; a ping shows that there is room. */
			json_object_clear(manager_rig.jobs[i]);
			peer->reconcile_ms = UINT64_MAX;
			reconcile_tick(manager_rig.manager, peer, peer->ping_ms);
		} else {
			/* The switch has another job of this manager, which has ended. */
			json_object_set_new(manager_rig.jobs[i], "999",
					    json_string(manager_rig.manager->owner));
			removal_add(manager_rig.manager, peer->about->name, 999);
			removals_go_on(manager_rig.manager);
		}
		break;
	}
	manager_rig_serve_all();
	check_runs(group);
	ck_assert(!group->stranded);
}
END_TEST

Suite *
suite_manager_room(void)
{
	Suite *suite = suite_create("manager_room");
	TCase *tcase = tcase_create("room");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, a_job_that_moves_needs_no_second_place_on_its_switches);
	tcase_add_test(tcase, another_attempt_needs_no_second_place_on_the_switches_of_the_first);
	tcase_add_test(tcase,
		       a_switch_may_be_nearer_to_the_root_than_the_one_that_its_link_names_first);
	tcase_add_test(tcase, a_full_switch_takes_a_host_of_the_job_that_it_has);
	tcase_add_test(tcase, a_job_that_moves_goes_where_nobody_else_has_its_number);
	tcase_add_loop_test(tcase, a_job_without_a_tree_has_one_as_soon_as_there_is_room, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}
