/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes the children that others wait for. See probe.h.
 *
 * A probe of a host has three frames. The host's machine answers an echo request (RFC 792) and an
 * ARP request (RFC 826); the ARP request also if a firewall drops echo requests. The third frame is
 * a PROBE to the port that the host's JOIN came from: that port is closed if the process has ended.
 */
#include <string.h>

#include <rte_ether.h>
#include <rte_icmp.h>
#include <rte_ip.h>

#include "pipeline/net/net.h"
#include "pipeline/probe.h"
#include "pipeline/tags.h"
#include "pipeline/base/dpdk_names.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

#define ECHO_DATA 18 /* pads the frame to Ethernet's minimum length */
#define TTL 64

/* A copy of a child's state, made under the lock. */
struct target {
	uint32_t ip_be;
	uint32_t block;
	uint16_t port; /* index */
	uint16_t rank;
	uint16_t udp_port_be;
	uint8_t mac[6];
	bool is_switch;
};

struct echo_frame {
	struct fanin_eth eth;
	struct fanin_ip ip;
	struct rte_icmp_hdr icmp;
	uint8_t data[ECHO_DATA];
} __attribute__((packed));

/* ------------------------------------------------------------- what is sent */

/* Returns room for a frame, or NULL if there is no free mbuf: then the probe counts as lost. */
static void *
make_frame(struct worker *worker, size_t len, struct rte_mbuf **mbuf)
{
	void *frame;

	*mbuf = rte_pktmbuf_alloc(worker->pipeline->pool);
	frame = *mbuf == NULL ? NULL : rte_pktmbuf_append(*mbuf, (uint16_t)len);
	if (frame == NULL) {
		rte_pktmbuf_free(*mbuf);
		worker->counters.drops[FANIN_REASON_TX_FULL]++;
	}
	return frame;
}

static void
send_echo(struct worker *worker, const struct target *target)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct rte_mbuf *mbuf;
	struct echo_frame *frame = make_frame(worker, sizeof(*frame), &mbuf);

	if (frame == NULL)
		return;
	memset(frame, 0, sizeof(*frame));
	memcpy(frame->eth.dst, target->mac, sizeof(frame->eth.dst));
	memcpy(frame->eth.src, pipeline->mac, sizeof(frame->eth.src));
	frame->eth.type_be = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	frame->ip = (struct fanin_ip){
		.version_ihl = 0x45,
		.total_len_be = rte_cpu_to_be_16(sizeof(*frame) - FANIN_ETH_LEN),
		.ttl = TTL,
		.protocol = IPPROTO_ICMP,
		.src_be = pipeline->ip_be,
		.dst_be = target->ip_be,
	};
	frame->ip.checksum_be = fanin_ip_checksum(&frame->ip);
	frame->icmp = (struct rte_icmp_hdr){
		.icmp_type = RTE_ICMP_TYPE_ECHO_REQUEST,
		.icmp_ident = rte_cpu_to_be_16(PROBE_ECHO_ID),
	};
	frame->icmp.icmp_cksum =
		(uint16_t)~rte_raw_cksum(&frame->icmp, sizeof(frame->icmp) + sizeof(frame->data));
	worker_send(worker, target->port, mbuf);
}

static void
send_probe(struct worker *worker, const struct job *job, const struct target *target)
{
	const struct pipeline *pipeline = worker->pipeline;
	const struct fanin_job_params *params = &job->params;
	struct fanin_flow flow = {
		.dst_ip_be = target->ip_be,
		.src_ip_be = pipeline->ip_be,
		.dst_port = rte_be_to_cpu_16(target->udp_port_be),
		.src_port = rte_be_to_cpu_16(pipeline->udp_port_be),
	};
	struct rte_mbuf *mbuf;
	struct fanin_headers *headers = make_frame(worker, sizeof(*headers), &mbuf);

	if (headers == NULL)
		return;
	memcpy(flow.dst_mac, target->mac, sizeof(flow.dst_mac));
	memcpy(flow.src_mac, pipeline->mac, sizeof(flow.src_mac));
	fanin_wire_encode_l4(headers, &flow, 0);
	/* A host's port may belong to another process by now, which must not learn the key. */
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_PROBE, params->id,
				 __atomic_load_n(&job->epoch, __ATOMIC_RELAXED),
				 target->is_switch ? params->keys.down : 0);
	headers->fanin.rank = target->rank;
	headers->fanin.block = target->block;
	if (target->is_switch)
		tags_seal(worker, job, FANIN_TAG_DOWN, mbuf);
	worker_send_fanin(worker, target->port, mbuf);
}

static void
send_all(struct worker *worker, const struct job *job, const struct target *target)
{
	send_probe(worker, job, target);
	if (target->is_switch)
		return;
	send_echo(worker, target);
	worker_ask_station(worker, target->ip_be, target->mac, target->port);
}

/* --------------------------------------------------------------- whom, when */

/*
 * Called under the lock when a probe interval has passed for a child that is watched. Returns true
 * if probes are to be sent to it.
 */
static bool
tick(const struct pipeline *pipeline, struct job *job, unsigned int child)
{
	const struct fanin_ranks *ranks = &job->params.child_ranks[child];
	struct job_member *member = &job->members[child];

	if (!member->joined) {
		/* The child has left, or another process has replaced it. */
		probe_set(job, ranks, ranks, NULL);
		return false;
	}
	if (pipeline->ports[member->port].shared) {
		probe_set(job, ranks, port_is_down(pipeline, member->port) ? ranks : NULL, NULL);
		return false;
	}
	/* A process that has ended does not come back. */
	if (!probe_is_switch(pipeline, member) && fanin_ranks_meet(&job->ended, ranks))
		return false;
	if (member->probe.unanswered >= PROBE_PATIENCE)
		probe_set(job, ranks, &job->ended, ranks);
	else
		member->probe.unanswered++;
	return true;
}

static void
set_watched(struct job_table *table, uint32_t id, bool watched)
{
	uint64_t *word = &table->watched[id / 64];
	const uint64_t bit = UINT64_C(1) << id % 64;

	if (watched)
		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
}

/* Called when a probe interval has passed for a job. */
static void
tick_job(struct worker *worker, struct job *job)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct target targets[FANIN_WIRE_MAX_CHILDREN];
	unsigned int n = 0;
	bool watched = false;

	rte_spinlock_lock(&job->lock);
	for (uint16_t i = 0; i < job->params.n_children && job->epoch != 0; i++) {
		const struct job_member *member = &job->members[i];
		struct target *target = &targets[n];

		if (member->probe.until_ns <= worker->now_ns)
			continue;
		watched = true;
		if (!tick(pipeline, job, i))
			continue;
		*target = (struct target){
			.ip_be = member->ip_be,
			.block = member->probe.block,
			.port = member->port,
			.rank = member->rank,
			.udp_port_be = member->udp_port_be,
			.is_switch = probe_is_switch(pipeline, member),
		};
		memcpy(target->mac, member->mac, sizeof(target->mac));
		n++;
	}
	if (!watched)
		set_watched(pipeline->jobs, job->params.id, false);
	rte_spinlock_unlock(&job->lock);
	for (unsigned int i = 0; i < n; i++)
		send_all(worker, job, &targets[i]);
	job->worker_stats[worker->index].probes += n;
}

static bool
any_watched(const struct job_table *table)
{
	for (size_t i = 0; i < RTE_DIM(table->watched); i++) {
		if (__atomic_load_n(&table->watched[i], __ATOMIC_SEQ_CST) != 0)
			return true;
	}
	return false;
}

void
probe_due(struct worker *worker)
{
	struct pipeline *pipeline = worker->pipeline;
	struct job_table *table = pipeline->jobs;
	uint64_t due_ns = __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED);
	uint64_t next_ns = worker->now_ns + PROBE_INTERVAL_NS;

	if (worker->now_ns < due_ns ||
	    !__atomic_compare_exchange_n(&pipeline->probes_due_ns, &due_ns, next_ns, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return;
	for (uint32_t i = 0; i < RTE_DIM(table->watched); i++) {
		uint64_t left = __atomic_load_n(&table->watched[i], __ATOMIC_RELAXED);

		for (; left != 0; left &= left - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(left);
			struct job *job = job_lookup(table, id);

			if (job != NULL)
				tick_job(worker, job);
			else
				set_watched(table, id, false);
		}
	}
	if (any_watched(table))
		return;
	/* A worker that marks a job after this check finds UINT64_MAX and sets the time itself. */
	__atomic_store_n(&pipeline->probes_due_ns, UINT64_MAX, __ATOMIC_SEQ_CST);
	if (any_watched(table))
		__atomic_store_n(&pipeline->probes_due_ns, next_ns, __ATOMIC_SEQ_CST);
}

void
probe_watch(struct worker *worker, struct job *job, uint64_t children, uint32_t block)
{
	struct pipeline *pipeline = worker->pipeline;
	uint64_t none = UINT64_MAX;

	rte_spinlock_lock(&job->lock);
	for (; children != 0; children &= children - 1) {
		struct job_probe *probe = &job->members[__builtin_ctzll(children)].probe;

		/* Unanswered probes of an earlier watch do not count. */
		if (probe->until_ns <= worker->now_ns)
			probe->unanswered = 0;
		probe->until_ns = worker->now_ns + PROBE_WATCH_NS;
		probe->block = block;
	}
	set_watched(pipeline->jobs, job->params.id, true);
	rte_spinlock_unlock(&job->lock);
	__atomic_compare_exchange_n(&pipeline->probes_due_ns, &none, worker->now_ns, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
