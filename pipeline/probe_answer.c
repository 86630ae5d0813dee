/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes the answers to probes, and answers the parent's probes. An answer counts only at the
 * child's port and from its address, so a host can answer only for itself. See probe.h.
 */
#include <string.h>

#include <rte_icmp.h>
#include <rte_ip.h>

#include "pipeline/admission.h"
#include "pipeline/mismatch.h"
#include "pipeline/probe.h"
#include "pipeline/tags.h"
#include "pipeline/base/dpdk_names.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

/* RFC 792: the type, and the code for a closed UDP port. */
#define ICMP_UNREACHABLE 3
#define ICMP_PORT_UNREACHABLE 3

/* The part of the offending packet that an ICMP error quotes. */
struct quote {
	struct fanin_ip ip;
	struct fanin_udp udp;
} __attribute__((packed));

/* Called under the lock when a frame came from a host that is watched. */
static void
note_child(struct job *job, unsigned int child, bool ended)
{
	const struct fanin_ranks *ranks = &job->params.child_ranks[child];

	job->members[child].probe.unanswered = 0;
	probe_set(job, ranks, ended ? ranks : &job->ended, NULL);
}

/* closed_be: the UDP port that is closed; 0: the host is alive. */
static void
note_in_job(struct worker *worker, struct job *job, uint16_t port, uint32_t ip_be,
	    uint16_t closed_be)
{
	for (uint16_t i = 0; i < job->params.n_children; i++) {
		const struct job_member *member = &job->members[i];

		if (member->ip_be != ip_be || member->port != port)
			continue;
		rte_spinlock_lock(&job->lock);
		if (member->joined && member->probe.until_ns != 0 &&
		    !probe_is_switch(worker->pipeline, member) &&
		    (closed_be == 0 || member->udp_port_be == closed_be)) {
			note_child(job, i, closed_be != 0);
			job->worker_stats[worker->index].probe_answers++;
		}
		rte_spinlock_unlock(&job->lock);
	}
}

static void
note(struct worker *worker, uint16_t port, uint32_t ip_be, uint16_t closed_be)
{
	const struct job_table *table = worker->pipeline->jobs;

	if (!probes_are_out(worker->pipeline))
		return;
	for (uint32_t i = 0; i < RTE_DIM(table->watched); i++) {
		uint64_t left = __atomic_load_n(&table->watched[i], __ATOMIC_RELAXED);

		for (; left != 0; left &= left - 1) {
			struct job *job = job_lookup(table,
						     i * 64 + (uint32_t)__builtin_ctzll(left));

			if (job != NULL)
				note_in_job(worker, job, port, ip_be, closed_be);
		}
	}
}

void
probe_heard(struct worker *worker, uint16_t port, uint32_t ip_be)
{
	note(worker, port, ip_be, 0);
}

/*
 * Takes an ICMP error, whose sender could not take a probe: either its port is closed, or the error
 * has another reason, which shows that the host is alive.
 */
static bool
take_unreachable(struct worker *worker, const struct fanin_headers *headers,
		 const struct rte_icmp_hdr *icmp, uint16_t port)
{
	const struct pipeline *pipeline = worker->pipeline;
	struct quote quote;

	memcpy(&quote, icmp + 1, sizeof(quote));
	if (quote.ip.version_ihl != 0x45 || quote.ip.protocol != IPPROTO_UDP ||
	    quote.ip.src_be != pipeline->ip_be || quote.ip.dst_be != headers->ip.src_be ||
	    quote.udp.src_be != pipeline->udp_port_be || quote.udp.dst_be == pipeline->udp_port_be)
		return false; /* a probe of a host does not go to Fanin's port */
	note(worker, port, headers->ip.src_be,
	     icmp->icmp_code == ICMP_PORT_UNREACHABLE ? quote.udp.dst_be : 0);
	return true;
}

bool
probe_take_icmp(struct worker *worker, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct rte_icmp_hdr *icmp = (const struct rte_icmp_hdr *)&headers->udp;
	const uint16_t port = ingress_port(worker->pipeline, mbuf);
	uint16_t len = (uint16_t)(rte_be_to_cpu_16(headers->ip.total_len_be) - FANIN_IP_LEN);

	if (rte_raw_cksum(icmp, len) != UINT16_MAX)
		return false;
	if (icmp->icmp_type == ICMP_UNREACHABLE && len >= sizeof(*icmp) + sizeof(struct quote))
		return take_unreachable(worker, headers, icmp, port);
	if (icmp->icmp_type != RTE_ICMP_TYPE_ECHO_REPLY ||
	    icmp->icmp_ident != rte_cpu_to_be_16(PROBE_ECHO_ID))
		return false;
	note(worker, port, headers->ip.src_be, 0);
	return true;
}

void
probe_take_ack(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint8_t *sets = (const uint8_t *)(headers + 1);
	struct fanin_ranks ended, silent;
	struct fanin_mismatch mismatch;
	struct job *job = admission_job(worker->pipeline, mbuf);
	enum fanin_reason reason = admission_member(worker->pipeline, mbuf, job);
	unsigned int child;
	uint32_t ack_len;

	if (reason == FANIN_REASON_NONE &&
	    (headers->fanin.epoch == 0 ||
	     headers->fanin.epoch != __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE)))
		reason = FANIN_REASON_EPOCH;
	if (reason == FANIN_REASON_NONE &&
	    fanin_wire_payload_len(headers) < fanin_probe_ack_len(job->params.n_ranks))
		reason = FANIN_REASON_BODY;
	if (reason != FANIN_REASON_NONE) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	ack_len = fanin_probe_ack_len(job->params.n_ranks);
	fanin_ranks_read(&ended, sets, job->params.n_ranks);
	fanin_ranks_read(&silent, sets + fanin_ranks_bytes(job->params.n_ranks),
			 job->params.n_ranks);
	child = job_child_of(job, headers->fanin.rank);
	rte_spinlock_lock(&job->lock);
	if (job->members[child].joined) {
		job->members[child].probe.unanswered = 0;
		probe_set(job, &job->params.child_ranks[child], &ended, &silent);
		job->worker_stats[worker->index].probe_answers++;
	}
	rte_spinlock_unlock(&job->lock);
	/* Ranks behind the child disagree, and have left or will: tell all other ranks why. */
	if (fanin_wire_payload_len(headers) >= ack_len + sizeof(mismatch)) {
		memcpy(&mismatch, sets + ack_len, sizeof(mismatch));
		mismatch_take(worker, job, headers->fanin.epoch, &mismatch, true);
	}
	worker_free(worker, mbuf);
}

/*
 * Returns the children whose contributions to a block are missing; all of them if the block has not
 * begun. Returns none if the handler has no peek.
 */
static uint64_t
missing_of(const struct job *job, uint32_t epoch, uint32_t block)
{
	const struct fanin_slots *slots = &job->params.slots;
	const void *slot = slots->by_index[fanin_slot_index(slots, block)];
	struct fanin_peek peek;

	if (job->handler->peek == NULL)
		return 0;
	if (!job->handler->peek(&job->params, epoch, slot, &peek) ||
	    fanin_block_before(peek.block, block))
		return job->params.children;
	return peek.block == block ? peek.missing : 0;
}

static bool
nobody_has_joined(struct job *job)
{
	uint64_t joined;

	rte_spinlock_lock(&job->lock);
	joined = job->joined;
	rte_spinlock_unlock(&job->lock);
	return joined == 0;
}

void
probe_answer(struct worker *worker, struct job *job, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_hdr asked = headers->fanin;
	const uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	const uint16_t n_ranks = job->params.n_ranks;
	uint32_t len = fanin_probe_ack_len(n_ranks);
	struct fanin_mismatch mismatch;
	struct fanin_ranks ended = { 0 }, silent = { 0 };
	const bool has_mismatch = mismatch_read_for_parent(job, asked.epoch, &mismatch);
	uint64_t missing;

	if (epoch != 0 && asked.epoch == __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED)) {
		missing = missing_of(job, epoch, asked.block);
		if (missing != 0)
			probe_watch(worker, job, missing, asked.block);
		job_ranks_load(&ended, &job->ended);
		job_ranks_load(&silent, &job->silent);
	} else if (nobody_has_joined(job)) {
		/*
		 * The parent's run is over here: no rank behind this switch will contribute to it.
		 */
		ended = fanin_ranks_all(n_ranks);
	}
	if (has_mismatch)
		memcpy((uint8_t *)(headers + 1) + len, &mismatch, sizeof(mismatch));
	len += has_mismatch ? (uint32_t)sizeof(mismatch) : 0;
	*headers = job->params.parent_headers;
	fanin_wire_set_payload_len(headers, len);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_PROBE_ACK, job->params.id, asked.epoch,
				 job->params.keys.up);
	headers->fanin.rank = job->params.parent_rank;
	headers->fanin.block = asked.block;
	fanin_ranks_write(headers + 1, &ended, n_ranks);
	fanin_ranks_write((uint8_t *)(headers + 1) + fanin_ranks_bytes(n_ranks), &silent, n_ranks);
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
	tags_seal(worker, job, FANIN_TAG_UP, mbuf);
	worker_send_fanin(worker, job->parent_port, mbuf);
}
