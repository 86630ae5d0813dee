/* SPDX-License-Identifier: BSD-3-Clause */
/* See network.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "pipeline/base/egress.h"
#include "pipeline/base/tx.h"
#include "pipeline/worker.h"
#include "lab/rig/network.h"
#include "wire/arp.h"
#include "wire/wire.h"

/* Neighbours, links and addresses are looked after as often as the daemon does. */
#define HOUSEKEEP_NS UINT64_C(1000000000)
#define MAC_ENTRIES 4096
#define MAC_AGE_SECONDS 1000000
#define HOST_BURST 32

enum event_kind {
	EVENT_FRAME,     /* arrives at `end` */
	EVENT_SWITCH,    /* a switch's round */
	EVENT_HOST,      /* a host is called */
	EVENT_HOUSEKEEP, /* of all switches */
};

/* One end of a link. */
struct end {
	struct rig *rig;
	struct rig_switch *sw; /* whose port it is; NULL: the host's */
	struct rig_host *host;
	struct end *peer;     /* NULL: nothing is linked to it */
	struct end *neighbor; /* of a host's: another host's at the same port; NULL: there is no
				 other one */
	uint16_t port;        /* of the switch */
	uint64_t delay_ns;
	struct rig_traffic sent;
	struct rte_mbuf **frames; /* that have arrived and were not taken: a FIFO */
	uint32_t first;
	uint32_t n;
	uint32_t room;
};

struct event {
	uint64_t at_ns;
	uint64_t number; /* of events at the same time the earlier one comes first */
	enum event_kind kind;
	union {
		struct end *end;
		struct rig_switch *sw;
		struct rig_host *host;
	};
	struct rte_mbuf *mbuf; /* of FRAME */
};

struct rig_switch {
	bool dead;
	struct rig *rig;
	struct rig_switch *next;
	struct pipeline *pipeline;
	struct end *ends;
	uint16_t n_ports;
	uint64_t due_ns; /* of its next round that there is an event for; UINT64_MAX: none */
};

struct rig_host {
	struct fanin_transport transport; /* the first: a pointer to it is one to the host */
	struct rig_host *next;
	struct end end;
	uint32_t ip_be;
	uint8_t mac[6];
	uint32_t rate_mbit; /* 0: none */
	uint32_t longest;   /* frame it has sent, bytes */
	uint64_t free_ns;   /* when its link has sent all that it was given */
	uint64_t due_ns;    /* as a switch's */
	uint64_t others;
	void (*poll)(struct rig_host *host, void *user);
	void *user;
	void (*take)(struct rig_host *host, const void *frame, uint32_t len, void *user);
	void *take_user;
	struct rte_mbuf *building; /* reserved; NULL: nothing is */
	bool dead;
};

struct rig {
	uint64_t now_ns;
	struct rte_mempool *pool;
	struct event *heap;
	size_t n_events;
	size_t room;
	uint64_t n_numbers;
	struct rig_switch *switches;
	struct rig_host *hosts;
	uint16_t n_switches;
	uint32_t n_hosts;
	uint32_t n_packets;
	uint64_t seed;
	uint16_t mtu;
};

/* ------------------------------------------------------------------ events */

static bool
is_before(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

/* Memory is required: there is no way to go on without it. */
static void *
grow(void *memory, size_t bytes)
{
	memory = realloc(memory, bytes);
	if (memory == NULL) {
		fprintf(stderr, "rig: no memory for %zu bytes\n", bytes);
		abort();
	}
	return memory;
}

static void
event_add(struct rig *rig, struct event event)
{
	size_t i = rig->n_events++;

	if (rig->n_events > rig->room) {
		rig->room = 2 * rig->n_events + 1024;
		rig->heap = grow(rig->heap, rig->room * sizeof(rig->heap[0]));
	}
	event.number = rig->n_numbers++;
	for (; i != 0 && is_before(&event, &rig->heap[(i - 1) / 2]); i = (i - 1) / 2)
		rig->heap[i] = rig->heap[(i - 1) / 2];
	rig->heap[i] = event;
}

static struct event
event_take(struct rig *rig)
{
	const struct event first = rig->heap[0];
	const struct event last = rig->heap[--rig->n_events];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= rig->n_events)
			break;
		if (child + 1 < rig->n_events &&
		    is_before(&rig->heap[child + 1], &rig->heap[child]))
			child++;
		if (!is_before(&rig->heap[child], &last))
			break;
		rig->heap[i] = rig->heap[child];
		i = child;
	}
	rig->heap[i] = last;
	return first;
}

static void
switch_wake(struct rig_switch *sw, uint64_t at_ns)
{
	if (at_ns >= sw->due_ns)
		return;
	sw->due_ns = at_ns;
	event_add(sw->rig, (struct event){ .at_ns = at_ns, .kind = EVENT_SWITCH, .sw = sw });
}

void
rig_host_wake(struct rig_host *host, uint64_t at_ns)
{
	struct rig *rig = host->end.rig;

	at_ns = RTE_MAX(at_ns, rig->now_ns);
	if (at_ns >= host->due_ns)
		return;
	host->due_ns = at_ns;
	event_add(rig, (struct event){ .at_ns = at_ns, .kind = EVENT_HOST, .host = host });
}

/* ------------------------------------------------------------------ links */

/* Each host at a shared port takes only frames for itself or for several stations. */
static bool
is_for_host(const struct rig_host *host, const struct rte_mbuf *mbuf)
{
	const uint8_t *to = rte_pktmbuf_mtod(mbuf, const uint8_t *);

	return (to[0] & 1) != 0 || memcmp(to, host->mac, sizeof(host->mac)) == 0;
}

/* Sends a copy to each host at a port; without a free packet, a host gets nothing. */
static void
segment_send(const struct end *end, struct rte_mbuf *mbuf, uint64_t at_ns)
{
	for (struct end *peer = end->peer; peer != NULL; peer = peer->neighbor) {
		struct rte_mbuf *copy;

		if (!is_for_host(peer->host, mbuf))
			continue;
		copy = rte_pktmbuf_copy(mbuf, end->rig->pool, 0, UINT32_MAX);
		if (copy != NULL)
			event_add(end->rig, (struct event){ .at_ns = at_ns + end->delay_ns,
							    .kind = EVENT_FRAME,
							    .end = peer,
							    .mbuf = copy });
	}
	rte_pktmbuf_free(mbuf);
}

/* A frame leaves an end at this time, with its last byte. */
static void
end_send(struct end *end, struct rte_mbuf *mbuf, uint64_t at_ns)
{
	end->sent.frames++;
	end->sent.bytes += mbuf->pkt_len;
	if (end->peer == NULL) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	if (end->peer->neighbor != NULL) {
		segment_send(end, mbuf, at_ns);
		return;
	}
	event_add(end->rig, (struct event){ .at_ns = at_ns + end->delay_ns,
					    .kind = EVENT_FRAME,
					    .end = end->peer,
					    .mbuf = mbuf });
}

static void
fifo_put(struct end *end, struct rte_mbuf *mbuf)
{
	if (end->first + end->n == end->room) {
		if (end->first != 0) {
			memmove(end->frames, end->frames + end->first,
				end->n * sizeof(end->frames[0]));
			end->first = 0;
		}
		if (end->n == end->room) {
			end->room = 2 * end->room + 64;
			end->frames = grow(end->frames, end->room * sizeof(end->frames[0]));
		}
	}
	end->frames[end->first + end->n++] = mbuf;
}

static struct rte_mbuf *
fifo_take(struct end *end)
{
	if (end->n == 0)
		return NULL;
	end->n--;
	return end->frames[end->first++];
}

static void
end_close(struct end *end)
{
	struct rte_mbuf *mbuf;

	while ((mbuf = fifo_take(end)) != NULL)
		rte_pktmbuf_free(mbuf);
	free(end->frames);
}

/* ------------------------------------------------------------------ switches' ports */

static void *
port_queue(void *port, uint16_t queue)
{
	(void)queue;
	return port;
}

static uint16_t
port_rx_burst(void *queue, struct rte_mbuf **mbufs, uint16_t max)
{
	struct end *end = queue;
	uint16_t n = 0;

	while (n < max && end->n != 0)
		mbufs[n++] = fifo_take(end);
	return n;
}

/* A shared frame is sent as a copy, since its receiver may write to it. */
static uint16_t
port_tx_burst(void *queue, struct rte_mbuf **mbufs, uint16_t n)
{
	struct end *end = queue;

	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		if (rte_mbuf_refcnt_read(mbuf) != 1) {
			mbuf = rte_pktmbuf_copy(mbufs[i], end->rig->pool, 0, UINT32_MAX);
			if (mbuf == NULL)
				return i;
			rte_pktmbuf_free(mbufs[i]);
		}
		end_send(end, mbuf, end->rig->now_ns);
	}
	return n;
}

static const struct port_driver rig_driver = {
	.name = "rig",
	.queue = port_queue,
	.rx_burst = port_rx_burst,
	.tx_burst = port_tx_burst,
};

/* ------------------------------------------------------------------ switches */

static uint16_t
workers_of(const struct rig_switch_options *options)
{
	return options->n_workers == 0 ? 1 : options->n_workers;
}

static void
ports_fill(struct rig_switch *sw, const struct rig_switch_options *options,
	   struct pipeline_port *ports)
{
	for (uint16_t p = 0; p < options->n_ports; p++) {
		struct end *end = &sw->ends[p];

		end->rig = sw->rig;
		end->sw = sw;
		end->port = p;
		end->delay_ns = options->ends[p].delay_ns;
		snprintf(ports[p].name, sizeof(ports[p].name), "p%u", p);
		ports[p].ethdev = (uint16_t)(PORT_DRIVER_FIRST + p);
		ports[p].driver = &rig_driver;
		ports[p].handle = end;
		ports[p].mtu = sw->rig->mtu;
		ports[p].n_queues = 1;
		ports[p].routed = (options->routed >> p & 1) != 0;
		ports[p].egress = options->ends[p].egress;
	}
}

static int
pipeline_open(struct rig_switch *sw, const struct rig_switch_options *options, char *error)
{
	static const unsigned int lcores[PIPELINE_MAX_WORKERS] = { 0 };
	static const int sockets[PIPELINE_MAX_WORKERS] = { 0 };
	const uint16_t number = sw->rig->n_switches;
	struct pipeline_port ports[PIPELINE_MAX_PORTS] = { 0 };
	struct pipeline_options made = {
		.clock = rig_clock,
		.clock_user = sw->rig,
		.ip_be = options->ip_be,
		.prefix_len = options->prefix_len,
		.mac = { 0x02, 0xfa, 0x01, 0, (uint8_t)(number >> 8), (uint8_t)number },
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.max_jobs = options->max_jobs,
		.slots = options->slots,
		.shared_slots = options->shared_slots,
		.mac_entries = MAC_ENTRIES,
		.mac_age_seconds = MAC_AGE_SECONDS,
		.faults = options->faults,
		.pool = sw->rig->pool,
		.ports = ports,
		.n_ports = options->n_ports,
		.routes = options->routes,
		.n_routes = options->n_routes,
		.lcores = lcores,
		.sockets = sockets,
		.n_workers = workers_of(options),
		.cluster_size = 1,
		.isa = fanin_isa_detect(),
	};

	ports_fill(sw, options, ports);
	made.faults.seed += sw->rig->seed + number;
	return pipeline_create(&made, &sw->pipeline, error);
}

void
rig_switch_away(struct rig_switch *sw, bool away)
{
	for (uint16_t w = 0; w < sw->pipeline->n_workers; w++) {
		if (away)
			rte_rcu_qsbr_thread_offline(sw->pipeline->qsbr, w);
		else
			rte_rcu_qsbr_thread_online(sw->pipeline->qsbr, w);
	}
}

struct rig_switch *
rig_switch_add(struct rig *rig, const struct rig_switch_options *options, char *error)
{
	struct rig_switch *sw = grow(NULL, sizeof(*sw));

	*sw = (struct rig_switch){ .rig = rig, .n_ports = options->n_ports, .due_ns = UINT64_MAX };
	sw->ends = grow(NULL, options->n_ports * sizeof(sw->ends[0]));
	memset(sw->ends, 0, options->n_ports * sizeof(sw->ends[0]));
	if (pipeline_open(sw, options, error) != 0) {
		free(sw->ends);
		free(sw);
		return NULL;
	}
	rig_switch_away(sw, false);
	rig->n_switches++;
	sw->next = rig->switches;
	rig->switches = sw;
	return sw;
}

struct pipeline *
rig_switch_pipeline(const struct rig_switch *sw)
{
	return sw->pipeline;
}

struct rig_traffic
rig_switch_traffic(const struct rig_switch *sw, uint16_t port)
{
	return sw->ends[port].sent;
}

static void
switch_close(struct rig_switch *sw)
{
	for (uint16_t w = 0; w < sw->pipeline->n_workers; w++) {
		worker_release(sw->pipeline->workers[w]);
		rte_rcu_qsbr_thread_offline(sw->pipeline->qsbr, w);
	}
	for (uint16_t p = 0; p < sw->n_ports; p++)
		end_close(&sw->ends[p]);
	pipeline_free(sw->pipeline);
	free(sw->ends);
	free(sw);
}

static bool
has_frames(const struct rig_switch *sw)
{
	for (uint16_t p = 0; p < sw->n_ports; p++) {
		if (sw->ends[p].n != 0 && !port_is_down(sw->pipeline, p))
			return true;
	}
	return false;
}

/* Returns when the switch has something to do without a new frame. */
static uint64_t
switch_due_ns(const struct rig_switch *sw)
{
	const struct pipeline *pipeline = sw->pipeline;
	uint64_t due_ns = __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED);

	for (uint16_t w = 0; w < pipeline->n_workers; w++)
		due_ns = RTE_MIN(due_ns, worker_due_ns(pipeline->workers[w]));
	return due_ns;
}

static void
switch_round(struct rig_switch *sw)
{
	const struct pipeline *pipeline = sw->pipeline;
	uint16_t n;

	do {
		n = 0;
		for (uint16_t w = 0; w < pipeline->n_workers; w++)
			n = (uint16_t)(n + worker_round(pipeline->workers[w]));
	} while (n != 0 || has_frames(sw));
	switch_wake(sw, RTE_MAX(switch_due_ns(sw), sw->rig->now_ns + 1));
}

void
rig_link(struct rig_switch *one, uint16_t one_port, struct rig_switch *other, uint16_t other_port)
{
	one->ends[one_port].peer = &other->ends[other_port];
	other->ends[other_port].peer = &one->ends[one_port];
}

/* ------------------------------------------------------------------ hosts */

static void
host_transmit(struct rig_host *host, struct rte_mbuf *mbuf)
{
	struct rig *rig = host->end.rig;

	host->free_ns = RTE_MAX(host->free_ns, rig->now_ns);
	if (host->rate_mbit != 0)
		host->free_ns += (uint64_t)mbuf->pkt_len * 8000 / host->rate_mbit;
	end_send(&host->end, mbuf, host->free_ns);
}

static struct rte_mbuf *
frame_new(struct rig *rig, uint32_t len)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(rig->pool);

	if (mbuf == NULL || rte_pktmbuf_append(mbuf, (uint16_t)len) == NULL) {
		rte_pktmbuf_free(mbuf);
		return NULL;
	}
	return mbuf;
}

bool
rig_host_send(struct rig_host *host, const void *frame, uint32_t len)
{
	struct rte_mbuf *mbuf = frame_new(host->end.rig, len);

	if (mbuf == NULL)
		return false;
	memcpy(rte_pktmbuf_mtod(mbuf, void *), frame, len);
	host_transmit(host, mbuf);
	return true;
}

/* As short as Ethernet allows. */
struct arp_frame {
	struct fanin_arp arp;
	uint8_t padding[18];
};

static void
arp_send(struct rig_host *host, uint16_t operation_be, const uint8_t to[6], uint32_t target_be)
{
	struct arp_frame frame = { 0 };

	fanin_arp_encode(&frame.arp, operation_be, host->mac, host->ip_be, target_be);
	memcpy(frame.arp.eth.dst, to, sizeof(frame.arp.eth.dst));
	memcpy(frame.arp.target_mac, to, sizeof(frame.arp.target_mac));
	rig_host_send(host, &frame, sizeof(frame));
}

/* Answers ARP. Returns true if it was some. */
static bool
host_answers_arp(struct rig_host *host, const struct rte_mbuf *mbuf)
{
	struct fanin_arp arp;

	if (!fanin_arp_decode(rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len, &arp))
		return false;
	if (arp.operation_be == FANIN_ARP_REQUEST_BE && arp.target_ip_be == host->ip_be)
		arp_send(host, FANIN_ARP_REPLY_BE, arp.sender_mac, arp.sender_ip_be);
	return true;
}

/*
 * Is the frame for the transport? It is if it comes from a switch, to whichever port, or from
 * another host, but is no probe: probes are for a host's kernel.
 */
static bool
is_for_transport(const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);

	return mbuf->data_len >= FANIN_PAYLOAD_OFFSET &&
	       headers->eth.type_be == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) &&
	       headers->ip.protocol == IPPROTO_UDP &&
	       (headers->udp.src_be == rte_cpu_to_be_16(FANIN_WIRE_DEFAULT_UDP_PORT) ||
		headers->udp.dst_be == rte_cpu_to_be_16(FANIN_WIRE_DEFAULT_UDP_PORT)) &&
	       headers->fanin.type != FANIN_TYPE_PROBE;
}

static void
host_receive(struct rig_host *host, struct rte_mbuf *mbuf)
{
	if (host->dead) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	if (host->take != NULL) {
		if (!host_answers_arp(host, mbuf))
			host->take(host, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len,
				   host->take_user);
		rte_pktmbuf_free(mbuf);
		return;
	}
	if (is_for_transport(mbuf)) {
		fifo_put(&host->end, mbuf);
		rig_host_wake(host, host->end.rig->now_ns);
		return;
	}
	if (!host_answers_arp(host, mbuf))
		host->others++;
	rte_pktmbuf_free(mbuf);
}

static void *
host_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct rig_host *host = (struct rig_host *)transport;

	if (host->building == NULL)
		host->building = frame_new(host->end.rig, len);
	return host->building == NULL ? NULL : rte_pktmbuf_mtod(host->building, void *);
}

static void
host_commit(struct fanin_transport *transport, uint32_t len)
{
	struct rig_host *host = (struct rig_host *)transport;
	struct rte_mbuf *mbuf = host->building;

	host->building = NULL;
	host->longest = RTE_MAX(host->longest, len);
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = len;
	host_transmit(host, mbuf);
}

static int
host_flush(struct fanin_transport *transport)
{
	(void)transport;
	return 0;
}

static uint32_t
host_waiting(struct fanin_transport *transport)
{
	const struct rig_host *host = (const struct rig_host *)transport;

	if (host->rate_mbit == 0 || host->longest == 0)
		return 0;
	return (uint32_t)(rig_host_backlog_ns(host) * host->rate_mbit / 8000 / host->longest);
}

static unsigned int
host_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct rig_host *host = (struct rig_host *)transport;
	unsigned int n = 0;

	while (n < max && n < HOST_BURST && host->end.n != 0) {
		struct rte_mbuf *mbuf = fifo_take(&host->end);

		frames[n++] = (struct fanin_frame){ .data = rte_pktmbuf_mtod(mbuf, void *),
						    .len = mbuf->data_len,
						    .handle = (uint64_t)(uintptr_t)mbuf };
	}
	return n;
}

static void
host_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	(void)transport;
	for (unsigned int i = 0; i < n; i++)
		rte_pktmbuf_free((struct rte_mbuf *)(uintptr_t)frames[i].handle);
}

static uint64_t
host_ring_drops(struct fanin_transport *transport)
{
	(void)transport;
	return 0;
}

/* A host's transport is the rig's. */
static void
host_leave(struct fanin_transport *transport)
{
	(void)transport;
}

static const struct fanin_transport_ops host_ops = {
	.close = host_leave,
	.name = "rig",
	.tx_reserve = host_reserve,
	.tx_commit = host_commit,
	.tx_flush = host_flush,
	.tx_waiting = host_waiting,
	.rx_burst = host_burst,
	.rx_release = host_release,
	.ring_drops = host_ring_drops,
};

struct rig_host *
rig_attach(struct rig_switch *sw, uint16_t port, uint32_t ip_be, const struct rig_end *end)
{
	static const uint8_t all[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct rig *rig = sw->rig;
	struct rig_host *host = grow(NULL, sizeof(*host));
	const uint32_t number = rig->n_hosts++;

	*host = (struct rig_host){ .ip_be = ip_be,
				   .rate_mbit = end->egress.rate_mbit,
				   .due_ns = UINT64_MAX,
				   .mac = { 0x02, 0xfa, 0x02, (uint8_t)(number >> 16),
					    (uint8_t)(number >> 8), (uint8_t)number } };
	host->transport.ops = &host_ops;
	host->end.rig = rig;
	host->end.host = host;
	host->end.delay_ns = end->delay_ns;
	host->end.peer = &sw->ends[port];
	host->end.neighbor = sw->ends[port].peer;
	sw->ends[port].peer = &host->end;
	host->next = rig->hosts;
	rig->hosts = host;
	/* A machine announces an address that it gets (RFC 5227). */
	arp_send(host, FANIN_ARP_REQUEST_BE, all, ip_be);
	return host;
}

const uint8_t *
rig_host_mac(const struct rig_host *host)
{
	return host->mac;
}

uint64_t
rig_host_backlog_ns(const struct rig_host *host)
{
	const uint64_t now_ns = host->end.rig->now_ns;

	return host->free_ns > now_ns ? host->free_ns - now_ns : 0;
}

void
rig_host_pause(struct rig_host *host, uint64_t pause_ns)
{
	host->free_ns = RTE_MAX(host->free_ns, host->end.rig->now_ns) + pause_ns;
}

struct fanin_transport *
rig_host_transport(struct rig_host *host)
{
	return &host->transport;
}

void
rig_host_set_poll(struct rig_host *host, void (*poll)(struct rig_host *host, void *user),
		  void *user)
{
	host->poll = poll;
	host->user = user;
}

void
rig_host_kill(struct rig_host *host)
{
	host->dead = true;
}

void
rig_host_set_take(struct rig_host *host,
		  void (*take)(struct rig_host *host, const void *frame, uint32_t len, void *user),
		  void *user)
{
	host->take = take;
	host->take_user = user;
}

struct rig_traffic
rig_host_traffic(const struct rig_host *host)
{
	return host->end.sent;
}

uint64_t
rig_host_others(const struct rig_host *host)
{
	return host->others;
}

static void
host_close(struct rig_host *host)
{
	rte_pktmbuf_free(host->building);
	end_close(&host->end);
	free(host);
}

/* ------------------------------------------------------------------ the network */

struct rig *
rig_create(const struct rig_options *options, char *error)
{
	static unsigned int instances;
	struct rig *rig = grow(NULL, sizeof(*rig));
	char name[RTE_MEMPOOL_NAMESIZE];

	*rig = (struct rig){ .now_ns = RIG_START_NS,
			     .seed = options->seed,
			     .mtu = options->mtu,
			     .n_packets = options->n_packets };
	snprintf(name, sizeof(name), "rig_%u", instances++);
	rig->pool = rte_pktmbuf_pool_create(name, options->n_packets, 0, PIPELINE_MBUF_PRIV_SIZE,
					    (uint16_t)(RTE_PKTMBUF_HEADROOM +
						       RTE_ALIGN_CEIL(options->mtu + 64u, 64u)),
					    SOCKET_ID_ANY);
	if (rig->pool == NULL) {
		snprintf(error, RIG_ERROR_LEN, "no memory for %u packets of %u bytes",
			 options->n_packets, options->mtu);
		free(rig);
		return NULL;
	}
	event_add(rig,
		  (struct event){ .at_ns = rig->now_ns + HOUSEKEEP_NS, .kind = EVENT_HOUSEKEEP });
	return rig;
}

unsigned int
rig_destroy(struct rig *rig)
{
	unsigned int lost;

	if (rig == NULL)
		return 0;
	for (size_t i = 0; i < rig->n_events; i++)
		rte_pktmbuf_free(rig->heap[i].mbuf);
	while (rig->switches != NULL) {
		struct rig_switch *sw = rig->switches;

		rig->switches = sw->next;
		switch_close(sw);
	}
	while (rig->hosts != NULL) {
		struct rig_host *host = rig->hosts;

		rig->hosts = host->next;
		host_close(host);
	}
	lost = rig->n_packets - rte_mempool_avail_count(rig->pool);
	rte_mempool_free(rig->pool);
	free(rig->heap);
	free(rig);
	return lost;
}

void
rig_switch_kill(struct rig_switch *sw, bool dead)
{
	sw->dead = dead;
	if (!dead)
		switch_wake(sw, sw->rig->now_ns);
}

struct rig *
rig_of(const struct rig_switch *sw)
{
	return sw->rig;
}

uint16_t
rig_mtu(const struct rig *rig)
{
	return rig->mtu;
}

uint64_t
rig_now_ns(const struct rig *rig)
{
	return rig->now_ns;
}

uint64_t
rig_clock(void *rig)
{
	return ((const struct rig *)rig)->now_ns;
}

static void
housekeep(struct rig *rig)
{
	for (struct rig_switch *sw = rig->switches; sw != NULL; sw = sw->next) {
		if (sw->dead)
			continue;
		pipeline_housekeep(sw->pipeline);
		switch_wake(sw, rig->now_ns);
	}
	event_add(rig,
		  (struct event){ .at_ns = rig->now_ns + HOUSEKEEP_NS, .kind = EVENT_HOUSEKEEP });
}

static void
arrive(struct rig *rig, struct end *end, struct rte_mbuf *mbuf)
{
	if (end->sw == NULL) {
		host_receive(end->host, mbuf);
		return;
	}
	if (end->sw->dead) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	mbuf->port = (uint16_t)(PORT_DRIVER_FIRST + end->port);
	mbuf->ol_flags = 0;
	fifo_put(end, mbuf);
	switch_wake(end->sw, rig->now_ns);
}

static void
take_place(struct rig *rig, const struct event *event)
{
	switch (event->kind) {
	case EVENT_FRAME:
		arrive(rig, event->end, event->mbuf);
		break;
	case EVENT_SWITCH:
		/* An earlier round may have replaced this one. */
		if (event->sw->due_ns != event->at_ns)
			break;
		event->sw->due_ns = UINT64_MAX;
		if (!event->sw->dead)
			switch_round(event->sw);
		break;
	case EVENT_HOST:
		if (event->host->due_ns != event->at_ns)
			break;
		event->host->due_ns = UINT64_MAX;
		if (event->host->poll != NULL)
			event->host->poll(event->host, event->host->user);
		break;
	case EVENT_HOUSEKEEP:
		housekeep(rig);
		break;
	}
}

bool
rig_run(struct rig *rig, uint64_t until_ns, bool (*condition)(void *user), void *user)
{
	while (rig->heap[0].at_ns <= until_ns) {
		const struct event event = event_take(rig);

		rig->now_ns = event.at_ns;
		take_place(rig, &event);
		if (condition != NULL && condition(user))
			return true;
	}
	rig->now_ns = RTE_MAX(rig->now_ns, until_ns);
	return condition != NULL && condition(user);
}
