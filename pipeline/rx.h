/* SPDX-License-Identifier: BSD-3-Clause */
/* Ingress: finds the part of the switch that a frame is for. Worker only. */
#ifndef FANIN_PIPELINE_RX_H
#define FANIN_PIPELINE_RX_H

#include "pipeline/base/worker.h"

/*
 * Sorts a burst of up to FANIN_BURST frames into foreign, local and Fanin packets and passes each
 * on.
 */
void worker_classify(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

#endif
