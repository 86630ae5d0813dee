/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of Canary (protocols/canary/README.md): what the files of the handler share. A
 * switch combines what meets in it of a block for a while, sends the sum on towards the block's
 * leader, and notes the ports at which data came in for the result's way back. It knows no tree.
 */
#ifndef FANIN_PROTOCOLS_CANARY_SWITCH_CANARY_H
#define FANIN_PROTOCOLS_CANARY_SWITCH_CANARY_H

#include <assert.h>

#include <rte_common.h>

#include "handlers/handler.h"
#include "protocols/canary/canary.h"

enum canary_counter {
	CANARY_REDUCES,
	CANARY_MERGED,
	CANARY_SUMS,
	CANARY_COMPLETE,
	CANARY_STRAGGLERS,
	CANARY_COLLISIONS,
	CANARY_OVERLAPS,
	CANARY_DIRECT,
	CANARY_PASSED,
	CANARY_RESTORED,
	CANARY_UNKNOWN,
	CANARY_GIVEN_UP,
};

enum canary_phase {
	CANARY_EMPTY,
	CANARY_OPEN, /* the sum waits for more */
	CANARY_SENT, /* the sum has gone on, and the ports wait for the result */
};

/*
 * Lessons from the blocks that a rank leads. All atomic, each word on its own: a mix of two lessons
 * costs time only.
 */
struct canary_lesson {
	uint64_t expected; /* ranks that a block has seen here when its result passed; 0: not known
			    */
	uint32_t gap_ns;   /* from the first to the last packet of a block here, smoothed; 0: not
			      known */
	uint32_t deviation_ns; /* from that, likewise */
};

/* A job's state. All atomic. */
struct canary_state {
	uint32_t used; /* slots that the job has, of all of its runs */
	struct canary_lesson lessons[FANIN_SERVER_RANKS_MAX]; /* by leader */
};

/* A descriptor. Whoever has entered: rw. */
struct canary_slot {
	struct fanin_slot_tag tag;
	struct rte_mbuf *mbuf; /* OPEN: the sum so far, EMPTY if nothing but empty packets came */
	uint64_t members;      /* OPEN: ranks in the sum */
	uint64_t seen;         /* ranks that have come, those in the sum too */
	uint64_t ports;        /* at which they came, by index in the switch */
	union {
		uint64_t due_ns;  /* OPEN: when the sum goes on */
		uint64_t sent_ns; /* SENT: when it went */
	};
	uint64_t begun_ns;
	uint64_t last_ns;           /* when data came last that had not been seen */
	fanin_kernel_fn add;        /* OPEN */
	struct canary_state *state; /* of the job; not EMPTY */
	uint32_t run;               /* of the block's packets */
	uint8_t phase;              /* enum canary_phase */
} __rte_cache_aligned;

static_assert(sizeof(struct canary_slot) <= 2 * RTE_CACHE_LINE_SIZE, "two cache lines per slot");

/* A REDUCE that is not DIRECT, with data of a block that the job can combine. */
struct canary_data {
	const struct fanin_packet *packet;
	fanin_kernel_fn add;
	uint32_t index; /* of the block's slot */
};

static inline uint16_t
canary_leader(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	return fanin_canary_leader(block, ctx->job->n_ranks);
}

/* canary_learn.c: how long a block of this leader waits for more, ns. */
uint64_t canary_timeout_ns(const struct fanin_job_params *job, const struct canary_state *state,
			   unsigned int leader);

/* canary_learn.c: the longest that a block of this leader may ever wait, ns. */
uint64_t canary_longest_ns(const struct fanin_job_params *job, unsigned int leader);

/*
 * canary_learn.c: the ranks that a block of this leader has here at most, as far as is known; 0:
 * not known. None of them is the leader, which keeps its own data back.
 */
uint64_t canary_expected(const struct fanin_job_params *job, const struct canary_state *state,
			 unsigned int leader);

/*
 * canary_learn.c: the result of a block of this leader passes, which had seen these ranks within so
 * long.
 */
void canary_learn(const struct fanin_job_params *job, struct canary_state *state,
		  unsigned int leader, uint64_t seen, uint64_t gap_ns);

/*
 * canary_slot.c: data in the slot of its index, which has been entered. Returns the verdict on it;
 * none is dropped.
 */
enum fanin_verdict canary_take_data(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
				    const struct canary_data *data);

/*
 * canary_slot.c: the result of a block passes: the descriptor, if there is one, is gone. The slot
 * has been entered. Returns the ports that waited for it.
 */
uint64_t canary_take_result(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
			    const struct fanin_hdr *hdr);

/* canary_slot.c: the timer of a block has expired. Likewise. */
void canary_expire(struct fanin_handler_ctx *ctx, struct canary_slot *slot, uint32_t index,
		   uint32_t block);

/* canary_slot.c: gives up a slot, which has been entered, with its data, if it has any. */
void canary_give_up(struct fanin_handler_ctx *ctx, struct canary_slot *slot);

#endif
