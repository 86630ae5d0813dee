/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Assigns packets to workers: hierarchical first come, first served (Flare section 5). Worker only.
 */
#ifndef FANIN_PIPELINE_SCHEDULE_H
#define FANIN_PIPELINE_SCHEDULE_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * Hands a packet about a block of the job to the block's cluster. Returns false if this worker has
 * to process it now.
 */
bool worker_dispatch(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

/* Processes packets of the worker's cluster, up to a burst. Returns their number. */
uint16_t worker_poll_cluster(struct worker *worker);

/* Retries the packets whose slot another worker held. */
void worker_retry(struct worker *worker);

#endif
