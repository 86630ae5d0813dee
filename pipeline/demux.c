/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends a Fanin packet by its type to its block's cluster, to the membership code, or to the parent
 * code.
 */
#include "pipeline/demux.h"

#include "pipeline/admission.h"
#include "pipeline/aggregate.h"
#include "pipeline/by_key.h"
#include "pipeline/membership.h"
#include "pipeline/parent.h"
#include "pipeline/probe.h"
#include "pipeline/schedule.h"

#include "pipeline/base/fastpath.h"

/*
 * Only admitted senders may assign a block to a cluster: otherwise a stranger would decide where
 * the packets of others go. Packets from strangers are refused here, for any cluster of the block.
 */
static void
to_block(struct worker *worker, struct rte_mbuf *mbuf)
{
	struct job *job = admission_job(worker->pipeline, mbuf);
	enum fanin_reason reason = admission_sender(worker->pipeline, mbuf, job);

	if (admission_is_key_only(job)) {
		if (reason == FANIN_REASON_NONE &&
		    !by_key_is_within_rate(worker, ingress_port(worker->pipeline, mbuf)))
			reason = FANIN_REASON_RATE;
		if (reason != FANIN_REASON_NONE) {
			worker_drop(worker, mbuf, reason);
			return;
		}
	}
	if (reason != FANIN_REASON_NONE || !worker_dispatch(worker, job, mbuf))
		worker_aggregate(worker, &mbuf, 1);
}

/* Handles a parent's messages about the job. */
static void
from_parent(struct worker *worker, struct rte_mbuf *mbuf, const struct fanin_hdr *hdr)
{
	struct job *job = admission_job(worker->pipeline, mbuf);
	const enum fanin_reason reason = admission_parent(worker->pipeline, mbuf, job);

	if (reason != FANIN_REASON_NONE)
		worker_drop(worker, mbuf, reason);
	else if (fanin_type_class(hdr->type) == FANIN_CLASS_PROBE)
		probe_answer(worker, job, mbuf);
	else
		worker_from_parent(worker, job, mbuf);
}

void
worker_fanin(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;

	switch (fanin_type_class(hdr->type)) {
	case FANIN_CLASS_BLOCK:
		to_block(worker, mbuf);
		break;
	case FANIN_CLASS_MEMBERSHIP:
		worker_membership(worker, mbuf);
		break;
	case FANIN_CLASS_PROBE:
		if (fanin_type_direction(hdr->type) == FANIN_UP)
			probe_take_ack(worker, mbuf);
		else
			from_parent(worker, mbuf, hdr);
		break;
	case FANIN_CLASS_PARENT:
		from_parent(worker, mbuf, hdr);
		break;
	case FANIN_CLASS_NONE: /* validation lets none through */
		worker_drop(worker, mbuf, FANIN_REASON_TYPE);
		break;
	}
}
