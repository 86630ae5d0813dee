/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ingress: which part of the switch a frame is for. Worker only.
 */
#ifndef FANIN_PIPELINE_RX_H
#define FANIN_PIPELINE_RX_H

#include "pipeline/base/worker.h"

/*
 * Sorts a burst, of FANIN_BURST frames at most, into foreign, local and Fanin packets and passes
 * each on.
 */
void worker_classify(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

#endif
