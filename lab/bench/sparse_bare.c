/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_bare.h. Compiled without the vectoriser. */
#include "lab/bench/sparse_bare.h"

#include <stdlib.h>
#include <string.h>

#include "lab/bench/core_rig.h"
#include "wire/shard.h"

/* Knuth's multiplicative hash. */
#define HASH UINT32_C(2654435769)

typedef float any_float __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));

static void *
allocate(size_t n, size_t size)
{
	void *memory = aligned_alloc(64, (n * size + 63) / 64 * 64);

	if (memory == NULL)
		rig_die("no memory for a bare loop");
	memset(memory, 0, n * size);
	return memory;
}

void
bare_make(struct bare *bare)
{
	bare->blocks = allocate(bare->n_blocks, sizeof(*bare->blocks));
	bare->results = allocate((size_t)bare->n_blocks * BARE_READ, sizeof(struct rte_mbuf *));
	for (uint32_t i = 0; i < bare->n_blocks; i++) {
		struct bare_block *block = &bare->blocks[i];

		if (bare->n_lanes != 0) {
			block->table = allocate(bare->n_lanes, sizeof(*block->table));
			continue;
		}
		block->values = allocate(bare->span, sizeof(*block->values));
		block->there = allocate(bare->span / 64, sizeof(*block->there));
	}
}

void
bare_free(struct bare *bare)
{
	for (uint32_t i = 0; i < bare->n_blocks; i++) {
		free(bare->blocks[i].values);
		free(bare->blocks[i].there);
		free(bare->blocks[i].table);
	}
	free(bare->blocks);
	free(bare->results);
}

/* ---- in */

static inline void
array_add(struct bare_block *block, uint32_t index, float value)
{
	block->values[index] += value;
	block->there[index / 64] |= UINT64_C(1) << index % 64;
}

static inline void
table_add(const struct bare *bare, struct bare_block *block, uint32_t index, float value)
{
	uint32_t at = (uint32_t)(((uint64_t)(index * HASH) * bare->n_lanes) >> 32);

	while (block->table[at].key != index + 1) {
		if (block->table[at].key == 0) {
			block->table[at].key = index + 1;
			block->table[at].value = value;
			block->n_values++;
			return;
		}
		at = at + 1 == bare->n_lanes ? 0 : at + 1;
	}
	block->table[at].value += value;
}

/* add: the code for each value. Each form has a loop of its own, as anybody would write it. */
#define READ(add)                                                                                  \
	const any_float *values = payload;                                                         \
	const void *behind = values + count;                                                       \
                                                                                                   \
	if (form == FANIN_SHARD_LIST && fanin_shard_index_bytes(bare->span) == 2) {                \
		const any_u16 *indices = behind;                                                   \
                                                                                                   \
		for (uint32_t i = 0; i < count; i++)                                               \
			add(indices[i], values[i]);                                                \
	} else if (form == FANIN_SHARD_LIST) {                                                     \
		const any_u32 *indices = behind;                                                   \
                                                                                                   \
		for (uint32_t i = 0; i < count; i++)                                               \
			add(indices[i], values[i]);                                                \
	} else {                                                                                   \
		const uint32_t n_words = fanin_shard_words(sizeof(float), count, len);             \
		uint32_t first = fanin_shard_first(payload, len);                                  \
		const any_u64 *words = behind;                                                     \
                                                                                                   \
		for (uint32_t i = 0; i < n_words; i++, first += 64) {                              \
			for (uint64_t word = words[i]; word != 0; word &= word - 1)                \
				add(first + (uint32_t)__builtin_ctzll(word), *values++);           \
		}                                                                                  \
	}

static void
read_into_array(const struct bare *bare, struct bare_block *block, const void *payload,
		uint32_t count, uint32_t len, uint8_t form)
{
#define ADD(index, value) array_add(block, index, value)
	READ(ADD)
#undef ADD
}

static void
read_into_table(const struct bare *bare, struct bare_block *block, const void *payload,
		uint32_t count, uint32_t len, uint8_t form)
{
#define ADD(index, value) table_add(bare, block, index, value)
	READ(ADD)
#undef ADD
}

/* ---- out */

/* Returns memory for one more shard. */
static uint8_t *
next_payload(struct bare *bare, struct bare_block *block)
{
	struct rte_mbuf *mbuf;

	if (block->n_read != 0)
		mbuf = block->read[--block->n_read];
	else if (bare->n_stock != 0)
		mbuf = bare->stock[--bare->n_stock];
	else
		rig_die("a bare loop has no packet left for a result");
	bare->results[bare->n_results++] = mbuf;
	return rte_pktmbuf_mtod(mbuf, uint8_t *) + sizeof(struct fanin_headers);
}

/* Completes the shard that was begun last. */
static void
end_shard(struct bare *bare, uint32_t block, struct fanin_shard shard, uint32_t count, uint32_t len)
{
	struct rte_mbuf *mbuf = bare->results[bare->n_results - 1];
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

	*headers = bare->headers;
	fanin_wire_set_payload_len(headers, len);
	headers->fanin.block = block;
	headers->fanin.count = (uint16_t)count;
	headers->fanin.members = fanin_shard_encode(&shard);
	mbuf->data_len = (uint16_t)(sizeof(*headers) + len);
	mbuf->pkt_len = mbuf->data_len;
}

/*
 * The pieces of a list while it is being filled: each shard except the last one has the maximum of
 * values.
 */
struct list {
	any_float *values;
	void *indices;
	uint32_t n;    /* in this shard */
	uint32_t room; /* values of this shard */
	uint32_t left; /* behind this shard */
	struct fanin_shard shard;
};

static void
begin_list(struct bare *bare, struct bare_block *block, struct list *list)
{
	const uint32_t most = fanin_shard_list_max(bare->span, sizeof(float), bare->payload_bytes);

	list->room = list->left < most ? list->left : most;
	list->left -= list->room;
	list->n = 0;
	list->values = (any_float *)next_payload(bare, block);
	list->indices = list->values + list->room;
}

static void
end_list(struct bare *bare, uint32_t number, struct list *list)
{
	if (list->left == 0)
		list->shard.total = (uint8_t)(list->shard.number + 1);
	end_shard(bare, number, list->shard, list->room,
		  fanin_shard_list_len(bare->span, sizeof(float), list->room));
	list->shard.number++;
}

static inline void
list_value(struct bare *bare, struct bare_block *block, uint32_t number, struct list *list,
	   uint32_t index, float value, bool is_short)
{
	if (list->n == list->room) {
		end_list(bare, number, list);
		begin_list(bare, block, list);
	}
	list->values[list->n] = value;
	if (is_short)
		((any_u16 *)list->indices)[list->n] = (uint16_t)index;
	else
		((any_u32 *)list->indices)[list->n] = index;
	list->n++;
}

static inline void
write_array_list(struct bare *bare, struct bare_block *block, uint32_t number, uint32_t n_values,
		 bool is_short)
{
	struct list list = { .left = n_values,
			     .shard = { .span = bare->span, .form = FANIN_SHARD_LIST } };

	begin_list(bare, block, &list);
	for (uint32_t i = 0; i < bare->span / 64; i++) {
		for (uint64_t word = block->there[i]; word != 0; word &= word - 1) {
			const uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(word);

			list_value(bare, block, number, &list, index, block->values[index],
				   is_short);
			block->values[index] = 0;
		}
		block->there[i] = 0;
	}
	end_list(bare, number, &list);
}

static void
write_array_bitmaps(struct bare *bare, struct bare_block *block, uint32_t number)
{
	const uint32_t n_words = bare->span / 64;
	struct fanin_shard shard = { .span = bare->span, .form = FANIN_SHARD_BITMAP };
	uint32_t from = 0;

	while (from < n_words) {
		uint8_t *payload = next_payload(bare, block);
		any_float *to = (any_float *)payload;
		uint32_t end = from, count = 0;
		const uint32_t first = from * 64;

		for (; end < n_words; end++) {
			const uint32_t n = count +
					   (uint32_t)__builtin_popcountll(block->there[end]);

			if (fanin_shard_bitmap_len(sizeof(float), n, end + 1 - from) >
			    bare->payload_bytes)
				break;
			count = n;
		}
		for (uint32_t i = from; i < end; i++) {
			for (uint64_t word = block->there[i]; word != 0; word &= word - 1) {
				float *value =
					&block->values[i * 64 + (uint32_t)__builtin_ctzll(word)];

				*to++ = *value;
				*value = 0;
			}
		}
		memcpy(to, block->there + from, (end - from) * sizeof(uint64_t));
		memset(block->there + from, 0, (end - from) * sizeof(uint64_t));
		memcpy((uint8_t *)to + (end - from) * sizeof(uint64_t), &first, sizeof(first));
		if (end == n_words)
			shard.total = (uint8_t)(shard.number + 1);
		end_shard(bare, number, shard, count,
			  fanin_shard_bitmap_len(sizeof(float), count, end - from));
		shard.number++;
		from = end;
	}
}

static void
write_array(struct bare *bare, struct bare_block *block, uint32_t number)
{
	const uint32_t n_words = bare->span / 64;
	const uint32_t index_bytes = fanin_shard_index_bytes(bare->span);
	uint32_t n_values = 0;

	for (uint32_t i = 0; i < n_words; i++)
		n_values += (uint32_t)__builtin_popcountll(block->there[i]);
	if (n_values * index_bytes > n_words * sizeof(uint64_t))
		write_array_bitmaps(bare, block, number);
	else if (index_bytes == 2)
		write_array_list(bare, block, number, n_values, true);
	else
		write_array_list(bare, block, number, n_values, false);
}

static inline void
write_table(struct bare *bare, struct bare_block *block, uint32_t number, bool is_short)
{
	struct list list = { .left = block->n_values,
			     .shard = { .span = bare->span, .form = FANIN_SHARD_LIST } };

	begin_list(bare, block, &list);
	for (uint32_t i = 0; i < bare->n_lanes; i++) {
		struct bare_entry *entry = &block->table[i];

		if (entry->key == 0)
			continue;
		list_value(bare, block, number, &list, entry->key - 1, entry->value, is_short);
		entry->key = 0;
	}
	end_list(bare, number, &list);
	block->n_values = 0;
}

void
bare_run(struct bare *bare, struct rte_mbuf *const *mbufs, uint32_t n)
{
	bare->n_results = 0;
	for (uint32_t i = 0; i < bare->n_blocks; i++) {
		bare->blocks[i].left = bare->n_hosts;
		bare->blocks[i].n_read = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(mbufs[i], const struct fanin_headers *);
		const struct fanin_shard shard = fanin_shard_decode(headers->fanin.members);
		const uint32_t number = headers->fanin.block;
		const uint32_t len = mbufs[i]->data_len - (uint32_t)sizeof(*headers);
		struct bare_block *block = &bare->blocks[number - bare->first_block];

		(bare->n_lanes != 0 ? read_into_table : read_into_array)(bare, block, headers + 1,
									 headers->fanin.count, len,
									 shard.form);
		if (block->n_read < BARE_READ)
			block->read[block->n_read++] = mbufs[i];
		if (shard.total == 0 || --block->left != 0)
			continue;
		if (bare->n_lanes == 0)
			write_array(bare, block, number);
		else if (fanin_shard_index_bytes(bare->span) == 2)
			write_table(bare, block, number, true);
		else
			write_table(bare, block, number, false);
	}
}
