/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state shared by canary.c (rules, and what they begin with), canary_send.c (what is sent),
 * canary_receive.c (what comes in), canary_leader.c (blocks that this rank leads), canary_roll.c
 * (beginning and ending a run), canary_timer.c (when to ask, and giving up) and canary_ways.c
 * (links that packets take). Of others only tests include this.
 */
#ifndef FANIN_PROTOCOLS_CANARY_HOST_CANARY_INTERNAL_H
#define FANIN_PROTOCOLS_CANARY_HOST_CANARY_INTERNAL_H

#include "canary.h"
#include "handlers/kernels/kernels.h"
#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/sums.h"
#include "protocols/canary/canary.h"

#define CANARY_RANKS_MAX FANIN_SERVER_RANKS_MAX
/* Switches of a block whose ports a leader notes; of more the ranks get the result by REPEAT. */
#define CANARY_RESTORES 8
/* Later results of a leader that show one to be lost rather than late (RFC 9002, section 6.1.1). */
#define CANARY_GAP 3
/*
 * More where switches hold sums for different times: a window of questions in vain doubles the
 * number, some without halve it (RFC 8985, section 6.2).
 */
#define CANARY_GAP_MOST 64
#define CANARY_GAP_WINDOWS 4u
/*
 * A window has too many questions in vain if they are more than one of so many. Links that double
 * packets make some look so.
 */
#define CANARY_GAP_VAIN 4
/* Blocks that are remembered because what was asked for may still come all the same. */
#define CANARY_GAP_BLOCKS 128
/* The last ones, whose answers are round trips: those that come later teach nothing. */
#define CANARY_QUESTIONS 64
#define CANARY_CALL_LEAST_NS (5 * UINT64_C(1000000))
#define CANARY_CALL_MOST_NS (100 * UINT64_C(1000000))
/*
 * Data is held back while so many packets wait to leave this host. Else a leader's results wait
 * behind its own data, while all other ranks wait for them.
 */
#define CANARY_AHEAD 24u

/* Numbers that tell this start of the rank from all others. */
struct canary_seed {
	uint64_t nonce; /* random */
	uint64_t roll;  /* random, not 0; rank 0's */
	uint32_t run; /* the least number of a run; rank 0's: larger than those of the job's earlier
			 runs (RFC 1982) */
};

/* A lane's block: what was sent of it, and what has come of later ones. */
struct canary_lane {
	bool resent;           /* its data was sent more than once, or its result was repeated */
	uint32_t n_sent;       /* questions and data, so that each takes another way */
	uint32_t n_asked;      /* questions */
	uint32_t n_later;      /* results of later blocks of the same leader */
	uint64_t overtaken_ns; /* when a later block had a result first; 0: none has */
	uint64_t direct_ns; /* when its data was last sent because the leader lacks it; 0: never */
};

/* A block that was asked for because of a gap. */
struct canary_gap {
	uint32_t block;
	bool is_open; /* what was asked for may still come all the same */
};

/* When a QUERY was sent. */
struct canary_question {
	uint32_t number; /* 0: there was none */
	uint64_t sent_ns;
};

/* Ports of a switch at which data came in that met another block's descriptor. */
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
	bool own;      /* this rank has sent its own data, which is still the request's */
	bool unsent;   /* there was no room for its result */
	uint8_t n_restores;
	struct fanin_sum sum; /* of the other ranks, and at the end of this one */
	uint64_t members;     /* the sum's ranks */
	uint64_t direct;      /* those of them to which no port leads that a switch has noted */
	uint64_t askers;      /* ranks that asked while it was open */
	uint64_t asked_ns;    /* when ranks were last asked because of a sum that was dropped */
	uint8_t ways;         /* bitmap of those by which data came that switches have noted */
	struct canary_restore restores[CANARY_RESTORES];
};

/* Another rank. */
struct canary_peer {
	uint32_t ips_be[2];   /* the second one 0: it has none */
	unsigned int address; /* which of them its usual packets came from last */
	unsigned int reply;   /* the same of all, such as questions by its other link */
	uint64_t asked_ns;    /* of the first question that it has not answered; 0: there is none */
	uint64_t nonce;       /* rank 0: of its last CALL */
};

/* This host's links. */
struct canary_way {
	struct fanin_flow flow; /* to the first hop; dst_ip_be is each packet's */
	uint64_t heard_ns;      /* when a packet came by it last */
};

/* A packet's payload, and the way that it takes. */
struct canary_packet {
	const void *payload;
	uint32_t len;
	uint32_t flow;    /* packets of one flow take one way through the network */
	uint32_t attempt; /* 0: by the usual link to the usual address; others in turns */
	bool is_reply;    /* to where the question came from */
};

struct fanin_canary {
	struct fanin_engine engine; /* first, so that a pointer to it is one to this */
	struct canary_seed seed;
	struct canary_peer peers[CANARY_RANKS_MAX];
	struct canary_way ways[2];
	unsigned int n_ways;
	unsigned int way; /* that packets take, but for repeats */
	uint64_t all;     /* ranks */
	uint64_t others;  /* ranks but this one */
	struct fanin_sums sums;
	struct fanin_canary_stats stats;

	/* The run. */
	bool begun;   /* its number is known */
	bool started; /* all ranks have begun: block 0 has its result */
	uint32_t run;
	uint64_t roll;    /* the roll's number; 0: not known yet */
	uint64_t called;  /* ranks that have called, as far as known */
	uint64_t call_ns; /* when the next CALL is due */
	uint64_t call_wait_ns;
	uint32_t n_calls;
	uint64_t called_ns;  /* when the last CALL was sent; 0: another answer may be taken for its
				own */
	uint32_t unanswered; /* CALLs */
	bool roll_heard;

	/* Blocks, as a rank that contributes. */
	struct fanin_request start; /* of block 0 */
	struct canary_lane *lanes;  /* one for each of the engine's */
	uint32_t newest_done;       /* latest block with a result */
	uint32_t in_flight;
	bool was_full;      /* the send ring */
	bool is_held;       /* data waits until fewer packets do before it */
	uint32_t n_ahead;   /* packets that may wait to leave this host */
	bool is_closing;    /* the last request has no elements */
	uint64_t timers_ns; /* of all switches on a way together, at most */
	uint64_t fixed_ns;  /* the same if they wait for what the operator wants; 0: for what they
			       have learned */
	uint32_t gap;       /* later results of a leader that show one to be lost */
	uint32_t gap_block; /* the oldest one when the window began of: */
	uint32_t gap_asked; /* blocks that were asked for because of a gap */
	uint32_t gap_vain;  /* such blocks whose packets came all the same */
	struct canary_gap gap_blocks[CANARY_GAP_BLOCKS];
	uint32_t gap_next;    /* of gap_blocks, modulo their number */
	uint32_t gap_windows; /* that have ended without too many of these */
	uint32_t n_queries;
	struct canary_question questions[CANARY_QUESTIONS]; /* by number */

	/* Other ranks, as far as known. */
	uint32_t oldest;     /* the engine's oldest block when it was last looked at */
	uint64_t oldest_ns;  /* since when it has been that */
	uint32_t told_block; /* the block of: */
	uint64_t told;       /* ranks that are missing there, as its leader said */

	/* Blocks, as their leader. */
	struct canary_entry *entries;   /* 2W */
	struct fanin_sum_frames frames; /* of each entry; and one more, for what comes in */
	uint32_t n_unsent;              /* entries whose result waits for room */
	uint32_t unsent;                /* index of one of them, or before it */
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
 * Blocks are sent, or taken as their leader, in their order: returns the first one that is not yet.
 */
static inline uint32_t
canary_next(const struct fanin_canary *canary)
{
	return canary->engine.newest + 1;
}

/* True if the block waits for the result, of the leader for others' data. */
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

/* The rank has said something: it is there. */
static inline void
canary_hear(struct fanin_canary *canary, unsigned int rank)
{
	canary->peers[rank].asked_ns = 0;
}

/* A question has been sent to the rank. */
static inline void
canary_note_asked(struct fanin_canary *canary, unsigned int rank)
{
	if (canary->peers[rank].asked_ns == 0)
		canary->peers[rank].asked_ns = canary->engine.loop.now_ns;
}

/* canary_ways.c: begins a packet of the run. */
void fanin_canary_begin(const struct fanin_canary *canary, enum fanin_type type, uint32_t block,
			struct fanin_headers *headers);

/*
 * canary_ways.c: sends a packet that was begun, to a rank or by one of this host's links to an
 * address. Returns false if there is no room now.
 */
bool fanin_canary_send_to(struct fanin_canary *canary, struct fanin_headers *headers,
			  unsigned int rank, const struct canary_packet *packet);
bool fanin_canary_send_by(struct fanin_canary *canary, struct fanin_headers *headers,
			  unsigned int way, uint32_t dst_ip_be, const struct canary_packet *packet);

/* canary_ways.c: the link that a packet came by. */
unsigned int fanin_canary_way_of(const struct fanin_canary *canary,
				 const struct fanin_headers *headers);

/* canary_ways.c: a packet of the job has come; one that a rank has sent and no switch has made. */
void fanin_canary_hear_way(struct fanin_canary *canary, const struct fanin_headers *headers);
void fanin_canary_hear_from(struct fanin_canary *canary, unsigned int rank,
			    const struct fanin_headers *headers);

/* canary_send.c: sends a block's data to its leader. Returns false if there is no room now. */
bool fanin_canary_send_data(struct fanin_canary *canary, uint32_t block, bool direct);

/* canary_send.c: the engine's rules `send` and `idle_most_ns`. */
void fanin_canary_send(struct fanin_engine *engine);
uint64_t fanin_canary_idle_most_ns(struct fanin_engine *engine);

/* canary_receive.c: the engine's rules `take_frame`, `learn`, `finish` and `answer`. */
void fanin_canary_receive(struct fanin_engine *engine, const struct fanin_frame *frame);
void fanin_canary_learn(struct fanin_engine *engine, const struct fanin_lane *lane);
void fanin_canary_finish(struct fanin_engine *engine, uint32_t block);
void fanin_canary_answer(struct fanin_engine *engine, const struct fanin_frame *frame);

/* canary_receive.c: something of the block has come that was there already. */
void fanin_canary_note_duplicate(struct fanin_canary *canary, uint32_t block);

/* canary_leader.c: this rank's data belongs to a block that it leads from now on. */
void fanin_canary_lead(struct fanin_canary *canary, uint32_t block);

/* canary_leader.c: sends results for which there was no room. */
void fanin_canary_send_unsent(struct fanin_canary *canary);

/* canary_leader.c: a REDUCE or a QUERY of a block that this rank leads. */
void fanin_canary_receive_data(struct fanin_canary *canary, const struct fanin_frame *frame);
void fanin_canary_receive_query(struct fanin_canary *canary, const struct fanin_headers *headers);

/* canary_leader.c: the ranks that a block which this rank leads waits for. */
uint64_t fanin_canary_lacks(const struct fanin_canary *canary, uint32_t block);

/*
 * canary_leader.c: asks these ranks for their data of a block. attempt: see struct canary_packet.
 */
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
void fanin_canary_roll_begin(struct fanin_canary *canary); /* again, if the seed is another one */

/* canary_roll.c: as struct fanin_protocol has it. */
bool fanin_canary_ready(struct fanin_endpoint *endpoint, struct fanin_error *problem);

/*
 * canary_roll.c: the engine's rule `say_bye`. If the last request has elements, the run does not
 * end with a goodbye.
 */
bool fanin_canary_say_bye(struct fanin_engine *engine);

/* canary_timer.c: how long a block usually takes at most. */
uint64_t fanin_canary_usual_ns(const struct fanin_canary *canary);

/* canary_timer.c: asks about a block now, and sets when to ask again. */
void fanin_canary_block_ask(struct fanin_canary *canary, uint32_t block);

/* canary_timer.c: ranks that have not answered for so long. */
uint64_t fanin_canary_silent_for(const struct fanin_canary *canary, uint64_t ns);

/* canary_timer.c: the engine's rules `limits` and `scan`. */
void fanin_canary_limits(struct fanin_engine *engine);
void fanin_canary_scan(struct fanin_engine *engine);

#endif
