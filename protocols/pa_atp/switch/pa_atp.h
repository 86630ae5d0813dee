/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of PA-ATP (protocols/pa_atp/README.md): the declarations that the handler's
 * files share. The aggregating switch is the one whose parent is the job's server. It holds the
 * job's aggregators, which are slots shared by all jobs, and acknowledges each gradient. Switches
 * below it pass packets up and down and keep nothing.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_SWITCH_PA_ATP_H
#define FANIN_PROTOCOLS_PA_ATP_SWITCH_PA_ATP_H

#include <assert.h>

#include <rte_common.h>

#include "handlers/frame.h"
#include "protocols/pa_atp/pa_atp.h"

/* The two ECN bits of IPv4 (RFC 3168). */
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
	PA_ATP_MERGING, /* some gradients are missing */
	PA_ATP_SENT,    /* the complete sum went to the server, which has not sent the result yet */
};

/*
 * Counters of a pool of aggregators, in job->slots.common. They cover all jobs of the pool. All
 * atomic.
 */
struct pa_atp_common {
	uint32_t used; /* slots in MERGING or SENT */
	/* gradients of unfinished blocks that found their slot in use by another block */
	uint32_t overflowed;
};

static_assert(sizeof(struct pa_atp_common) <= FANIN_SLOTS_COMMON,
	      "room for what jobs have in common");

/*
 * A block's record, at the index of its number modulo 2W. All atomic. The worker that has entered
 * the block's slot: rw; others: ro unless stated.
 */
struct pa_atp_block {
	uint32_t begun;    /* the block */
	uint32_t finished; /* the last block with this index that has a result */
	/* not 0: data of some ranks went to the server, and all later data follows it */
	uint32_t split;
	uint64_t passed; /* ranks whose data went to the server */
	/*
	 * of them, ranks that found the slot in use; any worker subtracts them when the block is
	 * finished
	 */
	uint64_t overflowed;
};

/* A job's state. All atomic. The members after `busy` belong to the run `epoch`. */
struct pa_atp_state {
	struct pa_atp_common *common;
	uint32_t used; /* the share of common->used that all runs of this job have */
	/*
	 * the share of common->overflowed that this run has; briefly below zero while the run ends
	 */
	uint32_t overflowed;
	uint32_t epoch;         /* 0: no run yet */
	uint32_t busy;          /* a worker is beginning a run */
	uint32_t first;         /* first block of the run */
	uint32_t progress;      /* some rank has the results of all blocks before this one */
	uint32_t pressure;      /* usage has exceeded the threshold since the last result */
	uint64_t round_trip_ns; /* smoothed time from a sum to its result; 0: unknown */
	uint64_t sum;           /* of `sent` */
	/*
	 * by rank: the last block of which a gradient came, plus 1; 0: none came. Does not wrap
	 * around
	 */
	uint64_t sent[FANIN_SERVER_RANKS_MAX];
	struct pa_atp_block blocks[];
};

/* An aggregator. The worker that has entered the slot: rw. */
struct pa_atp_slot {
	struct fanin_slot_tag tag;
	/*
	 * MERGING: the sum so far, EMPTY if all gradients were empty; SENT: the sum that was sent
	 */
	struct rte_mbuf *mbuf;
	uint64_t members; /* the ranks in the sum */
	union {
		fanin_kernel_fn add; /* MERGING */
		uint64_t sent_ns;    /* SENT: when the sum last went to the server */
	};
	uint64_t begun_ns;
	struct pa_atp_state *state; /* of the job; not EMPTY */
	uint8_t phase;              /* enum pa_atp_phase */
	bool ce;                    /* a gradient in the sum arrived with CE */
	bool is_repeated;           /* SENT: the sum was sent more than once */
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

/* pa_atp_state.c: returns the size of a job's state in bytes. */
size_t pa_atp_state_size(const struct fanin_job_params *job);

/*
 * pa_atp_state.c: resets all records of blocks for a new run. first: the run's first block, 0;
 * tests start elsewhere.
 */
void pa_atp_begin_run(const struct fanin_job_params *job, struct pa_atp_state *state,
		      uint32_t first);

/*
 * pa_atp_state.c: begins the run ctx->epoch if the packet at hand is its first one. Returns
 * FANIN_VERDICT_HELD if the state belongs to that run; FANIN_VERDICT_RETRY if another worker is in
 * the way; or FANIN_VERDICT_DROP, with *reason set, if the run is over.
 */
enum fanin_verdict pa_atp_enter_run(const struct fanin_handler_ctx *ctx, enum fanin_reason *reason);

/* pa_atp_state.c: true if the state belongs to the run ctx->epoch. */
bool pa_atp_is_run(const struct fanin_handler_ctx *ctx);

/*
 * pa_atp_state.c: true if the server has made this block's result. True stays true. False is
 * reliable only if the caller has entered the block's slot.
 */
bool pa_atp_is_finished(const struct fanin_job_params *job, const struct pa_atp_state *state,
			uint32_t block);

/*
 * pa_atp_state.c: returns the record of a block that is not finished. The caller has entered the
 * block's slot.
 */
struct pa_atp_block *pa_atp_open_block(const struct fanin_handler_ctx *ctx, uint32_t block);

/*
 * pa_atp_state.c: records that the server has made a block's result. The caller has entered the
 * block's slot.
 */
void pa_atp_finish_block(const struct fanin_handler_ctx *ctx, uint32_t block);

/*
 * pa_atp_state.c: a rank reports that it has the results of all blocks before `progress`. Gives up
 * the slots of blocks whose results did not pass here. The caller has entered no slot. Returns
 * false, and does nothing, if the rank can't have these results: all ranks are behind this switch,
 * so results pass it, except those of the first W blocks, which ranks may have from an earlier run.
 */
bool pa_atp_note_progress(struct fanin_handler_ctx *ctx, uint32_t progress);

/*
 * pa_atp_state.c: true if a rank can have sent this block, or can know its result from an earlier
 * run. The state belongs to the run.
 */
bool pa_atp_may_ask(const struct fanin_handler_ctx *ctx, uint32_t block);
bool pa_atp_may_know(const struct fanin_handler_ctx *ctx, uint32_t block);

/* pa_atp_state.c: records that a gradient of a rank has come. */
void pa_atp_note_gradient(const struct fanin_handler_ctx *ctx, unsigned int rank, uint32_t block);

/* pa_atp_state.c: records that gradients of these ranks found the block's slot in use. */
void pa_atp_note_overflow(const struct fanin_handler_ctx *ctx, struct pa_atp_block *entry,
			  uint64_t members);

/* pa_atp_state.c: takes a sample of the time from a sum, sent once, to its result. */
void pa_atp_note_round_trip(const struct fanin_handler_ctx *ctx, uint64_t ns);

/* pa_atp_state.c: records that the job of this state begins or ceases to use a slot. */
void pa_atp_use_slot(const struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot);
void pa_atp_unuse_slot(struct pa_atp_slot *slot);

/* pa_atp_state.c: true if usage exceeds the threshold. */
bool pa_atp_is_short(const struct fanin_handler_ctx *ctx);

/* pa_atp_state.c: true if usage has exceeded the threshold since the last call. */
bool pa_atp_take_pressure(const struct fanin_handler_ctx *ctx);

/* pa_atp_state.c: the handler's functions of these names. */
void pa_atp_state_release(const struct fanin_job_params *job, void *memory);
bool pa_atp_rank_progress(const struct fanin_job_params *job, const void *memory, uint32_t epoch,
			  struct fanin_rank_progress *progress);

/* A gradient of one of the run's blocks, which the job can reduce. */
struct pa_atp_gradient {
	const struct fanin_packet *packet;
	fanin_kernel_fn add;
	uint64_t members;  /* the ranks in it, usually one */
	unsigned int rank; /* the lowest of these ranks */
	uint32_t index;    /* of the block's slot */
};

/*
 * pa_atp_slot.c: handles a gradient that meets the slot of its index, which the caller has entered.
 * Acknowledges the gradient unless it is dropped. Returns the verdict on it.
 */
enum fanin_verdict pa_atp_take_gradient(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
					const struct pa_atp_gradient *gradient,
					enum fanin_reason *reason);

/* pa_atp_slot.c: gives up a slot and its data, if any. The caller has entered the slot. */
void pa_atp_give_up(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot);

/*
 * pa_atp_slot.c: sends the data of a block to the server, now and from now on. A partial sum goes
 * there; a complete sum is sent once more, unless it was sent within a round trip. The caller has
 * entered the block's slot.
 */
void pa_atp_flush_block(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block);

/* pa_atp_slot.c: handles a block's result. The caller has entered the slot. */
void pa_atp_finish_slot(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block);

/* pa_atp_slot.c: handles the expiry of a block's timer. The caller has entered the slot. */
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
 * pa_atp_frames.c: turns a gradient, or a sum of gradients, into a frame to the parent. Block,
 * shape, payload and the ECN bits stay.
 */
void pa_atp_make_upward(const struct fanin_handler_ctx *ctx, const struct pa_atp_upward *upward,
			struct rte_mbuf *mbuf);

/*
 * pa_atp_frames.c: passes a packet with elements on to the parent and changes only its headers.
 * Returns the verdict on it.
 */
enum fanin_verdict pa_atp_pass_up(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
				  enum fanin_type type, uint64_t members);

/*
 * pa_atp_frames.c: returns the GACK of a gradient to its sender. turn: true turns the gradient's
 * packet into the GACK, if the packet is not needed any more; false uses another packet and leaves
 * the gradient as it is.
 */
void pa_atp_send_gack(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet,
		      unsigned int rank, bool turn);

/*
 * pa_atp_frames.c: each passes a packet of the parent on to the children that it is for. Each
 * returns the verdict on it.
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
