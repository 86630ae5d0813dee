/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: which part of a collective's vector a rank sends and keeps, how the vector is cut into
 * blocks, the list of posted requests, and their end. Used by all protocols. Pure except for the
 * requests themselves; one thread at a time.
 */
#ifndef FANIN_HOSTLIB_REQUEST_H
#define FANIN_HOSTLIB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

struct fanin_vector;

/*
 * A collective has one vector: each rank sends a part of it, and keeps a part of the result. With
 * ALLGATHER the vector consists of one part for each rank, and no block holds data of two.
 */
enum fanin_collective {
	FANIN_COLLECTIVE_ALLREDUCE,        /* sends and keeps all */
	FANIN_COLLECTIVE_REDUCE,           /* sends all; the root keeps all */
	FANIN_COLLECTIVE_REDUCE_SCATTER,   /* sends all, keeps its part */
	FANIN_COLLECTIVE_BROADCAST,        /* the root sends all, the others keep all */
	FANIN_COLLECTIVE_ALLGATHER,        /* sends its part, keeps all */
	FANIN_COLLECTIVE_ALLREDUCE_SPARSE, /* as `sparse` says */
};

/* Returns the name of a collective, for messages; "collective" for other values. */
const char *fanin_collective_name(unsigned int collective);

/*
 * One request. The owner fills in the fields before `next`; the others belong to the protocol while
 * the status is in progress.
 */
struct fanin_request {
	struct fanin_comm *comm;       /* owner's, not used by the protocol */
	struct fanin_request *sibling; /* owner's list of all requests */
	const uint8_t *send;           /* the part that this rank sends; unused if it sends none */
	uint8_t *recv;                 /* the part that it keeps; likewise */
	uint8_t collective;            /* enum fanin_collective */
	uint8_t dtype;
	uint8_t op;    /* unused by BROADCAST and ALLGATHER, which combine nothing */
	uint16_t root; /* of REDUCE and BROADCAST */
	/*
	 * This request has every stride-th block of the vector, from `start` on; 0: all of them.
	 * Other parts have the rest (split.h).
	 */
	uint32_t stride;
	uint32_t start;
	struct fanin_request *whole; /* the request that this is a part of; NULL: it is not a part
				      */
	struct fanin_request *parts; /* split.h's: an array of n_parts, of which parts_left are in
					progress */
	uint16_t n_parts;
	uint16_t parts_left;
	struct fanin_request *next; /* the one posted after this, while in progress */
	uint64_t total_bytes;       /* of the vector */
	uint64_t done_bytes;
	uint64_t send_offset; /* in the vector, of the part that this rank sends */
	uint64_t send_bytes;
	uint64_t recv_offset; /* in the vector, of the part that it keeps */
	uint64_t recv_bytes;
	uint64_t part_bytes; /* blocks don't reach from one part into the next */
	uint32_t part_blocks;
	uint32_t block_bytes; /* whole elements per packet */
	uint32_t first_block;
	uint32_t n_blocks; /* of this request */
	uint32_t done_blocks;
	uint8_t element_bytes;
	uint16_t n_owners; /* ranks that own blocks, as found by fanin_request_cut_owned: all of a
			      REDUCE_SCATTER, the root of a REDUCE; 0: blocks have none */
	struct fanin_vector *sparse; /* owner's: vectors in place of send and recv; NULL: it is
					dense */
	uint64_t held_count; /* owner's, while it holds the request back: count to post it with */
	int status;          /* FANIN_IN_PROGRESS until it is done */
};

/* True if elements of several ranks are combined; otherwise their bits are only passed on. */
static inline bool
fanin_request_combines(const struct fanin_request *request)
{
	return request->collective != FANIN_COLLECTIVE_BROADCAST &&
	       request->collective != FANIN_COLLECTIVE_ALLGATHER;
}

/*
 * Finds which parts of the vector this rank sends and keeps: fills in all fields from total_bytes
 * to recv_bytes, and element_bytes. The owner may call it before posting, to learn these.
 *
 * count: elements of the vector; of one rank's part with REDUCE_SCATTER and ALLGATHER. The vector's
 * bytes must fit into 64 bits.
 */
void fanin_request_layout(struct fanin_request *request, uint16_t rank, uint16_t size,
			  uint64_t count);

/*
 * Cuts the vector into blocks, after fanin_request_layout: fills in block_bytes and part_blocks.
 *
 * payload_bytes: maximum per packet. wide: sums and averages of f16 and bf16 are accumulated in
 * f32. Returns how many blocks the vector has, of which the request may have a part only (stride).
 */
uint64_t fanin_request_cut(struct fanin_request *request, uint16_t payload_bytes, bool wide);

/*
 * The same for a protocol whose blocks may have owners, the ranks that keep their results
 * (protocols/dense/README.md, "Results for one rank"). Blocks have owners in a REDUCE, and in a
 * REDUCE_SCATTER whose parts fill at least one packet. Blocks of the latter don't reach from one
 * part into the next, and take the parts in turn.
 *
 * size: ranks of the job.
 */
uint64_t fanin_request_cut_owned(struct fanin_request *request, uint16_t size,
				 uint16_t payload_bytes, bool wide);

/* The place of a block in its request's vector, and the block's operator. */
struct fanin_extent {
	uint64_t offset; /* bytes */
	uint32_t len;    /* bytes */
	uint8_t op;      /* as on the wire, like root */
	uint16_t root;   /* of a copy; else the owner */
};

/* block: one of the request's, from first_block on. */
static inline struct fanin_extent
fanin_request_extent(const struct fanin_request *request, uint32_t block)
{
	const uint32_t index = (block - request->first_block) * request->stride + request->start;
	const bool combines = fanin_request_combines(request);
	uint32_t part = index / request->part_blocks;
	uint32_t place = index % request->part_blocks;
	uint64_t begin, left;
	uint16_t root = 0;

	if (request->n_owners > 1) {
		/*
		 * Owners take turns, and each turn begins with the next owner: so each of several
		 * trees has blocks of all owners.
		 */
		place = index / request->n_owners;
		part = (index + place) % request->n_owners;
		root = fanin_root_of_owner(part);
	} else if (request->n_owners == 1) {
		root = fanin_root_of_owner(request->root);
	}
	begin = (uint64_t)place * request->block_bytes;
	left = request->part_bytes - begin;
	if (!combines)
		root = request->collective == FANIN_COLLECTIVE_BROADCAST ? request->root
									 : (uint16_t)part;
	return (struct fanin_extent){
		.offset = part * request->part_bytes + begin,
		.len = left < request->block_bytes ? (uint32_t)left : request->block_bytes,
		.op = combines ? request->op : FANIN_WIRE_COPY,
		.root = root,
	};
}

/*
 * True if this rank has data for a block, either for all of it or for nothing. A block without
 * elements needs none.
 */
static inline bool
fanin_request_brings(const struct fanin_request *request, const struct fanin_extent *extent)
{
	return extent->offset - request->send_offset < request->send_bytes;
}

/*
 * True if another rank owns the block: if its run is lost, this rank can only send its contribution
 * again. The contribution's memory does not change while the request is in progress.
 */
static inline bool
fanin_request_is_others(const struct fanin_extent *extent, uint16_t rank)
{
	return fanin_root_is_owner(extent->root) && fanin_root_rank(extent->root) != rank;
}

/* True if this rank keeps all of a block's result. */
static inline bool
fanin_request_keeps(const struct fanin_request *request, const struct fanin_extent *extent)
{
	return extent->offset >= request->recv_offset &&
	       extent->offset + extent->len <= request->recv_offset + request->recv_bytes;
}

/* The part of a block's result that this rank keeps. */
struct fanin_kept {
	uint8_t *to;   /* its place in this rank's memory */
	uint32_t skip; /* bytes of the result before it */
	uint32_t len;  /* bytes; 0: it keeps none */
};

static inline struct fanin_kept
fanin_request_kept(const struct fanin_request *request, const struct fanin_extent *extent)
{
	uint64_t first = extent->offset;
	uint64_t end = extent->offset + extent->len;

	if (first < request->recv_offset)
		first = request->recv_offset;
	if (end > request->recv_offset + request->recv_bytes)
		end = request->recv_offset + request->recv_bytes;
	if (first >= end)
		return (struct fanin_kept){ 0 };
	return (struct fanin_kept){
		.to = request->recv + (first - request->recv_offset),
		.skip = (uint32_t)(first - extent->offset),
		.len = (uint32_t)(end - first),
	};
}

/* Posted requests that are not done, in the order of posting. Their owners own them. */
struct fanin_request_list {
	struct fanin_request *first;
	struct fanin_request **tail;
};

/* Initialises an empty list. It must not be moved. */
void fanin_request_list_init(struct fanin_request_list *list);

/* Adds a request, which is in progress from now on, with nothing done. */
void fanin_request_list_append(struct fanin_request_list *list, struct fanin_request *request);

/*
 * Ends a request of the list as done. If it is the last part of another request, ends that one,
 * too.
 */
void fanin_request_list_finish(struct fanin_request_list *list, struct fanin_request *request);

/* Ends all requests with an error, and the requests that they are parts of. status: negative. */
void fanin_request_list_fail(struct fanin_request_list *list, int status);

#endif
