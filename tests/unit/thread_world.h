/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots of a handler that several workers share, on threads of their own: each worker has two
 * ranks, whose data comes late, twice and again, in sums that the handler makes, to whoever makes
 * results of them, which the test plays. Every sum has to be that of its ranks, and every mbuf
 * returns. One world at a time.
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

/* A block where its result is made. */
struct thread_part {
	uint64_t members;
	uint64_t asked; /* ranks whose data has to come by itself */
	uint64_t told;  /* ranks that get the result by other ways */
	bool own;       /* the data of the rank that makes it is there, too */
	bool published;
};

struct thread_worker {
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	unsigned int index;
	struct random random;
	uint32_t next[2]; /* of each of its ranks: the block to send, from 0 on */
	uint32_t oldest;  /* that one of its ranks has no result of */
	uint64_t gacks;
	pthread_t thread;
};

/* What a handler's test says and does itself. */
struct thread_rules {
	const char *handler;
	size_t slot_size;
	uint32_t epoch;       /* of packets of hosts */
	uint32_t timers_idle; /* that are left while nothing is to do but to wait */
	bool sends_again;     /* ranks repeat what has come */
	void (*open)(void);   /* the rest of the job, with which the state is made afterwards */
	void (*begin)(void);  /* the run, for the state; may be NULL */
	void (*send)(struct thread_worker *worker, unsigned int rank, uint32_t number,
		     uint16_t flags);
	void (*pass_result)(struct thread_worker *worker, uint32_t block);
	/* A packet that the handler sends. Returns how many references to it are to be put back. */
	unsigned int (*leaves)(struct thread_worker *worker, const struct fanin_emission *emission);
	void (*wait)(struct thread_worker *worker);      /* does something meanwhile; may be NULL */
	bool (*is_sound)(const struct fanin_peek *peek); /* as an onlooker sees it at any moment */
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
	uint32_t results[BLOCKS]; /* complete blocks whose RESULT is to be handed to a worker */
	unsigned int n_results;
	const char *wrong;
	uint8_t done[BLOCKS]; /* the ranks that have the result; atomic */
	bool stop;            /* atomic */
	uint64_t now_ns;      /* the workers' clock; atomic */
	uint64_t seen;        /* by the onlooker */
	struct thread_worker workers[WORKERS];
};

extern struct thread_world thread_world;

/* By _i. */
static const uint32_t slots_of_variant[] = { 4, SLOTS_MAX };

/* Runs all workers and an onlooker until all ranks have all results, rightly so. */
void thread_world_run(const struct thread_rules *rules, uint32_t n_slots);

/* Checks that all mbufs are back. The state is the test's to look at, and to free. */
void thread_world_close(void);

/* The handler's own counter, of all workers. */
uint64_t thread_world_counter(unsigned int counter);

/* A packet of this type, for thread_world_call. */
struct rte_mbuf *thread_world_make(enum fanin_type type, uint32_t block, uint32_t payload_len);

/*
 * The same with the data of a rank for a block, which counts from 0 here; what a result's data is
 * nobody looks at.
 */
struct rte_mbuf *thread_world_vector(enum fanin_type type, unsigned int rank, uint32_t number);

/* Hands a packet over until nobody is in the way. */
void thread_world_call(struct thread_worker *worker, struct rte_mbuf *mbuf);

/*
 * Under the lock: checks a sum of these ranks. others: the ranks whose data comes in sums. Returns
 * the block's part if the sum is to be taken: its ranks are new, or contain all that are there;
 * else NULL.
 */
struct thread_part *thread_world_part(const struct fanin_headers *headers, uint64_t members,
				      uint64_t others);

/* Under the lock: the block has its result. */
void thread_world_publish(uint32_t block);

/* Ranks have the result. */
void thread_world_done(uint32_t block, uint64_t ranks);

#endif
