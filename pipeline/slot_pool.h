/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots and their placement: each lies in the memory of the NUMA node whose workers use it. A pool
 * belongs to one job, or is shared by all jobs of a handler whose slots have one size. The main
 * thread creates and frees pools.
 */
#ifndef FANIN_PIPELINE_SLOT_POOL_H
#define FANIN_PIPELINE_SLOT_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handlers/handler.h"
#include "pipeline/pipeline.h"

struct slot_pool {
	/* Constant; workers: ro. */
	uint8_t **slots; /* by index; in a shared pool all of them twice in a row, as a job's slots
			    may begin anywhere */
	uint8_t *memory[PIPELINE_MAX_WORKERS]; /* by NUMA node of the pipeline */
	uint64_t *clusters; /* the cluster of each slot's block, as schedule.c notes it; atomic;
			       NULL in shared pools, where the index decides */
	size_t slot_size;   /* bytes */
	uint32_t mask;      /* the number of slots - 1 */
	const struct fanin_handler *handler; /* whose jobs share the pool; NULL: it belongs to one
						job */

	/* Main thread. */
	uint32_t mbufs;         /* that all its slots may hold */
	uint32_t n_jobs;        /* number of jobs that use it; workers: ro, atomic */
	uint32_t n_parts;       /* number of parts for these jobs, a power of two */
	struct slot_pool *next; /* the next shared pool */

	/* struct fanin_slots: the jobs' handler; workers: rw, atomic. */
	uint8_t common[FANIN_SLOTS_COMMON] __rte_cache_aligned;
};

/*
 * Returns the NUMA node, as an index in pipeline->nodes, whose workers process the blocks of a
 * slot. Any thread.
 */
unsigned int slot_pool_node(const struct pipeline *pipeline, bool shared, uint32_t index);

/*
 * Creates a pool of n slots, a power of two, zeroed.
 *
 * handler: of the jobs that are to share it; NULL: it belongs to one job. slot_size: bytes; rounded
 * up to a cache line. Returns NULL without memory.
 */
struct slot_pool *slot_pool_create(const struct pipeline *pipeline,
				   const struct fanin_handler *handler, size_t slot_size,
				   uint32_t n);

/* Frees a pool, which may be NULL. The caller has released the contents of its slots. */
void slot_pool_free(struct slot_pool *pool);

/* Returns the pool's memory in bytes. */
uint64_t slot_pool_bytes(const struct slot_pool *pool);

/* Returns the approximate number of slots of a shared pool that are in use. Any thread. */
uint32_t slot_pool_used(const struct slot_pool *pool);

#endif
