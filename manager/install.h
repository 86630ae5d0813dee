/* SPDX-License-Identifier: BSD-3-Clause */
/* Installs jobs on switches, all or none, and removes them. Main thread. */
#ifndef FANIN_MANAGER_INSTALL_H
#define FANIN_MANAGER_INSTALL_H

#include <stdbool.h>
#include <stdint.h>

#include "control/control.h"

struct manager;
struct group;
struct group_node;
struct removal;

/* Plans and installs a group whose hosts are all known. Its members are answered at the end. */
void install_group(struct manager *manager, struct group *group);

/*
 * Asks the switches of the group's nodes to create its job; their answers settle the rest. Returns
 * 0, or -EIO with *error filled if the database fails; the group has no nodes then.
 */
int install_nodes(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Removes what a group may have on switches, and its entry in the database. The group has no nodes
 * afterwards.
 */
void install_withdraw(struct manager *manager, struct group *group);

/*
 * Saves that a group runs in the network. Returns false, with group->failure filled, if the
 * database fails.
 */
bool install_note_network(struct manager *manager, struct group *group);

/* Answers the members of a job whose trees are installed and saved. */
void install_finished(struct manager *manager, struct group *group);

/*
 * Ends the installation of a group that has nothing on any switch: its hosts run as a ring, or
 * their joins are refused.
 */
void install_failed(struct manager *manager, struct group *group,
		    const struct control_error *error);

/*
 * Ends the job of a group with all its trees: removes it from the switches and the database, and
 * frees it.
 *
 * reason: for its members; NULL: there are none to notify.
 */
void remove_group(struct manager *manager, struct group *group, const char *reason);

/* Adds a pending removal of a job from a switch, in memory only. */
void removal_add(struct manager *manager, const char *switch_name, uint32_t job);

/*
 * Adds pending removals of all the nodes, in the database as well, and starts them. nodes: of this
 * group, now or before.
 */
void removals_note(struct manager *manager, const struct group *group,
		   const struct group_node *nodes, uint16_t n_nodes);

struct removal *removal_find(const struct manager *manager, const char *switch_name, uint32_t job);

/* Sends the pending removals to all switches that can be reached. */
void removals_go_on(struct manager *manager);

#endif
