/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assigns packets to workers: hierarchical first come, first served (Flare section 5). A block
 * belongs to a cluster of workers, chosen when its first packet arrives; inside the cluster the
 * first worker that is free takes the packet. Packets cross cores by the clusters' queues only.
 */
#include <limits.h>

#include <rte_ring.h>

#include "pipeline/aggregate.h"
#include "pipeline/schedule.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns the cluster with the shortest queue among those on the slot's NUMA node. Among equal
 * ones, the block's number decides by turns.
 */
static unsigned int
shortest_queue(const struct pipeline *pipeline, uint32_t block, uint32_t slot)
{
	const unsigned int node = slot_pool_node(pipeline, false, slot);
	unsigned int first = block % pipeline->n_clusters;
	unsigned int best = UINT_MAX;
	unsigned int best_length = UINT_MAX;

	for (unsigned int i = 0; best_length != 0 && i < pipeline->n_clusters; i++) {
		unsigned int cluster = (first + i) % pipeline->n_clusters;
		unsigned int length;

		if (pipeline->cluster_nodes[cluster] != node)
			continue;
		length = rte_ring_count(pipeline->queues[cluster]);
		if (length < best_length) {
			best = cluster;
			best_length = length;
		}
	}
	return best;
}

/*
 * Returns the note about a slot's block: its number, the lowest bits of its run's epoch, and its
 * cluster + 1.
 */
#define RUN_SHIFT 8
#define RUN_MASK UINT32_C(0xffffff)

static_assert(PIPELINE_MAX_WORKERS < 1u << RUN_SHIFT, "a cluster fits beside the run");

static uint64_t
note_of(uint32_t block, uint32_t run, unsigned int cluster)
{
	return (uint64_t)block << 32 | (run & RUN_MASK) << RUN_SHIFT | (cluster + 1);
}

/*
 * Returns true if the note is about this block, or about a later one that its slot may have moved
 * on to. A note about another run does not count: a worker with a packet of that run may have
 * written it after the run ended. Nor does a note about a block further ahead than there are slots:
 * its number was forged.
 */
static bool
is_of_block(const struct job *job, uint64_t note, uint32_t block, uint32_t run)
{
	return note != 0 && ((uint32_t)note >> RUN_SHIFT) == (run & RUN_MASK) &&
	       (uint32_t)(note >> 32) - block <= job->pool->mask + 1;
}

static unsigned int
cluster_of_note(uint64_t note)
{
	return ((uint32_t)note & ((1u << RUN_SHIFT) - 1)) - 1;
}

static bool
is_of_run(const struct job *job, const struct fanin_hdr *hdr, uint32_t run)
{
	if (fanin_type_direction(hdr->type) == FANIN_DOWN)
		return hdr->epoch == __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED);
	return hdr->epoch == run;
}

/*
 * Returns the cluster of a block: that of its earlier packets, otherwise the one with the shortest
 * queue. A late packet of an older block goes to the cluster of the slot's current block, whose
 * handler finds it stale. A packet of an ended run may go anywhere.
 */
static unsigned int
cluster_of_block(const struct pipeline *pipeline, struct job *job, const struct fanin_hdr *hdr)
{
	const uint32_t index = fanin_slot_index(&job->params.slots, hdr->block);
	const uint32_t run = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	uint64_t *entry = &job->pool->clusters[index];
	uint64_t found = __atomic_load_n(entry, __ATOMIC_RELAXED);

	if (unlikely(!is_of_run(job, hdr, run)))
		return index % pipeline->n_clusters;
	for (;;) {
		unsigned int cluster;

		if (is_of_block(job, found, hdr->block, run))
			return cluster_of_note(found);
		cluster = shortest_queue(pipeline, hdr->block, index);
		if (__atomic_compare_exchange_n(entry, &found, note_of(hdr->block, run, cluster),
						false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return cluster;
	}
}

static unsigned int
cluster_of(const struct pipeline *pipeline, struct job *job, const struct fanin_hdr *hdr)
{
	/* A shared slot's cluster must not depend on one job. */
	if (pipeline->policy == PIPELINE_POLICY_RSS || job->pool->handler != NULL)
		return fanin_slot_index(&job->params.slots, hdr->block) % pipeline->n_clusters;
	return cluster_of_block(pipeline, job, hdr);
}

/*
 * Returns true if this worker may process the packet at once: the cluster is this worker's alone,
 * and no earlier packet is waiting.
 */
static bool
is_own(const struct worker *worker, unsigned int cluster)
{
	const struct pipeline *pipeline = worker->pipeline;

	return cluster == worker->cluster && pipeline->cluster_size == 1 &&
	       (pipeline->policy == PIPELINE_POLICY_RSS ||
		rte_ring_empty(pipeline->queues[cluster]));
}

static void
hand_over(struct worker *worker, unsigned int cluster, struct rte_mbuf *mbuf)
{
	if (rte_ring_enqueue(worker->pipeline->queues[cluster], mbuf) == 0)
		worker->counters.handed_over++;
	else
		worker_drop(worker, mbuf, FANIN_REASON_WORKER_RING_FULL);
}

bool
worker_dispatch(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	const struct pipeline *pipeline = worker->pipeline;
	unsigned int cluster;

	if (pipeline->n_workers == 1 || job->pool == NULL)
		return false;
	cluster = cluster_of(pipeline, job,
			     &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin);
	if (is_own(worker, cluster))
		return false;
	hand_over(worker, cluster, mbuf);
	return true;
}

uint16_t
worker_poll_cluster(struct worker *worker)
{
	struct rte_ring *queue = worker->pipeline->queues[worker->cluster];
	struct rte_mbuf *mbufs[FANIN_BURST];
	unsigned int length;
	unsigned int n;

	if (queue == NULL)
		return 0;
	length = rte_ring_count(queue);
	worker->counters.queue_lengths[histogram_bucket(length)]++;
	if (length == 0)
		return 0;
	worker->counters.queue_sum += length;
	worker_count_input(worker, length);
	n = rte_ring_dequeue_burst(queue, (void **)mbufs, FANIN_BURST, NULL);
	if (n != 0)
		worker_aggregate(worker, mbufs, (uint16_t)n);
	return (uint16_t)n;
}

void
worker_retry(struct worker *worker)
{
	struct retry retries[WORKER_RETRIES];
	uint16_t n = worker->n_retries;

	if (likely(n == 0))
		return;
	memcpy(retries, worker->retries, n * sizeof(retries[0]));
	worker->n_retries = 0;
	for (uint16_t i = 0; i < n; i++) {
		uint64_t before = worker->counters.retries;

		worker->retrying_since_ns = retries[i].since_ns;
		worker_aggregate(worker, &retries[i].mbuf, 1);
		if (worker->counters.retries == before)
			worker->counters.retry_wait_ns += pipeline_time_ns(worker->pipeline) -
							  retries[i].since_ns;
	}
	worker->retrying_since_ns = 0;
}
