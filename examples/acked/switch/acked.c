/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's side of "acked": dense reduction of short vectors, one block of a job after the
 * other, whose results are acknowledged. Until all children have acknowledged a block's result, a
 * timer repeats it to those that have not: the loss of a result costs the switch's timeout, not a
 * host's. Any other lost packet is repeated by its sender.
 *
 * Called by workers, one at a time in a slot.
 */
#include "../acked.h"
#include "handlers/frame.h"

/*
 * A child that has not acknowledged after this many repetitions may be gone. If it is not, it asks
 * by repeating its contribution.
 */
#define MAX_REPEATS 20

enum acked_phase {
	ACKED_DONE, /* the result has been sent to all children; at first, of the block before the
		       slot's first one */
	ACKED_OPEN, /* contributions are missing */
	ACKED_SENT, /* all contributions are in, their sum was sent to the parent, and its result is
		       awaited */
};

struct acked_slot {
	struct fanin_slot_tag tag; /* the slot's block; `busy` admits one worker at a time */
	enum acked_phase phase;
	uint8_t repeats;        /* DONE: how often the timer has sent the result again */
	struct fanin_hdr first; /* the block's first contribution: data type, operator, count and
				   root are the block's */
	fanin_kernel_fn combine;
	struct rte_mbuf *kept;   /* OPEN: the sum so far; SENT: the packet sent to the parent; DONE:
				    the result, or NULL: all children have it */
	uint64_t present;        /* OPEN: children whose contribution is in */
	uint64_t unacknowledged; /* DONE: children that have not acknowledged the result */
	struct fanin_ranks missing; /* SENT: as far as the parent has told */
	uint64_t begun_ns;
};

enum {
	ACKED_ACKNOWLEDGED,
	ACKED_REPEATED,
	ACKED_NO_PACKET,
};

static const struct fanin_counter acked_counters[] = {
	[ACKED_ACKNOWLEDGED] = { "acknowledged", "results that a child has acknowledged" },
	[ACKED_REPEATED] = { "repeated",
			     "results sent again because a child had not acknowledged them" },
	[ACKED_NO_PACKET] = { "no_packet",
			      "acknowledgements not sent to the parent for want of a buffer" },
	{ 0 },
};

enum {
	ACKED_REPEAT_US,
};

static const struct fanin_parameter acked_parameters[] = {
	[ACKED_REPEAT_US] = { "repeat_us",
			      "us until a result goes again to those who have not acknowledged it",
			      10, 1000000, 1000 },
	{ 0 },
};

static uint64_t
acked_timeout_ns(const struct fanin_job_params *job)
{
	return job->parameters[ACKED_REPEAT_US] * 1000;
}

static void
release(struct fanin_handler_ctx *ctx, struct acked_slot *slot)
{
	if (slot->kept != NULL)
		fanin_release(ctx, slot->kept);
	slot->kept = NULL;
}

/* ------------------------------------------------------------------ packets of this switch */

/* Puts headers before the payload of an mbuf whose only reference is the slot's. */
static void
make_frame(struct fanin_handler_ctx *ctx, const struct acked_slot *slot, bool up,
	   struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr =
		fanin_frame_make(ctx, up ? FANIN_TYPE_CONTRIBUTION : FANIN_TYPE_RESULT,
				 slot->tag.block,
				 slot->first.count * fanin_dtype_size(slot->first.dtype), mbuf);

	hdr->dtype = slot->first.dtype;
	hdr->op = slot->first.op;
	hdr->count = slot->first.count;
	hdr->root = slot->first.root;
	hdr->contributions = up ? job->n_below : job->n_ranks;
	/* The same packet is sent again if a child asks for it. */
	if (up)
		hdr->flags = FANIN_FLAG_RETRANSMIT;
	fanin_seal(ctx, up ? FANIN_TAG_UP : FANIN_TAG_DOWN, mbuf);
}

/* Sends the block's result to children; the slot keeps its reference. */
static void
send_result(struct fanin_handler_ctx *ctx, const struct acked_slot *slot, uint64_t children)
{
	rte_mbuf_refcnt_update(slot->kept, (int16_t)__builtin_popcountll(children));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, slot->kept, children,
		   slot->kept->data_len - FANIN_PAYLOAD_OFFSET);
}

static void
send_up(struct fanin_handler_ctx *ctx, const struct acked_slot *slot)
{
	rte_mbuf_refcnt_update(slot->kept, 1);
	fanin_emit(ctx, FANIN_EMIT_PARENT, slot->kept, 0, 0);
}

/*
 * Acknowledges the parent's result of a block. Without a buffer the parent repeats the result, as
 * after a loss.
 */
static void
acknowledge(struct fanin_handler_ctx *ctx, uint32_t block)
{
	struct rte_mbuf *mbuf = fanin_take(ctx);

	if (mbuf == NULL) {
		ctx->stats->own[ACKED_NO_PACKET]++;
		return;
	}
	fanin_frame_make(ctx, (enum fanin_type)ACKED_TYPE_ACK, block, 0, mbuf);
	fanin_frame_send_up(ctx, mbuf);
}

/* ------------------------------------------------------------------ a block */

/* The slot has the block's result: sends it to all children and starts the timer. */
static void
publish(struct fanin_handler_ctx *ctx, struct acked_slot *slot, uint32_t index)
{
	make_frame(ctx, slot, false, slot->kept);
	slot->phase = ACKED_DONE;
	slot->unacknowledged = ctx->job->children;
	slot->repeats = 0;
	send_result(ctx, slot, ctx->job->children);
	(void)fanin_timer_arm(ctx, index, slot->tag.block);
	ctx->stats->results++;
	/*
	 * Workers take turns in a slot, and the last one's burst may have begun before the first
	 * one's.
	 */
	if (ctx->now_ns > slot->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - slot->begun_ns;
}

/* Handles the completion of a block: all contributions are in. */
static void
finish(struct fanin_handler_ctx *ctx, struct acked_slot *slot, uint32_t index)
{
	const struct fanin_job_params *job = ctx->job;
	fanin_finish_fn divide;

	if (job->has_parent) {
		make_frame(ctx, slot, true, slot->kept);
		slot->phase = ACKED_SENT;
		slot->missing = (struct fanin_ranks){ 0 };
		send_up(ctx, slot);
		ctx->stats->upward++;
		return;
	}
	divide = fanin_kernel_finish(job->isa, slot->first.dtype, slot->first.op);
	if (divide != NULL)
		divide(rte_pktmbuf_mtod_offset(slot->kept, void *, FANIN_PAYLOAD_OFFSET),
		       job->n_ranks, slot->first.count);
	publish(ctx, slot, index);
}

/*
 * Gives the slot to the next block, if it is that block's turn. Its sender has the result of the
 * block before it, which all ranks have contributed to, as they had this slot's last result: nobody
 * will ask for that again.
 */
static bool
begin(struct fanin_handler_ctx *ctx, struct acked_slot *slot, uint32_t index,
      const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint32_t n_slots = job->slots.mask + 1;
	const bool is_new_run = slot->tag.epoch != ctx->epoch;
	const uint32_t last = is_new_run ? index - n_slots : slot->tag.block;
	fanin_kernel_fn combine;

	*reason = FANIN_REASON_EPOCH;
	if (is_new_run && slot->tag.epoch != 0 && fanin_block_before(ctx->epoch, slot->tag.epoch))
		return false;
	*reason = FANIN_REASON_BLOCK_STALE;
	if (!fanin_block_before(last, hdr->block))
		return false;
	*reason = FANIN_REASON_BLOCK_WINDOW;
	if (hdr->block - last != n_slots || (!is_new_run && slot->phase != ACKED_DONE))
		return false;
	*reason = FANIN_REASON_PAYLOAD;
	if (packet->payload_len > job->payload_bytes)
		return false;
	/*
	 * Sums in f32 of shorter types take more than one kernel, which this handler does not
	 * support, nor results that go to their owner only.
	 */
	*reason = FANIN_REASON_OPERATION;
	combine = fanin_kernel(job->isa, hdr->dtype, hdr->op);
	if (combine == NULL || (job->wide && fanin_operation_widens(hdr->dtype, hdr->op)) ||
	    fanin_root_is_owner(hdr->root))
		return false;
	release(ctx, slot);
	fanin_slot_take(&slot->tag, ctx, hdr->block);
	slot->phase = ACKED_OPEN;
	slot->first = *hdr;
	slot->combine = combine;
	slot->present = 0;
	slot->begun_ns = ctx->now_ns;
	ctx->stats->blocks++;
	return true;
}

/* Returns the ranks behind children whose contribution is missing. */
static struct fanin_ranks
ranks_missing(const struct fanin_job_params *job, const struct acked_slot *slot)
{
	uint64_t children = job->children & ~slot->present;
	struct fanin_ranks ranks = { 0 };

	if (slot->phase == ACKED_SENT)
		return slot->missing;
	for (; children != 0; children &= children - 1)
		fanin_ranks_merge(&ranks, &job->child_ranks[__builtin_ctzll(children)]);
	return ranks;
}

/*
 * Answers a repeated contribution: the child learns that it had arrived, and which ranks the block
 * waits for.
 */
static enum fanin_verdict
answer_waiting(struct fanin_handler_ctx *ctx, const struct acked_slot *slot,
	       const struct fanin_packet *packet)
{
	const struct fanin_ranks missing = ranks_missing(ctx->job, slot);
	struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_hdr asked = *hdr;

	fanin_frame_answer_to(packet->headers);
	fanin_wire_encode_header(hdr, (enum fanin_type)ACKED_TYPE_WAITING, ctx->job->id, ctx->epoch,
				 ctx->job->keys.down);
	hdr->rank = asked.rank;
	hdr->block = asked.block;
	fanin_ranks_write(packet->headers + 1, &missing, ctx->job->n_ranks);
	fanin_emit(ctx, FANIN_EMIT_REPLY, packet->mbuf, UINT64_C(1) << packet->child,
		   fanin_ranks_bytes(ctx->job->n_ranks));
	ctx->stats->pendings++;
	return FANIN_VERDICT_HELD;
}

/*
 * A child repeats its contribution because it lacks the result. Duplicates made by the network get
 * no answer.
 */
static enum fanin_verdict
take_again(struct fanin_handler_ctx *ctx, struct acked_slot *slot,
	   const struct fanin_packet *packet)
{
	const uint64_t child = UINT64_C(1) << packet->child;

	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;
	if (slot->phase == ACKED_DONE) {
		if ((slot->unacknowledged & child) == 0)
			return FANIN_VERDICT_FREE;
		send_result(ctx, slot, child);
		ctx->stats->repeats++;
		return FANIN_VERDICT_FREE;
	}
	if (slot->phase == ACKED_SENT) {
		send_up(ctx, slot);
		ctx->stats->upward_repeats++;
	}
	return answer_waiting(ctx, slot, packet);
}

/* Handles a contribution, in a slot that has been entered. */
static enum fanin_verdict
take_contribution(struct fanin_handler_ctx *ctx, struct acked_slot *slot, uint32_t index,
		  struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint64_t child = UINT64_C(1) << packet->child;
	bool is_first;

	if (fanin_wire_is_empty(hdr))
		return fanin_drop(reason, FANIN_REASON_FLAGS);
	if (!fanin_slot_holds(&slot->tag, ctx, hdr->block) &&
	    !begin(ctx, slot, index, packet, reason))
		return FANIN_VERDICT_DROP;
	if (fanin_wire_shape(hdr) != fanin_wire_shape(&slot->first))
		return fanin_drop(reason, FANIN_REASON_MISMATCH);
	if (slot->phase != ACKED_OPEN || (slot->present & child) != 0)
		return take_again(ctx, slot, packet);
	is_first = slot->kept == NULL;
	if (is_first)
		slot->kept = packet->mbuf;
	else
		slot->combine(rte_pktmbuf_mtod_offset(slot->kept, void *, FANIN_PAYLOAD_OFFSET),
			      packet->payload, slot->first.count);
	slot->present |= child;
	ctx->stats->contributions++;
	if (slot->present == ctx->job->children)
		finish(ctx, slot, index);
	return is_first ? FANIN_VERDICT_HELD : FANIN_VERDICT_FREE;
}

static enum fanin_verdict
acked_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		   struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct acked_slot *slot = memory;
	enum fanin_verdict verdict;

	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	verdict = take_contribution(ctx, slot, index, packet, reason);
	fanin_slot_leave(&slot->tag);
	return verdict;
}

/* ------------------------------------------------------------------ other packets */

/* A child has the block's result. After the last acknowledgement the buffer is freed. */
static void
take_ack(struct fanin_handler_ctx *ctx, struct acked_slot *slot, const struct fanin_packet *packet)
{
	const uint64_t child = UINT64_C(1) << packet->child;

	if (!fanin_slot_holds(&slot->tag, ctx, packet->headers->fanin.block) ||
	    slot->phase != ACKED_DONE || (slot->unacknowledged & child) == 0)
		return;
	slot->unacknowledged &= ~child;
	ctx->stats->own[ACKED_ACKNOWLEDGED]++;
	if (slot->unacknowledged == 0)
		release(ctx, slot);
}

/* The parent's result. If it has been here before, its acknowledgement was lost. */
static enum fanin_verdict
take_result(struct fanin_handler_ctx *ctx, struct acked_slot *slot, uint32_t index,
	    struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool is_current = fanin_slot_holds(&slot->tag, ctx, hdr->block);

	if (is_current && slot->phase == ACKED_SENT) {
		if (fanin_wire_is_empty(hdr) ||
		    fanin_wire_shape(hdr) != fanin_wire_shape(&slot->first))
			return fanin_drop(reason, FANIN_REASON_MISMATCH);
		acknowledge(ctx, hdr->block);
		release(ctx, slot);
		slot->kept = packet->mbuf;
		publish(ctx, slot, index);
		return FANIN_VERDICT_HELD;
	}
	ctx->stats->duplicates++;
	if (slot->tag.epoch == ctx->epoch &&
	    (is_current ? slot->phase == ACKED_DONE
			: fanin_block_before(hdr->block, slot->tag.block)))
		acknowledge(ctx, hdr->block);
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
acked_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
	    struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct acked_slot *slot = memory;
	enum fanin_verdict verdict = FANIN_VERDICT_FREE;

	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	if (packet->headers->fanin.type == ACKED_TYPE_ACK)
		take_ack(ctx, slot, packet);
	else if (packet->headers->fanin.type == FANIN_TYPE_RESULT)
		verdict = take_result(ctx, slot, index, packet, reason);
	else if (fanin_slot_holds(&slot->tag, ctx, packet->headers->fanin.block) &&
		 packet->payload_len >= fanin_ranks_bytes(ctx->job->n_ranks))
		fanin_ranks_read(&slot->missing, packet->payload, ctx->job->n_ranks);
	fanin_slot_leave(&slot->tag);
	return verdict;
}

/* ------------------------------------------------------------------ the timer */

static bool
acked_expired(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, uint32_t block)
{
	struct acked_slot *slot = memory;

	if (!fanin_slot_enter(&slot->tag))
		return false;
	if (fanin_slot_holds(&slot->tag, ctx, block) && slot->phase == ACKED_DONE &&
	    slot->unacknowledged != 0 && slot->repeats < MAX_REPEATS) {
		const unsigned int n = (unsigned int)__builtin_popcountll(slot->unacknowledged);

		slot->repeats++;
		send_result(ctx, slot, slot->unacknowledged);
		ctx->stats->repeats += n;
		ctx->stats->own[ACKED_REPEATED] += n;
		(void)fanin_timer_arm(ctx, index, block);
	}
	fanin_slot_leave(&slot->tag);
	return true;
}

static void
acked_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	release(ctx, memory);
}

/* ------------------------------------------------------------------ the declaration */

static const uint8_t acked_types[] = { FANIN_TYPE_RESULT, ACKED_TYPE_ACK, ACKED_TYPE_WAITING, 0 };

static struct fanin_handler acked_handler = {
	.name = "acked",
	.description = "dense reduction, one block at a time, whose results are acknowledged",
	.makes_packets = true,
	.slot_mbufs = { .fixed = 1 },
	.counters = acked_counters,
	.parameters = acked_parameters,
	.slot_bytes = sizeof(struct acked_slot),
	.contribution = acked_contribution,
	.packets = acked_packets,
	.types = acked_types,
	.other = acked_other,
	.timeout_ns = acked_timeout_ns,
	.expired = acked_expired,
	.slot_release = acked_slot_release,
};

FANIN_HANDLER_REGISTER(acked_handler)
