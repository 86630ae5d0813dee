/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shards: the packets of which a sparse block consists (Flare section 7;
 * protocols/sparse/README.md). What the header says of one, how its payload is laid out, and how
 * many indices a block may have. Pure; thread-safe.
 */
#ifndef FANIN_WIRE_SHARD_H
#define FANIN_WIRE_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire/wire.h"

/* Shards of a block, from one sender. Shard numbers fit into a word's bits. */
#define FANIN_SHARDS_MAX 64
/* Of these a block in which every index has a value takes so many; the rest is for spills. */
#define FANIN_SHARDS_FULL 56
/* Spans up to this have indices of 2 bytes. */
#define FANIN_SHARD_SHORT_SPAN 65536u

enum fanin_shard_form {
	FANIN_SHARD_LIST = 0,   /* values, then as many indices */
	FANIN_SHARD_BITMAP = 1, /* values in the order of their indices, then a bitmap, then the
				   index of its first bit */
	FANIN_SHARD_FORMS
};

/* The bit of `whole` in `members`. */
#define FANIN_SHARD_WHOLE (UINT64_C(1) << 56)

/* What `members` of a SPARSE, SPARSE_RESULT or SPARSE_KNOWN says. */
struct fanin_shard {
	uint32_t span;  /* indices of the block */
	uint8_t number; /* of this shard, 0 to FANIN_SHARDS_MAX - 1 */
	uint8_t total;  /* in the last one the number of shards; else 0 */
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
 * The numbers of so many shards, 0 to FANIN_SHARDS_MAX, a bitmap: those of a sender whose last
 * shard says so.
 */
static inline uint64_t
fanin_shard_numbers(unsigned int total)
{
	return total == 0 ? 0 : UINT64_MAX >> (FANIN_SHARDS_MAX - total);
}

/*
 * Can a shard, which fits, be one of a block of whose shards from the same sender some are in?
 * Whether it is one of these is another question.
 *
 * in: their numbers, a bitmap. total: what the last one says, or 0 if it is not among them.
 */
static inline bool
fanin_shard_agrees(const struct fanin_shard *shard, uint64_t in, unsigned int total)
{
	if (total != 0)
		return shard->number < total && (shard->total == 0 || shard->total == total);
	return shard->total == 0 || (in & ~fanin_shard_numbers(shard->total)) == 0;
}

/* Bytes of an index in a list. */
static inline uint32_t
fanin_shard_index_bytes(uint32_t span)
{
	return span <= FANIN_SHARD_SHORT_SPAN ? 2 : 4;
}

/* Bytes of a list of so many values. */
static inline uint32_t
fanin_shard_list_len(uint32_t span, uint32_t element_bytes, uint32_t count)
{
	return count * (element_bytes + fanin_shard_index_bytes(span));
}

/* Values that a list of at most so many bytes has room for. */
static inline uint32_t
fanin_shard_list_max(uint32_t span, uint32_t element_bytes, uint32_t payload_bytes)
{
	return payload_bytes / (element_bytes + fanin_shard_index_bytes(span));
}

/* Bytes of a bitmap shard of so many words and values. */
static inline uint32_t
fanin_shard_bitmap_len(uint32_t element_bytes, uint32_t count, uint32_t n_words)
{
	return count * element_bytes + n_words * (uint32_t)sizeof(uint64_t) +
	       (uint32_t)sizeof(uint32_t);
}

/* Indices that a bitmap shard has room for if each of them has a value: a multiple of 64. */
static inline uint32_t
fanin_shard_bitmap_full(uint32_t element_bytes, uint32_t payload_bytes)
{
	if (payload_bytes < sizeof(uint32_t))
		return 0;
	return (payload_bytes - (uint32_t)sizeof(uint32_t)) / (64 * element_bytes + 8) * 64;
}

/*
 * The largest span of a block: such that one in which every index has a value takes
 * FANIN_SHARDS_FULL shards. 0 if the payload has no room for 64 values and their bits.
 */
static inline uint32_t
fanin_shard_span_max(uint32_t element_bytes, uint32_t payload_bytes)
{
	return FANIN_SHARDS_FULL * fanin_shard_bitmap_full(element_bytes, payload_bytes);
}

/* The shape of a sparse block in one word: no dense block has the same one (fanin_wire_shape). */
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
 * Do header and length of a payload fit each other? It looks at no payload: whether indices lie
 * within the span, and how many bits a bitmap has, is for whoever reads them (fanin_shard_check).
 *
 * hdr: of a type whose payload is a shard, with a data type of elements.
 */
bool fanin_shard_fits(const struct fanin_hdr *hdr, uint32_t payload_len);

/*
 * Does the payload hold what the header says: indices within the span, a bit for each value, none
 * beyond the span?
 *
 * payload: of a packet that fanin_shard_fits; any alignment.
 */
bool fanin_shard_check(const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len);

/* The last four bytes of a bitmap shard: the index of its first bit. */
static inline uint32_t
fanin_shard_first(const void *payload, uint32_t payload_len)
{
	uint32_t first;

	memcpy(&first, (const uint8_t *)payload + payload_len - sizeof(first), sizeof(first));
	return first;
}

/* Words of a bitmap shard that fits. */
static inline uint32_t
fanin_shard_words(uint32_t element_bytes, uint32_t count, uint32_t payload_len)
{
	return (payload_len - (uint32_t)sizeof(uint32_t) - count * element_bytes) /
	       (uint32_t)sizeof(uint64_t);
}

#endif
