/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol of dense handlers: which block a slot holds, who has contributed, and when the slot may go on to the
 * next block. Handlers put a struct fanin_window first in their slots and call these functions from the worker that owns
 * the slot; nothing here is shared.
 *
 * A host sends block b only after it has the result of b - W, and a job has 2W slots. So whoever sends block b of a slot
 * has the result of b - W, to which every host contributed after it had the result of b - 2W, the slot's block before.
 * The slot can then be reused: nobody will ask for that result again. 2W is a power of two, so that block numbers wrap
 * around without a seam.
 */
#ifndef FANIN_HANDLERS_WINDOW_H
#define FANIN_HANDLERS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/handler.h"

struct fanin_window {
	uint64_t present; /* children whose contribution is in; none: never used since the reset */
	uint32_t block;   /* the current block */
	uint16_t count;   /* of its first contribution, as are dtype and op */
	uint8_t dtype;
	uint8_t op;
	bool done; /* all children are in */
};

/* What a contribution is to a slot. */
enum fanin_window_class {
	FANIN_WINDOW_CURRENT,   /* to be merged into the current block */
	FANIN_WINDOW_NEW,       /* the first of the slot's next block */
	FANIN_WINDOW_DUPLICATE, /* the child is in already, others are missing */
	FANIN_WINDOW_FINISHED,  /* the current block is done */
	FANIN_WINDOW_STALE,     /* a block before the current one */
	FANIN_WINDOW_AHEAD,     /* a block that no host may send yet */
};

/*
 * Makes the slot accept the block `index` first, by a current block before it that is done and has no contributions.
 */
static inline void
fanin_window_reset(struct fanin_window *slot, const struct fanin_job_params *job, uint32_t index)
{
	*slot = (struct fanin_window){
		.block = index - 2u * job->window,
		.done = true,
	};
}

/*
 * child: below FANIN_WIRE_MAX_CHILDREN.
 */
static inline enum fanin_window_class
fanin_window_classify(const struct fanin_window *slot, const struct fanin_job_params *job,
		      uint32_t block, uint16_t child)
{
	if (block == slot->block) {
		if (slot->done)
			return slot->present == 0 ? FANIN_WINDOW_STALE : FANIN_WINDOW_FINISHED;
		return slot->present >> child & 1 ? FANIN_WINDOW_DUPLICATE : FANIN_WINDOW_CURRENT;
	}
	if (fanin_block_before(block, slot->block))
		return FANIN_WINDOW_STALE;
	if (slot->done && block - slot->block == 2u * job->window)
		return FANIN_WINDOW_NEW;
	return FANIN_WINDOW_AHEAD;
}

/* Goes on to a new block, which takes its shape from its first contribution. */
static inline void
fanin_window_begin(struct fanin_window *slot, const struct fanin_hdr *hdr)
{
	slot->present = 0;
	slot->block = hdr->block;
	slot->count = hdr->count;
	slot->dtype = hdr->dtype;
	slot->op = hdr->op;
	slot->done = false;
}

/* Does a contribution have the shape of the block's first? */
static inline bool
fanin_window_matches(const struct fanin_window *slot, const struct fanin_hdr *hdr)
{
	return slot->count == hdr->count && slot->dtype == hdr->dtype && slot->op == hdr->op;
}

/* Notes a merged contribution. Returns true if it was the last: the block is done. */
static inline bool
fanin_window_add(struct fanin_window *slot, const struct fanin_job_params *job, uint16_t child)
{
	slot->present |= UINT64_C(1) << child;
	slot->done = slot->present == job->children;
	return slot->done;
}

#endif
