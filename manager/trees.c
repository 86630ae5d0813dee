/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several trees of one job, which its hosts use in turn (PANAMA's static trees). They are made one
 * after the other, so that each avoids the links of those before it; a job runs on as many as it
 * gets. Until all are made, the database has the job as being installed: if the manager is killed,
 * all are removed. Later each tree moves by itself. Main thread.
 */
#include "manager/trees.h"

#include <string.h>

#include "control/log.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/manager.h"
#include "manager/move.h"

/* The next further tree of a job, after `from`; NULL: `from` was the last. */
static struct group *
next_tree(const struct group *leader, struct group *from)
{
	do {
		from = TAILQ_NEXT(from, entry);
	} while (from != NULL && from->leader != leader);
	return from;
}

static struct group *
first_tree(const struct manager *manager, const struct group *leader)
{
	struct group *group = TAILQ_FIRST(&manager->groups);

	return group == NULL || group->leader == leader ? group : next_tree(leader, group);
}

bool
trees_are_asked(const struct manager *manager, const struct group *leader)
{
	const struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group_job(group) == leader && group->n_unanswered > 0)
			return true;
	}
	return false;
}

void
trees_withdraw(struct manager *manager, const struct group *leader)
{
	struct group *group;

	for (group = first_tree(manager, leader); group != NULL; group = next_tree(leader, group))
		install_withdraw(manager, group);
}

void
trees_forget(struct manager *manager, const struct group *leader)
{
	struct group *group;

	while ((group = first_tree(manager, leader)) != NULL)
		manager_forget_group(manager, group, NULL);
}

static bool
wants_more(const struct group *leader)
{
	return leader->n_trees < leader->trees_asked && leader->trees_reason[0] == '\0';
}

/*
 * Sets the payload of all trees to the least of theirs, since hosts use one packet length for all
 * of a job's trees. A tree keeps that length when it moves.
 */
static void
agree_on_payload(const struct manager *manager, struct group *leader)
{
	uint32_t least = leader->payload_bytes;
	struct group *group;

	for (group = first_tree(manager, leader); group != NULL; group = next_tree(leader, group)) {
		if (group->payload_bytes < least)
			least = group->payload_bytes;
	}
	leader->payload_bytes = least;
	for (group = first_tree(manager, leader); group != NULL; group = next_tree(leader, group))
		group->payload_bytes = least;
}

/* Checks all trees: switches that answered early may have been lost while others were asked. */
static void
look_after_all(struct manager *manager, struct group *leader)
{
	static const char why[] = "a switch or a link was lost while it was made";
	struct group *group;

	move_if_broken(manager, leader, why);
	for (group = first_tree(manager, leader); group != NULL; group = next_tree(leader, group))
		move_if_broken(manager, group, why);
}

/* Saves all trees as running, or removes them all. */
static void
finish(struct manager *manager, struct group *leader)
{
	struct control_error error;
	struct group *group;

	agree_on_payload(manager, leader);
	for (group = first_tree(manager, leader); group != NULL; group = next_tree(leader, group)) {
		if (!install_note_network(manager, group)) {
			error = group->failure;
			goto failed;
		}
	}
	/* The leader is last: once it is in the database, the job exists. */
	if (install_note_network(manager, leader)) {
		if (leader->n_trees < leader->trees_asked)
			log_warning("job \"%s\" has %u of the %u trees that it asked for: %s",
				    leader->name, leader->n_trees, leader->trees_asked,
				    leader->trees_reason);
		install_finished(manager, leader);
		look_after_all(manager, leader);
		host_tell_gone(manager, leader);
		return;
	}
	error = leader->failure;

failed:
	install_withdraw(manager, leader);
	trees_withdraw(manager, leader);
	trees_forget(manager, leader);
	leader->n_trees = 0;
	install_failed(manager, leader, &error);
}

void
trees_go_on(struct manager *manager, struct group *leader)
{
	struct group *group;

	leader->n_trees++;
	if (wants_more(leader)) {
		group = group_create_tree(leader);
		if (group != NULL) {
			TAILQ_INSERT_TAIL(&manager->groups, group, entry);
			install_group(manager, group);
			return;
		}
		memccpy(leader->trees_reason, "out of memory", '\0',
			sizeof(leader->trees_reason) - 1);
	}
	finish(manager, leader);
}

void
trees_end_at(struct manager *manager, struct group *group, const struct control_error *error)
{
	struct group *leader = group->leader;

	memcpy(leader->trees_reason, error->message, sizeof(leader->trees_reason));
	manager_forget_group(manager, group, NULL);
	finish(manager, leader);
}

void
trees_take_up(struct manager *manager)
{
	struct group *group, *next;

	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = next) {
		next = TAILQ_NEXT(group, entry);
		if (group->tree == 0)
			continue;
		group->leader = group_find(&manager->groups, group->name);
		if (group->leader != NULL)
			continue;
		/* The manager was killed while it removed the job from the switches. */
		install_withdraw(manager, group);
		manager_forget_group(manager, group, NULL);
	}
}

bool
trees_are_whole(const struct manager *manager, const struct group *leader)
{
	const struct group *group;
	uint16_t n = 0;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group_job(group) != leader)
			continue;
		if (group->state == GROUP_INSTALLING)
			return false;
		n++;
	}
	return leader->state != GROUP_NETWORK || n == leader->n_trees;
}
