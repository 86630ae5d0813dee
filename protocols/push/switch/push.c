/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push reductions (Klenk et al., section IV.C): ranks send blocks without a barrier, and switches
 * combine them in a table with few entries. A sum that does not fit or waits too long goes to the
 * block's home host, with the set of its ranks. The root makes the result of a block only if it has
 * sent no part of it away. protocols/push/README.md explains why this is exact and how losses are
 * handled.
 */
#include "protocols/push/switch/push.h"

#include "protocols/dense/switch/dense.h"
#include "handlers/sums.h"

/* ------------------------------------------------------------------ the table */

static void
unlink_entry(const struct fanin_job_params *job, struct push_set *set, struct push_slot *slot)
{
	if (slot->newer != 0)
		push_slot_at(job, slot->newer - 1)->older = slot->older;
	else
		set->newest = slot->older;
	if (slot->older != 0)
		push_slot_at(job, slot->older - 1)->newer = slot->newer;
	else
		set->oldest = slot->newer;
	set->used--;
}

/* Links the entry as the most recently used one. */
static void
link_entry(const struct fanin_job_params *job, struct push_set *set, struct push_slot *slot,
	   uint32_t index)
{
	slot->newer = 0;
	slot->older = set->newest;
	if (set->newest != 0)
		push_slot_at(job, set->newest - 1)->newer = index + 1;
	else
		set->oldest = index + 1;
	set->newest = index + 1;
	set->used++;
}

static struct push_sum
take_entry(const struct fanin_job_params *job, struct push_set *set, struct push_slot *slot)
{
	const struct push_sum sum = { .mbuf = slot->mbuf, .members = slot->members };

	unlink_entry(job, set, slot);
	slot->mbuf = NULL;
	slot->members = 0;
	return sum;
}

static void
free_entry(struct fanin_handler_ctx *ctx, struct push_set *set, struct push_slot *slot)
{
	if (slot->mbuf != NULL)
		fanin_release(ctx, take_entry(ctx->job, set, slot).mbuf);
}

/*
 * Sends a sum before it is complete. At the root the block is marked before the sum leaves: from
 * then on the root does not complete it.
 */
static void
send_part(struct fanin_handler_ctx *ctx, struct push_slot *slot, struct push_sum sum)
{
	if (ctx->job->has_parent) {
		push_send_up(ctx, slot->block, sum);
		return;
	}
	slot->evicted = true;
	push_send_home(ctx, slot->block, sum);
}

/*
 * Returns whether the slot is of this run. Sums of other runs are never sent: their block numbers
 * stand for other data.
 */
static bool
is_of_run(const struct fanin_handler_ctx *ctx, const struct push_slot *slot)
{
	return slot->epoch == ctx->epoch && slot->parent_epoch == ctx->parent_epoch;
}

/* Makes room for one more entry by evicting the least recently used one. */
static void
make_room(struct fanin_handler_ctx *ctx, struct push_set *set)
{
	const struct fanin_job_params *job = ctx->job;
	const uint64_t entries = job->parameters[FANIN_PUSH_ENTRIES] / push_sets(job);
	struct push_slot *slot;

	if (set->used < entries)
		return;
	slot = push_slot_at(job, set->oldest - 1);
	if (!is_of_run(ctx, slot)) {
		free_entry(ctx, set, slot);
		return;
	}
	ctx->stats->own[PUSH_EVICTED]++;
	send_part(ctx, slot, take_entry(job, set, slot));
}

/* ------------------------------------------------------------------ blocks */

/*
 * Returns whether a child's packet is about the slot's block, or of a newer block that ranks may
 * send already. In the latter case the slot advances to that block. A slot never goes back, so a
 * packet of an earlier use of the slot is not taken for the current one.
 */
static bool
enter_block(struct fanin_handler_ctx *ctx, struct push_set *set, struct push_slot *slot,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint32_t block = packet->headers->fanin.block;

	if (is_of_run(ctx, slot) && slot->block == block)
		return true;
	if (is_of_run(ctx, slot) && fanin_block_before(block, slot->block)) {
		*reason = FANIN_REASON_BLOCK_STALE;
		return false;
	}
	if (slot->epoch != 0 &&
	    (fanin_block_before(ctx->epoch, slot->epoch) ||
	     (slot->epoch == ctx->epoch && slot->parent_epoch != ctx->parent_epoch))) {
		*reason = FANIN_REASON_EPOCH;
		return false;
	}
	*reason = push_check_block(ctx, packet->child, block);
	if (*reason != FANIN_REASON_NONE)
		return false;
	free_entry(ctx, set, slot);
	slot->epoch = ctx->epoch;
	slot->parent_epoch = ctx->parent_epoch;
	slot->block = block;
	slot->seen = 0;
	slot->shape = 0;
	slot->evicted = false;
	slot->done = false;
	slot->begun_ns = ctx->now_ns;
	ctx->stats->blocks++;
	return true;
}

/*
 * Combines a packet with the entry's sum and adds its ranks to the set. Returns the verdict on the
 * packet.
 */
static enum fanin_verdict
combine(struct fanin_handler_ctx *ctx, struct push_slot *slot, const struct fanin_packet *packet,
	uint64_t members, fanin_kernel_fn add)
{
	struct fanin_hdr *sum = &rte_pktmbuf_mtod(slot->mbuf, struct fanin_headers *)->fanin;

	ctx->stats->own[PUSH_HITS]++;
	slot->members |= members;
	if (fanin_wire_is_empty(&packet->headers->fanin))
		return FANIN_VERDICT_FREE;
	if (fanin_wire_is_empty(sum)) {
		/* The first packet with data becomes the sum. */
		fanin_release(ctx, slot->mbuf);
		slot->mbuf = packet->mbuf;
		return FANIN_VERDICT_HELD;
	}
	add(sum + 1, packet->payload, sum->count);
	return FANIN_VERDICT_FREE;
}

/* All ranks below this switch are in the sum: sends it on. */
static void
complete(struct fanin_handler_ctx *ctx, struct push_slot *slot, struct push_sum sum)
{
	if (ctx->job->has_parent) {
		push_send_up(ctx, slot->block, sum);
		ctx->stats->own[PUSH_COMPLETED]++;
	} else if (slot->evicted) {
		push_send_home(ctx, slot->block, sum);
	} else {
		slot->done = true;
		push_send_result(ctx, slot->block, sum.mbuf);
		ctx->stats->own[PUSH_COMPLETED]++;
		/*
		 * Workers take turns on a slot: this worker's round may have begun before the round
		 * of the worker that began the block.
		 */
		if (ctx->now_ns > slot->begun_ns)
			ctx->stats->block_ns += ctx->now_ns - slot->begun_ns;
	}
}

/* Takes data of a block that has no entry: opens an entry, unless no more data can come. */
static enum fanin_verdict
begin_sum(struct fanin_handler_ctx *ctx, struct push_set *set, struct push_slot *slot,
	  uint32_t index, const struct fanin_packet *packet, uint64_t members)
{
	const struct push_sum sum = { .mbuf = packet->mbuf, .members = members };

	if (push_is_all(ctx->job, slot->seen)) {
		complete(ctx, slot, sum);
		return FANIN_VERDICT_HELD;
	}
	make_room(ctx, set);
	slot->mbuf = sum.mbuf;
	slot->members = sum.members;
	link_entry(ctx->job, set, slot, index);
	/* If no timer is free, the entry stays until it is evicted. */
	(void)fanin_timer_arm(ctx, index, slot->block);
	return FANIN_VERDICT_HELD;
}

/* Takes data of the slot's block. */
static enum fanin_verdict
take_data(struct fanin_handler_ctx *ctx, struct push_set *set, struct push_slot *slot,
	  uint32_t index, const struct fanin_packet *packet, uint64_t members, fanin_kernel_fn add,
	  enum fanin_reason *reason)
{
	const uint64_t shape = fanin_wire_shape(&packet->headers->fanin);
	enum fanin_verdict verdict;

	if (slot->done || (members & ~slot->seen) == 0) {
		ctx->stats->duplicates++;
		return FANIN_VERDICT_FREE;
	}
	/*
	 * A switch below sends each rank once. After a restart it may send one again, but its ranks
	 * then rejoin.
	 */
	if ((members & slot->seen) != 0) {
		ctx->stats->own[PUSH_OVERLAPS]++;
		return FANIN_VERDICT_FREE;
	}
	if (slot->shape != 0 && slot->shape != shape)
		return fanin_drop(reason, FANIN_REASON_MISMATCH);
	slot->shape = shape;
	slot->seen |= members;
	ctx->stats->contributions++;
	if (slot->mbuf == NULL)
		return begin_sum(ctx, set, slot, index, packet, members);
	verdict = combine(ctx, slot, packet, members, add);
	if (push_is_all(ctx->job, slot->seen)) {
		complete(ctx, slot, take_entry(ctx->job, set, slot));
	} else {
		unlink_entry(ctx->job, set, slot);
		link_entry(ctx->job, set, slot, index);
	}
	return verdict;
}

static void
count_refused(struct fanin_handler_ctx *ctx, enum fanin_reason reason)
{
	if (reason == FANIN_REASON_BLOCK_STALE)
		ctx->stats->own[PUSH_STALE]++;
	else if (reason == FANIN_REASON_BLOCK_WINDOW)
		ctx->stats->own[PUSH_AHEAD]++;
}

/* Takes data of these ranks from a child. */
static enum fanin_verdict
data_up(struct fanin_handler_ctx *ctx, struct push_slot *slot, uint32_t index,
	const struct fanin_packet *packet, uint64_t members, enum fanin_reason *reason)
{
	const fanin_kernel_fn add = fanin_sums_kernel(ctx->job, packet, reason);
	enum fanin_verdict verdict = FANIN_VERDICT_DROP;
	struct push_set *set;

	if (add == NULL)
		return FANIN_VERDICT_DROP;
	if (members == 0 || (members & ~fanin_child_ranks(ctx->job, packet->child)) != 0)
		return fanin_drop(reason, FANIN_REASON_RANK);
	set = push_enter(ctx, index);
	if (set == NULL)
		return FANIN_VERDICT_RETRY;
	if (enter_block(ctx, set, slot, packet, reason)) {
		push_note(ctx, packet->child, packet->headers->fanin.block);
		verdict = take_data(ctx, set, slot, index, packet, members, add, reason);
	} else {
		count_refused(ctx, *reason);
	}
	push_leave(set);
	return verdict;
}

static enum fanin_verdict
push_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		  struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint64_t below = fanin_child_ranks(ctx->job, packet->child);

	/* Only hosts send CONTRIBUTIONs: switches send PARTIALs. */
	if ((below & (below - 1)) != 0)
		return fanin_drop(reason, FANIN_REASON_TYPE);
	return data_up(ctx, slot, index, packet, below, reason);
}

/* ------------------------------------------------------------------ questions */

/*
 * Answers a QUERY of the home host at the root. If the block is not done, from now on only the home
 * host may complete it.
 */
static enum fanin_verdict
mark(struct fanin_handler_ctx *ctx, struct push_slot *slot, uint32_t index,
     const struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct push_set *set = push_enter(ctx, index);
	uint64_t seen;
	bool done;

	if (set == NULL)
		return FANIN_VERDICT_RETRY;
	if (!enter_block(ctx, set, slot, packet, reason)) {
		count_refused(ctx, *reason);
		push_leave(set);
		return FANIN_VERDICT_DROP;
	}
	done = slot->done;
	if (!done && !slot->evicted)
		ctx->stats->own[PUSH_MARKED]++;
	slot->evicted = !done;
	if (slot->mbuf != NULL)
		push_send_home(ctx, slot->block, take_entry(ctx->job, set, slot));
	seen = slot->seen;
	push_leave(set);
	push_answer(ctx, packet, done ? FANIN_BLOCK_DONE : FANIN_BLOCK_OPEN, seen);
	return FANIN_VERDICT_HELD;
}

static enum fanin_verdict
take_query(struct fanin_handler_ctx *ctx, struct push_slot *slot, uint32_t index,
	   const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const uint16_t home = fanin_push_home(packet->headers->fanin.block, ctx->job->n_ranks);

	if ((fanin_child_ranks(ctx->job, packet->child) >> home & 1) == 0)
		return fanin_drop(reason, FANIN_REASON_RANK);
	ctx->stats->queries++;
	if (!ctx->job->has_parent)
		return mark(ctx, slot, index, packet, reason);
	/*
	 * Checked here, as this switch knows the host that asked. The root would tell the refusal
	 * to this switch.
	 */
	*reason = push_check_block(ctx, packet->child, packet->headers->fanin.block);
	if (*reason != FANIN_REASON_NONE) {
		count_refused(ctx, *reason);
		return FANIN_VERDICT_DROP;
	}
	return fanin_dense_pass_up(ctx, packet, NULL);
}

static enum fanin_verdict
push_other(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, struct fanin_packet *packet,
	   enum fanin_reason *reason)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_PARTIAL:
		return data_up(ctx, slot, index, packet, packet->headers->fanin.members, reason);
	case FANIN_TYPE_QUERY:
		return take_query(ctx, slot, index, packet, reason);
	case FANIN_TYPE_MULTICAST:
	case FANIN_TYPE_DELIVERY:
		push_note_message(ctx, packet);
		return fanin_pass_multicast(ctx, packet, reason);
	case FANIN_TYPE_UNICAST:
	case FANIN_TYPE_UNICAST_DELIVERY:
		push_note_message(ctx, packet);
		return fanin_pass_unicast(ctx, packet, reason);
	case FANIN_TYPE_ANSWER:
		return fanin_answer_pass(ctx, packet);
	default:
		if (packet->payload_len > ctx->job->payload_bytes)
			return fanin_drop(reason, FANIN_REASON_PAYLOAD);
		push_note(ctx, PUSH_PARENT, packet->headers->fanin.block);
		return packet->headers->fanin.type == FANIN_TYPE_RESULT
			       ? push_pass_result(ctx, packet)
			       : push_pass_home(ctx, packet);
	}
}

/* ------------------------------------------------------------------ the table of the handler */

static uint64_t
push_timeout_ns(const struct fanin_job_params *job)
{
	return job->parameters[FANIN_PUSH_TIMEOUT] * 1000;
}

/*
 * An earlier entry of the same block may have armed the timer: it then expires early for this
 * entry, which costs a sum for the home host but no error.
 */
static bool
push_expired(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, uint32_t block)
{
	struct push_set *set = push_enter(ctx, index);
	struct push_slot *slot = memory;

	if (set == NULL)
		return false;
	if (slot->epoch == ctx->epoch && slot->block == block && slot->mbuf != NULL) {
		if (is_of_run(ctx, slot)) {
			ctx->stats->own[PUSH_TIMED_OUT]++;
			send_part(ctx, slot, take_entry(ctx->job, set, slot));
		} else {
			free_entry(ctx, set, slot);
		}
	}
	push_leave(set);
	return true;
}

/* Frees the slot's sum as the job ends. */
static void
push_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct push_slot *slot = memory;

	if (slot->mbuf != NULL)
		fanin_release(ctx, slot->mbuf);
	slot->mbuf = NULL;
}

static const struct fanin_counter push_counters[] = {
	FANIN_PASS_COUNTERS,
	[PUSH_HITS] = { "hits", "packets with data that were combined with a sum in the table" },
	[PUSH_COMPLETED] = { "completed", "sums of all ranks below that the table has made" },
	[PUSH_EVICTED] = { "evicted", "sums that left the table for another one" },
	[PUSH_TIMED_OUT] = { "timed_out", "sums that left the table after their timeout" },
	[PUSH_HOMED] = { "homed", "sums sent to home hosts" },
	[PUSH_MARKED] = { "marked", "blocks that their home hosts have asked for" },
	[PUSH_OVERLAPS] = { "overlaps",
			    "sums dropped, as some of their ranks had come before, and some not" },
	[PUSH_STALE] = { "stale",
			 "packets with data of blocks whose slot has gone on, and questions" },
	[PUSH_AHEAD] = { "ahead",
			 "packets with data of blocks that no rank can have sent yet, and questions" },
	{ 0 },
};

/* Hosts read `waves` and `wave_blocks`; the switch does not. */
static const struct fanin_parameter push_parameters[] = {
#define PUSH_PARAMETER(enumerator, name_, min_, max_, usual_, text_)                               \
	{ .name = #name_, .text = (text_), .least = (min_), .most = (max_), .usual = (usual_) },
	FANIN_PUSH_PARAMETERS(PUSH_PARAMETER)
#undef PUSH_PARAMETER
		{ 0 },
};

static const uint8_t push_types[] = {
	FANIN_TYPE_RESULT,           FANIN_TYPE_PARTIAL,
	FANIN_TYPE_EVICTED,          FANIN_TYPE_QUERY,
	FANIN_TYPE_ANSWER,           FANIN_TYPE_MULTICAST,
	FANIN_TYPE_DELIVERY,         FANIN_TYPE_UNICAST,
	FANIN_TYPE_UNICAST_DELIVERY, 0,
};

static struct fanin_handler push = {
	.name = "push",
	.description = "dense reduction in a small table, completed by home hosts",
	.makes_packets = true,
	.ranks_max = FANIN_SERVER_RANKS_MAX,
	.is_native = true,
	.slot_mbufs = { .fixed = 1 },
	.counters = push_counters,
	.parameters = push_parameters,
	.state_bytes = sizeof(struct push_state),
	.slot_bytes = sizeof(struct push_slot),
	.contribution = push_contribution,
	.types = push_types,
	.other = push_other,
	.timeout_ns = push_timeout_ns,
	.expired = push_expired,
	.slot_release = push_slot_release,
};

FANIN_HANDLER_REGISTER(push)
