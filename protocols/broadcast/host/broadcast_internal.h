/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of reliable multicast, shared by broadcast_op.c (operations and their control blocks),
 * broadcast_send.c (what may be sent), broadcast_receive.c (what came in) and broadcast_fetch.c
 * (what is missing, and who is gone).
 */
#ifndef FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_INTERNAL_H
#define FANIN_PROTOCOLS_BROADCAST_HOST_BROADCAST_INTERNAL_H

#include "hostlib/src/engine/engine_internal.h"
#include "hostlib/src/engine/gaps.h"
#include "hostlib/src/engine/live.h"
#include "broadcast.h"

/* What a packet is, in the header's `number`. */
enum fanin_broadcast_kind {
	FANIN_BROADCAST_DATA = 1,
	FANIN_BROADCAST_FETCH = 2,
	FANIN_BROADCAST_TELL = 3,
	FANIN_BROADCAST_ACTIVATE = 4,
	/*
	 * Of pull reductions, as FETCH and DATA: an owner asks a rank for its own data of packets,
	 * and gets it.
	 */
	FANIN_BROADCAST_ASK = 5,
	FANIN_BROADCAST_GIVE = 6,
};

/* Of a TELL: none of the packets that were asked for was sent. No operation has so many. */
#define FANIN_BROADCAST_NO_PACKET UINT32_MAX

/* TELL's payload. */
struct fanin_broadcast_tell {
	uint32_t has; /* of the packets that were asked for */
	uint32_t lacks;
	uint32_t packet; /* if it has any: one of them, which it has sent */
} __attribute__((packed));

/*
 * Nothing signals when there is room again. Less than the engine's: a poll may send many packets.
 */
#define FANIN_BROADCAST_NO_ROOM_NS (50 * UINT64_C(1000))

#define FANIN_BROADCAST_VALUES 2u /* of a control block, 64 bits each */
/* Packets that are asked for at a time. */
#define FANIN_BROADCAST_FETCH_MOST 64u

/* Packets first to end - 1, which their roots send one after the other. */
struct fanin_broadcast_chain {
	uint32_t first;
	uint32_t end;
	uint32_t seen;          /* behind the last one that has come, or was sent */
	struct fanin_gaps gaps; /* in the operation's bitmaps; only what comes by multicast
				   overtakes others */
};

/* A rank's packets, which it sends one after the other. */
struct fanin_broadcast_turn {
	uint32_t first; /* packet; that of the next turn, if the rank has none */
	uint32_t place; /* of that packet, if ranks took turns in their own order */
	uint16_t rank;
};

/* Packets that a neighbor has asked for and this rank lacks. */
struct fanin_broadcast_standing {
	uint64_t *wanted; /* bitmap; NULL: nobody has asked yet */
	uint32_t n;       /* of them */
	uint16_t rank;    /* who has asked */
};

/*
 * A Broadcast or Allgather in progress; or an operation that combines, whose packets their roots
 * make before they send them. Of the latter each root is a chain of its own. Without chains each
 * root keeps its packets.
 */
struct fanin_broadcast_op {
	struct fanin_broadcast_op *next;
	struct fanin_request control;  /* the engine's, an allreduce; first_block is the ready block
					*/
	struct fanin_request *request; /* the owner's */
	uint32_t number;
	uint32_t n_packets;
	uint32_t n_lacking;
	uint32_t credit;     /* packets of a chain between two credits */
	uint32_t n_released; /* control blocks that this rank has contributed to, or may */
	uint32_t n_done;     /* control blocks that are done, from the first on */
	uint32_t own_first;  /* packets whose root is this rank */
	uint32_t own_end;
	uint32_t own_ready; /* own packets before this one may be sent */
	uint32_t own_next;  /* to be sent next */
	uint16_t own_chain;
	bool is_active;  /* the root before this one in the chain has said that it is done */
	bool told_next;  /* the same was said to the next one */
	uint64_t *have;  /* bitmap; of own packets from the start */
	uint64_t *asked; /* bitmap, of those that lack */
	uint64_t *said;  /* values of the control blocks: FANIN_BROADCAST_VALUES of each */
	uint64_t *heard; /* their results */
	uint64_t n_lost; /* packets lost or marked since the last credit */
	struct fanin_broadcast_standing standing;
	uint64_t begun_ns;     /* the ready block is done; 0: not yet */
	uint64_t last_ns;      /* the last new packet */
	uint64_t busy_ns;      /* while packets came; in longer pauses nobody sent */
	uint64_t ask_ns;       /* nothing is asked for before this time */
	uint64_t ask_wait_ns;  /* from one FETCH to its repetition; 0: nothing is asked for */
	uint32_t n_unanswered; /* FETCHes in a row */
	uint32_t step;         /* who is asked: this rank - step */
	bool is_asking;        /* asked_ranks is not empty */
	struct fanin_ranks asked_ranks; /* since something new came last: who may answer */
	uint64_t lacks_ns; /* since when answers only say that a neighbor lacks it, too; 0: they do
			      not */
	uint64_t has_ns;  /* since when a neighbor tells that it sends, and nothing comes; 0: not so
			   */
	uint64_t told_ns; /* when it told so last */
	uint32_t has_packet; /* this one */
	uint16_t has_rank;
	struct fanin_broadcast_turn *turns; /* an Allgather's, of all ranks; NULL: in the order of
					       the ranks */
	uint16_t n_chains;
	struct fanin_broadcast_chain chains[]; /* in the order of their packets */
};

struct fanin_broadcast_engine {
	struct fanin_engine engine; /* first: a pointer to it is one to this */
	bool makes; /* operations that combine run by multicast, too: their roots make the packets
		     */
	uint32_t chains; /* of an Allgather: roots that send at once; 0: as many as suit */
	struct fanin_broadcast_stats stats;
	struct fanin_broadcast_op *ops; /* oldest first */
	struct fanin_broadcast_op **ops_tail;
	uint16_t *order; /* ranks rack by rack, as they take turns; NULL: in their own order */
	uint32_t n_ops;  /* posted so far: the number of the next one */
	uint32_t next;   /* first block that was not released yet */
	bool has_more; /* the last poll did not send all that it may: others had to be read, or the
			  transport had no room */
	bool is_full;  /* of these, the latter */
	uint32_t credit;                  /* packets between two credits, of all chains together */
	uint32_t depth;                   /* credits' worth of packets that a root may be ahead */
	struct fanin_patience alpha;      /* behind the last packet */
	struct fanin_patience reordering; /* before a gap counts as lost */
	double bytes_per_ns;    /* at which operations' packets come; 0: not measured yet */
	struct fanin_live live; /* who is gone */
};

static inline struct fanin_broadcast_engine *
fanin_broadcast_of(struct fanin_engine *engine)
{
	assert(engine->endpoint.protocol->multicasts);
	return (struct fanin_broadcast_engine *)engine;
}

/*
 * multicast.c: what protocols with multicast have in common, as struct fanin_engine_rules and
 * struct fanin_protocol have it. chains: as in struct fanin_broadcast_engine.
 */
int fanin_broadcast_begin(struct fanin_broadcast_engine *mc, uint32_t chains);
void fanin_broadcast_end(struct fanin_engine *engine);
void fanin_broadcast_resume(struct fanin_engine *engine);
void fanin_broadcast_report(struct fanin_endpoint *endpoint, struct fanin_report *report);
int fanin_broadcast_post_any(struct fanin_endpoint *endpoint, struct fanin_request *request,
			     uint64_t count);

/*
 * broadcast_op.c: posts an operation of at least one byte, among at least two ranks.
 *
 * request: cut. n_packets: of it, or of its part if it has a stride. Returns what fanin_engine_post
 * does, or FANIN_ERR_NO_MEMORY.
 */
int fanin_broadcast_post(struct fanin_engine *engine, struct fanin_request *request,
			 uint32_t n_packets);

/*
 * Returns how many packets one FETCH or ASK covers: its bitmap is a payload of the job, and those
 * are multiples of 64 bytes.
 */
static inline uint32_t
fanin_broadcast_fetch_span(const struct fanin_engine *engine)
{
	const uint32_t bits = engine->config.payload_bytes / (uint32_t)sizeof(uint64_t) * 64;

	return bits < FANIN_QUESTION_SPAN ? bits : FANIN_QUESTION_SPAN;
}

/* Returns the chain that a packet is in. */
static inline struct fanin_broadcast_chain *
fanin_broadcast_chain_of(struct fanin_broadcast_op *op, uint32_t packet)
{
	struct fanin_broadcast_chain *chain = op->chains;

	while (packet >= chain->end)
		chain++;
	return chain;
}

/* Returns the first packet of a chain that may not be sent yet. */
static inline uint32_t
fanin_broadcast_limit(const struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
		      const struct fanin_broadcast_chain *chain)
{
	/* The first done block is ready's. */
	const uint64_t places = op->n_done == 0
					? 0
					: (uint64_t)(op->n_done - 1 + mc->depth) * op->credit;

	return places < chain->end - chain->first ? chain->first + (uint32_t)places : chain->end;
}

/* True if this rank has a packet, and may give it to others: its own ones once they were sent. */
static inline bool
fanin_broadcast_may_give(const struct fanin_broadcast_op *op, uint32_t packet)
{
	return fanin_bit(op->have, packet) && (packet < op->own_next || packet >= op->own_end);
}

/* broadcast_op.c: returns the operation of a number that is in progress, or NULL. */
struct fanin_broadcast_op *fanin_broadcast_find(struct fanin_broadcast_engine *mc, uint32_t number);

/*
 * broadcast_turns.c: finds the order in which ranks take turns, from config.hosts. It stays for as
 * long as the engine is open, whatever switches the hosts move to.
 *
 * Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_broadcast_order(struct fanin_broadcast_engine *mc);

/* broadcast_turns.c: makes an operation's turns. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_broadcast_turns_make(const struct fanin_broadcast_engine *mc,
			       struct fanin_broadcast_op *op);

/* broadcast_turns.c: the rank of a turn, and the turn of a rank. */
uint16_t fanin_broadcast_rank_of_turn(const struct fanin_broadcast_op *op, uint16_t turn);
uint16_t fanin_broadcast_turn_of_rank(const struct fanin_broadcast_op *op, uint16_t rank);

/* broadcast_turns.c: returns where in the vector a packet lies. */
struct fanin_extent fanin_broadcast_extent(const struct fanin_broadcast_engine *mc,
					   const struct fanin_broadcast_op *op, uint32_t packet);

/* broadcast_turns.c: finds the packets that a rank is the root of: *first to *end - 1, or none. */
void fanin_broadcast_root_range(const struct fanin_broadcast_engine *mc,
				const struct fanin_broadcast_op *op, uint16_t rank, uint32_t *first,
				uint32_t *end);

/*
 * broadcast_op.c: finds where a rank's part of the vector is, counted in packets: *first to *end -
 * 1, or none.
 */
void fanin_broadcast_part(const struct fanin_broadcast_engine *mc,
			  const struct fanin_broadcast_op *op, uint16_t rank, uint32_t *first,
			  uint32_t *end);

/* broadcast_op.c: returns the root of a packet of an operation with chains. */
uint16_t fanin_broadcast_root(const struct fanin_broadcast_engine *mc,
			      struct fanin_broadcast_op *op, uint32_t packet);

/*
 * broadcast_op.c: returns where in the owner's memory a packet's elements are, whether they are
 * there yet or not.
 */
uint8_t *fanin_broadcast_place(const struct fanin_broadcast_op *op,
			       const struct fanin_extent *extent);

/* broadcast_op.c: frees an operation's memory, which no list has any more. */
void fanin_broadcast_op_free(struct fanin_broadcast_op *op);

/* broadcast_op.c: as struct fanin_engine_rules has it. */
void fanin_broadcast_finish(struct fanin_engine *engine, uint32_t block);

/* broadcast_send.c: as struct fanin_engine_rules has them. */
void fanin_broadcast_send(struct fanin_engine *engine);
uint64_t fanin_broadcast_idle_most_ns(struct fanin_engine *engine);

/*
 * broadcast_send.c: sends a packet of an operation to a rank.
 *
 * Returns false if the transport has no room.
 */
bool fanin_broadcast_send_to(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
			     uint16_t rank, enum fanin_broadcast_kind kind, uint32_t packet,
			     const void *payload, uint32_t payload_len);

/*
 * broadcast_send.c: sends a packet's data to a rank that has asked for it. Returns false if the
 * transport has no room.
 */
bool fanin_broadcast_give(struct fanin_broadcast_engine *mc, const struct fanin_broadcast_op *op,
			  uint16_t rank, uint32_t packet);

/* broadcast_receive.c: as struct fanin_engine_rules has it. */
void fanin_broadcast_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
			     uint32_t block);

/*
 * broadcast_fetch.c: a neighbor has asked for packets. words: bitmap of n words, from the packet
 * `first` on.
 */
void fanin_broadcast_serve(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			   uint16_t rank, uint32_t first, const uint64_t *words, uint32_t n);

/* broadcast_fetch.c: a neighbor has answered. */
void fanin_broadcast_note_tell(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			       uint16_t rank, const struct fanin_broadcast_tell *tell);

/* broadcast_fetch.c: a rank tells that it has sent a packet. */
void fanin_broadcast_note_sent(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
			       uint16_t rank, uint32_t packet);

/* broadcast_fetch.c: something new of an operation has come: nothing is overdue. */
void fanin_broadcast_note_progress(struct fanin_broadcast_engine *mc,
				   struct fanin_broadcast_op *op);

/* broadcast_fetch.c: a packet that lacked is there. multicast: by its root's sending. */
void fanin_broadcast_note_packet(struct fanin_broadcast_engine *mc, struct fanin_broadcast_op *op,
				 uint32_t packet, bool multicast);

/* broadcast_fetch.c: as struct fanin_engine_rules has them. */
void fanin_broadcast_scan(struct fanin_engine *engine);
bool fanin_broadcast_time_out(struct fanin_engine *engine);
void fanin_broadcast_on_answer(struct fanin_engine *engine, uint32_t block,
			       const struct fanin_answer_ranks *ranks);

#endif
