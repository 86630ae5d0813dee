/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which worker gets a packet: hierarchical first come, first served (Flare section 5). A block
 * belongs to a cluster of workers, chosen when its first packet arrives; inside the cluster the first
 * worker that is free takes the packet. Packets cross cores by the clusters' queues only.
 */
#include <limits.h>

#include <rte_ring.h>

#include "pipeline/aggregate.h"
#include "pipeline/schedule.h"

#include "pipeline/base/fastpath.h"

/*
 * The cluster with the shortest queue among those on the slot's NUMA node; of equal ones that which is the block's
 * turn, if it is there.
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
 * The cluster of a block: that of its earlier packets, else the one with the shortest queue. A late
 * packet of an older block goes where the slot's current block is; its handler knows it as stale.
 */
static unsigned int
cluster_of_block(const struct pipeline *pipeline, struct job *job, uint32_t block)
{
	const uint32_t index = fanin_slot_index(&job->params.slots, block);
	uint64_t *entry = &job->pool->clusters[index];
	uint64_t found = __atomic_load_n(entry, __ATOMIC_RELAXED);

	for (;;) {
		unsigned int cluster;

		if (found != 0 && !fanin_block_before((uint32_t)(found >> 32), block))
			return (uint32_t)found - 1;
		cluster = shortest_queue(pipeline, block, index);
		if (__atomic_compare_exchange_n(entry, &found, (uint64_t)block << 32 | (cluster + 1),
						false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return cluster;
	}
}

static unsigned int
cluster_of(const struct pipeline *pipeline, struct job *job, uint32_t block)
{
	/* Of a shared slot no job has a say in who uses it. */
	if (pipeline->policy == PIPELINE_POLICY_RSS || job->pool->handler != NULL)
		return fanin_slot_index(&job->params.slots, block) % pipeline->n_clusters;
	return cluster_of_block(pipeline, job, block);
}

/*
 * True if the packet may be processed right here: it is this worker's alone, and nothing that came
 * before it is waiting.
 */
static bool
is_own(const struct worker *worker, unsigned int cluster)
{
	const struct pipeline *pipeline = worker->pipeline;

	return cluster == worker->cluster && pipeline->cluster_size == 1 &&
	       (pipeline->policy == PIPELINE_POLICY_RSS || rte_ring_empty(pipeline->queues[cluster]));
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
			     rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.block);
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
