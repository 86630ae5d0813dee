/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol of dense handlers: which block a slot holds, who has contributed, and when
 * the slot may go on to the next block. Handlers put a struct fanin_dense_state first in their
 * slots.
 *
 * A host sends block b only after it has the result of b - W, and a job has 2W slots. So whoever
 * sends block b of a slot has the result of b - W, to which every host contributed after it had
 * the result of b - 2W, the slot's block before. The slot can then be reused: nobody will ask for
 * that result again. 2W is a power of two, so that block numbers wrap around without a seam.
 *
 * A slot may be shared by the workers of a cluster (Flare section 5, S > 1). One word holds its
 * block, phase and number of users: a worker enters to use what the block holds, and only a worker
 * that finds no users moves the slot on. Nobody waits: who can't enter is told so, and its packet
 * is tried again later. With one worker per slot the same steps are plain loads and stores, of
 * whole words, since a thread that is no worker may look at them at any time: fanin_dense_peek.
 */
#ifndef FANIN_PROTOCOLS_DENSE_SWITCH_STATE_H
#define FANIN_PROTOCOLS_DENSE_SWITCH_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/handler.h"

enum fanin_dense_phase {
	FANIN_PHASE_FRESH, /* after a reset: the block before the first, finished without a result
			    */
	FANIN_PHASE_SETUP, /* one worker is preparing the slot: nobody may enter */
	FANIN_PHASE_OPEN,  /* the block takes contributions */
	FANIN_PHASE_SENT,  /* all are in, and their combination has gone to the parent, whose result
			      is awaited */
	FANIN_PHASE_DONE,  /* the result is there and kept */
};

struct fanin_dense_state {
	uint64_t word;    /* block << 32 | phase << 29 | users; changed atomically if the slot is
			     shared */
	uint64_t present; /* children whose contribution is in; likewise */
	union { /* of the block's first contribution; written in SETUP only, as is the next */
		uint64_t shape; /* as fanin_wire_shape gives it */
		struct {
			uint8_t dtype;
			uint8_t op;
			uint16_t count;
			uint16_t root;
		};
	};
	uint32_t epoch; /* run that the slot is in; 0: none */
	uint8_t wide; /* dense.h's: partial results are f32 and contributions are not, by kernels of
			 this instruction set + 1; or 0 */
};

/* What a contribution is to a slot, and whether its worker has entered. */
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

/* Adds to the state of a slot that is not shared. */
static inline void
fanin_dense_state_add(struct fanin_dense_state *slot, uint64_t step)
{
	__atomic_store_n(&slot->word, __atomic_load_n(&slot->word, __ATOMIC_RELAXED) + step,
			 __ATOMIC_RELEASE);
}

/* Leaves a slot that was entered; what was done in it is visible to whoever enters next. */
static inline void
fanin_dense_state_leave(struct fanin_dense_state *slot, bool shared)
{
	if (shared)
		__atomic_fetch_sub(&slot->word, 1, __ATOMIC_RELEASE);
	else
		fanin_dense_state_add(slot, UINT64_MAX);
}

/* See fanin_dense_state_enter: any case, in window.c. */
enum fanin_dense_class fanin_dense_state_enter_any(struct fanin_dense_state *slot,
						   const struct fanin_handler_ctx *ctx,
						   uint32_t block, bool exclusive);

/*
 * Classifies a contribution and enters the slot if the class says so; the caller then leaves by
 * fanin_dense_state_leave.
 *
 * exclusive: enter only if nobody else is in.
 */
static inline enum fanin_dense_class
fanin_dense_state_enter(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			uint32_t block, bool exclusive)
{
	uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

	/* What most contributions find: their block, open, and nobody in it. */
	if (__builtin_expect(state == fanin_state_make(block, FANIN_PHASE_OPEN, 0), 1) &&
	    fanin_dense_state_swap(slot, ctx->job->shared, &state, state + 1)) {
		/* Who is in knows the run: nobody resets the slot now. */
		if (__builtin_expect(__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == ctx->epoch,
				     1))
			return FANIN_DENSE_CURRENT;
		fanin_dense_state_leave(slot, ctx->job->shared);
		return fanin_dense_state_enter_any(slot, ctx, block, exclusive);
	}
	/* And what the others find: the block before is done. */
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
 * Enters the slot only if it is at this block, in CURRENT, SENT or FINISHED; it never moves the
 * slot on. Other classes: BUSY, STALE, OLD_RUN, and AHEAD if nothing of the block, or of its run,
 * has come yet.
 */
enum fanin_dense_class fanin_dense_state_visit(struct fanin_dense_state *slot,
					       const struct fanin_handler_ctx *ctx, uint32_t block);

/*
 * Ends the SETUP of a reset: the slot accepts the block `index` first, and the caller has left.
 */
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
 * Ends the SETUP of a new block, which takes its shape from its first contribution: it is open,
 * with that child's place claimed, and the caller is in.
 */
static inline void
fanin_dense_state_open(struct fanin_dense_state *slot, const struct fanin_hdr *hdr, uint16_t child)
{
	__atomic_store_n(&slot->present, UINT64_C(1) << child, __ATOMIC_RELEASE);
	slot->shape = fanin_wire_shape(hdr);
	__atomic_store_n(&slot->word, fanin_state_make(hdr->block, FANIN_PHASE_OPEN, 1),
			 __ATOMIC_RELEASE);
}

/* Gives up the SETUP of a new block that can't be: the slot stays at the one before, done. */
static inline void
fanin_dense_state_abandon(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			  uint32_t block)
{
	enum fanin_dense_phase phase = slot->present == 0 ? FANIN_PHASE_FRESH : FANIN_PHASE_DONE;

	__atomic_store_n(&slot->word, fanin_state_make(block - 2u * ctx->job->window, phase, 0),
			 __ATOMIC_RELEASE);
}

/* What a result of the parent is to a slot. */
enum fanin_dense_state_result {
	FANIN_RESULT_AWAITED, /* entered, alone, in SETUP: fanin_dense_state_settle ends it */
	FANIN_RESULT_BUSY,    /* not entered: try again */
	FANIN_RESULT_OTHER,   /* not entered: of a block that waits for none */
};

/* Enters the slot with a result for a block that is in a phase, OPEN or SENT, alone. */
enum fanin_dense_state_result fanin_dense_state_enter_result(struct fanin_dense_state *slot,
							     const struct fanin_handler_ctx *ctx,
							     uint32_t block,
							     enum fanin_dense_phase phase);

/*
 * Ends the SETUP of a result, and leaves. phase: SENT, DONE, or the one before if it was none for
 * this block.
 */
static inline void
fanin_dense_state_settle(struct fanin_dense_state *slot, uint32_t block,
			 enum fanin_dense_phase phase)
{
	__atomic_store_n(&slot->word, fanin_state_make(block, phase, 0), __ATOMIC_RELEASE);
}

/* Does a contribution have the shape of the block's first? The caller is in. */
static inline bool
fanin_dense_state_matches(const struct fanin_dense_state *slot, const struct fanin_hdr *hdr)
{
	return slot->shape == fanin_wire_shape(hdr);
}

/* Claims a child's place in the open block. Returns false if it is taken: a duplicate. */
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

/* Gives a claimed place back: the contribution will come again. */
static inline void
fanin_dense_state_unclaim(struct fanin_dense_state *slot, uint16_t child)
{
	__atomic_fetch_and(&slot->present, ~(UINT64_C(1) << child), __ATOMIC_RELAXED);
}

/* All contributions are in: moves the open block to a later phase. The caller is in and stays. */
static inline void
fanin_dense_state_finish(struct fanin_dense_state *slot, bool shared, enum fanin_dense_phase phase)
{
	const uint64_t step = (uint64_t)(phase - FANIN_PHASE_OPEN) << FANIN_STATE_PHASE_SHIFT;

	if (shared)
		__atomic_fetch_add(&slot->word, step, __ATOMIC_RELEASE);
	else
		fanin_dense_state_add(slot, step);
}

/* The same from any phase to any later one. */
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
