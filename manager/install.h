/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs onto switches, all or none, and off again. Main thread. */
#ifndef FANIN_MANAGER_INSTALL_H
#define FANIN_MANAGER_INSTALL_H

#include <stdbool.h>
#include <stdint.h>

#include "control/control.h"

struct manager;
struct group;
struct group_node;
struct removal;

/* All hosts are known: plans and installs the group, and answers its members in the end. */
void install_group(struct manager *manager, struct group *group);

/*
 * Asks the switches of the group's nodes to create its job; create's answers settle the rest.
 * Returns 0, or -EIO with *error filled if it can't be noted in the database; the group has no
 * nodes then.
 */
int install_nodes(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Takes back what a group may have on switches, and out of the database; what is left has no nodes.
 */
void install_withdraw(struct manager *manager, struct group *group);

/*
 * Notes that a group runs in the network. Returns false, with group->failure filled, if the
 * database fails.
 */
bool install_note_network(struct manager *manager, struct group *group);

/* A job's trees are there and noted: answers its members. */
void install_finished(struct manager *manager, struct group *group);

/*
 * A group that has nothing on any switch can't be installed: its hosts do without the network, or
 * are told why not.
 */
void install_failed(struct manager *manager, struct group *group,
		    const struct control_error *error);

/*
 * Ends the job of a group with all its trees: off the switches, out of the database, freed.
 *
 * reason: for its members; NULL: there are none to tell.
 */
void remove_group(struct manager *manager, struct group *group, const char *reason);

/* Notes that a job is to be removed from a switch, in memory only. */
void removal_add(struct manager *manager, const char *switch_name, uint32_t job);

/*
 * Notes for all of a group's nodes, in the database as well, that they are to be removed, and
 * begins with that.
 */
void removals_note(struct manager *manager, const struct group *group,
		   const struct group_node *nodes, uint16_t n_nodes);

struct removal *removal_find(const struct manager *manager, const char *switch_name, uint32_t job);

/* Asks all switches that can be reached to do what is left of the removals. */
void removals_go_on(struct manager *manager);

#endif
