/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a valid Fanin packet to its handler and back: job lookup, membership, the worker that owns
 * the slot, the handler call, and what the handler asked to be sent. A slot belongs to one worker
 * (S = 1 in Flare's section 5), so nothing here locks.
 */
#include <rte_prefetch.h>

#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

/* A packet with all that its handler call needs. */
struct work {
	struct rte_mbuf *mbuf;
	struct job *job;
	uint32_t slot;
};

/* Makes the accumulator a frame to the job's multicast group. */
static void
result_encode(const struct job *job, const struct fanin_emission *emission)
{
	struct rte_mbuf *mbuf = emission->mbuf;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint16_t udp_len = (uint16_t)(FANIN_UDP_LEN + FANIN_HDR_LEN + emission->payload_len);

	headers->eth = job->result_headers.eth;
	headers->ip = job->result_headers.ip;
	headers->udp = job->result_headers.udp;
	headers->udp.len_be = rte_cpu_to_be_16(udp_len);
	headers->ip.total_len_be = rte_cpu_to_be_16((uint16_t)(FANIN_IP_LEN + udp_len));
	headers->ip.checksum_be = 0;
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + emission->payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;
}

static void
send_to_children(struct worker *worker, const struct job *job, const struct fanin_emission *emission)
{
	uint64_t children = emission->children;

	while (children != 0) {
		unsigned int child = (unsigned int)__builtin_ctzll(children);

		children &= children - 1;
		worker_send_fanin(worker, job->child_ports[child], emission->mbuf);
	}
}

/* Carries out what the handler calls since the last time asked for; all of them were for one job. */
static void
drain(struct worker *worker, const struct job *job)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	for (uint16_t i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];

		switch (emission->kind) {
		case FANIN_EMIT_RESULT:
			result_encode(job, emission);
			send_to_children(worker, job, emission);
			break;
		case FANIN_EMIT_REPEAT:
			send_to_children(worker, job, emission);
			break;
		case FANIN_EMIT_REPLY:
			worker_reply(worker, emission->mbuf, emission->payload_len,
				     worker->pipeline->udp_port_be);
			break;
		}
	}
	ctx->n_emissions = 0;
	for (uint16_t i = 0; i < ctx->n_frees; i++)
		rte_pktmbuf_free(ctx->frees[i]);
	ctx->n_frees = 0;
}

static void
run_handler(struct worker *worker, const struct work *work)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	struct job *job = work->job;
	struct fanin_headers *headers = rte_pktmbuf_mtod(work->mbuf, struct fanin_headers *);
	void *slot = job->slots + work->slot * job->slot_size;
	enum fanin_reason reason = FANIN_REASON_NONE;
	struct fanin_packet packet = {
		.mbuf = work->mbuf,
		.headers = headers,
		.payload = headers + 1,
		.payload_len = fanin_wire_payload_len(headers),
		.child = headers->fanin.rank,
	};

	if (unlikely(job->slot_epochs[work->slot] != headers->fanin.epoch)) {
		job->handler->slot_reset(ctx, slot, work->slot);
		job->slot_epochs[work->slot] = headers->fanin.epoch;
	}
	switch (job->handler->contribution(ctx, slot, &packet, &reason)) {
	case FANIN_VERDICT_HELD:
		break;
	case FANIN_VERDICT_FREE:
		rte_pktmbuf_free(work->mbuf);
		break;
	case FANIN_VERDICT_DROP:
		worker_refuse(worker, work->mbuf, reason);
		break;
	}
}

/* Fills *work if the packet may go to its handler. */
static bool
admit(struct worker *worker, struct rte_mbuf *mbuf, struct work *work)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	enum fanin_reason reason = worker_member_check(worker->pipeline, mbuf, &work->job);
	uint32_t epoch;

	if (unlikely(reason == FANIN_REASON_JOB)) {
		/* A job that was destroyed while its hosts run: they learn of it at once. */
		worker_refuse(worker, mbuf, reason);
		return false;
	}
	if (unlikely(reason != FANIN_REASON_NONE)) {
		worker_drop(worker, mbuf, reason);
		return false;
	}
	epoch = __atomic_load_n(&work->job->epoch, __ATOMIC_ACQUIRE);
	if (unlikely(epoch == 0 || epoch != hdr->epoch)) {
		worker_refuse(worker, mbuf,
			      epoch == 0 ? FANIN_REASON_NOT_ACTIVE : FANIN_REASON_EPOCH);
		return false;
	}
	work->mbuf = mbuf;
	work->slot = hdr->block & work->job->slot_mask;
	rte_prefetch0(work->job->slots + work->slot * work->job->slot_size);
	return true;
}

void
worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	struct work works[FANIN_BURST];
	const struct job *job = NULL;
	uint16_t n_works = 0;

	for (uint16_t i = 0; i < n; i++)
		n_works = (uint16_t)(n_works + admit(worker, mbufs[i], &works[n_works]));
	ctx->now_ns = worker->now_ns;
	for (uint16_t i = 0; i < n_works; i++) {
		if (works[i].job != job) {
			if (job != NULL)
				drain(worker, job);
			job = works[i].job;
			ctx->job = &works[i].job->params;
			ctx->stats = &works[i].job->worker_stats[worker->index].stats;
		}
		ctx->epoch =
			rte_pktmbuf_mtod(works[i].mbuf, const struct fanin_headers *)->fanin.epoch;
		run_handler(worker, &works[i]);
	}
	if (job != NULL)
		drain(worker, job);
}

/* The worker that owns the packet's slot; this one if there is no such job. */
static unsigned int
owner_of(const struct worker *worker, const struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	const struct job *job = job_lookup(worker->pipeline->jobs, hdr->job);

	return job == NULL ? worker->index
			   : (hdr->block & job->slot_mask) % worker->pipeline->n_workers;
}

static void
hand_over(struct worker *worker, unsigned int owner, struct rte_mbuf *mbuf)
{
	if (rte_ring_mp_enqueue(worker->pipeline->workers[owner]->inbox, mbuf) == 0)
		worker->counters.handed_over++;
	else
		worker_drop(worker, mbuf, FANIN_REASON_WORKER_RING_FULL);
}

void
worker_fanin(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n)
{
	struct rte_mbuf *own[FANIN_BURST];
	uint16_t n_own = 0;

	for (uint16_t i = 0; i < n; i++) {
		uint8_t type = rte_pktmbuf_mtod(mbufs[i], const struct fanin_headers *)->fanin.type;
		unsigned int owner;

		if (unlikely(type != FANIN_TYPE_CONTRIBUTION)) {
			if (type == FANIN_TYPE_JOIN || type == FANIN_TYPE_LEAVE)
				worker_membership(worker, mbufs[i]);
			else
				worker_drop(worker, mbufs[i], FANIN_REASON_DIRECTION);
			continue;
		}
		owner = worker->inbox == NULL ? worker->index : owner_of(worker, mbufs[i]);
		if (owner == worker->index)
			own[n_own++] = mbufs[i];
		else
			hand_over(worker, owner, mbufs[i]);
	}
	if (n_own != 0)
		worker_aggregate(worker, own, n_own);
}
