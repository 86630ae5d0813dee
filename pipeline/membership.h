/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers members that join or leave. Worker only. */
#ifndef FANIN_PIPELINE_MEMBERSHIP_H
#define FANIN_PIPELINE_MEMBERSHIP_H

#include "pipeline/base/worker.h"

/* Takes a valid JOIN or LEAVE. */
void worker_membership(struct worker *worker, struct rte_mbuf *mbuf);

#endif
