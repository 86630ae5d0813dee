/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See state.h. Every check of the epoch before entering is repeated after it. In between, others
 * may move the slot to another run and to a state that looks the same. They cannot while a worker
 * is in the slot.
 */
#include "protocols/dense/switch/state.h"

/*
 * Enters a slot that was found at the caller's block, in the run `epoch`. Returns false if the slot
 * has changed since; *state is its current state.
 */
static inline bool
enter_found(struct fanin_dense_state *slot, bool shared, uint64_t *state, uint32_t epoch,
	    enum fanin_dense_class *class)
{
	const enum fanin_dense_phase phase = *state >> FANIN_STATE_PHASE_SHIFT &
					     FANIN_STATE_PHASE_MASK;

	if (!fanin_dense_state_swap(slot, shared, state, *state + 1))
		return false;
	/* The run is stable now: no worker resets the slot while this one is in it. */
	if (__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == epoch) {
		*class = phase == FANIN_PHASE_OPEN   ? FANIN_DENSE_CURRENT
			 : phase == FANIN_PHASE_SENT ? FANIN_DENSE_SENT
						     : FANIN_DENSE_FINISHED;
		return true;
	}
	fanin_dense_state_leave(slot, shared);
	*state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
	return false;
}

enum fanin_dense_class
fanin_dense_state_enter_any(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			    uint32_t block, bool exclusive)
{
	const bool shared = ctx->job->shared;
	uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

	for (;;) {
		enum fanin_dense_phase phase = state >> FANIN_STATE_PHASE_SHIFT &
					       FANIN_STATE_PHASE_MASK;
		uint32_t current = (uint32_t)(state >> 32);
		bool users = (state & FANIN_STATE_USERS) != 0;
		enum fanin_dense_class class;
		uint32_t epoch;

		if (phase == FANIN_PHASE_SETUP)
			return FANIN_DENSE_BUSY;
		epoch = __atomic_load_n(&slot->epoch, __ATOMIC_ACQUIRE);
		if (shared) {
			/*
			 * If the slot is being reset, the first read may give the old state
			 * together with the new epoch.
			 */
			uint64_t again = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

			if (again != state) {
				state = again;
				continue;
			}
		}
		if (__builtin_expect(epoch != ctx->epoch, 0)) {
			if (epoch != 0 && fanin_block_before(ctx->epoch, epoch))
				return FANIN_DENSE_OLD_RUN;
			if (users)
				return FANIN_DENSE_BUSY;
			if (!fanin_dense_state_swap(slot, shared, &state,
						    fanin_state_make(current, FANIN_PHASE_SETUP,
								     1)))
				continue;
			if (__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == epoch)
				return FANIN_DENSE_RESET;
			__atomic_store_n(&slot->word, state, __ATOMIC_RELEASE);
		} else if (block == current) {
			if (phase == FANIN_PHASE_FRESH)
				return FANIN_DENSE_STALE;
			if (exclusive && users)
				return FANIN_DENSE_BUSY;
			if (enter_found(slot, shared, &state, epoch, &class))
				return class;
		} else if (fanin_block_before(block, current)) {
			return FANIN_DENSE_STALE;
		} else if (phase == FANIN_PHASE_OPEN || phase == FANIN_PHASE_SENT ||
			   block - current != 2u * ctx->job->window) {
			return FANIN_DENSE_AHEAD;
		} else if (users) {
			return FANIN_DENSE_BUSY;
		} else if (fanin_dense_state_swap(slot, shared, &state,
						  fanin_state_make(block, FANIN_PHASE_SETUP, 1))) {
			if (__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == epoch)
				return FANIN_DENSE_NEW;
			__atomic_store_n(&slot->word, state, __ATOMIC_RELEASE);
		}
	}
}

enum fanin_dense_class
fanin_dense_state_visit(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			uint32_t block)
{
	const bool shared = ctx->job->shared;
	uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

	for (;;) {
		const enum fanin_dense_phase phase = state >> FANIN_STATE_PHASE_SHIFT &
						     FANIN_STATE_PHASE_MASK;
		const uint32_t current = (uint32_t)(state >> 32);
		const uint32_t epoch = __atomic_load_n(&slot->epoch, __ATOMIC_ACQUIRE);
		const uint64_t again = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
		enum fanin_dense_class class;

		if (again != state) {
			state = again;
			continue;
		}
		if (phase == FANIN_PHASE_SETUP)
			return FANIN_DENSE_BUSY;
		if (epoch != ctx->epoch)
			return epoch != 0 && fanin_block_before(ctx->epoch, epoch)
				       ? FANIN_DENSE_OLD_RUN
				       : FANIN_DENSE_AHEAD;
		if (block != current || phase == FANIN_PHASE_FRESH)
			return fanin_block_before(current, block) ? FANIN_DENSE_AHEAD
								  : FANIN_DENSE_STALE;
		if (enter_found(slot, shared, &state, epoch, &class))
			return class;
	}
}

enum fanin_dense_state_result
fanin_dense_state_enter_result(struct fanin_dense_state *slot, const struct fanin_handler_ctx *ctx,
			       uint32_t block, enum fanin_dense_phase phase)
{
	const uint64_t waiting = fanin_state_make(block, phase, 0);
	uint64_t state = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);

	/*
	 * The number of users and the step into SETUP may change at any time, so only the block and
	 * the phase decide.
	 */
	if (state >> 32 == block &&
	    (state >> FANIN_STATE_PHASE_SHIFT & FANIN_STATE_PHASE_MASK) == FANIN_PHASE_SETUP)
		return FANIN_RESULT_BUSY;
	if ((state & ~FANIN_STATE_USERS) != waiting)
		return FANIN_RESULT_OTHER;
	state = waiting;
	if (!fanin_dense_state_swap(slot, ctx->job->shared, &state,
				    fanin_state_make(block, FANIN_PHASE_SETUP, 1)))
		return FANIN_RESULT_BUSY;
	if (__atomic_load_n(&slot->epoch, __ATOMIC_RELAXED) == ctx->epoch)
		return FANIN_RESULT_AWAITED;
	__atomic_store_n(&slot->word, waiting, __ATOMIC_RELEASE);
	return FANIN_RESULT_OTHER;
}
