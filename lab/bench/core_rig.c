/* SPDX-License-Identifier: BSD-3-Clause */
/* See core_rig.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>

#include "lab/bench/core_rig.h"
#include "pipeline/base/worker.h"

#define RIG_KEY UINT64_C(0x5ca1ab1e0ddba11)
#define RIG_SWITCH_IP 0x0a4d00feu
#define RIG_HOST_IP 0x0a4d0001u
#define RIG_PREFIX_LEN 24
/* Mbufs beyond those that the workers' caches of the pool may keep. */
#define SPARE_MBUFS 1536
#define POOL_CACHE 256

void
rig_die(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

void
rig_eal(bool huge, unsigned int n_workers)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	char line[256], lcores[32];
	char *argv[32] = { NULL };
	int argc = 0;

	if (n_workers > 1 && cpus < 2)
		rig_die("found one CPU, expected one for each of %u workers", n_workers);
	snprintf(lcores, sizeof(lcores), n_workers > 1 ? "0@0,1@1" : "0@(0-%ld)", cpus - 1);
	snprintf(line, sizeof(line),
		 "core-bench --no-pci --no-telemetry --log-level=error --lcores %s %s", lcores,
		 huge ? "--in-memory" : "--no-huge --no-shconf -m 512");
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		rig_die("DPDK's EAL does not start: %s", rte_strerror(rte_errno));
}

static struct rte_ring *
ring_new(const char *kind, unsigned int host, unsigned int queue, uint32_t entries)
{
	char name[RTE_RING_NAMESIZE];
	struct rte_ring *ring;

	snprintf(name, sizeof(name), "%s_%u_%u", kind, host, queue);
	ring = rte_ring_create(name, entries, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (ring == NULL)
		rig_die("no memory for a ring of %u entries", entries);
	return ring;
}

static uint16_t
ring_rx(void *queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return (uint16_t)rte_ring_sc_dequeue_burst(queue, (void **)mbufs, n, NULL);
}

static uint16_t
ring_tx(void *queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return (uint16_t)rte_ring_sp_enqueue_burst(queue, (void **)mbufs, n, NULL);
}

/*
 * Replaces the driver's own functions, which count packets in one cache line for all queues of a
 * port: workers on different queues would wait for each other, which no NIC makes them do.
 */
static void
port_without_counting(const struct rig *rig, unsigned int host)
{
	struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[rig->ethdevs[host]];

	ops->rx_pkt_burst = ring_rx;
	ops->tx_pkt_burst = ring_tx;
	for (uint16_t q = 0; q < rig->options.n_workers; q++) {
		ops->rxq.data[q] = rig->rx[host][q];
		ops->txq.data[q] = rig->tx[host][q];
	}
}

static void
port_open(struct rig *rig, unsigned int host, struct pipeline_port *port)
{
	const uint16_t queues = rig->options.n_workers;
	struct rte_eth_conf conf = { 0 };
	const uint32_t entries = rig->options.port_entries != 0 ? rig->options.port_entries
								: 2 * rig->n_blocks;
	char name[32];
	int ethdev, ret;

	for (uint16_t q = 0; q < queues; q++) {
		rig->rx[host][q] = ring_new("rx", host, q, entries);
		rig->tx[host][q] = ring_new("tx", host, q, entries);
	}
	snprintf(name, sizeof(name), "host%u", host);
	ethdev = rte_eth_from_rings(name, rig->rx[host], queues, rig->tx[host], queues, 0);
	if (ethdev < 0)
		rig_die("no ring port: %s", rte_strerror(rte_errno));
	ret = rte_eth_dev_configure((uint16_t)ethdev, queues, queues, &conf);
	for (uint16_t q = 0; q < queues && ret == 0; q++) {
		ret = rte_eth_rx_queue_setup((uint16_t)ethdev, q, 64, SOCKET_ID_ANY, NULL,
					     rig->pools[q]);
		if (ret == 0)
			ret = rte_eth_tx_queue_setup((uint16_t)ethdev, q, 64, SOCKET_ID_ANY, NULL);
	}
	if (ret == 0)
		ret = rte_eth_dev_start((uint16_t)ethdev);
	if (ret != 0)
		rig_die("a ring port does not start: %s", rte_strerror(-ret));
	rig->ethdevs[host] = (uint16_t)ethdev;
	port_without_counting(rig, host);
	snprintf(port->name, sizeof(port->name), "h%u", host);
	port->ethdev = (uint16_t)ethdev;
	port->mtu = 9000;
	port->n_queues = queues;
}

static void
pipeline_open(struct rig *rig, const struct pipeline_port *ports)
{
	static const unsigned int lcores[] = { 0, 1 };
	char error[PIPELINE_ERROR_LEN] = "";
	struct pipeline_options options = {
		.ip_be = htonl(RIG_SWITCH_IP),
		.mac = { 0x02, 0xfa, 0, 0, 0, 0xfe },
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.idle = PIPELINE_IDLE_SPIN,
		.max_jobs = rig->options.jobs + rig->options.more_jobs,
		.prefix_len = rig->leaders ? RIG_PREFIX_LEN : 0,
		.shared_slots = rig->leaders ? rte_align32pow2(2 * rig->n_blocks) : 0,
		.slots = rig->options.slots != 0 ? rig->options.slots : 2 * rig->n_blocks,
		.mac_entries = 64,
		.mac_age_seconds = 300,
		.pool = rig->pools[0],
		.ports = ports,
		.n_ports = rig_ports(rig),
		.lcores = lcores,
		.policy = PIPELINE_POLICY_RSS,
		.cluster_size = 1,
		.n_workers = rig->options.n_workers,
		.isa = rig->options.isa,
	};

	if (pipeline_create(&options, &rig->pipeline, error) != 0)
		rig_die("%s", error);
	for (uint16_t w = 0; w < rig->options.n_workers; w++)
		rte_rcu_qsbr_thread_online(rig->pipeline->qsbr, w);
}

void
rig_job_open(struct rig *rig, const char *handler, uint32_t slots, struct job **opened)
{
	struct job *job;
	struct job_spec spec = {
		.key = RIG_KEY,
		.handler = handler,
		.slots = slots,
		.payload_bytes = rig->options.payload,
		.n_members = rig->options.hosts,
	};
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code;

	for (uint16_t h = 0; h < spec.n_members; h++) {
		spec.members[h].port = h;
		spec.members[h].ip_be = htonl(RIG_HOST_IP + h);
	}
	rig_parent_member(rig, &spec);
	rig_leaders_job(rig, &spec);
	if (job_create(rig->pipeline, &spec, &job, &code, error) != 0)
		rig_die("%s", error);
	for (uint16_t h = 0; h < spec.n_members; h++) {
		struct fanin_join_body join = { .nonce = h + 1u,
						.size = job->params.n_ranks,
						.mtu = 9000,
						.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT };
		const struct fanin_headers headers = { .eth.src = { 0x02, 0, 0, 0, 1,
								    (uint8_t)h } };
		struct job_join_answer answer = { 0 };

		for (int attempt = 0; attempt < 2; attempt++) {
			if (job_join(rig->pipeline->jobs, job, h, &headers, &join, &answer) !=
			    FANIN_REASON_NONE)
				rig_die("host %u may not join", h);
			join.cookie = answer.cookie;
		}
	}
	rig_parent_start(rig, job);
	if (job->epoch == 0)
		rig_die("the job does not start");
	*opened = job;
}

static void
headers_fill(struct rig *rig)
{
	for (uint16_t h = 0; h < rig->options.hosts; h++) {
		/* Job and epoch are set with each packet. */
		const struct hosts_member member = {
			.key = rig->jobs[0]->params.keys.up, /* all hosts have the same secret */
			.bytes = rig->options.payload,
			.rank = h,
			.dtype = (uint8_t)rig->options.dtype,
			.op = (uint8_t)rig->options.op,
		};
		struct fanin_flow flow = {
			.src_mac = { 0x02, 0, 0, 0, 1, (uint8_t)h },
			.dst_ip_be = rig->pipeline->ip_be,
			.src_ip_be = htonl(RIG_HOST_IP + h),
			.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		};

		memcpy(flow.dst_mac, rig->pipeline->mac, sizeof(flow.dst_mac));
		hosts_headers(&rig->headers[h], &flow, &member);
	}
}

void
rig_open(struct rig *rig, const struct rig_options *options)
{
	struct pipeline_port ports[RIG_MAX_PORTS] = { 0 };
	const uint32_t n = options->mbufs;
	uint32_t room = RTE_PKTMBUF_HEADROOM + FANIN_PAYLOAD_OFFSET + options->payload;
	uint32_t slots = 0;

	/* Handlers that make packets also need room for a tag. */
	if (options->more_jobs != 0)
		room += FANIN_TAG_LEN;
	memset(rig, 0, sizeof(*rig));
	rig->options = *options;
	rig->leaders = fanin_handler_find(options->handler)->shape == FANIN_SHAPE_LEADERS;
	rig->n_blocks = n / options->hosts;
	for (uint16_t w = 0; w < options->n_workers; w++) {
		char name[RTE_MEMPOOL_NAMESIZE];

		/*
		 * Mbufs in flight, results kept by the slots, and mbufs in caches. There are no
		 * more, since all free mbufs are used in turn.
		 */
		snprintf(name, sizeof(name), "rig_%u", w);
		rig->pools[w] =
			rte_pktmbuf_pool_create(name,
						(n + 2 * rig->n_blocks) / options->n_workers +
							SPARE_MBUFS + options->more_mbufs,
						POOL_CACHE, PIPELINE_MBUF_PRIV_SIZE, (uint16_t)room,
						SOCKET_ID_ANY);
		if (rig->pools[w] == NULL)
			rig_die("no memory for %u packets of %u bytes", n, options->payload);
	}
	rig->all = calloc(n, sizeof(*rig->all));
	if (rig->all == NULL || hosts_data_make(&rig->data, options->dtype, options->op, false,
						options->hosts, options->payload, 1) != 0)
		rig_die("no memory for %u packets of %u bytes", n, options->payload);
	for (uint16_t h = 0; h < rig_ports(rig); h++)
		port_open(rig, h, &ports[h]);
	pipeline_open(rig, ports);
	/* Otherwise there are as many slots as the batch needs. */
	if (options->slots != 0)
		slots = 2 * rig->n_blocks / options->jobs;
	for (uint16_t i = 0; i < options->jobs; i++)
		rig_job_open(rig, options->handler, slots, &rig->jobs[i]);
	headers_fill(rig);
	rig_leaders_open(rig);
	rig_start_workers(rig);
}

void
rig_close(struct rig *rig)
{
	rig_stop_workers(rig);
	for (uint16_t w = 0; w < rig->options.n_workers; w++)
		rte_rcu_qsbr_thread_offline(rig->pipeline->qsbr, w);
	pipeline_free(rig->pipeline);
	for (uint16_t h = 0; h < rig_ports(rig); h++) {
		char name[32];

		rte_eth_dev_stop(rig->ethdevs[h]);
		rte_eth_dev_close(rig->ethdevs[h]);
		snprintf(name, sizeof(name), "net_ring_host%u", h);
		rte_vdev_uninit(name);
		for (uint16_t q = 0; q < rig->options.n_workers; q++) {
			rte_ring_free(rig->rx[h][q]);
			rte_ring_free(rig->tx[h][q]);
		}
	}
	for (uint16_t w = 0; w < rig->options.n_workers; w++) {
		if (!rte_mempool_full(rig->pools[w]))
			rig_die("%u packets are missing from the pool at the end",
				rte_mempool_in_use_count(rig->pools[w]));
		rte_mempool_free(rig->pools[w]);
	}
	hosts_data_free(&rig->data);
	free(rig->all);
}
