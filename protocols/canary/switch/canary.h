/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's part of Canary (protocols/canary/README.md): the declarations that the handler's
 * files share. For a while, a switch combines the packets of a block that meet in it. Then it sends
 * the sum on towards the block's leader. It notes the ports at which data came in, because the
 * result returns by them. A switch knows no tree.
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
	CANARY_OPEN, /* the sum waits for more data */
	CANARY_SENT, /* the sum has been sent on, and the ports wait for the result */
};

/*
 * Statistics of the blocks that one rank leads. All words are atomic, each on its own: mixing two
 * updates costs time only.
 */
struct canary_lesson {
	uint64_t expected; /* ranks that a block had seen here when its result passed; 0: unknown */
	/* smoothed time from the first to the last packet of a block here; 0: unknown */
	uint32_t gap_ns;
	uint32_t deviation_ns; /* smoothed deviation of gap_ns; 0: unknown */
};

/* A job's state. All atomic. */
struct canary_state {
	uint32_t used; /* slots in use by all runs of the job */
	struct canary_lesson lessons[FANIN_SERVER_RANKS_MAX]; /* by leader */
};

/* A descriptor. The worker that has entered the slot: rw. */
struct canary_slot {
	struct fanin_slot_tag tag;
	struct rte_mbuf *mbuf; /* OPEN: the sum so far, EMPTY if nothing but empty packets came */
	uint64_t members;      /* OPEN: the ranks in the sum */
	uint64_t seen;         /* ranks whose data has come, including those in the sum */
	uint64_t ports;        /* ports at which the data came, by index in the switch */
	union {
		uint64_t due_ns;  /* OPEN: when the sum is to be sent on */
		uint64_t sent_ns; /* SENT: when the sum was sent on */
	};
	uint64_t begun_ns;
	uint64_t last_ns;           /* when data that had not been seen came last */
	fanin_kernel_fn add;        /* OPEN */
	struct canary_state *state; /* of the job; not EMPTY */
	uint32_t run;               /* of the run of the block's packets */
	uint8_t phase;              /* enum canary_phase */
} __rte_cache_aligned;

static_assert(sizeof(struct canary_slot) <= 2 * RTE_CACHE_LINE_SIZE, "two cache lines per slot");

/* A REDUCE without DIRECT whose data the job can combine. */
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

/* canary_learn.c: returns how long a block of this leader waits for more data, ns. */
uint64_t canary_timeout_ns(const struct fanin_job_params *job, const struct canary_state *state,
			   unsigned int leader);

/* canary_learn.c: returns the longest time that a block of this leader may wait, ns. */
uint64_t canary_longest_ns(const struct fanin_job_params *job, unsigned int leader);

/*
 * canary_learn.c: returns the most ranks that a block of this leader is known to have here; 0:
 * unknown. The leader is not among them, because it keeps its own data back.
 */
uint64_t canary_expected(const struct fanin_job_params *job, const struct canary_state *state,
			 unsigned int leader);

/*
 * canary_learn.c: updates the statistics when the result of a block of this leader passes. seen:
 * ranks that the block had seen. gap_ns: time from its first to its last packet.
 */
void canary_learn(const struct fanin_job_params *job, struct canary_state *state,
		  unsigned int leader, uint64_t seen, uint64_t gap_ns);

/*
 * canary_slot.c: handles data that meets the slot of its index, which the caller has entered.
 * Returns the verdict on the data; none is dropped.
 */
enum fanin_verdict canary_take_data(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
				    const struct canary_data *data);

/*
 * canary_slot.c: handles a block's passing result: removes the descriptor, if there is one. The
 * caller has entered the slot. Returns the ports that waited for the result.
 */
uint64_t canary_take_result(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
			    const struct fanin_hdr *hdr);

/* canary_slot.c: handles the expiry of a block's timer. The caller has entered the slot. */
void canary_expire(struct fanin_handler_ctx *ctx, struct canary_slot *slot, uint32_t index,
		   uint32_t block);

/* canary_slot.c: gives up a slot and its data, if any. The caller has entered the slot. */
void canary_give_up(struct fanin_handler_ctx *ctx, struct canary_slot *slot);

#endif
