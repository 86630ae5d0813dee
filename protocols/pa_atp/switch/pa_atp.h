/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of PA-ATP (protocols/pa_atp/README.md): what the files of the handler share.
 *
 * The switch whose parent is the job's server is the aggregating one: it has the job's aggregators,
 * which are slots that all jobs share, and acknowledges each gradient. The switches below it pass
 * packets on, up and down, and keep nothing.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_SWITCH_PA_ATP_H
#define FANIN_PROTOCOLS_PA_ATP_SWITCH_PA_ATP_H

#include <assert.h>

#include <rte_common.h>

#include "handlers/frame.h"
#include "protocols/pa_atp/pa_atp.h"

/* IPv4's two bits of ECN (RFC 3168). */
#define PA_ATP_ECN_MASK 3u
#define PA_ATP_ECN_ECT0 2u
#define PA_ATP_ECN_CE 3u

enum pa_atp_counter {
	PA_ATP_GRADIENTS,
	PA_ATP_GACKS,
	PA_ATP_CE,
	PA_ATP_OVERFLOWS,
	PA_ATP_PASSED,
	PA_ATP_FLUSHES,
	PA_ATP_EXPIRED,
	PA_ATP_AACKS,
	PA_ATP_AECN,
	PA_ATP_REPEATS,
	PA_ATP_ASKS,
	PA_ATP_NO_PACKET,
};

enum pa_atp_phase {
	PA_ATP_EMPTY,
	PA_ATP_MERGING, /* gradients are missing */
	PA_ATP_SENT,    /* the complete sum went to the server, whose result is awaited */
};

/* Counters of a pool of aggregators, in job->slots.common: of all its jobs together. All atomic. */
struct pa_atp_common {
	uint32_t used;       /* slots in MERGING or SENT */
	uint32_t overflowed; /* gradients of unfinished blocks that found their slot taken */
};

static_assert(sizeof(struct pa_atp_common) <= FANIN_SLOTS_COMMON,
	      "room for what jobs have in common");

/*
 * A block's record, by its number modulo 2W. All atomic; whoever has entered the block's slot: rw,
 * others: ro unless stated.
 */
struct pa_atp_block {
	uint32_t begun;    /* the block */
	uint32_t finished; /* the last one of this place that has a result */
	uint32_t split;  /* not 0: data of some ranks went to the server, and all that comes follows
			    it */
	uint64_t passed; /* ranks whose data went there */
	uint64_t overflowed; /* of these, because the slot was taken; any worker takes them off when
				the block is finished */
};

/* A job's state. All atomic; what is behind `busy` is of the run `epoch`. */
struct pa_atp_state {
	struct pa_atp_common *common;
	uint32_t used;       /* the job's share of common->used; of all of its runs */
	uint32_t overflowed; /* likewise of common->overflowed; of the run, below zero for a moment
				while it ends */
	uint32_t epoch;      /* 0: no run yet */
	uint32_t busy;       /* a worker begins a run */
	uint32_t first;      /* the block that the run begins with */
	uint32_t progress;   /* a rank has the results of all blocks before this one */
	uint32_t pressure;   /* more has been in use than the threshold since the last result */
	uint64_t round_trip_ns; /* from a sum to its result, smoothed; 0: not known */
	uint64_t sum;           /* of `sent` */
	uint64_t sent[FANIN_SERVER_RANKS_MAX]; /* by rank: the last block of which a gradient came,
						  plus 1; 0: none came. Does not wrap around */
	struct pa_atp_block blocks[];
};

/* An aggregator. Whoever has entered: rw. */
struct pa_atp_slot {
	struct fanin_slot_tag tag;
	struct rte_mbuf *mbuf; /* MERGING: the sum so far, EMPTY if nothing but empty gradients
				  came; SENT: what was sent */
	uint64_t members;      /* ranks in the sum */
	union {
		fanin_kernel_fn add; /* MERGING */
		uint64_t sent_ns;    /* SENT: when it went to the server last */
	};
	uint64_t begun_ns;
	struct pa_atp_state *state; /* of the job; not EMPTY */
	uint8_t phase;              /* enum pa_atp_phase */
	bool ce;                    /* a gradient in the sum came with CE */
	bool is_repeated;           /* SENT: it was sent more than once */
} __rte_cache_aligned;

static_assert(sizeof(struct pa_atp_slot) == RTE_CACHE_LINE_SIZE, "one cache line per slot");

static inline uint64_t
pa_atp_all_ranks(const struct fanin_job_params *job)
{
	return fanin_ranks_all_word(job->n_ranks, 0);
}

static inline bool
pa_atp_has_ce(const struct fanin_headers *headers)
{
	return (headers->ip.tos & PA_ATP_ECN_MASK) == PA_ATP_ECN_CE ||
	       (headers->fanin.flags & FANIN_FLAG_CE) != 0;
}

/* pa_atp_state.c: the bytes of a job's state. */
size_t pa_atp_state_size(const struct fanin_job_params *job);

/*
 * pa_atp_state.c: all that is known of blocks is of a new run. first: its first block, 0; tests
 * start elsewhere.
 */
void pa_atp_begin_run(const struct fanin_job_params *job, struct pa_atp_state *state,
		      uint32_t first);

/*
 * pa_atp_state.c: a packet of ctx->epoch is at hand: begins the run if it is its first one.
 *
 * Returns FANIN_VERDICT_HELD if the state is that of the run; FANIN_VERDICT_RETRY if another worker
 * is in the way; or FANIN_VERDICT_DROP, with *reason set: the run is over.
 */
enum fanin_verdict pa_atp_enter_run(const struct fanin_handler_ctx *ctx, enum fanin_reason *reason);

/* pa_atp_state.c: is the state that of the run ctx->epoch? */
bool pa_atp_is_run(const struct fanin_handler_ctx *ctx);

/*
 * pa_atp_state.c: has the server made the result of this block? A true answer is for ever; for the
 * other the caller has entered its slot.
 */
bool pa_atp_is_finished(const struct fanin_job_params *job, const struct pa_atp_state *state,
			uint32_t block);

/*
 * pa_atp_state.c: what is remembered of a block that is not finished. The caller has entered its
 * slot.
 */
struct pa_atp_block *pa_atp_open_block(const struct fanin_handler_ctx *ctx, uint32_t block);

/*
 * pa_atp_state.c: the server has made the result of a block. The caller has entered the block's
 * slot.
 */
void pa_atp_finish_block(const struct fanin_handler_ctx *ctx, uint32_t block);

/*
 * pa_atp_state.c: a rank says that it has the results of all blocks before `progress`. Gives the
 * slots of those up whose results did not pass here. The caller has entered no slot. Returns false,
 * and does nothing, if it can't have them: all ranks are behind this switch, so results pass it,
 * but for the first W blocks, whose results ranks may have from an earlier run.
 */
bool pa_atp_note_progress(struct fanin_handler_ctx *ctx, uint32_t progress);

/*
 * pa_atp_state.c: can a rank have sent this block, or a rank know its result from an earlier run?
 * The state is that of the run.
 */
bool pa_atp_may_ask(const struct fanin_handler_ctx *ctx, uint32_t block);
bool pa_atp_may_know(const struct fanin_handler_ctx *ctx, uint32_t block);

/* pa_atp_state.c: a gradient of a rank has come. */
void pa_atp_note_gradient(const struct fanin_handler_ctx *ctx, unsigned int rank, uint32_t block);

/* pa_atp_state.c: gradients of these ranks found the block's slot taken. */
void pa_atp_note_overflow(const struct fanin_handler_ctx *ctx, struct pa_atp_block *entry,
			  uint64_t members);

/* pa_atp_state.c: the time from a sum that was sent once to its result. */
void pa_atp_note_round_trip(const struct fanin_handler_ctx *ctx, uint64_t ns);

/* pa_atp_state.c: a slot is used by the job of this state from now on, or no more. */
void pa_atp_use_slot(const struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot);
void pa_atp_unuse_slot(struct pa_atp_slot *slot);

/* pa_atp_state.c: is more in use than the threshold? */
bool pa_atp_is_short(const struct fanin_handler_ctx *ctx);

/* pa_atp_state.c: has it been since this was asked last? */
bool pa_atp_take_pressure(const struct fanin_handler_ctx *ctx);

/* pa_atp_state.c: the handler's functions of these names. */
void pa_atp_state_release(const struct fanin_job_params *job, void *memory);
bool pa_atp_rank_progress(const struct fanin_job_params *job, const void *memory, uint32_t epoch,
			  struct fanin_rank_progress *progress);

/* A gradient of a block of the run, which the job can reduce. */
struct pa_atp_gradient {
	const struct fanin_packet *packet;
	fanin_kernel_fn add;
	uint64_t members;  /* ranks in it, one of them mostly */
	unsigned int rank; /* the lowest of them */
	uint32_t index;    /* of the block's slot */
};

/*
 * pa_atp_slot.c: a gradient in the slot of its index, which has been entered. Acknowledges it,
 * unless it is dropped. Returns the verdict on it.
 */
enum fanin_verdict pa_atp_take_gradient(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
					const struct pa_atp_gradient *gradient,
					enum fanin_reason *reason);

/* pa_atp_slot.c: gives up a slot, which has been entered, with its data, if it has any. */
void pa_atp_give_up(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot);

/*
 * pa_atp_slot.c: the server is to get what there is of a block, now and from now on: what has
 * merged goes there, a complete sum goes once more, unless it has within a round trip. The block's
 * slot has been entered.
 */
void pa_atp_flush_block(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block);

/* pa_atp_slot.c: a block has a result. Likewise. */
void pa_atp_finish_slot(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block);

/* pa_atp_slot.c: the timer of a block has expired. Likewise. */
void pa_atp_expire(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t index,
		   uint32_t block);

/* The header fields of a frame to the parent. */
struct pa_atp_upward {
	enum fanin_type type;
	uint16_t flags;
	uint16_t contributions;
	uint32_t progress;
	uint64_t members;
};

/*
 * pa_atp_frames.c: makes a gradient, or a sum of them, a frame to the parent. Block, shape, payload
 * and the bits of ECN stay.
 */
void pa_atp_make_upward(const struct fanin_handler_ctx *ctx, const struct pa_atp_upward *upward,
			struct rte_mbuf *mbuf);

/*
 * pa_atp_frames.c: passes a packet with elements on to the parent, as it is but for its headers.
 * Returns the verdict on it.
 */
enum fanin_verdict pa_atp_pass_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
				  enum fanin_type type, uint64_t members);

/*
 * pa_atp_frames.c: the GACK of a gradient goes back to whom it came from. turn: in the packet
 * itself, which is not needed any more; else in a packet of its own, and the gradient stays as it
 * is.
 */
void pa_atp_send_gack(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		      unsigned int rank, bool turn);

/*
 * pa_atp_frames.c: passes a packet of the parent on to those it is for. Each returns the verdict on
 * it.
 */
enum fanin_verdict pa_atp_result_down(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet, bool aecn);
enum fanin_verdict pa_atp_repeat_down(struct fanin_handler_ctx *ctx,
				      const struct fanin_packet *packet, bool aecn);
enum fanin_verdict pa_atp_gack_down(struct fanin_handler_ctx *ctx,
				    const struct fanin_packet *packet);
enum fanin_verdict pa_atp_ask_down(struct fanin_handler_ctx *ctx,
				   const struct fanin_packet *packet);

#endif
