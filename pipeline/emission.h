/* SPDX-License-Identifier: BSD-3-Clause */
/* Carries out what handlers emit: to children, to the parent, back to the sender. Worker only. */
#ifndef FANIN_PIPELINE_EMISSION_H
#define FANIN_PIPELINE_EMISSION_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * Carries out the emissions of all handler calls since the last drain, and frees the mbufs that
 * they gave up.
 */
void emission_drain(struct worker *worker);

/* Like emission_drain, as a worker's handler_ctx.drain. */
void emission_drain_ctx(struct fanin_handler_ctx *ctx);

/*
 * Sends a frame to the job's multicast group for children (a bitmap). The caller holds one
 * reference for each child. The frame leaves once at each of the children's ports; the network
 * behind a port delivers it to all members of the group there.
 */
void emission_to_children(struct worker *worker, const struct job *job, uint64_t children,
			  struct rte_mbuf *mbuf);

#endif
