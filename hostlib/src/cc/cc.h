/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control: how many blocks a host keeps in flight. An algorithm is a table of pure
 * functions on a state: time and events are passed in, and the window is read. Hosts and
 * simulations run the same object. All algorithms are in fanin_cc_types (cc.c). One thread at a
 * time.
 */
#ifndef FANIN_HOSTLIB_CC_H
#define FANIN_HOSTLIB_CC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fanin_cc;

/* One block's round trip: the block was sent once and has its result. */
struct fanin_cc_sample {
	uint64_t now_ns;
	uint64_t delay_ns; /* since it was sent */
	uint32_t block; /* block number; all hosts pass the same numbers at about the same time */
	uint32_t generation; /* of the window when it was sent */
};

struct fanin_cc_type {
	const char *name;
	const char *description;
	void (*init)(struct fanin_cc *cc);
	void (*on_delay)(struct fanin_cc *cc, const struct fanin_cc_sample *sample);
	void (*on_loss)(struct fanin_cc *cc, uint64_t now_ns); /* a contribution or result was lost
								*/
};

/* The state of `delay` (cc_delay.c). */
struct fanin_cc_delay {
	uint32_t steady;    /* window outside of trials, blocks */
	uint64_t steady_ns; /* recent mean delay with the steady window; 0: unknown */
	uint64_t sum_ns;    /* of the delays that are being averaged */
	uint32_t n;         /* number of these delays */
	uint32_t goodput;  /* goodput with the steady window relative to W's, in 1/1024, as measured
			      by trials */
	uint32_t skip;     /* samples left that still show the queues of another window */
	uint32_t period;   /* number of the shortest period in which the last trial was */
	uint64_t full_ns;  /* sum of the mean delays with the steady window in this trial's
			      comparisons */
	uint64_t half_ns;  /* the same with half the window */
	uint8_t turn;      /* comparisons of this trial so far; 0 outside of trials */
	uint8_t doublings; /* how often the period was doubled */
	bool trying;       /* the window is half the steady one */
	bool starting;     /* the window still grows from its first size */
	bool settled;  /* losses count: the window has grown, or a block that was sent with it is
			  done */
	uint32_t done; /* blocks of this round, which has a window of them */
	uint32_t lost; /* losses in it */
	uint32_t min_lost; /* fewest losses of a round, per 1024 blocks */
	uint32_t overflow; /* losses of the round that halved the window, until the next round; 0:
			      none did */
	int8_t searching;  /* the next trial begins at once; -1: for smaller windows, 1: for larger
			      ones, 0: neither */
};

struct fanin_cc {
	const struct fanin_cc_type *type;
	uint32_t limit;      /* W: upper bound of the window, blocks */
	uint32_t window;     /* current window, blocks, 1 to limit; read by the sender */
	uint32_t generation; /* changes with the window */
	union {
		struct fanin_cc_delay delay;
	};
};

extern const struct fanin_cc_type fanin_cc_fixed;
extern const struct fanin_cc_type fanin_cc_delay;

/* All algorithms; ends with NULL. */
extern const struct fanin_cc_type *const fanin_cc_types[];

/* Initialises the state. limit: 1 at least. */
static inline void
fanin_cc_init(struct fanin_cc *cc, const struct fanin_cc_type *type, uint32_t limit)
{
	*cc = (struct fanin_cc){ .type = type, .limit = limit, .window = limit };
	type->init(cc);
}

/* Returns the algorithm with this name, or NULL. */
const struct fanin_cc_type *fanin_cc_find(const char *name);

#endif
