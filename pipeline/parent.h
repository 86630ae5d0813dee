/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This switch and its parent in a job's reduction tree: what they say to each other about the job
 * as a whole. Worker only.
 */
#ifndef FANIN_PIPELINE_PARENT_H
#define FANIN_PIPELINE_PARENT_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/* This switch joins the job at its parent, or says it again. */
void worker_ask_parent(struct worker *worker, struct job *job);

/*
 * Tells children (a bitmap) that the job has no run: others of its ranks were in one and join
 * again, and these may have nothing to send by which they would notice.
 */
void worker_call_children(struct worker *worker, const struct job *job, uint64_t children);

/* This switch leaves the parent's run of the job. */
void worker_leave_parent(struct worker *worker, const struct job *job, uint32_t epoch);

/* A JOIN_ACK, LEAVE_ACK or REFUSED that admission_parent has found to be from the job's parent. */
void worker_from_parent(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

#endif
