/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses by a Fanin packet's type the part of the pipeline that takes it. Worker only. */
#ifndef FANIN_PIPELINE_DEMUX_H
#define FANIN_PIPELINE_DEMUX_H

#include "pipeline/base/worker.h"

/*
 * Takes a valid Fanin packet that is no contribution as its job expects it, or one that was held
 * back.
 */
void worker_fanin(struct worker *worker, struct rte_mbuf *mbuf);

#endif
