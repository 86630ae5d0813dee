/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PA-ATP's aggregator, and what happens to a gradient that meets it (section III.A;
 * protocols/pa_atp/README.md, "What the aggregating switch does"). A sum carries the set of the
 * ranks in it, so duplicates and late gradients are never counted twice. Called by the worker that
 * has entered the slot.
 */
#include "protocols/pa_atp/switch/pa_atp.h"

static void
set_phase(struct pa_atp_slot *slot, enum pa_atp_phase phase)
{
	slot->phase = (uint8_t)phase;
}

void
pa_atp_give_up(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot)
{
	if (slot->phase == PA_ATP_EMPTY)
		return;
	if (slot->mbuf != NULL)
		fanin_release(ctx, slot->mbuf);
	slot->mbuf = NULL;
	pa_atp_unuse_slot(slot);
	set_phase(slot, PA_ATP_EMPTY);
	fanin_slot_empty(&slot->tag);
}

static struct fanin_headers *
sum_headers(const struct pa_atp_slot *slot)
{
	return rte_pktmbuf_mtod(slot->mbuf, struct fanin_headers *);
}

/*
 * Turns the sum into a frame to the server. Its own congestion mark moves into the flag here, so
 * that the path to the server can set another one.
 */
static void
make_sum(const struct fanin_handler_ctx *ctx, const struct pa_atp_slot *slot, enum fanin_type type,
	 uint64_t members)
{
	const struct pa_atp_state *state = ctx->state;
	struct fanin_headers *headers = sum_headers(slot);
	const struct pa_atp_upward upward = {
		.type = type,
		.flags = (uint16_t)((headers->fanin.flags & FANIN_FLAG_EMPTY) |
				    (slot->ce ? FANIN_FLAG_CE : 0)),
		.contributions = (uint16_t)__builtin_popcountll(slot->members),
		.progress = __atomic_load_n(&state->progress, __ATOMIC_RELAXED),
		.members = members,
	};

	if ((headers->ip.tos & PA_ATP_ECN_MASK) == PA_ATP_ECN_CE)
		headers->ip.tos = (uint8_t)((headers->ip.tos & ~PA_ATP_ECN_MASK) | PA_ATP_ECN_ECT0);
	pa_atp_make_upward(ctx, &upward, slot->mbuf);
}

/* The sum has all ranks: sends it to the server, and keeps it until the result passes. */
static void
send_sum(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot)
{
	make_sum(ctx, slot, FANIN_TYPE_CONTRIBUTION, 0);
	set_phase(slot, PA_ATP_SENT);
	slot->sent_ns = ctx->now_ns;
	slot->is_repeated = false;
	rte_mbuf_refcnt_set(slot->mbuf, 2);
	fanin_emit(ctx, FANIN_EMIT_PARENT, slot->mbuf, 0, 0);
	ctx->stats->upward++;
}

static void
send_sum_again(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot)
{
	/* Not modified, because a NIC may still be reading it. */
	fanin_frame_hold(slot->mbuf);
	slot->sent_ns = ctx->now_ns;
	slot->is_repeated = true;
	fanin_emit(ctx, FANIN_EMIT_PARENT, slot->mbuf, 0, 0);
	ctx->stats->upward_repeats++;
}

/*
 * Marks a block as split: data of these ranks goes to the server, and all later data of the block
 * follows it. members: may be none.
 */
static void
split(struct pa_atp_block *entry, uint64_t members)
{
	__atomic_store_n(&entry->split, 1, __ATOMIC_RELAXED);
	__atomic_fetch_or(&entry->passed, members, __ATOMIC_RELAXED);
}

/* MERGING: sends the sum of some ranks to the server, and empties its slot. */
static void
flush(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, struct pa_atp_block *entry)
{
	make_sum(ctx, slot, FANIN_TYPE_PARTIAL, slot->members);
	fanin_emit(ctx, FANIN_EMIT_PARENT, slot->mbuf, 0, 0);
	slot->mbuf = NULL;
	split(entry, slot->members);
	pa_atp_give_up(ctx, slot);
	ctx->stats->upward++;
	ctx->stats->own[PA_ATP_FLUSHES]++;
}

static bool
is_of(const struct fanin_handler_ctx *ctx, const struct pa_atp_slot *slot, uint32_t block,
      enum pa_atp_phase phase)
{
	return slot->phase == phase && fanin_slot_holds(&slot->tag, ctx, block);
}

void
pa_atp_flush_block(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block)
{
	const struct pa_atp_state *state = ctx->state;
	struct pa_atp_block *entry;

	/* Only the asker lacks the result, or its packet is late. */
	if (pa_atp_is_finished(ctx->job, state, block))
		return;
	entry = pa_atp_open_block(ctx, block);
	if (is_of(ctx, slot, block, PA_ATP_MERGING))
		flush(ctx, slot, entry);
	else if (!is_of(ctx, slot, block, PA_ATP_SENT))
		split(entry, 0);
	else if (ctx->now_ns >=
		 slot->sent_ns + __atomic_load_n(&state->round_trip_ns, __ATOMIC_RELAXED))
		send_sum_again(ctx, slot);
}

void
pa_atp_finish_slot(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t block)
{
	pa_atp_finish_block(ctx, block);
	if (slot->phase == PA_ATP_EMPTY || !fanin_slot_holds(&slot->tag, ctx, block))
		return;
	/*
	 * Workers share the slot, and the last worker's round may have begun before the first
	 * one's.
	 */
	if (ctx->now_ns > slot->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - slot->begun_ns;
	pa_atp_give_up(ctx, slot);
}

void
pa_atp_expire(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot, uint32_t index,
	      uint32_t block)
{
	if (!is_of(ctx, slot, block, PA_ATP_MERGING) && !is_of(ctx, slot, block, PA_ATP_SENT))
		return;
	if (pa_atp_is_finished(ctx->job, ctx->state, block)) {
		pa_atp_give_up(ctx, slot);
	} else if (slot->phase == PA_ATP_MERGING) {
		flush(ctx, slot, pa_atp_open_block(ctx, block));
		ctx->stats->own[PA_ATP_EXPIRED]++;
	} else if (ctx->now_ns < slot->sent_ns + 2 * ctx->timers->timeout_ns) {
		(void)fanin_timer_arm(ctx, index, block);
	} else {
		/*
		 * The sum or its result is lost. The ranks still have their data, because they have
		 * no result, and the server asks for it.
		 */
		split(pa_atp_open_block(ctx, block), slot->members);
		pa_atp_give_up(ctx, slot);
		ctx->stats->own[PA_ATP_EXPIRED]++;
	}
}

/*
 * True if a block may take this slot. The slot may be empty, or hold data of an earlier run, or a
 * finished block whose result did not pass here.
 */
static bool
is_free(const struct fanin_handler_ctx *ctx, const struct pa_atp_slot *slot)
{
	const struct fanin_slot_tag *tag = &slot->tag;

	if (slot->phase == PA_ATP_EMPTY)
		return true;
	return tag->job == ctx->job->id &&
	       (tag->epoch != ctx->epoch || pa_atp_is_finished(ctx->job, ctx->state, tag->block));
}

static bool
has_flag(const struct pa_atp_gradient *gradient, enum fanin_flag flag)
{
	return (gradient->packet->headers->fanin.flags & flag) != 0;
}

/* Acknowledges the gradient in its own packet, which is not needed any more. */
static enum fanin_verdict
acknowledge(struct fanin_handler_ctx *ctx, const struct pa_atp_gradient *gradient)
{
	pa_atp_send_gack(ctx, gradient->packet, gradient->rank, true);
	return FANIN_VERDICT_HELD;
}

/* Acknowledges a gradient that changes nothing. */
static enum fanin_verdict
acknowledge_duplicate(struct fanin_handler_ctx *ctx, const struct pa_atp_gradient *gradient)
{
	ctx->stats->duplicates++;
	return acknowledge(ctx, gradient);
}

/* Acknowledges the gradient, and sends it on to the server unmerged. */
static enum fanin_verdict
pass(struct fanin_handler_ctx *ctx, const struct pa_atp_gradient *gradient,
     struct pa_atp_block *entry)
{
	const struct fanin_packet *packet = gradient->packet;
	const uint64_t before = __atomic_load_n(&entry->passed, __ATOMIC_RELAXED);
	const bool ce = pa_atp_has_ce(packet->headers);

	ctx->stats->contributions += (uint64_t)__builtin_popcountll(gradient->members & ~before);
	split(entry, gradient->members);
	pa_atp_send_gack(ctx, packet, gradient->rank, false);
	packet->headers->fanin.flags |= ce ? FANIN_FLAG_CE : 0;
	return pa_atp_pass_up(ctx, packet, FANIN_TYPE_PARTIAL, gradient->members);
}

/* Handles a gradient of a split block. It counts as an overflow if another block has the slot. */
static enum fanin_verdict
follow(struct fanin_handler_ctx *ctx, const struct pa_atp_slot *slot,
       const struct pa_atp_gradient *gradient, struct pa_atp_block *entry)
{
	const uint64_t passed = __atomic_load_n(&entry->passed, __ATOMIC_RELAXED);

	if ((passed & gradient->members) != 0 && !has_flag(gradient, FANIN_FLAG_RETRANSMIT))
		return acknowledge_duplicate(ctx, gradient);
	if (is_free(ctx, slot)) {
		ctx->stats->own[PA_ATP_PASSED]++;
	} else {
		ctx->stats->own[PA_ATP_OVERFLOWS]++;
		pa_atp_note_overflow(ctx, entry, gradient->members);
	}
	return pass(ctx, gradient, entry);
}

/* Takes a free slot for the gradient's block. */
static enum fanin_verdict
take_slot(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	  const struct pa_atp_gradient *gradient)
{
	const struct fanin_packet *packet = gradient->packet;
	const uint32_t block = packet->headers->fanin.block;

	pa_atp_give_up(ctx, slot);
	pa_atp_send_gack(ctx, packet, gradient->rank, false);
	fanin_slot_take(&slot->tag, ctx, block);
	slot->mbuf = packet->mbuf;
	slot->members = gradient->members;
	slot->add = gradient->add;
	slot->ce = pa_atp_has_ce(packet->headers);
	slot->begun_ns = ctx->now_ns;
	set_phase(slot, PA_ATP_MERGING);
	pa_atp_use_slot(ctx, slot);
	ctx->stats->contributions++;
	if (slot->members == pa_atp_all_ranks(ctx->job))
		send_sum(ctx, slot);
	(void)fanin_timer_arm(ctx, gradient->index, block);
	return FANIN_VERDICT_HELD;
}

/* Combines the gradient of a rank that is absent. */
static enum fanin_verdict
merge(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
      const struct pa_atp_gradient *gradient)
{
	const struct fanin_packet *packet = gradient->packet;
	struct fanin_hdr *sum = &sum_headers(slot)->fanin;
	const bool ce = pa_atp_has_ce(packet->headers);

	if (fanin_wire_is_empty(&packet->headers->fanin)) {
		acknowledge(ctx, gradient);
	} else if (fanin_wire_is_empty(sum)) {
		/* The first one with data becomes the sum. */
		pa_atp_send_gack(ctx, packet, gradient->rank, false);
		fanin_release(ctx, slot->mbuf);
		slot->mbuf = packet->mbuf;
	} else {
		slot->add(sum + 1, packet->payload, sum->count);
		acknowledge(ctx, gradient);
	}
	slot->members |= gradient->members;
	slot->ce = slot->ce || ce;
	ctx->stats->contributions++;
	if (slot->members == pa_atp_all_ranks(ctx->job))
		send_sum(ctx, slot);
	return FANIN_VERDICT_HELD;
}

/* Handles a gradient whose block has the slot. */
static enum fanin_verdict
take_in_block(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	      const struct pa_atp_gradient *gradient, struct pa_atp_block *entry,
	      enum fanin_reason *reason)
{
	const bool again = has_flag(gradient, FANIN_FLAG_RETRANSMIT);

	if (fanin_wire_shape(&sum_headers(slot)->fanin) !=
	    fanin_wire_shape(&gradient->packet->headers->fanin))
		return fanin_drop(reason, FANIN_REASON_MISMATCH);
	if ((slot->members & gradient->members) == 0)
		return merge(ctx, slot, gradient);
	acknowledge_duplicate(ctx, gradient);
	if (again && slot->phase == PA_ATP_SENT)
		send_sum_again(ctx, slot);
	else if (again)
		flush(ctx, slot, entry);
	return FANIN_VERDICT_HELD;
}

/*
 * Handles DIRECT packets, and sums of several ranks, which no leaf makes. They go to the server,
 * after the slot's own sum.
 */
static enum fanin_verdict
pass_directly(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
	      const struct pa_atp_gradient *gradient, struct pa_atp_block *entry)
{
	if (is_of(ctx, slot, gradient->packet->headers->fanin.block, PA_ATP_MERGING))
		flush(ctx, slot, entry);
	ctx->stats->own[PA_ATP_PASSED]++;
	return pass(ctx, gradient, entry);
}

enum fanin_verdict
pa_atp_take_gradient(struct fanin_handler_ctx *ctx, struct pa_atp_slot *slot,
		     const struct pa_atp_gradient *gradient, enum fanin_reason *reason)
{
	const uint32_t block = gradient->packet->headers->fanin.block;
	struct pa_atp_block *entry;

	if (pa_atp_is_finished(ctx->job, ctx->state, block))
		return acknowledge_duplicate(ctx, gradient);
	entry = pa_atp_open_block(ctx, block);
	if (has_flag(gradient, FANIN_FLAG_DIRECT) ||
	    (gradient->members & (gradient->members - 1)) != 0)
		return pass_directly(ctx, slot, gradient, entry);
	if (slot->phase != PA_ATP_EMPTY && fanin_slot_holds(&slot->tag, ctx, block))
		return take_in_block(ctx, slot, gradient, entry, reason);
	if (__atomic_load_n(&entry->split, __ATOMIC_RELAXED) != 0)
		return follow(ctx, slot, gradient, entry);
	if (is_free(ctx, slot))
		return take_slot(ctx, slot, gradient);
	pa_atp_note_overflow(ctx, entry, gradient->members);
	ctx->stats->own[PA_ATP_OVERFLOWS]++;
	return pass(ctx, gradient, entry);
}
