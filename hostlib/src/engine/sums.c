/* SPDX-License-Identifier: BSD-3-Clause */
/* See sums.h. */
#include "sums.h"

#include <stdlib.h>
#include <string.h>

#include "wire/ranks.h"

bool
fanin_sum_frames_open(struct fanin_sum_frames *frames, size_t n, uint32_t payload_bytes)
{
	const uint32_t payload = (payload_bytes + FANIN_PAYLOAD_ALIGN - 1u) / FANIN_PAYLOAD_ALIGN *
				 FANIN_PAYLOAD_ALIGN;

	frames->bytes = FANIN_PAYLOAD_ALIGN / 2 + FANIN_PAYLOAD_OFFSET + payload;
	frames->memory = aligned_alloc(FANIN_PAYLOAD_ALIGN, n * frames->bytes);
	return frames->memory != NULL;
}

void
fanin_sum_begin(const struct fanin_sums *sums, struct fanin_sum *sum, uint64_t *ranks,
		void *payload, uint64_t shape)
{
	memset(ranks, 0, sums->n_words * sizeof(*ranks));
	*sum = (struct fanin_sum){
		.ranks = ranks, .payload = payload, .shape = shape, .empty = true
	};
}

/* Combines a part's elements with the sum's. payload: NULL: the part has none. */
static void
combine(const struct fanin_sums *sums, struct fanin_sum *sum, const struct fanin_hdr *hdr,
	const void *payload)
{
	if (payload == NULL)
		return;
	if (hdr->count == 0)
		; /* no elements */
	else if (sum->empty)
		memcpy(sum->payload, payload, hdr->count * fanin_dtype_size(hdr->dtype));
	else if (!fanin_op_is_copy(hdr->op)) /* else the data of the first of two roots stays */
		fanin_kernel(sums->isa, hdr->dtype, hdr->op)(sum->payload, payload, hdr->count);
	sum->empty = false;
}

enum fanin_sum_outcome
fanin_sum_compare(const struct fanin_sums *sums, const struct fanin_sum *sum, const uint64_t *ranks)
{
	uint64_t both = 0, new = 0, lacking = 0;

	for (uint16_t i = 0; i < sums->n_words; i++) {
		both |= sum->ranks[i] & ranks[i];
		new |= ranks[i] & ~sum->ranks[i];
		lacking |= sum->ranks[i] & ~ranks[i];
	}
	if (both == 0)
		return FANIN_SUM_MERGED;
	if (new == 0)
		return FANIN_SUM_DUPLICATE;
	return lacking != 0 ? FANIN_SUM_OVERLAP : FANIN_SUM_REPLACED;
}

enum fanin_sum_outcome
fanin_sum_add(const struct fanin_sums *sums, struct fanin_sum *sum,
	      const struct fanin_sum_part *part)
{
	const uint64_t shape = fanin_wire_shape(part->hdr);
	enum fanin_sum_outcome outcome;

	if (sum->shape == 0)
		sum->shape = shape;
	if (sum->shape != shape)
		return FANIN_SUM_MISMATCH;
	outcome = fanin_sum_compare(sums, sum, part->ranks);
	if (outcome != FANIN_SUM_MERGED && outcome != FANIN_SUM_REPLACED)
		return outcome;
	if (outcome == FANIN_SUM_REPLACED)
		sum->empty = true;
	combine(sums, sum, part->hdr, part->payload);
	for (uint16_t i = 0; i < sums->n_words; i++)
		sum->ranks[i] |= part->ranks[i];
	return outcome;
}

void
fanin_sum_finish(const struct fanin_sums *sums, struct fanin_sum *sum)
{
	fanin_finish_fn divide = NULL;
	struct fanin_hdr hdr = { 0 };

	fanin_wire_set_shape(&hdr, sum->shape);
	if (hdr.count == 0)
		sum->empty = false;
	if (!fanin_op_is_copy(hdr.op))
		divide = fanin_kernel_finish(sums->isa, hdr.dtype, hdr.op);
	if (!sum->empty && divide != NULL)
		divide(sum->payload, sums->n_ranks, hdr.count);
}

void
fanin_sum_put(const struct fanin_sums *sums, struct fanin_sum *sum, const struct fanin_hdr *hdr,
	      const void *payload)
{
	sum->empty = true;
	combine(sums, sum, hdr, payload);
	for (uint16_t i = 0; i < sums->n_words; i++)
		sum->ranks[i] = fanin_ranks_all_word(sums->n_ranks, i);
}

uint32_t
fanin_sum_len(const struct fanin_sum *sum)
{
	struct fanin_hdr hdr = { 0 };

	fanin_wire_set_shape(&hdr, sum->shape);
	return sum->empty ? 0 : hdr.count * fanin_dtype_size(hdr.dtype);
}

bool
fanin_sum_is_whole(const struct fanin_sums *sums, const struct fanin_sum *sum,
		   const uint64_t *except)
{
	for (uint16_t i = 0; i < sums->n_words; i++) {
		const uint64_t all = fanin_ranks_all_word(sums->n_ranks, i);

		if ((sum->ranks[i] | (except != NULL ? except[i] : 0)) != all)
			return false;
	}
	return true;
}
