/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passes contributions and the parent's results to their jobs' handlers. The packets of a burst are
 * all admitted first, so that the memory that they need can be prefetched, and then processed one
 * by one.
 */
#ifndef FANIN_PIPELINE_AGGREGATE_H
#define FANIN_PIPELINE_AGGREGATE_H

#include <rte_prefetch.h>

#include "pipeline/admission.h"
#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/* A packet with everything that its handler call needs. */
struct work {
	struct fanin_packet packet;
	struct job *job;
	uint8_t *slot;
	uint32_t index; /* of the slot */
};

struct batch {
	struct job *job;          /* of the last packet; NULL: none yet */
	struct fanin_sizes sizes; /* likewise */
	uint16_t n;
	struct work works[FANIN_BURST];
};

/* Runs the handlers on all packets. Not for an empty batch. */
void batch_run(struct worker *worker, struct batch *batch);

/*
 * Runs the handlers on all packets of a batch that was admitted by key (by_key.h). Not for an empty
 * one.
 */
void batch_run_by_key(struct worker *worker, struct batch *batch);

static inline void
batch_init(struct batch *batch)
{
	batch->job = NULL;
	batch->sizes = FANIN_SIZES_NONE;
	batch->n = 0;
}

/* Returns the job that the frame fits, or NULL. */
static inline struct job *
batch_find_job(const struct worker *worker, struct batch *batch, const struct rte_mbuf *mbuf)
{
	return admission_find_job(worker->pipeline, batch->job, mbuf, &batch->sizes);
}

/* Sets everything that a packet's handler call needs. headers: in the mbuf. */
static inline void
work_set(struct work *work, struct job *job, struct rte_mbuf *mbuf, struct fanin_headers *headers,
	 uint32_t payload_len, uint16_t child)
{
	work->job = job;
	work->index = fanin_slot_index(&job->params.slots, headers->fanin.block);
	work->slot = job->params.slots.by_index[work->index];
	rte_prefetch0(work->slot);
	work->packet.mbuf = mbuf;
	work->packet.headers = headers;
	work->packet.payload = headers + 1;
	work->packet.payload_len = payload_len;
	work->packet.child = child;
}

/*
 * Adds the packet that batch_find_job has just found to fit; up to FANIN_BURST packets. headers: in
 * the mbuf.
 */
static inline void
batch_add(struct batch *batch, struct job *job, struct rte_mbuf *mbuf,
	  struct fanin_headers *headers)
{
	batch->job = job;
	work_set(&batch->works[batch->n++], job, mbuf, headers, batch->sizes.payload_len,
		 (uint16_t)job_likely_child_of(job, headers->fanin.rank));
}

/*
 * Selects a job for aggregate_call_expired: the worker's next handler calls are for its timers.
 *
 * Returns false if the run that the timers were armed in is over; then nothing may be called.
 */
bool aggregate_select_expired(struct worker *worker, const struct job *job, uint32_t epoch);

/* Refills the worker's stock of empty mbufs as far as the pool has any. */
void aggregate_restock(struct worker *worker);

/*
 * Calls a job's handler for a timer of a block that has expired. The caller must call
 * emission_drain after the last timer, which carries out the handler's emissions.
 */
static inline void
aggregate_call_expired(struct worker *worker, const struct job *job, uint32_t index, uint32_t block)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	if (unlikely(ctx->n_stock != FANIN_STOCK && job->handler->makes_packets))
		aggregate_restock(worker);
	if (unlikely(!job->handler->expired(ctx, job->params.slots.by_index[index], index, block)))
		(void)fanin_timer_arm(ctx, index, block); /* the expired timer has just made room */
}

/* Admits packets about blocks for this worker, up to a burst, and runs their handlers. */
void worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

#endif
