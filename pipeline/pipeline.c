/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up and tear-down of the pipeline, and its state as the main thread sees it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "pipeline/base/egress.h"
#include "pipeline/emission.h"
#include "pipeline/job.h"
#include "pipeline/net/mac_table.h"
#include "pipeline/net/neighbor.h"
#include "pipeline/net/net.h"
#include "pipeline/net/next_hops.h"
#include "pipeline/net/route_table.h"
#include "pipeline/pipeline.h"
#include "pipeline/timers.h"
#include "pipeline/worker.h"

/*
 * Packets that queued up at a port during this time, a core's time slice without a worker, do not
 * exceed the rate limit.
 */
#define KEY_BURST_NS UINT64_C(10000000)

uint64_t
pipeline_now_ns(void)
{
	static uint64_t hz;
	uint64_t tsc = rte_rdtsc();

	if (hz == 0)
		hz = rte_get_tsc_hz();
	return tsc / hz * 1000000000u + tsc % hz * 1000000000u / hz;
}

static int
rcu_create(struct pipeline *pipeline)
{
	size_t size = rte_rcu_qsbr_get_memsize(pipeline->n_workers);

	pipeline->qsbr = rte_zmalloc("qsbr", size, RTE_CACHE_LINE_SIZE);
	if (pipeline->qsbr == NULL)
		return -ENOMEM;
	if (rte_rcu_qsbr_init(pipeline->qsbr, pipeline->n_workers) != 0)
		return -rte_errno;
	for (uint16_t i = 0; i < pipeline->n_workers; i++)
		rte_rcu_qsbr_thread_register(pipeline->qsbr, i);
	return 0;
}

static void *
driver_queue(const struct pipeline_port *port, uint16_t queue)
{
	return port->driver == NULL ? NULL : port->driver->queue(port->handle, queue);
}

/*
 * Assigns rx queues to workers in turn. Single queues are assigned port by port. Several queues of
 * a port are assigned alike on all ports: so RSS queue q has the same worker on every port. A tx
 * queue that several workers use gets a lock.
 */
static int
assign_queues(struct pipeline *pipeline, rte_spinlock_t *locks)
{
	for (uint16_t p = 0; p < pipeline->n_ports; p++) {
		const struct pipeline_port *port = &pipeline->ports[p];

		for (uint16_t q = 0; q < port->n_queues; q++) {
			struct worker *worker = pipeline->workers[(port->n_queues == 1 ? p : q) %
								  pipeline->n_workers];

			if (worker->n_rx_queues == RTE_DIM(worker->rx_queues))
				return -ENOSPC;
			worker->rx_queues[worker->n_rx_queues++] =
				(struct rx_queue){ .ethdev = port->ethdev,
						   .queue = q,
						   .port = p,
						   .driver = port->driver,
						   .handle = driver_queue(port, q) };
		}
		for (uint16_t i = 0; i < pipeline->n_workers; i++) {
			struct tx_buffer *tx = &pipeline->workers[i]->tx[p];

			tx->port = p;
			tx->ethdev = port->ethdev;
			tx->queue = i % port->n_queues;
			tx->driver = port->driver;
			tx->handle = driver_queue(port, tx->queue);
			tx->full = WORKER_TX_BUFFER;
			tx->checksum_port_be = port->udp_checksums ? pipeline->udp_port_be : 0;
			tx->rated = port->egress.rate_mbit != 0;
			if (tx->rated && pipeline->n_workers > 1)
				tx->lock = &pipeline->egress[p].lock;
			else if (port->n_queues < pipeline->n_workers)
				tx->lock = &locks[p * PIPELINE_MAX_WORKERS + tx->queue];
		}
	}
	return 0;
}

/* Sets which slots belong to a worker, if the slots' numbers determine that. */
static void
worker_set_own(const struct pipeline *pipeline, struct worker *worker)
{
	const uint32_t n = pipeline->n_clusters;

	/* A single worker has all slots under any policy. */
	if (pipeline->n_workers == 1 ||
	    (pipeline->policy == PIPELINE_POLICY_RSS && (n & (n - 1)) == 0)) {
		worker->own_mask = n - 1;
		worker->own_slot = worker->cluster;
	} else {
		worker->own_mask = 0;
		worker->own_slot = 1;
	}
}

/*
 * Creates the queues to all ports, each with room for twice as many frames as it may hold, as the
 * frames move along in it.
 */
static int
tx_create(struct pipeline *pipeline, struct worker *worker, int socket)
{
	for (uint16_t p = 0; p < pipeline->n_ports; p++) {
		struct egress *egress = &pipeline->egress[p];
		struct tx_buffer *tx = &worker->tx[p];

		tx->egress = egress;
		tx->room = rte_zmalloc_socket("tx",
					      2 * (egress->frames + WORKER_TX_BUFFER) *
						      sizeof(tx->room[0]),
					      RTE_CACHE_LINE_SIZE, socket);
		if (tx->room == NULL)
			return -ENOMEM;
		tx->mbufs = tx->room;
	}
	return 0;
}

static void
worker_destroy(const struct pipeline *pipeline, struct worker *worker)
{
	if (worker == NULL)
		return;
	for (uint16_t p = 0; p < pipeline->n_ports; p++)
		rte_free(worker->tx[p].room);
	rte_pktmbuf_free_bulk(worker->handler_ctx.stock, worker->handler_ctx.n_stock);
	rte_free(worker);
}

static int
worker_create(struct pipeline *pipeline, uint16_t index)
{
	unsigned int socket = rte_lcore_to_socket_id(pipeline->lcores[index]);
	struct worker *worker = rte_zmalloc_socket("worker", sizeof(*worker), RTE_CACHE_LINE_SIZE,
						   (int)socket);

	if (worker == NULL)
		return -ENOMEM;
	pipeline->workers[index] = worker;
	worker->pipeline = pipeline;
	worker->handler_ctx.instance = pipeline->instance;
	worker->handler_ctx.drain = emission_drain_ctx;
	worker->index = index;
	worker->timers_due_ns = UINT64_MAX;
	faults_init(&worker->faults, &pipeline->faults, index);
	worker->cluster = index / pipeline->cluster_size;
	worker_set_own(pipeline, worker);
	return tx_create(pipeline, worker, (int)socket);
}

/*
 * Relaxed tails, as workers may share cores. With the default ones, all threads that put packets
 * into a ring finish in the order in which they began; if the first is not running, each packet
 * costs a time slice.
 */
static int
queues_create(struct pipeline *pipeline)
{
	unsigned int flags = RING_F_MP_RTS_ENQ |
			     (pipeline->cluster_size == 1 ? RING_F_SC_DEQ : RING_F_MC_RTS_DEQ);

	for (uint16_t i = 0; pipeline->n_workers > 1 && i < pipeline->n_clusters; i++) {
		char name[RTE_RING_NAMESIZE];

		snprintf(name, sizeof(name), "cluster_%u", i);
		pipeline->queues[i] = rte_ring_create(name, CLUSTER_QUEUE, SOCKET_ID_ANY, flags);
		if (pipeline->queues[i] == NULL)
			return -rte_errno;
	}
	return 0;
}

static void
copy_options(struct pipeline *pipeline, const struct pipeline_options *options)
{
	pipeline->clock = options->clock;
	pipeline->clock_user = options->clock_user;
	pipeline->ip_be = options->ip_be;
	memcpy(pipeline->mac, options->mac, sizeof(pipeline->mac));
	memcpy(&pipeline->mac_word, options->mac, sizeof(options->mac));
	pipeline->subnet_mask_be = route_mask_be(options->prefix_len);
	pipeline->few_hosts = options->prefix_len > 30;
	pipeline->udp_port_be = rte_cpu_to_be_16(options->udp_port);
	pipeline->idle = options->idle;
	pipeline->idle_empty_polls = options->idle_empty_polls;
	pipeline->idle_sleep_us = options->idle_sleep_us;
	pipeline->mac_age_seconds = options->mac_age_seconds;
	pipeline->faults = options->faults;
	pipeline->pool = options->pool;
	pipeline->n_ports = options->n_ports;
	pipeline->n_workers = options->n_workers;
	pipeline->policy = options->policy;
	pipeline->cluster_size = options->cluster_size;
	pipeline->tree_up_to = options->tree_up_to;
	pipeline->multi2_up_to = options->multi2_up_to;
	pipeline->multi4_up_to = options->multi4_up_to;
	pipeline->n_clusters = options->n_workers / options->cluster_size;
	pipeline->isa = options->isa;
	if (options->key_rate != 0) {
		pipeline->key_interval_ns = NS_PER_S / options->key_rate;
		pipeline->key_burst_ns = RTE_MAX(KEY_BURST_NS,
						 FANIN_BURST * pipeline->key_interval_ns);
	}
	pipeline->probes_due_ns = UINT64_MAX;
	pipeline->timers_max = options->slots + options->shared_slots * fanin_handlers_that_share();
	pipeline->workers_share_slots = options->n_workers > 1 &&
					options->policy == PIPELINE_POLICY_DISPATCH;
	memset(pipeline->port_of_ethdev, 0xff, sizeof(pipeline->port_of_ethdev));
	for (uint16_t i = 0; i < options->n_ports; i++) {
		pipeline->ports[i] = options->ports[i];
		pipeline->port_of_ethdev[options->ports[i].ethdev] = i;
		egress_init(&pipeline->egress[i], &options->ports[i].egress, options->ports[i].mtu);
	}
	for (uint16_t i = 0; i < options->n_workers; i++)
		pipeline->lcores[i] = options->lcores[i];
}

/* Finds the NUMA nodes that have workers. A cluster is on the node of its first worker. */
static void
find_nodes(struct pipeline *pipeline, const int *sockets)
{
	for (uint16_t cluster = 0; cluster < pipeline->n_clusters; cluster++) {
		unsigned int worker = cluster * pipeline->cluster_size;
		int socket = sockets != NULL
				     ? sockets[worker]
				     : (int)rte_lcore_to_socket_id(pipeline->lcores[worker]);
		uint16_t node = 0;

		while (node < pipeline->n_nodes && pipeline->nodes[node] != socket)
			node++;
		if (node == pipeline->n_nodes)
			pipeline->nodes[pipeline->n_nodes++] = socket;
		pipeline->cluster_nodes[cluster] = (uint8_t)node;
	}
}

static uint32_t
count_next_hops(const struct pipeline_options *options)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < options->n_routes; i++)
		n += options->routes[i].n_next_hops;
	return n;
}

int
pipeline_create(const struct pipeline_options *options, struct pipeline **created, char *error)
{
	struct pipeline *pipeline = rte_zmalloc("pipeline", sizeof(*pipeline), RTE_CACHE_LINE_SIZE);
	rte_spinlock_t *locks;
	int ret = -ENOMEM;

	if (pipeline == NULL)
		goto fail;
	copy_options(pipeline, options);
	find_nodes(pipeline, options->sockets);
	if (getrandom(&pipeline->instance, sizeof(pipeline->instance), 0) !=
	    sizeof(pipeline->instance)) {
		ret = -errno;
		goto fail;
	}
	ret = rcu_create(pipeline);
	if (ret != 0)
		goto fail;
	ret = -ENOMEM;
	pipeline->jobs = job_table_create(options->max_jobs, options->slots, options->shared_slots);
	pipeline->macs = mac_table_create(options->mac_entries, pipeline->qsbr);
	pipeline->neighbors = neighbor_table_create(options->mac_entries + count_next_hops(options),
						    pipeline->qsbr);
	if (pipeline->jobs == NULL || pipeline->macs == NULL || pipeline->neighbors == NULL)
		goto fail;
	ret = route_table_create(options->ip_be, options->prefix_len, options->routes,
				 options->n_routes, pipeline->neighbors, &pipeline->routes);
	if (ret != 0)
		goto fail;
	ret = -ENOMEM;
	pipeline->next_hops = next_hops_create(
		pipeline, options->probe_ns != 0 ? options->probe_ns : NEXT_HOPS_PROBE_NS,
		options->probe_misses != 0 ? options->probe_misses : NEXT_HOPS_PROBE_MISSES);
	if (pipeline->next_hops == NULL)
		goto fail;
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		ret = worker_create(pipeline, i);
		if (ret != 0)
			goto fail;
	}
	ret = queues_create(pipeline);
	if (ret != 0)
		goto fail;
	locks = rte_zmalloc("tx_locks", sizeof(*locks) * PIPELINE_MAX_PORTS * PIPELINE_MAX_WORKERS,
			    RTE_CACHE_LINE_SIZE);
	ret = -ENOMEM;
	if (locks == NULL)
		goto fail;
	pipeline->tx_locks = locks;
	ret = assign_queues(pipeline, locks);
	if (ret != 0)
		goto fail;
	*created = pipeline;
	return 0;

fail:
	snprintf(error, PIPELINE_ERROR_LEN,
		 "cannot set up the pipeline for %u ports and %u workers: %s", options->n_ports,
		 options->n_workers, strerror(-ret));
	pipeline_free(pipeline);
	return ret;
}

int
pipeline_start(struct pipeline *pipeline)
{
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		int ret = rte_eal_remote_launch(worker_main, pipeline->workers[i],
						pipeline->lcores[i]);

		if (ret != 0) {
			pipeline_stop(pipeline);
			return ret;
		}
		pipeline->running = true;
	}
	return 0;
}

void
pipeline_stop(struct pipeline *pipeline)
{
	__atomic_store_n(&pipeline->stop, true, __ATOMIC_RELAXED);
	for (uint16_t i = 0; i < pipeline->n_workers; i++)
		rte_eal_wait_lcore(pipeline->lcores[i]);
	pipeline->running = false;
}

void
pipeline_free(struct pipeline *pipeline)
{
	if (pipeline == NULL)
		return;
	job_table_free(pipeline);
	timers_free(pipeline);
	mac_table_free(pipeline->macs);
	next_hops_free(pipeline->next_hops);
	route_table_free(pipeline->routes);
	neighbor_table_free(pipeline->neighbors);
	for (uint16_t i = 0; i < pipeline->n_workers; i++)
		worker_destroy(pipeline, pipeline->workers[i]);
	for (uint16_t i = 0; i < pipeline->n_clusters; i++) {
		void *mbuf;

		while (pipeline->queues[i] != NULL &&
		       rte_ring_dequeue(pipeline->queues[i], &mbuf) == 0)
			rte_pktmbuf_free(mbuf);
		rte_ring_free(pipeline->queues[i]);
	}
	rte_free(pipeline->tx_locks);
	rte_free(pipeline->qsbr);
	rte_free(pipeline);
}

const struct counters *
pipeline_worker_counters(const struct pipeline *pipeline, unsigned int worker)
{
	return &pipeline->workers[worker]->counters;
}

pid_t
pipeline_worker_thread(const struct pipeline *pipeline, unsigned int worker)
{
	return __atomic_load_n(&pipeline->workers[worker]->thread, __ATOMIC_RELAXED);
}

uint64_t
pipeline_worker_longest_round_ns(const struct pipeline *pipeline, unsigned int worker)
{
	return __atomic_load_n(&pipeline->workers[worker]->longest_round_ns, __ATOMIC_RELAXED);
}

void
pipeline_counters(const struct pipeline *pipeline, struct counters *sum)
{
	/* struct counters is made of uint64_t only. */
	const size_t n = sizeof(*sum) / sizeof(uint64_t);
	uint64_t *to = (uint64_t *)sum;

	memset(sum, 0, sizeof(*sum));
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		const uint64_t *from = (const uint64_t *)&pipeline->workers[i]->counters;

		for (size_t k = 0; k < n; k++)
			to[k] += __atomic_load_n(&from[k], __ATOMIC_RELAXED);
	}
}

void
pipeline_housekeep(struct pipeline *pipeline)
{
	uint32_t now_seconds = (uint32_t)(pipeline_time_ns(pipeline) / 1000000000u);

	mac_table_age(pipeline->macs, now_seconds, pipeline->mac_age_seconds);
	job_slots_sweep(pipeline->jobs);
	neighbor_housekeep(pipeline->neighbors, now_seconds);
}

uint64_t
pipeline_watch_next_hops(struct pipeline *pipeline)
{
	return next_hops_watch(pipeline->next_hops, pipeline_time_ns(pipeline));
}

void
pipeline_port_set_link(struct pipeline *pipeline, unsigned int port, bool has_link)
{
	__atomic_store_n(&pipeline->ports[port].no_link, !has_link, __ATOMIC_RELAXED);
}

void
pipeline_port_set_down(struct pipeline *pipeline, unsigned int port, bool down)
{
	__atomic_store_n(&pipeline->ports[port].down, down, __ATOMIC_RELEASE);
	if (down)
		rte_rcu_qsbr_synchronize(pipeline->qsbr, RTE_QSBR_THRID_INVALID);
}

void
pipeline_announce(struct pipeline *pipeline, unsigned int port)
{
	neighbor_want(pipeline->neighbors,
		      neighbor_key_make(pipeline->ip_be, NEIGHBOR_ON_PORT(port)));
}

int
pipeline_port_find(const struct pipeline *pipeline, const char *name)
{
	for (uint16_t i = 0; i < pipeline->n_ports; i++) {
		if (strcmp(pipeline->ports[i].name, name) == 0)
			return i;
	}
	return -ENOENT;
}

int
pipeline_find_host(struct pipeline *pipeline, uint32_t ip_be)
{
	const neighbor_key key = neighbor_key_make(ip_be, NEIGHBOR_HOSTS);
	int32_t position;
	int port = -ENOENT;
	mac_key mac;

	if (!is_host_address(pipeline, ip_be))
		return -EINVAL;
	position = neighbor_find_or_add(pipeline->neighbors, key);
	if (position < 0)
		return -ENOSPC;
	mac = neighbor_mac(pipeline->neighbors, position, ip_be);
	if (mac != 0)
		port = mac_table_lookup(pipeline->macs, mac);
	if (port >= 0)
		return port;
	/* The port of a long-silent station has aged out: its answer tells the port again. */
	neighbor_want(pipeline->neighbors, key);
	return -EAGAIN;
}
