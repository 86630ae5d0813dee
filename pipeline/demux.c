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

/*
 * Only members and parents have a say in which cluster gets a block: a stranger would decide where the packets of others go. What comes
 * from none is refused here, whichever cluster the block has.
 */
static void
to_block(struct worker *worker, struct rte_mbuf *mbuf, const struct fanin_hdr *hdr)
{
	enum fanin_reason reason;
	struct job *job;

	if (fanin_type_direction(hdr->type) == FANIN_UP)
		reason = admission_member(worker->pipeline, mbuf, &job);
	else
		reason = admission_parent(worker->pipeline, mbuf, &job);
	if (reason != FANIN_REASON_NONE || !worker_dispatch(worker, job, mbuf))
		worker_aggregate(worker, &mbuf, 1);
}

/* What a parent says of the job, or asks. */
static void
from_parent(struct worker *worker, struct rte_mbuf *mbuf, const struct fanin_hdr *hdr)
{
	struct job *job;
	const enum fanin_reason reason = admission_parent(worker->pipeline, mbuf, &job);

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
		to_block(worker, mbuf, hdr);
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
