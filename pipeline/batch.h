/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions, and a parent's results, on their way to their jobs' handlers: those of a burst are admitted first, so
 * that memory that they need can be fetched, and then processed one after the other.
 */
#ifndef FANIN_PIPELINE_BATCH_H
#define FANIN_PIPELINE_BATCH_H

#include <rte_prefetch.h>

#include "pipeline/worker.h"

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

/* aggregate.c: runs the handlers on all packets. Not for an empty batch. */
void batch_run(struct worker *worker, struct batch *batch);

static inline void
batch_init(struct batch *batch)
{
	batch->job = NULL;
	batch->sizes = FANIN_SIZES_NONE;
	batch->n = 0;
}

/*
 * Is the frame a valid contribution that comes from a member of the job, and of the job's current run? One that is not
 * may be all right, but for another job.
 */
static inline bool
batch_fits(struct batch *batch, const struct job *job, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct fanin_hdr *hdr = &headers->fanin;
	const unsigned int child = job_likely_child_of(job, hdr->rank);

	/* The template has the child's rank. */
	return fanin_wire_fits(headers, &job->child_templates[child]) &&
	       fanin_wire_elements_fit(headers, mbuf->data_len, &batch->sizes) &&
	       mbuf->port == job->child_ethdevs[child] && hdr->epoch != 0 &&
	       hdr->epoch == __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);
}

/* aggregate.c: the same of a result of the job's parent. */
bool batch_fits_result(struct batch *batch, const struct job *job, const struct rte_mbuf *mbuf);

/* The job that the frame fits, or NULL. */
static inline struct job *
batch_find_job(const struct worker *worker, struct batch *batch, const struct rte_mbuf *mbuf)
{
	uint32_t id;
	struct job *job = batch->job;

	if (unlikely(mbuf->data_len < FANIN_PAYLOAD_OFFSET))
		return NULL;
	id = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin.job;
	if (unlikely(job == NULL || job->params.id != id)) {
		job = job_lookup(worker->pipeline->jobs, id);
		if (job == NULL)
			return NULL;
	}
	return likely(batch_fits(batch, job, mbuf)) || batch_fits_result(batch, job, mbuf) ? job
											   : NULL;
}

/* Adds the packet that batch_find_job found to fit just now; at most FANIN_BURST. */
static inline void
batch_add(struct batch *batch, struct job *job, struct rte_mbuf *mbuf)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct work *work = &batch->works[batch->n++];

	batch->job = job;
	work->job = job;
	work->index = headers->fanin.block & job->slot_mask;
	work->slot = job->slots[work->index];
	rte_prefetch0(work->slot);
	work->packet.mbuf = mbuf;
	work->packet.headers = headers;
	work->packet.payload = headers + 1;
	work->packet.payload_len = batch->sizes.payload_len;
	work->packet.child = (uint16_t)job_likely_child_of(job, headers->fanin.rank);
}

#endif
