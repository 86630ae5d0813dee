/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses how many slots a job has on each of its switches. Main thread. */
#ifndef FANIN_MANAGER_SLOTS_H
#define FANIN_MANAGER_SLOTS_H

#include "control/control.h"

struct manager;
struct group;

/*
 * Sets a planned group's slots to the most that all of its switches give to a job with its handler.
 * If a slot holds more packets the more children a switch has, it also counts trees that the job
 * may move to. 0 for a shape without slots.
 *
 * Returns 0; -ENOSPC with *error, code "no_room"; or -ENOMEM with *error.
 */
int slots_choose(const struct manager *manager, struct group *group, struct control_error *error);

#endif
