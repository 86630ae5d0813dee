/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * By its type, a Fanin packet goes to its block's cluster, to who answers members, or to who listens to the parent.
 */
#include "pipeline/demux.h"

#include "pipeline/admission.h"
#include "pipeline/aggregate.h"
#include "pipeline/membership.h"
#include "pipeline/parent.h"
#include "pipeline/probe.h"
#include "pipeline/schedule.h"

#include "pipeline/fastpath.h"

/* What the parent sent about a block, or, of another type, about the job. */
static void
from_parent(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	struct job *job;
	enum fanin_reason reason = admission_parent(worker->pipeline, mbuf, &job);

	if (reason != FANIN_REASON_NONE) {
		worker_drop(worker, mbuf, reason);
		return;
	}
	switch (hdr->type) {
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_ANSWER:
		if (!worker_dispatch(worker, job, mbuf))
			worker_aggregate(worker, &mbuf, 1);
		break;
	case FANIN_TYPE_PROBE:
		probe_answer(worker, job, mbuf);
		break;
	default:
		worker_from_parent(worker, job, mbuf);
		break;
	}
}

void
worker_fanin(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	struct job *job;

	switch (hdr->type) {
	case FANIN_TYPE_CONTRIBUTION:
	case FANIN_TYPE_KNOWN:
	case FANIN_TYPE_QUERY:
		/*
		 * Only members have a say in which cluster gets a block: a stranger would decide where the packets of
		 * others go. What comes from none is refused here, whichever cluster the block has.
		 */
		if (admission_member(worker->pipeline, mbuf, &job) != FANIN_REASON_NONE ||
		    !worker_dispatch(worker, job, mbuf))
			worker_aggregate(worker, &mbuf, 1);
		break;
	case FANIN_TYPE_JOIN:
	case FANIN_TYPE_LEAVE:
		worker_membership(worker, mbuf);
		break;
	case FANIN_TYPE_PROBE_ACK:
		probe_take_ack(worker, mbuf);
		break;
	default:
		from_parent(worker, mbuf);
		break;
	}
}
