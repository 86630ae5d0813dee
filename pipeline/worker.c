/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker's loop (an HPU in Flare's words): poll every queue, process to completion, flush, report
 * quiescence, and give the core away when there was nothing to do.
 */
#include <sched.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include "pipeline/demux.h"
#include "pipeline/base/egress.h"
#include "pipeline/net/net.h"
#include "pipeline/probe.h"
#include "pipeline/rx.h"
#include "pipeline/schedule.h"
#include "pipeline/timers.h"
#include "pipeline/worker.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/* With the sleep policy, how many times more empty polls than for a yield it takes to sleep. */
#define IDLE_SLEEP_FACTOR 128

/* What the fault injector holds back, or a device has refused, is looked at again after that time. */
#define AGAIN_NS 10000u

static uint16_t
poll_queues(struct worker *worker)
{
	struct rte_mbuf *mbufs[FANIN_BURST];
	uint16_t total = 0;

	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		const struct rx_queue *queue = &worker->rx_queues[i];
		struct port_counters *counters = &worker->counters.ports[queue->port];
		uint64_t bytes = 0;
		uint16_t n;

		if (unlikely(port_is_down(worker->pipeline, queue->port)))
			continue;
		n = queue->driver == NULL
			    ? rte_eth_rx_burst(queue->ethdev, queue->queue, mbufs, FANIN_BURST)
			    : queue->driver->rx_burst(queue->handle, mbufs, FANIN_BURST);
		if (n == 0)
			continue;
		for (uint16_t k = 0; k < n; k++)
			bytes += mbufs[k]->pkt_len;
		counters->rx_frames += n;
		counters->rx_bytes += bytes;
		worker_classify(worker, mbufs, n);
		total = (uint16_t)(total + n);
	}
	return total;
}

/* Lets go what the fault injector has held back long enough. */
static void
poll_faults(struct worker *worker)
{
	struct rte_mbuf *mbuf;
	uint16_t port;

	if (likely(worker->faults.n_held == 0))
		return;
	for (bool first = true; faults_due(&worker->faults, first, &mbuf, &port); first = false) {
		if (port == FAULTS_INGRESS)
			worker_fanin(worker, mbuf);
		else if (port == FAULTS_ROUTE || port == FAULTS_ROUTE_BY_BACKLOG)
			worker_route_fanin(worker, mbuf, port == FAULTS_ROUTE_BY_BACKLOG, NULL);
		else
			worker_send(worker, port, mbuf);
	}
}

/* How long to sleep: not past the first timer, ns. */
static long
sleep_ns(const struct worker *worker)
{
	const uint64_t usual_ns = worker->pipeline->idle_sleep_us * UINT64_C(1000);
	const uint64_t now_ns = pipeline_time_ns(worker->pipeline);
	const uint64_t due_ns = worker->timers_due_ns;

	return due_ns > now_ns ? (long)RTE_MIN(due_ns - now_ns, usual_ns) : 0;
}

/* What waits to be sent may leave at any time. */
static void
idle(const struct worker *worker, uint32_t empty_polls)
{
	const struct pipeline *pipeline = worker->pipeline;
	const bool waits = (worker->n_tx_waiting | worker->n_tx_reserved) != 0;
	struct timespec sleep = { 0 };

	if (pipeline->idle == PIPELINE_IDLE_SPIN || empty_polls < pipeline->idle_empty_polls) {
		rte_pause();
	} else if (pipeline->idle == PIPELINE_IDLE_SLEEP && !waits &&
		   empty_polls / IDLE_SLEEP_FACTOR >= pipeline->idle_empty_polls) {
		sleep.tv_nsec = sleep_ns(worker);
		nanosleep(&sleep, NULL);
	} else {
		sched_yield();
	}
}

uint64_t
worker_due_ns(const struct worker *worker)
{
	const uint64_t again_ns = worker->now_ns + AGAIN_NS;
	uint64_t due_ns = worker->timers_due_ns;

	if (worker->faults.n_held != 0 || worker->n_retries != 0)
		due_ns = RTE_MIN(due_ns, again_ns);
	if (worker->n_tx_waiting == 0 && worker->n_tx_reserved == 0)
		return due_ns;
	for (uint16_t port = 0; port < worker->pipeline->n_ports; port++) {
		const struct tx_buffer *buffer = &worker->tx[port];

		if (buffer->n_waiting != 0)
			due_ns = RTE_MIN(due_ns, buffer->rated && buffer->n_held != 0
							 ? egress_due_ns(buffer->egress)
							 : again_ns);
	}
	return due_ns;
}

void
worker_release(struct worker *worker)
{
	while (worker->n_retries != 0)
		rte_pktmbuf_free(worker->retries[--worker->n_retries].mbuf);
	while (worker->faults.n_held != 0)
		rte_pktmbuf_free(worker->faults.held[--worker->faults.n_held].mbuf);
	worker_release_unsent(worker);
}

uint16_t
worker_round(struct worker *worker)
{
	uint64_t start = rte_rdtsc();
	uint16_t n;

	worker->now_ns = pipeline_time_ns(worker->pipeline);
	worker->now_seconds = (uint32_t)(worker->now_ns / 1000000000u);
	n = poll_queues(worker);
	worker_retry(worker);
	n = (uint16_t)(n + worker_poll_cluster(worker));
	poll_faults(worker);
	if (unlikely(timers_are_due(worker)))
		timers_expire(worker);
	if (unlikely(neighbor_asks_are_due(worker->pipeline->neighbors)))
		worker_ask_due(worker);
	if (unlikely(probes_are_due(worker->pipeline, worker->now_ns)))
		probe_due(worker);
	worker_flush(worker);
	worker_free_garbage(worker);
	rte_rcu_qsbr_quiescent(worker->pipeline->qsbr, worker->index);
	if (n == 0) {
		worker->counters.empty_polls++;
		return 0;
	}
	worker->counters.bursts++;
	worker->counters.packets += n;
	worker->counters.busy_cycles += rte_rdtsc() - start;
	return n;
}

int
worker_main(void *argument)
{
	struct worker *worker = argument;
	struct pipeline *pipeline = worker->pipeline;
	uint32_t empty_polls = 0;

	rte_rcu_qsbr_thread_online(pipeline->qsbr, worker->index);
	while (!__atomic_load_n(&pipeline->stop, __ATOMIC_RELAXED)) {
		if (worker_round(worker) != 0)
			empty_polls = 0;
		else if (empty_polls < UINT32_MAX)
			empty_polls++;
		if (empty_polls != 0)
			idle(worker, empty_polls);
	}
	worker_release(worker);
	rte_rcu_qsbr_thread_offline(pipeline->qsbr, worker->index);
	return 0;
}
