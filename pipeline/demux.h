/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses by a Fanin packet's type the part of the pipeline that takes it. Worker only. */
#ifndef FANIN_PIPELINE_DEMUX_H
#define FANIN_PIPELINE_DEMUX_H

#include "pipeline/base/worker.h"

/*
 * Takes a valid Fanin packet that matches no template (rx.c), or one that the fault injector has
 * held back.
 */
void worker_fanin(struct worker *worker, struct rte_mbuf *mbuf);

#endif
