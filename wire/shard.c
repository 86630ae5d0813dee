/* SPDX-License-Identifier: BSD-3-Clause */
/* See shard.h. */
#include "wire/shard.h"

bool
fanin_shard_fits(const struct fanin_hdr *hdr, uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	const uint32_t values_len = hdr->count * element_bytes;
	const uint32_t end_len = (uint32_t)sizeof(uint32_t);

	if (fanin_shard_encode(&shard) != hdr->members || shard.span == 0 ||
	    shard.number >= FANIN_SHARDS_MAX || (shard.total != 0 && shard.total != shard.number + 1))
		return false;
	/* A list of a switch may have an index twice, and so more values than there are indices. */
	if (shard.form == FANIN_SHARD_LIST)
		return payload_len == fanin_shard_list_len(shard.span, element_bytes, hdr->count);
	if (shard.form != FANIN_SHARD_BITMAP || hdr->count == 0 || hdr->count > shard.span ||
	    payload_len < values_len + end_len)
		return false;
	return (payload_len - values_len - end_len) % sizeof(uint64_t) == 0;
}

static bool
check_list(const void *indices, uint32_t span, uint32_t count)
{
	const uint8_t *at = indices;
	uint32_t most = 0;

	if (fanin_shard_index_bytes(span) == 2) {
		for (uint32_t i = 0; i < count; i++) {
			uint16_t index;

			memcpy(&index, at + i * sizeof(index), sizeof(index));
			most = index > most ? index : most;
		}
	} else {
		for (uint32_t i = 0; i < count; i++) {
			uint32_t index;

			memcpy(&index, at + i * sizeof(index), sizeof(index));
			most = index > most ? index : most;
		}
	}
	return count == 0 || most < span;
}

static bool
check_bitmap(const void *words, uint32_t first, uint32_t n_words, uint32_t span, uint32_t count)
{
	/* Of the largest spans the last word ends at 2^32. */
	const uint64_t end = (uint64_t)first + (uint64_t)n_words * 64;
	uint32_t n_bits = 0;
	uint64_t word = 0;

	if (first % 64 != 0 || n_words == 0 || first >= span || end > ((uint64_t)span + 63) / 64 * 64)
		return false;
	for (uint32_t i = 0; i < n_words; i++) {
		memcpy(&word, (const uint8_t *)words + i * sizeof(word), sizeof(word));
		n_bits += (uint32_t)__builtin_popcountll(word);
	}
	if (n_bits != count)
		return false;
	/* Bits beyond the span, if the last word is the span's. */
	return end <= span || word >> (span % 64) == 0;
}

bool
fanin_shard_check(const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	const uint8_t *behind = (const uint8_t *)payload + hdr->count * element_bytes;

	if (shard.form == FANIN_SHARD_LIST)
		return check_list(behind, shard.span, hdr->count);
	return check_bitmap(behind, fanin_shard_first(payload, payload_len),
			    fanin_shard_words(element_bytes, hdr->count, payload_len), shard.span,
			    hdr->count);
}
