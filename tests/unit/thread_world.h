/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots of a handler that several workers share, each on a thread of its own. Each worker has two
 * ranks, whose data comes late, twice and again. The handler makes sums of it for the rank or
 * server that makes results, whose part the test plays. Every sum must be that of its ranks, and
 * every mbuf must return. One world at a time.
 */
#ifndef FANIN_TESTS_UNIT_THREAD_WORLD_H
#define FANIN_TESTS_UNIT_THREAD_WORLD_H

#include <pthread.h>

#include "handlers/handler.h"
#include "lab/reference/random.h"
#include "tests/unit/fake_mbuf.h"

#define WORKERS 3
#define RANKS 6 /* two for each worker */
#define ALL ((UINT64_C(1) << RANKS) - 1)
#define WINDOW 8u
#define SLOTS_MAX 16u
#define BLOCKS 4000u
#define FIRST (UINT32_MAX - BLOCKS / 2) /* of the blocks, which wrap around */
#define COUNT 16u
#define EPOCH 3
#define TIMERS 64u

/* A block at the place where its result is made. */
struct thread_part {
	uint64_t members;
	uint64_t asked; /* ranks that must send their data directly */
	uint64_t told;  /* ranks that get the result by other ways */
	bool own;       /* the data of the rank that makes it has come, too */
	bool published;
};

struct thread_worker {
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	unsigned int index;
	struct random random;
	uint32_t next[2]; /* of each of its ranks: the next block to send, from 0 on */
	uint32_t oldest;  /* oldest block whose result one of its ranks lacks */
	uint64_t gacks;
	pthread_t thread;
};

/* The part of a world that a handler's test provides. */
struct thread_rules {
	const char *handler;
	size_t slot_size;
	uint32_t epoch;       /* of packets of hosts */
	uint32_t timers_idle; /* timers that are left while there is nothing to do but wait */
	bool sends_again;     /* ranks repeat data that has come */
	void (*open)(void);   /* completes the job; the state is made afterwards */
	void (*begin)(void);  /* begins the run in the state; may be NULL */
	void (*send)(struct thread_worker *worker, unsigned int rank, uint32_t number,
		     uint16_t flags);
	void (*pass_result)(struct thread_worker *worker, uint32_t block);
	/*
	 * Handles a packet that the handler sends. Returns how many references to it have to be
	 * returned.
	 */
	unsigned int (*leaves)(struct thread_worker *worker, const struct fanin_emission *emission);
	void (*wait)(struct thread_worker *worker);      /* called while waiting; may be NULL */
	bool (*is_sound)(const struct fanin_peek *peek); /* checks values as an observer reads them
							    at any moment */
};

struct thread_world {
	const struct thread_rules *rules;
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	void *state;
	uint8_t *slots[SLOTS_MAX];
	struct fake_pool pool;
	pthread_spinlock_t pool_lock;
	pthread_mutex_t lock; /* guards parts, results, wrong */
	struct thread_part parts[BLOCKS];
	uint32_t results[BLOCKS]; /* complete blocks whose RESULT a worker has to get */
	unsigned int n_results;
	const char *wrong;
	uint8_t done[BLOCKS]; /* the ranks that have the result; atomic */
	bool stop;            /* atomic */
	uint64_t now_ns;      /* the workers' clock; atomic */
	uint64_t seen;        /* by the observer */
	struct thread_worker workers[WORKERS];
};

extern struct thread_world thread_world;

/* Numbers of slots, chosen by _i. */
static const uint32_t slots_of_variant[] = { 4, SLOTS_MAX };

/* Runs all workers and an observer until all ranks have all results, and checks these. */
void thread_world_run(const struct thread_rules *rules, uint32_t n_slots);

/* Checks that all mbufs are back. The test may read the state, and frees it. */
void thread_world_close(void);

/* Returns the handler's own counter, summed over all workers. */
uint64_t thread_world_counter(unsigned int counter);

/* Makes a packet of this type, for thread_world_call. */
struct rte_mbuf *thread_world_make(enum fanin_type type, uint32_t block, uint32_t payload_len);

/*
 * Makes such a packet with a rank's data for a block, which counts from 0 here; a result's data is
 * not checked.
 */
struct rte_mbuf *thread_world_vector(enum fanin_type type, unsigned int rank, uint32_t number);

/* Passes a packet to the handler until no other worker is in the way. */
void thread_world_call(struct thread_worker *worker, struct rte_mbuf *mbuf);

/*
 * Under the lock: checks a sum of these ranks. others: ranks whose data comes in sums. Returns the
 * block's part if the sum has to be taken: its ranks are new, or include all that are there; else
 * NULL.
 */
struct thread_part *thread_world_part(const struct fanin_headers *headers, uint64_t members,
				      uint64_t others);

/* Under the lock: records that the block has its result. */
void thread_world_publish(uint32_t block);

/* Records that ranks have the result. */
void thread_world_done(uint32_t block, uint64_t ranks);

#endif
