/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cuts a sparse vector into blocks, such that an average block almost fills a packet, and a block
 * into shards. See vector.h.
 */
#include "vector.h"

#include <assert.h>

/* Returns the largest number whose square does not exceed `number`. */
static uint64_t
square_root(uint64_t number)
{
	uint64_t root = 0;

	for (uint64_t bit = UINT64_C(1) << 31; bit != 0; bit >>= 1) {
		if ((root + bit) * (root + bit) <= number)
			root += bit;
	}
	return root;
}

/*
 * Reduces the values of a packet by two standard deviations of a random number of values: about one
 * block in 40 then needs another packet.
 */
static uint64_t
with_slack(uint64_t values)
{
	const uint64_t slack = 2 * square_root(values);

	return values > slack ? values - slack : 1;
}

/*
 * Returns the span of blocks in the form list, for indices of index_bytes. n, most: at most 2^40,
 * most not 0.
 */
static uint64_t
span_of_list(uint64_t n, uint64_t most, uint32_t element_bytes, uint32_t index_bytes,
	     uint32_t payload_bytes)
{
	return with_slack(payload_bytes / (element_bytes + index_bytes)) * n / most;
}

/*
 * Chooses the span between those with shorter and with longer indices. with_short: with the shorter
 * ones.
 */
static uint64_t
span_of_indices(uint64_t n, uint64_t most, uint64_t with_short, uint64_t with_long)
{
	if (with_short <= FANIN_SHARD_SHORT_SPAN)
		return with_short;
	/*
	 * With longer indices there are fewer packets. They pay if the saved headers are larger
	 * than the 2 bytes more of each value, of which the result has still more.
	 */
	if (with_long <= FANIN_SHARD_SHORT_SPAN ||
	    2 * most * FANIN_SHARD_SHORT_SPAN >= n * FANIN_PAYLOAD_OFFSET)
		return FANIN_SHARD_SHORT_SPAN;
	return with_long;
}

/* Returns the span of blocks in the form bitmap; the arguments are as for span_of_list. */
static uint64_t
span_of_bitmap(uint64_t n, uint64_t most, uint32_t element_bytes, uint32_t payload_bytes)
{
	const uint64_t room = payload_bytes - sizeof(uint32_t);
	/*
	 * The size of a word of bits and of the values that belong to it on average, in bytes times
	 * n.
	 */
	const uint64_t per_word = 8 * n + 64 * element_bytes * most;
	const uint64_t values = room * 64 * most / per_word;
	const uint64_t slack = 2 * square_root(values * (n - most) / n) * element_bytes;

	return room > slack ? (room - slack) * 64 * n / per_word : 0;
}

uint32_t
fanin_vector_span(uint64_t n, uint64_t most, uint32_t element_bytes, uint32_t payload_bytes)
{
	const uint32_t limit = fanin_shard_span_max(element_bytes, payload_bytes);
	const uint64_t all = n > limit ? limit : n;
	uint64_t span = limit;
	uint64_t with_short, of_bitmap;

	if (limit == 0)
		return 0;
	/* Products must fit into a word; the ratio stays the same at all ranks. */
	while (n >> 40 != 0) {
		n >>= 1;
		most >>= 1;
	}
	if (most != 0) {
		with_short = span_of_list(n, most, element_bytes, 2, payload_bytes);
		of_bitmap = span_of_bitmap(n, most, element_bytes, payload_bytes);
		span = of_bitmap > with_short ? of_bitmap
					      : span_of_indices(n, most, with_short,
								span_of_list(n, most, element_bytes,
									     4, payload_bytes));
	}
	/* One block suffices for all indices. */
	if (span > all)
		span = all + 63;
	if (span > limit)
		span = limit;
	span = span / 64 * 64;
	return span == 0 ? 64 : (uint32_t)span;
}

/* Returns the position of the first value whose index is not below this one. */
static uint64_t
lower_bound(const struct fanin_vector *sparse, uint64_t index)
{
	uint64_t low = 0;
	uint64_t high = sparse->nnz;

	while (low < high) {
		const uint64_t middle = low + (high - low) / 2;

		if (fanin_vector_index(sparse->indices, sparse->index_bytes, middle) < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns the word of the block's bits that has the bit of a value. */
static uint32_t
word_of(const struct fanin_vector *sparse, const struct fanin_vector_cut *cut, uint64_t begin,
	uint32_t value)
{
	return (uint32_t)(fanin_vector_index(sparse->indices, sparse->index_bytes,
					     cut->first + value) -
			  begin) /
	       64;
}

/*
 * Cuts a block that has values in the form bitmap, between words. Each shard except the last one
 * has at least as many words as one with all bits set has: so FANIN_SHARDS_FULL suffice. Returns
 * the bytes of all packets.
 */
static uint64_t
cut_bitmap(const struct fanin_vector *sparse, uint64_t begin, uint32_t payload_bytes,
	   struct fanin_vector_cut *cut)
{
	const uint32_t element_bytes = sparse->element_bytes;
	uint64_t bytes = 0;
	uint32_t start = 0;      /* the shard's first value */
	uint32_t start_word = 0; /* the shard's first word */
	uint32_t len = 0;        /* of the shard's payload */
	uint32_t n_shards = 0;

	for (uint32_t at = 0, end; at < cut->count; at = end) {
		const uint32_t word = word_of(sparse, cut, begin, at);
		uint32_t with_it;

		for (end = at + 1; end < cut->count && word_of(sparse, cut, begin, end) == word;
		     end++)
			;
		with_it = fanin_shard_bitmap_len(element_bytes, end - start, word - start_word + 1);
		if (n_shards == 0 || with_it > payload_bytes) {
			bytes += len;
			assert(n_shards < FANIN_SHARDS_MAX);
			cut->starts[n_shards++] = at;
			start = at;
			start_word = word;
			with_it = fanin_shard_bitmap_len(element_bytes, end - start, 1);
		}
		len = with_it;
	}
	cut->form = FANIN_SHARD_BITMAP;
	cut->n_shards = (uint8_t)n_shards;
	cut->starts[n_shards] = cut->count;
	return bytes + len + (uint64_t)n_shards * FANIN_PAYLOAD_OFFSET;
}

void
fanin_vector_cut(const struct fanin_vector *sparse, uint32_t block, uint32_t payload_bytes,
		 struct fanin_vector_cut *cut)
{
	const uint64_t begin = (uint64_t)block * sparse->span;
	uint32_t per_shard, n_shards;

	cut->span = fanin_vector_block_span(sparse, block);
	cut->first = lower_bound(sparse, begin);
	cut->count = (uint32_t)(lower_bound(sparse, begin + cut->span) - cut->first);
	per_shard = fanin_shard_list_max(cut->span, sparse->element_bytes, payload_bytes);
	n_shards = cut->count == 0 ? 1 : (cut->count + per_shard - 1) / per_shard;
	if (cut->count != 0 &&
	    cut_bitmap(sparse, begin, payload_bytes, cut) <
		    (uint64_t)n_shards * FANIN_PAYLOAD_OFFSET +
			    fanin_shard_list_len(cut->span, sparse->element_bytes, cut->count))
		return;
	/* The form bitmap is shorter long before a list needs too many shards. */
	assert(n_shards <= FANIN_SHARDS_MAX);
	cut->form = FANIN_SHARD_LIST;
	cut->n_shards = (uint8_t)n_shards;
	for (uint32_t i = 0; i < n_shards; i++)
		cut->starts[i] = i * per_shard;
	cut->starts[n_shards] = cut->count;
}

/* Writes values, and behind them their indices within the block. Returns the length of both. */
static uint32_t
make_list(const struct fanin_vector *sparse, uint64_t begin, const struct fanin_vector_cut *cut,
	  uint64_t from, uint32_t count, uint8_t *payload)
{
	const uint32_t index_bytes = fanin_shard_index_bytes(cut->span);
	uint8_t *to = payload + count * sparse->element_bytes;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t index = (uint32_t)(fanin_vector_index(sparse->indices,
								     sparse->index_bytes,
								     from + i) -
						  begin);

		memcpy(to + i * index_bytes, &index, index_bytes);
	}
	return fanin_shard_list_len(cut->span, sparse->element_bytes, count);
}

/*
 * Writes values, and behind them a bitmap and the index of its first bit. count: 1 at least.
 * Returns the length.
 */
static uint32_t
make_bitmap(const struct fanin_vector *sparse, uint64_t begin, uint64_t from, uint32_t count,
	    uint8_t *payload)
{
	uint8_t *to = payload + count * sparse->element_bytes;
	uint32_t first_word = 0;
	uint32_t n_words = 0;
	uint64_t word = 0;
	uint32_t first;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t index = (uint32_t)(fanin_vector_index(sparse->indices,
								     sparse->index_bytes,
								     from + i) -
						  begin);

		if (i == 0)
			first_word = index / 64;
		for (; first_word + n_words < index / 64; n_words++) {
			memcpy(to + n_words * sizeof(word), &word, sizeof(word));
			word = 0;
		}
		word |= UINT64_C(1) << index % 64;
	}
	memcpy(to + n_words * sizeof(word), &word, sizeof(word));
	n_words++;
	first = first_word * 64;
	memcpy(to + n_words * sizeof(word), &first, sizeof(first));
	return fanin_shard_bitmap_len(sparse->element_bytes, count, n_words);
}

uint32_t
fanin_vector_make(const struct fanin_vector *sparse, uint32_t block,
		  const struct fanin_vector_cut *cut, unsigned int number, struct fanin_hdr *hdr,
		  void *payload)
{
	const uint64_t begin = (uint64_t)block * sparse->span;
	const uint64_t from = cut->first + cut->starts[number];
	const uint32_t count = cut->starts[number + 1] - cut->starts[number];
	const struct fanin_shard shard = {
		.span = cut->span,
		.number = (uint8_t)number,
		.total = number + 1u == cut->n_shards ? cut->n_shards : 0,
		.form = cut->form,
	};

	hdr->count = (uint16_t)count;
	hdr->members = fanin_shard_encode(&shard);
	if (count != 0)
		memcpy(payload, sparse->values + from * sparse->element_bytes,
		       (size_t)count * sparse->element_bytes);
	if (cut->form == FANIN_SHARD_BITMAP)
		return make_bitmap(sparse, begin, from, count, payload);
	return make_list(sparse, begin, cut, from, count, payload);
}
