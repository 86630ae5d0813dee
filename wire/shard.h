/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shards: the packets of which a sparse block consists (Flare section 7;
 * protocols/sparse/README.md). Their header fields, the layout of their payload, and the maximum
 * number of indices of a block. Pure; thread-safe.
 */
#ifndef FANIN_WIRE_SHARD_H
#define FANIN_WIRE_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire/wire.h"

/* Maximum number of shards of a block from one sender: a word has a bit for each. */
#define FANIN_SHARDS_MAX 64
/* Shards of a block in which every index has a value; the rest is for spills. */
#define FANIN_SHARDS_FULL 56
/* Spans up to this have indices of 2 bytes. */
#define FANIN_SHARD_SHORT_SPAN 65536u

enum fanin_shard_form {
	FANIN_SHARD_LIST = 0,   /* values, then an index for each */
	FANIN_SHARD_BITMAP = 1, /* values in the order of their indices, then a bitmap, then the
				   index of its first bit */
	FANIN_SHARD_FORMS
};

/* The bit of `whole` in `members`. */
#define FANIN_SHARD_WHOLE (UINT64_C(1) << 56)

/* Contents of `members` in SPARSE, SPARSE_RESULT and SPARSE_KNOWN. */
struct fanin_shard {
	uint32_t span;  /* indices of the block */
	uint8_t number; /* number of this shard, 0 to FANIN_SHARDS_MAX - 1 */
	uint8_t total;  /* in the last shard the number of shards; else 0 */
	uint8_t form;   /* enum fanin_shard_form */
	bool whole; /* no switch spills the block: a host may know its result from an earlier run */
};

static inline uint64_t
fanin_shard_encode(const struct fanin_shard *shard)
{
	return (uint64_t)shard->whole << 56 | (uint64_t)shard->form << 48 |
	       (uint64_t)shard->total << 40 | (uint64_t)shard->number << 32 | shard->span;
}

static inline struct fanin_shard
fanin_shard_decode(uint64_t members)
{
	return (struct fanin_shard){
		.span = (uint32_t)members,
		.number = (uint8_t)(members >> 32),
		.total = (uint8_t)(members >> 40),
		.form = (uint8_t)(members >> 48),
		.whole = (members >> 56 & 1) != 0,
	};
}

/*
 * Returns the numbers of all shards of a sender with `total` shards, 0 to FANIN_SHARDS_MAX, as a
 * bitmap.
 */
static inline uint64_t
fanin_shard_numbers(unsigned int total)
{
	return total == 0 ? 0 : UINT64_MAX >> (FANIN_SHARDS_MAX - total);
}

/*
 * Returns true if a valid shard is consistent with the shards of its block that are in from the
 * same sender. The shard itself may be among these.
 *
 * in: the numbers of the shards that are in, a bitmap. total: the number in the last shard, or 0 if
 * that is not among them.
 */
static inline bool
fanin_shard_agrees(const struct fanin_shard *shard, uint64_t in, unsigned int total)
{
	if (total != 0)
		return shard->number < total && (shard->total == 0 || shard->total == total);
	return shard->total == 0 || (in & ~fanin_shard_numbers(shard->total)) == 0;
}

/* Returns the bytes of an index in a list. */
static inline uint32_t
fanin_shard_index_bytes(uint32_t span)
{
	return span <= FANIN_SHARD_SHORT_SPAN ? 2 : 4;
}

/* Returns the bytes of a list of `count` values. */
static inline uint32_t
fanin_shard_list_len(uint32_t span, uint32_t element_bytes, uint32_t count)
{
	return count * (element_bytes + fanin_shard_index_bytes(span));
}

/* Returns the maximum number of values of a list in payload_bytes bytes. */
static inline uint32_t
fanin_shard_list_max(uint32_t span, uint32_t element_bytes, uint32_t payload_bytes)
{
	return payload_bytes / (element_bytes + fanin_shard_index_bytes(span));
}

/* Returns the bytes of a bitmap shard of n_words words and `count` values. */
static inline uint32_t
fanin_shard_bitmap_len(uint32_t element_bytes, uint32_t count, uint32_t n_words)
{
	return count * element_bytes + n_words * (uint32_t)sizeof(uint64_t) +
	       (uint32_t)sizeof(uint32_t);
}

/*
 * Returns the number of indices for which a bitmap shard has room if each has a value: a multiple
 * of 64.
 */
static inline uint32_t
fanin_shard_bitmap_full(uint32_t element_bytes, uint32_t payload_bytes)
{
	if (payload_bytes < sizeof(uint32_t))
		return 0;
	return (payload_bytes - (uint32_t)sizeof(uint32_t)) / (64 * element_bytes + 8) * 64;
}

/*
 * Returns the largest span of a block: with a value at every index, the block takes
 * FANIN_SHARDS_FULL shards. 0 if the payload has no room for 64 values and their bits.
 */
static inline uint32_t
fanin_shard_span_max(uint32_t element_bytes, uint32_t payload_bytes)
{
	return FANIN_SHARDS_FULL * fanin_shard_bitmap_full(element_bytes, payload_bytes);
}

/*
 * Returns the shape of a sparse block in one word, which differs from that of every dense block
 * (fanin_wire_shape).
 */
static inline uint64_t
fanin_shard_shape(const struct fanin_hdr *hdr)
{
	return UINT64_C(1) << 63 | (uint64_t)(uint32_t)hdr->members << 16 | (uint64_t)hdr->op << 8 |
	       hdr->dtype;
}

static inline bool
fanin_shape_is_sparse(uint64_t shape)
{
	return shape >> 63 != 0;
}

static inline uint32_t
fanin_shape_span(uint64_t shape)
{
	return (uint32_t)(shape >> 16);
}

/*
 * Returns true if the header and the length of the payload are consistent. Does not read the
 * payload: readers of the payload check its indices and bits by fanin_shard_check.
 *
 * hdr: of a type whose payload is a shard, with a data type of elements. payload_len: bytes.
 */
bool fanin_shard_fits(const struct fanin_hdr *hdr, uint32_t payload_len);

/*
 * Returns true if the payload is consistent with the header: indices are within the span, a bitmap
 * has a bit for each value and none beyond the span.
 *
 * payload: of a packet for which fanin_shard_fits is true; any alignment.
 */
bool fanin_shard_check(const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len);

/* Returns the last four bytes of a bitmap shard: the index of its first bit. */
static inline uint32_t
fanin_shard_first(const void *payload, uint32_t payload_len)
{
	uint32_t first;

	memcpy(&first, (const uint8_t *)payload + payload_len - sizeof(first), sizeof(first));
	return first;
}

/* Returns the number of bitmap words of a bitmap shard for which fanin_shard_fits is true. */
static inline uint32_t
fanin_shard_words(uint32_t element_bytes, uint32_t count, uint32_t payload_len)
{
	return (payload_len - (uint32_t)sizeof(uint32_t) - count * element_bytes) /
	       (uint32_t)sizeof(uint64_t);
}

#endif
