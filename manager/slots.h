/* SPDX-License-Identifier: BSD-3-Clause */
/* How many slots a job has on each of its switches. Main thread. */
#ifndef FANIN_MANAGER_SLOTS_H
#define FANIN_MANAGER_SLOTS_H

#include "control/control.h"

struct manager;
struct group;

/*
 * Sets a planned group's slots: the most that all of its switches give to a job of its handler,
 * also where the job may move to, as far as the handler's slots hold more packets the more children
 * a switch has. 0 for a shape without slots.
 *
 * Returns 0; -ENOSPC with *error, code "no_room"; or -ENOMEM with *error.
 */
int slots_choose(const struct manager *manager, struct group *group, struct control_error *error);

#endif
