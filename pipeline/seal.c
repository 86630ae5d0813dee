/* SPDX-License-Identifier: BSD-3-Clause */
/* Tags of packets that the pipeline makes. See tags.h. */
#include "pipeline/tags.h"

#include "pipeline/base/fastpath.h"

void
tags_seal(struct worker *worker, const struct job *job, enum fanin_tag_direction direction,
	  struct rte_mbuf *mbuf)
{
	if (likely(job->taggers == NULL))
		return;
	if (!fanin_tagger_seal_frame(job->taggers[worker->index], direction,
				     tags_instance(worker->pipeline, job,
						   direction == FANIN_TAG_UP),
				     rte_pktmbuf_mtod(mbuf, struct fanin_headers *)))
		return;
	mbuf->data_len += FANIN_TAG_LEN;
	mbuf->pkt_len = mbuf->data_len;
}
