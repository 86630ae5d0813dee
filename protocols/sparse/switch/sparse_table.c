/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where values are combined: see sparse.h. A hash table looks at one bucket for each index. A value
 * whose bucket is full of other indices goes into a spill, which leaves when it is full, and stays
 * in the slot to be sent again.
 */
#include <string.h>

#include "protocols/sparse/switch/sparse.h"

/*
 * Values that are taken out of a bitmap, or out of a table, at a time: few enough to stay in the
 * first cache.
 */
#define CHUNK 1024u

/* A shard's values and where they belong. */
struct pieces {
	const uint8_t *values;
	const uint8_t *indices;
	uint32_t count;
	uint8_t index_bytes;
};

static void
scatter(const struct fanin_sparse *slot, const struct fanin_sparse_array *array,
	const struct pieces *pieces)
{
	const fanin_scatter_fn list = pieces->index_bytes == 2 ? slot->combine->list16
							       : slot->combine->list32;

	list(array->values, array->occupied, pieces->values, pieces->indices, pieces->count);
}

/* Returns the pieces behind the first n. */
static struct pieces
behind(const struct fanin_sparse *slot, const struct pieces *pieces, uint32_t n)
{
	return (struct pieces){
		.values = pieces->values + (size_t)n * slot->element_bytes,
		.indices = pieces->indices + (size_t)n * pieces->index_bytes,
		.count = pieces->count - n,
		.index_bytes = pieces->index_bytes,
	};
}

static uint8_t *
filling_spill(const struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot)
{
	return slot->spills +
	       slot->n_spills * (size_t)RTE_CACHE_LINE_ROUNDUP(ctx->job->payload_bytes);
}

void
fanin_sparse_table_settle(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const struct fanin_kernel_sparse_table *table = fanin_kernel_sparse_table(ctx->job->isa);

	(slot->index_bytes == 2 ? table->occupied16 : table->occupied32)(slot->table.occupied,
									 slot->tags, slot->n_lanes);
}

/*
 * Moves the block's values, except those that have been sent, to the array for the rest of the
 * block.
 */
static void
change_over(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const bool is_short = slot->index_bytes == 2;
	const uint8_t *spill = filling_spill(ctx, slot);
	const struct pieces spilled = {
		.values = spill,
		.indices = spill + (size_t)slot->list_max * slot->element_bytes,
		.count = slot->n_spilled,
		.index_bytes = slot->index_bytes,
	};
	uint64_t values[CHUNK];
	uint32_t indices[CHUNK];
	uint32_t left = 0, from = 0;

	fanin_sparse_table_settle(ctx, slot);
	for (uint32_t i = 0; i < slot->n_lanes / 64; i++)
		left += (uint32_t)__builtin_popcountll(slot->table.occupied[i]);
	while (left != 0) {
		const uint32_t n = RTE_MIN(left, CHUNK);

		from = (is_short ? slot->take->table16
				 : slot->take->table32)(values, indices, slot->table.values,
							slot->table.occupied, slot->tags, from, n);
		(is_short ? slot->combine->list16 : slot->combine->list32)(slot->array.values,
									   slot->array.occupied,
									   values, indices, n);
		left -= n;
	}
	scatter(slot, &slot->array, &spilled);
	slot->n_spilled = 0;
	slot->mode = FANIN_SPARSE_ARRAY;
	ctx->stats->own[FANIN_SPARSE_CHANGED_OVER]++;
}

/*
 * Spills a value whose bucket is full. When the spill is full it is sent, or the table becomes an
 * array.
 */
static void
spill_value(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const uint8_t *value,
	    uint32_t index)
{
	uint8_t *values = filling_spill(ctx, slot);
	uint8_t *indices = values + (size_t)slot->list_max * slot->element_bytes;

	memcpy(values + (size_t)slot->n_spilled * slot->element_bytes, value, slot->element_bytes);
	memcpy(indices + (size_t)slot->n_spilled * slot->index_bytes, &index, slot->index_bytes);
	if (++slot->n_spilled != slot->list_max)
		return;
	if (slot->n_spills == FANIN_SPILLS_MAX)
		change_over(ctx, slot);
	else
		fanin_sparse_spill(ctx, slot);
}

static uint32_t
index_at(const struct pieces *pieces, uint32_t i)
{
	uint32_t index = 0;

	memcpy(&index, pieces->indices + (size_t)i * pieces->index_bytes, pieces->index_bytes);
	return index;
}

static void
merge_list(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, struct pieces left)
{
	const fanin_table_fn combine = left.index_bytes == 2 ? slot->combine->table16
							     : slot->combine->table32;

	while (slot->mode == FANIN_SPARSE_TABLE) {
		size_t taken = 0;
		const uint32_t n = (uint32_t)combine(slot->table.values, slot->tags,
						     slot->n_lanes / FANIN_BUCKET_LANES,
						     left.values, left.indices, left.count, &taken);

		slot->n_taken += (uint32_t)taken;
		if (n == left.count)
			return;
		spill_value(ctx, slot, left.values + (size_t)n * slot->element_bytes,
			    index_at(&left, n));
		left = behind(slot, &left, n + 1);
	}
	scatter(slot, &slot->array, &left);
}

static void
merge_bitmap(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const uint8_t *values,
	     const uint8_t *words, uint32_t n_words, uint32_t first, uint32_t count)
{
	const struct fanin_kernel_sparse_table *table = fanin_kernel_sparse_table(ctx->job->isa);
	const bool is_short = slot->index_bytes == 2;
	uint32_t indices[CHUNK];
	uint32_t i = 0;

	while (i < n_words && slot->mode == FANIN_SPARSE_TABLE) {
		uint32_t n = 0;

		/* As many words as have room even if each of their bits is set. */
		for (uint32_t more; i < n_words && n <= CHUNK - 64; i += more) {
			more = RTE_MIN(n_words - i, (CHUNK - n) / 64);
			n += (uint32_t)(is_short ? table->indices16 : table->indices32)(
				(uint8_t *)indices + n * slot->index_bytes,
				words + i * sizeof(uint64_t), more, first + i * 64);
		}
		merge_list(ctx, slot,
			   (struct pieces){ .values = values,
					    .indices = (const uint8_t *)indices,
					    .count = n,
					    .index_bytes = slot->index_bytes });
		values += (size_t)n * slot->element_bytes;
		count -= n;
	}
	if (i == n_words)
		return;
	first += i * 64;
	slot->combine->bitmap((uint8_t *)slot->array.values + (size_t)first * slot->element_bytes,
			      slot->array.occupied + first / 64, values,
			      words + i * sizeof(uint64_t), n_words - i, count);
}

void
fanin_sparse_merge(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		   const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint8_t *values = packet->payload;
	const uint8_t *where = values + (size_t)hdr->count * slot->element_bytes;

	if (fanin_shard_decode(hdr->members).form == FANIN_SHARD_LIST)
		merge_list(ctx, slot,
			   (struct pieces){ .values = values,
					    .indices = where,
					    .count = hdr->count,
					    .index_bytes = slot->index_bytes });
	else
		merge_bitmap(ctx, slot, values, where,
			     fanin_shard_words(slot->element_bytes, hdr->count,
					       packet->payload_len),
			     fanin_shard_first(values, packet->payload_len), hdr->count);
	if (slot->mode == FANIN_SPARSE_TABLE && slot->n_taken > slot->table_max)
		change_over(ctx, slot);
}
