/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager under random events in any order: switches fail, come back, are full or restart,
 * their answers are lost, ports go down, hosts come and go, the manager is killed. The same with
 * parameter servers, which fail as switches do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "control/clock.h"
#include "manager/discover.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/move.h"
#include "lab/reference/random.h"
#include "tests/unit/manager_jobs_rig.h"
#include "tests/unit/suites.h"

/* Returns the handler of the rig's jobs, with servers or without. */
static const char *
handler(void)
{
	return manager_rig.n_peers > MANAGER_RIG_SWITCHES ? "serving" : "auto";
}

/*
 * Checks that a running job has all of its trees, each with a server at its root, or none with one.
 */
static void
check_trees(struct group *group)
{
	const bool serving = manager_rig.n_peers > MANAGER_RIG_SWITCHES;

	for (uint16_t i = 0; group != NULL && group->state == GROUP_NETWORK && i < group->n_trees;
	     i++) {
		const struct group *tree = tree_of(group, i);

		check_runs(tree);
		ck_assert_str_eq(tree->ending, "");
		for (uint16_t k = 0; k < tree->n_nodes; k++)
			ck_assert_int_eq(tree->nodes[k].switch_index >= MANAGER_RIG_SWITCHES,
					 serving && k == 0);
	}
}

/* Makes one random event happen: mostly a switch answers. */
static void
happen(struct random *random)
{
	const uint16_t index = (uint16_t)random_below(random, manager_rig.n_peers);

	switch (random_below(random, 16)) {
	case 0:
		if (manager_rig_is_up(index))
			manager_rig_lose(index);
		break;
	case 1:
		/* The switch has carried out its last request, but the answer is lost. */
		if (manager_rig_is_up(index))
			manager_rig_do_unheard(index);
		break;
	case 2:
		/* The switch was started anew. */
		if (!manager_rig_is_up(index))
			json_object_clear(manager_rig.jobs[index]);
		break;
	case 3:
	case 4:
		if (!manager_rig_is_up(index))
			manager_rig_raise(index);
		break;
	case 5:
		manager_rig.full[index] = random_below(random, 4) == 0;
		break;
	case 6:
		if (random_below(random, 4) == 0)
			manager_rig_restart();
		break;
	case 7:
		manager_rig.port_is_down[index][random_below(random, MANAGER_RIG_PORTS)] =
			random_below(random, 3) == 0;
		manager_rig_look_at(index);
		break;
	default:
		manager_rig_serve_one(index);
	}
	moves_end_jobs(manager_rig.manager);
	/* The number of a switch's jobs is known as of its last answer, whatever has failed. */
	for (uint16_t i = 0; i < manager_rig.n_peers; i++) {
		if (manager_rig_is_up(i))
			ck_assert_uint_eq(manager_rig.manager->peers[i].jobs,
					  json_object_size(manager_rig.jobs[i]));
	}
}

/*
 * Brings back all switches and ports, with room for jobs, and gives the manager time to finish its
 * work.
 */
static void
heal(void)
{
	for (uint16_t i = 0; i < manager_rig.n_peers; i++) {
		manager_rig.full[i] = false;
		memset(manager_rig.port_is_down[i], 0, sizeof(manager_rig.port_is_down[i]));
		if (!manager_rig_is_up(i))
			manager_rig_raise(i);
	}
	manager_rig_serve_all();
	discover_tick(manager_rig.manager, clock_ms() + 1000);
	manager_rig_serve_all();
	for (uint16_t i = 0; i < manager_rig.n_peers; i++)
		manager_rig_look_at(i);
	manager_rig_serve_all();
	moves_go_on(manager_rig.manager, "the test says so");
	manager_rig_serve_all();
}

START_TEST(after_anything_a_job_has_all_its_trees_or_is_gone)
{
	struct random random = random_seed((uint64_t)_i);
	struct group *group;

	/* Every other time three trees fill the leaves. */
	limit_jobs(_i % 2 == 0 ? 8 : 3);
	join_with(3, handler(), false);
	for (unsigned int i = random_below(&random, 120); i > 0; i--)
		happen(&random);
	heal();
	/* If the job was not created when the manager was killed, it is gone. */
	group = group_find(&manager_rig.manager->groups, "j");
	check_trees(group);
	ck_assert(group == NULL || group->state == GROUP_NETWORK);
	if (group != NULL)
		remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

/* Sends a request of a host, which may be refused. */
static void
ask(unsigned int rank,
    json_t *(*command)(void *, struct control_client *, json_t *, const json_t *,
		       struct control_error *),
    json_t *args)
{
	json_t *id = json_integer(1);
	struct control_error error;

	json_decref(command(manager_rig.manager, &manager_rig.clients[rank], id, args, &error));
	json_decref(args);
	json_decref(id);
}

/* Loses a host, for good or in silence, makes it leave, come back or join, or destroys the job. */
static void
happen_to_host(struct random *random)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };
	const unsigned int rank = random_below(random, MANAGER_RIG_HOSTS);
	struct group *group = group_find(&manager_rig.manager->groups, "j");
	struct control_client *client = &manager_rig.clients[rank];
	char key[20];

	if (group != NULL && random_below(random, 8) == 0) {
		manager_rig.manager->counters.jobs_destroyed++;
		remove_group(manager_rig.manager, group, "an operator destroyed it");
	} else if (control_client_data(client) != NULL && random_below(random, 4) == 0) {
		ask(rank, host_leave, json_object());
	} else if (control_client_data(client) != NULL) {
		client->ended_by = random_below(random, 2) == 0 ? -ETIMEDOUT : 0;
		lose_host(rank);
		control_client_set_data(client, NULL);
		client->ended_by = 0;
	} else if (group != NULL && random_below(random, 4) != 0) {
		ask(rank, host_reattach,
		    json_pack("{s:s, s:i, s:s}", "job", "j", "rank", (int)rank, "key",
			      group_hex(group->key, key)));
	} else {
		ask(rank, host_join,
		    json_pack("{s:s, s:i, s:i, s:s, s:i, s:s, s:b, s:s}", "job", "j", "size",
			      MANAGER_RIG_HOSTS, "rank", (int)rank, "ip", ips[rank], "trees", 3,
			      "handler", handler(), "fallback", random_below(random, 2), "endpoint",
			      "10.0.0.1:4000"));
	}
	if (random_below(random, 8) == 0)
		host_end_grace(manager_rig.manager, UINT64_MAX);
}

/* _i: if odd, a job that loses a host is destroyed. */
START_TEST(jobs_are_whole_or_gone_after_hosts_act_and_switches_fail)
{
	struct random random = random_seed((uint64_t)_i + 1000000);
	struct group *group;

	manager_rig.config.destroy_on_host_loss = _i % 2 != 0;
	for (unsigned int i = random_below(&random, 300); i > 0; i--) {
		if (random_below(&random, 6) == 0)
			happen_to_host(&random);
		else
			happen(&random);
		/* The messages are not checked. */
		for (unsigned int k = 0; k < MANAGER_RIG_HOSTS; k++)
			was_told(k, "");
	}
	heal();
	group = group_find(&manager_rig.manager->groups, "j");
	check_trees(group);
	ck_assert(group == NULL || group->state != GROUP_INSTALLING);
	ck_assert(group == NULL || group_has_members(group));
	if (group != NULL)
		remove_group(manager_rig.manager, group, "the test is over");
	check_nothing_left();
}
END_TEST

/* A long run has more repetitions: FANIN_HAPPENINGS=10000. */
static int
repetitions(void)
{
	const char *wanted = getenv("FANIN_HAPPENINGS");

	return wanted == NULL ? 25 : atoi(wanted);
}

Suite *
suite_manager_chance(void)
{
	Suite *suite = suite_create("manager_chance");

	static const struct {
		const char *name;
		void (*begin)(void);
	} worlds[] = {
		{ "listed", manager_rig_begin },
		{ "unlisted", manager_rig_begin_unlisted },
		{ "servers", manager_rig_begin_servers },
	};

	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		TCase *tcase = tcase_create(worlds[i].name);

		tcase_add_checked_fixture(tcase, worlds[i].begin, manager_rig_end);
		tcase_add_loop_test(tcase, after_anything_a_job_has_all_its_trees_or_is_gone, 0,
				    repetitions());
		tcase_add_loop_test(tcase, jobs_are_whole_or_gone_after_hosts_act_and_switches_fail,
				    0, repetitions());
		suite_add_tcase(suite, tcase);
	}
	return suite;
}
