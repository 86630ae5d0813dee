/* SPDX-License-Identifier: BSD-3-Clause */
/* See shard.h. */
#include "wire/shard.h"

#include "wire/shard_check.h"

bool
fanin_shard_fits(const struct fanin_hdr *hdr, uint32_t payload_len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);
	const uint32_t element_bytes = fanin_dtype_size(hdr->dtype);
	const uint32_t values_len = hdr->count * element_bytes;
	const uint32_t end_len = (uint32_t)sizeof(uint32_t);

	if (fanin_shard_encode(&shard) != hdr->members || shard.span == 0 ||
	    shard.number >= FANIN_SHARDS_MAX ||
	    (shard.total != 0 && shard.total != shard.number + 1))
		return false;
	/* A switch's list may have an index twice, and so more values than there are indices. */
	if (shard.form == FANIN_SHARD_LIST)
		return payload_len == fanin_shard_list_len(shard.span, element_bytes, hdr->count);
	if (shard.form != FANIN_SHARD_BITMAP || hdr->count == 0 || hdr->count > shard.span ||
	    payload_len < values_len + end_len)
		return false;
	return (payload_len - values_len - end_len) % sizeof(uint64_t) == 0;
}

bool
fanin_shard_check(const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len)
{
	return fanin_shard_check_inline(hdr, payload, payload_len);
}
