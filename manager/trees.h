/* SPDX-License-Identifier: BSD-3-Clause */
/* Several trees of one job. Main thread. */
#ifndef FANIN_MANAGER_TREES_H
#define FANIN_MANAGER_TREES_H

#include <stdbool.h>

#include "control/control.h"

struct manager;
struct group;

/*
 * Continues after a tree of a job is installed: begins the next one that the job has asked for, or
 * finishes.
 */
void trees_go_on(struct manager *manager, struct group *leader);

/*
 * Handles the failure of a further tree: frees it, and finishes the job with the trees before it.
 */
void trees_end_at(struct manager *manager, struct group *group, const struct control_error *error);

/* True if switches have not answered all requests for any of the job's trees. */
bool trees_are_asked(const struct manager *manager, const struct group *leader);

/*
 * Removes the further trees of a job from the switches and the database; trees_forget frees them.
 */
void trees_withdraw(struct manager *manager, const struct group *leader);

/* Frees the further trees of a job. */
void trees_forget(struct manager *manager, const struct group *leader);

/* After a start: connects the trees of each job. Trees that belong to no job are removed. */
void trees_take_up(struct manager *manager);

/* True if a job has all its trees, and none is being installed. */
bool trees_are_whole(const struct manager *manager, const struct group *leader);

#endif
