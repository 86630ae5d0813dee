/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Switches of a sparse job and hosts that follow protocols/sparse/README.md, under the test's
 * control: every packet waits in one queue until the rig takes it, in order or at random, and may
 * be lost or duplicated. There is no clock: when nothing is in flight, hosts query the blocks that
 * they lack.
 */
#ifndef FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_RIG_H
#define FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_RIG_H

#include "protocols/sparse/switch/sparse.h"
#include "lab/reference/random.h"
#include "tests/unit/fake_mbuf.h"

#define SPARSE_RIG_WINDOW 2
#define SPARSE_RIG_SLOTS (2 * SPARSE_RIG_WINDOW)
#define SPARSE_RIG_HOSTS 8
#define SPARSE_RIG_LEAVES 4
#define SPARSE_RIG_BLOCKS 8
#define SPARSE_RIG_KEY_UP 11
#define SPARSE_RIG_KEY_DOWN 22

/* A sparse vector of a block. */
struct sparse_vector {
	uint64_t *values;
	bool *has;
};

struct sparse_node {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	uint8_t *slots[SPARSE_RIG_SLOTS];
	struct sparse_rig *rig;
};

/* The received part of a block's result at a host. */
struct sparse_received {
	struct fanin_shards_in shards;
	struct sparse_frame *frames[FANIN_SHARDS_MAX];
};

struct sparse_host {
	struct sparse_vector brings[SPARSE_RIG_BLOCKS];
	struct sparse_received received[SPARSE_RIG_BLOCKS];
	uint32_t n_sent;     /* blocks */
	uint32_t answers[4]; /* with a number, by their state */
	uint32_t unneeded;   /* answers with number 0 */
};

/* A packet in flight. */
struct sparse_frame {
	int to;         /* node, or -1 - host */
	uint16_t child; /* that it comes from */
	uint16_t len;
	bool retried;
	uint8_t data[FANIN_PAYLOAD_OFFSET + FAKE_PAYLOAD_MAX] __attribute__((aligned(8)));
};

struct sparse_rig {
	struct sparse_node nodes[1 + SPARSE_RIG_LEAVES]; /* beginning with the root */
	struct sparse_host hosts[SPARSE_RIG_HOSTS];
	struct fake_pool pool;
	struct random random;
	struct sparse_frame **queue;
	size_t n_queue;
	size_t queue_room;
	uint16_t n_nodes;
	uint16_t n_hosts;
	uint16_t per_leaf; /* 0: one switch */
	uint32_t n_blocks;
	uint32_t next_number;

	/* Set by the test after the start. */
	unsigned int dtype;
	unsigned int op;
	uint32_t span;
	uint32_t per_shard; /* maximum of values in a host's shard; 0: as many as fit */
	bool bitmaps;       /* hosts' shards are bitmaps */
	bool reorder;
	unsigned int lose_percent;
	unsigned int double_percent;
	bool no_stock; /* switches have no empty mbufs */

	uint64_t drops[FANIN_REASON_COUNT];
	unsigned int asked; /* rounds in which hosts had to query */
};

/*
 * Makes a job of a handler. n_leaves: 0: all hosts are at the root. Hosts have no values yet.
 * Aborts the test on failure.
 *
 * payload_bytes: FAKE_PAYLOAD_MAX at most.
 */
void sparse_rig_start(struct sparse_rig *rig, const char *handler, uint16_t n_hosts,
		      uint16_t n_leaves, uint16_t payload_bytes);

/* Releases all slots and checks that every mbuf came back. */
void sparse_rig_stop(struct sparse_rig *rig);

/* Gives host h a value in a block. */
void sparse_rig_bring(struct sparse_rig *rig, uint16_t h, uint32_t block, uint32_t index,
		      uint64_t value);

/*
 * Gives all hosts values at random indices, whose reduction is the same in any order. density: per
 * 1000.
 */
void sparse_rig_fill(struct sparse_rig *rig, uint32_t block, unsigned int density);

/*
 * Runs blocks 0 to n - 1 until all hosts have all results, and compares these with the expected
 * ones.
 */
void sparse_rig_run(struct sparse_rig *rig, uint32_t n_blocks);

/*
 * Parts of sparse_rig_run: hosts send all that they may; packets in flight arrive; hosts query;
 * results are checked.
 */
void sparse_rig_post(struct sparse_rig *rig);
void sparse_rig_deliver(struct sparse_rig *rig);
void sparse_rig_ask(struct sparse_rig *rig);
void sparse_rig_check(struct sparse_rig *rig, uint32_t block);
bool sparse_rig_has(const struct sparse_rig *rig, uint16_t h, uint32_t block);

/*
 * Makes a shard of host h, for the test to change and to send. values, indices: count of them. Its
 * members have number and total.
 */
struct sparse_frame *sparse_rig_shard(struct sparse_rig *rig, uint16_t h, uint32_t block,
				      const struct fanin_shard *shard, const uint64_t *values,
				      const uint32_t *indices, uint16_t count);

/* Makes a frame of host h to its switch, without payload. */
struct sparse_frame *sparse_rig_frame(struct sparse_rig *rig, uint16_t h, uint32_t block,
				      enum fanin_type type);

/*
 * Put a frame, which the rig then owns, into the queue, or hand it over at once. The latter returns
 * the verdict.
 */
void sparse_rig_send(struct sparse_rig *rig, struct sparse_frame *frame);
enum fanin_verdict sparse_rig_hand_over(struct sparse_rig *rig, struct sparse_frame *frame,
					enum fanin_reason *reason);

/* Return the switch of a host, and a slot of it. */
struct sparse_node *sparse_rig_node_of(struct sparse_rig *rig, uint16_t h);
struct fanin_sparse *sparse_rig_slot(struct sparse_node *node, uint32_t block);

static inline struct fanin_hdr *
sparse_hdr(struct sparse_frame *frame)
{
	return &((struct fanin_headers *)frame->data)->fanin;
}

/* Returns an own counter, summed over all switches. */
uint64_t sparse_rig_counter(const struct sparse_rig *rig, enum fanin_sparse_counter counter);

#endif
