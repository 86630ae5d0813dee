/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small model of a switch with sparse blocks: engines of all ranks in one process, on links that
 * lose, duplicate and reorder, and a switch that either reduces, or passes every shard on as a
 * spill. It supports dense blocks as far as agreements need them. One world at a time.
 */
#ifndef FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_WORLD_H
#define FANIN_PROTOCOLS_SPARSE_TESTS_SPARSE_WORLD_H

#include "hostlib/src/engine/engine.h"
#include "lab/reference/random.h"
#include "tests/unit/memory_link.h"
#include "wire/shard.h"

#define SPARSE_WORLD_WINDOW 16
#define SPARSE_WORLD_PAYLOAD 640
#define SPARSE_WORLD_RANKS 4
#define SPARSE_WORLD_EPOCH 3u
#define SPARSE_WORLD_FRAME (FANIN_PAYLOAD_OFFSET + SPARSE_WORLD_PAYLOAD)
#define SPARSE_WORLD_QUEUE 8192
#define SPARSE_WORLD_SPAN 32768

struct sparse_frame {
	uint32_t len;
	uint8_t data[SPARSE_WORLD_FRAME] __attribute__((aligned(8)));
};

struct sparse_link {
	struct memory_link memory; /* first: a pointer to it is one to the link */
	uint16_t rank;
	uint32_t head, tail;
	uint32_t room;   /* frames until it is full; counts down */
	bool is_short;   /* of room; each step renews it */
	uint32_t bodies; /* queries with a bitmap */
	uint32_t again;  /* shards with RETRANSMIT */
	uint32_t known;  /* shards of known results */
	uint32_t whole;  /* shards of blocks that must not be spilled */
	struct sparse_frame queue[SPARSE_WORLD_QUEUE];
};

/* A block at the switch. */
struct sparse_slot {
	bool used, done;
	uint32_t block, span;
	uint8_t dtype, op;
	uint64_t in[SPARSE_WORLD_RANKS];
	uint8_t total[SPARSE_WORLD_RANKS];
	bool has[SPARSE_WORLD_SPAN];
	uint64_t value[SPARSE_WORLD_SPAN];
	uint32_t n_out;
	struct sparse_frame out[FANIN_SHARDS_MAX];
};

struct sparse_world {
	uint64_t now_ns;
	uint16_t n_ranks;
	bool spills; /* every shard is passed on at once, and nothing is combined */
	double loss, duplication, reordering;
	uint64_t drop_results; /* drops this many of the next results */
	uint8_t lost;          /* drops every shard of this number, the first time; 0: none */
	struct random random;
	struct sparse_slot slots[2 * SPARSE_WORLD_WINDOW];
	struct sparse_link links[SPARSE_WORLD_RANKS];
	struct fanin_endpoint *engines[SPARSE_WORLD_RANKS];
};

extern struct sparse_world sparse_world;

/*
 * Opens the world with engines of n_ranks. first_block: of their runs. recover: as for the engine.
 */
void sparse_world_open_at(uint16_t n_ranks, uint32_t first_block, bool recover);
void sparse_world_open(uint16_t n_ranks);

/* Destroys the engines. */
void sparse_world_close(void);

/* Lets a little time pass, and polls each engine. */
void sparse_world_step(void);

/* Puts a frame of the switch on a rank's link. */
void sparse_world_deliver(struct sparse_link *link, const struct sparse_frame *frame);

/*
 * Writes the headers of a frame of the switch. Returns its Fanin header, whose other fields are
 * zero.
 */
struct fanin_hdr *sparse_world_frame(struct sparse_frame *frame, enum fanin_type type,
				     uint32_t block, uint32_t payload_len);

#endif
