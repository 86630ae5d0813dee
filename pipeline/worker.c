/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker's loop (an HPU in Flare's words): poll every queue, process to completion, flush, report
 * quiescence, and give the core away when there was nothing to do.
 */
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

/* With the sleep policy, a worker sleeps after this many times the empty polls of a yield. */
#define SLEEP_FACTOR 128

/*
 * A worker that frames wake gives the core away after this part of the empty polls, and sleeps
 * after all of them. Four hosts and the switch on two cores: 8 and 64 instead of 64 and 8192 polls
 * take a quarter to a third less of the switch's CPU from 64 KiB to 16 MiB, and no more time from 1
 * KiB on. Over memif, whose frames don't wake the worker, yields after 8 polls instead of 64 cost a
 * third of the goodput at 1 MiB (medians; runs differ by a factor of two).
 */
#define WAKEABLE_YIELD_PART 8
#define WAKEABLE_SLEEP_NS UINT64_C(1000000)

/*
 * Time after which a worker looks again at packets that the fault injector holds back or a device
 * has refused.
 */
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

/* Processes or sends packets that the fault injector has held back long enough. */
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

/*
 * Returns true if all work arrives by queues that have a descriptor. Packets that another worker
 * hands over do not.
 */
static bool
is_wakeable(const struct worker *worker)
{
	if (worker->pipeline->n_workers != 1)
		return false;
	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		const struct port_driver *driver = worker->rx_queues[i].driver;

		if (driver == NULL || driver->wake_fd == NULL)
			return false;
	}
	return worker->n_rx_queues != 0;
}

/* Fills in the descriptors by which frames wake the worker. Returns their number. */
static nfds_t
wake_fds(const struct worker *worker, struct pollfd *fds)
{
	nfds_t n = 0;

	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		const struct rx_queue *queue = &worker->rx_queues[i];

		if (!port_is_down(worker->pipeline, queue->port))
			fds[n++] = (struct pollfd){
				.fd = queue->driver->wake_fd(queue->handle),
				.events = POLLIN,
			};
	}
	return n;
}

/*
 * Clears the sockets' errors, such as that of an interface that went down: until then they keep
 * waking the worker.
 */
static void
take_errors(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		int error;
		socklen_t len = sizeof(error);

		if ((fds[i].revents & POLLERR) != 0)
			(void)getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &error, &len);
	}
}

/*
 * Notes for how long the ports were not polled: frames waited for that time, or were lost. Time
 * asleep doesn't count.
 */
static inline void
round_measure(struct worker *worker, uint64_t now_ns)
{
	const uint64_t round_ns = now_ns - worker->looked_ns;

	worker->looked_ns = now_ns;
	if (unlikely(round_ns >= WORKER_LONG_ROUND_NS))
		worker->counters.long_rounds++;
	if (unlikely(round_ns > worker->longest_round_ns))
		__atomic_store_n(&worker->longest_round_ns, round_ns, __ATOMIC_RELAXED);
}

/* Sleeps until a frame comes, if frames wake the worker, a timer is due or the time is over. */
static void
sleep_a_while(struct worker *worker)
{
	const struct pipeline *pipeline = worker->pipeline;
	const uint64_t now_ns = pipeline_time_ns(pipeline);
	const uint64_t due_ns = worker_due_ns(worker);
	/*
	 * If the worker was woken and found no frames, there are no mbufs for a port's frames, or
	 * the port is going down: frames do not wake it this time.
	 */
	const bool by_frame = worker->wakeable && !worker->woken;
	uint64_t max_ns = pipeline->idle_sleep_us * UINT64_C(1000);
	struct pollfd fds[RTE_DIM(worker->rx_queues)];
	struct timespec sleep = { 0 };
	nfds_t n_fds;

	if (by_frame)
		max_ns = RTE_MAX(max_ns, WAKEABLE_SLEEP_NS);
	if (due_ns > now_ns)
		sleep.tv_nsec = (long)RTE_MIN(due_ns - now_ns, max_ns);
	round_measure(worker, now_ns);
	worker->woken = false;
	worker->counters.sleeps++;
	if (!by_frame) {
		nanosleep(&sleep, NULL);
	} else {
		n_fds = wake_fds(worker, fds);
		if (ppoll(fds, n_fds, &sleep, NULL) > 0) {
			worker->counters.wakes++;
			worker->woken = true;
			take_errors(fds, n_fds);
		}
	}
	worker->looked_ns = pipeline_time_ns(pipeline);
}

/* Frames that wait to be sent may leave at any time. */
static void
idle(struct worker *worker, uint32_t empty_polls)
{
	const struct pipeline *pipeline = worker->pipeline;
	const bool waits = (worker->n_tx_waiting | worker->n_tx_reserved) != 0;
	const bool wakeable = worker->wakeable && pipeline->idle == PIPELINE_IDLE_SLEEP;
	const uint32_t yield_after = wakeable ? pipeline->idle_empty_polls / WAKEABLE_YIELD_PART
					      : pipeline->idle_empty_polls;
	const uint32_t sleep_factor = wakeable ? 1 : SLEEP_FACTOR;

	if (pipeline->idle == PIPELINE_IDLE_SPIN || empty_polls < yield_after) {
		rte_pause();
	} else if (pipeline->idle == PIPELINE_IDLE_SLEEP && !waits &&
		   empty_polls / sleep_factor >= pipeline->idle_empty_polls) {
		sleep_a_while(worker);
	} else {
		worker->counters.yields++;
		sched_yield();
	}
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

	worker->wakeable = is_wakeable(worker);
	worker->looked_ns = pipeline_time_ns(pipeline);
	__atomic_store_n(&worker->thread, gettid(), __ATOMIC_RELAXED);
	rte_rcu_qsbr_thread_online(pipeline->qsbr, worker->index);
	while (!__atomic_load_n(&pipeline->stop, __ATOMIC_RELAXED)) {
		if (worker_round(worker) != 0) {
			empty_polls = 0;
			worker->woken = false;
		} else if (empty_polls < UINT32_MAX) {
			empty_polls++;
		}
		round_measure(worker, worker->now_ns);
		if (empty_polls != 0)
			idle(worker, empty_polls);
	}
	worker_release(worker);
	rte_rcu_qsbr_thread_offline(pipeline->qsbr, worker->index);
	return 0;
}
