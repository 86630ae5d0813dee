/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol of dense handlers: which block a slot holds, which children have contributed,
 * and when the slot may move on to the next block. Handlers put a struct fanin_dense_state first in
 * their slots.
 *
 * A host sends block b only after it has the result of b - W, and a job has 2W slots. So a host
 * that sends block b has the result of b - W. Every host contributed to b - W after it had the
 * result of b - 2W, the previous block of the same slot. So the slot can be reused: no host asks
 * for that result again. 2W is a power of two, so block numbers wrap around without a gap.
 *
 * The workers of a cluster may share a slot (Flare section 5, S > 1). One word holds the slot's
 * block, phase and number of users. A worker enters the slot to use what the block holds; only a
 * worker that finds no users moves the slot on. No worker waits: if it cannot enter, its packet is
 * retried later. If only one worker uses a slot, the same steps are plain loads and stores of whole
 * words, because other threads may read them at any time: fanin_dense_peek.
 */
#ifndef FANIN_PROTOCOLS_DENSE_SWITCH_STATE_H
#define FANIN_PROTOCOLS_DENSE_SWITCH_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/handler.h"

enum fanin_dense_phase {
	FANIN_PHASE_FRESH, /* after a reset: the block before the first, finished without a result
			    */
	FANIN_PHASE_SETUP, /* a worker is preparing the slot: no other may enter */
	FANIN_PHASE_OPEN,  /* the block takes contributions */
	FANIN_PHASE_SENT,  /* the sum of all went to the parent; the block waits for its result */
	FANIN_PHASE_DONE,  /* the result has come and is kept */
};

struct fanin_dense_state {
	uint64_t word;    /* block << 32 | phase << 29 | users; atomic if the slot is shared */
	uint64_t present; /* children whose contribution is in; atomic if shared */
	union {           /* shape of the first contribution; written in SETUP only, as `epoch` */
		uint64_t shape; /* as fanin_wire_shape gives it */
		struct {
			uint8_t dtype;
			uint8_t op;
			uint16_t count;
			uint16_t root;
		};
	};
	uint32_t epoch; /* run of the slot; 0: none */
	uint8_t wide;   /* of dense.h: instruction set + 1 if partial results are f32 and
			   contributions are not; else 0 */
};

/* How a contribution relates to a slot, and whether its worker has entered. */
enum fanin_dense_class {
	FANIN_DENSE_CURRENT,  /* entered: of the block that is open */
	FANIN_DENSE_SENT,     /* entered: of the block that waits for the parent's result */
	FANIN_DENSE_FINISHED, /* entered: of the block that is done */
	FANIN_DENSE_NEW,      /* entered, alone, in SETUP: the first of the slot's next block */
	FANIN_DENSE_RESET,    /* entered, alone, in SETUP: the slot is of an earlier run */
	FANIN_DENSE_BUSY,     /* not entered: try again */
	FANIN_DENSE_STALE,    /* not entered: a block before the current one */
	FANIN_DENSE_AHEAD,    /* not entered: a block that no host may send yet */
	FANIN_DENSE_OLD_RUN,  /* not entered: of an earlier run than the slot */
};

#define FANIN_STATE_PHASE_SHIFT 29
#define FANIN_STATE_PHASE_MASK 7
#define FANIN_STATE_USERS ((UINT64_C(1) << FANIN_STATE_PHASE_SHIFT) - 1)

static inline uint64_t
fanin_state_make(uint32_t block, enum fanin_dense_phase phase, uint32_t users)
{
	return (uint64_t)block << 32 | (uint64_t)phase << FANIN_STATE_PHASE_SHIFT | users;
}

static inline uint32_t
fanin_dense_state_block(const struct fanin_dense_state *slot)
{
	return (uint32_t)(__atomic_load_n(&slot->word, __ATOMIC_RELAXED) >> 32);
}

static inline bool
fanin_dense_state_swap(struct fanin_dense_state *slot, bool shared, uint64_t *old, uint64_t new)
{
	if (shared)
		return __atomic_compare_exchange_n(&slot->word, old, new, false, __ATOMIC_ACQ_REL,
						   __ATOMIC_ACQUIRE);
	__atomic_store_n(&slot->word, new, __ATOMIC_RELAXED);
	return true;
}

/* Adds to the state word of a slot that is not shared. */
static inline void
fanin_dense_state_add(struct fanin_dense_state *slot, uint64_t step)
{
	__atomic_store_n(&slot->word, __atomic_load_n(&slot->word, __ATOMIC_RELAXED) + step,
			 __ATOMIC_RELEASE);
}

/* Leaves a slot. All writes become visible to the next worker that enters. */
static inline void
fanin_dense_state_leave(struct fanin_dense_state *slot, bool shared)
{
	if (shared)
		__atomic_fetch_sub(&slot->word, 1, __ATOMIC_RELEASE);
	else
		fanin_dense_state_add(slot, UINT64_MAX);
}

/* state.c: fanin_dense_state_enter for all cases. */
enum fanin_dense_class fanin_dense_state_enter_any(struct fanin_dense_state *slot,
						   const struct fanin_handler_ctx *ctx,
						   uint32_t block, bool exclusive);

/*
 * Classifies a contribution, and enters the slot if the class says so. The caller then leaves by
 * fanin_dense_state_leave.
 *
 * exclusive: enter only if no other worker is in.
 */
static inline enum fanin_dense_class
fanin_dense_state_enter(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			uint32_t block, bool exclusive)
{
	uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

	/* The usual case: the block is open, and no other worker is in the slot. */
	if (__builtin_expect(state == fanin_state_make(block, FANIN_PHASE_OPEN, 0), 1) &&
	    fanin_dense_state_swap(slot, ctx->job->shared, &state, state + 1)) {
		/* The run is stable now: no worker resets the slot while this one is in it. */
		if (__builtin_expect(__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == ctx->epoch,
				     1))
			return FANIN_DENSE_CURRENT;
		fanin_dense_state_leave(slot, ctx->job->shared);
		return fanin_dense_state_enter_any(slot, ctx, block, exclusive);
	}
	/* The next most common case: the previous block is done. */
	if (__builtin_expect(state == fanin_state_make(block - 2u * ctx->job->window,
						       FANIN_PHASE_DONE, 0),
			     1) &&
	    fanin_dense_state_swap(slot, ctx->job->shared, &state,
				   fanin_state_make(block, FANIN_PHASE_SETUP, 1))) {
		if (__builtin_expect(__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == ctx->epoch,
				     1))
			return FANIN_DENSE_NEW;
		__atomic_store_n(&slot->word, state, __ATOMIC_RELEASE);
	}
	return fanin_dense_state_enter_any(slot, ctx, block, exclusive);
}

/*
 * Enters the slot only if it is at this block: CURRENT, SENT or FINISHED. It never moves the slot
 * to another block. Other classes: BUSY, STALE, OLD_RUN, and AHEAD if no contribution to the block,
 * or of its run, has come yet.
 */
enum fanin_dense_class fanin_dense_state_visit(struct fanin_dense_state *slot,
					       const struct fanin_handler_ctx *ctx, uint32_t block);

/* Ends the SETUP of a reset and leaves: the slot accepts the block `index` first. */
static inline void
fanin_dense_state_reset(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			uint32_t index)
{
	__atomic_store_n(&slot->present, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->epoch, ctx->epoch, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->word,
			 fanin_state_make(index - 2u * ctx->job->window, FANIN_PHASE_FRESH, 0),
			 __ATOMIC_RELEASE);
}

/*
 * Ends the SETUP of a new block, which takes the shape of its first contribution. The block is
 * open, the child's place is claimed, and the caller remains entered.
 */
static inline void
fanin_dense_state_open(struct fanin_dense_state *slot, const struct fanin_hdr *hdr, uint16_t child)
{
	__atomic_store_n(&slot->present, UINT64_C(1) << child, __ATOMIC_RELEASE);
	slot->shape = fanin_wire_shape(hdr);
	__atomic_store_n(&slot->word, fanin_state_make(hdr->block, FANIN_PHASE_OPEN, 1),
			 __ATOMIC_RELEASE);
}

/* Gives up the SETUP of a new block that is refused: the slot stays at the previous block, done. */
static inline void
fanin_dense_state_abandon(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			  uint32_t block)
{
	enum fanin_dense_phase phase = slot->present == 0 ? FANIN_PHASE_FRESH : FANIN_PHASE_DONE;

	__atomic_store_n(&slot->word, fanin_state_make(block - 2u * ctx->job->window, phase, 0),
			 __ATOMIC_RELEASE);
}

/* How a result of the parent relates to a slot. */
enum fanin_dense_state_result {
	FANIN_RESULT_AWAITED, /* entered, alone, in SETUP: fanin_dense_state_settle ends it */
	FANIN_RESULT_BUSY,    /* not entered: try again */
	FANIN_RESULT_OTHER,   /* not entered: the block is not in the expected phase */
};

/*
 * Enters the slot, alone, with a result for a block. phase: the phase that the block must be in,
 * OPEN or SENT.
 */
enum fanin_dense_state_result fanin_dense_state_enter_result(struct fanin_dense_state *slot,
							     const struct fanin_handler_ctx *ctx,
							     uint32_t block,
							     enum fanin_dense_phase phase);

/*
 * Ends the SETUP of a result, and leaves. phase: SENT or DONE; or the previous phase, if the result
 * was not this block's.
 */
static inline void
fanin_dense_state_settle(struct fanin_dense_state *slot, uint32_t block,
			 enum fanin_dense_phase phase)
{
	__atomic_store_n(&slot->word, fanin_state_make(block, phase, 0), __ATOMIC_RELEASE);
}

/* Returns whether a contribution has the shape of the block's first one. The caller has entered. */
static inline bool
fanin_dense_state_matches(const struct fanin_dense_state *slot, const struct fanin_hdr *hdr)
{
	return slot->shape == fanin_wire_shape(hdr);
}

/* Claims a child's place in the open block. Returns false for a duplicate: the place is taken. */
static inline bool
fanin_dense_state_claim(struct fanin_dense_state *slot, bool shared, uint16_t child)
{
	const uint64_t bit = UINT64_C(1) << child;
	uint64_t before;

	if (shared)
		return (__atomic_fetch_or(&slot->present, bit, __ATOMIC_RELAXED) & bit) == 0;
	before = slot->present;
	__atomic_store_n(&slot->present, before | bit, __ATOMIC_RELAXED);
	return (before & bit) == 0;
}

/* Gives back a claimed place: the contribution will be retried. */
static inline void
fanin_dense_state_unclaim(struct fanin_dense_state *slot, uint16_t child)
{
	__atomic_fetch_and(&slot->present, ~(UINT64_C(1) << child), __ATOMIC_RELAXED);
}

/* All contributions are in: moves the open block to a later phase. The caller remains entered. */
static inline void
fanin_dense_state_finish(struct fanin_dense_state *slot, bool shared, enum fanin_dense_phase phase)
{
	const uint64_t step = (uint64_t)(phase - FANIN_PHASE_OPEN) << FANIN_STATE_PHASE_SHIFT;

	if (shared)
		__atomic_fetch_add(&slot->word, step, __ATOMIC_RELEASE);
	else
		fanin_dense_state_add(slot, step);
}

/* As fanin_dense_state_finish, from any phase to any later one. */
static inline void
fanin_dense_state_pass(struct fanin_dense_state *slot, bool shared, enum fanin_dense_phase from,
		       enum fanin_dense_phase to)
{
	const uint64_t step = (uint64_t)(to - from) << FANIN_STATE_PHASE_SHIFT;

	if (shared)
		__atomic_fetch_add(&slot->word, step, __ATOMIC_RELEASE);
	else
		fanin_dense_state_add(slot, step);
}

#endif
