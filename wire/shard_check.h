/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin_shard_check for callers that are compiled for newer CPUs than this library: there, counting
 * bits and finding the largest index take a fraction of the time. Pure; thread-safe.
 */
#ifndef FANIN_WIRE_SHARD_CHECK_H
#define FANIN_WIRE_SHARD_CHECK_H

#include "wire/shard.h"

/* Index arrays in packets have any address. */
typedef uint16_t fanin_shard_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t fanin_shard_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t fanin_shard_u64 __attribute__((aligned(1), may_alias));

static inline bool
fanin_shard_check_list(const void *indices, uint32_t span, uint32_t count)
{
	if (fanin_shard_index_bytes(span) == 2) {
		const fanin_shard_u16 *at = indices;
		uint16_t most = 0;

		for (uint32_t i = 0; i < count; i++)
			most = at[i] > most ? at[i] : most;
		return count == 0 || most < span;
	} else {
		const fanin_shard_u32 *at = indices;
		uint32_t most = 0;

		for (uint32_t i = 0; i < count; i++)
			most = at[i] > most ? at[i] : most;
		return count == 0 || most < span;
	}
}

static inline bool
fanin_shard_check_bitmap(const void *words, uint32_t first, uint32_t n_words, uint32_t span,
			 uint32_t count)
{
	const fanin_shard_u64 *at = words;
	/* 64 bits: with the largest spans the last word ends at 2^32. */
	const uint64_t end = (uint64_t)first + (uint64_t)n_words * 64;
	uint32_t n_bits = 0;

	if (first % 64 != 0 || n_words == 0 || first >= span ||
	    end > ((uint64_t)span + 63) / 64 * 64)
		return false;
	for (uint32_t i = 0; i < n_words; i++)
		n_bits += (uint32_t)__builtin_popcountll(at[i]);
	if (n_bits != count)
		return false;
	/* If the last word is the span's last one, it must have no bits beyond the span. */
	return end <= span || at[n_words - 1] >> (span % 64) == 0;
}

/* See fanin_shard_check. */
static inline bool
fanin_shard_check_inline(const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	const uint8_t *behind = (const uint8_t *)payload + hdr->count * element_bytes;

	if (shard.form == FANIN_SHARD_LIST)
		return fanin_shard_check_list(behind, shard.span, hdr->count);
	return fanin_shard_check_bitmap(behind, fanin_shard_first(payload, payload_len),
					fanin_shard_words(element_bytes, hdr->count, payload_len),
					shard.span, hdr->count);
}

#endif
