/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of how the manager finds hosts that its topology does not list: which switches it asks, for
 * how long, how it uses their answers, and what it knows after a restart.
 */
#include <stdio.h>
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "control/clock.h"
#include "manager/commands.h"
#include "manager/discover.h"
#include "manager/host.h"
#include "manager/install.h"
#include "tests/unit/manager_rig.h"
#include "tests/unit/suites.h"

/* Makes a host join the job "j" of two, as this rank, or any. */
static void
join_as(unsigned int host, int rank, const char *ip)
{
	json_t *args = json_pack("{s:s, s:i, s:s}", "job", "j", "size", MANAGER_RIG_HOSTS, "ip",
				 ip);
	json_t *id = json_integer(1);
	struct control_error error;

	if (rank != GROUP_NO_RANK)
		json_object_set_new(args, "rank", json_integer(rank));
	ck_assert_ptr_null(
		host_join(manager_rig.manager, &manager_rig.clients[host], id, args, &error));
	json_decref(args);
	json_decref(id);
}

static void
join(unsigned int rank, const char *ip)
{
	join_as(rank, (int)rank, ip);
}

static struct group *
job(void)
{
	return group_find(&manager_rig.manager->groups, "j");
}

/* Waits a while, after which the manager looks again for hosts that it has not found. */
static void
wait_a_little(void)
{
	discover_tick(manager_rig.manager, clock_ms() + 1000);
	manager_rig_serve_all();
}

static void
wait_long(void)
{
	discover_tick(manager_rig.manager, clock_ms() + 10000);
	manager_rig_serve_all();
}

/* Checks where the tree of a job of two has its hosts. */
static void
check_places(const struct group *group)
{
	const struct topology *topology = &manager_rig.config.topology;

	ck_assert_ptr_nonnull(group);
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	for (uint16_t i = 0; i < MANAGER_RIG_HOSTS; i++) {
		const struct topology_host *link = group_link_of(group, topology, i);

		ck_assert_ptr_nonnull(link);
		ck_assert_uint_eq(link->at.switch_index, i == 0 ? LEAF0 : LEAF1);
		ck_assert_str_eq(link->at.port, "h0");
		ck_assert_uint_eq(group_node_of(group, i)->switch_index, link->at.switch_index);
	}
}

/* Checks that a host was refused with this message. Aborts the test otherwise. */
static void
check_refused(unsigned int rank, const char *message)
{
	json_t *line = manager_rig_hear(rank);
	const json_t *error = json_object_get(line, "error");

	ck_assert_ptr_nonnull(line);
	ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "no_path");
	ck_assert_str_eq(json_string_value(json_object_get(error, "message")), message);
	json_decref(line);
}

START_TEST(hosts_that_are_not_listed_are_found_at_their_switches)
{
	struct control_error error;
	json_t *args = json_object();
	json_t *topology, *expected;

	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	/* The manager does not wait for switches that can't answer. */
	ck_assert(manager_rig_serve_one(LEAF0));
	ck_assert(manager_rig_serve_one(LEAF1));
	ck_assert_int_eq(job()->state, GROUP_INSTALLING);
	manager_rig_serve_all();
	check_places(job());
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->searches));

	topology = command_topology(manager_rig.manager, args, &error);
	expected = json_pack("[{s:s, s:s, s:s, s:b, s:s}, {s:s, s:s, s:s, s:b, s:s}]", "ip",
			     "10.0.0.1", "at", "leaf0:h0", "state", "up", "discovered", 1, "error",
			     "", "ip", "10.0.1.1", "at", "leaf1:h0", "state", "up", "discovered", 1,
			     "error", "");
	ck_assert(json_equal(json_object_get(topology, "hosts"), expected));
	json_decref(expected);
	json_decref(topology);
	json_decref(args);
}
END_TEST

START_TEST(a_job_of_found_hosts_moves_after_the_managers_restart)
{
	uint16_t root;

	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	check_places(job());
	root = job()->nodes[0].switch_index;
	/* No switch can be asked: not even the leaves could tell the hosts' places. */
	manager_rig.is_silent[LEAF0] = manager_rig.is_silent[LEAF1] = true;
	manager_rig_restart();
	manager_rig_lose(root);
	manager_rig_serve_all();
	check_places(job());
	ck_assert_uint_ne(job()->nodes[0].switch_index, root);
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_moved, 1);
}
END_TEST

START_TEST(a_host_that_answers_late_is_asked_for_again_where_it_may_be)
{
	manager_rig.is_silent[LEAF0] = true;
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	wait_a_little();
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	manager_rig.is_silent[LEAF0] = false;
	discover_tick(manager_rig.manager, clock_ms() + 1500);
	/* Switches that don't have the host are not asked again. */
	for (uint16_t i = LEAF1; i < MANAGER_RIG_SWITCHES; i++)
		ck_assert(!manager_rig_serve_one(i));
	manager_rig_serve_all();
	check_places(job());
}
END_TEST

START_TEST(a_switch_that_comes_while_hosts_are_looked_for_is_asked_as_well)
{
	manager_rig_lose(LEAF0);
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	manager_rig_raise(LEAF0);
	wait_a_little();
	check_places(job());
}
END_TEST

START_TEST(a_port_to_another_switch_is_no_place_of_a_host)
{
	manager_rig.sees_others[SPINE0] = manager_rig.sees_others[LEAF2] = true;
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_switch(SPINE0);
	manager_rig_serve_switch(LEAF2);
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	manager_rig_serve_all();
	check_places(job());
}
END_TEST

START_TEST(a_host_that_is_nowhere_learns_where_was_looked)
{
	static const char silent[] =
		"rank 0: no host of the topology has the address 10.0.0.1, and no switch has found it; no answer to ARP at leaf0; "
		"not in the hosts' subnet of leaf1, spine0, spine2, leaf2; not reached: spine1";
	static const char elsewhere[] =
		"rank 1: no host of the topology has the address 10.0.7.1, and no switch has found it; "
		"behind another switch at spine0; not in the hosts' subnet of leaf0, leaf1, spine1, spine2, leaf2";

	manager_rig.is_silent[LEAF0] = true;
	manager_rig_lose(SPINE1);
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	wait_a_little();
	ck_assert_ptr_nonnull(job());
	wait_long();
	ck_assert_ptr_null(job());
	ck_assert_uint_eq(manager_rig.manager->counters.jobs_failed, 1);
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++)
		check_refused(i, silent);

	/* If no switch can find the host, the job is refused at once. */
	manager_rig_raise(SPINE1);
	manager_rig.is_silent[LEAF0] = false;
	manager_rig.sees_others[SPINE0] = true;
	join(0, "10.0.0.1");
	join(1, "10.0.7.1");
	manager_rig_serve_all();
	ck_assert_ptr_null(job());
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++)
		check_refused(i, elsewhere);
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->searches));
}
END_TEST

START_TEST(a_switch_that_cannot_look_for_hosts_is_named_and_others_are_asked)
{
	static const char message[] =
		"rank 0: no host of the topology has the address 10.0.0.1, and no switch has found it; "
		"cannot be looked for at leaf0; not in the hosts' subnet of leaf1, spine0, spine1, spine2, leaf2";

	manager_rig.is_old[LEAF0] = manager_rig.is_old[SPINE0] = true;
	join(0, "10.0.2.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	ck_assert_int_eq(job()->state, GROUP_NETWORK);
	remove_group(manager_rig.manager, job(), NULL);
	manager_rig_serve_all();
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++)
		json_decref(manager_rig_hear(i));
	manager_rig.is_old[SPINE0] = false;
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	ck_assert_ptr_null(job());
	check_refused(0, message);
}
END_TEST

START_TEST(a_host_that_leaves_while_others_are_looked_for_may_come_back)
{
	manager_rig.is_silent[LEAF1] = true;
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_switch(LEAF0);
	host_closed(manager_rig.manager, &manager_rig.clients[0], job());
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->searches));
	ck_assert_uint_eq(job()->n_members, 1);
	/* The requests about it are answered, and the answers are ignored. */
	manager_rig_serve_all();
	wait_long();
	ck_assert_int_eq(job()->state, GROUP_GATHERING);
	manager_rig.is_silent[LEAF1] = false;
	join(0, "10.0.0.1");
	manager_rig_serve_all();
	check_places(job());
}
END_TEST

START_TEST(nobody_joins_a_job_whose_hosts_are_looked_for)
{
	json_t *args = json_pack("{s:s, s:i, s:s}", "job", "j", "size", MANAGER_RIG_HOSTS, "ip",
				 "10.0.2.1");
	struct control_client another = { .packet_version = FANIN_WIRE_VERSION };
	struct control_error error;
	json_t *id = json_integer(1);

	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	ck_assert_ptr_null(host_join(manager_rig.manager, &another, id, args, &error));
	ck_assert_str_eq(error.code, "name_in_use");
	json_decref(args);
	json_decref(id);
	manager_rig_serve_all();
	check_places(job());
}
END_TEST

START_TEST(hosts_are_looked_for_only_if_the_topology_says_so)
{
	manager_rig.config.topology.discover_hosts = false;
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	ck_assert_ptr_null(job());
	check_refused(0, "rank 0: no host of the topology has the address 10.0.0.1");
}
END_TEST

START_TEST(where_a_host_was_found_is_kept_as_long_as_its_switch_is_known)
{
	const struct topology *topology = &manager_rig.config.topology;
	const struct topology_host *link;
	struct group *group, *after;
	json_t *document, *again;

	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	manager_rig_serve_all();
	group = job();
	document = group_document(group, true);
	after = group_from_document(document, topology);
	check_places(after);
	link = group_host_of(after, topology, 1);
	ck_assert_ptr_eq(link, &after->members[1].found);
	ck_assert(topology_host_first(link) == link && link->next == NULL);
	again = group_document(after, true);
	/* Members may come back; everything else that is kept is the same. */
	for (size_t i = 0; i < MANAGER_RIG_HOSTS; i++) {
		json_object_del(json_array_get(json_object_get(document, "members"), i), "state");
		json_object_del(json_array_get(json_object_get(again, "members"), i), "state");
	}
	ck_assert(json_equal(document, again));
	group_free(after);
	json_decref(again);

	json_object_set_new(json_array_get(json_object_get(document, "members"), 1), "switch",
			    json_string("gone"));
	after = group_from_document(document, topology);
	ck_assert_ptr_nonnull(group_host_of(after, topology, 0));
	ck_assert_ptr_null(group_host_of(after, topology, 1));
	ck_assert_ptr_null(group_link_of(after, topology, 1));
	group_free(after);
	json_decref(document);
}
END_TEST

/* Reads a topology of one switch, with these further keys. Returns its error, or "". */
static const char *
read_topology(const char *keys, bool *discover)
{
	static struct control_error error;
	struct topology topology;
	char text[256];
	json_t *root;

	snprintf(text, sizeof(text), "{\"switches\": [{\"name\": \"a\", \"control\": \"/a\"}]%s}",
		 keys);
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(root != NULL, "%s", text);
	error.message[0] = '\0';
	if (topology_read(root, "t", &topology, &error) == 0) {
		error.message[0] = '\0';
		*discover = topology.discover_hosts;
		topology_free(&topology);
	}
	json_decref(root);
	return error.message;
}

START_TEST(hosts_are_looked_for_unless_there_is_a_list_of_them)
{
	static const struct {
		const char *keys;
		const char *error;
		bool discover;
	} cases[] = {
		{ "", "", true },
		{ ", \"hosts\": []", "", false },
		{ ", \"discover_hosts\": false", "", false },
		{ ", \"hosts\": [], \"discover_hosts\": true", "", true },
		{ ", \"discover_hosts\": 1", "t: discover_hosts: found 1, expected true or false",
		  false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool discover = false;

		ck_assert_str_eq(read_topology(cases[i].keys, &discover), cases[i].error);
		ck_assert_msg(discover == cases[i].discover, "%s", cases[i].keys);
	}
}
END_TEST

START_TEST(listed_hosts_are_not_looked_for)
{
	manager_rig.config.topology.discover_hosts = true;
	/* The listed host has another link, at leaf2; hosts that are found have one link. */
	join(0, "10.0.0.1");
	join(1, "10.0.1.1");
	ck_assert_int_eq(job()->state, GROUP_INSTALLING);
	manager_rig_serve_all();
	ck_assert_int_eq(job()->state, GROUP_NETWORK);
	ck_assert_uint_eq(job()->members[0].found.ip_be, 0);
}
END_TEST

/* Ranks that the manager has given while it looked for hosts become free if one of them leaves. */
START_TEST(a_rank_that_nobody_has_asked_for_is_free_when_a_host_leaves)
{
	manager_rig.is_silent[LEAF0] = manager_rig.is_silent[LEAF1] = true;
	join_as(0, GROUP_NO_RANK, "10.0.0.1");
	join_as(1, GROUP_NO_RANK, "10.0.1.1");
	ck_assert_int_eq(job()->members[1].rank, 1);
	host_closed(manager_rig.manager, &manager_rig.clients[1], job());
	ck_assert_uint_eq(job()->n_members, 1);
	ck_assert_int_eq(job()->members[0].rank, GROUP_NO_RANK);
	/* Any host may have the first rank. */
	manager_rig.is_silent[LEAF0] = manager_rig.is_silent[LEAF1] = false;
	join_as(1, 0, "10.0.1.1");
	manager_rig_serve_all();
	ck_assert_int_eq(job()->state, GROUP_NETWORK);
	ck_assert_ptr_eq(job()->members[0].client, &manager_rig.clients[1]);
}
END_TEST

Suite *
suite_manager_discovery(void)
{
	Suite *suite = suite_create("manager_discovery");
	TCase *tcase = tcase_create("unlisted");

	tcase_add_checked_fixture(tcase, manager_rig_begin_unlisted, manager_rig_end);
	tcase_add_test(tcase, hosts_that_are_not_listed_are_found_at_their_switches);
	tcase_add_test(tcase, a_job_of_found_hosts_moves_after_the_managers_restart);
	tcase_add_test(tcase, a_host_that_answers_late_is_asked_for_again_where_it_may_be);
	tcase_add_test(tcase, a_switch_that_comes_while_hosts_are_looked_for_is_asked_as_well);
	tcase_add_test(tcase, a_port_to_another_switch_is_no_place_of_a_host);
	tcase_add_test(tcase, a_host_that_is_nowhere_learns_where_was_looked);
	tcase_add_test(tcase, a_switch_that_cannot_look_for_hosts_is_named_and_others_are_asked);
	tcase_add_test(tcase, a_host_that_leaves_while_others_are_looked_for_may_come_back);
	tcase_add_test(tcase, a_rank_that_nobody_has_asked_for_is_free_when_a_host_leaves);
	tcase_add_test(tcase, nobody_joins_a_job_whose_hosts_are_looked_for);
	tcase_add_test(tcase, hosts_are_looked_for_only_if_the_topology_says_so);
	tcase_add_test(tcase, where_a_host_was_found_is_kept_as_long_as_its_switch_is_known);
	tcase_add_test(tcase, hosts_are_looked_for_unless_there_is_a_list_of_them);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("listed");
	tcase_add_checked_fixture(tcase, manager_rig_begin, manager_rig_end);
	tcase_add_test(tcase, listed_hosts_are_not_looked_for);
	suite_add_tcase(suite, tcase);
	return suite;
}
