/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of pull reductions, shared by pull.c (the tables), pull_owner.c (what this rank asks
 * for, and merges), pull_late.c (what it has not got in time) and pull_answer.c (what it answers).
 */
#ifndef FANIN_PROTOCOLS_PULL_HOST_PULL_INTERNAL_H
#define FANIN_PROTOCOLS_PULL_HOST_PULL_INTERNAL_H

#include "handlers/kernels/kernels.h"
#include "hostlib/src/engine/sums.h"
#include "hostlib/src/cc/waves.h"
#include "protocols/broadcast/host/broadcast_internal.h"
#include "pull.h"
#include "protocols/pull/pull.h"

/* Packets that one poll sends of each kind: between them what has come is read. */
#define FANIN_PULL_BURST 32u

enum fanin_pull_state {
	FANIN_PULL_DONE,    /* the packet is made, or there was none here yet */
	FANIN_PULL_ASKED,   /* the request is sent */
	FANIN_PULL_WAITING, /* it came back, and is to be sent again */
};

/* A packet that this rank makes. */
struct fanin_pull_slot {
	uint32_t index; /* among the own packets */
	uint8_t state;  /* enum fanin_pull_state */
	uint32_t n_busy;
	uint32_t generation;  /* of pull->allowed, at the last request */
	struct fanin_sum sum; /* this rank's data first */
	uint64_t in;          /* the sum's ranks */
	uint64_t sent_ns;     /* the last request */
	uint64_t again_ns;    /* ASKED: when ranks are asked directly; WAITING: when the request is
				 sent again */
	uint64_t wait_ns; /* ASKED: from asking directly to the next time; 0: it was not done yet */
};

/* How an owner is answered. */
enum fanin_pull_answer {
	FANIN_PULL_RESPONSE, /* by way of the switches' tables */
	FANIN_PULL_GIVE,     /* directly */
	FANIN_PULL_TELL,     /* that what it has asked for was given */
};

/* What a rank was asked for, and has not answered yet. */
struct fanin_pull_wanted {
	uint32_t operation;
	uint32_t packet;
	uint16_t owner;
	uint8_t answer; /* enum fanin_pull_answer */
};

/* What a rank was asked for last, of those packets that have this place in the table. */
struct fanin_pull_heard {
	uint64_t time_ns; /* 0: nothing */
	uint32_t operation;
	uint32_t packet;
};

/* Of each kind of answer with data. */
#define FANIN_PULL_HEARD 1024u

struct fanin_pull {
	struct fanin_broadcast_engine mc; /* first: a pointer to it, or to its engine, is one to
					     this */
	uint64_t timeout_ns;              /* of sums in switches */
	struct fanin_pull_stats stats;
	struct fanin_sums sums;
	uint64_t all; /* ranks */
	uint64_t own; /* this one */

	/*
	 * Of one operation at a time: no rank is ready for the next one before all have ended this
	 * one.
	 */
	struct fanin_broadcast_op *op; /* whose packets are made; NULL: none is */
	uint32_t n_own;                /* packets to be made */
	uint32_t n_begun;              /* of them */
	uint32_t n_waiting;            /* of these, those whose request came back */
	uint8_t dtype;                 /* of the sums */
	uint8_t element_bytes;         /* likewise */
	struct fanin_waves waves;
	uint32_t allowed;    /* packets that may be asked for at a time, within the waves */
	uint32_t generation; /* how often it was halved */
	uint32_t n_clean;    /* packets made since it changed */
	uint32_t n_flying;   /* packets that are asked for */
	uint32_t span;       /* of the slots; never changes */
	struct fanin_pull_slot *slots; /* of the index-th own packet: index modulo span */
	uint8_t *payloads;             /* likewise, payload_bytes each */
	uint8_t *scratch;              /* payload_bytes */
	struct fanin_rtt time;         /* that pulls take */
	bool is_blocked;               /* the last poll found no room in the transport */

	struct fanin_pull_wanted *wanted; /* a ring */
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

/* True if ranks send a request's elements as f32, which are shorter in their buffers. */
static inline bool
fanin_pull_widens(const struct fanin_pull *pull, const struct fanin_request *request)
{
	return pull->mc.engine.config.wide && fanin_operation_widens(request->dtype, request->op);
}

/*
 * Returns this rank's own data of a packet as it is sent: in its buffer, or widened in
 * pull->scratch.
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

/* Returns how many bytes it has then. */
static inline uint32_t
fanin_pull_data_len(const struct fanin_pull *pull, const struct fanin_request *request,
		    const struct fanin_extent *extent)
{
	return fanin_pull_widens(pull, request)
		       ? extent->len / request->element_bytes * (uint32_t)sizeof(float)
		       : extent->len;
}

/* Returns the slot of one of the own packets that are begun and not long done. */
static inline struct fanin_pull_slot *
fanin_pull_slot(const struct fanin_pull *pull, uint32_t index)
{
	return &pull->slots[index % pull->span];
}

/* Begins a packet about the place of an operation. type: PULL or RESPONSE. */
void fanin_pull_headers(const struct fanin_pull *pull, enum fanin_type type, uint32_t operation,
			uint32_t place, uint32_t payload_len, struct fanin_headers *headers);

/* pull_owner.c: opens the waves, at the first packet. */
void fanin_pull_waves_open(struct fanin_pull *pull);

/* pull_owner.c: begins what may be begun, and sends requests again that are due. */
void fanin_pull_begin(struct fanin_pull *pull);

/* pull_owner.c: a RESPONSE_DELIVERY for this rank, or a GIVE. */
void fanin_pull_receive_response(struct fanin_pull *pull, const struct fanin_frame *frame);
void fanin_pull_receive_give(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_owner.c: a request of this rank has come back. */
void fanin_pull_receive_busy(struct fanin_pull *pull, const struct fanin_hdr *hdr);

/*
 * pull_late.c: returns how long switches are to wait for answers. After twice that ranks are asked
 * directly.
 */
uint64_t fanin_pull_patience(const struct fanin_pull *pull);

/*
 * pull_late.c: answers have come, of a pull that is complete by them or was asked for directly:
 * learns how long they take.
 */
void fanin_pull_note_time(struct fanin_pull *pull, const struct fanin_pull_slot *slot);

/* pull_late.c: opens what bounds how many packets are asked for at a time. */
void fanin_pull_allow(struct fanin_pull *pull);

/* pull_late.c: a packet is made. */
void fanin_pull_note_made(struct fanin_pull *pull);

/*
 * pull_late.c: asks ranks directly for what is overdue. Returns when that is to be looked at again;
 * UINT64_MAX: nothing is awaited.
 */
uint64_t fanin_pull_ask_late(struct fanin_pull *pull);

/* pull_late.c: a rank tells that it has given what it was asked for. */
void fanin_pull_receive_tell(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_answer.c: an owner asks for a packet, by a request or directly. */
void fanin_pull_receive_request(struct fanin_pull *pull, const struct fanin_hdr *hdr);
void fanin_pull_receive_ask(struct fanin_pull *pull, const struct fanin_frame *frame);

/* pull_answer.c: sends answers as far as there is room. Returns false if some are left. */
bool fanin_pull_answer(struct fanin_pull *pull);

#endif
