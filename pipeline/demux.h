/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * By its type, which part of the pipeline takes a Fanin packet. Worker only.
 */
#ifndef FANIN_PIPELINE_DEMUX_H
#define FANIN_PIPELINE_DEMUX_H

#include "pipeline/base/worker.h"

/*
 * A valid Fanin packet that is not a member's contribution as its job expects it, or one that was
 * held back.
 */
void worker_fanin(struct worker *worker, struct rte_mbuf *mbuf);

#endif
