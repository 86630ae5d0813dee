/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions shared by tests of the manager's jobs: its two hosts join the job "j", and the job's
 * state is checked. Most of these tests use all of them.
 */
#ifndef FANIN_TESTS_UNIT_MANAGER_JOBS_RIG_H
#define FANIN_TESTS_UNIT_MANAGER_JOBS_RIG_H

#include <stdio.h>
#include <string.h>

#include <check.h>
#include <jansson.h>

#include "manager/host.h"
#include "tests/unit/manager_rig.h"

/* Both hosts ask for the job "j" with a handler; the switches have not answered yet. */
static inline struct group *
join_with(int trees, const char *handler, bool reproducible)
{
	static const char *const ips[MANAGER_RIG_HOSTS] = { "10.0.0.1", "10.0.1.1" };

	for (int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		json_t *args = json_pack("{s:s, s:i, s:i, s:s, s:i, s:s, s:b}", "job", "j", "size",
					 MANAGER_RIG_HOSTS, "rank", i, "ip", ips[i], "trees", trees,
					 "handler", handler, "reproducible", reproducible);
		json_t *id = json_integer(1);
		struct control_error error;

		ck_assert_ptr_null(
			host_join(manager_rig.manager, &manager_rig.clients[i], id, args, &error));
		json_decref(args);
		json_decref(id);
	}
	return group_find(&manager_rig.manager->groups, "j");
}

/* Makes both hosts join; all switches have answered. */
static inline struct group *
join(int trees)
{
	return join_with(trees, "auto", false);
}

/* Makes the job "j" with trees that all switches have created. */
static inline struct group *
join_and_serve(int trees)
{
	struct group *group = join(trees);

	manager_rig_serve_all();
	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert_uint_eq(group->n_trees, (unsigned int)trees);
	return group;
}

/* Ends the connection of a host. */
static inline void
lose_host(unsigned int rank)
{
	host_closed(manager_rig.manager, &manager_rig.clients[rank],
		    control_client_data(&manager_rig.clients[rank]));
}

/*
 * Returns how often a host has been told of an event by the end of a turn. Other messages to it are
 * dropped.
 */
static inline unsigned int
count_told(unsigned int rank, const char *name)
{
	unsigned int n = 0;
	json_t *line;

	host_tell_changes(manager_rig.manager);
	while ((line = manager_rig_hear(rank)) != NULL) {
		const char *event = json_string_value(json_object_get(line, "event"));

		n += event != NULL && strcmp(event, name) == 0;
		json_decref(line);
	}
	return n;
}

static inline bool
was_told(unsigned int rank, const char *name)
{
	return count_told(rank, name) > 0;
}

static inline struct group *
tree_of(struct group *leader, uint16_t number)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager_rig.manager->groups, entry) {
		if (group_leader(group) == leader && group->tree == number)
			return group;
	}
	return NULL;
}

/* Checks that all nodes of a tree are at live switches, and that these have its job. */
static inline void
check_runs(const struct group *group)
{
	char number[16];

	ck_assert_int_eq(group->state, GROUP_NETWORK);
	ck_assert_uint_gt(group->n_nodes, 0);
	snprintf(number, sizeof(number), "%u", group->id);
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		ck_assert_int_eq(manager_rig.manager->peers[group->nodes[i].switch_index].state,
				 PEER_UP);
		ck_assert_ptr_nonnull(
			json_object_get(manager_rig.jobs[group->nodes[i].switch_index], number));
	}
}

/* Checks that no job is left, neither here nor on switches. */
static inline void
check_nothing_left(void)
{
	manager_rig_serve_all();
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->groups));
	ck_assert_uint_eq(manager_rig.manager->n_jobs, 0);
	ck_assert(TAILQ_EMPTY(&manager_rig.manager->removals));
	for (unsigned int i = 0; i < manager_rig.n_peers; i++)
		ck_assert_uint_eq(json_object_size(manager_rig.jobs[i]), 0);
}

/* Returns the switch at the root of a planned tree. */
static inline uint16_t
root_of(const struct group *group)
{
	return group->nodes[0].switch_index;
}

/* Limits the switches to this many jobs, and lets the manager know. */
static inline void
limit_jobs(uint32_t max_jobs)
{
	manager_rig.max_jobs = max_jobs;
	for (uint16_t i = 0; i < manager_rig.n_peers; i++)
		manager_rig_look_at(i);
	manager_rig_serve_all();
}

#endif
