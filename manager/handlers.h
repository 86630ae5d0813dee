/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handlers of the switches, as the switches describe them: the manager knows none by name. Main
 * thread.
 */
#ifndef FANIN_MANAGER_HANDLERS_H
#define FANIN_MANAGER_HANDLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "manager/manager.h"

/* The handler of a job whose hosts leave the choice to the network. */
#define HANDLERS_AUTO "auto"

/* Named in place of a handler by hosts that want no switch. */
#define HANDLERS_RING "ring"

/*
 * Resolves the name of a handler, as far as possible before a job has a tree, to compare what its
 * hosts have asked for.
 *
 * name: any but HANDLERS_AUTO is returned. reproducible: whether the job's sums have to be.
 * Returns a string of a switch's, or name; HANDLERS_AUTO stays until a switch has been heard.
 */
const char *handlers_resolve(const struct manager *manager, const char *name, bool reproducible);

/*
 * Settles the handler of a job on the switches of its tree: HANDLERS_AUTO becomes the default
 * handler of the first switch, which all must have. Changes group->handler and group->shape only.
 *
 * Returns 0; or -EINVAL with *error, if a switch has no such handler; if its version is too old to
 * describe what the handler needs, or for a reproducible job that the handler combines in the order
 * of ranks; or if this manager does not know the handler's shape, or switches disagree on it.
 */
int handlers_settle(const struct manager *manager, struct group *group,
		    struct control_error *error);

/*
 * Finds the shape of a job's handler before the job has a tree, as described by the first switch or
 * server that has the handler.
 *
 * Sets group->shape. Returns 0, with *error unchanged, also if no switch with the handler has been
 * heard; or -EINVAL with *error, if this manager does not know the shape.
 */
int handlers_find_shape(const struct manager *manager, struct group *group,
			struct control_error *error);

/*
 * Checks, before the job has a tree, that the handler of a reproducible job combines in the order
 * of ranks, likewise.
 *
 * Returns 0, with *error unchanged; or -EINVAL with *error.
 */
int handlers_check_order(const struct manager *manager, const struct group *group,
			 struct control_error *error);

/*
 * Checks a group whose results hosts make: it has at most 64 ranks, sums in any order, native types
 * and no tags.
 *
 * has: for the error, such as "a parameter server". Returns 0, or -EINVAL with *error.
 */
int handlers_check_hosts(const struct group *group, const char *has, struct control_error *error);

/*
 * The most packets that a slot of a handler holds on a switch.
 *
 * n_children: of the job at that switch. n_pairs: what fanin_order_build returns for them. Returns
 * 0 if the switch has no such handler, or does not say what its slots hold.
 */
uint32_t handlers_slot_mbufs(const struct peer *peer, const char *name, uint32_t n_children,
			     uint32_t n_pairs);

/* True if a switch has reported a handler of that name. */
bool handlers_has(const struct peer *peer, const char *name);

/*
 * Returns the values of a job's parameters, which a switch has reported by name, in the handler's
 * order; a new reference.
 */
json_t *handlers_list_parameters(const struct peer *peer, const char *name, const json_t *values);

/* True if the first switch or server that has a handler of that name reports this shape. */
bool handlers_shape_is(const struct manager *manager, const char *name, enum group_shape shape);

#endif
