/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by push_engine.c (what is sent and received), push_home.c (blocks that this rank
 * is home to), push_send.c (packets), push_timer.c (when to ask) and push_end.c (how a run ends).
 * Of others only tests include this. Blocks are numbered as the engine numbers them.
 */
#ifndef FANIN_PROTOCOLS_PUSH_HOST_PUSH_INTERNAL_H
#define FANIN_PROTOCOLS_PUSH_HOST_PUSH_INTERNAL_H

#include "handlers/kernels/kernels.h"
#include "hostlib/src/cc/waves.h"
#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/sums.h"
#include "push.h"
#include "protocols/push/push.h"

#define PUSH_RANKS_MAX FANIN_SERVER_RANKS_MAX

/* A lane's block, as it was last sent. */
struct push_lane {
	bool committed; /* the home host has this rank's data, or may: its result alone is taken */
	uint32_t n_asked;
	uint64_t overtaken_ns; /* when a later block was done first; valid before push->overtaking
				*/
	uint64_t ask_ns;       /* when the next question is due at the earliest */
	uint64_t ask_wait_ns;  /* interval to the one after it; 0: none was sent */
	uint64_t asked_ns; /* of the last QUERY, if it is the only one; 0: there is none, or several
			    */
};

/* A block that this rank is home to. */
struct push_entry {
	uint32_t block;
	bool is_open;
	bool has_asked;   /* ranks may be committed: they take the result of this rank only */
	bool is_wanted;   /* a rank lacks the result */
	bool is_unsent;   /* there was no room for the result */
	bool is_answered; /* the switch has: the next fields are known */
	uint64_t unseen;  /* ranks that the switches have not seen */
	uint64_t ended;   /* of these */
	uint64_t silent;
	struct fanin_sum sum; /* with this one's data last, but if it came in another's sum */
	uint64_t members;     /* the sum's ranks */
	uint64_t here;        /* ranks that have not sent the block, as they said when last asked */
	uint64_t overlap_ns;  /* when ranks were last asked because of a sum that was dropped */
};

struct fanin_push {
	struct fanin_engine engine; /* first, so that a pointer to it is one to this */
	struct fanin_push_stats stats;
	struct fanin_waves waves;
	struct push_lane *lanes; /* one for each of the engine's */
	/*
	 * Blocks that may be in flight, within the waves; and the round of so many blocks that this
	 * is decided after.
	 */
	uint32_t allowed;
	uint32_t round_first; /* its first block */
	uint32_t n_asked;     /* blocks of it whose data a home host lacked */
	bool is_slow;        /* it was too many once: grows by an eighth in a round, else doubles */
	uint32_t next;       /* first block that has not been sent or queued */
	uint32_t oldest;     /* the engine's when it was last looked at */
	uint64_t oldest_ns;  /* since when it has been that */
	uint32_t overtaking; /* last block of the run that is done: those before that are not are
				overtaken */
	uint64_t all;        /* ranks */
	uint64_t self;       /* this one */
	struct fanin_sums sums;
	uint64_t unanswered; /* ranks that had not answered for some round trips when timers were
				last looked at */
	uint64_t waited_for; /* of these, those whose answer about an earlier block is waited for */
	uint64_t unanswered_ns[PUSH_RANKS_MAX]; /* of the first question that a rank has not
						   answered; 0: there is none */

	/* Blocks, as their home host. */
	struct push_entry *entries;     /* 2W */
	struct fanin_sum_frames frames; /* of each entry; and one more, for what comes in */
	uint32_t n_unsent;
};

static_assert(offsetof(struct fanin_push, engine) == 0, "a pointer to the engine is one to this");

extern const struct fanin_engine_rules fanin_push_rules;

static inline struct fanin_push *
push_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_push_rules);
}

static inline struct push_lane *
push_lane(const struct fanin_push *push, uint32_t block)
{
	return &push->lanes[block & (push->engine.config.window - 1u)];
}

static inline struct push_entry *
push_entry(const struct fanin_push *push, uint32_t block)
{
	return &push->entries[block & (2u * push->engine.config.window - 1)];
}

static inline uint16_t
push_home_of(const struct fanin_push *push, uint32_t block)
{
	return fanin_push_home(block - push->engine.base, push->engine.config.size);
}

static inline bool
push_is_home(const struct fanin_push *push, uint32_t block)
{
	return push_home_of(push, block) == push->engine.config.rank;
}

/* True if this rank has sent the block to the switch, and lacks the result. */
static inline bool
push_is_sent(const struct fanin_push *push, uint32_t block)
{
	const struct fanin_lane *lane = fanin_engine_lane(&push->engine, block);

	return lane->block == block && lane->state == FANIN_LANE_SENT;
}

static inline struct fanin_headers *
push_frame(const struct fanin_push *push, const struct push_entry *entry)
{
	return fanin_sum_frame(&push->frames, (size_t)(entry - push->entries));
}

static inline struct fanin_headers *
push_scratch(const struct fanin_push *push)
{
	return push_frame(push, push->entries + 2u * push->engine.config.window);
}

/* The rank has said something: it is there. */
static inline void
push_hear(struct fanin_push *push, unsigned int rank)
{
	push->unanswered_ns[rank] = 0;
}

/* Elements that a packet of a host has. */
struct push_elements {
	struct fanin_hdr shape; /* data type, operator, count, root and flags */
	const void *payload;
	uint32_t len;
};

/* push_send.c: sends to a rank. elements: NULL: none. Returns false if there is no room now. */
bool fanin_push_send(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
		     uint32_t block, const struct push_elements *elements);

/* push_send.c: the same to all others. */
bool fanin_push_send_all(struct fanin_push *push, enum fanin_push_kind kind, uint32_t block,
			 const struct push_elements *elements);

/*
 * push_send.c: the result of a block, which this rank has, to a rank. Returns false if it is not
 * kept any more or there is no room.
 */
bool fanin_push_repeat(struct fanin_push *push, unsigned int rank, uint32_t block);

/* push_send.c: asks a rank for its data, or for a block's result. It has to answer. */
bool fanin_push_question(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
			 uint32_t block);

/*
 * push_home.c: data or a sum of these ranks. payload: NULL: it is in the frame, behind the headers.
 */
void fanin_push_home_data(struct fanin_push *push, uint32_t block, uint64_t members,
			  const struct fanin_hdr *shape, const struct fanin_frame *frame);

/* push_home.c: a rank asks. */
void fanin_push_home_query(struct fanin_push *push, unsigned int rank, uint32_t block);

/* push_home.c: a rank that was asked has not sent the block. */
void fanin_push_home_here(struct fanin_push *push, unsigned int rank, uint32_t block);

/* push_home.c: this rank has the result of a block that it is home to. */
void fanin_push_home_finish(struct fanin_push *push, uint32_t block);

/* push_home.c: sends results for which there was no room. */
void fanin_push_home_unsent(struct fanin_push *push);

/* push_home.c: a block that is overdue: asks the switch, and then ranks. */
void fanin_push_home_ask(struct fanin_push *push, uint32_t block, uint32_t n_asked);

/* push_home.c: what a block waits for, as far as this rank knows, which has sent it. */
void fanin_push_home_lacks(const struct fanin_push *push, uint32_t block,
			   struct fanin_push_here *here);

/*
 * push_home.c: the entry of a block; NULL: nothing of it has come, or it is none that may be sent
 * now.
 */
struct push_entry *fanin_push_home_open(struct fanin_push *push, uint32_t block, uint64_t shape);

/* push_timer.c */
void fanin_push_scan(struct fanin_engine *engine);
void fanin_push_filter_missing(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);
void fanin_push_on_answer(struct fanin_engine *engine, uint32_t block,
			  const struct fanin_answer_ranks *ranks);
void fanin_push_receive_here(struct fanin_push *push, uint32_t block,
			     const struct fanin_push_here *here);
void fanin_push_note_answered(struct fanin_push *push, uint32_t block);
uint64_t fanin_push_unanswered(const struct fanin_push *push, uint64_t ns);

/* push_flight.c: as a run begins. */
void fanin_push_flight_begin(struct fanin_push *push);

/* push_flight.c: a home host lacks data that this rank has sent. */
void fanin_push_flight_asked(struct fanin_push *push);

/* push_flight.c: the engine's oldest block is another one. */
void fanin_push_flight_advance(struct fanin_push *push);

/*
 * push_end.c: the ranks posted different collectives: who is wrong are the fewer ones, or as far as
 * anybody knows all of them.
 */
void fanin_push_mismatch(struct fanin_push *push, uint32_t block, uint64_t some, uint64_t others);

/* push_end.c: another rank says that the run has ended. */
void fanin_push_receive_end(struct fanin_push *push, const struct fanin_push_end *end);

/*
 * push_end.c: the engine's rules `say_bye`, `answer` and `end`. If the last request has elements,
 * the run does not end with a goodbye.
 */
bool fanin_push_say_bye(struct fanin_engine *engine);
void fanin_push_answer(struct fanin_engine *engine, const struct fanin_frame *frame);
void fanin_push_end_begin(struct fanin_engine *engine);

#endif
