/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of pull reductions (protocols/pull/README.md): what the files of the handler
 * share. A job's slots have a sum each, beside their dense blocks: the table in which what ranks
 * send to the owner of a packet is combined on its way.
 */
#ifndef FANIN_PROTOCOLS_PULL_SWITCH_PULL_H
#define FANIN_PROTOCOLS_PULL_SWITCH_PULL_H

#include <assert.h>

#include "handlers/pass.h"
#include "protocols/dense/switch/single.h"
#include "protocols/pull/pull.h"

enum pull_counter {
	PULL_PULLS = FANIN_PASS_END,
	PULL_ENTRIES,
	PULL_HITS,
	PULL_BYPASSED,
	PULL_OVERLAPS,
	PULL_BUSY,
	PULL_TIMED_OUT,
	PULL_COMPLETED,
};

/* A job's state. */
struct pull_state {
	uint64_t used; /* run << 32 | entries of it that are in use; atomic */
};

/* A sum on its way to an owner. Whoever has entered: rw. */
struct pull_entry {
	uint32_t entered; /* a worker is in; atomic */
	uint32_t epoch;   /* 0: the entry is free */
	uint32_t operation;
	uint32_t place;
	uint64_t expected;    /* ranks whose data passes here */
	uint64_t in;          /* those of them that are in the sum */
	struct rte_mbuf *sum; /* with its headers as they came; NULL: none is in */
	fanin_kernel_fn add;
	uint64_t due_ns;      /* when it goes on as it is */
	uint32_t timer_epoch; /* the run in which the slot's timer was armed that has not expired;
				 0: there is none */
} __rte_cache_aligned;

struct pull_slot {
	struct single_slot single; /* first: dense blocks are the handler's `single` */
	struct pull_entry entry;
};

static_assert(sizeof(struct pull_slot) == 2 * RTE_CACHE_LINE_SIZE, "two cache lines per slot");

/* The outcome of a PULL. */
enum pull_made {
	PULL_MADE,  /* there is an entry for it */
	PULL_FULL,  /* there is no room for one */
	PULL_RETRY, /* another worker is in the slot */
};

/*
 * pull_table.c: makes the entry of a PULL, unless there is one. expected: the ranks whose data will
 * pass here, two at least. index: of the slot.
 */
enum pull_made pull_entry_make(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
			       uint32_t index, const struct fanin_hdr *hdr, uint64_t expected);

/*
 * pull_table.c: a RESPONSE or RESPONSE_DELIVERY, whose ranks are those that it may have, and whose
 * elements the job can combine with `add`. Returns the verdict on it.
 */
enum fanin_verdict pull_response_take(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
				      const struct fanin_packet *packet, fanin_kernel_fn add);

/* pull_table.c: the slot's timer has expired. Returns false if another worker is in the slot. */
bool pull_entry_expire(struct fanin_handler_ctx *ctx, struct pull_slot *slot, uint32_t index);

/* pull_table.c: gives up the slot's entry with its sum. The slot is not used again. */
void pull_entry_release(struct fanin_handler_ctx *ctx, struct pull_slot *slot);

#endif
