/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of push reductions (protocols/push/README.md): what the files of the handler
 * share. Sums wait for more in a table with few entries. An entry is the part of a slot that has a
 * packet; a slot without one still knows which ranks have come.
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
 * The table is divided into sets, each a cache of its own that one worker at a time is in. A
 * block's slot says which is its set.
 */
#define PUSH_SETS_MOST 16u
#define PUSH_SET_ENTRIES_LEAST 8u

/* Slots are numbered from 1 on where 0 is none. */
struct push_set {
	uint32_t busy;   /* atomic; the rest is whoever has entered's */
	uint32_t used;   /* slots with an entry */
	uint32_t newest; /* the slot whose entry was used last */
	uint32_t oldest;
} __rte_cache_aligned;

/*
 * How far a neighbor is known to be, a child or the parent: the run's epoch in the upper half, and
 * in the lower one a block about which data or a result has come from there, at most push_slack() -
 * 1 older than the newest such block. Atomic; of another epoch: nothing has come.
 */
#define PUSH_PARENT                                                                                \
	FANIN_WIRE_MAX_CHILDREN /* the parent as a neighbor; children are their indices */

/* A job's state. */
struct push_state {
	struct push_set sets[PUSH_SETS_MOST];
	uint64_t newest[PUSH_PARENT + 1] __rte_cache_aligned; /* by neighbor */
};

/* Of a block. Whoever has entered its set: rw. */
struct push_slot {
	struct rte_mbuf *mbuf; /* the entry's sum, EMPTY if nothing but empty packets came; NULL:
				  the block has no entry */
	uint64_t members;      /* ranks in the sum */
	uint64_t seen;         /* ranks that have come here */
	uint64_t shape;        /* as fanin_wire_shape gives it; 0: nothing has come */
	uint64_t begun_ns;
	uint32_t epoch;        /* run of the block; 0: the slot has none */
	uint32_t parent_epoch; /* the same run as the parent numbers it */
	uint32_t block;
	uint32_t newer; /* slots whose entries were used after and before this one's, + 1; 0: none
			 */
	uint32_t older;
	bool evicted; /* a part of the block has gone to its home host, or all may: the table makes
			 no result of it */
	bool done;    /* the table has made the result */
} __rte_cache_aligned;

static_assert(sizeof(struct push_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

static inline uint32_t
push_sets(const struct fanin_job_params *job)
{
	const uint64_t entries = job->parameters[FANIN_PUSH_ENTRIES];
	uint32_t n = 1;

	while (n < PUSH_SETS_MOST && entries / (2 * n) >= PUSH_SET_ENTRIES_LEAST)
		n *= 2;
	return n;
}

/* Enters the set of a slot. Returns NULL if another worker is in: FANIN_VERDICT_RETRY. */
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

/* A sum, or a part of one. */
struct push_sum {
	struct rte_mbuf *mbuf;
	uint64_t members;
};

/* Are these all ranks that a sum here can have? */
static inline bool
push_is_all(const struct fanin_job_params *job, uint64_t ranks)
{
	return (unsigned int)__builtin_popcountll(ranks) == job->n_below;
}

/*
 * Granularity of a neighbor's note, in blocks: coarse, so that workers seldom write what all of
 * them read.
 */
static inline uint32_t
push_slack(const struct fanin_job_params *job)
{
	return job->window / 8u + 1;
}

/*
 * push_window.c: may a neighbor send data or a question of this block now? No rank sends block b
 * before it has the result of b - W, which has data of all ranks: so every other neighbor has
 * brought something about b - W, or a later block, before. Returns FANIN_REASON_NONE, BLOCK_WINDOW
 * for one that is too new, or BLOCK_STALE for one that is over everywhere.
 */
enum fanin_reason push_check_block(const struct fanin_handler_ctx *ctx, unsigned int neighbor,
				   uint32_t block);

/* push_window.c: as push_note, of a block that is newer than what is noted. */
void push_note_newer(const struct fanin_handler_ctx *ctx, unsigned int neighbor, uint32_t block);

/*
 * A neighbor brings data or the result of this block. To be called before any of it leaves the
 * switch.
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

/* push_window.c: the same of a packet from one host to others, if that is data or a result. */
void push_note_message(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet);

/*
 * push_frames.c: the sum goes to the parent, or at the root to the block's home host, or as the
 * result to all. Each takes the mbuf's only reference.
 */
void push_send_up(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum);
void push_send_home(struct fanin_handler_ctx *ctx, uint32_t block, struct push_sum sum);
void push_send_result(struct fanin_handler_ctx *ctx, uint32_t block, struct rte_mbuf *mbuf);

/*
 * push_frames.c: the root answers the home host's QUERY in its own packet. seen: ranks that have
 * come of the block.
 */
void push_answer(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		 enum fanin_block_state state, uint64_t seen);

/*
 * push_frames.c: packets of the parent go on to those they are for. Each returns the verdict on it.
 */
enum fanin_verdict push_pass_result(struct fanin_handler_ctx *ctx,
				    const struct fanin_packet *packet);
enum fanin_verdict push_pass_home(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet);

#endif
