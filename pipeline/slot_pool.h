/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots, and where they lie: each in the memory of the NUMA node whose workers use it. A pool is a
 * job's own, or that of all jobs of a handler whose slots are of one size. Made and freed by the
 * main thread.
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
	uint8_t **slots; /* by index; of shared ones all of them twice, one after the other, as a
			    job's begin anywhere */
	uint8_t *memory[PIPELINE_MAX_WORKERS]; /* by NUMA node of the pipeline */
	uint64_t *clusters; /* which cluster has the slot's block, as schedule.c notes it; atomic;
			       NULL: the index says it, in shared pools */
	size_t slot_size;   /* bytes */
	uint32_t mask;      /* the number of slots - 1 */
	const struct fanin_handler *handler; /* of the jobs that share it; NULL: it is one job's own
					      */

	/* Main thread. */
	uint32_t mbufs;         /* that its slots may hold together */
	uint32_t n_jobs;        /* that use it; workers: ro, atomic */
	uint32_t n_parts;       /* that it is divided into for them, a power of two */
	struct slot_pool *next; /* of those that are shared */

	/* struct fanin_slots: the jobs' handler; workers: rw, atomic. */
	uint8_t common[FANIN_SLOTS_COMMON] __rte_cache_aligned;
};

/*
 * The NUMA node, as an index in pipeline->nodes, whose workers process the blocks of a slot. Any
 * thread.
 */
unsigned int slot_pool_node(const struct pipeline *pipeline, bool shared, uint32_t index);

/*
 * Makes a pool of n slots, a power of two, zeroed.
 *
 * handler: of the jobs that are to share it; NULL: it is one job's own. slot_size: bytes; rounded
 * up to a cache line. Returns NULL without memory.
 */
struct slot_pool *slot_pool_create(const struct pipeline *pipeline,
				   const struct fanin_handler *handler, size_t slot_size,
				   uint32_t n);

/* Frees it; it may be NULL. What its slots held has been released. */
void slot_pool_free(struct slot_pool *pool);

/* Bytes of memory. */
uint64_t slot_pool_bytes(const struct slot_pool *pool);

/* Slots of a shared pool that hold something, at about this time. Any thread. */
uint32_t slot_pool_used(const struct slot_pool *pool);

#endif
