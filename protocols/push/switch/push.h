/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of push reductions (protocols/push/README.md): declarations that the handler's
 * files share. Sums wait for more data in a table with few entries. An entry is the part of a slot
 * that has a packet; a slot without one still knows which ranks have been seen.
 */
#ifndef FANIN_PROTOCOLS_PUSH_SWITCH_PUSH_H
#define FANIN_PROTOCOLS_PUSH_SWITCH_PUSH_H

#include <assert.h>

#include <rte_common.h>

#include "handlers/handler.h"
#include "handlers/pass.h"
#include "protocols/push/push.h"

enum push_counter {
	PUSH_HITS = FANIN_PASS_END,
	PUSH_COMPLETED,
	PUSH_EVICTED,
	PUSH_TIMED_OUT,
	PUSH_HOMED,
	PUSH_MARKED,
	PUSH_OVERLAPS,
	PUSH_STALE,
	PUSH_AHEAD,
};

/*
 * The table is divided into sets. Each set is a cache of its own, which one worker at a time may
 * hold. A slot's index gives its set.
 */
#define PUSH_SETS_MAX 16u
#define PUSH_SET_ENTRIES_MIN 8u

/* A set of the table. Slot numbers are index + 1; 0 is none. */
struct push_set {
	uint32_t busy;   /* atomic; only the worker that holds the set accesses the rest */
	uint32_t used;   /* slots with an entry */
	uint32_t newest; /* the slot whose entry was used last */
	uint32_t oldest;
} __rte_cache_aligned;

/*
 * How far a neighbor (a child or the parent) is known to be. The upper half is the run's epoch. The
 * lower half is a block of which data or a result has come from this neighbor, at most push_slack()
 * - 1 older than the newest such block. Atomic. If the epoch is another run's, nothing has come in
 * this run.
 */
#define PUSH_PARENT                                                                                \
	FANIN_WIRE_MAX_CHILDREN /* index of the parent; children have their own indices */

/* A job's state. */
struct push_state {
	struct push_set sets[PUSH_SETS_MAX];
	uint64_t newest[PUSH_PARENT + 1] __rte_cache_aligned; /* index: the neighbor */
};

/* A block's slot. The worker that holds the slot's set: rw. */
struct push_slot {
	struct rte_mbuf *mbuf; /* the entry's sum, EMPTY if only empty packets came; NULL: no entry
				*/
	uint64_t members;      /* ranks in the sum */
	uint64_t seen;         /* ranks whose data has come here */
	uint64_t shape;        /* as fanin_wire_shape gives it; 0: nothing has come */
	uint64_t begun_ns;
	uint32_t epoch;        /* run of the block; 0: no block yet */
	uint32_t parent_epoch; /* the parent's epoch of the same run */
	uint32_t block;
	uint32_t newer; /* slots used just after and before this one, + 1; 0: none */
	uint32_t older;
	bool evicted; /* a part of the block has left for its home host, or may: the table makes no
			 result */
	bool done;    /* the table has made the result */
} __rte_cache_aligned;

static_assert(sizeof(struct push_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

static inline uint32_t
push_sets(const struct fanin_job_params *job)
{
	const uint64_t entries = job->parameters[FANIN_PUSH_ENTRIES];
	uint32_t n = 1;

	while (n < PUSH_SETS_MAX && entries / (2 * n) >= PUSH_SET_ENTRIES_MIN)
		n *= 2;
	return n;
}

/*
 * Takes the set of a slot. Returns NULL if another worker holds it; return FANIN_VERDICT_RETRY
 * then.
 */
static inline struct push_set *
push_enter(const struct fanin_handler_ctx *ctx, uint32_t index)
{
	struct push_state *state = ctx->state;
	struct push_set *set = &state->sets[index & (push_sets(ctx->job) - 1)];

	return __atomic_exchange_n(&set->busy, 1, __ATOMIC_ACQUIRE) == 0 ? set : NULL;
}

static inline void
push_leave(struct push_set *set)
{
	__atomic_store_n(&set->busy, 0, __ATOMIC_RELEASE);
}

static inline struct push_slot *
push_slot_at(const struct fanin_job_params *job, uint32_t index)
{
	return (void *)job->slots.by_index[index];
}

/* A sum of some or all ranks. */
struct push_sum {
	struct rte_mbuf *mbuf;
	uint64_t members;
};

/* Returns whether these are all ranks below this switch. */
static inline bool
push_is_all(const struct fanin_job_params *job, uint64_t ranks)
{
	return (unsigned int)__builtin_popcountll(ranks) == job->n_below;
}

/*
 * Granularity in blocks of the notes about neighbors. It is coarse so that workers seldom write
 * notes, which all workers read.
 */
static inline uint32_t
push_slack(const struct fanin_job_params *job)
{
	return job->window / 8u + 1;
}

/*
 * push_window.c: checks whether a neighbor can send data or a QUERY of this block now. A rank sends
 * block b only when it has the result of b - W, which has data of all ranks. So every other
 * neighbor has already brought a packet about b - W or a later block. Returns FANIN_REASON_NONE,
 * BLOCK_WINDOW if the block is too new, or BLOCK_STALE if all ranks have its result.
 */
enum fanin_reason push_check_block(const struct fanin_handler_ctx *ctx, unsigned int neighbor,
				   uint32_t block);

/* push_window.c: as push_note, for a block newer than the note. */
void push_note_newer(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block);

/*
 * Notes that a neighbor brings data or the result of this block. To be called before any of it
 * leaves the switch.
 */
static inline void
push_note(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block)
{
	const struct push_state *state = ctx->state;
	const uint64_t noted = __atomic_load_n(&state->newest[neighbor], __ATOMIC_RELAXED);

	if (__builtin_expect((uint32_t)(noted >> 32) != ctx->epoch ||
				     (int32_t)(block - (uint32_t)noted) >=
					     (int32_t)push_slack(ctx->job),
			     0))
		push_note_newer(ctx, neighbor, block);
}

/* push_window.c: as push_note, for a message between hosts, if it carries data or a result. */
void push_note_message(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet);

/*
 * push_frames.c: sends a sum to the parent; at the root, to the block's home host; or as the result
 * to all. Each takes over the mbuf's only reference.
 */
void push_send_up(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum);
void push_send_home(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum);
void push_send_result(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf);

/*
 * push_frames.c: the root answers the home host's QUERY, in the QUERY's own packet. seen: ranks
 * whose data of the block has come.
 */
void push_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		 enum fanin_block_state state, uint64_t seen);

/* push_frames.c: pass packets of the parent on to their receivers. Each returns the verdict. */
enum fanin_verdict push_pass_result(struct fanin_handler_ctx *ctx,
				    const struct fanin_packet *packet);
enum fanin_verdict push_pass_home(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet);

#endif
