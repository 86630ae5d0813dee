/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passes contributions of members and results of the parent to their handlers, and sends the
 * handlers' emissions.
 */
#include "pipeline/aggregate.h"

#include "pipeline/emission.h"
#include "pipeline/mismatch.h"
#include "pipeline/probe.h"
#include "pipeline/reply.h"

#include "pipeline/base/fastpath.h"

#define PREFETCH_LINES 8
/* One in this many of a worker's bursts with packets of a job is followed by a sample. */
#define OCCUPANCY_PERIOD 16

static void
retry_later(struct worker *worker, struct rte_mbuf *mbuf)
{
	struct retry *retry;

	worker->counters.retries++;
	if (unlikely(worker->n_retries == WORKER_RETRIES)) {
		worker_drop(worker, mbuf, FANIN_REASON_RETRIES_FULL);
		return;
	}
	retry = &worker->retries[worker->n_retries++];
	retry->mbuf = mbuf;
	retry->since_ns = worker->retrying_since_ns != 0 ? worker->retrying_since_ns
							 : worker->now_ns;
}

/* Refuses a member's packet, as its handler decided. */
static void __rte_cold
refuse_to(struct worker *worker, struct rte_mbuf *mbuf, struct job *job, enum fanin_reason reason)
{
	if (reason == FANIN_REASON_MISMATCH)
		mismatch_note(worker, job,
			      &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin,
			      worker->handler_ctx.expected);
	worker->handler_ctx.expected = 0;
	worker_refuse(worker, mbuf, job, reason);
}

/*
 * Carries out a handler's verdict on a packet. member_of: the job whose member gets a REFUSED;
 * NULL: no member gets one.
 */
static inline void
settle(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_verdict verdict,
       enum fanin_reason reason, struct job *member_of)
{
	switch (verdict) {
	case FANIN_VERDICT_HELD:
		break;
	case FANIN_VERDICT_FREE:
		worker_free(worker, mbuf);
		break;
	case FANIN_VERDICT_DROP:
		if (member_of != NULL)
			refuse_to(worker, mbuf, member_of, reason);
		else
			worker_drop(worker, mbuf, reason);
		break;
	case FANIN_VERDICT_RETRY:
		retry_later(worker, mbuf);
		break;
	}
}

/* Not inline, to keep the path of contributions short. */
static __rte_noinline void
run_result(struct worker *worker, struct work *work)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	enum fanin_reason reason = FANIN_REASON_EPOCH;
	enum fanin_verdict verdict = FANIN_VERDICT_DROP;
	uint32_t epoch;

	/* The run may have ended since the packet was found to fit. */
	if (unlikely(!fanin_handler_takes(work->job->handler, FANIN_TYPE_RESULT))) {
		reason = FANIN_REASON_TYPE;
	} else if (admission_is_of_run(work->job, work->packet.headers, &epoch)) {
		ctx->epoch = epoch;
		verdict = work->job->handler->other(ctx, work->slot, work->index, &work->packet,
						    &reason);
	}
	settle(worker, work->packet.mbuf, verdict, reason, NULL);
}

static inline void
run_handler(struct worker *worker, const struct fanin_handler *handler, struct work *work)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	enum fanin_reason reason = FANIN_REASON_NONE;
	enum fanin_verdict verdict;

	if (unlikely(work->packet.headers->fanin.type == FANIN_TYPE_RESULT)) {
		run_result(worker, work);
		return;
	}
	ctx->epoch = work->packet.headers->fanin.epoch;
	/*
	 * Since the packet was checked, its run may have ended and another one begun: check it
	 * again.
	 */
	if (unlikely(ctx->epoch != worker->run)) {
		retry_later(worker, work->packet.mbuf);
		return;
	}
	verdict = handler->contribution(ctx, work->slot, work->index, &work->packet, &reason);
	settle(worker, work->packet.mbuf, verdict, reason, work->job);
}

/*
 * Refuses a packet that may not go to its handler: counts it, and tells the sender if the sender
 * can act on it. job: the packet's, or NULL.
 */
static void __rte_cold
refuse(struct worker *worker, struct rte_mbuf *mbuf, struct job *job)
{
	enum fanin_reason reason = admission_member(worker->pipeline, mbuf, job);
	uint32_t epoch;

	if (reason == FANIN_REASON_JOB &&
	    rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->ip.dst_be ==
		    worker->pipeline->ip_be) {
		/* Hosts of a job that was destroyed during their run learn of it at once. */
		worker_refuse(worker, mbuf, NULL, reason);
		return;
	}
	if (reason != FANIN_REASON_NONE) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
	if (epoch == 0)
		worker_refuse(worker, mbuf, job, FANIN_REASON_NOT_ACTIVE);
	else if (epoch != rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.epoch)
		worker_refuse(worker, mbuf, job, FANIN_REASON_EPOCH);
	else if (worker->retrying_since_ns == 0) /* The run began just now. */
		retry_later(worker, mbuf);
	else
		worker_drop(worker, mbuf, FANIN_REASON_FRAME_TRUNCATED);
}

/*
 * Prefetches the start of a packet's elements, which are needed next; the hardware prefetcher loads
 * the rest. For a shorter payload this wastes a few lines, which costs less than counting them.
 */
static inline void
prefetch_payload(const struct fanin_packet *packet)
{
	const uint8_t *payload = packet->payload;

#pragma GCC unroll 8
	for (size_t i = 0; i < PREFETCH_LINES; i++)
		rte_prefetch0(payload + i * RTE_CACHE_LINE_SIZE);
}

/*
 * Counts the job's open blocks. This reads counters that other workers keep writing, so it is done
 * rarely.
 */
static void
sample_occupancy(struct worker *worker, const struct job *job)
{
	uint64_t open = 0;

	for (uint16_t i = 0; i < job->n_workers; i++) {
		const struct fanin_handler_stats *stats = &job->worker_stats[i].stats;

		open += stats->blocks - stats->results;
	}
	/*
	 * Each worker counts on its own, so the difference of two counters may be off, even below
	 * zero.
	 */
	if (open <= job->params.slots.mask) {
		job->worker_stats[worker->index].occupancy[histogram_bucket((uint32_t)open)]++;
		job->worker_stats[worker->index].occupancy_sum += open;
	}
}

void __rte_noinline
aggregate_restock(struct worker *worker)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	if (rte_pktmbuf_alloc_bulk(worker->pipeline->pool, &ctx->stock[ctx->n_stock],
				   FANIN_STOCK - ctx->n_stock) == 0)
		ctx->n_stock = FANIN_STOCK;
}

/*
 * Selects a job for the next handler calls, for as long as its current run lasts. The parent's
 * epoch is read between two reads of the job's own.
 */
static void
select_job(struct worker *worker, const struct job *job)
{
	const uint32_t epoch = __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);

	worker->handler_ctx.job = &job->params;
	worker->handler_ctx.state = job->state;
	/* Set together with the job, which may be gone before the next one is selected. */
	worker->handler_ctx.ended = &job->ended;
	worker->handler_ctx.silent = &job->silent;
	worker->handler_ctx.timers = job->timeout < 0 ? NULL : worker->timers[job->timeout];
	worker->handler_ctx.tagger = job->taggers != NULL ? job->taggers[worker->index] : NULL;
	worker->handler_ctx.parent_instance = __atomic_load_n(&job->parent_instance,
							      __ATOMIC_RELAXED);
	worker->handler_ctx.parent_port_shift = __atomic_load_n(&job->parent_port_shift,
								__ATOMIC_RELAXED);
	worker->handler_ctx.parent_epoch = __atomic_load_n(&job->parent_epoch, __ATOMIC_ACQUIRE);
	worker->run = __atomic_load_n(&job->epoch, __ATOMIC_RELAXED) == epoch ? epoch : 0;
	worker->handler_ctx.stats = &job->worker_stats[worker->index].stats;
	if (unlikely(job->handler->makes_packets && worker->handler_ctx.n_stock != FANIN_STOCK))
		aggregate_restock(worker);
}

void
batch_run(struct worker *worker, struct batch *batch)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	const struct work *end = batch->works + batch->n;
	const struct job *job = batch->works[0].job;

	select_job(worker, job);
	ctx->now_ns = worker->now_ns;
	for (struct work *work = batch->works; work < end; work++) {
		if (work + 1 < end)
			prefetch_payload(&work[1].packet);
		if (unlikely(work->job != job)) {
			job = work->job;
			select_job(worker, job);
		}
		run_handler(worker, job->handler, work);
	}
	emission_drain(worker);
	if (job->worker_stats[worker->index].bursts++ % OCCUPANCY_PERIOD == 0)
		sample_occupancy(worker, job);
}

static bool
is_from_parent(const struct fanin_hdr *hdr)
{
	return fanin_type_direction(hdr->type) == FANIN_DOWN;
}

/*
 * Calls the handler for a packet on the slow path: of any type but CONTRIBUTION, or of a job that
 * admits by key.
 */
static enum fanin_verdict
run_other(struct fanin_handler_ctx *ctx, const struct job *job, struct work *work,
	  enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &work->packet.headers->fanin;

	if (hdr->type == FANIN_TYPE_CONTRIBUTION)
		return job->handler->contribution(ctx, work->slot, work->index, &work->packet,
						  reason);
	if (unlikely(!fanin_handler_takes(job->handler, hdr->type))) {
		*reason = FANIN_REASON_TYPE;
		return FANIN_VERDICT_DROP;
	}
	return job->handler->other(ctx, work->slot, work->index, &work->packet, reason);
}

/*
 * Like select_job, for packets on the slow path: jobs that admit by key are also selected without a
 * run.
 */
static void
select_any(struct worker *worker, const struct job *job)
{
	select_job(worker, job);
	if (admission_is_key_only(job))
		worker->run = job_epoch(job);
}

/*
 * Returns true if the sender is a member, which gets a REFUSED with the reason. job: may be NULL.
 */
static bool
is_refusable(const struct job *job, const struct fanin_hdr *hdr)
{
	return !admission_is_key_only(job) && !is_from_parent(hdr);
}

/* Returns true if the packet is of the run that select_job has found. */
static bool
is_of_run(const struct worker *worker, const struct fanin_hdr *hdr)
{
	if (is_from_parent(hdr))
		return worker->run != 0 && hdr->epoch == worker->handler_ctx.parent_epoch;
	return worker->run != 0 && hdr->epoch == worker->run;
}

/* Runs the handlers on packets of the slow path one by one, then sends. */
static void
run_others(struct worker *worker, struct work *works, uint16_t n)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;
	const struct work *end = works + n;
	struct job *job = NULL;
	bool by_key = false;

	ctx->now_ns = worker->now_ns;
	for (struct work *work = works; work < end; work++) {
		const struct fanin_hdr *hdr = &work->packet.headers->fanin;
		const uint32_t block = hdr->block;
		enum fanin_reason reason = FANIN_REASON_NONE;
		enum fanin_verdict verdict = FANIN_VERDICT_RETRY;
		struct job *member_of;

		if (work + 1 < end)
			prefetch_payload(&work[1].packet);
		if (work->job != job) {
			job = work->job;
			by_key = admission_is_key_only(job);
			select_any(worker, job);
			ctx->epoch = worker->run;
		}
		member_of = by_key || is_from_parent(hdr) ? NULL : job;
		ctx->missing = 0;
		if (by_key || is_of_run(worker, hdr))
			verdict = run_other(ctx, job, work, &reason);
		settle(worker, work->packet.mbuf, verdict, reason, member_of);
		if (unlikely(ctx->missing != 0))
			probe_watch(worker, job, ctx->missing, block);
	}
	emission_drain(worker);
}

void
batch_run_by_key(struct worker *worker, struct batch *batch)
{
	run_others(worker, batch->works, batch->n);
}

/*
 * Runs the handler on one packet: a query, a result that a member knew, a packet from the parent
 * that did not match the template, or one that is admitted by key. job: the packet's, or NULL.
 */
static void
run_single(struct worker *worker, struct rte_mbuf *mbuf, struct job *job)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const enum fanin_reason reason = admission_block(worker->pipeline, mbuf, job);
	struct work work;

	if (reason != FANIN_REASON_NONE) {
		if (is_refusable(job, hdr))
			refuse(worker, mbuf, job);
		else
			worker_drop(worker, mbuf, reason);
		return;
	}
	if (hdr->type == FANIN_TYPE_QUERY && is_refusable(job, hdr) &&
	    mismatch_stops(job, hdr->epoch, hdr->block)) {
		worker_refuse(worker, mbuf, job, FANIN_REASON_MISMATCH);
		return;
	}
	work_set(&work, job, mbuf, headers, fanin_wire_payload_len(headers),
		 admission_is_key_only(job) ? ingress_port(worker->pipeline, mbuf)
					    : (uint16_t)job_likely_child_of(job, hdr->rank));
	run_others(worker, &work, 1);
}

bool
aggregate_select_expired(struct worker *worker, const struct job *job, uint32_t epoch)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	select_any(worker, job);
	ctx->now_ns = worker->now_ns;
	ctx->epoch = epoch;
	return worker->run == epoch;
}

/* Processes a packet that fits no job's template. */
static void
run_alone(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	struct job *job = admission_job(worker->pipeline, mbuf);

	if (hdr->type == FANIN_TYPE_CONTRIBUTION && !admission_is_key_only(job))
		refuse(worker, mbuf, job);
	else
		run_single(worker, mbuf, job);
}

void
worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n)
{
	struct batch batch;

	batch_init(&batch);
	for (uint16_t i = 0; i < n; i++) {
		struct job *job = batch_find_job(worker, &batch, mbufs[i]);

		if (likely(job != NULL))
			batch_add(&batch, job, mbufs[i],
				  rte_pktmbuf_mtod(mbufs[i], struct fanin_headers *));
		else
			run_alone(worker, mbufs[i]);
	}
	if (batch.n != 0)
		batch_run(worker, &batch);
}
