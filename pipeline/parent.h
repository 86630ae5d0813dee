/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between this switch and its parent in a job's reduction tree about the job as a whole.
 * Worker only.
 */
#ifndef FANIN_PIPELINE_PARENT_H
#define FANIN_PIPELINE_PARENT_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/* Sends or repeats this switch's JOIN to the parent. */
void worker_ask_parent(struct worker *worker, struct job *job);

/*
 * Tells children (a bitmap) that the job has no run. Other ranks of the job were in one and join
 * again; these children may have nothing to send by which they would notice.
 */
void worker_call_children(struct worker *worker, const struct job *job, uint64_t children);

/* Leaves the parent's run of the job. */
void worker_leave_parent(struct worker *worker, const struct job *job, uint32_t epoch);

/*
 * Takes a JOIN_ACK, LEAVE_ACK or REFUSED that admission_parent has found to be from the job's
 * parent.
 */
void worker_from_parent(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

#endif
