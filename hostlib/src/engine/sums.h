/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum of a block and the set of ranks in it, for a host that makes the block's result of parts
 * that come in any order, any number of times, and merged in any way: an owner, a home host, a
 * leader, a parameter server. Pure; one thread at a time.
 *
 * Why results are exact. The invariant: a sum holds the data of each rank of its set once, and of
 * no other rank. It holds for the empty set, and for every part that comes, since switches and
 * hosts keep it, too; callers check before that a part is of this block and run. Sets without a
 * rank in common are combined: each rank of the union is in the sum once. A part whose ranks are
 * all in the sum is dropped. A part that has all of the sum's ranks replaces the whole sum. Any
 * other part would count a rank twice, and is dropped. The data of a single missing rank has no
 * rank in common with the sum, so asking the missing ranks always completes it. A sum of all ranks
 * has each one's data once (README.md of protocols/push, pull, pa_atp and canary).
 */
#ifndef FANIN_HOSTLIB_SUMS_H
#define FANIN_HOSTLIB_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/kernels/kernels.h"
#include "wire/wire.h"

/* Common to all sums of a job. */
struct fanin_sums {
	enum fanin_isa isa;
	uint16_t n_ranks;
	uint16_t n_words; /* of each set */
};

/* Memory for results: headers, followed by the payload, which is aligned. */
struct fanin_sum_frames {
	uint8_t *memory; /* the owner frees it */
	uint32_t bytes;  /* of each */
};

struct fanin_sum {
	uint64_t *ranks; /* set of n_words; the owner's memory */
	void *payload;   /* elements, aligned for the kernels; the owner's memory */
	uint64_t shape;  /* as fanin_wire_shape returns it; 0: not known yet */
	bool empty;      /* no rank has brought data so far: the payload is undefined */
};

/*
 * A part that is added to a sum: the data of one rank, or a sum. Its operator has a kernel for the
 * data type, or is a copy.
 */
struct fanin_sum_part {
	const uint64_t *ranks;       /* one at least; n_words */
	const struct fanin_hdr *hdr; /* data type, operator, count and root */
	const void *payload;         /* hdr->count elements; NULL: these ranks bring no data */
};

enum fanin_sum_outcome {
	FANIN_SUM_MERGED,    /* combined with the sum */
	FANIN_SUM_REPLACED,  /* in place of the sum before */
	FANIN_SUM_DUPLICATE, /* dropped: the sum has all its ranks */
	FANIN_SUM_OVERLAP,   /* dropped: the sum has some of its ranks, and ranks that the part
				lacks */
	FANIN_SUM_MISMATCH,  /* dropped: its shape differs */
};

/* Allocates n frames. Returns false if there is no memory. */
bool fanin_sum_frames_open(struct fanin_sum_frames *frames, size_t n, uint32_t payload_bytes);

static inline struct fanin_headers *
fanin_sum_frame(const struct fanin_sum_frames *frames, size_t i)
{
	return (struct fanin_headers *)(frames->memory + i * frames->bytes +
					FANIN_PAYLOAD_ALIGN / 2);
}

/*
 * Begins a sum of no rank. ranks, payload: memory for it, which need not be initialised. shape: 0:
 * the first part sets it.
 */
void fanin_sum_begin(const struct fanin_sums *sums, struct fanin_sum *sum, uint64_t *ranks,
		     void *payload, uint64_t shape);

/*
 * Returns what fanin_sum_add would do with a part of these ranks, if its shape is the sum's. ranks:
 * n_words, one rank at least.
 */
enum fanin_sum_outcome fanin_sum_compare(const struct fanin_sums *sums, const struct fanin_sum *sum,
					 const uint64_t *ranks);

/* Adds a part, or drops it. Returns what it did. */
enum fanin_sum_outcome fanin_sum_add(const struct fanin_sums *sums, struct fanin_sum *sum,
				     const struct fanin_sum_part *part);

/*
 * Makes the result of a sum of all ranks: divides an average. A block without elements is not
 * empty, since no rank has anything to bring.
 */
void fanin_sum_finish(const struct fanin_sums *sums, struct fanin_sum *sum);

/* Replaces a sum by a known result, which has all ranks. payload: as in struct fanin_sum_part. */
void fanin_sum_put(const struct fanin_sums *sums, struct fanin_sum *sum,
		   const struct fanin_hdr *hdr, const void *payload);

/* Returns how many bytes of payload a sum has: 0 if it is empty. */
uint32_t fanin_sum_len(const struct fanin_sum *sum);

/* True if the sum has all ranks, except those of a set. except: n_words; NULL: none. */
bool fanin_sum_is_whole(const struct fanin_sums *sums, const struct fanin_sum *sum,
			const uint64_t *except);

#endif
