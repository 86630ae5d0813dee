/* SPDX-License-Identifier: BSD-3-Clause */
/* See mismatch.h. */
#include "pipeline/emission.h"
#include "pipeline/mismatch.h"
#include "pipeline/probe.h"
#include "pipeline/tags.h"
#include "wire/shard.h"

#include "pipeline/base/fastpath.h"

/* Returns true if it is the run's first. */
static bool
keep(struct job *job, uint32_t epoch, const struct fanin_mismatch *mismatch)
{
	bool first;

	rte_spinlock_lock(&job->lock);
	first = epoch != 0 && job->epoch == epoch && job->mismatch.epoch != epoch;
	if (first) {
		job->mismatch.what = *mismatch;
		job->mismatch.parent_epoch = __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED);
		__atomic_store_n(&job->mismatch.epoch, epoch, __ATOMIC_RELEASE);
	}
	rte_spinlock_unlock(&job->lock);
	return first;
}

static void
tell_children(struct worker *worker, const struct job *job, uint32_t epoch,
	      const struct fanin_mismatch *mismatch)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(worker->pipeline->pool);
	struct fanin_headers *headers;

	/* A child that is not told now asks later. */
	if (mbuf == NULL) {
		worker->counters.drops[FANIN_REASON_TX_FULL]++;
		return;
	}
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, FANIN_PAYLOAD_OFFSET);
	*headers = job->params.result_headers;
	fanin_wire_set_payload_len(headers, 0);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_REFUSED, job->params.id, epoch,
				 job->params.keys.down);
	headers->fanin.count = FANIN_REASON_MISMATCH;
	fanin_mismatch_encode(&headers->fanin, mismatch);
	tags_seal(worker, job, FANIN_TAG_DOWN, mbuf);
	rte_mbuf_refcnt_set(mbuf, job->params.n_children);
	emission_to_children(worker, job, job->params.children, mbuf);
}

void
mismatch_tell_parent(struct worker *worker, struct job *job, uint32_t parent_epoch)
{
	struct fanin_mismatch mismatch;
	struct fanin_headers *headers;
	struct rte_mbuf *mbuf;

	if (!job->params.has_parent || job->params.parent_is_server ||
	    !mismatch_read_for_parent(job, parent_epoch, &mismatch))
		return;
	mbuf = rte_pktmbuf_alloc(worker->pipeline->pool);
	if (mbuf == NULL) {
		worker->counters.drops[FANIN_REASON_TX_FULL]++;
		return;
	}
	headers = (struct fanin_headers *)rte_pktmbuf_append(mbuf, FANIN_PAYLOAD_OFFSET);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_PROBE, job->params.id, parent_epoch,
				 0);
	headers->fanin.block = mismatch.block;
	probe_answer(worker, job, mbuf);
}

void
mismatch_note(struct worker *worker, struct job *job, const struct fanin_hdr *hdr,
	      uint64_t expected)
{
	const bool sparse = hdr->type == FANIN_TYPE_SPARSE || hdr->type == FANIN_TYPE_SPARSE_KNOWN;
	const struct fanin_mismatch mismatch = {
		.found = sparse ? fanin_shard_shape(hdr) : fanin_wire_shape(hdr),
		.expected = expected,
		.block = hdr->block,
		.rank = hdr->rank,
	};

	if (!keep(job, hdr->epoch, &mismatch))
		return;
	tell_children(worker, job, hdr->epoch, &mismatch);
	mismatch_tell_parent(worker, job, __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED));
}

void
mismatch_take(struct worker *worker, struct job *job, uint32_t epoch,
	      const struct fanin_mismatch *mismatch, bool from_below)
{
	if (!keep(job, epoch, mismatch))
		return;
	tell_children(worker, job, epoch, mismatch);
	if (from_below)
		mismatch_tell_parent(worker, job,
				     __atomic_load_n(&job->parent_epoch, __ATOMIC_RELAXED));
}

bool
mismatch_read_for_parent(struct job *job, uint32_t parent_epoch, struct fanin_mismatch *mismatch)
{
	bool found;

	rte_spinlock_lock(&job->lock);
	found = parent_epoch != 0 && job->mismatch.parent_epoch == parent_epoch;
	if (found)
		*mismatch = job->mismatch.what;
	rte_spinlock_unlock(&job->lock);
	return found;
}

bool
mismatch_read(struct job *job, uint32_t epoch, struct fanin_mismatch *mismatch)
{
	bool found;

	if (likely(!mismatch_is_of(job, epoch)))
		return false;
	rte_spinlock_lock(&job->lock);
	/* The next run may have begun, and have a mismatch of its own. */
	found = mismatch_is_of(job, epoch);
	if (found)
		*mismatch = job->mismatch.what;
	rte_spinlock_unlock(&job->lock);
	return found;
}
