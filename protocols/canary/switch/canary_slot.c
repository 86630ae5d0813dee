/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary's descriptor, and what happens to data that meets it (sections 3.1.1, 3.1.2 and 3.2.1;
 * protocols/canary/README.md, "What a switch does"). Called by the worker that has entered the
 * slot.
 */
#include "protocols/canary/switch/canary.h"

/* The fraction of the shortest timer below which the rest of a wait is skipped. */
#define LITTLE_SHARE 4

static void
set_phase(struct canary_slot *slot, enum canary_phase phase)
{
	slot->phase = (uint8_t)phase;
}

static struct fanin_hdr *
sum_header(const struct canary_slot *slot)
{
	return &rte_pktmbuf_mtod(slot->mbuf, struct fanin_headers *)->fanin;
}

void
canary_give_up(struct fanin_handler_ctx *ctx, struct canary_slot *slot)
{
	if (slot->phase == CANARY_EMPTY)
		return;
	if (slot->mbuf != NULL)
		fanin_release(ctx, slot->mbuf);
	slot->mbuf = NULL;
	__atomic_fetch_sub(&slot->state->used, 1, __ATOMIC_RELAXED);
	set_phase(slot, CANARY_EMPTY);
	fanin_slot_empty(&slot->tag);
}

/* Mixes a block's number, so that blocks of one leader use all links in turn. */
static uint32_t
flow_of(const struct fanin_handler_ctx *ctx, uint32_t block)
{
	uint32_t mixed = (block ^ ctx->job->id << 16) * UINT32_C(0x9e3779b1);

	return mixed ^ mixed >> 15;
}

/* Sends data on towards the block's leader; data of other ranks may meet it there. */
static void
send_on(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint32_t block)
{
	fanin_emit_route_together(ctx, mbuf, flow_of(ctx, block));
}

static bool
holds(const struct fanin_handler_ctx *ctx, const struct canary_slot *slot, uint32_t run,
      uint32_t block)
{
	return slot->phase != CANARY_EMPTY && fanin_slot_holds(&slot->tag, ctx, block) &&
	       slot->run == run;
}

/* OPEN: sends the sum on, and keeps the ports. */
static void
send_sum(struct fanin_handler_ctx *ctx, struct canary_slot *slot)
{
	struct fanin_hdr *hdr = sum_header(slot);

	hdr->members = slot->members;
	hdr->contributions = (uint16_t)__builtin_popcountll(slot->members);
	send_on(ctx, slot->mbuf, hdr->block);
	slot->mbuf = NULL;
	slot->sent_ns = ctx->now_ns;
	set_phase(slot, CANARY_SENT);
	ctx->stats->own[CANARY_SUMS]++;
}

/* OPEN: true if no more data can be expected. */
static bool
is_complete(const struct fanin_handler_ctx *ctx, const struct canary_slot *slot)
{
	const uint64_t expected = canary_expected(ctx->job, slot->state,
						  canary_leader(ctx, slot->tag.block));

	return expected != 0 && (expected & ~slot->members) == 0;
}

static void
send_if_complete(struct fanin_handler_ctx *ctx, struct canary_slot *slot)
{
	if (!is_complete(ctx, slot))
		return;
	send_sum(ctx, slot);
	ctx->stats->own[CANARY_COMPLETE]++;
}

static void
note(const struct fanin_handler_ctx *ctx, struct canary_slot *slot,
     const struct fanin_packet *packet)
{
	const uint64_t members = packet->headers->fanin.members;

	slot->ports |= UINT64_C(1) << packet->child;
	if ((members & ~slot->seen) != 0 && ctx->now_ns > slot->last_ns)
		slot->last_ns = ctx->now_ns;
	slot->seen |= members;
}

/* True if the job may have one more slot. */
static bool
has_share(const struct fanin_job_params *job, const struct canary_state *state)
{
	const uint64_t share = job->parameters[FANIN_CANARY_SHARE] *
			       (job->slots.mask + UINT64_C(1));

	return __atomic_load_n(&state->used, __ATOMIC_RELAXED) < (share + 99) / 100;
}

/*
 * True if a block may take this slot. The slot may be empty. It may belong to an earlier run of the
 * job, or to a block whose result all ranks have (one of them has sent this block). Or its result
 * seems to be lost.
 */
static bool
is_free(const struct fanin_handler_ctx *ctx, const struct canary_slot *slot,
	const struct fanin_hdr *hdr)
{
	const struct fanin_job_params *job = ctx->job;
	const uint64_t hold_ns = job->parameters[FANIN_CANARY_HOLD] * 1000;

	if (slot->phase == CANARY_EMPTY)
		return has_share(job, ctx->state);
	if (slot->phase == CANARY_SENT && ctx->now_ns > slot->sent_ns &&
	    ctx->now_ns - slot->sent_ns > hold_ns)
		return slot->tag.job == job->id || has_share(job, ctx->state);
	if (slot->tag.job != job->id)
		return false;
	if (slot->run != hdr->epoch)
		return fanin_block_before(slot->run, hdr->epoch);
	return !fanin_block_before(hdr->block, slot->tag.block + 2u * job->window);
}

/*
 * OPEN: waits for the rest of the timeout, using the longest timers that fit, or sends the sum. The
 * sum is sent when the timeout is over, when the rest is too short for another timer, and when no
 * timer is available, because a block without one would wait for ever.
 */
static void
wait_on(struct fanin_handler_ctx *ctx, struct canary_slot *slot, uint32_t index, uint32_t block)
{
	const uint64_t now_ns = ctx->now_ns;
	const uint64_t little_ns = ctx->timers->timeout_ns / LITTLE_SHARE;

	if (slot->due_ns <= now_ns + little_ns ||
	    !fanin_timer_arm_within(ctx, slot->due_ns - now_ns, index, block))
		send_sum(ctx, slot);
}

/* Opens a descriptor in a free slot, with the packet as its sum. */
static void
open_slot(struct fanin_handler_ctx *ctx, struct canary_slot *slot, const struct canary_data *data)
{
	const struct fanin_packet *packet = data->packet;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	struct canary_state *state = ctx->state;

	if (slot->phase != CANARY_EMPTY)
		ctx->stats->own[CANARY_GIVEN_UP]++;
	canary_give_up(ctx, slot);
	fanin_slot_take(&slot->tag, ctx, hdr->block);
	__atomic_fetch_add(&state->used, 1, __ATOMIC_RELAXED);
	set_phase(slot, CANARY_OPEN);
	slot->state = state;
	slot->run = hdr->epoch;
	slot->mbuf = packet->mbuf;
	slot->members = hdr->members;
	slot->add = data->add;
	slot->seen = 0;
	slot->ports = 0;
	slot->begun_ns = ctx->now_ns;
	slot->last_ns = ctx->now_ns;
	slot->due_ns = ctx->now_ns +
		       canary_timeout_ns(ctx->job, state, canary_leader(ctx, hdr->block));
	note(ctx, slot, packet);
	ctx->stats->blocks++;
	ctx->stats->contributions++;
	send_if_complete(ctx, slot);
	if (slot->phase == CANARY_OPEN)
		wait_on(ctx, slot, data->index, hdr->block);
}

/*
 * Another block has the slot: sends the packet straight to the leader, with the ports at which the
 * result is to leave this switch (section 3.2.1). Only the first such switch adds them; switches
 * after it pass the packet on.
 */
static enum fanin_verdict
collide(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;

	hdr->flags |= FANIN_FLAG_DIRECT;
	hdr->number = ctx->job->result_headers.ip.src_be;
	hdr->rank = packet->child;
	fanin_emit_route(ctx, packet->mbuf, true);
	ctx->stats->own[CANARY_COLLISIONS]++;
	return FANIN_VERDICT_HELD;
}

/* OPEN: combines data of other ranks with the sum. */
static enum fanin_verdict
merge(struct fanin_handler_ctx *ctx, struct canary_slot *slot, const struct fanin_packet *packet)
{
	struct fanin_hdr *sum = sum_header(slot);
	enum fanin_verdict verdict = FANIN_VERDICT_FREE;

	if (fanin_wire_is_empty(sum) && !fanin_wire_is_empty(&packet->headers->fanin)) {
		/* The first packet with data becomes the sum. */
		fanin_release(ctx, slot->mbuf);
		slot->mbuf = packet->mbuf;
		slot->members |= packet->headers->fanin.members;
		verdict = FANIN_VERDICT_HELD;
	} else {
		slot->members |= packet->headers->fanin.members;
		if (!fanin_wire_is_empty(&packet->headers->fanin))
			slot->add(sum + 1, packet->payload, sum->count);
	}
	ctx->stats->contributions++;
	ctx->stats->own[CANARY_MERGED]++;
	send_if_complete(ctx, slot);
	return verdict;
}

/* OPEN: replaces the sum by a packet that has the sum's ranks, and more. */
static enum fanin_verdict
replace(struct fanin_handler_ctx *ctx, struct canary_slot *slot, const struct fanin_packet *packet)
{
	fanin_release(ctx, slot->mbuf);
	slot->mbuf = packet->mbuf;
	slot->members = packet->headers->fanin.members;
	send_if_complete(ctx, slot);
	return FANIN_VERDICT_HELD;
}

static enum fanin_verdict
take_duplicate(struct fanin_handler_ctx *ctx)
{
	ctx->stats->duplicates++;
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
take_in_open(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
	     const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	note(ctx, slot, packet);
	if (fanin_wire_shape(sum_header(slot)) != fanin_wire_shape(hdr) ||
	    rte_pktmbuf_mtod(slot->mbuf, struct fanin_headers *)->ip.dst_be !=
		    packet->headers->ip.dst_be ||
	    ((hdr->members & slot->members) != 0 && (hdr->members & ~slot->members) != 0 &&
	     (slot->members & ~hdr->members) != 0)) {
		/*
		 * The leader reports a wrong shape, and resolves overlapping sets. A packet to
		 * another address is for no leader.
		 */
		send_on(ctx, packet->mbuf, hdr->block);
		ctx->stats->own[CANARY_OVERLAPS]++;
		return FANIN_VERDICT_HELD;
	}
	if ((hdr->members & slot->members) == 0)
		return merge(ctx, slot, packet);
	if ((hdr->members & ~slot->members) == 0)
		return take_duplicate(ctx);
	return replace(ctx, slot, packet);
}

/*
 * SENT: sends a straggler on at once. Data of a rank that was seen may be a duplicate and is
 * dropped; the leader asks for what is lost.
 */
static enum fanin_verdict
take_in_sent(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
	     const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool is_new = (hdr->members & ~slot->seen) != 0;

	note(ctx, slot, packet);
	if (!is_new)
		return take_duplicate(ctx);
	send_on(ctx, packet->mbuf, hdr->block);
	ctx->stats->contributions++;
	ctx->stats->own[CANARY_STRAGGLERS]++;
	return FANIN_VERDICT_HELD;
}

enum fanin_verdict
canary_take_data(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
		 const struct canary_data *data)
{
	const struct fanin_hdr *hdr = &data->packet->headers->fanin;

	if (holds(ctx, slot, hdr->epoch, hdr->block))
		return slot->phase == CANARY_OPEN ? take_in_open(ctx, slot, data->packet)
						  : take_in_sent(ctx, slot, data->packet);
	if (!is_free(ctx, slot, hdr))
		return collide(ctx, data->packet);
	open_slot(ctx, slot, data);
	return FANIN_VERDICT_HELD;
}

uint64_t
canary_take_result(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
		   const struct fanin_hdr *hdr)
{
	uint64_t ports;

	if (!holds(ctx, slot, hdr->epoch, hdr->block))
		return 0;
	ports = slot->ports;
	canary_learn(ctx->job, slot->state, canary_leader(ctx, hdr->block), slot->seen,
		     slot->last_ns - slot->begun_ns);
	/*
	 * Workers share the slot, and the last worker's round may have begun before the first
	 * one's.
	 */
	if (ctx->now_ns > slot->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - slot->begun_ns;
	canary_give_up(ctx, slot);
	return ports;
}

void
canary_expire(struct fanin_handler_ctx *ctx, struct canary_slot *slot, uint32_t index,
	      uint32_t block)
{
	if (slot->phase != CANARY_OPEN || !fanin_slot_holds(&slot->tag, ctx, block))
		return;
	wait_on(ctx, slot, index, block);
}
