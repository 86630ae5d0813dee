/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a valid Fanin packet to its handler and back: job lookup, membership, the worker that owns
 * the slot, the handler call, and what the handler asked to be sent. A slot belongs to one worker
 * (S = 1 in Flare's section 5), so nothing here locks.
 */
#include <rte_prefetch.h>

#include "pipeline/worker.h"

#include "pipeline/fastpath.h"

#define PREFETCH_BYTES 2048

/* A packet with all that its handler call needs. */
struct work {
	struct fanin_packet packet;
	struct job *job;
	uint8_t *slot;
	uint32_t index; /* of the slot */
	uint32_t epoch;
};

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
		case FANIN_EMIT_CHILDREN:
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
		worker_free(worker, ctx->frees[i]);
	ctx->n_frees = 0;
}

static void
retry_later(struct worker *worker, struct rte_mbuf *mbuf)
{
	struct retry *retry;

	worker->counters.retries++;
	if (unlikely(worker->n_retries == WORKER_RETRIES)) {
		worker_drop(worker, mbuf, FANIN_REASON_WORKER_RING_FULL);
		return;
	}
	retry = &worker->retries[worker->n_retries++];
	retry->mbuf = mbuf;
	retry->since_ns = worker->retrying_since_ns != 0 ? worker->retrying_since_ns : worker->now_ns;
}

static inline void
run_handler(struct worker *worker, struct work *work)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	enum fanin_reason reason;

	ctx->epoch = work->epoch;
	switch (work->job->handler->contribution(ctx, work->slot, work->index, &work->packet,
						 &reason)) {
	case FANIN_VERDICT_HELD:
		break;
	case FANIN_VERDICT_FREE:
		worker_free(worker, work->packet.mbuf);
		break;
	case FANIN_VERDICT_DROP:
		worker_refuse(worker, work->packet.mbuf, reason);
		break;
	case FANIN_VERDICT_RETRY:
		retry_later(worker, work->packet.mbuf);
		break;
	}
}

/* A packet that may not go to its handler: counted, and the sender told where it can do something about it. */
static void __rte_cold
refuse(struct worker *worker, struct rte_mbuf *mbuf)
{
	struct job *job;
	enum fanin_reason reason = worker_member_check(worker->pipeline, mbuf, &job);
	uint32_t epoch;

	if (reason == FANIN_REASON_JOB) {
		/* A job that was destroyed while its hosts run: they learn of it at once. */
		worker_refuse(worker, mbuf, reason);
		return;
	}
	if (reason != FANIN_REASON_NONE) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	if (epoch == 0)
		worker_refuse(worker, mbuf, FANIN_REASON_NOT_ACTIVE);
	else if (epoch != rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.epoch)
		worker_refuse(worker, mbuf, FANIN_REASON_EPOCH);
	else /* The run began just now. */
		retry_later(worker, mbuf);
}

/* Fills *work if the packet comes from a member and belongs to the current run of its job. */
static inline bool
admit(const struct worker *worker, struct rte_mbuf *mbuf, struct work *work)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	struct job *job = job_lookup(worker->pipeline->jobs, hdr->job);

	if (unlikely(job == NULL || hdr->rank >= job->params.n_children ||
		     hdr->key != job->params.key ||
		     job->child_origins[hdr->rank] != job_origin(headers->ip.src_be, mbuf->port) ||
		     hdr->epoch != __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE) || hdr->epoch == 0))
		return false;
	work->job = job;
	work->index = hdr->block & job->slot_mask;
	work->slot = job->slots + work->index * job->slot_size;
	rte_prefetch0(work->slot);
	work->epoch = hdr->epoch;
	work->packet.mbuf = mbuf;
	work->packet.headers = headers;
	work->packet.payload = headers + 1;
	work->packet.payload_len = fanin_wire_payload_len(headers);
	work->packet.child = hdr->rank;
	return true;
}

/* Elements of a packet that will be needed next. What is behind them, the hardware fetches unasked. */
static inline void
prefetch_payload(const struct fanin_packet *packet)
{
	const uint32_t len = RTE_MIN(packet->payload_len, (uint32_t)PREFETCH_BYTES);

	for (uint32_t i = 0; i < len; i += RTE_CACHE_LINE_SIZE)
		rte_prefetch0((const uint8_t *)packet->payload + i);
}

/* The next handler calls are for this job. */
static void
job_select(struct worker *worker, struct job *job)
{
	worker->handler_ctx.job = &job->params;
	worker->handler_ctx.stats = &job->worker_stats[worker->index].stats;
}

/* Ends a burst's packets of one job. */
static void
finish_job(struct worker *worker, const struct job *job)
{
	uint64_t open = 0;

	drain(worker, job);
	for (uint16_t i = 0; i < job->n_workers; i++) {
		const struct fanin_handler_stats *stats = &job->worker_stats[i].stats;

		open += stats->blocks - stats->results;
	}
	/* Workers count apart: between two counters the difference may be off, even below zero. */
	if (open <= job->slot_mask)
		job->worker_stats[worker->index].occupancy[histogram_bucket((uint32_t)open)]++;
}

void
worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	struct work works[FANIN_BURST];
	const struct job *job;
	uint16_t n_works = 0;

	for (uint16_t i = 0; i < n; i++) {
		if (likely(admit(worker, mbufs[i], &works[n_works])))
			n_works++;
		else
			refuse(worker, mbufs[i]);
	}
	if (unlikely(n_works == 0))
		return;
	ctx->now_ns = worker->now_ns;
	job = works[0].job;
	job_select(worker, works[0].job);
	for (uint16_t i = 0; i < n_works; i++) {
		struct work *work = &works[i];

		if (unlikely(work->job != job)) {
			finish_job(worker, job);
			job = work->job;
			job_select(worker, work->job);
		}
		if (i + 1 < n_works)
			prefetch_payload(&works[i + 1].packet);
		run_handler(worker, work);
		if (unlikely(ctx->n_frees > FANIN_MAX_FREES - FANIN_MAX_FREES_PER_CALL))
			drain(worker, job);
	}
	finish_job(worker, job);
}
