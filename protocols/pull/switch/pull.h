/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of pull reductions (protocols/pull/README.md): declarations that the handler's
 * files share. Each slot of a job has room for one sum, beside its dense block. The sums are the
 * table in which answers are combined on their way to the owner.
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
	uint64_t used; /* run << 32 | number of that run's entries in use; atomic */
};

/* A sum on its way to an owner. The worker that holds the entry: rw. */
struct pull_entry {
	uint32_t entered; /* a worker holds the entry; atomic */
	uint32_t epoch;   /* 0: the entry is free */
	uint32_t operation;
	uint32_t place;
	uint64_t expected;    /* ranks whose data passes here */
	uint64_t in;          /* ranks of `expected` that are in the sum */
	struct rte_mbuf *sum; /* with its headers as they came; NULL: no data has come */
	fanin_kernel_fn add;
	uint64_t due_ns;      /* when the sum goes on even if it is incomplete */
	uint32_t timer_epoch; /* run of the slot's armed timer; 0: none is armed */
} __rte_cache_aligned;

struct pull_slot {
	struct single_slot single; /* first: dense blocks are the handler's `single` */
	struct pull_entry entry;
};

static_assert(sizeof(struct pull_slot) == 2 * RTE_CACHE_LINE_SIZE, "two cache lines per slot");

/* The outcome of making an entry for a PULL. */
enum pull_made {
	PULL_MADE,  /* the PULL has an entry */
	PULL_FULL,  /* there is no room for an entry */
	PULL_RETRY, /* another worker holds the slot */
};

/*
 * pull_table.c: makes the entry of a PULL, unless it exists. expected: ranks whose answers pass
 * this switch, at least two. index: the slot's index.
 */
enum pull_made pull_entry_make(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
			       uint32_t index, const struct fanin_hdr *hdr, uint64_t expected);

/*
 * pull_table.c: takes a RESPONSE or RESPONSE_DELIVERY. The caller has checked its ranks, and `add`
 * combines its elements. Returns the verdict on the packet.
 */
enum fanin_verdict pull_response_take(struct fanin_handler_ctx *ctx, struct pull_slot *slot,
				      const struct fanin_packet *packet, fanin_kernel_fn add);

/* pull_table.c: the slot's timer has expired. Returns false if another worker holds the slot. */
bool pull_entry_expire(struct fanin_handler_ctx *ctx, struct pull_slot *slot, uint32_t index);

/* pull_table.c: frees the slot's entry and its sum. The slot is not used again. */
void pull_entry_release(struct fanin_handler_ctx *ctx, struct pull_slot *slot);

#endif
