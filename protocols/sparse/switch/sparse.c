/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse.h: the layout of a slot's memory, and the processing of incoming shards. */
#include "protocols/sparse/switch/sparse.h"

#include <string.h>

#include "wire/shard_check.h"

const struct fanin_counter fanin_sparse_counters[] = {
	[FANIN_SPARSE_SHARDS_IN] = { "shards_in", "shards of children, each counted once" },
	[FANIN_SPARSE_SHARDS_OUT] = { "shards_out", "shards made here, each counted once" },
	[FANIN_SPARSE_SPILLS] = { "spills",
				  "of these, those that left before the block was complete" },
	[FANIN_SPARSE_CHANGED_OVER] = { "changed_over", "hash tables that have become arrays" },
	[FANIN_SPARSE_NO_PACKET] = { "no_packet", "shards not sent for want of a buffer" },
	[FANIN_SPARSE_REPEATED] = { "shards_repeated", "shards sent again, up or down" },
	{ 0 },
};

/* Where the parts of a slot are, as offsets; the last one is its size. */
struct layout {
	size_t occupied;
	size_t values;
	size_t tags;
	size_t table_occupied;
	size_t table_values;
	size_t spills;
	size_t end;
};

static const uint8_t sizes[] = { 1, 2, 4, 8 };

uint32_t
fanin_sparse_table_lanes(const struct fanin_job_params *job, uint32_t element_bytes)
{
	const uint32_t most = fanin_shard_list_max(1, element_bytes, job->payload_bytes);
	const uint64_t wanted = (uint64_t)job->n_children * most * 20 / 13;
	const uint64_t limit = (uint64_t)FANIN_TABLE_SHARDS_MAX * most * 4 / 3;

	return (uint32_t)(RTE_MIN(wanted, limit) / 64 + 1) * 64;
}

static size_t
bitmap_bytes(size_t n_bits)
{
	return RTE_CACHE_LINE_ROUNDUP((n_bits + 63) / 64 * sizeof(uint64_t));
}

static void
lay_out(const struct fanin_job_params *job, enum fanin_sparse_mode mode, struct layout *layout)
{
	size_t occupied = 0, values = 0, tags = 0, table_occupied = 0, table_values = 0;

	for (size_t i = 0; i < RTE_DIM(sizes); i++) {
		const size_t span = fanin_shard_span_max(sizes[i], job->payload_bytes);
		const size_t lanes = fanin_sparse_table_lanes(job, sizes[i]);

		occupied = RTE_MAX(occupied, bitmap_bytes(span));
		values = RTE_MAX(values, RTE_CACHE_LINE_ROUNDUP(span * sizes[i]));
		table_occupied = RTE_MAX(table_occupied, bitmap_bytes(lanes));
		table_values = RTE_MAX(table_values, RTE_CACHE_LINE_ROUNDUP(lanes * sizes[i]));
		tags = RTE_MAX(tags, lanes * sizeof(uint32_t));
	}
	layout->occupied = RTE_CACHE_LINE_ROUNDUP(sizeof(struct fanin_sparse));
	layout->values = layout->occupied + occupied;
	layout->tags = layout->values + values;
	if (mode == FANIN_SPARSE_ARRAY) {
		layout->end = layout->tags;
		return;
	}
	layout->table_occupied = layout->tags + tags;
	layout->table_values = layout->table_occupied + table_occupied;
	layout->spills = layout->table_values + table_values;
	layout->end = layout->spills +
		      (FANIN_SPILLS_MAX + 1) * (size_t)RTE_CACHE_LINE_ROUNDUP(job->payload_bytes);
}

size_t
fanin_sparse_slot_size(const struct fanin_job_params *job, enum fanin_sparse_mode mode)
{
	struct layout layout;

	lay_out(job, mode, &layout);
	return layout.end;
}

/* Gives up what the slot holds of a sparse block. */
static void
release_sparse(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	for (uint64_t left = slot->results.in | slot->known.in; left != 0; left &= left - 1)
		fanin_release(ctx, slot->kept[__builtin_ctzll(left)]);
	slot->results = (struct fanin_shards_in){ 0 };
	slot->known = (struct fanin_shards_in){ 0 };
	fanin_sparse_drop_empty(ctx, slot);
}

static void
reset(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	struct fanin_sparse *slot = (struct fanin_sparse *)dense;

	single_drop_sum(ctx, &slot->single);
	release_sparse(ctx, slot);
}

void
fanin_sparse_release(struct fanin_handler_ctx *ctx, void *memory)
{
	struct fanin_sparse *slot = memory;

	fanin_dense_release(ctx, &slot->single.dense);
	reset(ctx, &slot->single.dense);
}

enum fanin_verdict
fanin_sparse_contribution(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
			  struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct fanin_sparse *slot = memory;
	enum fanin_verdict verdict;

	if (!fanin_dense_admit(ctx, &slot->single.dense, index, packet, true, reset, &verdict,
			       reason))
		return verdict;
	/* The block before this one may have been sparse. */
	release_sparse(ctx, slot);
	return single_combine(ctx, &slot->single, packet);
}

/*
 * Can the job reduce this, and is the shard valid? Validation has checked what the header alone
 * tells.
 */
static enum fanin_reason
check(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);

	if (packet->payload_len > job->payload_bytes)
		return FANIN_REASON_PAYLOAD;
	if (job->in_order || (job->wide && fanin_operation_widens(hdr->dtype, hdr->op)) ||
	    fanin_kernel_sparse(job->isa, hdr->dtype, hdr->op) == NULL)
		return FANIN_REASON_OPERATION;
	if (shard.span > fanin_shard_span_max(fanin_dtype_size(hdr->dtype), job->payload_bytes) ||
	    !fanin_shard_check_inline(hdr, packet->payload, packet->payload_len))
		return FANIN_REASON_ELEMENTS;
	return FANIN_REASON_NONE;
}

/* Sets where the parts of a new slot are; they stay there. */
static void
divide(const struct fanin_job_params *job, struct fanin_sparse *slot, enum fanin_sparse_mode mode)
{
	uint8_t *memory = (uint8_t *)slot;
	struct layout layout;

	lay_out(job, mode, &layout);
	slot->array.occupied = (void *)(memory + layout.occupied);
	slot->array.values = memory + layout.values;
	if (mode == FANIN_SPARSE_ARRAY)
		return;
	slot->tags = memory + layout.tags;
	slot->table.occupied = (void *)(memory + layout.table_occupied);
	slot->table.values = memory + layout.table_values;
	slot->spills = memory + layout.spills;
}

/* A table without entries, for the slot's block. */
static void
begin_table(const struct fanin_job_params *job, struct fanin_sparse *slot)
{
	const uint32_t lanes = fanin_sparse_table_lanes(job, slot->element_bytes);

	slot->n_lanes = lanes;
	slot->n_taken = 0;
	slot->table_max = RTE_MIN(lanes / 4 * 3, FANIN_TABLE_SHARDS_MAX * slot->list_max);
	memset(slot->tags, 0, (size_t)lanes * slot->index_bytes);
}

/*
 * In SETUP: begins a block with its first shard, of a child or of the result. The caller still has
 * to note the sender.
 */
static void
begin_block(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const struct fanin_hdr *hdr,
	    enum fanin_sparse_mode mode)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_dense *dense = &slot->single.dense;
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t span = shard.span;

	/* The layout is that of the handler's mode, even if this block has another mode. */
	if (slot->array.values == NULL)
		divide(job, slot, mode);
	/* An array spills nothing. */
	if (shard.whole)
		mode = FANIN_SPARSE_ARRAY;

	fanin_dense_release(ctx, dense);
	release_sparse(ctx, slot);
	/*
	 * The next dense block has to look up its kernel again: the window's data type and operator
	 * are now this block's.
	 */
	dense->add = NULL;
	dense->state.wide = 0;
	__atomic_store_n(&dense->begun_ns, ctx->now_ns, __ATOMIC_RELEASE);
	ctx->stats->blocks++;

	slot->span = span;
	slot->element_bytes = (uint8_t)fanin_dtype_size(hdr->dtype);
	slot->index_bytes = (uint8_t)fanin_shard_index_bytes(span);
	slot->list_max = fanin_shard_list_max(span, slot->element_bytes, job->payload_bytes);
	slot->combine = fanin_kernel_sparse(job->isa, hdr->dtype, hdr->op);
	slot->take = fanin_kernel_sparse_take(job->isa, hdr->dtype);
	slot->mode = (uint8_t)mode;
	slot->is_whole = shard.whole;
	slot->is_known = false;
	slot->n_shards = 0;
	slot->n_spills = 0;
	slot->last_spill = 0;
	slot->n_spilled = 0;
	slot->max_number = 0;
	memset(slot->child, 0, job->n_children * sizeof(slot->child[0]));
	memset(slot->array.occupied, 0, (span + 63) / 64 * sizeof(uint64_t));
	if (mode == FANIN_SPARSE_TABLE)
		begin_table(job, slot);

	__atomic_store_n(&dense->state.present, 0, __ATOMIC_RELEASE);
	dense->state.shape = fanin_shard_shape(hdr);
	__atomic_store_n(&dense->state.word, fanin_state_make(hdr->block, FANIN_PHASE_OPEN, 1),
			 __ATOMIC_RELEASE);
}

/*
 * The parent, or at the root a child that knows the result, has sent all of it. from: the block's
 * phase.
 */
static void
result_is_complete(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		   enum fanin_dense_phase from)
{
	struct fanin_dense *dense = &slot->single.dense;

	fanin_sparse_drop_empty(ctx, slot);
	__atomic_store_n(&dense->state.present, ctx->job->children, __ATOMIC_RELEASE);
	fanin_dense_state_pass(&dense->state, ctx->job->shared, from, FANIN_PHASE_DONE);
	ctx->stats->results++;
	if (ctx->now_ns > dense->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - dense->begun_ns;
}

/* All children are in. */
static void
finish(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_dense *dense = &slot->single.dense;

	fanin_sparse_finish(ctx, slot);
	fanin_sparse_drop_empty(ctx, slot);
	if (job->has_parent) {
		ctx->stats->upward++;
		fanin_dense_state_finish(&dense->state, job->shared, FANIN_PHASE_SENT);
		return;
	}
	ctx->stats->results++;
	/* If workers share a block, the last one's round may have begun before the first one's. */
	if (ctx->now_ns > dense->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - dense->begun_ns;
	fanin_dense_state_finish(&dense->state, job->shared, FANIN_PHASE_DONE);
}

/* Children that know the result have sent all of it. */
static void
finish_known(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	struct fanin_dense_state *state = &slot->single.dense.state;

	ctx->stats->known++;
	if (!ctx->job->has_parent) {
		result_is_complete(ctx, slot, FANIN_PHASE_OPEN);
		return;
	}
	ctx->stats->upward++;
	__atomic_store_n(&state->present, ctx->job->children, __ATOMIC_RELEASE);
	fanin_dense_state_finish(state, ctx->job->shared, FANIN_PHASE_SENT);
}

/*
 * Handles a duplicate shard. One that is marked as a retransmission is answered: it was not needed.
 * The caller leaves the slot.
 */
static enum fanin_verdict
duplicate(struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot,
	  const struct fanin_packet *packet, enum fanin_block_state state)
{
	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;
	fanin_sparse_answer_duplicate(ctx, slot, packet, state);
	return FANIN_VERDICT_HELD;
}

/*
 * Adds a child's shard to the open block, whose shape it has. The caller is in the slot, and leaves
 * it.
 */
static enum fanin_verdict
add_shard(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
	  const struct fanin_packet *packet, enum fanin_reason *reason, bool checked)
{
	const struct fanin_shard shard = fanin_shard_decode(packet->headers->fanin.members);
	const bool is_known = packet->headers->fanin.type == FANIN_TYPE_SPARSE_KNOWN;
	struct fanin_shards_in *child = &slot->child[packet->child];
	struct fanin_dense_state *state = &slot->single.dense.state;
	enum fanin_verdict verdict;

	if ((child->in >> shard.number & 1) != 0)
		return duplicate(ctx, slot, packet,
				 fanin_shards_complete(child) ? FANIN_BLOCK_OPEN
							      : FANIN_BLOCK_ABSENT);
	if (!fanin_shards_fit(child, &shard))
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	if (!checked) {
		const enum fanin_reason found = check(ctx->job, packet);

		if (found != FANIN_REASON_NONE)
			return fanin_drop(reason, found);
	}
	if (__builtin_expect(is_known, 0)) {
		if (!fanin_sparse_may_be_known(ctx, slot, &shard))
			return fanin_drop(reason, FANIN_REASON_MISMATCH);
		verdict = fanin_sparse_take_known(ctx, slot, packet);
	} else if (__builtin_expect(slot->is_known, 0)) {
		/* A contribution to a block whose result is known is not needed. */
		verdict = FANIN_VERDICT_FREE;
	} else {
		fanin_sparse_merge(ctx, slot, packet);
		slot->max_number = RTE_MAX(slot->max_number, shard.number);
		verdict = fanin_sparse_keep_empty(slot, packet->mbuf) ? FANIN_VERDICT_HELD
								      : FANIN_VERDICT_FREE;
	}
	fanin_shards_add(child, &shard);
	ctx->stats->own[FANIN_SPARSE_SHARDS_IN]++;
	if (fanin_shards_complete(child)) {
		ctx->stats->contributions++;
		(void)fanin_dense_state_claim(state, ctx->job->shared, packet->child);
	}
	if (__builtin_expect(slot->is_known, 0)) {
		if (fanin_shards_complete(fanin_sparse_known(ctx, slot)))
			finish_known(ctx, slot);
	} else if (state->present == ctx->job->children) {
		finish(ctx, slot);
	}
	return verdict;
}

/* Returns the class of a shard's block, after clearing a slot of an earlier run. */
static enum fanin_dense_class
enter(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint32_t index, uint32_t block)
{
	struct fanin_dense *dense = &slot->single.dense;
	const enum fanin_dense_class class = fanin_dense_state_enter(&dense->state, ctx, block,
								     true);

	if (class != FANIN_DENSE_RESET)
		return class;
	fanin_dense_release(ctx, dense);
	reset(ctx, dense);
	fanin_dense_state_reset(&dense->state, ctx, index);
	return fanin_dense_state_enter(&dense->state, ctx, block, true);
}

static enum fanin_verdict
take_shard(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint32_t index,
	   const struct fanin_packet *packet, enum fanin_sparse_mode mode,
	   enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	struct fanin_dense_state *state = &slot->single.dense.state;
	const enum fanin_dense_class class = enter(ctx, slot, index, hdr->block);
	enum fanin_verdict verdict;

	switch (class) {
	case FANIN_DENSE_NEW:
		*reason = check(ctx->job, packet);
		if (*reason != FANIN_REASON_NONE) {
			fanin_dense_state_abandon(state, ctx, hdr->block);
			return FANIN_VERDICT_DROP;
		}
		begin_block(ctx, slot, hdr, mode);
		verdict = add_shard(ctx, slot, packet, reason, true);
		break;
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
	case FANIN_DENSE_FINISHED:
		if (state->shape != fanin_shard_shape(hdr)) {
			verdict = fanin_drop(reason, FANIN_REASON_MISMATCH);
			ctx->expected = state->shape;
		} else if (class == FANIN_DENSE_CURRENT)
			verdict = add_shard(ctx, slot, packet, reason, false);
		else
			verdict = duplicate(ctx, slot, packet,
					    class == FANIN_DENSE_SENT ? FANIN_BLOCK_SENT
								      : FANIN_BLOCK_DONE);
		break;
	case FANIN_DENSE_STALE:
		return fanin_drop(reason, FANIN_REASON_BLOCK_STALE);
	case FANIN_DENSE_AHEAD:
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	case FANIN_DENSE_OLD_RUN:
		return fanin_drop(reason, FANIN_REASON_EPOCH);
	case FANIN_DENSE_RESET:
	case FANIN_DENSE_BUSY:
	default:
		return FANIN_VERDICT_RETRY;
	}
	fanin_dense_state_leave(state, ctx->job->shared);
	return verdict;
}

void
fanin_sparse_keep(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		  enum fanin_type type, const struct fanin_packet *packet)
{
	const struct fanin_hdr said = packet->headers->fanin;
	struct fanin_hdr *hdr = fanin_frame_make(ctx, type, said.block, packet->payload_len,
						 packet->mbuf);

	hdr->contributions = ctx->job->n_ranks;
	hdr->dtype = said.dtype;
	hdr->op = said.op;
	hdr->count = said.count;
	hdr->members = said.members;
	slot->kept[fanin_shard_decode(said.members).number] = packet->mbuf;
}

void
fanin_sparse_pass_down(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		       const struct fanin_packet *packet)
{
	fanin_sparse_keep(ctx, slot, FANIN_TYPE_SPARSE_RESULT, packet);
	fanin_seal(ctx, FANIN_TAG_DOWN, packet->mbuf);
	/*
	 * One reference for each child; the one that the mbuf came with, the only one so far, stays
	 * with the slot.
	 */
	rte_mbuf_refcnt_set(packet->mbuf, (uint16_t)(ctx->job->n_children + 1));
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, packet->mbuf, ctx->job->children,
		   packet->mbuf->pkt_len - FANIN_PAYLOAD_OFFSET);
}

/*
 * Takes a shard of the result of this block, which is open or was sent up. The caller is in the
 * slot, and leaves it.
 */
static enum fanin_verdict
add_result(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
	   const struct fanin_packet *packet, bool sent)
{
	const struct fanin_shard shard = fanin_shard_decode(packet->headers->fanin.members);

	if ((slot->results.in >> shard.number & 1) != 0 ||
	    !fanin_shards_fit(&slot->results, &shard)) {
		ctx->stats->duplicates++;
		return FANIN_VERDICT_FREE;
	}
	/*
	 * Results replace mbufs that were kept for this switch's shards, and shards that it sent up
	 * as known.
	 */
	if ((slot->known.in >> shard.number & 1) != 0)
		fanin_release(ctx, slot->kept[shard.number]);
	else if (slot->n_empty + (unsigned int)__builtin_popcountll(slot->results.in) ==
		 FANIN_SHARDS_MAX)
		fanin_release(ctx, slot->empty[--slot->n_empty]);
	fanin_sparse_pass_down(ctx, slot, packet);
	fanin_shards_add(&slot->results, &shard);
	if (!fanin_shards_complete(&slot->results))
		return FANIN_VERDICT_HELD;
	if (sent) {
		result_is_complete(ctx, slot, FANIN_PHASE_SENT);
	} else if (slot->is_whole) {
		/*
		 * A complete result without this switch's own shards exists only if a member
		 * elsewhere knows it.
		 */
		ctx->stats->known++;
		result_is_complete(ctx, slot, FANIN_PHASE_OPEN);
	}
	return FANIN_VERDICT_HELD;
}

/*
 * Spills may come before anything from a child: the parent then has a contribution of another
 * child, whose hosts have the results that also allow this slot to go on.
 */
static enum fanin_verdict
take_result(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint32_t index,
	    const struct fanin_packet *packet, enum fanin_sparse_mode mode,
	    enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	struct fanin_dense_state *state = &slot->single.dense.state;
	const enum fanin_dense_class class = enter(ctx, slot, index, hdr->block);
	enum fanin_verdict verdict;

	switch (class) {
	case FANIN_DENSE_NEW:
		*reason = check(ctx->job, packet);
		if (*reason != FANIN_REASON_NONE) {
			fanin_dense_state_abandon(state, ctx, hdr->block);
			return FANIN_VERDICT_DROP;
		}
		begin_block(ctx, slot, hdr, mode);
		verdict = add_result(ctx, slot, packet, false);
		break;
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
		if (state->shape != fanin_shard_shape(hdr))
			verdict = fanin_drop(reason, FANIN_REASON_MISMATCH);
		else if (packet->payload_len > ctx->job->payload_bytes)
			verdict = fanin_drop(reason, FANIN_REASON_PAYLOAD);
		else
			verdict = add_result(ctx, slot, packet, class == FANIN_DENSE_SENT);
		break;
	case FANIN_DENSE_FINISHED:
		ctx->stats->duplicates++;
		verdict = FANIN_VERDICT_FREE;
		break;
	case FANIN_DENSE_RESET:
	case FANIN_DENSE_BUSY:
		return FANIN_VERDICT_RETRY;
	default:
		ctx->stats->duplicates++;
		return FANIN_VERDICT_FREE;
	}
	fanin_dense_state_leave(state, ctx->job->shared);
	return verdict;
}

const uint8_t fanin_sparse_types[] = { FANIN_TYPE_RESULT,       FANIN_TYPE_KNOWN,
				       FANIN_TYPE_QUERY,        FANIN_TYPE_ANSWER,
				       FANIN_TYPE_SPARSE,       FANIN_TYPE_SPARSE_RESULT,
				       FANIN_TYPE_SPARSE_KNOWN, 0 };

enum fanin_verdict
fanin_sparse_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
		   struct fanin_packet *packet, enum fanin_sparse_mode mode,
		   enum fanin_reason *reason)
{
	struct fanin_sparse *slot = memory;

	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_SPARSE:
	case FANIN_TYPE_SPARSE_KNOWN:
		return take_shard(ctx, slot, index, packet, mode, reason);
	case FANIN_TYPE_SPARSE_RESULT:
		/* The root has no parent to send one. */
		if (!ctx->job->has_parent)
			return FANIN_VERDICT_FREE;
		return take_result(ctx, slot, index, packet, mode, reason);
	case FANIN_TYPE_QUERY:
		return fanin_sparse_query(ctx, slot, packet, reason);
	case FANIN_TYPE_ANSWER:
		return fanin_sparse_answer(ctx, slot, packet, reason);
	default:
		return fanin_dense_other(ctx, &slot->single.dense, index, packet, reset, reason);
	}
}
