/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by push_engine.c (sending and receiving), push_home.c (blocks that this rank is
 * home to), push_send.c (packets), push_timer.c (when to ask), push_flight.c (how many blocks may
 * be in flight) and push_end.c (how a run ends). Only these files and tests include it. Block
 * numbers are those of the engine.
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

/* A lane's state since its block was last sent. */
struct push_lane {
	bool committed; /* the home host has or may have this rank's data: only its result is
			   accepted */
	uint32_t n_asked;
	uint64_t overtaken_ns; /* when a later block was done first; valid before push->overtaking
				*/
	uint64_t ask_ns;       /* earliest time of the next question */
	uint64_t ask_wait_ns;  /* from then to the question after it; 0: none sent yet */
	uint64_t asked_ns;     /* when the only question was sent; 0: none or several were
				*/
};

/* A block that this rank is home to. */
struct push_entry {
	uint32_t block;
	bool is_open;
	bool has_asked;   /* ranks may be committed: they accept this rank's result only */
	bool is_wanted;   /* a rank has asked for the result */
	bool is_unsent;   /* the transport had no room for the result */
	bool is_answered; /* the switch has answered: unseen, ended and silent are valid */
	uint64_t unseen;  /* ranks whose data the switches have not seen */
	uint64_t ended;   /* ranks of `unseen` whose processes have ended */
	uint64_t silent;
	struct fanin_sum sum; /* this rank's data is added last, unless another sum contained it */
	uint64_t members;     /* ranks in the sum */
	uint64_t here; /* ranks that said HERE, since they were last asked: they have not sent the
			  block */
	uint64_t overlap_ns; /* when this rank last asked because of an overlapping sum */
};

struct fanin_push {
	struct fanin_engine engine; /* must be first: push_of() casts a pointer to it */
	struct fanin_push_stats stats;
	struct fanin_waves waves;
	struct push_lane *lanes; /* one for each lane of the engine */
	/*
	 * Limit of the blocks in flight, within the waves; and the round, as many blocks long,
	 * after which the limit is adjusted.
	 */
	uint32_t allowed;
	uint32_t round_first; /* first block of the round */
	uint32_t n_asked;     /* blocks of the round that home hosts have asked for */
	bool is_slow;         /* a round had too many: grows by an eighth, else doubles */
	uint32_t next;        /* first block that has not been sent or queued */
	uint32_t oldest;      /* the engine's oldest block at the last look */
	uint64_t oldest_ns;   /* when that block became the oldest */
	uint32_t overtaking;  /* last block of the run that is done: those before that are not are
				 overtaken */
	uint64_t all;         /* the set of all ranks */
	uint64_t self;        /* the set of this rank alone */
	struct fanin_sums sums;
	uint64_t unanswered; /* ranks that had not answered for some round trips when timers were
				last looked at */
	uint64_t waited_for; /* of these, those whose answer about an earlier block is waited for */
	uint64_t unanswered_ns[PUSH_RANKS_MAX]; /* of the first question that a rank has not
						   answered; 0: there is none */

	/* State of this rank as a home host. */
	struct push_entry *entries;     /* 2W of them */
	struct fanin_sum_frames frames; /* one for each entry, and one as scratch for received
					   elements */
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

/* True if this rank has sent the block to the switch and lacks the result. */
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

/* Notes that a rank has sent a packet: it is alive. */
static inline void
push_hear(struct fanin_push *push, unsigned int rank)
{
	push->unanswered_ns[rank] = 0;
}

/* The elements of a packet between hosts. */
struct push_elements {
	struct fanin_hdr shape; /* data type, operator, count, root and flags */
	const void *payload;
	uint32_t len;
};

/*
 * push_send.c: sends a packet to a rank. elements: NULL: none. Returns false if there is no room
 * now.
 */
bool fanin_push_send(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
		     uint32_t block, const struct push_elements *elements);

/* push_send.c: as fanin_push_send, to all other ranks. */
bool fanin_push_send_all(struct fanin_push *push, enum fanin_push_kind kind, uint32_t block,
			 const struct push_elements *elements);

/*
 * push_send.c: sends the result of a block to a rank. Returns false if this rank no longer keeps
 * the result, or if there is no room.
 */
bool fanin_push_repeat(struct fanin_push *push, unsigned int rank, uint32_t block);

/*
 * push_send.c: asks a rank for its data or for a block's result, and notes that an answer is
 * expected.
 */
bool fanin_push_question(struct fanin_push *push, unsigned int rank, enum fanin_push_kind kind,
			 uint32_t block);

/*
 * push_home.c: takes the data or the sum of these ranks, whose payload follows the frame's headers.
 */
void fanin_push_home_data(struct fanin_push *push, uint32_t block, uint64_t members,
			  const struct fanin_hdr *shape, const struct fanin_frame *frame);

/* push_home.c: a rank asks for the result of a block. */
void fanin_push_home_query(struct fanin_push *push, unsigned int rank, uint32_t block);

/* push_home.c: a rank answers that it has not sent the block. */
void fanin_push_home_here(struct fanin_push *push, unsigned int rank, uint32_t block);

/* push_home.c: this rank has the result of a block that it is home to. */
void fanin_push_home_finish(struct fanin_push *push, uint32_t block);

/* push_home.c: sends the results for which there was no room. */
void fanin_push_home_unsent(struct fanin_push *push);

/*
 * push_home.c: the block is overdue: queries the switch, and later asks ranks. n_asked: questions
 * so far.
 */
void fanin_push_home_ask(struct fanin_push *push, uint32_t block, uint32_t n_asked);

/*
 * push_home.c: finds the ranks that a block waits for, as far as its home host knows. This rank has
 * sent the block.
 */
void fanin_push_home_lacks(const struct fanin_push *push, uint32_t block,
			   struct fanin_push_here *here);

/*
 * push_home.c: finds or opens the entry of a block. Returns NULL if no rank can send the block now.
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

/* push_flight.c: a run begins. */
void fanin_push_flight_begin(struct fanin_push *push);

/* push_flight.c: a home host asks for data that this rank has sent. */
void fanin_push_flight_asked(struct fanin_push *push);

/* push_flight.c: the engine's oldest block has changed. */
void fanin_push_flight_advance(struct fanin_push *push);

/*
 * push_end.c: the ranks posted different collectives. Blames the smaller group, or both on a tie.
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
