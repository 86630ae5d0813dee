/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of pull reductions, shared by pull.c (the tables), pull_owner.c (requests of this rank,
 * and merging), pull_late.c (overdue packets) and pull_answer.c (answers to other owners).
 */
#ifndef FANIN_PROTOCOLS_PULL_HOST_PULL_INTERNAL_H
#define FANIN_PROTOCOLS_PULL_HOST_PULL_INTERNAL_H

#include "handlers/kernels/kernels.h"
#include "hostlib/src/engine/sums.h"
#include "hostlib/src/cc/waves.h"
#include "protocols/broadcast/host/broadcast_internal.h"
#include "pull.h"
#include "protocols/pull/pull.h"

/* Packets of each kind that one poll sends; received packets are read between polls. */
#define FANIN_PULL_BURST 32u

enum fanin_pull_state {
	FANIN_PULL_DONE,    /* the packet is made, or the slot is unused */
	FANIN_PULL_ASKED,   /* the request is sent */
	FANIN_PULL_WAITING, /* the request came back, and will be sent again */
};

/* A packet that this rank makes as its owner. */
struct fanin_pull_slot {
	uint32_t index; /* index among the own packets */
	uint8_t state;  /* enum fanin_pull_state */
	uint32_t n_busy;
	uint32_t generation;  /* pull->generation at the last request */
	struct fanin_sum sum; /* of the data that is in, this rank's first */
	uint64_t in;          /* ranks in the sum */
	uint64_t sent_ns;     /* when the last request was sent */
	uint64_t again_ns; /* ASKED: when to ask ranks directly; WAITING: when to send the request
			      again */
	uint64_t wait_ns;  /* ASKED: interval to the next direct ASK; 0: none was sent yet */
};

/* Ways to answer an owner. */
enum fanin_pull_answer {
	FANIN_PULL_RESPONSE, /* data, which switches combine */
	FANIN_PULL_GIVE,     /* data, directly */
	FANIN_PULL_TELL,     /* TELL: the data that the owner asked for was given */
};

/* A question of an owner that this rank has not answered yet. */
struct fanin_pull_wanted {
	uint32_t operation;
	uint32_t packet;
	uint16_t owner;
	uint8_t answer; /* enum fanin_pull_answer */
};

/* The latest question about the packets that share this place in the table. */
struct fanin_pull_heard {
	uint64_t time_ns; /* 0: no question */
	uint32_t operation;
	uint32_t packet;
};

/* Places for each kind of answer with data. */
#define FANIN_PULL_HEARD 1024u

struct fanin_pull {
	struct fanin_broadcast_engine mc; /* first: pointers to it and to its engine are cast to
					     this */
	uint64_t timeout_ns;              /* timeout of sums in switches */
	struct fanin_pull_stats stats;
	struct fanin_sums sums;
	uint64_t all; /* the set of all ranks */
	uint64_t own; /* the set of this rank alone */

	/*
	 * The state of one operation. One at a time suffices: no rank is ready for the next
	 * operation before all have ended this one.
	 */
	struct fanin_broadcast_op *op; /* the operation whose packets this rank makes; NULL: none */
	uint32_t n_own;                /* packets that this rank makes */
	uint32_t n_begun;              /* packets that were begun */
	uint32_t n_waiting;            /* packets whose request came back */
	uint8_t dtype;                 /* data type of the sums */
	uint8_t element_bytes;         /* bytes of an element of the sums */
	struct fanin_waves waves;
	uint32_t allowed;              /* limit of the packets in flight, within the waves */
	uint32_t generation;           /* how often `allowed` was halved */
	uint32_t n_clean;              /* packets made since `allowed` changed */
	uint32_t n_flying;             /* packets in flight */
	uint32_t span;                 /* number of slots; never changes */
	struct fanin_pull_slot *slots; /* slot of the index-th own packet: index modulo span */
	uint8_t *payloads;             /* payload_bytes for each slot */
	uint8_t *scratch;              /* payload_bytes */
	struct fanin_rtt time;         /* how long pulls take */
	bool is_blocked;               /* the last poll found no room in the transport */

	struct fanin_pull_wanted *wanted; /* a ring of questions */
	uint32_t wanted_head;
	uint32_t wanted_tail;
	uint32_t wanted_mask;
	struct fanin_pull_heard heard[FANIN_PULL_TELL][FANIN_PULL_HEARD];
};

extern const struct fanin_engine_rules fanin_pull_rules;

static inline struct fanin_pull *
fanin_pull_of(struct fanin_engine *engine)
{
	return fanin_engine_own(engine, &fanin_pull_rules);
}

static inline uint16_t
fanin_pull_size(const struct fanin_pull *pull)
{
	return pull->mc.engine.config.size;
}

/* True if ranks send the elements of a request as f32. In their buffers these are f16 or bf16. */
static inline bool
fanin_pull_widens(const struct fanin_pull *pull, const struct fanin_request *request)
{
	return pull->mc.engine.config.wide && fanin_operation_widens(request->dtype, request->op);
}

/*
 * Returns this rank's own data of a packet in the form in which it is sent: in the buffer, or
 * widened in pull->scratch.
 */
static inline const uint8_t *
fanin_pull_own_data(struct fanin_pull *pull, const struct fanin_request *request,
		    const struct fanin_extent *extent)
{
	const uint8_t *data = request->send + (extent->offset - request->send_offset);

	if (!fanin_pull_widens(pull, request))
		return data;
	fanin_kernel_wide(pull->sums.isa, request->dtype)
		->widen(pull->scratch, data, extent->len / request->element_bytes);
	return pull->scratch;
}

/* Returns the length in bytes of data in that form. */
static inline uint32_t
fanin_pull_data_len(const struct fanin_pull *pull, const struct fanin_request *request,
		    const struct fanin_extent *extent)
{
	return fanin_pull_widens(pull, request)
		       ? extent->len / request->element_bytes * (uint32_t)sizeof(float)
		       : extent->len;
}

/* Returns the slot of an own packet. The packet must have begun, and not be done for long. */
static inline struct fanin_pull_slot *
fanin_pull_slot(const struct fanin_pull *pull, uint32_t index)
{
	return &pull->slots[index % pull->span];
}

/* Fills in the headers of a packet about a place of an operation. type: PULL or RESPONSE. */
void fanin_pull_headers(const struct fanin_pull *pull, enum fanin_type type, uint32_t operation,
			uint32_t place, uint32_t payload_len, struct fanin_headers *headers);

/* pull_owner.c: opens the waves, starting at packet 0. */
void fanin_pull_waves_open(struct fanin_pull *pull);

/* pull_owner.c: begins the pulls that may begin, and repeats requests that are due. */
void fanin_pull_begin(struct fanin_pull *pull);

/* pull_owner.c: take a RESPONSE_DELIVERY for this rank, or a GIVE. */
void fanin_pull_receive_response(struct fanin_pull *pull, const struct fanin_frame *frame);
void fanin_pull_receive_give(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_owner.c: takes a BUSY: a request of this rank has come back. */
void fanin_pull_receive_busy(struct fanin_pull *pull, const struct fanin_hdr *hdr);

/*
 * pull_late.c: returns how long switches wait for answers. The owner asks ranks directly after
 * twice that time.
 */
uint64_t fanin_pull_patience(const struct fanin_pull *pull);

/*
 * pull_late.c: learns how long answers take, from answers that complete a pull, or that arrive
 * after ranks were asked directly.
 */
void fanin_pull_note_time(struct fanin_pull *pull, const struct fanin_pull_slot *slot);

/* pull_late.c: sets the initial limit of packets in flight. */
void fanin_pull_allow(struct fanin_pull *pull);

/* pull_late.c: a packet is made: may raise the limit. */
void fanin_pull_note_made(struct fanin_pull *pull);

/*
 * pull_late.c: asks ranks directly for overdue packets. Returns when to look again; UINT64_MAX: no
 * packet is awaited.
 */
uint64_t fanin_pull_ask_late(struct fanin_pull *pull);

/* pull_late.c: takes a TELL: a rank says that it has given the data. */
void fanin_pull_receive_tell(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_answer.c: take an owner's PULL or ASK for packets. */
void fanin_pull_receive_request(struct fanin_pull *pull, const struct fanin_hdr *hdr);
void fanin_pull_receive_ask(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_answer.c: sends answers while there is room. Returns false if some are left. */
bool fanin_pull_answer(struct fanin_pull *pull);

#endif
