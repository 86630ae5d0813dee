/* SPDX-License-Identifier: BSD-3-Clause */
/* How a region is reduced, by jobs of any handler: for the public calls, and for tests of what they have in common. */
#ifndef FANIN_HOSTLIB_REGION_REDUCE_H
#define FANIN_HOSTLIB_REGION_REDUCE_H

#include "hostlib/src/comm/context.h"

/*
 * An allreduce of a range of all ranks' regions, in place.
 *
 * handler: of the job beside the communicator's that carries it out, made with the first call; NULL: the way's own. Otherwise as fanin_region_push.
 */
int fanin_region_reduce_by(struct fanin_region *region, enum fanin_region_way way,
			   const char *handler, size_t offset, size_t count, enum fanin_dtype dtype,
			   enum fanin_op op);

#endif
