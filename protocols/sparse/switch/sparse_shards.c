/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch's own shards of a sparse block. First come spills, as they were filled, then what is in
 * the array or in the table, cut by a rule that depends on nothing else: so each shard can be made
 * again from the slot's memory, with the same bits, until the slot goes on.
 */
#include <string.h>

#include "protocols/sparse/switch/sparse.h"

bool
fanin_sparse_keep_empty(struct fanin_sparse *slot, struct rte_mbuf *mbuf)
{
	const unsigned int n_results = (unsigned int)__builtin_popcountll(slot->results.in);
	const unsigned int enough = RTE_MIN(FANIN_SHARDS_MAX - n_results,
					    2 * (slot->max_number + 1u));

	if (slot->n_empty >= enough)
		return false;
	slot->empty[slot->n_empty++] = mbuf;
	return true;
}

void
fanin_sparse_drop_empty(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	while (slot->n_empty != 0)
		fanin_release(ctx, slot->empty[--slot->n_empty]);
}

static struct rte_mbuf *
empty_mbuf(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	struct rte_mbuf *mbuf = slot->n_empty != 0 ? slot->empty[--slot->n_empty] : fanin_take(ctx);

	if (mbuf == NULL)
		ctx->stats->own[FANIN_SPARSE_NO_PACKET]++;
	return mbuf;
}

/* Returns the array or table from which the shards behind the spills are cut. */
static const struct fanin_sparse_array *
array_of(const struct fanin_sparse *slot)
{
	return slot->mode == FANIN_SPARSE_ARRAY ? &slot->array : &slot->table;
}

static uint32_t
words_of(const struct fanin_sparse *slot)
{
	return (slot->mode == FANIN_SPARSE_ARRAY ? slot->span + 63 : slot->n_lanes) / 64;
}

/*
 * Words of a bitmap shard from a word on: as many as fit, without empty ones at the end. count: of
 * their values.
 */
static uint32_t
bitmap_words(const struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot, uint32_t from,
	     uint32_t *count)
{
	const uint32_t n_words = words_of(slot);
	uint32_t room = ctx->job->payload_bytes - (uint32_t)sizeof(uint32_t);
	uint32_t n = 0;

	*count = 0;
	for (uint32_t i = from; i < n_words; i++) {
		const uint32_t bits = (uint32_t)__builtin_popcountll(slot->array.occupied[i]);
		const uint32_t len = bits * slot->element_bytes + (uint32_t)sizeof(uint64_t);

		if (len > room)
			break;
		room -= len;
		*count += bits;
		if (bits != 0)
			n = i - from + 1;
	}
	return n;
}

static void
cut_into_bitmaps(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const uint32_t n_words = words_of(slot);
	uint32_t at = 0, count;

	for (;;) {
		while (at < n_words && slot->array.occupied[at] == 0)
			at++;
		if (at == n_words)
			return;
		slot->starts[slot->n_shards - slot->n_spills] = at * 64;
		slot->n_shards++;
		at += bitmap_words(ctx, slot, at, &count);
	}
}

static void
cut_into_lists(struct fanin_sparse *slot)
{
	const uint64_t *occupied = array_of(slot)->occupied;
	const uint32_t n_words = words_of(slot);
	uint32_t before = 0, next = 0;

	for (uint32_t i = 0; i < n_words; i++) {
		const uint32_t bits = (uint32_t)__builtin_popcountll(occupied[i]);

		for (; next < before + bits; next += slot->list_max) {
			uint64_t left = occupied[i];

			for (uint32_t skip = next - before; skip != 0; skip--)
				left &= left - 1;
			slot->starts[slot->n_shards - slot->n_spills] =
				i * 64 + (uint32_t)__builtin_ctzll(left);
			slot->n_shards++;
		}
		before += bits;
	}
	/* A block without values has a shard without any. */
	if (before == 0)
		slot->starts[slot->n_shards++ - slot->n_spills] = 0;
}

/* Settles what shards there are behind the spills. */
static void
cut(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const uint64_t *occupied = array_of(slot)->occupied;
	const uint32_t n_words = words_of(slot);

	slot->n_values = 0;
	for (uint32_t i = 0; i < n_words; i++)
		slot->n_values += (uint32_t)__builtin_popcountll(occupied[i]);
	/*
	 * A list with as many values as a full block has would take more shards than allowed, and
	 * would not be the shorter form.
	 */
	if (slot->mode == FANIN_SPARSE_ARRAY &&
	    slot->n_values * slot->index_bytes > n_words * sizeof(uint64_t)) {
		slot->form = FANIN_SHARD_BITMAP;
		cut_into_bitmaps(ctx, slot);
	} else {
		slot->form = FANIN_SHARD_LIST;
		cut_into_lists(slot);
	}
}

/* Writes the payload of a spill. Returns its length. */
static uint32_t
write_spill(const struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot, uint32_t number,
	    uint8_t *payload, uint16_t *count)
{
	const uint8_t *spill = slot->spills +
			       number * (size_t)RTE_CACHE_LINE_ROUNDUP(ctx->job->payload_bytes);
	const uint32_t values_len = slot->list_max * slot->element_bytes;

	*count = (uint16_t)slot->list_max;
	if (slot->last_spill != 0 && number + 1 == slot->n_spills)
		*count = (uint16_t)slot->last_spill;
	memcpy(payload, spill, (size_t)*count * slot->element_bytes);
	memcpy(payload + (size_t)*count * slot->element_bytes, spill + values_len,
	       (size_t)*count * slot->index_bytes);
	return fanin_shard_list_len(slot->span, slot->element_bytes, *count);
}

static uint32_t
write_list(const struct fanin_sparse *slot, uint32_t part, uint8_t *payload, uint16_t *count)
{
	const struct fanin_sparse_array *array = array_of(slot);
	const uint32_t n = RTE_MIN(slot->n_values - part * slot->list_max, slot->list_max);
	uint8_t *indices = payload + (size_t)n * slot->element_bytes;
	const bool is_short = slot->index_bytes == 2;

	if (slot->mode == FANIN_SPARSE_ARRAY)
		(is_short ? slot->take->list16 : slot->take->list32)(payload, indices,
								     array->values, array->occupied,
								     slot->starts[part], n);
	else
		(is_short ? slot->take->table16
			  : slot->take->table32)(payload, indices, array->values, array->occupied,
						 slot->tags, slot->starts[part], n);
	*count = (uint16_t)n;
	return fanin_shard_list_len(slot->span, slot->element_bytes, n);
}

static uint32_t
write_bitmap(const struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot, uint32_t part,
	     uint8_t *payload, uint16_t *count)
{
	const uint32_t first = slot->starts[part];
	const uint64_t *words = slot->array.occupied + first / 64;
	uint32_t n_values, n_words = bitmap_words(ctx, slot, first / 64, &n_values);
	uint8_t *at = payload + (size_t)n_values * slot->element_bytes;

	slot->take->bitmap(payload,
			   (const uint8_t *)slot->array.values +
				   (size_t)first * slot->element_bytes,
			   words, n_words, n_values);
	memcpy(at, words, n_words * sizeof(*words));
	memcpy(at + n_words * sizeof(*words), &first, sizeof(first));
	*count = (uint16_t)n_values;
	return fanin_shard_bitmap_len(slot->element_bytes, n_values, n_words);
}

/*
 * Makes a shard and sends it to these children, or to the parent if there are none. The handler no
 * longer owns what is sent. Without a free mbuf the shard is left out, as if it had been lost.
 */
static void
emit(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint32_t number, uint64_t children)
{
	const struct fanin_job_params *job = ctx->job;
	const struct fanin_dense *dense = &slot->single.dense;
	const bool down = children != 0;
	struct fanin_shard shard = {
		.span = slot->span,
		.number = (uint8_t)number,
		.form = FANIN_SHARD_LIST,
		.whole = slot->is_whole,
	};
	struct rte_mbuf *mbuf = empty_mbuf(ctx, slot);
	struct fanin_hdr *hdr;
	uint8_t *payload;
	uint32_t payload_len;
	uint16_t count;

	if (mbuf == NULL)
		return;
	payload = fanin_dense_payload(mbuf);
	if (number < slot->n_spills) {
		payload_len = write_spill(ctx, slot, number, payload, &count);
	} else {
		shard.form = slot->form;
		if (number + 1 == slot->n_shards)
			shard.total = slot->n_shards;
		payload_len = slot->form == FANIN_SHARD_LIST
				      ? write_list(slot, number - slot->n_spills, payload, &count)
				      : write_bitmap(ctx, slot, number - slot->n_spills, payload,
						     &count);
	}
	hdr = fanin_frame_make(ctx, down ? FANIN_TYPE_SPARSE_RESULT : FANIN_TYPE_SPARSE,
			       fanin_dense_state_block(&dense->state), payload_len, mbuf);
	hdr->contributions = down ? job->n_ranks : job->n_below;
	hdr->dtype = dense->state.dtype;
	hdr->op = dense->state.op;
	hdr->count = count;
	hdr->members = fanin_shard_encode(&shard);
	if (down) {
		fanin_frame_send_down(ctx, mbuf, children);
	} else {
		rte_mbuf_refcnt_set(mbuf, 1);
		fanin_frame_send_up(ctx, mbuf);
	}
}

/* Sends a shard to all its receivers for the first time. */
static void
send_first(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint32_t number)
{
	ctx->stats->own[FANIN_SPARSE_SHARDS_OUT]++;
	emit(ctx, slot, number, ctx->job->has_parent ? 0 : ctx->job->children);
}

void
fanin_sparse_spill(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	slot->n_spills++;
	slot->n_shards++;
	slot->n_spilled = 0;
	ctx->stats->own[FANIN_SPARSE_SPILLS]++;
	send_first(ctx, slot, slot->n_spills - 1u);
}

void
fanin_sparse_finish(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	uint32_t number = slot->n_shards;

	/* The last spill leaves like the others, even if it is not full. */
	slot->last_spill = slot->n_spilled;
	if (slot->n_spilled != 0) {
		slot->n_spills++;
		slot->n_shards++;
	}
	if (slot->mode == FANIN_SPARSE_TABLE)
		fanin_sparse_table_settle(ctx, slot);
	cut(ctx, slot);
	for (; number < slot->n_shards; number++)
		send_first(ctx, slot, number);
}

void
fanin_sparse_send_again(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, uint64_t numbers,
			uint64_t children)
{
	for (uint64_t left = numbers & fanin_sparse_first(slot->n_shards); left != 0;
	     left &= left - 1) {
		ctx->stats->own[FANIN_SPARSE_REPEATED]++;
		emit(ctx, slot, (uint32_t)__builtin_ctzll(left), children);
	}
}
