/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves jobs whose tree has lost something to another tree. Main thread. */
#ifndef FANIN_MANAGER_MOVE_H
#define FANIN_MANAGER_MOVE_H

#include "control/control.h"

struct manager;
struct group;

/*
 * Moves a group whose tree is broken, or may have a better chance now, to another tree, if there is
 * one. A group that is being installed is skipped: call this again when its installation has ended.
 * why: for the log.
 */
void move_if_broken(struct manager *manager, struct group *group, const char *why);

/* The same for a running group whose shape has a tree. */
void move_tree_if_broken(struct manager *manager, struct group *group, const char *why);

/* The same for all groups. */
void moves_go_on(struct manager *manager, const char *why);

/* Like plan_group, for a moving group: keeps its packets' length and its slots. */
int move_plan(struct manager *manager, struct group *group, struct control_error *error);

/*
 * Ends the jobs that can't continue without the server or switch that they have lost. Call it at
 * the end of a turn, when no code uses groups any more.
 */
void moves_end_jobs(struct manager *manager);

/* Handle the end of a moving group's installation. */
void move_succeeded(struct manager *manager, struct group *group);
void move_failed(struct manager *manager, struct group *group, const struct control_error *error);

#endif
