/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions, and a parent's results, on their way to their jobs' handlers: those of a burst are
 * admitted first, so that memory that they need can be fetched, and then processed one after the
 * other.
 */
#ifndef FANIN_PIPELINE_AGGREGATE_H
#define FANIN_PIPELINE_AGGREGATE_H

#include <rte_prefetch.h>

#include "pipeline/admission.h"
#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/* A packet with all that its handler call needs. */
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

/* The job that the frame fits, or NULL. */
static inline struct job *
batch_find_job(const struct worker *worker, struct batch *batch, const struct rte_mbuf *mbuf)
{
	return admission_find_job(worker->pipeline, batch->job, mbuf, &batch->sizes);
}

/* Sets all that a packet's handler call needs. headers: in the mbuf. */
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
 * Adds the packet that batch_find_job found to fit just now; at most FANIN_BURST. headers: in the
 * mbuf.
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
 * The next calls of the worker's handlers are for timers of this job, from aggregate_call_expired.
 *
 * Returns false if the run that they were armed in is over, and nothing may be called.
 */
bool aggregate_select_expired(struct worker *worker, const struct job *job, uint32_t epoch);

/* Fills the worker's stock of empty mbufs up, as far as there are any. */
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
		(void)fanin_timer_arm(ctx, index, block); /* it has just made room */
}

/*
 * Packets about blocks that are for this worker, up to a burst: admits them, and runs the handlers.
 */
void worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

#endif
