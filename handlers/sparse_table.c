/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where values are combined: see sparse.h. A hash table looks at one bucket for each index. A value whose bucket is full of other indices goes into a
 * spill, which leaves when it is full, and stays in the slot to be sent again.
 */
#include <string.h>

#include "handlers/sparse.h"

/* Values that are looked up at a time: their lanes stay in the first cache. */
#define CHUNK 256

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

/* The rest of them behind the first n. */
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

/* From now on the block's values are in the array, but for those that have left. */
static void
change_over(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	const uint8_t *spill = filling_spill(ctx, slot);
	const struct pieces spilled = {
		.values = spill,
		.indices = spill + (size_t)slot->list_most * slot->element_bytes,
		.count = slot->n_spilled,
		.index_bytes = slot->index_bytes,
	};
	uint64_t values[CHUNK];
	uint32_t indices[CHUNK];
	uint32_t left = 0, from = 0;

	for (uint32_t i = 0; i < slot->n_lanes / 64; i++)
		left += (uint32_t)__builtin_popcountll(slot->table.occupied[i]);
	while (left != 0) {
		const uint32_t n = RTE_MIN(left, (uint32_t)CHUNK);

		from = slot->take->table32(values, indices, slot->table.values,
					   slot->table.occupied, slot->tags, from, n);
		slot->combine->list32(slot->array.values, slot->array.occupied, values, indices, n);
		left -= n;
	}
	scatter(slot, &slot->array, &spilled);
	slot->n_spilled = 0;
	slot->mode = FANIN_SPARSE_ARRAY;
	ctx->stats->own[FANIN_SPARSE_CHANGED_OVER]++;
}

/* A value whose bucket is full. The last one that there is room for sends the spill, or makes the table an array. */
static void
spill_value(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const uint8_t *value,
	    uint32_t index)
{
	uint8_t *values = filling_spill(ctx, slot);
	uint8_t *indices = values + (size_t)slot->list_most * slot->element_bytes;

	memcpy(values + (size_t)slot->n_spilled * slot->element_bytes, value, slot->element_bytes);
	memcpy(indices + (size_t)slot->n_spilled * slot->index_bytes, &index, slot->index_bytes);
	if (++slot->n_spilled != slot->list_most)
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

/* Combines up to CHUNK values into the table. Returns how many; fewer than there are if it is an array since then. */
static uint32_t
merge_chunk(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const struct pieces *pieces)
{
	const struct fanin_sparse_table *table = fanin_kernel_sparse_table(ctx->job->isa);
	uint32_t lanes[CHUNK];
	uint32_t none = 0, done = 0;

	slot->n_taken += (uint32_t)(pieces->index_bytes == 2 ? table->locate16 : table->locate32)(
		slot->tags, slot->table_shift, pieces->indices, pieces->count, lanes);
	for (uint32_t i = 0; i < pieces->count; i++)
		none |= lanes[i] == FANIN_NO_LANE;
	for (uint32_t i = 0; none != 0 && i < pieces->count; i++) {
		if (lanes[i] != FANIN_NO_LANE)
			continue;
		slot->combine->list32(slot->table.values, slot->table.occupied,
				      pieces->values + (size_t)done * slot->element_bytes,
				      lanes + done, i - done);
		done = i + 1;
		spill_value(ctx, slot, pieces->values + (size_t)i * slot->element_bytes,
			    index_at(pieces, i));
		if (slot->mode == FANIN_SPARSE_ARRAY)
			return done;
	}
	slot->combine->list32(slot->table.values, slot->table.occupied,
			      pieces->values + (size_t)done * slot->element_bytes, lanes + done,
			      pieces->count - done);
	return pieces->count;
}

static void
merge_list(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, struct pieces left)
{
	while (left.count != 0 && slot->mode == FANIN_SPARSE_TABLE) {
		struct pieces chunk = left;

		chunk.count = RTE_MIN(left.count, (uint32_t)CHUNK);
		left = behind(slot, &left, merge_chunk(ctx, slot, &chunk));
	}
	if (left.count != 0)
		scatter(slot, &slot->array, &left);
}

/* The bits of a word become indices of a list. */
static uint32_t
list_bits(uint64_t word, uint32_t first, uint32_t *indices)
{
	uint32_t n = 0;

	for (; word != 0; word &= word - 1)
		indices[n++] = first + (uint32_t)__builtin_ctzll(word);
	return n;
}

static void
merge_bitmap(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot, const uint8_t *values,
	     const uint8_t *words, uint32_t n_words, uint32_t first, uint32_t count)
{
	uint32_t indices[CHUNK];
	uint32_t i = 0;

	while (i < n_words && slot->mode == FANIN_SPARSE_TABLE) {
		uint32_t n = 0;

		for (; i < n_words && n <= CHUNK - 64; i++) {
			uint64_t word;

			memcpy(&word, words + i * sizeof(word), sizeof(word));
			n += list_bits(word, first + i * 64, indices + n);
		}
		merge_list(ctx, slot,
			   (struct pieces){ .values = values,
					    .indices = (const uint8_t *)indices,
					    .count = n,
					    .index_bytes = sizeof(indices[0]) });
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
			     fanin_shard_words(slot->element_bytes, hdr->count, packet->payload_len),
			     fanin_shard_first(values, packet->payload_len), hdr->count);
	if (slot->mode == FANIN_SPARSE_TABLE && slot->n_taken > slot->table_most)
		change_over(ctx, slot);
}
