/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs whose tree has lost something go on over another one. Main thread. */
#ifndef FANIN_MANAGER_MOVE_H
#define FANIN_MANAGER_MOVE_H

#include "control/control.h"

struct manager;
struct group;

/*
 * Moves a group whose tree has something missing, or may have a better chance now, to another tree,
 * if there is one. Of a group that is being installed nothing is noticed: to be called when that
 * has ended. why: for the log.
 */
void move_if_broken(struct manager *manager, struct group *group, const char *why);

/* Of shapes that have a tree: the same of a group that runs. */
void move_tree_if_broken(struct manager *manager, struct group *group, const char *why);

/* The same of all groups. */
void moves_go_on(struct manager *manager, const char *why);

/* As plan_group, for a group that moves: with the packets and slots that it has. */
int move_plan(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Ends the jobs that can't go on without the server or switch that they have lost; at the end of a
 * turn, when nobody looks at groups any more.
 */
void moves_end_jobs(struct manager *manager);

/* The installation of a group that moves has ended. */
void move_succeeded(struct manager *manager, struct group *group);
void move_failed(struct manager *manager, struct group *group, const struct control_error *error);

#endif
