/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Common part of the handlers of sparse blocks (Flare section 7; protocols/sparse/README.md).
 * Handlers differ in where values are combined: in an array with an element for each index, or in a
 * hash table, which turns into an array if too much does not fit.
 *
 * A sparse job also has dense blocks and barriers. Its slots begin with the state of the handler
 * `single`, which handles these; the shape in the window tells which kind of block a slot holds.
 * Functions are called by a worker that is in the slot alone, unless stated otherwise.
 */
#ifndef FANIN_PROTOCOLS_SPARSE_SWITCH_SPARSE_H
#define FANIN_PROTOCOLS_SPARSE_SWITCH_SPARSE_H

#include "handlers/kernels/sparse.h"
#include "protocols/dense/switch/single.h"
#include "wire/shard.h"

/* Spills of a block: shards that leave early. With one more the table becomes an array. */
#define FANIN_SPILLS_MAX 4
/*
 * A table whose elements fill this many shards becomes an array, too: spills and the rest have to
 * fit into FANIN_SHARDS_MAX.
 */
#define FANIN_TABLE_SHARDS_MAX 50

/*
 * The most mbufs that a slot holds: the parent's results and empty ones together, and one of a
 * dense block.
 */
#define FANIN_SPARSE_MBUFS (FANIN_SHARDS_MAX + 1)

/* Own counters of sparse handlers. */
enum fanin_sparse_counter {
	FANIN_SPARSE_SHARDS_IN,
	FANIN_SPARSE_SHARDS_OUT,
	FANIN_SPARSE_SPILLS,
	FANIN_SPARSE_CHANGED_OVER,
	FANIN_SPARSE_NO_PACKET,
	FANIN_SPARSE_REPEATED,
};

extern const struct fanin_counter fanin_sparse_counters[];

/* The shards of one sender that have come. */
struct fanin_shards_in {
	uint64_t in;   /* bitmap by number */
	uint8_t total; /* 0: the last one has not come */
};

/* The source of a slot's own shards. */
enum fanin_sparse_mode {
	FANIN_SPARSE_ARRAY,
	FANIN_SPARSE_TABLE,
};

/* A part of the slot's memory; by the size of elements it is used in different lengths. */
struct fanin_sparse_array {
	void *values;
	uint64_t *occupied;
};

struct fanin_sparse {
	struct single_slot single; /* of dense blocks; the window is that of all blocks */

	/* State of the sparse block. */
	uint32_t span;
	uint32_t list_max; /* values of a full shard in the form list */
	uint8_t element_bytes;
	uint8_t index_bytes;
	uint8_t mode;     /* enum fanin_sparse_mode */
	uint8_t n_shards; /* own shards sent so far; all of them once the block is sent up or done
			   */
	uint8_t n_spills; /* the first ones among these, which are in spill memory */
	uint8_t form; /* finished: form of the shards behind the spills, enum fanin_shard_form */
	uint8_t n_empty;
	uint8_t max_number; /* the highest number of a shard that has come */
	bool is_whole;      /* nothing is sent before all children are in */
	bool is_known; /* a child has the result from an earlier run: its packets are sent on as
			  they are */
	uint32_t n_spilled;  /* values in the spill that is being filled */
	uint32_t last_spill; /* finished: values of the last spill, which holds the rest; 0: it is
				full like the others */
	uint32_t n_values;   /* finished: values in the array or table */
	uint32_t n_lanes;    /* of the table */
	uint32_t n_taken;    /* lanes that are taken */
	uint32_t table_max;  /* with more values it becomes an array */
	const struct fanin_kernel_sparse_combine *combine;
	const struct fanin_kernel_sparse_take *take;
	struct fanin_sparse_array array; /* by index */
	struct fanin_sparse_array table; /* by lane; occupied: once all values are in */
	void *tags;                      /* of the lanes, index_bytes each: see fanin_table_fn */
	uint8_t *spills;                 /* FANIN_SPILLS_MAX + 1 payloads */

	struct fanin_shards_in results; /* of the parent; at the root those that are known */
	struct fanin_shards_in known;   /* below the root: those that are known, which went up */
	struct rte_mbuf *kept[FANIN_SHARDS_MAX];  /* all these; what is in `results` as it went to
						     the children */
	struct rte_mbuf *empty[FANIN_SHARDS_MAX]; /* n_empty mbufs for shards that are made here */
	uint32_t starts[FANIN_SHARDS_MAX]; /* of own shards behind the spills: their first index, or
					      lane */
	struct fanin_shards_in child[FANIN_WIRE_MAX_CHILDREN];
};

/* Is the slot's block sparse? The caller has found that it is the block in question. */
static inline bool
fanin_sparse_is(const struct fanin_sparse *slot)
{
	return fanin_shape_is_sparse(slot->single.dense.state.shape);
}

/* A bitmap of the first n. n: up to 64. */
static inline uint64_t
fanin_sparse_first(unsigned int n)
{
	return n == 0 ? 0 : UINT64_MAX >> (64 - n);
}

/* Are all shards in? */
static inline bool
fanin_shards_complete(const struct fanin_shards_in *shards)
{
	return shards->total != 0 && shards->in == fanin_sparse_first(shards->total);
}

/* Can a sender have this shard beside those that have come? */
static inline bool
fanin_shards_fit(const struct fanin_shards_in *shards, const struct fanin_shard *shard)
{
	if (shards->total != 0)
		return shard->number < shards->total && shard->total == 0;
	return shard->total == 0 || (shards->in & ~fanin_sparse_first(shard->total)) == 0;
}

static inline void
fanin_shards_add(struct fanin_shards_in *shards, const struct fanin_shard *shard)
{
	shards->in |= UINT64_C(1) << shard->number;
	if (shard->total != 0)
		shards->total = shard->total;
}

/* sparse.c */

/* Of a slot whose values are combined in an array, or in a table that may become one. */
size_t fanin_sparse_slot_size(const struct fanin_job_params *job, enum fanin_sparse_mode mode);

/*
 * Returns the lanes of a hash table for elements of a size: enough for packets of all children,
 * full of different indices, to take up at most 0.65 of it. They are limited to what can leave as
 * shards, which is less in jobs of many children: there tables become arrays.
 */
uint32_t fanin_sparse_table_lanes(const struct fanin_job_params *job, uint32_t element_bytes);

/* A sparse handler's `types`. */
extern const uint8_t fanin_sparse_types[];

/* A sparse handler's `contribution`: of dense blocks. */
enum fanin_verdict fanin_sparse_contribution(struct fanin_handler_ctx *ctx, void *memory,
					     uint32_t index, struct fanin_packet *packet,
					     enum fanin_reason *reason);

/* A sparse handler's `other`. mode: in which a sparse block begins. */
enum fanin_verdict fanin_sparse_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
				      struct fanin_packet *packet, enum fanin_sparse_mode mode,
				      enum fanin_reason *reason);

/* Turns a received shard into one of this switch's, of another type. Its mbuf is kept by number. */
void fanin_sparse_keep(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
		       enum fanin_type type, const struct fanin_packet *packet);

/*
 * Turns a shard of a result, the parent's or a known one, into one of this switch's: keeps it, and
 * sends it to all children.
 */
void fanin_sparse_pass_down(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			    const struct fanin_packet *packet);

/* Its `slot_release`. */
void fanin_sparse_release(struct fanin_handler_ctx *ctx, void *memory);

/* sparse_table.c */

/* Combines the values of a shard, which has been checked. */
void fanin_sparse_merge(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			const struct fanin_packet *packet);

/* Finds the lanes that have a value, once all values are in the table. */
void fanin_sparse_table_settle(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot);

/* sparse_shards.c */

/*
 * Sends this switch's own shards, as all children's shards are in: to the parent, or at the root to
 * the children.
 */
void fanin_sparse_finish(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot);

/* Sends the spill that is being filled, which is full, if there may be one more. */
void fanin_sparse_spill(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot);

/*
 * Sends own shards again.
 *
 * numbers: bitmap; only those that have been sent count. children: 0: to the parent.
 */
void fanin_sparse_send_again(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			     uint64_t numbers, uint64_t children);

/*
 * Keeps an mbuf that nobody else needs for a shard that is made here. Returns false if there are
 * enough.
 */
bool fanin_sparse_keep_empty(struct fanin_sparse *slot, struct rte_mbuf *mbuf);

/* Frees the mbufs that were kept for own shards. */
void fanin_sparse_drop_empty(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot);

/* sparse_known.c: results that children know from an earlier run */

/* The shards of the known result that this switch has taken. */
static inline struct fanin_shards_in *
fanin_sparse_known(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot)
{
	return ctx->job->has_parent ? &slot->known : &slot->results;
}

/*
 * May the open block's result be known, and have this shard? It may not once own shards have been
 * sent.
 */
bool fanin_sparse_may_be_known(const struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
			       const struct fanin_shard *shard);

/*
 * Takes a shard of a result that is known, for which fanin_sparse_may_be_known: keeps it, unless it
 * is there already, and sends it on. Returns the verdict.
 */
enum fanin_verdict fanin_sparse_take_known(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
					   const struct fanin_packet *packet);

/* Sends known shards that went up again. numbers: bitmap. */
void fanin_sparse_send_known_again(struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot,
				   uint64_t numbers);

/* sparse_query.c */

/*
 * Enters the slot alone if it is at this block; leave by fanin_dense_state_leave. Else the classes
 * of fanin_dense_state_visit.
 */
enum fanin_dense_class fanin_sparse_visit(struct fanin_sparse *slot,
					  const struct fanin_handler_ctx *ctx, uint32_t block);

enum fanin_verdict fanin_sparse_query(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
				      struct fanin_packet *packet, enum fanin_reason *reason);
enum fanin_verdict fanin_sparse_answer(struct fanin_handler_ctx *ctx, struct fanin_sparse *slot,
				       struct fanin_packet *packet, enum fanin_reason *reason);

/*
 * Turns a duplicate shard into the answer that says so. state: of the block, as seen from the
 * child.
 */
void fanin_sparse_answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_sparse *slot,
				   const struct fanin_packet *packet, enum fanin_block_state state);

#endif
