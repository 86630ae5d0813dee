/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which worker gets a packet: hierarchical first come, first served (Flare section 5). Worker only.
 */
#ifndef FANIN_PIPELINE_SCHEDULE_H
#define FANIN_PIPELINE_SCHEDULE_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * A packet of a block of the job, to the block's cluster. Returns false if it is this worker's to
 * process, now.
 */
bool worker_dispatch(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

/* Packets of the worker's cluster, up to a burst. Returns how many there were. */
uint16_t worker_poll_cluster(struct worker *worker);

/* Tries the packets again that found another worker in the way. */
void worker_retry(struct worker *worker);

#endif
