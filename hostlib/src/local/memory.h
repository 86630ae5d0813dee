/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that the ranks of a host share. A collective goes through it in chunks, which have
 * numbers that run on from collective to collective; a chunk's place is its number modulo the
 * depth. Counters tell how many chunks each rank is done with in each step (docs/local.md). Each
 * field has one writer, but for the failure, which the first one writes, and `waits`.
 */
#ifndef FANIN_HOSTLIB_LOCAL_MEMORY_H
#define FANIN_HOSTLIB_LOCAL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"

/* Chunks that the memory holds, and the bytes of one: of a rank's data, and of the result. */
#define FANIN_LOCAL_DEPTH 4
#define FANIN_LOCAL_CHUNK_BYTES (64u << 10)

/* Steps, which sleeping ranks wait for; a bit each. */
enum fanin_local_step {
	FANIN_LOCAL_FILLED = 1,
	FANIN_LOCAL_REDUCED = 2,
	FANIN_LOCAL_TAKEN = 4,
	FANIN_LOCAL_READY = 8,
};

/* The call that a chunk belongs to: all ranks of the host make the same. */
struct fanin_local_call {
	uint64_t bytes; /* of the vector; of one rank's part of it, if it has parts */
	uint64_t most;  /* of a sparse vector: values of any rank */
	uint16_t root;
	uint8_t collective;
	uint8_t dtype;
	uint8_t op;
	uint8_t unused[3];
};

/* A rank's own. The counters are atomic. */
struct fanin_local_member {
	uint64_t filled __attribute__((aligned(128))); /* chunks with this rank's data */
	uint64_t reduced; /* chunks of whose result this rank has made its part */
	uint64_t taken;   /* chunks whose result this rank needs no more */
	uint32_t waits;   /* steps of others for which it sleeps; set by itself, cleared by whoever
			     wakes it */
	uint32_t left;    /* it makes no further collectives. Atomic */
	struct fanin_local_call calls[FANIN_LOCAL_DEPTH];
};

/* What the leader knows of the job. */
struct fanin_local_facts {
	char mode[16];
	char handler[32];
	char protocol[16];
	char transport[16];
	char manager[64];
	uint16_t window;
	uint16_t payload_bytes;
	uint16_t trees;
	uint8_t in_network;
	uint8_t sparse; /* the job of hosts has sparse allreduces */
	uint8_t wide;   /* sums and averages of f16 and bf16 are accumulated in f32 */
	uint8_t authenticated;
};

enum fanin_local_failed {
	FANIN_LOCAL_RUNS,
	FANIN_LOCAL_FAILING, /* somebody writes the failure */
	FANIN_LOCAL_FAILED,
};

struct fanin_local_head {
	uint64_t ready __attribute__((aligned(128))); /* leader's: chunks that have their result */
	uint32_t failed;                              /* enum fanin_local_failed; atomic */
	uint32_t joined; /* leader's: it has joined the job, and the facts are there */
	int32_t status;
	char text[FANIN_TEXT_LEN];
	struct fanin_ranks missing;
	struct fanin_local_facts facts;
	uint64_t late[FANIN_RANKS_WORDS]; /* leader's: ranks of other hosts that it waits for, as
					     it last looked. Atomic */
};

/* The memory, as this process sees it. */
struct fanin_local_memory {
	struct fanin_local_head *head;
	struct fanin_local_member *members; /* of each place */
	uint8_t *in;                        /* [place][FANIN_LOCAL_DEPTH] chunks */
	uint8_t *out;                       /* [FANIN_LOCAL_DEPTH] chunks */
	size_t bytes;
};

/* Returns the bytes of the memory of n ranks. */
static inline size_t
fanin_local_memory_bytes(unsigned int n)
{
	return sizeof(struct fanin_local_head) + n * sizeof(struct fanin_local_member) +
	       ((size_t)n + 1) * FANIN_LOCAL_DEPTH * FANIN_LOCAL_CHUNK_BYTES;
}

/* Finds the parts of the memory of n ranks. */
static inline struct fanin_local_memory
fanin_local_memory_at(void *base, unsigned int n)
{
	uint8_t *at = base;
	struct fanin_local_memory memory = { .head = base, .bytes = fanin_local_memory_bytes(n) };

	at += sizeof(*memory.head);
	memory.members = (struct fanin_local_member *)(void *)at;
	at += n * sizeof(*memory.members);
	memory.in = at;
	memory.out = at + (size_t)n * FANIN_LOCAL_DEPTH * FANIN_LOCAL_CHUNK_BYTES;
	return memory;
}

/* The places of a chunk: a rank's data, and the result. */
static inline uint8_t *
fanin_local_in(const struct fanin_local_memory *memory, unsigned int place, uint64_t chunk)
{
	return memory->in + ((size_t)place * FANIN_LOCAL_DEPTH + chunk % FANIN_LOCAL_DEPTH) *
				    FANIN_LOCAL_CHUNK_BYTES;
}

static inline uint8_t *
fanin_local_out(const struct fanin_local_memory *memory, uint64_t chunk)
{
	return memory->out + chunk % FANIN_LOCAL_DEPTH * FANIN_LOCAL_CHUNK_BYTES;
}

#endif
