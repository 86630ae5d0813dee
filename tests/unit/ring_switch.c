/* SPDX-License-Identifier: BSD-3-Clause */
/* See ring_switch.h. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_memory.h>

#include "pipeline/worker.h"
#include "tests/unit/ring_switch.h"

#define POOL_SIZE 2047
#define RING_ENTRIES 1024

/*
 * Makes memory that the EAL has mapped as shared private to this process, with its content. Uses
 * huge pages where the kernel has some: a test that makes a pool would wait for thousands of small
 * ones.
 */
static int
make_private(const struct rte_memseg_list *list, void *arg)
{
	const struct rte_memseg *first = rte_mem_virt2memseg(list->base_va, list);
	const int fd = first == NULL ? -1 : rte_memseg_get_fd(first);
	char *const base = list->base_va;
	off_t begin = 0, end;

	(void)arg;
	if (fd < 0)
		return 0;
	if (mmap(base, list->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		return -errno;
	(void)madvise(base, list->len, MADV_HUGEPAGE);
	while ((begin = lseek(fd, begin, SEEK_DATA)) >= 0) {
		end = lseek(fd, begin, SEEK_HOLE);
		if (end < 0 || pread(fd, base + begin, (size_t)(end - begin), begin) != end - begin)
			return -EIO;
		begin = end;
	}
	return errno == ENXIO ? 0 : -errno;
}

int
ring_switch_eal_start(void)
{
	static bool is_there;
	char line[] = "fanin-check --no-huge --no-shconf --no-pci --no-telemetry -m 384 "
		      "--lcores 0,1@0 --log-level=error";
	char *argv[32] = { NULL };
	int argc = 0;

	if (is_there)
		return 0;
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		return -rte_errno;
	is_there = true;
	return rte_memseg_list_walk(make_private, NULL);
}

void
ring_switch_eal(void)
{
	ck_assert_int_eq(ring_switch_eal_start(), 0);
}

uint32_t ring_switch_slots = 64;

static void
port_open(struct ring_switch *sw, uint16_t p, struct pipeline_port *port)
{
	struct rte_eth_conf conf = { 0 };
	char name[32];
	int ethdev;

	snprintf(name, sizeof(name), "rx%u", p);
	sw->rx[p] = rte_ring_create(name, RING_ENTRIES, SOCKET_ID_ANY, 0);
	snprintf(name, sizeof(name), "tx%u", p);
	sw->tx[p] = rte_ring_create(name, RING_ENTRIES, SOCKET_ID_ANY, 0);
	ck_assert_ptr_nonnull(sw->rx[p]);
	ck_assert_ptr_nonnull(sw->tx[p]);
	snprintf(name, sizeof(name), "port%u", p);
	ethdev = rte_eth_from_rings(name, &sw->rx[p], 1, &sw->tx[p], 1, 0);
	ck_assert_int_ge(ethdev, 0);
	ck_assert_int_eq(rte_eth_dev_configure((uint16_t)ethdev, 1, 1, &conf), 0);
	ck_assert_int_eq(rte_eth_rx_queue_setup((uint16_t)ethdev, 0, 64, SOCKET_ID_ANY, NULL,
						sw->pool),
			 0);
	ck_assert_int_eq(rte_eth_tx_queue_setup((uint16_t)ethdev, 0, 64, SOCKET_ID_ANY, NULL), 0);
	ck_assert_int_eq(rte_eth_dev_start((uint16_t)ethdev), 0);
	snprintf(port->name, sizeof(port->name), "h%u", p);
	port->ethdev = (uint16_t)ethdev;
	port->mtu = 1500;
	port->n_queues = 1;
}

void
ring_switch_open(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
		 const struct pipeline_faults *faults)
{
	ring_switch_open_clusters(sw, n_ports, n_workers, 1, faults);
}

static void
switch_open(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers, uint16_t cluster_size,
	    const struct pipeline_faults *faults, const struct ring_switch_routing *routing)
{
	static const unsigned int lcores[] = { 0, 1 };
	struct pipeline_port ports[RING_SWITCH_MAX_PORTS] = { 0 };
	char error[PIPELINE_ERROR_LEN] = "";
	struct pipeline_options options = {
		.ip_be = inet_addr(RING_SWITCH_IP),
		.prefix_len = 24,
		.routes = routing->routes,
		.n_routes = routing->n_routes,
		.mac = { 0x02, 0xfa, 0, 0, 0, 0xfe },
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.max_jobs = 2,
		.slots = ring_switch_slots,
		.key_rate = RING_SWITCH_KEY_RATE,
		.mac_entries = 64,
		.mac_age_seconds = 300,
		.ports = ports,
		.n_ports = n_ports,
		.lcores = lcores,
		.n_workers = n_workers,
		.cluster_size = cluster_size,
		.isa = fanin_isa_detect(),
	};

	ck_assert_uint_le(n_ports, RING_SWITCH_MAX_PORTS);
	memset(sw, 0, sizeof(*sw));
	sw->pool = rte_pktmbuf_pool_create("pool", POOL_SIZE, 0, PIPELINE_MBUF_PRIV_SIZE, 4096,
					   SOCKET_ID_ANY);
	ck_assert_ptr_nonnull(sw->pool);
	for (uint16_t p = 0; p < n_ports; p++) {
		port_open(sw, p, &ports[p]);
		ports[p].routed = (routing->routed_ports >> p & 1) != 0;
		if (routing->limits != NULL)
			ports[p].egress = routing->limits[p];
	}
	sw->n_ports = n_ports;
	sw->hosts_per_port = 1;
	options.pool = sw->pool;
	if (faults != NULL)
		options.faults = *faults;
	ck_assert_msg(pipeline_create(&options, &sw->pipeline, error) == 0, "%s", error);
	for (uint16_t w = 0; w < n_workers; w++)
		rte_rcu_qsbr_thread_online(sw->pipeline->qsbr, w);
}

void
ring_switch_open_clusters(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
			  uint16_t cluster_size, const struct pipeline_faults *faults)
{
	const struct ring_switch_routing none = { 0 };

	switch_open(sw, n_ports, n_workers, cluster_size, faults, &none);
}

void
ring_switch_open_limited(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
			 const struct pipeline_egress *limits)
{
	const struct ring_switch_routing no_routes = { .limits = limits };

	switch_open(sw, n_ports, n_workers, 1, NULL, &no_routes);
}

void
ring_switch_open_routed(struct ring_switch *sw, uint16_t n_ports,
			const struct ring_switch_routing *routing)
{
	switch_open(sw, n_ports, 1, 1, NULL, routing);
}

void
ring_switch_close(struct ring_switch *sw)
{
	uint8_t frame[4096];

	for (uint16_t p = 0; p < sw->n_ports; p++) {
		while (ring_switch_take(sw, p, frame) != 0)
			;
	}
	fanin_tagger_destroy(sw->tagger);
	for (uint16_t w = 0; w < sw->pipeline->n_workers; w++)
		rte_rcu_qsbr_thread_offline(sw->pipeline->qsbr, w);
	pipeline_free(sw->pipeline);
	ck_assert_uint_eq(rte_mempool_avail_count(sw->pool), POOL_SIZE);
}

static uint16_t
port_of(const struct ring_switch *sw, unsigned int h)
{
	return (uint16_t)(h / sw->hosts_per_port);
}

struct job *
ring_switch_job(struct ring_switch *sw, uint16_t n_members, uint32_t slots)
{
	return ring_switch_job_of(sw, "single", n_members, slots);
}

struct job *
ring_switch_job_of(struct ring_switch *sw, const char *handler, uint16_t n_members, uint32_t slots)
{
	struct job_spec spec = {
		.key = RING_SWITCH_KEY,
		.handler = handler,
		.slots = slots,
		.n_members = n_members,
		.authenticate = sw->tagger != NULL,
	};
	char error[PIPELINE_ERROR_LEN] = "";
	const char *code;
	struct job *job = NULL;

	for (uint16_t i = 0; i < n_members; i++) {
		spec.members[i].port = port_of(sw, i);
		spec.members[i].ip_be = host_ip_be(i);
	}
	ck_assert_msg(job_create(sw->pipeline, &spec, &job, &code, error) == 0, "%s", error);
	return job;
}

void
ring_switch_rounds(struct ring_switch *sw, unsigned int rounds)
{
	for (unsigned int i = 0; i < rounds; i++) {
		for (uint16_t w = 0; w < sw->pipeline->n_workers; w++)
			worker_round(sw->pipeline->workers[w]);
	}
}

void
ring_switch_authenticate(struct ring_switch *sw)
{
	ck_assert_int_eq(fanin_tagger_create(RING_SWITCH_KEY, &sw->tagger), 0);
}

static bool
goes_up(unsigned int type)
{
	return type <= UINT8_MAX && fanin_type_is_known((uint8_t)type) &&
	       fanin_type_direction((uint8_t)type) == FANIN_UP;
}

/* True if it is a packet of a job, with the whole header. */
static bool
is_fanin(const struct ring_switch *sw, const void *frame, size_t len)
{
	const struct fanin_headers *headers = frame;

	return len >= FANIN_PAYLOAD_OFFSET && headers->eth.type_be == htons(0x0800) &&
	       headers->ip.version_ihl == 0x45 && headers->ip.protocol == IPPROTO_UDP &&
	       (headers->udp.dst_be == sw->pipeline->udp_port_be ||
		headers->udp.src_be == sw->pipeline->udp_port_be) &&
	       (headers->fanin.version == FANIN_WIRE_VERSION ||
		headers->fanin.version == FANIN_WIRE_VERSION_BEFORE);
}

size_t
ring_switch_seal(const struct ring_switch *sw, void *frame, size_t len)
{
	struct fanin_headers *headers = frame;
	const bool up = goes_up(headers->fanin.type);
	const uint32_t payload_len = fanin_wire_payload_len(headers);

	ck_assert_uint_le(FANIN_PAYLOAD_OFFSET + payload_len + FANIN_TAG_LEN, 4096);
	ck_assert(fanin_tagger_seal_frame(sw->tagger, up ? FANIN_TAG_UP : FANIN_TAG_DOWN,
					  up ? sw->pipeline->instance : RING_SWITCH_PARENT_INSTANCE,
					  headers));
	return len + FANIN_TAG_LEN;
}

/* Removes the tag of a frame that the switch sent. Returns its length without the tag. */
static size_t
open_frame(const struct ring_switch *sw, void *frame, size_t len)
{
	struct fanin_headers *headers = frame;
	const bool up = goes_up(headers->fanin.type);

	if ((headers->fanin.flags & FANIN_FLAG_TAGGED) == 0) {
		ck_assert((headers->fanin.type == FANIN_TYPE_REFUSED &&
			   fanin_reason_is_of_sender(headers->fanin.count)) ||
			  (headers->fanin.type == FANIN_TYPE_PROBE && headers->fanin.key == 0));
		return len;
	}
	ck_assert_uint_eq(fanin_wire_validate_l4(frame, len), FANIN_REASON_NONE);
	ck_assert(fanin_tagger_open_frame(sw->tagger, up ? FANIN_TAG_UP : FANIN_TAG_DOWN,
					  up ? RING_SWITCH_PARENT_INSTANCE : sw->pipeline->instance,
					  headers));
	return len - FANIN_TAG_LEN;
}

/* True if handlers may pass packets on unchanged, with any checksum: in tests with routed ports. */
static bool
passes_on(const struct ring_switch *sw)
{
	for (uint16_t p = 0; p < sw->n_ports; p++) {
		if (sw->pipeline->ports[p].routed)
			return true;
	}
	return false;
}

/*
 * Puts the right UDP checksum into a copy of a valid packet to the switch that has none. Returns
 * false for any other frame.
 */
static bool
sum_udp(const struct ring_switch *sw, const void *frame, size_t len, void *copy)
{
	struct fanin_headers *headers = copy;
	const void *ip = &headers->ip;

	if (passes_on(sw) || !is_fanin(sw, frame, len) || len > 4096 ||
	    fanin_wire_validate_l4(frame, len) != FANIN_REASON_NONE)
		return false;
	memcpy(copy, frame, len);
	if (headers->udp.checksum_be != 0 ||
	    (headers->ip.dst_be != sw->pipeline->ip_be &&
	     (headers->ip.dst_be & htonl(~(uint32_t)FANIN_WIRE_MAX_JOB)) !=
		     htonl(FANIN_WIRE_GROUPS)))
		return false;
	headers->udp.checksum_be = rte_ipv4_udptcp_cksum(ip, &headers->udp);
	return true;
}

/*
 * Checks that a frame that the switch has sent has no UDP checksum, or the right one, whatever
 * frame it was made of.
 */
static void
expect_sum(const struct ring_switch *sw, const void *frame, size_t len)
{
	const struct fanin_headers *headers = frame;
	const void *ip = &headers->ip;

	if (passes_on(sw) || !is_fanin(sw, frame, len) ||
	    memcmp(headers->eth.src, sw->pipeline->mac, 6) != 0 ||
	    fanin_wire_validate_l4(frame, len) != FANIN_REASON_NONE ||
	    headers->udp.checksum_be == 0)
		return;
	/* The sum that includes the checksum has all bits set. */
	ck_assert_msg((rte_raw_cksum(&headers->udp, ntohs(headers->udp.len_be)) +
		       (uint32_t)rte_ipv4_phdr_cksum(ip, 0)) %
				      UINT16_MAX ==
			      0,
		      "type %u has a wrong checksum", headers->fanin.type);
}

void
ring_switch_enqueue(struct ring_switch *sw, uint16_t port, const void *frame, size_t len)
{
	const struct fanin_headers *headers = frame;
	uint8_t sealed[4096] __attribute__((aligned(8)));
	uint8_t summed[4096] __attribute__((aligned(8)));

	/* An invalid packet is invalid with a tag, too. */
	if (sw->tagger != NULL && is_fanin(sw, frame, len) &&
	    fanin_wire_validate(headers, len) == FANIN_REASON_NONE) {
		memcpy(sealed, frame, len);
		len = ring_switch_seal(sw, sealed, len);
		frame = sealed;
	}
	if (sum_udp(sw, frame, len, summed))
		frame = summed;
	ring_switch_enqueue_raw(sw, port, frame, len);
}

void
ring_switch_enqueue_raw(struct ring_switch *sw, uint16_t port, const void *frame, size_t len)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(sw->pool);
	char *data;

	ck_assert_ptr_nonnull(mbuf);
	data = rte_pktmbuf_append(mbuf, (uint16_t)len);
	ck_assert_ptr_nonnull(data);
	memcpy(data, frame, len);
	/* net_ring passes mbufs unchanged: a real driver would set the port. */
	mbuf->port = sw->pipeline->ports[port].ethdev;
	ck_assert_int_eq(rte_ring_enqueue(sw->rx[port], mbuf), 0);
}

void
ring_switch_put(struct ring_switch *sw, uint16_t port, const void *frame, size_t len)
{
	ring_switch_enqueue(sw, port, frame, len);
	ring_switch_rounds(sw, 2);
}

size_t
ring_switch_take(struct ring_switch *sw, uint16_t port, void *frame)
{
	struct rte_mbuf *mbuf;
	size_t len;

	if (rte_ring_dequeue(sw->tx[port], (void **)&mbuf) != 0)
		return 0;
	ck_assert_uint_eq(mbuf->nb_segs, 1);
	len = mbuf->data_len;
	memcpy(frame, rte_pktmbuf_mtod(mbuf, void *), len);
	rte_pktmbuf_free(mbuf);
	expect_sum(sw, frame, len);
	return sw->tagger != NULL && is_fanin(sw, frame, len) ? open_frame(sw, frame, len) : len;
}

uint64_t
ring_switch_drops(const struct ring_switch *sw, enum fanin_reason reason)
{
	struct counters sum;

	pipeline_counters(sw->pipeline, &sum);
	return sum.drops[reason];
}

void
host_mac(unsigned int h, uint8_t mac[6])
{
	const uint8_t address[6] = { 0x02, 0, 0, 0, 1, (uint8_t)h };

	memcpy(mac, address, sizeof(address));
}

uint32_t
host_ip_be(unsigned int h)
{
	return htonl(0x0a000001u + h);
}

uint64_t
ring_switch_key(enum fanin_type type)
{
	struct fanin_keys keys;

	ck_assert_int_eq(fanin_keys_derive(RING_SWITCH_KEY, &keys), 0);
	return goes_up(type) ? keys.up : keys.down;
}

/* Returns how many of a job's ranks are behind child h: one, unless it is a switch. */
static uint16_t
ranks_behind(const struct ring_switch *sw, unsigned int h, uint32_t id)
{
	const struct job *job = job_lookup(sw->pipeline->jobs, id);
	const unsigned int child = job == NULL ? JOB_NO_CHILD : job_child_of(job, (uint16_t)h);

	return child == JOB_NO_CHILD ? 1
				     : (uint16_t)fanin_ranks_count(&job->params.child_ranks[child]);
}

size_t
host_packet(const struct ring_switch *sw, unsigned int h, enum fanin_type type, uint32_t job,
	    uint32_t epoch, const void *payload, uint32_t payload_len, struct fanin_headers *frame)
{
	struct fanin_flow flow = {
		.dst_ip_be = sw->pipeline->ip_be,
		.src_ip_be = host_ip_be(h),
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.src_port = 50000,
	};

	memcpy(flow.dst_mac, sw->pipeline->mac, 6);
	host_mac(h, flow.src_mac);
	fanin_wire_encode_l4(frame, &flow, payload_len);
	fanin_wire_encode_header(&frame->fanin, type, job, epoch, ring_switch_key(type));
	frame->fanin.rank = sw->ranks != NULL ? sw->ranks[h] : (uint16_t)h;
	if (type == FANIN_TYPE_JOIN)
		frame->fanin.contributions = ranks_behind(sw, h, job);
	if (payload_len != 0)
		memcpy(frame + 1, payload, payload_len);
	return sizeof(*frame) + payload_len;
}

const struct fanin_headers *
host_join_with(struct ring_switch *sw, unsigned int h, uint32_t job, uint64_t nonce,
	       uint64_t cookie, uint16_t size, struct fanin_headers *answer)
{
	const struct fanin_join_body body = {
		.nonce = nonce,
		.size = size,
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.mtu = 1500,
		.cookie = cookie,
	};
	uint8_t frame[4096];
	size_t len = host_packet(sw, h, FANIN_TYPE_JOIN, job, 0, &body, sizeof(body),
				 (struct fanin_headers *)frame);

	ring_switch_put(sw, port_of(sw, h), frame, len);
	return ring_switch_take(sw, port_of(sw, h), answer) == 0 ? NULL : answer;
}

const struct fanin_headers *
host_sends_join(struct ring_switch *sw, unsigned int h, uint32_t job, uint64_t nonce, uint16_t size,
		struct fanin_headers *answer)
{
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(answer + 1);
	const struct fanin_headers *got = host_join_with(sw, h, job, nonce, 0, size, answer);

	if (got == NULL || got->fanin.type != FANIN_TYPE_JOIN_ACK ||
	    ack->state != FANIN_JOIN_CHALLENGE)
		return got;
	return host_join_with(sw, h, job, nonce, ack->cookie, size, answer);
}

uint32_t
host_join_all(struct ring_switch *sw, const struct job *job, uint16_t n, uint64_t nonce)
{
	uint8_t frame[4096] __attribute__((aligned(8))) = { 0 };
	const struct fanin_headers *answer = (const struct fanin_headers *)frame;
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(answer + 1);

	for (uint16_t h = 0; h < n; h++)
		ck_assert_ptr_nonnull(host_sends_join(sw, h, job->params.id, nonce + h, n,
						      (struct fanin_headers *)frame));
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_JOIN_ACK);
	ck_assert_uint_eq(ack->state, FANIN_JOIN_ACTIVE);
	return answer->fanin.epoch;
}

size_t
host_contribution(const struct ring_switch *sw, const struct job *job, unsigned int h,
		  uint32_t epoch, uint32_t block, bool again, uint8_t *frame)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	int32_t values[RING_SWITCH_COUNT];
	size_t len;

	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		values[i] = (int32_t)(h + 1) * i + (int32_t)block;
	len = host_packet(sw, h, FANIN_TYPE_CONTRIBUTION, job->params.id, epoch, values,
			  sizeof(values), headers);
	headers->fanin.contributions = 1;
	headers->fanin.block = block;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = FANIN_WIRE_SUM;
	headers->fanin.count = RING_SWITCH_COUNT;
	headers->fanin.flags = again ? FANIN_FLAG_RETRANSMIT : 0;
	return len;
}

void
host_contribute(struct ring_switch *sw, const struct job *job, unsigned int h, uint32_t epoch,
		uint32_t block, bool again)
{
	uint8_t frame[4096];

	ring_switch_put(sw, port_of(sw, h), frame,
			host_contribution(sw, job, h, epoch, block, again, frame));
}

void
host_query(struct ring_switch *sw, const struct job *job, unsigned int h, uint32_t epoch,
	   uint32_t block, uint32_t number, bool overdue)
{
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const size_t len = host_packet(sw, h, FANIN_TYPE_QUERY, job->params.id, epoch, NULL, 0,
				       headers);

	headers->fanin.block = block;
	headers->fanin.number = number;
	headers->fanin.count = 1;
	headers->fanin.flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	ring_switch_put(sw, port_of(sw, h), frame, len);
}

const struct answer_words *
host_take_answer(struct ring_switch *sw, unsigned int h, uint32_t number,
		 struct fanin_headers *answer)
{
	size_t len;

	/* A child that keeps others waiting is probed as well. */
	do
		len = ring_switch_take(sw, port_of(sw, h), answer);
	while (len != 0 &&
	       (len < FANIN_PAYLOAD_OFFSET || answer->udp.dst_be != sw->pipeline->udp_port_be ||
		answer->fanin.type == FANIN_TYPE_PROBE));
	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET + sizeof(struct answer_words));
	ck_assert_uint_eq(fanin_wire_validate(answer, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(answer->fanin.type, FANIN_TYPE_ANSWER);
	ck_assert_uint_eq(answer->fanin.number, number);
	ck_assert_uint_eq(answer->fanin.rank, h);
	return (const struct answer_words *)(answer + 1);
}

void
host_result_check(const struct job *job, unsigned int n, uint32_t block, const void *frame,
		  size_t len)
{
	const struct fanin_headers *headers = frame;
	const int32_t *values = (const int32_t *)(headers + 1);

	ck_assert_uint_eq(len, FANIN_PAYLOAD_OFFSET + RING_SWITCH_COUNT * 4);
	ck_assert_uint_eq(fanin_wire_validate(frame, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(headers->fanin.type, FANIN_TYPE_RESULT);
	ck_assert_uint_eq(headers->fanin.block, block);
	ck_assert_uint_eq(headers->fanin.contributions, n);
	ck_assert_uint_eq(headers->ip.dst_be, job->group_be);
	for (int i = 0; i < RING_SWITCH_COUNT; i++)
		ck_assert_int_eq(values[i], (int32_t)(n * (n + 1) / 2) * i + (int32_t)(n * block));
}
