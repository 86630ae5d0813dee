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

/* The kind of a packet, in the header's `number`. */
enum fanin_broadcast_kind {
	FANIN_BROADCAST_DATA = 1,
	FANIN_BROADCAST_FETCH = 2,
	FANIN_BROADCAST_TELL = 3,
	FANIN_BROADCAST_ACTIVATE = 4,
	/*
	 * The FETCH and DATA of pull reductions: an owner asks a rank for the rank's own data of
	 * some packets, and the rank sends it.
	 */
	FANIN_BROADCAST_ASK = 5,
	FANIN_BROADCAST_GIVE = 6,
};

/*
 * In a TELL: the sender has sent none of the requested packets. No operation has so many packets.
 */
#define FANIN_BROADCAST_NO_PACKET UINT32_MAX

/* TELL's payload. */
struct fanin_broadcast_tell {
	uint32_t has; /* how many of the requested packets the sender has */
	uint32_t lacks;
	uint32_t packet; /* one of the requested packets that the sender has and has sent, if any */
} __attribute__((packed));

/*
 * How long to wait for room in the transport, because nothing signals room. Shorter than the
 * engine's wait: one poll may send many packets.
 */
#define FANIN_BROADCAST_NO_ROOM_NS (50 * UINT64_C(1000))

#define FANIN_BROADCAST_VALUES 2u /* of a control block, 64 bits each */
/* Maximum number of packets that are requested at a time. */
#define FANIN_BROADCAST_FETCH_MAX 64u

/* Packets first to end - 1, which their roots send one after the other. */
struct fanin_broadcast_chain {
	uint32_t first;
	uint32_t end;
	uint32_t seen; /* end of the packets that have come or were sent */
	/* in the operation's bitmaps; only packets that come by multicast overtake others */
	struct fanin_gaps gaps;
};

/* The packets of one rank, which it sends in order. */
struct fanin_broadcast_turn {
	uint32_t first; /* first packet; that of the next turn, if the rank has none */
	uint32_t place; /* that packet's number if ranks took turns in ascending order */
	uint16_t rank;
};

/* Packets that a neighbor has asked for and this rank lacks. */
struct fanin_broadcast_standing {
	uint64_t *wanted; /* bitmap; NULL: no request so far */
	uint32_t n;       /* of them */
	uint16_t rank;    /* the rank that has asked */
};

/*
 * A Broadcast or Allgather in progress, or an operation that combines. In the latter the roots make
 * their packets before they send them, and each root is a chain of its own. Without chains each
 * root keeps its packets.
 */
struct fanin_broadcast_op {
	struct fanin_broadcast_op *next;
	/* the engine's request, an allreduce; first_block is the ready block */
	struct fanin_request control;
	struct fanin_request *request; /* the owner's */
	uint32_t number;
	uint32_t n_packets;
	uint32_t n_lacking;
	uint32_t credit; /* packets of a chain between two credits */
	/* number of control blocks to which this rank has contributed, or may */
	uint32_t n_released;
	uint32_t n_done; /* number of control blocks that are done, counted from the first */
	/* the packets with this rank as their root: own_first to own_end - 1 */
	uint32_t own_first;
	uint32_t own_end;
	uint32_t own_ready; /* own packets before this one may be sent */
	uint32_t own_next;  /* the next own packet to send */
	uint16_t own_chain;
	bool is_active;  /* it is this rank's turn in its chain */
	bool told_next;  /* this rank has told the next root that it is done */
	uint64_t *have;  /* bitmap of packets that this rank has; own packets from the start */
	uint64_t *asked; /* bitmap of missing packets that were requested */
	/* this rank's values of the control blocks, FANIN_BROADCAST_VALUES for each block */
	uint64_t *said;
	uint64_t *heard; /* the results of the control blocks */
	uint64_t n_lost; /* packets lost or marked since the last credit */
	struct fanin_broadcast_standing standing;
	uint64_t begun_ns; /* when the ready block was done; 0: not yet */
	uint64_t last_ns;  /* when the last new packet came */
	/* time during which packets came; longer pauses, in which nobody sent, are left out */
	uint64_t busy_ns;
	uint64_t ask_ns;       /* no FETCH is sent before this time */
	uint64_t ask_wait_ns;  /* from one FETCH to its repetition; 0: no FETCH is open */
	uint32_t n_unanswered; /* unanswered FETCHes in a row */
	uint32_t step;         /* the rank to ask is this rank - step */
	bool is_asking;        /* asked_ranks is not empty */
	/* ranks that were asked since something new came last, and may answer */
	struct fanin_ranks asked_ranks;
	/* since when TELLs only say that the neighbor lacks the packets, too; 0: they do not */
	uint64_t lacks_ns;
	/* when a neighbor first claimed to have sent a packet that has not arrived; 0: never */
	uint64_t has_ns;
	uint64_t told_ns;    /* when a neighbor last claimed that */
	uint32_t has_packet; /* this one */
	uint16_t has_rank;
	/* of all ranks in an Allgather; NULL: ranks take turns in ascending order */
	struct fanin_broadcast_turn *turns;
	uint16_t n_chains;
	struct fanin_broadcast_chain chains[]; /* in the order of their packets */
};

struct fanin_broadcast_engine {
	/* first member, so that a pointer to it is a pointer to this struct */
	struct fanin_engine engine;
	bool makes; /* operations that combine run by multicast, too: roots make their packets */
	/* number of roots of an Allgather that send at once; 0: chosen by the library */
	uint32_t chains;
	struct fanin_broadcast_stats stats;
	struct fanin_broadcast_op *ops; /* oldest first */
	struct fanin_broadcast_op **ops_tail;
	uint16_t *order; /* all ranks, rack by rack, in the order of their turns; NULL: ascending */
	/* number of operations posted so far, which is the number of the next one */
	uint32_t n_ops;
	uint32_t next; /* first block that is not released yet */
	/*
	 * the last poll left packets unsent that may be sent: it had to read first, or the
	 * transport was full
	 */
	bool has_more;
	bool is_full;    /* the transport was full */
	uint32_t credit; /* packets between two credits, of all chains together */
	/* how many credits' worth of packets a root may be ahead */
	uint32_t depth;
	struct fanin_patience alpha;      /* how long to wait after the last packet */
	struct fanin_patience reordering; /* how long a gap may last before it counts as lost */
	double bytes_per_ns;    /* rate at which operations' packets arrive; 0: not measured yet */
	struct fanin_live live; /* who is gone */
};

static inline struct fanin_broadcast_engine *
fanin_broadcast_of(struct fanin_engine *engine)
{
	assert(engine->endpoint.protocol->multicasts);
	return (struct fanin_broadcast_engine *)engine;
}

/*
 * multicast.c: the functions that protocols with multicast share, as declared in struct
 * fanin_engine_rules and struct fanin_protocol. chains: as in struct fanin_broadcast_engine.
 */
int fanin_broadcast_begin(struct fanin_broadcast_engine *mc, uint32_t chains);
void fanin_broadcast_end(struct fanin_engine *engine);
void fanin_broadcast_resume(struct fanin_engine *engine);
void fanin_broadcast_report(struct fanin_endpoint *endpoint, struct fanin_report *report);
int fanin_broadcast_post_any(struct fanin_endpoint *endpoint, struct fanin_request *request,
			     uint64_t count);

/*
 * broadcast_op.c: posts an operation of at least one byte, among at least two ranks. request: cut
 * into packets. n_packets: of the operation, or of this tree's part if it has a stride. Returns
 * what fanin_engine_post returns, or FANIN_ERR_NO_MEMORY.
 */
int fanin_broadcast_post(struct fanin_engine *engine, struct fanin_request *request,
			 uint32_t n_packets);

/*
 * Returns how many packets one FETCH or ASK covers. Its bitmap is a payload of the job, whose
 * payloads are multiples of 64 bytes.
 */
static inline uint32_t
fanin_broadcast_fetch_span(const struct fanin_engine *engine)
{
	const uint32_t bits = engine->config.payload_bytes / (uint32_t)sizeof(uint64_t) * 64;

	return bits < FANIN_QUESTION_SPAN ? bits : FANIN_QUESTION_SPAN;
}

/* Returns the chain that a packet belongs to. */
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

/*
 * True if this rank has a packet and may give it to others. A root may give its own packets once it
 * has sent them.
 */
static inline bool
fanin_broadcast_may_give(const struct fanin_broadcast_op *op, uint32_t packet)
{
	return fanin_bit(op->have, packet) && (packet < op->own_next || packet >= op->own_end);
}

/* broadcast_op.c: returns the operation in progress with this number, or NULL. */
struct fanin_broadcast_op *fanin_broadcast_find(struct fanin_broadcast_engine *mc, uint32_t number);

/*
 * broadcast_turns.c: derives the order in which ranks take turns from config.hosts. The order stays
 * while the engine is open, even if hosts move to other switches. Returns FANIN_OK or
 * FANIN_ERR_NO_MEMORY.
 */
int fanin_broadcast_order(struct fanin_broadcast_engine *mc);

/* broadcast_turns.c: makes an operation's turns. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_broadcast_turns_make(const struct fanin_broadcast_engine *mc,
			       struct fanin_broadcast_op *op);

/* broadcast_turns.c: the rank of a turn, and the turn of a rank. */
uint16_t fanin_broadcast_rank_of_turn(const struct fanin_broadcast_op *op, uint16_t turn);
uint16_t fanin_broadcast_turn_of_rank(const struct fanin_broadcast_op *op, uint16_t rank);

/* broadcast_turns.c: returns a packet's position in the vector. */
struct fanin_extent fanin_broadcast_extent(const struct fanin_broadcast_engine *mc,
					   const struct fanin_broadcast_op *op, uint32_t packet);

/* broadcast_turns.c: finds the packets of which a rank is the root: *first to *end - 1, or none. */
void fanin_broadcast_root_range(const struct fanin_broadcast_engine *mc,
				const struct fanin_broadcast_op *op, uint16_t rank, uint32_t *first,
				uint32_t *end);

/*
 * broadcast_op.c: finds a rank's part of the vector, counted in packets: *first to *end - 1, or
 * none.
 */
void fanin_broadcast_part(const struct fanin_broadcast_engine *mc,
			  const struct fanin_broadcast_op *op, uint16_t rank, uint32_t *first,
			  uint32_t *end);

/* broadcast_op.c: returns the root of a packet of an operation with chains. */
uint16_t fanin_broadcast_root(const struct fanin_broadcast_engine *mc,
			      struct fanin_broadcast_op *op, uint32_t packet);

/*
 * broadcast_op.c: returns the address of a packet's elements in the owner's memory, whether they
 * have come yet or not.
 */
uint8_t *fanin_broadcast_place(const struct fanin_broadcast_op *op,
			       const struct fanin_extent *extent);

/* broadcast_op.c: frees the memory of an operation that is in no list any more. */
void fanin_broadcast_op_free(struct fanin_broadcast_op *op);

/* broadcast_op.c: see struct fanin_engine_rules. */
void fanin_broadcast_finish(struct fanin_engine *engine, uint32_t block);

/* broadcast_send.c: see struct fanin_engine_rules. */
void fanin_broadcast_send(struct fanin_engine *engine);
uint64_t fanin_broadcast_idle_max_ns(struct fanin_engine *engine);

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
