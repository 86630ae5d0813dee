/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which handlers the switches have, as they say themselves: the manager knows none by name. Main
 * thread.
 */
#ifndef FANIN_MANAGER_HANDLERS_H
#define FANIN_MANAGER_HANDLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "manager/manager.h"

/* A job's handler, where hosts leave it to the network. */
#define HANDLERS_AUTO "auto"

/* What hosts name in place of a handler if they want no switch. */
#define HANDLERS_RING "ring"

/*
 * The handler that is meant by a name, as far as this is known before a job has a tree: to compare
 * what its hosts have asked for.
 *
 * name: any but HANDLERS_AUTO is returned. reproducible: the job's sums have to be.
 * Returns a string of a switch's, or name, which HANDLERS_AUTO stays as long as no switch has been
 * heard.
 */
const char *handlers_resolve(const struct manager *manager, const char *name, bool reproducible);

/*
 * Settles the handler of a job on the switches of its tree: HANDLERS_AUTO becomes what the first of
 * them takes and all have. Changes group->handler and group->shape, and only these.
 *
 * Returns 0; or -EINVAL with *error, if a switch has no such handler, or is of a version that does
 * not tell what it needs, or, of a reproducible job, that it combines in the order of ranks; or if
 * the handler's shape is none that this manager knows, or not the same on all of them.
 */
int handlers_settle(const struct manager *manager, struct group *group,
		    struct control_error *error);

/*
 * The shape of a job's handler as far as it is known before the job has a tree: as the first switch
 * or server says that has such a handler.
 *
 * Sets group->shape. Returns 0, with *error as it was, also if no switch has been heard that has
 * it; or -EINVAL with *error, if this manager does not know the shape.
 */
int handlers_find_shape(const struct manager *manager, struct group *group,
			struct control_error *error);

/*
 * Whether the handler of a reproducible job combines in the order of ranks, as far as this is known
 * before the job has a tree, likewise.
 *
 * Returns 0, with *error as it was; or -EINVAL with *error.
 */
int handlers_check_order(const struct manager *manager, const struct group *group,
			 struct control_error *error);

/*
 * Checks a group whose results hosts make: they know 64 ranks at most, sums in any order, of native
 * type, and no tags.
 *
 * has: for the error, such as "a parameter server". Returns 0, or -EINVAL with *error.
 */
int handlers_check_hosts(const struct group *group, const char *has, struct control_error *error);

/*
 * Packets that a slot of a handler holds on a switch at most.
 *
 * n_children: of the job at that switch. n_pairs: what fanin_order_build returns for them. Returns
 * 0 if the switch has no such handler, or does not tell what its slots hold.
 */
uint32_t handlers_slot_mbufs(const struct peer *peer, const char *name, uint32_t n_children,
			     uint32_t n_pairs);

/* True if a switch has said that it has a handler of that name. */
bool handlers_has(const struct peer *peer, const char *name);

/*
 * The values of a job's parameters, which a switch has told by name, in the order in which the
 * handler declares them; a new reference.
 */
json_t *handlers_list_parameters(const struct peer *peer, const char *name, const json_t *values);

/*
 * True if the first switch or server that has a handler of that name says that it has this shape.
 */
bool handlers_shape_is(const struct manager *manager, const char *name, enum group_shape shape);

#endif
