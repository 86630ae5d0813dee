/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by canary.c (rules and initial state), canary_send.c (sending), canary_receive.c
 * (receiving), canary_leader.c (blocks that this rank leads), canary_roll.c (beginning and ending a
 * run), canary_timer.c (when to ask, and when to give up) and canary_ways.c (links that packets
 * take). Only these files and tests include this header.
 */
#ifndef FANIN_PROTOCOLS_CANARY_HOST_CANARY_INTERNAL_H
#define FANIN_PROTOCOLS_CANARY_HOST_CANARY_INTERNAL_H

#include "canary.h"
#include "handlers/kernels/kernels.h"
#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/sums.h"
#include "protocols/canary/canary.h"

#define CANARY_RANKS_MAX FANIN_SERVER_RANKS_MAX
/*
 * Number of switches per block whose ports a leader notes. Ranks behind further switches get the
 * result by REPEAT.
 */
#define CANARY_RESTORES 8
/*
 * Number of later results of a leader that show a result to be lost rather than late (RFC 9002,
 * section 6.1.1).
 */
#define CANARY_GAP 3
/*
 * Maximum of the gap, for networks where switches hold sums for different times. A window with too
 * many needless questions doubles the gap; several windows without halve it (RFC 8985, section
 * 6.2).
 */
#define CANARY_GAP_MAX 64
#define CANARY_GAP_WINDOWS 4u
/*
 * A window has too many needless questions if they exceed one in this many. Links that duplicate
 * packets make some questions look needless.
 */
#define CANARY_GAP_VAIN 4
/* Number of blocks that are remembered because a requested packet may still arrive by itself. */
#define CANARY_GAP_BLOCKS 128
/*
 * Number of latest questions whose answers are measured as round trips. Answers to older ones are
 * not.
 */
#define CANARY_QUESTIONS 64
#define CANARY_CALL_MIN_NS (5 * UINT64_C(1000000))
#define CANARY_CALL_MAX_NS (100 * UINT64_C(1000000))
/*
 * Data is held back while this many packets wait to leave this host. Otherwise a leader's results
 * would wait behind its own data, while all other ranks wait for them.
 */
#define CANARY_AHEAD 24u

/* Random numbers that identify this start of the rank. */
struct canary_seed {
	uint64_t nonce; /* random */
	uint64_t roll;  /* random, not 0; rank 0's */
	/*
	 * rank 0's: lower bound of a run's number, larger than those of the job's earlier runs (RFC
	 * 1982)
	 */
	uint32_t run;
};

/* The state of a lane's block: what this rank sent for it, and which later results have come. */
struct canary_lane {
	bool resent; /* its data was sent more than once, or its result was repeated */
	/* number of questions and data packets sent, so that each one takes another link */
	uint32_t n_sent;
	uint32_t n_asked;      /* number of questions sent */
	uint32_t n_later;      /* number of results of later blocks of the same leader */
	uint64_t overtaken_ns; /* when a later block had a result first; 0: never */
	uint64_t direct_ns; /* when its data was last sent because the leader lacked it; 0: never */
};

/* A block that was asked for because of a gap. */
struct canary_gap {
	uint32_t block;
	bool is_open; /* the requested packet may still arrive by itself */
};

/* The time at which a QUERY was sent. */
struct canary_question {
	uint32_t number; /* 0: no question */
	uint64_t sent_ns;
};

/* The ports of a switch at which data came in that met another block's descriptor. */
struct canary_restore {
	uint32_t ip_be;
	uint64_t ports;
};

enum canary_entry_phase {
	CANARY_ENTRY_FREE,
	CANARY_ENTRY_OPEN,
	CANARY_ENTRY_DONE, /* the payload is the result */
};

/* A block that this rank leads. */
struct canary_entry {
	uint32_t block;
	uint8_t phase; /* enum canary_entry_phase */
	bool own;      /* this rank has sent its own data, which still belongs to the request */
	bool unsent;   /* the result waits for room */
	uint8_t n_restores;
	struct fanin_sum sum; /* of the other ranks, and at the end also of this rank */
	uint64_t members;     /* the ranks in the sum */
	/* the ranks in the sum to which no port leads that a switch has noted */
	uint64_t direct;
	uint64_t askers;   /* ranks that asked while the block was open */
	uint64_t asked_ns; /* when ranks were last asked because a sum was dropped */
	uint8_t ways;      /* bitmap of the links by which data came that switches have noted */
	struct canary_restore restores[CANARY_RESTORES];
};

/* Another rank. */
struct canary_peer {
	uint32_t ips_be[2]; /* the host's addresses; the second is 0 if there is none */
	/* index of the address that the rank's usual packets came from last */
	unsigned int address;
	/*
	 * index of the address that its latest packet came from, including questions by its other
	 * link
	 */
	unsigned int reply;
	/* when the first question that it has not answered was sent; 0: none is open */
	uint64_t asked_ns;
	uint64_t nonce; /* rank 0: nonce of the rank's last CALL */
};

/* This host's links. */
struct canary_way {
	struct fanin_flow flow; /* to the first hop; each packet sets dst_ip_be */
	uint64_t heard_ns;      /* when the last packet came by this link */
};

/* A packet's payload, and the link and flow that it uses. */
struct canary_packet {
	const void *payload;
	uint32_t len;
	uint32_t flow; /* packets of one flow take one path through the network */
	/*
	 * 0: the usual link to the usual address; other attempts take links and addresses in turn
	 */
	uint32_t attempt;
	bool is_reply; /* the packet goes to where the question came from */
};

struct fanin_canary {
	/* first member, so that a pointer to it is a pointer to this struct */
	struct fanin_engine engine;
	struct canary_seed seed;
	struct canary_peer peers[CANARY_RANKS_MAX];
	struct canary_way ways[2];
	unsigned int n_ways;
	unsigned int way; /* the link that packets take, except repetitions */
	uint64_t all;     /* ranks */
	uint64_t others;  /* all ranks but this one */
	struct fanin_sums sums;
	struct fanin_canary_stats stats;

	/* The run. */
	bool begun;   /* the run's number is known */
	bool started; /* all ranks have begun: block 0 has its result */
	uint32_t run;
	uint64_t roll;    /* the roll's number; 0: not known yet */
	uint64_t called;  /* ranks known to have called */
	uint64_t call_ns; /* when the next CALL is due */
	uint64_t call_wait_ns;
	uint32_t n_calls;
	/* when the last CALL was sent; 0: its answer can't be told from that of another CALL */
	uint64_t called_ns;
	uint32_t unanswered; /* CALLs */
	bool roll_heard;

	/* Blocks, as a rank that contributes. */
	struct fanin_request start; /* of block 0 */
	struct canary_lane *lanes;  /* one for each of the engine's */
	uint32_t newest_done;       /* latest block with a result */
	uint32_t in_flight;
	bool was_full;      /* the send ring was full */
	bool is_held;       /* data waits until fewer packets are queued before it */
	uint32_t n_ahead;   /* how many packets may wait to leave this host */
	bool is_closing;    /* the last request has no elements, so the run ends with a goodbye */
	uint64_t timers_ns; /* upper bound of the timers of all switches on the way together */
	/* the same sum if the operator sets the timers; 0: switches learn them */
	uint64_t fixed_ns;
	uint32_t gap;       /* number of later results of a leader that show one to be lost */
	uint32_t gap_block; /* the oldest block when the window of the following counters began */
	uint32_t gap_asked; /* blocks that were asked for because of a gap */
	uint32_t gap_vain;  /* of them, blocks whose packets arrived by themselves */
	struct canary_gap gap_blocks[CANARY_GAP_BLOCKS];
	uint32_t gap_next; /* next index into gap_blocks, modulo their number */
	/* number of windows that have ended without too many needless questions */
	uint32_t gap_windows;
	uint32_t n_queries;
	struct canary_question questions[CANARY_QUESTIONS]; /* by number */

	/* What is known of other ranks: */
	uint32_t oldest;     /* the engine's oldest block when it was last checked */
	uint64_t oldest_ns;  /* when it became the oldest block */
	uint32_t told_block; /* the block to which `told` belongs */
	uint64_t told;       /* ranks that the block's leader has reported missing */

	/* Blocks that this rank leads: */
	struct canary_entry *entries;   /* 2W */
	struct fanin_sum_frames frames; /* one for each entry, and one more for incoming data */
	uint32_t n_unsent;              /* number of entries whose result waits for room */
	uint32_t unsent;                /* index of one of those entries, or of one before it */
};

static_assert(offsetof(struct fanin_canary, engine) == 0, "a pointer to the engine is one to this");

extern const struct fanin_engine_rules fanin_canary_rules;

static inline struct fanin_canary *
canary_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_canary_rules);
}

static inline struct canary_lane *
canary_lane(const struct fanin_canary *canary, uint32_t block)
{
	return &canary->lanes[block & (canary->engine.config.window - 1u)];
}

/*
 * Blocks are sent, or entered by their leader, in order. Returns the first block that is not sent
 * or entered yet.
 */
static inline uint32_t
canary_next(const struct fanin_canary *canary)
{
	return canary->engine.newest + 1;
}

/* True if the block waits: for its result, or, at its leader, for data of others. */
static inline bool
canary_waits(const struct fanin_canary *canary, uint32_t block)
{
	const struct fanin_lane *lane = fanin_engine_lane(&canary->engine, block);

	return lane->block == block && lane->state == FANIN_LANE_SENT;
}

static inline uint16_t
canary_leader_of(const struct fanin_canary *canary, uint32_t block)
{
	return fanin_canary_leader(block, canary->engine.config.size);
}

static inline bool
canary_leads(const struct fanin_canary *canary, uint32_t block)
{
	return canary_leader_of(canary, block) == canary->engine.config.rank;
}

/* Notes that a rank has sent something, and so is alive. */
static inline void
canary_hear(struct fanin_canary *canary, unsigned int rank)
{
	canary->peers[rank].asked_ns = 0;
}

/* Notes that a question was sent to a rank. */
static inline void
canary_note_asked(struct fanin_canary *canary, unsigned int rank)
{
	if (canary->peers[rank].asked_ns == 0)
		canary->peers[rank].asked_ns = canary->engine.loop.now_ns;
}

/* canary_ways.c: makes the headers of a packet of the run. */
void fanin_canary_begin(const struct fanin_canary *canary, enum fanin_type type, uint32_t block,
			struct fanin_headers *headers);

/*
 * canary_ways.c: sends a packet made by fanin_canary_begin, to a rank, or by one of this host's
 * links to an address. Returns false if there is no room now.
 */
bool fanin_canary_send_to(struct fanin_canary *canary, struct fanin_headers *headers,
			  unsigned int rank, const struct canary_packet *packet);
bool fanin_canary_send_by(struct fanin_canary *canary, struct fanin_headers *headers,
			  unsigned int way, uint32_t dst_ip_be, const struct canary_packet *packet);

/* canary_ways.c: returns the link that a packet came by. */
unsigned int fanin_canary_way_of(const struct fanin_canary *canary,
				 const struct fanin_headers *headers);

/*
 * canary_ways.c: hear_way notes the link of a packet of the job, and changes to that link if the
 * usual one is silent. hear_from notes the address of a packet that a rank has sent and no switch
 * has made.
 */
void fanin_canary_hear_way(struct fanin_canary *canary, const struct fanin_headers *headers);
void fanin_canary_hear_from(struct fanin_canary *canary, unsigned int rank,
			    const struct fanin_headers *headers);

/*
 * canary_send.c: sends a block's data to the block's leader. Returns false if there is no room now.
 */
bool fanin_canary_send_data(struct fanin_canary *canary, uint32_t block, bool direct);

/* canary_send.c: the engine's rules `send` and `idle_max_ns`. */
void fanin_canary_send(struct fanin_engine *engine);
uint64_t fanin_canary_idle_max_ns(struct fanin_engine *engine);

/* canary_receive.c: the engine's rules `take_frame`, `learn`, `finish` and `answer`. */
void fanin_canary_receive(struct fanin_engine *engine, const struct fanin_frame *frame);
void fanin_canary_learn(struct fanin_engine *engine, const struct fanin_lane *lane);
void fanin_canary_finish(struct fanin_engine *engine, uint32_t block);
void fanin_canary_answer(struct fanin_engine *engine, const struct fanin_frame *frame);

/* canary_receive.c: counts a duplicate of the block's data or result. */
void fanin_canary_note_duplicate(struct fanin_canary *canary, uint32_t block);

/* canary_leader.c: enters this rank's data of a block that it leads. */
void fanin_canary_lead(struct fanin_canary *canary, uint32_t block);

/* canary_leader.c: sends results that waited for room. */
void fanin_canary_send_unsent(struct fanin_canary *canary);

/* canary_leader.c: handles a REDUCE or a QUERY of a block that this rank leads. */
void fanin_canary_receive_data(struct fanin_canary *canary, const struct fanin_frame *frame);
void fanin_canary_receive_query(struct fanin_canary *canary, const struct fanin_headers *headers);

/* canary_leader.c: returns the ranks that a block of this leader waits for. */
uint64_t fanin_canary_lacks(const struct fanin_canary *canary, uint32_t block);

/* canary_leader.c: asks ranks for their data of a block. attempt: see struct canary_packet. */
void fanin_canary_ask(struct fanin_canary *canary, uint32_t block, uint64_t ranks,
		      uint32_t attempt);

/* canary_leader.c: tells a rank, or all others, why the run has ended. */
void fanin_canary_tell_end(struct fanin_canary *canary, unsigned int rank);
void fanin_canary_tell_all(struct fanin_canary *canary);

/* canary_roll.c */
void fanin_canary_call(struct fanin_canary *canary);
void fanin_canary_call_soon(struct fanin_canary *canary);
void fanin_canary_receive_call(struct fanin_canary *canary, const struct fanin_frame *frame);
void fanin_canary_receive_roll(struct fanin_canary *canary, const struct fanin_frame *frame);
void fanin_canary_receive_bye(struct fanin_canary *canary, const struct fanin_hdr *hdr);
/* begins again if the seed has changed */
void fanin_canary_roll_begin(struct fanin_canary *canary);

/* canary_roll.c: see struct fanin_protocol. */
bool fanin_canary_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem);

/*
 * canary_roll.c: the engine's rule `say_bye`. A run whose last request has elements ends without a
 * goodbye.
 */
bool fanin_canary_say_bye(struct fanin_engine *engine);

/* canary_timer.c: returns the longest time that a block usually takes. */
uint64_t fanin_canary_usual_ns(const struct fanin_canary *canary);

/* canary_timer.c: asks about a block now, and sets when to ask again. */
void fanin_canary_block_ask(struct fanin_canary *canary, uint32_t block);

/* canary_timer.c: returns the ranks that have not answered for this long. */
uint64_t fanin_canary_silent_for(const struct fanin_canary *canary, uint64_t ns);

/* canary_timer.c: the engine's rules `limits` and `scan`. */
void fanin_canary_limits(struct fanin_engine *engine);
void fanin_canary_scan(struct fanin_engine *engine);

#endif
