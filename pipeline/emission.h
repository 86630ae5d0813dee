/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What handlers ask for is carried out here: to children, to the parent, back to the sender. Worker
 * only.
 */
#ifndef FANIN_PIPELINE_EMISSION_H
#define FANIN_PIPELINE_EMISSION_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/* Carries out what the handler calls since the last time asked for, and frees what they gave up. */
void emission_drain(struct worker *worker);

/* The same, as a worker's handler_ctx.drain. */
void emission_drain_ctx(struct fanin_handler_ctx *ctx);

/*
 * Sends a frame to the job's multicast group to children (a bitmap), of which the caller holds one
 * reference for each. It leaves once at each of their ports: what is behind a port hands it to all
 * of the group there.
 */
void emission_to_children(struct worker *worker, const struct job *job, uint64_t children,
			  struct rte_mbuf *mbuf);

#endif
