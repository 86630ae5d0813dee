/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dense reduction with several buffers per block (Flare section 6.2). A worker takes any free
 * buffer and combines its packet into it; the worker with the last contribution adds up the
 * buffers. If all buffers are in use, the packet is retried later: no worker waits.
 */
#include <rte_common.h>

#include "protocols/dense/switch/dense.h"

/* A buffer that a worker is combining into. No mbuf has this address. */
#define BUFFER_TAKEN ((struct rte_mbuf *)1)

enum {
	MULTI_CROWDED
};

struct multi_slot {
	struct fanin_dense dense;
	uint32_t arrived; /* contributions in buffers, and empty ones; atomic if shared, as are the
			     buffers */
	struct rte_mbuf *buffers[FANIN_MAX_BUFFERS];
};

/* For medium-sized messages, with two or four buffers (Flare section 6.4). */
static bool
multi_suits(const struct fanin_choice *choice, uint32_t *buffers)
{
	if (choice->message_bytes <= choice->tree_up_to ||
	    choice->message_bytes > choice->multi4_up_to)
		return false;
	*buffers = choice->message_bytes <= choice->multi2_up_to ? 2 : 4;
	return true;
}

static void
multi_reset(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	struct multi_slot *slot = (struct multi_slot *)dense;

	for (unsigned int i = 0; i < FANIN_MAX_BUFFERS; i++) {
		if (slot->buffers[i] != NULL)
			fanin_release(ctx, slot->buffers[i]);
		slot->buffers[i] = NULL;
	}
	slot->arrived = 0;
}

static void
multi_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct multi_slot *slot = memory;

	fanin_dense_release(ctx, &slot->dense);
	multi_reset(ctx, &slot->dense);
}

static bool
buffer_swap(struct rte_mbuf **buffer, bool shared, struct rte_mbuf *old, struct rte_mbuf *new)
{
	if (shared)
		return __atomic_compare_exchange_n(buffer, &old, new, false, __ATOMIC_ACQUIRE,
						   __ATOMIC_RELAXED);
	*buffer = new;
	return true;
}

/*
 * Takes a buffer: one that holds a partial sum if there is one, else an empty one. Returns its
 * index and sets *partial (NULL: it was empty), or -1 if all are in use.
 */
static int
take_buffer(struct multi_slot *slot, const struct fanin_job_params *job, struct rte_mbuf **partial)
{
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < job->buffers; i++) {
			struct rte_mbuf *found = __atomic_load_n(&slot->buffers[i],
								 __ATOMIC_RELAXED);

			if (found == BUFFER_TAKEN || (found == NULL) != (pass == 1))
				continue;
			if (!buffer_swap(&slot->buffers[i], job->shared, found, BUFFER_TAKEN))
				continue;
			*partial = found;
			return i;
		}
	}
	return -1;
}

/*
 * Adds up the buffers. All contributions are in, and no other worker uses the buffers. Returns NULL
 * if all contributions were empty.
 */
static __rte_always_inline struct rte_mbuf *
collect(struct fanin_handler_ctx *ctx, struct multi_slot *slot)
{
	struct rte_mbuf *sum = NULL;

	for (int i = 0; i < ctx->job->buffers; i++) {
		struct rte_mbuf *partial = __atomic_load_n(&slot->buffers[i], __ATOMIC_ACQUIRE);

		__atomic_store_n(&slot->buffers[i], NULL, __ATOMIC_RELAXED);
		if (partial == NULL)
			continue;
		if (sum == NULL) {
			sum = partial;
			continue;
		}
		fanin_dense_combine(&slot->dense, sum, partial);
		fanin_release(ctx, partial);
	}
	return sum;
}

/*
 * Counts a contribution that is in its buffer, or empty. The last one finishes the block.
 *
 * verdict: the packet's verdict so far. Returns the final one.
 */
static __rte_always_inline enum fanin_verdict
arrive(struct fanin_handler_ctx *ctx, struct multi_slot *slot, struct rte_mbuf *mbuf,
       enum fanin_verdict verdict)
{
	struct rte_mbuf *sum;

	ctx->stats->contributions++;
	/*
	 * Each buffer is put back before its contribution is counted, so the worker that counts
	 * last finds all buffers.
	 */
	if (__atomic_add_fetch(&slot->arrived, 1, __ATOMIC_ACQ_REL) != ctx->job->n_children)
		return verdict;
	sum = collect(ctx, slot);
	if (sum == NULL) {
		sum = mbuf;
		verdict = FANIN_VERDICT_HELD;
	}
	__atomic_store_n(&slot->arrived, 0, __ATOMIC_RELAXED);
	fanin_dense_finish(ctx, &slot->dense, sum);
	return verdict;
}

/* Combines a packet into a buffer that the worker has taken. The child's place is claimed. */
static enum fanin_verdict
combine(struct fanin_handler_ctx *ctx, struct multi_slot *slot, int buffer,
	struct rte_mbuf *partial, struct rte_mbuf *mbuf)
{
	enum fanin_verdict verdict = FANIN_VERDICT_HELD;

	if (partial == NULL) {
		fanin_dense_begin(&slot->dense, mbuf);
		partial = mbuf;
	} else {
		fanin_dense_add(&slot->dense, partial, mbuf);
		verdict = FANIN_VERDICT_FREE;
	}
	__atomic_store_n(&slot->buffers[buffer], partial, __ATOMIC_RELEASE);
	return arrive(ctx, slot, mbuf, verdict);
}

/* Counts an empty contribution, which needs no buffer. */
static __rte_noinline enum fanin_verdict
arrive_empty(struct fanin_handler_ctx *ctx, struct multi_slot *slot, struct rte_mbuf *mbuf)
{
	return arrive(ctx, slot, mbuf, FANIN_VERDICT_FREE);
}

static enum fanin_verdict
multi_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct multi_slot *slot = memory;
	enum fanin_verdict verdict;
	struct rte_mbuf *partial;
	int buffer;

	if (!fanin_dense_admit(ctx, &slot->dense, index, packet, false, multi_reset, &verdict,
			       reason))
		return verdict;
	if (fanin_dense_is_empty(packet)) {
		verdict = arrive_empty(ctx, slot, packet->mbuf);
		goto leave;
	}
	buffer = take_buffer(slot, ctx->job, &partial);
	if (buffer >= 0) {
		verdict = combine(ctx, slot, buffer, partial, packet->mbuf);
	} else {
		ctx->stats->own[MULTI_CROWDED]++;
		fanin_dense_state_unclaim(&slot->dense.state, packet->child);
		verdict = FANIN_VERDICT_RETRY;
	}
leave:
	fanin_dense_state_leave(&slot->dense.state, ctx->job->shared);
	return verdict;
}

static enum fanin_verdict
multi_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
	    struct fanin_packet *packet, enum fanin_reason *reason)
{
	return fanin_dense_other(ctx, memory, index, packet, multi_reset, reason);
}

static const struct fanin_counter multi_counters[] = {
	[MULTI_CROWDED] = { "crowded",
			    "contributions that found all buffers in use, and came again: more buffers may help" },
	{ 0 },
};

static struct fanin_handler multi = {
	.name = "multi",
	.description = "dense reduction, several buffers per block",
	.makes_packets = true,
	.makes_headers_only = true,
	.slot_mbufs = { .per_buffer = 1 },
	.suits = multi_suits,
	.counters = multi_counters,
	.slot_bytes = sizeof(struct multi_slot),
	.contribution = multi_contribution,
	.types = fanin_dense_types,
	.other = multi_other,
	.peek = fanin_dense_peek,
	.slot_release = multi_slot_release,
};

FANIN_HANDLER_REGISTER(multi)
