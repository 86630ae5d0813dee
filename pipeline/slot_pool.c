/* SPDX-License-Identifier: BSD-3-Clause */
/* See slot_pool.h. */
#include <rte_malloc.h>

#include "pipeline/slot_pool.h"

unsigned int
slot_pool_node(const struct pipeline *pipeline, bool shared, uint32_t index)
{
	if (shared || pipeline->policy == PIPELINE_POLICY_RSS)
		return pipeline->cluster_nodes[index % pipeline->n_clusters];
	return index % pipeline->n_nodes;
}

/* If a node has no memory left, the slots get slower memory from another one. */
static void *
allocate_on(const struct pipeline *pipeline, unsigned int node, size_t size)
{
	void *memory = rte_zmalloc_socket("job_slots", size, RTE_CACHE_LINE_SIZE,
					  pipeline->nodes[node]);

	return memory != NULL ? memory : rte_zmalloc("job_slots", size, RTE_CACHE_LINE_SIZE);
}

/* Allocates memory on each node for the slots that belong to it. */
static bool
allocate(const struct pipeline *pipeline, struct slot_pool *pool)
{
	const bool shared = pool->handler != NULL;
	const uint32_t n = pool->mask + 1;
	uint32_t counts[PIPELINE_MAX_WORKERS] = { 0 };

	pool->slots = rte_zmalloc("slot_table", (shared ? 2 : 1) * n * sizeof(*pool->slots),
				  RTE_CACHE_LINE_SIZE);
	if (pool->slots == NULL)
		return false;
	if (!shared) {
		pool->clusters = rte_zmalloc("slot_clusters", n * sizeof(*pool->clusters),
					     RTE_CACHE_LINE_SIZE);
		if (pool->clusters == NULL)
			return false;
	}
	for (uint32_t i = 0; i < n; i++)
		counts[slot_pool_node(pipeline, shared, i)]++;
	for (unsigned int node = 0; node < pipeline->n_nodes; node++) {
		if (counts[node] == 0)
			continue;
		pool->memory[node] = allocate_on(pipeline, node, counts[node] * pool->slot_size);
		if (pool->memory[node] == NULL)
			return false;
		counts[node] = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		unsigned int node = slot_pool_node(pipeline, shared, i);

		pool->slots[i] = pool->memory[node] + counts[node]++ * pool->slot_size;
		if (shared)
			pool->slots[n + i] = pool->slots[i];
	}
	return true;
}

struct slot_pool *
slot_pool_create(const struct pipeline *pipeline, const struct fanin_handler *handler,
		 size_t slot_size, uint32_t n)
{
	struct slot_pool *pool = rte_zmalloc("slot_pool", sizeof(*pool), RTE_CACHE_LINE_SIZE);

	if (pool == NULL)
		return NULL;
	pool->handler = handler;
	pool->slot_size = RTE_ALIGN_CEIL(slot_size, RTE_CACHE_LINE_SIZE);
	pool->mask = n - 1;
	pool->n_parts = 1;
	if (allocate(pipeline, pool))
		return pool;
	slot_pool_free(pool);
	return NULL;
}

void
slot_pool_free(struct slot_pool *pool)
{
	if (pool == NULL)
		return;
	for (unsigned int node = 0; node < PIPELINE_MAX_WORKERS; node++)
		rte_free(pool->memory[node]);
	rte_free(pool->clusters);
	rte_free(pool->slots);
	rte_free(pool);
}

uint64_t
slot_pool_bytes(const struct slot_pool *pool)
{
	return (uint64_t)(pool->mask + 1) *
	       (pool->slot_size + (pool->handler != NULL ? 2 : 1) * sizeof(*pool->slots) +
		(pool->clusters != NULL ? sizeof(*pool->clusters) : 0));
}

uint32_t
slot_pool_used(const struct slot_pool *pool)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i <= pool->mask; i++) {
		const struct fanin_slot_tag *tag = (const void *)pool->slots[i];

		used += __atomic_load_n(&tag->job, __ATOMIC_RELAXED) != 0;
	}
	return used;
}
