/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job's slots and where they lie: each in the memory of the NUMA node whose workers use it. Which node that is
 * follows from the slot's index, and the scheduler keeps to it. Main thread only.
 */
#include <errno.h>

#include <rte_malloc.h>

#include "pipeline/job.h"
#include "pipeline/pipeline.h"

unsigned int
job_slot_node(const struct pipeline *pipeline, uint32_t index)
{
	if (pipeline->policy == PIPELINE_POLICY_RSS)
		return pipeline->cluster_nodes[index % pipeline->n_clusters];
	return index % pipeline->n_nodes;
}

/* A node without memory costs speed, not the job. */
static void *
allocate_on(const struct pipeline *pipeline, unsigned int node, size_t size)
{
	void *memory = rte_zmalloc_socket("job_slots", size, RTE_CACHE_LINE_SIZE,
					  pipeline->nodes[node]);

	return memory != NULL ? memory : rte_zmalloc("job_slots", size, RTE_CACHE_LINE_SIZE);
}

int
job_slots_allocate(const struct pipeline *pipeline, struct job *job)
{
	const uint32_t n = job->slot_mask + 1;
	uint32_t counts[PIPELINE_MAX_WORKERS] = { 0 };

	job->slots = rte_zmalloc("job_slot_table", n * sizeof(*job->slots), RTE_CACHE_LINE_SIZE);
	if (job->slots == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		counts[job_slot_node(pipeline, i)]++;
	for (unsigned int node = 0; node < pipeline->n_nodes; node++) {
		if (counts[node] == 0)
			continue;
		job->slot_memory[node] = allocate_on(pipeline, node, counts[node] * job->slot_size);
		if (job->slot_memory[node] == NULL) {
			job_slots_free(job);
			return -ENOMEM;
		}
		counts[node] = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		unsigned int node = job_slot_node(pipeline, i);

		job->slots[i] = job->slot_memory[node] + counts[node]++ * job->slot_size;
	}
	return 0;
}

void
job_slots_free(struct job *job)
{
	for (unsigned int node = 0; node < PIPELINE_MAX_WORKERS; node++) {
		rte_free(job->slot_memory[node]);
		job->slot_memory[node] = NULL;
	}
	rte_free(job->slots);
	job->slots = NULL;
}
