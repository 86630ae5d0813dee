/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Definitions that the handler `push` of switches shares with the host protocol: the job's
 * parameters, by position, a block's home host, and the messages that hosts exchange by UNICAST and
 * MULTICAST (protocols/push/README.md).
 */
#ifndef FANIN_PROTOCOLS_PUSH_PUSH_H
#define FANIN_PROTOCOLS_PUSH_PUSH_H

#include <stdbool.h>
#include <stdint.h>

/* X(ENUMERATOR, name, least, most, usual, text) */
#define FANIN_PUSH_PARAMETERS(X)                                                                   \
	X(ENTRIES, entries, 1, 65536, 256,                                                         \
	  "sums of the job that a switch holds at a time; for more the least recently used one "   \
	  "goes to its block's home host")                                                         \
	X(TIMEOUT, timeout_us, 10, 60000000, 10000,                                                \
	  "us that a sum waits for the other ranks before it goes to its block's home host")       \
	X(WAVES, waves, 0, 4096, 0,                                                                \
	  "waves of blocks that hosts have in flight; 0: as many as suit")                         \
	X(WAVE_BLOCKS, wave_blocks, 0, 65536, 0, "blocks of a wave; 0: as many as suit")

enum fanin_push_parameter {
#define FANIN_PUSH_PARAMETER(name, ...) FANIN_PUSH_##name,
	FANIN_PUSH_PARAMETERS(FANIN_PUSH_PARAMETER)
#undef FANIN_PUSH_PARAMETER
};

/*
 * Returns the rank that is home to a block in a job of n_ranks: it gets the sums that switches
 * could not complete (Klenk et al., section IV.C).
 */
static inline uint16_t
fanin_push_home(uint32_t block, uint16_t n_ranks)
{
	return (uint16_t)(block % n_ranks);
}

/* Kinds of messages between hosts, in the lowest byte of `number`. */
enum fanin_push_kind {
	FANIN_PUSH_ASK = 1, /* UNICAST from the home host, which lacks the rank's data */
	FANIN_PUSH_DATA,    /* UNICAST to the home host: the rank's own data */
	FANIN_PUSH_HERE,    /* UNICAST to it: the rank has not sent the block; of it: struct
			       fanin_push_here */
	FANIN_PUSH_REPEAT,  /* UNICAST: the result */
	FANIN_PUSH_QUERY,   /* UNICAST to the home host from a rank that lacks the result */
	FANIN_PUSH_RESULT,  /* MULTICAST from the home host: the result */
	FANIN_PUSH_END,     /* MULTICAST and UNICAST: the run has ended; struct fanin_push_end */
};

/* Payload of HERE to a rank that asked: sets of ranks that the block waits for. */
struct fanin_push_here {
	uint64_t missing;
	uint64_t ended;  /* ranks of `missing` whose processes have ended */
	uint64_t silent; /* ranks of `missing` that do not answer */
};

enum fanin_push_why {
	FANIN_PUSH_GONE, /* the ranks don't answer, have ended, or leave for reasons of their own */
	FANIN_PUSH_MISMATCH, /* the ranks have posted a collective that differs from the others' */
};

struct fanin_push_end {
	uint64_t whom; /* set of the ranks that are the reason */
	uint32_t why;  /* enum fanin_push_why */
	uint32_t reserved;
};

/*
 * `number` and `progress` of these messages: the kind, and the shape of the elements, as `count`
 * holds something else.
 */
static inline uint32_t
fanin_push_number(enum fanin_push_kind kind, bool empty, uint8_t dtype, uint8_t op)
{
	return (uint32_t)kind | (uint32_t)empty << 8 | (uint32_t)dtype << 16 | (uint32_t)op << 24;
}

static inline uint32_t
fanin_push_progress(uint16_t count, uint16_t root)
{
	return (uint32_t)root << 16 | count;
}

#endif
