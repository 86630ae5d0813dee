/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the manager's jobs when something happens in the middle: a switch or a host is lost, the
 * job is destroyed, the manager is killed, the disk is full.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include <check.h>
#include <jansson.h>

#include "manager/commands.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/move.h"
#include "manager/reconcile.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

START_TEST(a_switch_that_has_answered_is_asked_again_after_a_heartbeat)
{
	struct manager *manager = manager_rig.manager;
	struct peer *peer = &manager->peers[LEAF0];
	uint64_t now_ms = peer->ping_ms;

	ck_assert_uint_eq(reconcile_due(peer), now_ms);
	reconcile_tick(manager, peer, now_ms);
	/* The manager now waits until the time of the answer, which peer_serve knows. */
	ck_assert(peer->pinging);
	ck_assert_uint_eq(reconcile_due(peer), peer->reconcile_ms);
	ck_assert(manager_rig_serve_one(LEAF0));
	ck_assert_uint_eq(reconcile_due(peer), now_ms + (uint64_t)manager->config->heartbeat_ms);
	manager_rig_lose(LEAF0);
	ck_assert_uint_eq(reconcile_due(peer), UINT64_MAX);
	manager_rig_raise(LEAF0);
	ck_assert_uint_eq(reconcile_due(peer), peer->ping_ms);
}
END_TEST

/*
 * The handlers of the rig's switches are "usual" and "ordered"; a slot of the latter takes a packet
 * for each pair of children.
 */
START_TEST(a_job_without_a_handler_gets_the_switches_choice)
{
	struct group *group = join(1);

	ck_assert_str_eq(group->handler, "usual");
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
}
END_TEST

START_TEST(a_reproducible_job_gets_the_handler_that_keeps_an_order)
{
	struct group *group = join_with(1, "auto", true);

	ck_assert_str_eq(group->handler, "ordered");
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
}
END_TEST

/* Makes a switch come back as another build. */
static void
become(uint16_t index, bool *flag)
{
	manager_rig_lose(index);
	*flag = true;
	manager_rig_raise(index);
}

/* Returns host 0's refusal in answer to its join; freed by the next call. */
static const char *
refusal(void)
{
	static json_t *line;

	json_decref(line);
	line = manager_rig_hear(0);
	return json_string_value(json_object_get(json_object_get(line, "error"), "message"));
}

START_TEST(switches_that_are_not_in_the_tree_do_not_choose_its_handler)
{
	struct group *group;

	/* LEAF2 has none of the hosts. */
	become(LEAF2, &manager_rig.has_other_handlers[LEAF2]);
	group = join(1);
	ck_assert_ptr_nonnull(group);
	ck_assert_str_eq(group->handler, "usual");
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
}
END_TEST

START_TEST(a_switch_that_does_not_tell_of_its_handlers_is_named)
{
	become(LEAF0, &manager_rig.has_old_handlers[LEAF0]);
	ck_assert_ptr_null(join(1));
	ck_assert_ptr_nonnull(strstr(refusal(), "it is of an older version"));
}
END_TEST

/* The switch keeps an order, too, but not that of ranks. */
START_TEST(a_reproducible_job_is_refused_at_a_switch_that_does_not_know_the_order_of_ranks)
{
	static const char *const names[] = { "auto", "ordered" };

	become(LEAF1, &manager_rig.has_other_order[LEAF1]);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *message;

		ck_assert_ptr_null(join_with(1, names[i], true));
		message = refusal();
		ck_assert_msg(strstr(message, "switch leaf1 ") != NULL &&
				      strstr(message, "\"ordered\"") != NULL &&
				      strstr(message, "it is of an older version") != NULL,
			      "found \"%s\"", message);
	}
	ck_assert_ptr_nonnull(join_with(1, "ordered", false));
}
END_TEST

/* A running job does not move there either, but waits for another switch. */
START_TEST(a_reproducible_job_does_not_move_to_a_switch_that_does_not_know_the_order_of_ranks)
{
	struct group *group = join_with(1, "auto", true);
	uint16_t root, other;

	ck_assert_ptr_nonnull(group);
	root = root_of(group);
	other = root == SPINE0 ? SPINE1 : SPINE0;
	manager_rig_serve_all();
	become(other, &manager_rig.has_other_order[other]);
	become(SPINE2, &manager_rig.has_other_order[SPINE2]);
	manager_rig_lose(root);
	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert(group->stranded);
	ck_assert_msg(strstr(group->reason, "it is of an older version") != NULL, "found \"%s\"",
		      group->reason);
	manager_rig.has_other_order[other] = false;
	manager_rig_lose(other);
	manager_rig_raise(other);
	manager_rig_serve_all();
	ck_assert(!group->stranded);
	ck_assert_uint_eq(root_of(group), other);
}
END_TEST

START_TEST(a_handler_that_a_switch_lacks_is_named_with_the_switch)
{
	const char *message;

	ck_assert_ptr_null(join_with(1, "usuel", false));
	message = refusal();
	ck_assert_ptr_nonnull(message);
	ck_assert_msg(strstr(message, "switch ") != NULL &&
			      strstr(message, "has no handler \"usuel\"") != NULL,
		      "found \"%s\"", message);
}
END_TEST

START_TEST(a_switch_that_is_lost_while_others_are_asked_has_no_part_in_the_job)
{
	struct group *group = join(1);
	uint16_t root = root_of(group);

	manager_rig_serve_switch(root);
	manager_rig_serve_switch(group_node_of(group, 0)->switch_index);
	manager_rig_lose(root);
	manager_rig_serve_all();
	check_runs(group);
	manager_rig_raise(root);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_switch_that_is_lost_while_a_second_tree_cannot_be_had_is_noticed)
{
	struct group *group = join(2);
	uint16_t root = root_of(group);

	manager_rig_serve_switch(root);
	manager_rig_serve_switch(group_node_of(group, 0)->switch_index);
	manager_rig_serve_switch(LEAF1);
	ck_assert_ptr_nonnull(tree_of(group, 1));
	for (unsigned int i = SPINE0; i <= SPINE2; i++)
		manager_rig.full[i] = true;
	manager_rig_lose(root);
	manager_rig_serve_all();
	ck_assert_uint_eq(group->n_trees, 1);
	ck_assert(group->stranded && was_told(1, "no_path"));
	for (unsigned int i = SPINE0; i <= SPINE2; i++)
		manager_rig.full[i] = false;
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(a_switch_that_is_lost_while_a_job_moves_is_left_as_well)
{
	struct group *group = join_and_serve(1);
	uint16_t root;

	manager_rig_lose(root_of(group));
	root = root_of(group);
	manager_rig_serve_switch(root);
	manager_rig_lose(root);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_moved, 2);
}
END_TEST

START_TEST(a_job_leaves_a_link_of_a_host_that_is_down)
{
	struct group *group = join_and_serve(2);
	const uint16_t at = group_node_of(group, 0)->switch_index;

	manager_rig.port_is_down[at][6] = true;
	manager_rig_look_at(at);
	manager_rig_serve_all();
	for (uint16_t i = 0; i < 2; i++) {
		check_runs(tree_of(group, i));
		ck_assert_uint_ne(group_node_of(tree_of(group, i), 0)->switch_index, at);
	}
}
END_TEST

START_TEST(others_hear_of_a_host_that_is_lost_while_their_job_moves)
{
	struct group *group = join_and_serve(1);

	manager_rig_lose(root_of(group));
	ck_assert(group->moving);
	lose_host(0);
	ck_assert(was_told(1, "member_lost"));
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(others_hear_of_a_host_that_is_lost_while_their_job_is_made)
{
	struct group *group = join(2);

	manager_rig_serve_switch(LEAF1);
	lose_host(0);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert(was_told(1, "member_lost"));
}
END_TEST

START_TEST(a_job_that_loses_a_host_while_it_is_made_is_destroyed_if_that_is_configured)
{
	join(2);
	manager_rig.config.destroy_on_host_loss = true;
	manager_rig_serve_switch(LEAF1);
	lose_host(0);
	check_nothing_left();
	ck_assert(was_told(1, "job_destroyed"));
}
END_TEST

START_TEST(a_job_that_loses_a_host_while_it_moves_is_destroyed_if_that_is_configured)
{
	struct group *group = join_and_serve(1);
	uint16_t root = root_of(group);

	manager_rig.config.destroy_on_host_loss = true;
	manager_rig_lose(root);
	ck_assert(group->moving);
	lose_host(0);
	manager_rig_serve_all();
	ck_assert(was_told(1, "job_destroyed"));
	manager_rig_raise(root);
	check_nothing_left();
}
END_TEST

/* _i: the tree that moves. */
START_TEST(a_job_that_was_destroyed_while_it_moved_stays_so_if_the_manager_is_killed)
{
	struct group *group = join_and_serve(2);
	uint16_t root = root_of(tree_of(group, (uint16_t)_i));

	manager_rig_lose(root);
	ck_assert(tree_of(group, (uint16_t)_i)->moving);
	remove_group(manager_rig.manager, group, "somebody destroyed it");
	manager_rig_restart();
	check_nothing_left();
}
END_TEST

/* _i: the tree that moves. */
START_TEST(a_job_whose_manager_is_killed_while_a_tree_moves_has_all_its_trees)
{
	struct group *group = join_and_serve(3);
	struct group *moving = tree_of(group, (uint16_t)_i);
	const uint32_t id = moving->id;
	uint16_t root = root_of(moving);

	manager_rig_lose(root);
	ck_assert(moving->moving);
	manager_rig_serve_switch(group_node_of(group, 0)->switch_index);
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	ck_assert_uint_eq(tree_of(group, (uint16_t)_i)->id, id);
	for (uint16_t i = 0; i < 3; i++)
		check_runs(tree_of(group, i));
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(a_job_that_the_disk_has_no_room_for_goes_on_when_it_has)
{
	struct group *group = join_and_serve(1);
	struct rlimit before, none;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	manager_rig_lose(root_of(group));
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
	manager_rig_serve_all();
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
}
END_TEST

START_TEST(a_job_that_ended_while_the_disk_was_full_does_not_come_back)
{
	struct group *group = join_and_serve(1);
	struct rlimit before, none;
	uint64_t again_ms;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	remove_group(manager_rig.manager, group, "the test says so");
	manager_rig_serve_all();
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
	again_ms = store_retry(manager_rig.manager->store, 0);
	ck_assert_uint_ne(again_ms, UINT64_MAX);
	ck_assert_uint_eq(store_retry(manager_rig.manager->store, again_ms), UINT64_MAX);
	manager_rig_restart();
	check_nothing_left();
	/* Its number is free. */
	check_runs(join_and_serve(1));
}
END_TEST

/* A host whose connection was lost comes back. Returns the answer, a new reference. */
static json_t *
reattach(const struct group *group, unsigned int rank)
{
	char key[20];
	json_t *args = json_pack("{s:s, s:i, s:s}", "job", group->name, "rank", (int)rank, "key",
				 group_hex(group->key, key));
	struct control_error error;
	json_t *result = host_reattach(manager_rig.manager, &manager_rig.clients[rank], NULL, args,
				       &error);

	ck_assert_msg(result != NULL, "%s", error.message);
	json_decref(args);
	return result;
}

/* Loses a host, which comes back; it must be told that the tree is there, or why it is not. */
static void
check_answer(const struct group *group, unsigned int rank, bool stranded, bool has_home)
{
	const json_t *reason;
	json_t *result;

	if (control_client_data(&manager_rig.clients[rank]) != NULL)
		lose_host(rank);
	result = reattach(group, rank);
	reason = json_object_get(result, "stranded");
	ck_assert_str_eq(reason == NULL ? "" : json_string_value(reason), group->reason);
	ck_assert((reason != NULL) == stranded);
	ck_assert((json_object_get(result, "switch_ip") != NULL) == has_home);
	json_decref(result);
}

START_TEST(a_host_that_comes_back_is_told_whether_the_tree_is_there)
{
	struct group *group = join_and_serve(1);

	check_answer(group, 0, false, true);
	manager_rig_lose(LEAF1);
	check_answer(group, 0, true, true);
	/* The manager knows this after a restart, too, when it does not look after jobs yet. */
	manager_rig.config.dead_after_ms = 60000;
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	control_client_set_data(&manager_rig.clients[0], NULL);
	control_client_set_data(&manager_rig.clients[1], NULL);
	check_answer(group, 0, true, true);
	check_answer(group, 1, true, true);
	manager_rig.manager->moves_from_ms = 0;
	moves_go_on(manager_rig.manager, "the test says so");
	ck_assert(was_told(1, "restored"));
	check_answer(group, 0, false, true);
	/* The next tree can't be made, and the old one is gone. */
	memset(manager_rig.full, 1, sizeof(manager_rig.full));
	manager_rig_lose(root_of(group));
	manager_rig_serve_all();
	check_answer(group, 0, true, false);
	memset(manager_rig.full, 0, sizeof(manager_rig.full));
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	ck_assert(was_told(0, "moved"));
	check_answer(group, 1, false, true);
}
END_TEST

/* Returns the ranks in a list of the answer to a reattach, which is freed; 0: there is no list. */
static uint64_t
take_ranks(json_t *result, const char *name)
{
	const json_t *rank;
	uint64_t ranks = 0;
	size_t i;

	json_array_foreach(json_object_get(result, name), i, rank)
		ranks |= UINT64_C(1) << json_integer_value(rank);
	json_decref(result);
	return ranks;
}

START_TEST(others_hear_of_a_host_whose_links_are_all_down)
{
	struct group *group = join_and_serve(1);

	/* One of rank 0's two links goes down: the job continues over the other one. */
	manager_rig.port_is_down[LEAF0][6] = true;
	manager_rig_look_at(LEAF0);
	manager_rig_serve_all();
	ck_assert(!was_told(1, "members_silent"));
	manager_rig.port_is_down[LEAF2][6] = true;
	manager_rig_look_at(LEAF2);
	manager_rig_serve_all();
	ck_assert(was_told(1, "members_silent"));
	/* A host that was away meanwhile is told when it is back. */
	lose_host(1);
	ck_assert_uint_eq(take_ranks(reattach(group, 1), "silent"), 1 << 0);
	manager_rig.port_is_down[LEAF2][6] = false;
	manager_rig_look_at(LEAF2);
	manager_rig_serve_all();
	ck_assert(was_told(1, "members_silent"));
	lose_host(1);
	ck_assert_uint_eq(take_ranks(reattach(group, 1), "silent"), 0);
}
END_TEST

/* Ends the connection of a host because of its silence. */
static void
miss_host(unsigned int rank)
{
	manager_rig.clients[rank].ended_by = -ETIMEDOUT;
	lose_host(rank);
	manager_rig.clients[rank].ended_by = 0;
	control_client_set_data(&manager_rig.clients[rank], NULL);
}

START_TEST(others_hear_of_a_host_that_nothing_is_heard_of)
{
	struct group *group = join_and_serve(1);

	miss_host(0);
	ck_assert(was_told(1, "members_silent"));
	json_decref(reattach(group, 0));
	ck_assert(was_told(1, "members_silent"));
	/* The same happens if it does not come back. */
	miss_host(0);
	ck_assert(was_told(1, "members_silent"));
	host_end_grace(manager_rig.manager, UINT64_MAX);
	ck_assert(was_told(1, "member_lost"));
}
END_TEST

START_TEST(changes_in_one_turn_are_told_in_one_event)
{
	struct group *group = join_and_serve(1);

	ck_assert_uint_eq(count_told(1, "members_silent"), 0);
	miss_host(0);
	ck_assert_uint_eq(take_ranks(reattach(group, 0), "silent"), 0);
	miss_host(0);
	ck_assert_uint_eq(count_told(1, "members_silent"), 1);
	/* The host that is back is not told that it is silent itself. */
	ck_assert_uint_eq(take_ranks(reattach(group, 0), "silent"), 0);
	miss_host(0);
	ck_assert_uint_eq(count_told(1, "members_silent"), 0);
	json_decref(reattach(group, 0));
	ck_assert_uint_eq(count_told(1, "members_silent"), 1);
}
END_TEST

START_TEST(others_hear_of_a_lost_host_that_comes_back)
{
	struct group *group = join_and_serve(1);

	lose_host(0);
	ck_assert(was_told(1, "member_lost"));
	ck_assert_uint_eq(take_ranks(host_result(manager_rig.manager, group, 1), "gone"), 1 << 0);
	json_decref(reattach(group, 0));
	ck_assert(was_told(1, "member_back"));
	ck_assert_uint_eq(take_ranks(host_result(manager_rig.manager, group, 1), "gone"), 0);
}
END_TEST

START_TEST(a_host_that_has_left_is_not_lost_when_the_manager_is_started_again)
{
	struct control_error error;
	json_t *none = json_object();
	struct group *group;

	manager_rig.config.destroy_on_host_loss = true;
	join_and_serve(1);
	json_decref(host_leave(manager_rig.manager, &manager_rig.clients[0], NULL, none, &error));
	manager_rig_restart();
	group = group_find(&manager_rig.manager->groups, "j");
	json_decref(reattach(group, 1));
	host_end_grace(manager_rig.manager, UINT64_MAX);
	ck_assert(!was_told(1, "job_destroyed"));
	ck_assert_uint_eq(manager_rig.manager->counters.hosts_lost, 0);
	check_runs(group_find(&manager_rig.manager->groups, "j"));
	/* The other host is the last one. */
	json_decref(host_leave(manager_rig.manager, &manager_rig.clients[1], NULL, none, &error));
	check_nothing_left();
	json_decref(none);
}
END_TEST

START_TEST(a_damaged_entry_goes_and_its_job_with_it)
{
	join_and_serve(2);
	/* Everything is valid except the size of its first tree. */
	manager_rig_restart_after(
		"UPDATE groups SET document = replace(document, '\"size\":2', '\"size\":0') WHERE name = 'j'");
	check_nothing_left();
	ck_assert_uint_eq(manager_rig.manager->counters.strays_removed, 0);
	ck_assert_uint_gt(manager_rig.manager->counters.removals, 0);
	manager_rig_restart_after("INSERT INTO groups VALUES ('k', '{')");
	check_nothing_left();
}
END_TEST

START_TEST(a_job_whose_entry_tells_nothing_is_found_by_its_mark)
{
	join_and_serve(1);
	manager_rig_restart_after("UPDATE groups SET document = '{'");
	check_nothing_left();
	ck_assert_uint_eq(manager_rig.manager->counters.strays_removed, 3);
}
END_TEST

/* Gives all jobs of all switches another owner. */
static void
mark_jobs(const char *owner)
{
	for (uint16_t i = 0; i < manager_rig.n_peers; i++) {
		const char *number;
		void *next;
		json_t *job;

		json_object_foreach_safe(manager_rig.jobs[i], next, number, job)
			json_object_set_new(manager_rig.jobs[i], number, json_string(owner));
	}
}

START_TEST(jobs_of_a_manager_of_the_same_name_with_another_database_stay)
{
	char owner[OWNER_LEN];
	json_t *none = json_object();
	struct control_error error;
	json_t *jobs;

	memcpy(owner, manager_rig.manager->owner, sizeof(owner));
	join_and_serve(1);
	manager_rig_restart_after("UPDATE notes SET value = 'fedcba9876543210' WHERE name = 'id'");
	manager_rig_serve_all();
	ck_assert_str_ne(manager_rig.manager->owner, owner);
	ck_assert_uint_eq(manager_rig.manager->counters.strays_removed, 0);
	/* For this manager the jobs that the database knows are missing. */
	ck_assert_uint_eq(manager_rig.manager->counters.missing, 3);
	jobs = command_jobs(manager_rig.manager, none, &error);
	ck_assert_uint_ge(json_array_size(json_object_get(jobs, "namesakes")), 1);
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_array_get(json_object_get(jobs, "namesakes"), 0), "owner")),
			 owner);
	json_decref(jobs);
	json_decref(none);
}
END_TEST

START_TEST(jobs_without_an_id_are_of_the_manager_of_their_name)
{
	struct group *group = join_and_serve(1);
	struct control_error error;
	json_t *none = json_object();

	mark_jobs("m0");
	manager_rig_restart();
	manager_rig_serve_all();
	group = group_find(&manager_rig.manager->groups, "j");
	check_runs(group);
	ck_assert_uint_eq(manager_rig.manager->counters.missing, 0);
	json_decref(reattach(group, 0));
	json_decref(host_leave(manager_rig.manager, &manager_rig.clients[0], NULL, none, &error));
	json_decref(reattach(group, 1));
	/* They are destroyed with the owner that they have. */
	json_decref(host_leave(manager_rig.manager, &manager_rig.clients[1], NULL, none, &error));
	check_nothing_left();
	json_decref(none);
}
END_TEST

START_TEST(a_damaged_entry_with_the_number_of_another_job_does_not_harm_that)
{
	join_and_serve(1);
	manager_rig_restart_after("INSERT INTO groups SELECT 'k', document FROM groups");
	manager_rig_serve_all();
	check_runs(group_find(&manager_rig.manager->groups, "j"));
	ck_assert_uint_eq(manager_rig.manager->n_jobs, 1);
	/* The database no longer has the job. */
	manager_rig_restart_after("DELETE FROM groups WHERE name = 'j'");
	check_nothing_left();
}
END_TEST

START_TEST(packets_of_all_trees_of_a_job_have_the_length_that_fits_each)
{
	struct group *group;

	/* One spine supports only short packets; the job has trees over all three. */
	json_object_set_new(manager_rig.manager->peers[SPINE1].ports, "p1", json_integer(1500));
	group = join_and_serve(3);
	for (uint16_t i = 0; i < 3; i++)
		ck_assert_uint_eq(tree_of(group, i)->payload_bytes, 1408);
}
END_TEST

/* Events that may happen at any moment. */
enum happening {
	KILLED,    /* the manager */
	LEFT,      /* by all hosts */
	DESTROYED, /* by a user */
	N_HAPPENINGS
};

/* _i: the number of switches' answers before, and the event. */
START_TEST(faults_while_trees_are_made_leave_nothing_or_all)
{
	const enum happening happening = (enum happening)(_i % N_HAPPENINGS);
	struct group *group = join(3);
	int left = _i / N_HAPPENINGS;

	/* Each time the switches come in another order. */
	for (uint16_t i = (uint16_t)_i; left > 0; i++)
		left -= manager_rig_serve_one(i % MANAGER_RIG_SWITCHES);
	if (happening == KILLED && group->state == GROUP_NETWORK) {
		manager_rig_restart();
		manager_rig_serve_all();
		group = group_find(&manager_rig.manager->groups, "j");
		for (uint16_t i = 0; i < 3; i++)
			check_runs(tree_of(group, i));
		remove_group(manager_rig.manager, group, "the test is over");
	} else if (happening == KILLED) {
		manager_rig_restart();
	} else if (happening == LEFT) {
		lose_host(0);
		lose_host(1);
	} else {
		remove_group(manager_rig.manager, group, "somebody destroyed it");
	}
	check_nothing_left();
}
END_TEST

Suite *
suite_manager_jobs(void)
{
	Suite *suite = suite_create("manager_jobs");
	TCase *tcase = tcase_create("jobs");

	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, a_switch_that_has_answered_is_asked_again_after_a_heartbeat);
	tcase_add_test(tcase, a_job_without_a_handler_gets_the_switches_choice);
	tcase_add_test(tcase, a_reproducible_job_gets_the_handler_that_keeps_an_order);
	tcase_add_test(
		tcase,
		a_reproducible_job_is_refused_at_a_switch_that_does_not_know_the_order_of_ranks);
	tcase_add_test(
		tcase,
		a_reproducible_job_does_not_move_to_a_switch_that_does_not_know_the_order_of_ranks);
	tcase_add_test(tcase, a_handler_that_a_switch_lacks_is_named_with_the_switch);
	tcase_add_test(tcase, switches_that_are_not_in_the_tree_do_not_choose_its_handler);
	tcase_add_test(tcase, a_switch_that_does_not_tell_of_its_handlers_is_named);
	tcase_add_test(tcase, a_switch_that_is_lost_while_others_are_asked_has_no_part_in_the_job);
	tcase_add_test(tcase, a_switch_that_is_lost_while_a_second_tree_cannot_be_had_is_noticed);
	tcase_add_test(tcase, a_switch_that_is_lost_while_a_job_moves_is_left_as_well);
	tcase_add_test(tcase, a_job_leaves_a_link_of_a_host_that_is_down);
	tcase_add_test(tcase, others_hear_of_a_host_that_is_lost_while_their_job_moves);
	tcase_add_test(tcase, others_hear_of_a_host_that_is_lost_while_their_job_is_made);
	tcase_add_test(tcase, others_hear_of_a_host_whose_links_are_all_down);
	tcase_add_test(tcase, others_hear_of_a_host_that_nothing_is_heard_of);
	tcase_add_test(tcase, changes_in_one_turn_are_told_in_one_event);
	tcase_add_test(tcase, others_hear_of_a_lost_host_that_comes_back);
	tcase_add_test(tcase,
		       a_job_that_loses_a_host_while_it_is_made_is_destroyed_if_that_is_configured);
	tcase_add_test(tcase,
		       a_job_that_loses_a_host_while_it_moves_is_destroyed_if_that_is_configured);
	tcase_add_loop_test(
		tcase, a_job_that_was_destroyed_while_it_moved_stays_so_if_the_manager_is_killed, 0,
		2);
	tcase_add_loop_test(tcase,
			    a_job_whose_manager_is_killed_while_a_tree_moves_has_all_its_trees, 0,
			    3);
	tcase_add_test(tcase, a_job_that_the_disk_has_no_room_for_goes_on_when_it_has);
	tcase_add_loop_test(tcase, faults_while_trees_are_made_leave_nothing_or_all, 0,
			    10 * N_HAPPENINGS);
	tcase_add_test(tcase, a_job_that_ended_while_the_disk_was_full_does_not_come_back);
	tcase_add_test(tcase, a_host_that_comes_back_is_told_whether_the_tree_is_there);
	tcase_add_test(tcase, a_host_that_has_left_is_not_lost_when_the_manager_is_started_again);
	tcase_add_test(tcase, a_damaged_entry_goes_and_its_job_with_it);
	tcase_add_test(tcase, a_job_whose_entry_tells_nothing_is_found_by_its_mark);
	tcase_add_test(tcase, jobs_of_a_manager_of_the_same_name_with_another_database_stay);
	tcase_add_test(tcase, jobs_without_an_id_are_of_the_manager_of_their_name);
	tcase_add_test(tcase, a_damaged_entry_with_the_number_of_another_job_does_not_harm_that);
	tcase_add_test(tcase, packets_of_all_trees_of_a_job_have_the_length_that_fits_each);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("unlisted");
	tcase_add_checked_fixture(tcase, manager_rig_begin_unlisted, manager_rig_end);
	tcase_add_loop_test(tcase, faults_while_trees_are_made_leave_nothing_or_all, 0,
			    10 * N_HAPPENINGS);
	suite_add_tcase(suite, tcase);
	return suite;
}
