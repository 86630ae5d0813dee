/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of jobs with parameter servers: where they are placed, what happens when a server, its
 * switch or the manager fails, and which options such jobs lack. The rig has two servers, each at a
 * spine of its own.
 */
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "manager/install.h"
#include "manager/move.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

/* Makes both hosts join a job that has a server. Returns NULL if it was refused at once. */
static struct group *
ask_for(const char *name, int trees)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };

	for (int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		json_t *args = json_pack("{s:s, s:i, s:i, s:s, s:s, s:b, s:s, s:i}", "job", name,
					 "size", MANAGER_RIG_HOSTS, "rank", i, "ip", ips[i],
					 "handler", "serving", "fallback", 1, "endpoint",
					 "10.9.9.9:4711", "trees", trees);
		json_t *id = json_integer(1);
		struct control_error error;

		ck_assert_ptr_null(
			host_join(manager_rig.manager, &manager_rig.clients[i], id, args, &error));
		json_decref(args);
		json_decref(id);
	}
	return group_find(&manager_rig.manager->groups, name);
}

/* Asks for the job, and makes all switches and servers answer. */
static struct group *
make(const char *name, int trees)
{
	struct group *group = ask_for(name, trees);

	manager_rig_serve_all();
	ck_assert_ptr_nonnull(group);
	check_runs(group);
	return group;
}

/* Frees the hosts' connections for another job, and drops their messages. */
static void
let_hosts_go(void)
{
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		control_client_set_data(&manager_rig.clients[i], NULL);
		count_told(i, "");
	}
}

static const char *
text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? "" : text;
}

static void
expect_words(const char *found, const char *words)
{
	ck_assert_msg(strstr(found, words) != NULL, "found \"%s\", expected \"%s\"", found, words);
}

/* Checks that a host has been told of an event, for this reason. Drops earlier messages. */
static void
expect_told(unsigned int rank, const char *name, const char *reason)
{
	json_t *line;

	while ((line = manager_rig_hear(rank)) != NULL) {
		const bool found = strcmp(text_of(line, "event"), name) == 0;

		if (found)
			expect_words(text_of(line, "reason"), reason);
		json_decref(line);
		if (found)
			return;
	}
	ck_abort_msg("rank %u was not told of %s", rank, name);
}

/* Checks that both hosts were refused for this reason. */
static void
expect_refused(const char *code, const char *words)
{
	for (unsigned int rank = 0; rank < MANAGER_RIG_HOSTS; rank++) {
		json_t *line = manager_rig_hear(rank);
		const json_t *error = json_object_get(line, "error");

		ck_assert_str_eq(text_of(error, "code"), code);
		expect_words(text_of(error, "message"), words);
		json_decref(line);
	}
}

/* Checks that the job is gone from everywhere, and that both hosts know why. */
static void
expect_ended(const char *reason)
{
	manager_rig_serve_all();
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
	for (unsigned int rank = 0; rank < MANAGER_RIG_HOSTS; rank++)
		expect_told(rank, "job_destroyed", reason);
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_lost, 1);
	for (uint16_t i = 0; i < manager_rig.n_peers; i++) {
		if (!manager_rig_is_up(i))
			manager_rig_raise(i);
	}
	check_nothing_left();
}

START_TEST(the_server_is_the_root_and_its_switch_the_only_child)
{
	struct group *group = make("j", 1);
	const json_t *args, *parent;
	json_t *line;

	ck_assert_int_eq(group->shape, GROUP_SERVER);
	ck_assert_uint_eq(group->n_nodes, 4);
	ck_assert_uint_eq(root_of(group), SERVER0);
	ck_assert_uint_eq(group->nodes[1].switch_index, SPINE0);
	ck_assert_uint_eq(group->nodes[1].parent, 0);
	ck_assert_str_eq(group->nodes[1].port, "s0");
	ck_assert_str_eq(group->nodes[1].parent_port, "s0");
	ck_assert_uint_eq(group->nodes[2].parent, 1);
	ck_assert_uint_eq(group->nodes[3].parent, 1);
	ck_assert_uint_eq(group->slots, 64);
	/* The server has one member, the switch. */
	args = json_array_get(json_object_get(manager_rig.created[SERVER0], "members"), 0);
	ck_assert_str_eq(text_of(args, "port"), "s0");
	ck_assert_str_eq(text_of(args, "ip"), "10.1.0.2");
	/* The switch has the server as its parent, and the leaves have the switch. */
	parent = json_object_get(manager_rig.created[SPINE0], "parent");
	ck_assert(json_is_true(json_object_get(parent, "server")));
	ck_assert_str_eq(text_of(parent, "ip"), "10.1.0.6");
	ck_assert_str_eq(text_of(parent, "port"), "s0");
	parent = json_object_get(manager_rig.created[LEAF1], "parent");
	ck_assert_str_eq(text_of(parent, "ip"), "10.1.0.2");
	ck_assert_ptr_null(json_object_get(parent, "server"));
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		args = manager_rig.created[group->nodes[i].switch_index];
		ck_assert_int_eq(json_integer_value(json_object_get(args, "slots")), 64);
		ck_assert_int_eq(json_integer_value(json_object_get(args, "size")), 2);
		ck_assert_str_eq(text_of(args, "handler"), "serving");
	}
	line = manager_rig_hear(0);
	ck_assert_str_eq(text_of(json_object_get(line, "result"), "server"), "server0");
	ck_assert_str_eq(text_of(json_object_get(line, "result"), "shape"), "server");
	json_decref(line);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(other_jobs_have_no_server)
{
	struct group *group = join_and_serve(3);

	for (uint16_t i = 0; i < 3; i++) {
		const struct group *tree = tree_of(group, i);

		for (uint16_t k = 0; k < tree->n_nodes; k++)
			ck_assert_uint_lt(tree->nodes[k].switch_index, MANAGER_RIG_SWITCHES);
	}
}
END_TEST

START_TEST(jobs_take_turns_on_the_servers)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	unsigned int at[2] = { 0 };

	for (unsigned int i = 0; i < 4; i++) {
		at[root_of(make(names[i], 1)) - SERVER0]++;
		let_hosts_go();
	}
	ck_assert_uint_eq(at[0], 2);
	ck_assert_uint_eq(at[1], 2);
}
END_TEST

START_TEST(trees_of_a_job_have_a_server_each_as_long_as_there_are_any)
{
	struct group *group = make("j", 3);

	ck_assert_uint_eq(group->n_trees, 2);
	ck_assert_uint_ne(root_of(group), root_of(tree_of(group, 1)));
	check_runs(tree_of(group, 1));
	expect_words(group->trees_reason, "all servers that can be used are in its other trees");
	remove_group(manager_rig.manager, group, "the test goes on");
	check_nothing_left();
	let_hosts_go();
	manager_rig_lose(SERVER0);
	group = make("j", 2);
	ck_assert_uint_eq(group->n_trees, 1);
	ck_assert_uint_eq(root_of(group), SERVER1);
	expect_words(group->trees_reason, "server server0 is not reached: the test has killed it");
}
END_TEST

START_TEST(a_job_moves_to_the_other_server)
{
	struct group *group = make("j", 1);

	manager_rig_lose(SERVER0);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(root_of(group), SERVER1);
	ck_assert_uint_eq(group->nodes[1].switch_index, SPINE1);
	ck_assert_uint_eq(group->generation, 2);
	ck_assert(was_told(0, "moved") && was_told(1, "moved"));
	ck_assert_uint_eq(manager_rig.manager->counters.servers_lost, 1);
	ck_assert_uint_eq(manager_rig.manager->counters.switches_lost, 0);
	/* The job stays there. */
	manager_rig_raise(SERVER0);
	manager_rig_serve_all();
	ck_assert_uint_eq(root_of(group), SERVER1);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

START_TEST(two_trees_share_a_server_when_no_other_is_left)
{
	struct group *group = make("j", 2);
	struct group *second = tree_of(group, 1);
	const uint16_t lost = root_of(second);

	manager_rig_lose(lost);
	manager_rig_serve_all();
	check_runs(group);
	check_runs(second);
	ck_assert_uint_eq(group->n_trees, 2);
	ck_assert_uint_eq(root_of(second), root_of(group));
	ck_assert_uint_eq(second->generation, 2);
	ck_assert_uint_eq(group->generation, 1);
	ck_assert_uint_eq(json_object_size(manager_rig.jobs[root_of(group)]), 2);
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_lost, 0);
	manager_rig_raise(lost);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

/* _i: number of the job's trees. */
START_TEST(a_job_ends_with_its_last_server_by_name)
{
	char reason[80];
	struct group *group;
	uint16_t root;

	group = make("j", _i);
	manager_rig_lose((uint16_t)(SERVER0 + SERVER1 - root_of(group)));
	manager_rig_serve_all();
	check_runs(group);
	root = root_of(group);
	manager_rig_lose(root);
	snprintf(reason, sizeof(reason), "server server%d is lost, and there is no other",
		 root - SERVER0);
	expect_ended(reason);
}
END_TEST

START_TEST(the_reason_of_the_end_names_what_is_wrong_with_each_server)
{
	make("j", 1);
	manager_rig.full[SERVER1] = true;
	manager_rig_lose(SERVER0);
	manager_rig_serve_all();
	expect_told(0, "job_destroyed", "server server1: so the test says");
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
	let_hosts_go();
	ck_assert_ptr_nonnull(ask_for("j", 1));
	manager_rig_serve_all();
	expect_refused("no_path", "no server that can be used reaches the hosts of all 2 ranks: "
				  "server server0 is not reached: the test has killed it; "
				  "server server1: so the test says");
}
END_TEST

START_TEST(a_job_without_the_switch_of_its_server_moves_or_ends_by_name)
{
	struct group *group = make("j", 1);

	manager_rig_lose(SPINE0);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(root_of(group), SERVER1);
	manager_rig_lose(SPINE1);
	expect_ended(
		"switch spine1 is lost, and there is no other: no server that can be used "
		"reaches the hosts of all 2 ranks: switch spine0 of server server0 is not reached");
}
END_TEST

START_TEST(a_switch_elsewhere_that_is_lost_ends_no_job)
{
	struct group *group = make("j", 1);

	/* This is the only leaf of rank 1. */
	manager_rig_lose(LEAF1);
	manager_rig_serve_all();
	ck_assert_ptr_eq(group_find(&manager_rig.manager->groups, "j"), group);
	ck_assert(group->stranded && was_told(0, "no_path"));
	manager_rig_raise(LEAF1);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert(!group->stranded && was_told(0, "restored"));
}
END_TEST

/* _i: the port of the switch, or the server's own. */
START_TEST(a_link_to_a_server_that_is_down_is_left_and_ends_no_job)
{
	struct group *group = make("j", 1);
	const uint16_t index[2] = { SPINE0, SERVER0 };
	const uint16_t others[2] = { SPINE1, SERVER1 };
	const unsigned int port = MANAGER_RIG_PORTS - 1;

	manager_rig.port_is_down[index[_i]][port] = true;
	manager_rig_look_at(index[_i]);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(root_of(group), SERVER1);
	manager_rig.port_is_down[others[_i]][port] = true;
	manager_rig_look_at(others[_i]);
	manager_rig_serve_all();
	ck_assert(group->stranded && was_told(0, "no_path"));
	expect_words(group->reason,
		     _i == 0 ? "port s0 of switch spine1, the link of server server1, is down"
			     : "port s0 of server server1 is down");
	manager_rig.port_is_down[others[_i]][port] = false;
	manager_rig_look_at(others[_i]);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert(!group->stranded);
}
END_TEST

START_TEST(a_server_that_has_restarted_gets_its_job_again)
{
	struct group *group = make("j", 1);

	manager_rig_lose(SERVER1);
	json_object_clear(manager_rig.jobs[SERVER0]);
	manager_rig_look_at(SERVER0);
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(root_of(group), SERVER0);
	ck_assert_uint_eq(group->generation, 2);
	ck_assert(was_told(1, "job_missing"));
	ck_assert_uint_eq(manager_rig.manager->counters.missing, 1);
}
END_TEST

START_TEST(a_restart_of_the_manager_takes_the_job_up)
{
	struct group *group;

	make("j", 2);
	/* The time is long enough for all to come. */
	manager_rig.config.dead_after_ms = 60000;
	manager_rig_restart();
	manager_rig.manager->moves_from_ms = 0;
	manager_rig_serve_all();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->shape, GROUP_SERVER);
	ck_assert_uint_eq(group->n_trees, 2);
	for (uint16_t i = 0; i < 2; i++) {
		const struct group *tree = tree_of(group, i);

		check_runs(tree);
		ck_assert_uint_eq(tree->generation, 1);
		ck_assert_str_eq(tree->nodes[0].switch_name, i == 0 ? "server0" : "server1");
		ck_assert_uint_ne(tree->nodes[1].link, TOPOLOGY_NO_LINK);
		ck_assert_uint_eq(tree->nodes[1].link,
				  topology_server_link(&manager_rig.config.topology,
						       root_of(tree)));
	}
	/* The manager can act on it. */
	manager_rig_lose(SERVER0);
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	check_runs(group);
	ck_assert_uint_eq(root_of(group), SERVER1);
	manager_rig_lose(SERVER1);
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
}
END_TEST

START_TEST(a_restart_in_mid_move_leaves_the_job_whole)
{
	struct group *group = make("j", 1);

	manager_rig_lose(SERVER0);
	ck_assert(group->moving);
	manager_rig_serve_one(SERVER1);
	manager_rig_restart();
	manager_rig_serve_all();
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	group = group_find(&manager_rig.manager->groups, "j");
	ck_assert_ptr_nonnull(group);
	check_runs(group);
	remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

/* _i: whether there is another server. */
START_TEST(a_server_that_the_topology_does_not_have_any_more_is_lost)
{
	static const char sql[] =
		"UPDATE groups SET document = replace(document, 'server0', 'server9')";
	struct group *group = make("j", 1);

	ck_assert_uint_eq(root_of(group), SERVER0);
	manager_rig.config.dead_after_ms = 60000;
	manager_rig_restart_after(sql);
	manager_rig.manager->moves_from_ms = 0;
	if (_i == 0) {
		manager_rig_lose(SERVER0);
		manager_rig_lose(SERVER1);
	}
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	group = group_find(&manager_rig.manager->groups, "j");
	if (_i == 0) {
		ck_assert_ptr_null(group);
		ck_assert_uint_eq(manager_rig.manager->counters.jobs_lost, 1);
	} else {
		ck_assert_ptr_nonnull(group);
		check_runs(group);
	}
}
END_TEST

/*
 * While one tree is being made again its job has to end, as another tree has no server: the last
 * answer ends it, with the same reason.
 */
START_TEST(a_job_that_ends_while_a_tree_moves_ends_with_the_last_answer)
{
	struct group *group = make("j", 2);
	struct group *second = tree_of(group, 1);
	char number[16];

	/* One switch has lost the first tree. */
	snprintf(number, sizeof(number), "%u", group->id);
	json_object_del(manager_rig.jobs[LEAF1], number);
	manager_rig_look_at(LEAF1);
	while (!group->moving && manager_rig_serve_one(LEAF1))
		;
	ck_assert(group->moving && !second->moving);
	manager_rig_lose(SERVER0);
	manager_rig_lose(SERVER1);
	ck_assert_str_ne(second->ending, "");
	moves_end_jobs(manager_rig.manager);
	ck_assert(group->doomed);
	/* The reason is kept until then. */
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
	ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
	expect_told(0, "job_destroyed", "server server1 is lost, and there is no other");
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_lost, 1);
	manager_rig_raise(SERVER0);
	manager_rig_raise(SERVER1);
	check_nothing_left();
}
END_TEST

START_TEST(full_servers_are_left_out)
{
	struct group *group;

	/* One server refuses, and one is known to be full. */
	manager_rig.full[SERVER0] = true;
	group = make("j", 1);
	ck_assert_uint_eq(root_of(group), SERVER1);
	ck_assert_uint_eq(manager_rig.manager->counters.installs_undone, 1);
	manager_rig.full[SERVER0] = false;
	let_hosts_go();
	manager_rig.manager->peers[SERVER0].max_jobs = 0;
	group = make("k", 1);
	ck_assert_uint_eq(root_of(group), SERVER1);
}
END_TEST

START_TEST(full_servers_are_named)
{
	json_object_set_new(manager_rig.jobs[SERVER0], "999", json_string("somebody"));
	json_object_set_new(manager_rig.jobs[SERVER1], "999", json_string("somebody"));
	limit_jobs(1);
	ck_assert_ptr_null(ask_for("j", 1));
	expect_refused("no_room", "server server0 has 1 jobs, its limits.max_jobs is 1; "
				  "server server1 has 1 jobs, its limits.max_jobs is 1");
}
END_TEST

/* Options that are not available are refused when the first host asks. */
START_TEST(options_that_servers_lack_are_refused_early_and_by_name)
{
	static const struct {
		const char *args;
		const char *words;
	} wrong[] = {
		{ "{\"size\": 65}", "found 65 ranks, expected at most 64" },
		{ "{\"size\": 4096}", "found 4096 ranks, expected at most 64" },
		{ "{\"size\": 2, \"reproducible\": true}", "found reproducible" },
		{ "{\"size\": 2, \"accumulate\": \"f32\"}", "found accumulate f32" },
		{ "{\"size\": 2, \"authenticate\": true}", "found authenticate" },
	};
	struct control_error error;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		json_t *args = json_loads(wrong[i].args, 0, NULL);
		json_t *id = json_integer(1);

		json_object_update_new(args, json_pack("{s:s, s:s, s:s}", "job", "j", "ip",
						       "10.0.0.1", "handler", "serving"));
		error.code = NULL;
		ck_assert_ptr_null(
			host_join(manager_rig.manager, &manager_rig.clients[0], id, args, &error));
		ck_assert_ptr_nonnull(error.code);
		ck_assert_str_eq(error.code, "invalid");
		expect_words(error.message, "the handler \"serving\" has a parameter server: ");
		expect_words(error.message, wrong[i].words);
		ck_assert_ptr_null(group_find(&manager_rig.manager->groups, "j"));
		ck_assert_uint_eq(manager_rig.manager->n_jobs, 0);
		json_decref(args);
		json_decref(id);
	}
}
END_TEST

/* A ring does not replace a server either. */
START_TEST(without_a_server_in_the_topology_there_is_no_job)
{
	ck_assert_ptr_null(ask_for("j", 1));
	expect_refused(
		"no_path",
		"the handler \"serving\" needs a parameter server, and the topology has none");
	check_nothing_left();
}
END_TEST

/* _i: a switch in a server's place, or a server in a switch's. */
START_TEST(peers_of_another_kind_than_listed_are_not_used)
{
	const uint16_t index = _i == 0 ? SERVER0 : SPINE0;
	struct peer *peer = &manager_rig.manager->peers[index];

	manager_rig_lose(index);
	manager_rig.is_other_kind[index] = true;
	manager_rig_try(index);
	ck_assert_int_eq(peer->state, PEER_DOWN);
	ck_assert_str_eq(peer->error, _i == 0 ? "it is no parameter server"
					      : "it is a parameter server, and no switch");
	ck_assert_uint_eq(root_of(make("j", 1)), SERVER1);
}
END_TEST

/* _i: a server, or a switch. */
START_TEST(peers_with_another_packet_version_are_not_used)
{
	const uint16_t index = _i == 0 ? SERVER0 : SPINE0;
	struct peer *peer = &manager_rig.manager->peers[index];

	manager_rig_lose(index);
	manager_rig.is_before[index] = true;
	manager_rig_try(index);
	ck_assert_int_eq(peer->state, PEER_DOWN);
	ck_assert_str_eq(peer->error,
			 "its packets have version 2, expected 3: use the same release everywhere");
	ck_assert_uint_eq(root_of(make("j", 1)), SERVER1);
}
END_TEST

/* A host that sends no version has the one before. */
START_TEST(a_host_of_another_version_is_told_both)
{
	static const struct {
		int64_t told;
		const char *expected;
	} hosts[] = { { 0, "have version 2, those of the manager's network 3" },
		      { 4, "have version 4, those of the manager's network 3" } };
	json_t *args = json_object();

	for (size_t i = 0; i < 2; i++) {
		struct control_error error = { 0 };

		manager_rig.clients[0].packet_version = hosts[i].told;
		ck_assert_ptr_null(host_join(manager_rig.manager, &manager_rig.clients[0], args,
					     args, &error));
		ck_assert_str_eq(error.code, "unsupported");
		ck_assert_ptr_nonnull(strstr(error.message, hosts[i].expected));
		ck_assert_ptr_null(host_reattach(manager_rig.manager, &manager_rig.clients[0], args,
						 args, &error));
		ck_assert_str_eq(error.code, "unsupported");
	}
	json_decref(args);
	check_nothing_left();
}
END_TEST

START_TEST(switches_of_another_build_than_the_servers_are_named)
{
	manager_rig_lose(LEAF1);
	manager_rig.has_other_handlers[LEAF1] = true;
	manager_rig_raise(LEAF1);
	ck_assert_ptr_null(ask_for("j", 1));
	expect_refused("invalid", "switch leaf1 has no handler \"serving\"");
	check_nothing_left();
}
END_TEST

Suite *
suite_manager_servers(void)
{
	Suite *suite = suite_create("manager_servers");
	TCase *tcase = tcase_create("servers");

	tcase_add_checked_fixture(tcase, manager_rig_begin_servers, manager_rig_end);
	tcase_add_test(tcase, the_server_is_the_root_and_its_switch_the_only_child);
	tcase_add_test(tcase, other_jobs_have_no_server);
	tcase_add_test(tcase, jobs_take_turns_on_the_servers);
	tcase_add_test(tcase, trees_of_a_job_have_a_server_each_as_long_as_there_are_any);
	tcase_add_test(tcase, a_job_moves_to_the_other_server);
	tcase_add_test(tcase, two_trees_share_a_server_when_no_other_is_left);
	tcase_add_loop_test(tcase, a_job_ends_with_its_last_server_by_name, 1, 3);
	tcase_add_test(tcase, the_reason_of_the_end_names_what_is_wrong_with_each_server);
	tcase_add_test(tcase, a_job_without_the_switch_of_its_server_moves_or_ends_by_name);
	tcase_add_test(tcase, a_switch_elsewhere_that_is_lost_ends_no_job);
	tcase_add_loop_test(tcase, a_link_to_a_server_that_is_down_is_left_and_ends_no_job, 0, 2);
	tcase_add_test(tcase, a_server_that_has_restarted_gets_its_job_again);
	tcase_add_test(tcase, a_restart_of_the_manager_takes_the_job_up);
	tcase_add_test(tcase, a_restart_in_mid_move_leaves_the_job_whole);
	tcase_add_loop_test(tcase, a_server_that_the_topology_does_not_have_any_more_is_lost, 0, 2);
	tcase_add_test(tcase, a_job_that_ends_while_a_tree_moves_ends_with_the_last_answer);
	tcase_add_test(tcase, full_servers_are_left_out);
	tcase_add_test(tcase, full_servers_are_named);
	tcase_add_test(tcase, options_that_servers_lack_are_refused_early_and_by_name);
	tcase_add_loop_test(tcase, peers_of_another_kind_than_listed_are_not_used, 0, 2);
	tcase_add_loop_test(tcase, peers_with_another_packet_version_are_not_used, 0, 2);
	tcase_add_test(tcase, a_host_of_another_version_is_told_both);
	tcase_add_test(tcase, switches_of_another_build_than_the_servers_are_named);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("none");
	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, without_a_server_in_the_topology_there_is_no_job);
	suite_add_tcase(suite, tcase);
	return suite;
}
